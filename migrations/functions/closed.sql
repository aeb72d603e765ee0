-- The last file of functions, with roles and without: PostgreSQL lets everybody execute a new function, so all are closed, and what
-- is meant for everybody is opened. The rest of the rights is grants.sql, or with --no-roles what the owner grants by hand.
revoke all on all tables in schema rowbell from public;
revoke all on all sequences in schema rowbell from public;
revoke all on all functions in schema rowbell from public;
revoke create on schema rowbell from public;

-- The way in for what depends on its caller: each call checks the caller's EXECUTE on the function that it is named after.
grant insert (name, arguments), select (result) on rowbell.calls to public;
grant select on rowbell.caller to public;
-- lastval() asks for this right; see functions/lastval.sql.
do $$
begin
  for i in 0 .. 15 loop
    execute format('grant usage on sequence rowbell.lastval_%s to public', i);
  end loop;
end $$;
-- These compute, read the catalog, lock with the caller's rights, or tell of the caller's own transaction and tables; triggers of follow_ddl run as whoever alters a table.
grant execute on function rowbell.event_id, rowbell.event_seq, rowbell.receipt, rowbell.publish_triggers, rowbell.publish_relations,
  rowbell.published_now, rowbell.published_parts, rowbell.follow_tables, rowbell.follow_ddl, rowbell.lock_gently, rowbell.lastval_kept,
  rowbell.keeps_lastval, rowbell.raise_sequences to public;

-- Some hosts have an event trigger that puts row security on each new table. What verify.sql found it on was refused, so this is only
-- on tables that were made just now.
do $$
declare
  made regclass;
begin
  for made in select c.oid from pg_class c where c.relnamespace = 'rowbell'::regnamespace and c.relrowsecurity loop
    execute format('alter table %s disable row level security', made);
  end loop;
end $$;
