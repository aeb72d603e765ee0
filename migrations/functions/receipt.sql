-- Receipts: a token by which a transaction's own changes can be waited for.
--
-- Capture and rowbell.record keep the number that their first event can have at least in the transaction-local setting
-- rowbell.first_seq. A receipt carries that bound, the highest number given out so far, and the transaction's id: nobody has to
-- read rowbell.events in the writing transaction, which would couple serializable writers.

-- A keyed hash of nested SHA-256, so that no token can be made or changed outside.
create or replace function rowbell.receipt_hash(body text) returns text
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select left(encode(sha256(convert_to(i.receipt_key || encode(sha256(convert_to(i.receipt_key || body, 'UTF8')), 'hex'), 'UTF8')), 'hex'), 32)
    from rowbell.installation i;
end;

-- A receipt for this transaction, as it is when it commits: changes made after this call are not in it. Call it last.
create or replace function rowbell.receipt() returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  newest bigint := coalesce(pg_sequence_last_value('rowbell.events_seq_seq'), 0);
  first  text := current_setting('rowbell.first_seq', true);
  body   text;
begin
  if first is null or first !~ '^[0-9]{1,18}$' then
    first := (newest + 1)::text;   -- no event, as far as anybody knows
  end if;
  select format('r1.%s.%s.%s.%s', i.id, pg_current_xact_id(), first, newest) into body from rowbell.installation i;
  return body || '.' || rowbell.receipt_hash(body);
end $$;

-- What became of a transaction. state: in_progress, committed, aborted, or unknown (no receipt of this installation).
-- fanned_out: every event went its way; indexed: and no index job is open. Jobs are counted up to 1,000, of the first 10,000
-- events. A job that is held or was given up is not waited for.
create or replace function rowbell.receipt_status(token text)
returns table (state text, events bigint, pending bigint, poisoned bigint, webhook bigint, index bigint, sse bigint,
               fanned_out boolean, indexed boolean)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  part   text[] := regexp_match(token, '^(r1\.([0-9a-f]{1,64})\.([0-9]{1,20})\.([0-9]{1,19})\.([0-9]{1,19}))\.([0-9a-f]{32})$');
  writer xid8;
begin
  state := 'unknown';
  fanned_out := false;
  indexed := false;
  if part is null or rowbell.receipt_hash(part[1]) <> part[6]
     or not exists (select from rowbell.installation i where i.id = part[2]) then
    return next;
    return;
  end if;
  writer := part[3]::xid8;
  begin
    -- NULL: so long ago that nobody knows any more, and certainly not running.
    state := replace(coalesce(pg_xact_status(writer), 'committed'), ' ', '_');
  exception when invalid_parameter_value then
    state := 'aborted';   -- in the future: a failover took it back
  end;
  if state <> 'committed' then
    return next;
    return;
  end if;
  select count(*), count(*) filter (where e.fanned_out_at is null and e.poisoned_at is null), count(*) filter (where e.poisoned_at is not null and e.fanned_out_at is null)
    into events, pending, poisoned
    from (select e.fanned_out_at, e.poisoned_at from rowbell.events e
           where e.seq between part[4]::bigint and part[5]::bigint and e.xact = writer order by e.seq limit 10000) as e;
  with mine as materialized (
    select e.seq, e.fanout, e.fanout_via from rowbell.events e
     where e.seq between part[4]::bigint and part[5]::bigint and e.xact = writer order by e.seq limit 10000),
  jobs as (   -- a covered event is in the hands of the later event's job
    select m.seq, f.subscription_id from mine m cross join unnest(m.fanout) as f(subscription_id)
    union
    select v.seq, s.id from mine m cross join unnest(m.fanout_via) as v(seq) cross join rowbell.subscriptions s where s."coalesce"),
  open as (
    select s.kind from jobs q join rowbell.subscriptions s on s.id = q.subscription_id
     where exists (select from rowbell.jobs j where j.subscription_id = q.subscription_id and j.event_seq = q.seq)
        or exists (select from rowbell.jobs_waiting w where w.subscription_id = q.subscription_id and w.event_seq = q.seq and w.state = 'waiting')
     limit 1000)
  select count(*) filter (where o.kind = 'webhook'), count(*) filter (where o.kind = 'index'), count(*) filter (where o.kind = 'sse')
    into webhook, index, sse from open o;
  fanned_out := pending = 0;
  indexed := pending = 0 and index = 0;
  return next;
end $$;
