-- Alerts, and what keeps the tables from growing.

-- An alert is an event like any other, of a reserved type; who wants it names the type. Alerts about alerts are not made: callers
-- see to it.
create or replace function rowbell.alert(type text, subject text, data jsonb) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- As in record(): the transaction's id before the sequence value.
  perform pg_current_xact_id();
  insert into rowbell.events (type_id, subject, data)
    select t.id, left(alert.subject, 256), alert.data from rowbell.event_types t
     where t.type = alert.type and starts_with(t.type, 'rowbell.');
  if (select i.wake = 'notify' from rowbell.installation i) and rowbell.relays_sleep() then
    perform pg_notify('rowbell_events', '');
  end if;
end $$;
