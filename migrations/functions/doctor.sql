-- Advisory locks of ours that somebody else holds. PostgreSQL lets every login of the database take any of them, so this is how it is
-- noticed. Ours is whoever may do what the holder's program does. A writer tries the relays' lock for an instant, so whoever holds one
-- is looked at twice.
create or replace function rowbell.foreign_locks() returns table (pid int, holder name, application text, stops text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  looks int := 0;
  before text[] := '{}';
  seen text[];
begin
  loop
    seen := array(
      select distinct concat_ws(' ', l.pid, k.stops)
        from pg_locks l
        join (values (1919907683, 0, 255, 2, 'rowbell.jobs', 'delete', 'dispatchers: which of them has which subscriptions'),
                     (1919907684, 0, 2147483647, 2, 'rowbell.stream_log', 'insert', 'the stream: nothing is appended'),
                     (1919907685, 0, 0, 2, 'rowbell.subscriptions', 'insert', 'publish, and changes of subscriptions'),
                     (1919907686, 0, 0, 2, 'rowbell.jobs', 'insert', 'NOTIFY: sleeping relays only poll'),
                     (1919907687, 0, 2147483647, 2, 'rowbell.jobs', 'delete', 'the early end of leases of a dispatcher that died'),
                     (1919907688, 0, 0, 2, 'rowbell.jobs', 'delete', 'housekeeping: nothing is pruned'),
                     (7499639, 1650814060, 1650814060, 1, 'rowbell.migrations', 'insert', 'rowbell migrate'))
          as k(classid, from_objid, to_objid, objsubid, relation, privilege, stops)
          on l.classid = k.classid::oid and l.objid::bigint between k.from_objid and k.to_objid and l.objsubid = k.objsubid
        join pg_stat_activity a on a.pid = l.pid
       where l.locktype = 'advisory' and l.granted and l.pid <> pg_backend_pid()
         and l.database = (select d.oid from pg_database d where d.datname = current_database())
         and not has_table_privilege(a.usesysid, k.relation, k.privilege));
    exit when seen = '{}';
    if looks > 0 then
      seen := array(select s from unnest(seen) as s where s = any (before));
      exit;
    end if;
    looks := looks + 1;
    before := seen;
    perform pg_sleep(0.05);
  end loop;
  return query
    select a.pid, a.usename, coalesce(a.application_name, ''), substr(s, strpos(s, ' ') + 1)
      from unnest(seen) as s join pg_stat_activity a on a.pid = split_part(s, ' ', 1)::int order by 1, 4;
end $$;

-- What is wrong with this installation, as the database can tell: one row a problem. `rowbell doctor` prints it. Compiling so large a query
-- would take longer than to run it.
create or replace function rowbell.doctor() returns table (problem text, subject text, detail text, remedy text)
language sql stable security definer set search_path = pg_catalog, pg_temp set jit = off
begin atomic
  select 'table is gone', p.name, 'no table is known to be this one', format('delete from rowbell.published where id = %s, if it was dropped', p.id)
    from rowbell.published_tables() p
   where p.relation is null and not exists (select from rowbell.published_candidates(p)) and not exists (select from rowbell.published_carriers(p.id))
  union all
  select 'not captured', r.relation::regclass::text, format('it has the triggers of %s, whose table is not found: it may be that table, by another name', p.name),
         rowbell.publish_command(jsonb_populate_record(p, jsonb_build_object('relation', r.relation::bigint)))
    from rowbell.published_tables() p cross join rowbell.published_carriers(p.id) r
   where p.relation is null and not exists (select from rowbell.published_candidates(p))
  union all
  select 'not captured', c.relation::regclass::text, 'its triggers are missing, or those of another installation, as after a dump was restored in part',
         rowbell.publish_command(jsonb_populate_record(p, jsonb_build_object('relation', c.relation::bigint)))
    from rowbell.published_tables() p cross join rowbell.published_candidates(p) c where p.relation is null
  union all
  select 'column is gone', p.relation::regclass::text, string_agg(c.was, ', ')
         || case when bool_or(c.was = p.scope and c.now is null) then ': choose another scope; without one, addresses go to whoever gets those without a scope' else '' end,
         rowbell.publish_command(p)
    from rowbell.published_tables() p cross join rowbell.published_columns(p) c
   where p.relation is not null and c.was is distinct from c.now
   group by p.*, p.relation
  union all
  select distinct 'not captured', t.target::text,
         case when t.target = p.relation and exists (select from jsonb_object_keys(rowbell.published_parts(p.relation)) k join pg_class c on c.oid = k::oid where c.relkind = 'f')
                then 'it has a foreign table below, and a statement that reaches it fails'
              when t.target = p.relation then 'a trigger is missing, disabled or of an earlier version' else 'written directly, its changes are missed' end,
         rowbell.publish_command(p)
    from rowbell.published_tables() p cross join rowbell.publish_triggers(p.id, p.relation, p.capture, p.lastval) t
   where p.relation is not null and not t.is_there and t.name <> '~rowbell'
  union all
  select 'lastval() is not kept', t.target::text, 'a trigger is missing, disabled or of an earlier version: lastval() is an error after a write, also for drivers',
         rowbell.publish_command(p)
    from rowbell.published_tables() p cross join rowbell.publish_triggers(p.id, p.relation, p.capture, p.lastval) t
   where p.relation is not null and not t.is_there and t.name = '~rowbell'
  union all
  select 'partitions changed', p.relation::text,
         concat_ws('; ', 'came: ' || string_agg(c.name, ', ' order by c.name) filter (where c.op = 'create'),
                         'gone: ' || string_agg(c.name, ', ' order by c.name) filter (where c.op = 'delete')) || ': subscribers were not told of their rows',
         rowbell.publish_command(p)
    from rowbell.published_tables() p cross join rowbell.published_parts_changed(p) c group by p.*, p.relation
  union all
  select 'captured as it was', p.relation::text,
         'a captured column was renamed or has another type, or the table has another name, or a dump was restored', rowbell.publish_command(p)
    from rowbell.published_tables() p
   where p.relation is not null and not rowbell.capture_is_current(p)
     and not exists (select from rowbell.published_columns(p) c where c.was is distinct from c.now)
     and not exists (select from rowbell.publish_triggers(p.id, p.relation, p.capture, p.lastval) t where t.target = p.relation and not t.is_there)
  union all
  -- The function remembers how its table was published.
  select 'not published', r.relation::regclass::text, 'it has the triggers of ' || coalesce(n.name, 'a table') || ', but rowbell.published was not restored',
         -- Where the table is there that the command names, this one is what was detached from it.
         case when n.command is null or n.name <> r.relation::regclass::text and exists (select from pg_class c where c.oid::regclass::text = n.name)
                then format('select rowbell.unpublish(%L)', r.relation::regclass)
              else format('select rowbell.publish(%L', r.relation::regclass) || n.options end
    from pg_proc f
   cross join lateral (
     select substring(f.proname, '^capture_([0-9]{1,9})_truncate$')::int as id, c.command, replace(substring(c.command, c.pattern), '''''', '''') as name,
            regexp_replace(c.command, c.pattern, '') as options
       from (select obj_description(f.oid, 'pg_proc') as command, $re$^select rowbell\.publish\( ?E?'((?:[^']|'')+)'$re$ as pattern) c) n
   cross join rowbell.published_carriers(n.id) r
   where f.pronamespace = 'rowbell'::regnamespace and n.id is not null and not exists (select from rowbell.published p where p.id = n.id)
  union all
  select 'triggers of a table that is not published', g.tgrelid::regclass::text, g.tgname || ' captures nothing here',
         format('drop trigger %I on %s', g.tgname, g.tgrelid::regclass)
    from pg_trigger g join pg_proc f on f.oid = g.tgfoid
   where f.pronamespace = 'rowbell'::regnamespace and starts_with(f.proname, 'capture_') and not g.tgisinternal
     and exists (select from rowbell.published p cross join rowbell.published_candidates(p) where f.proname ~ format('^capture_%s(_|$)', p.id))
     and not exists (select from rowbell.published p cross join rowbell.published_candidates(p) c cross join rowbell.publish_relations(c.relation) r
                      where r = g.tgrelid)
  union all
  select 'key is not unique', p.relation::regclass::text, array_to_string(k.columns, ', '),
         'add a unique constraint on these columns, or publish with another key'
    from rowbell.published_tables() p
   cross join lateral (select array_agg(c.now order by c.now) as columns from rowbell.published_columns(p) c
                        where c.was = any (p.key) having bool_and(c.now is not null)) k
   where p.relation is not null and not exists (
     select from pg_index i where i.indrelid = p.relation and i.indisunique and i.indisvalid and i.indpred is null
      and (select array_agg(a.attname order by a.attname) from unnest(i.indkey::int2[]) n
             join pg_attribute a on a.attrelid = i.indrelid and a.attnum = n) = k.columns)
  union all
  select 'key may be NULL', p.relation::regclass::text, string_agg(a.attname, ', ' order by a.attname),
         'set these columns not null, or publish with another key'
    from rowbell.published_tables() p cross join rowbell.published_columns(p) c
    join pg_attribute a on a.attrelid = p.relation and a.attname = c.now and not a.attnotnull
   where c.was = any (p.key) group by p.id, p.relation
  union all
  select 'follows some changes only', 'follow_ddl', 'it was switched on by an earlier version', 'select rowbell.follow_ddl()'
   where exists (select from pg_event_trigger e where e.evtname = 'rowbell_follow_ddl')
     and not exists (select from pg_event_trigger e where e.evtname = 'rowbell_follow_drop')
  union all
  select 'applied without triggers', r.srrelid::regclass::text, 'logical replication fires no triggers: its changes are not captured',
         'publish the table where it is written'
    from pg_subscription_rel r join rowbell.published_tables() p on p.relation = r.srrelid
  union all
  select 'role writes without triggers', case when s.setrole = 0 then '(all)' else s.setrole::regrole::text end, 'session_replication_role = replica',
         'alter ' || case when s.setrole = 0 then format('database %I', current_database())
                          else format('role %s', s.setrole::regrole) || case when s.setdatabase <> 0 then format(' in database %I', current_database()) else '' end
                     end || ' reset session_replication_role'
    from pg_db_role_setting s
   where s.setdatabase in (0, (select d.oid from pg_database d where d.datname = current_database()))
     and 'session_replication_role=replica' = any (s.setconfig)
  union all
  select 'prepared transactions may fail', 'wake', 'max_prepared_transactions is ' || current_setting('max_prepared_transactions')
         || ' and writers may NOTIFY', 'select rowbell.set_wake(''poll''), unless nobody uses two-phase commit'
    from rowbell.installation i where i.wake = 'notify' and current_setting('max_prepared_transactions')::int > 0
  union all
  select 'sequence is behind', b.sequence::text, format('its next number is %s, and numbers up to %s are in use: what takes one fails', b.next, b.highest),
         'rowbell migrate, or select rowbell.raise_sequences(), or restart a relay'
    from rowbell.sequences_behind() b
  union all
  select 'notification queue fills up', 'NOTIFY', round(pg_notification_queue_usage()::numeric * 100) || ' % used',
         'end the session that listens and stays in a transaction'
   where pg_notification_queue_usage() > 0.5
  union all
  select 'no process', w.program, 'none is connected', 'start ' || w.program || case w.program when 'rowbell-relay' then '; one that runs without --direct-database-url behind a transaction pooler is not seen' else '' end
    from (values ('rowbell-relay'), ('rowbell-dispatcher')) w(program)
   where not exists (select from pg_stat_activity a where a.datname = current_database() and starts_with(a.application_name, w.program))
  union all
  select 'backlog', 'events', round(s.events_oldest_age_seconds) || ' s old, ' || s.events_pending || ' waiting',
         'look at the relays'' logs; start more'
    from rowbell.status s where s.events_oldest_age_seconds > 60
  union all
  select 'poisoned', 'events', s.events_poisoned::text, 'rowbell event list --state poisoned; rowbell requeue events, or rowbell event cancel ID'
    from rowbell.status s where s.events_poisoned > 0
  union all
  select 'poisoned', 'jobs of ' || h.name,
         h.jobs_poisoned || ': ' || (select string_agg(c.class || ' ' || c.jobs, ', ' order by c.jobs desc, c.class)
                                       from (select coalesce(few.last_class, 'unknown') as class, count(*) as jobs
                                               from (select w.last_class from rowbell.jobs_waiting w
                                                      where w.subscription_id = h.id and w.state = 'poisoned' limit 100000) few group by 1) c),
         'rowbell requeue jobs --subscription ' || h.name
    from rowbell.subscription_health h where h.jobs_poisoned > 0
  union all
  select 'disabled', 'subscription ' || h.name, coalesce(h.last_error, ''), 'rowbell subscription resume ' || h.name
    from rowbell.subscription_health h join rowbell.subscriptions s on s.id = h.id where h.state = 'disabled' and not s.condition_aside
  union all
  select 'condition put aside', 'subscription ' || s.name,
         coalesce(rowbell.condition_problem(s.condition), 'it was too slow') || ': ' || left(s.condition::text, 200),
         format('rowbell subscription set %1$s --condition ...; rowbell subscription resume %1$s; rowbell requeue jobs --subscription %1$s', s.name)
    from rowbell.subscriptions s where s.condition_aside
  union all
  select 'owner is gone', 'subscription ' || s.name, 'role ' || quote_ident(s.owner) || ' does not exist: only operators may change it',
         format('rowbell subscription set-owner %s ROLE', s.name)
    from rowbell.subscriptions s where not exists (select from pg_roles r where r.rolname = s.owner)
  union all
  select 'index is not read', 'subscription ' || s.name, f.fault, 'see docs/indexing.md, The right to read'
    from rowbell.subscriptions s cross join rowbell.published_tables() p
   cross join lateral (
     select coalesce(rowbell.index_denied(s.owner, p, rowbell.index_columns(s.settings)),
                     (select format('the owner of %s, %s, is not trusted', c.what, pg_get_userbyid(c.owner))
                        from rowbell.index_code(p.relation) as c where not rowbell.index_trusts(c.owner) limit 1)) as fault) f
   where s.kind = 'index' and f.fault is not null
     and exists (select from rowbell.event_types t join rowbell.routes r on r.type_id = t.id where t.published_id = p.id and r.subscription_id = s.id)
  union all
  select 'lock in other hands', 'pid ' || f.pid, f.holder || case when f.application <> '' then ' ' || f.application else '' end || ' stops ' || f.stops,
         format('select pg_terminate_backend(%s), and ask %I why', f.pid, f.holder)
    from rowbell.foreign_locks() f
  union all
  select 'housekeeping fails', h.chore,
         format('since %s, %s times, last at %s: %s', date_trunc('second', h.failing_since), h.failures, date_trunc('second', h.failed_at), h.error),
         'mend what the error names; a dispatcher tries again within a minute, and until then what it should remove stays'
    from rowbell.housekeeping h
  union all
  select 'clock is wrong', 'pid ' || a.pid || coalesce(' on ' || host(a.client_addr), ''),
         'a dispatcher''s machine, ' || split_part(a.application_name, ', clock ', 2) || ' from the database''s time', 'set the clock of that machine'
    from pg_stat_activity a
   where a.datname = current_database() and starts_with(a.application_name, 'rowbell-dispatcher, clock ')
     and has_table_privilege(a.usesysid, 'rowbell.jobs', 'delete')
  union all
  select 'old snapshot', 'pid ' || a.pid, coalesce(a.usename::text, '') || ' ' || coalesce(a.application_name, '') || ': '
         || a.state || ' since ' || date_trunc('second', a.xact_start),
         format('vacuum cannot remove what was delivered since: select pg_terminate_backend(%s)', a.pid)
    from pg_stat_activity a
   where a.datname = current_database() and a.backend_xmin is not null and a.xact_start < now() - interval '1 hour';
end;
drop function if exists rowbell.publish_triggers(int, oid);   -- until version 16; the doctor before this one called it
