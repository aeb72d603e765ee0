-- Receipts: a token by which a transaction's own changes can be waited for.
--
-- A receipt carries the transaction's id, its start and the highest number given out so far. Writers pay nothing for it, and
-- nobody reads rowbell.events in the writing transaction, which would couple serializable writers: who looks at a receipt finds
-- the lowest number that the transaction's events can have.

-- A number below those of all events whose transaction began at the moment or later. An event's number is taken before its time
-- (occurred_at): one with an earlier time had its number before the moment, as long as the clock is not set back meanwhile. Found by
-- bisection over events_pkey: a time that is late for its number costs a longer look, never an event; where times rise with
-- numbers, at most 200 numbers more than need be are left.
create or replace function rowbell.seq_before(moment timestamptz) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  low   bigint := 0;
  high  bigint := coalesce(pg_sequence_last_value('rowbell.events_seq_seq'), 0) + 1;
  probe record;
begin
  while high - low > 200 loop
    select e.seq, e.occurred_at into probe from rowbell.events e where e.seq >= low + (high - low) / 2 order by e.seq limit 1;
    if probe.seq < high and probe.occurred_at < moment then
      low := probe.seq;
    else
      high := low + (high - low) / 2;
    end if;
  end loop;
  return low;
end $$;

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
  began  bigint := extract(epoch from transaction_timestamp()) * 1000000;
  body   text;
begin
  select format('r2.%s.%s.%s.%s', i.id, pg_current_xact_id(), began, newest) into body from rowbell.installation i;
  return body || '.' || rowbell.receipt_hash(body);
end $$;

-- What became of a transaction. state: in_progress, committed, aborted, or unknown (no receipt of this installation).
-- fanned_out: every event went its way; indexed: and no index job is open. Jobs are counted up to 1,000, of the first 10,000
-- events. A job that is held or was given up is not waited for. first_seq: of its first event, NULL if it has none.
drop function if exists rowbell.receipt_status(text);   -- its columns may have changed
create function rowbell.receipt_status(token text)
returns table (state text, events bigint, pending bigint, poisoned bigint, webhook bigint, index bigint, sse bigint,
               fanned_out boolean, indexed boolean, first_seq bigint)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
#variable_conflict use_column
declare
  part   text[] := regexp_match(token, '^(r2\.([0-9a-f]{1,64})\.([0-9]{1,20})\.([0-9]{1,19})\.([0-9]{1,19}))\.([0-9a-f]{32})$');
  writer xid8;
  low    bigint;
  newest bigint;
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
  newest := part[5]::bigint;
  -- 1 s: for a clock that is set back in between.
  low := rowbell.seq_before('epoch'::timestamptz + part[4]::bigint * interval '1 microsecond' - interval '1 s');
  select count(*), count(*) filter (where e.fanned_out_at is null and e.poisoned_at is null), count(*) filter (where e.poisoned_at is not null and e.fanned_out_at is null),
         min(e.seq)
    into events, pending, poisoned, first_seq
    from (select e.seq, e.fanned_out_at, e.poisoned_at from rowbell.events e
           where e.seq > low and e.seq <= newest and e.xact = writer order by e.seq limit 10000) as e;
  with mine as materialized (
    select e.seq, e.fanout, e.fanout_via from rowbell.events e
     where e.seq > low and e.seq <= newest and e.xact = writer order by e.seq limit 10000),
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

-- Whether this server, perhaps a copy that lags, has what the stream told up to this position, so that a read finds it. An entry
-- is committed after the change that it tells, and a copy replays commits in their order.
create or replace function rowbell.stream_reached("position" bigint) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select exists (select from rowbell.stream_log l where l.stream_id = 1 and l.position >= $1);
end;
