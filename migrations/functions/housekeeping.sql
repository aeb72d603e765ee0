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
    perform rowbell.wake_relay();
  end if;
end $$;

-- What came of a step of a chore: what was wrong, or NULL when it succeeded. Returns the unix time since which the chore fails, or NULL.
create or replace function rowbell.housekeeping_result(chore text, error text) returns double precision
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  delete from rowbell.housekeeping h where h.chore = housekeeping_result.chore and housekeeping_result.error is null;
  insert into rowbell.housekeeping as h (chore, failing_since, failed_at, failures, error)
  select left(housekeeping_result.chore, 100), now(), now(), 1, left(housekeeping_result.error, 1000)
   where housekeeping_result.error is not null
  on conflict on constraint housekeeping_pkey
  do update set failed_at = excluded.failed_at, failures = h.failures + 1, error = excluded.error
  returning extract(epoch from h.failing_since)::double precision;
end;

-- Deletes fanned-out events that are older than their retention, among at most so many after a seq (0 to begin). Never one that is not
-- fanned out (so no poisoned one), nor one that a job names; one that somebody's transaction holds goes the next time; cancelled jobs are as old as their event and go first. Returns how many
-- went, and the last seq that was looked at (NULL: what follows is too young).
create or replace function rowbell.prune_events(older_ms bigint, after_seq bigint default 0, most int default 1000)
returns table (pruned bigint, last_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  before constant timestamptz := now() - older_ms * interval '1 millisecond';
begin
  -- Written so that each step can only be an index probe for one event, whatever the statistics say (docs/decisions/0006).
  delete from rowbell.jobs_waiting w
   where w.ctid = any (array(
           select k.at
             from (select e.seq, e.fanned_out_at from rowbell.events e where e.seq > after_seq order by e.seq limit most) l
            cross join lateral (
              select j.ctid as at, j.state from rowbell.jobs_waiting j
               where j.event_seq >= l.seq and j.event_seq <= l.seq and j.state || '' = 'cancelled' order by j.event_seq offset 0
                 for update skip locked) k
            where l.fanned_out_at < before and k.state = 'cancelled'))
     and w.state || '' = 'cancelled';
  with looked as materialized (
    select e.ctid as at, e.seq, e.occurred_at, e.fanned_out_at, e.fanout
      from rowbell.events e where e.seq > after_seq order by e.seq limit most),
  gone as (
    delete from rowbell.events e
     where e.ctid = any (array(
             select k.at from looked l cross join lateral (
               select v.ctid as at from rowbell.events v where v.ctid = l.at for update skip locked) k
              where l.fanned_out_at < before
                and (select w.event_seq from rowbell.jobs_waiting w where w.event_seq >= l.seq order by w.event_seq limit 1)
                    is distinct from l.seq
                and not exists (select from unnest(l.fanout) as f(id)
                                 cross join lateral (select from rowbell.jobs j
                                                      where j.subscription_id = f.id and j.event_seq = l.seq limit 1) j)))
       and e.fanned_out_at < before
    returning 1)
  select (select count(*) from gone),
         case when count(*) = most and max(l.occurred_at) < before then max(l.seq) end
    into pruned, last_seq from looked l;
  return next;
end $$;

-- Deletes at most so many attempts that are older than their retention. Returns how many. A person's look at a job needs them, no
-- program does. Index: attempts_started, a summary of pages in the order of time.
create or replace function rowbell.prune_attempts(older_ms bigint, most int default 5000) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp set enable_bitmapscan = on set enable_seqscan = off
begin atomic
  with gone as (
    delete from rowbell.attempts a
     where a.ctid = any (array(select o.ctid from rowbell.attempts o
                                where o.started_at < now() - older_ms * interval '1 millisecond' limit most))
    returning 1)
  select count(*) from gone;
end;

-- Deletes at most so many entries of the stream log that are older than its retention, of each stream, but never its newest one: the
-- log is never empty (G5). Returns how many.
create or replace function rowbell.prune_stream_log(older_ms bigint, most int default 5000) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with gone as (
    delete from rowbell.stream_log g
     where g.ctid = any (array(
             select o.at
               from rowbell.streams t
              cross join lateral (select max(n.position) as position from rowbell.stream_log n where n.stream_id = t.id) newest
              cross join lateral (
                select l.ctid as at, l.appended_at from rowbell.stream_log l
                 where l.stream_id = t.id and l.position < newest.position order by l.position limit most) o
              where o.appended_at < now() - older_ms * interval '1 millisecond'))
    returning 1)
  select count(*) from gone;
end;

-- What belongs to something that is gone: jobs of a removed subscription (a relay's older snapshot may have made them after the
-- removal), and entries of events_set_aside whose event a person deleted, or a relay older than version 6 fanned out: they would keep
-- their subject waiting for ever. Returns how many went.
create or replace function rowbell.prune_orphans(most int default 1000) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with recursive ids as (
    (select j.subscription_id as id from rowbell.jobs j order by j.subscription_id limit 1)
    union all
    select (select j.subscription_id from rowbell.jobs j where j.subscription_id > i.id order by j.subscription_id limit 1)
      from ids i where i.id is not null),
  waiting_ids as (
    (select j.subscription_id as id from rowbell.jobs_waiting j order by j.subscription_id limit 1)
    union all
    select (select j.subscription_id from rowbell.jobs_waiting j where j.subscription_id > i.id order by j.subscription_id limit 1)
      from waiting_ids i where i.id is not null),
  ready as (
    delete from rowbell.jobs j
     where j.ctid = any (array(
             select o.at from ids i cross join lateral (
               select k.ctid as at from rowbell.jobs k where k.subscription_id = i.id limit most) o
              where not exists (select from rowbell.subscriptions s where s.id = i.id)))
    returning 1),
  waiting as (
    delete from rowbell.jobs_waiting j
     where j.ctid = any (array(
             select o.at from waiting_ids i cross join lateral (
               select k.ctid as at from rowbell.jobs_waiting k where k.subscription_id = i.id limit most) o
              where not exists (select from rowbell.subscriptions s where s.id = i.id)))
    returning 1),
  set_aside as (
    delete from rowbell.events_set_aside a
     where a.ctid = any (array(
             select b.ctid from rowbell.events_set_aside b
              where (select e.fanned_out_at is null from rowbell.events e where e.seq = b.event_seq limit 1) is not true limit most))
    returning 1)
  select (select count(*) from ready) + (select count(*) from waiting) + (select count(*) from set_aside);
end;

-- What a relay older than version 6 of the schema, still connected, does to events without saying it in events_set_aside: sets them aside,
-- so that no newer relay would retry them, and poisons them. Looks at no more than so many events after a seq (0 to begin), and only
-- below those that wait for their first pass, so that whoever goes on from there has seen each event once; one that is committed late,
-- below that, is found by the next housekeeper. A month after the migration no such relay is left. Returns how many entries were set
-- right, and the last seq that was looked at (NULL: there were not so many; the next look begins where this one did).
create or replace function rowbell.list_set_aside(after_seq bigint default 0, most int default 5000)
returns table (listed bigint, last_seq bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  corrected bigint;
begin
  update rowbell.events_set_aside a set retry_at = null
   where a.retry_at < now() - interval '1 minute'
     and (select e.poisoned_at is not null from rowbell.events e where e.seq = a.event_seq limit 1);
  get diagnostics corrected = row_count;
  with looked as materialized (
    select e.seq, e.subject, e.fanned_out_at, e.retry_at, e.poisoned_at
      from rowbell.events e
     where e.seq > after_seq
       and e.seq < coalesce((select c.seq from rowbell.events c
                              where c.fanned_out_at is null and c.poisoned_at is null and c.retry_at is null
                              order by c.seq limit 1), 9223372036854775807)
       and exists (select from rowbell.migrations m where m.version = 6 and m.applied_at > now() - interval '30 days')
     order by e.seq limit most),
  added as (
    insert into rowbell.events_set_aside (event_seq, subject, retry_at)
    select l.seq, l.subject, case when l.poisoned_at is null then l.retry_at end
      from looked l where l.fanned_out_at is null and l.retry_at is not null
    on conflict (event_seq) do nothing
    returning 1)
  select corrected + (select count(*) from added), case when count(*) = most then max(l.seq) end
    into listed, last_seq from looked l;
  return next;
end $$;

-- Disables webhooks that had no success for so long although they were tried; their jobs are held, and an alert says so. Returns how
-- many. Enabled again, the time begins anew.
create or replace function rowbell.disable_failing(older_ms bigint) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with gone as (
    update rowbell.subscriptions s set state = 'disabled'
      from rowbell.subscription_state h
     where h.subscription_id = s.id and s.kind = 'webhook' and s.state = 'active'
       and h.failing_since < now() - older_ms * interval '1 millisecond'
       and s.id = any (array(   -- not one that a transaction of its owner holds
             select k.id from rowbell.subscriptions k join rowbell.subscription_state f on f.subscription_id = k.id
              where k.kind = 'webhook' and k.state = 'active' and f.failing_since < now() - older_ms * interval '1 millisecond'
                for update of k skip locked))
    returning s.name, h.failing_since, h.last_error),
  alerted as (
    select rowbell.alert('rowbell.subscription.disabled', 'subscription/' || g.name,
                         jsonb_build_object('subscription', g.name, 'reason', 'no success since ' || g.failing_since,
                                            'error', g.last_error))::text as done
      from gone g)
  select count(a.done) from alerted a;
end;

-- Blocked jobs of ordered subscriptions whose way is free: what they waited for went without a dispatcher seeing it (an event that was
-- set aside and then matched nothing, a job that a person removed). Looks at the first blocked job of at most so many subjects.
create or replace function rowbell.unblock_subjects(most int default 500) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with heads as materialized (
    select distinct on (w.subscription_id, w.subject) w.ctid as at, w.subscription_id, w.subject, w.event_seq
      from (select k.subscription_id, k.subject from rowbell.jobs_waiting k where k.blocked and k.subject is not null limit most) few
      join rowbell.jobs_waiting w on w.subscription_id = few.subscription_id and w.subject = few.subject and w.blocked
     order by w.subscription_id, w.subject, w.event_seq),
  free as (
    delete from rowbell.jobs_waiting w
     where w.ctid = any (array(
             select h.at from heads h
              where not exists (select from rowbell.jobs_waiting k
                                 where k.subscription_id = h.subscription_id and k.subject = h.subject and k.event_seq < h.event_seq
                                   and k.state <> 'cancelled')
                and not exists (select from rowbell.jobs j join rowbell.events e on e.seq = j.event_seq
                                 where j.subscription_id = h.subscription_id and j.event_seq < h.event_seq and e.subject = h.subject)
                and not exists (select from rowbell.events_set_aside a
                                 where a.subject = h.subject and a.event_seq < h.event_seq)))
       and w.blocked
    returning w.subscription_id, w.event_seq, w.attempts, w.uncounted),
  ready as (
    insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
    select f.subscription_id, f.event_seq, f.attempts, f.uncounted from free f on conflict do nothing)
  select count(*) from free;
end;

-- An alert when work waits for longer than it should: events that no relay takes, jobs that are ready and not sent. One an hour for each
-- cause; the events themselves are the memory. Returns how many.
create or replace function rowbell.alert_backlog(events_ms bigint default 60000, jobs_ms bigint default 600000) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp
begin atomic
  with recursive ids as (
    (select j.subscription_id as id from rowbell.jobs j order by j.subscription_id limit 1)
    union all
    select (select j.subscription_id from rowbell.jobs j where j.subscription_id > i.id order by j.subscription_id limit 1)
      from ids i where i.id is not null),
  late as (
    select 'events' as subject, extract(epoch from now() - e.occurred_at)::int as seconds
      from (select v.occurred_at from rowbell.events v
             where v.fanned_out_at is null and v.poisoned_at is null and v.retry_at is null order by v.seq limit 1) e
     where e.occurred_at < now() - events_ms * interval '1 millisecond'
    union all
    select 'subscription/' || s.name, extract(epoch from now() - o.occurred_at)::int
      from ids i
      join rowbell.subscriptions s on s.id = i.id and s.state = 'active'
      left join rowbell.subscription_state h on h.subscription_id = s.id
     cross join lateral (
       select (select e.occurred_at from rowbell.events e where e.seq = j.event_seq limit 1) as occurred_at
         from rowbell.jobs j where j.subscription_id = s.id order by j.event_seq limit 1) o
     where o.occurred_at < now() - jobs_ms * interval '1 millisecond' and h.failing_since is null),
  alerted as (
    select rowbell.alert('rowbell.backlog', l.subject, jsonb_build_object('what', l.subject, 'oldest_seconds', l.seconds))::text as done
      from late l
     where not exists (select from rowbell.events e join rowbell.event_types t on t.id = e.type_id
                        where t.type = 'rowbell.backlog' and e.subject = l.subject
                          and e.seq > (select max(n.seq) - 1000000 from rowbell.events n)
                          and e.occurred_at > now() - interval '1 hour'))
  select count(a.done) from alerted a;
end;
