-- Notes in a comment which table migrations were applied: a dump without data has no rows, but it has comments (migrations/bootstrap.sql).
-- No row. Locks: SHARE UPDATE EXCLUSIVE on rowbell.migrations until the transaction ends.
do $$
declare
  note constant text := (select 'Applied: name, version, compatible_from, SHA-256' || string_agg(format(E'\n%s %s %s %s', m.name, m.version, m.compatible_from, m.checksum),
                                                                                             '' order by m.version)
                           from rowbell.migrations m where m.version is not null);
begin
  if note is distinct from obj_description('rowbell.migrations'::regclass, 'pg_class') then
    execute format('comment on table rowbell.migrations is %L', note);
  end if;
end $$;
