-- The rows that the table migrations made, where a dump without data (structure.sql) was loaded: what an installation has from its start.
do $$
declare
  stream int;
begin
  if exists (select from rowbell.installation) then
    return;
  end if;
  insert into rowbell.installation (timeline, system_identifier)
    select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), c.system_identifier from pg_control_system() c;
  insert into rowbell.caller_key default values;
  insert into rowbell.stream_keys default values;
  insert into rowbell.event_types (type, description, webhook) values
    ('rowbell.index.rebuild', 'An index is built anew from a whole table', false),
    ('rowbell.event.poisoned', 'An event was given up by the relay and waits for a person', true),
    ('rowbell.job.poisoned', 'Jobs were given up and wait for a person', true),
    ('rowbell.subscription.disabled', 'A subscription was disabled: by its receiver, or after days without a success', true),
    ('rowbell.backlog', 'Work waits for longer than it should', true)
    on conflict (type) do nothing;
  insert into rowbell.subscriptions (name, kind, types) values ('stream', 'sse', '{*}') returning id into stream;
  insert into rowbell.streams (id, name, subscription_id, timeline, system_identifier)
    select 1, 'default', stream, i.timeline, i.system_identifier from rowbell.installation i;
  insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)
    values (1, (extract(epoch from now()) * 1000000)::bigint, 0, 0, '', '', null, 'delete');
  -- The triggers of tables that were published call functions with these numbers.
  perform setval(pg_get_serial_sequence('rowbell.published', 'id'), max(substring(f.proname, '^capture_([0-9]{1,9})_')::int))
     from pg_proc f where f.pronamespace = 'rowbell'::regnamespace and f.proname ~ '^capture_[0-9]{1,9}_' having count(*) > 0;
end $$;
