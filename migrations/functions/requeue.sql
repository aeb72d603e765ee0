-- Work that a person or an application puts back in line, sends again, or gives up.

-- Had fewer parameters.
drop function if exists rowbell.requeue_events(bigint[], timestamptz, timestamptz, boolean);
drop function if exists rowbell.requeue_jobs(text, bigint[], timestamptz, timestamptz, boolean);

-- Puts poisoned events back in line: by seq, or by the time of their poisoning; at most so many, lowest first (NULL: all).
-- Returns how many (dry_run: would be).
create or replace function rowbell.requeue_events(ids bigint[] default null, since timestamptz default null,
                                                 until timestamptz default null, dry_run boolean default false,
                                                 most int default null)
returns bigint language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  found_count bigint;
begin
  if dry_run then
    select count(*) into found_count
      from rowbell.events_set_aside a join rowbell.events e on e.seq = a.event_seq
     where a.retry_at is null and e.poisoned_at is not null and e.fanned_out_at is null and (ids is null or e.seq = any (ids))
       and (since is null or e.poisoned_at >= since) and (until is null or e.poisoned_at < until);
  else
    with requeued as (
      update rowbell.events e set poisoned_at = null, fanout_attempts = 0, retry_at = now()
       where e.ctid = any (array(
               select c.ctid from rowbell.events_set_aside a join rowbell.events c on c.seq = a.event_seq
                where a.retry_at is null and c.poisoned_at is not null and c.fanned_out_at is null
                  and (ids is null or c.seq = any (ids))
                  and (since is null or c.poisoned_at >= since) and (until is null or c.poisoned_at < until)
                order by c.seq limit most for update of c skip locked))
         and e.poisoned_at is not null
      returning e.seq)
    update rowbell.events_set_aside a set retry_at = now() from requeued r where a.event_seq = r.seq;
    get diagnostics found_count = row_count;
  end if;
  return found_count;
end $$;

-- Puts jobs of the caller's subscriptions back in line: by subscription, by the seq of their event, by the event's time, by state (poisoned, cancelled; waiting: not
-- at their time but now; held: of active subscriptions only, and not those behind an earlier one of their subject); at most so
-- many (NULL: all). Their next attempt is a manual one, after which the schedule begins anew; numbers go on.
-- A job that its condition poisoned is asked of the condition again: where it is false or null now, the job ends, as if there had been
-- none. While the condition is put aside there is nothing to ask, and the job stays where it is.
-- Returns how many (dry_run: would be), those that ended among them.
create or replace function rowbell.requeue_jobs(subscription text default null, ids bigint[] default null,
                                               since timestamptz default null, until timestamptz default null,
                                               dry_run boolean default false,
                                               states text[] default '{poisoned,cancelled}', most int default null)
returns bigint language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('requeue_jobs', jsonb_build_object('subscription', subscription, 'ids', ids, 'since', since, 'until', until, 'dry_run', dry_run,
                                               'states', states, 'most', most)) returning result into answer;
  return answer::bigint;
end $$;

create or replace function rowbell.requeue_jobs_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  ids      constant bigint[]    := rowbell.call_texts(arguments, 'ids')::bigint[];
  since    constant timestamptz := arguments ->> 'since';
  until    constant timestamptz := arguments ->> 'until';
  states   constant text[]      := rowbell.call_texts(arguments, 'states');
  most     constant int         := arguments ->> 'most';
  -- Everything of the installation, or some subscriptions.
  every    constant boolean     := arguments ->> 'subscription' is null and rowbell.is_operator(caller);
  targets  int[];
  found_count bigint;
begin
  if not coalesce(states <@ '{poisoned,cancelled,waiting,held}', false) then
    raise exception 'rowbell.requeue_jobs: states are poisoned, cancelled, waiting and held'
      using errcode = 'invalid_parameter_value';
  end if;
  if arguments ->> 'subscription' is not null then
    targets := array[(rowbell.subscription_require(caller, arguments ->> 'subscription')).id];
  elsif not every then
    targets := array(select s.id from rowbell.subscriptions s where rowbell.may_manage(caller, s.owner));
  end if;
  if (arguments ->> 'dry_run')::boolean then
    select count(*) into found_count
      from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id
      left join rowbell.events e on e.seq = w.event_seq
     where rowbell.job_is_requeuable(w, s, states) and (every or w.subscription_id = any (targets))
       and (ids is null or w.event_seq = any (ids))
       and (since is null or e.occurred_at >= since) and (until is null or e.occurred_at < until);
    return to_jsonb(found_count);
  end if;
  with chosen as materialized (
    select w.ctid as at
      from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id
      left join rowbell.events e on e.seq = w.event_seq
     where rowbell.job_is_requeuable(w, s, states) and (every or w.subscription_id = any (targets))
       and (ids is null or w.event_seq = any (ids))
       and (since is null or e.occurred_at >= since) and (until is null or e.occurred_at < until)
     order by w.subscription_id, w.event_seq limit most for update of w skip locked),
  unwanted as materialized (
    select w.ctid as at
      from rowbell.jobs_waiting w join rowbell.subscriptions s on s.id = w.subscription_id
     cross join lateral (select v as event from rowbell.events v where v.seq = w.event_seq limit 1) e
     where w.ctid = any (array(select c.at from chosen c)) and w.state = 'poisoned' and w.last_class = 'condition'
       and case when s.condition is null then false
                else rowbell.condition_alone(rowbell.condition_data(e.event), s.condition) in ('false', 'null') end),
  ended as (
    delete from rowbell.jobs_waiting w where w.ctid = any (array(select u.at from unwanted u)) and w.state || '' = 'poisoned'
    returning w.subscription_id, w.event_seq),
  forgotten as (
    update rowbell.events e
       set fanout = array(select f.id from unnest(e.fanout) with ordinality as f (id, place)
                           where not exists (select from ended n where n.event_seq = e.seq and n.subscription_id = f.id) order by f.place)
     where e.seq = any (array(select n.event_seq from ended n))),
  requeued as (
    update rowbell.jobs_waiting w set state = 'waiting', run_at = now(), uncounted = w.attempts + 1
     where w.ctid = any (array(select c.at from chosen c except select u.at from unwanted u)) and w.state = any (states)
    returning 1)
  select (select count(*) from requeued) + (select count(*) from ended) into found_count;
  if found_count > 0 then
    perform rowbell.notify('rowbell_jobs', 'requeue');
  end if;
  return to_jsonb(found_count);
end $$;

create or replace function rowbell.job_is_requeuable(w rowbell.jobs_waiting, s rowbell.subscriptions, states text[]) returns boolean
language sql stable set search_path = pg_catalog, pg_temp
return w.state = any (states)
   and case w.state when 'waiting' then w.run_at > now()
                    when 'held' then s.state = 'active' and not w.blocked
                    when 'poisoned' then not (s.condition_aside and w.last_class is not distinct from 'condition')
                    else true end;

-- One event to one subscription, now: whatever became of its job, and again if it was delivered. Returns what the job was: waiting,
-- held, poisoned, cancelled, delivered; open: it is in line already. NULL: the event never went to this subscription.
create or replace function rowbell.retry_job(subscription text, seq bigint) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('retry_job', jsonb_build_object('subscription', subscription, 'seq', seq)) returning result into answer;
  return answer #>> '{}';
end $$;

create or replace function rowbell.retry_job_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  seq    constant bigint := arguments ->> 'seq';
  target constant rowbell.subscriptions := rowbell.subscription_require(caller, arguments ->> 'subscription');
  was    rowbell.jobs_waiting;
  made   int := 0;
begin
  if target.kind = 'sse' then
    raise exception 'rowbell.retry_job: what the stream was given cannot be sent again' using errcode = 'invalid_parameter_value';
  end if;
  select * into was from rowbell.jobs_waiting w where w.subscription_id = target.id and w.event_seq = seq for update;
  if found and was.blocked then
    raise exception 'rowbell.retry_job: it waits for an earlier job of its subject, %', quote_literal(was.subject)
      using errcode = 'object_not_in_prerequisite_state', hint = 'Retry or cancel that one.';
  elsif found then
    update rowbell.jobs_waiting w set state = 'waiting', run_at = now(), uncounted = w.attempts + 1
     where w.subscription_id = target.id and w.event_seq = seq;
    perform rowbell.notify('rowbell_jobs', 'requeue');
    return to_jsonb(was.state);
  end if;
  if exists (select from rowbell.jobs j where j.subscription_id = target.id and j.event_seq = seq) then
    return to_jsonb('open'::text);
  end if;
  -- The event's row is the lock under which two of these make one job.
  perform from rowbell.events e where e.seq = seq and target.id = any (e.fanout) for no key update;
  if not found then
    return null;
  end if;
  insert into rowbell.jobs_waiting (subscription_id, event_seq, state, run_at, attempts, uncounted)
    select target.id, seq, 'waiting', now(), a.attempts, a.attempts + 1
      from (select coalesce(max(a.attempt), 0) as attempts from rowbell.attempts a
             where a.event_seq = seq and a.subscription_id = target.id) as a
     where not exists (select from rowbell.jobs j where j.subscription_id = target.id and j.event_seq = seq)
    on conflict do nothing;
  get diagnostics made = row_count;
  perform rowbell.notify('rowbell_jobs', 'requeue');
  return to_jsonb(case when made > 0 then 'delivered' else 'open' end);
end $$;

-- Gives a job up: it stays visible, as cancelled, until it is requeued or its event is pruned. What waited behind it in an ordered
-- subscription goes on. False: there is no such job (delivered, or never made). A job that is being sent cannot be cancelled.
create or replace function rowbell.cancel_job(subscription text, seq bigint) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('cancel_job', jsonb_build_object('subscription', subscription, 'seq', seq)) returning result into answer;
  return answer::boolean;
end $$;

create or replace function rowbell.cancel_job_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  seq        constant bigint := arguments ->> 'seq';
  target     constant rowbell.subscriptions := rowbell.subscription_require(caller, arguments ->> 'subscription');
  open_job   rowbell.jobs;
  of_subject text;
begin
  if target.kind = 'sse' then
    raise exception 'rowbell.cancel_job: the stream leaves nothing out' using errcode = 'invalid_parameter_value';
  end if;
  -- What is being sent is never locked: the dispatcher, which ends it with those of others, would wait.
  select * into open_job from rowbell.jobs j
   where j.subscription_id = target.id and j.event_seq = seq and (j.lease_until is null or j.lease_until < now()) for update;
  if not found and exists (select from rowbell.jobs j where j.subscription_id = target.id and j.event_seq = seq) then
    raise exception 'rowbell.cancel_job: it is being sent at this moment' using errcode = 'object_in_use', hint = 'Try again when the attempt has ended.';
  elsif found then
    delete from rowbell.jobs j where j.subscription_id = target.id and j.event_seq = seq;
    insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts, uncounted, subject)
      select target.id, seq, 'cancelled', open_job.attempts, open_job.uncounted,
             case when target.ordered then (select e.subject from rowbell.events e where e.seq = seq) end
      on conflict (subscription_id, event_seq) do update set state = 'cancelled', run_at = null, blocked = false;
  else
    update rowbell.jobs_waiting w set state = 'cancelled', run_at = null, blocked = false
     where w.subscription_id = target.id and w.event_seq = seq and w.state <> 'cancelled';
    if not found then
      return to_jsonb(false);
    end if;
  end if;
  -- As dispatcher/sql/job_unblock.sql: the claim looks again whether something earlier is open.
  select w.subject into of_subject from rowbell.jobs_waiting w where w.subscription_id = target.id and w.event_seq = seq;
  with next as (
    delete from rowbell.jobs_waiting w
     where (w.subscription_id, w.event_seq) in (
             select h.subscription_id, h.event_seq
               from (select k.* from rowbell.jobs_waiting k
                      where k.subscription_id = target.id and k.subject = of_subject and k.state <> 'cancelled'
                      order by k.event_seq limit 1 for update) as h
              where h.blocked)
    returning w.*)
  insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
    select n.subscription_id, n.event_seq, n.attempts, n.uncounted from next n on conflict do nothing;
  perform rowbell.notify('rowbell_jobs', 'requeue');
  return to_jsonb(true);
end $$;

-- Gives a poisoned event up: no webhook and no index gets it, and what waited behind it in ordered subscriptions goes on. The stream
-- still does, since there it may not be missing (G5). It stays visible, as cancelled, until it is pruned; rowbell.replay gives it to
-- a subscription after all. False: there is no such event, or it is not poisoned.
create or replace function rowbell.cancel_event(seq bigint) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  of_subject text;
  streams    int[];
begin
  update rowbell.events e
     set fanned_out_at = now(),
         fanout = array(select r.subscription_id from rowbell.routes r join rowbell.subscriptions s on s.id = r.subscription_id
                         where s.kind = 'sse' and r.type_id = e.type_id
                           and (r.scope is null or r.scope = coalesce(e.scope, '') or e.scope = '*'))
   where e.seq = cancel_event.seq and e.poisoned_at is not null and e.fanned_out_at is null
  returning e.subject, e.fanout into of_subject, streams;
  if not found then
    return false;
  end if;
  delete from rowbell.events_set_aside a where a.event_seq = cancel_event.seq;
  insert into rowbell.jobs (subscription_id, event_seq) select s, seq from unnest(streams) as s;
  -- As dispatcher/sql/job_unblock.sql: the claim looks again whether something earlier is open.
  with next as (
    delete from rowbell.jobs_waiting w
     where w.ctid = any (array(
             select h.at
               from rowbell.subscriptions s
              cross join lateral (
                select k.ctid as at, k.blocked
                  from rowbell.jobs_waiting k
                 where k.subscription_id = s.id and k.subject = of_subject and k.state <> 'cancelled'
                 order by k.event_seq limit 1 for update) as h
              where s.ordered and h.blocked))
    returning w.*)
  insert into rowbell.jobs (subscription_id, event_seq, attempts, uncounted)
    select n.subscription_id, n.event_seq, n.attempts, n.uncounted from next n on conflict do nothing;
  perform rowbell.notify('rowbell_jobs', 'requeue');
  perform rowbell.notify('rowbell_fanned', seq::text);
  return true;
end $$;

-- Events that a subscription of the caller's wants and never got: from before it was added, or before it wanted their type. Looks at most
-- at so many events (1 to 10,000) after a seq (0 to begin) and gives those a job. Returns how many were given one (dry_run: would be), the
-- last seq that was looked at (pass it to the next call; NULL: there are no more), and how many that is. Each call may be a transaction
-- of its own: what got its job is not found again.
create or replace function rowbell.replay(subscription text, since timestamptz, until timestamptz default null, after_seq bigint default 0,
                                         most int default 1000, dry_run boolean default false)
returns table (queued bigint, last_seq bigint, looked_at bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments)
    values ('replay', jsonb_build_object('subscription', subscription, 'since', since, 'until', until, 'after_seq', after_seq, 'most', most,
                                         'dry_run', dry_run)) returning result into answer;
  queued := answer ->> 'queued';
  last_seq := answer ->> 'last_seq';
  looked_at := answer ->> 'looked_at';
  return next;
end $$;

create or replace function rowbell.replay_as(caller name, arguments jsonb) returns jsonb
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  since     constant timestamptz := arguments ->> 'since';
  until     constant timestamptz := arguments ->> 'until';
  after_seq constant bigint      := arguments ->> 'after_seq';
  most      constant int         := case when arguments ->> 'most' is not null then least((arguments ->> 'most')::bigint, 10000) end;
  target    constant rowbell.subscriptions := rowbell.subscription_require(caller, arguments ->> 'subscription');
  first_seq bigint;
  wanted    bigint[];
  queued    bigint;
  last_seq  bigint;
  looked_at bigint;
begin
  if target.kind = 'sse' then
    raise exception 'rowbell.replay: the stream has its own replay' using errcode = 'invalid_parameter_value', hint = 'Clients send Last-Event-ID.';
  end if;
  if since is null or coalesce(most, 0) < 1 then
    raise exception 'rowbell.replay: since and most must be given' using errcode = 'invalid_parameter_value';
  end if;
  first_seq := after_seq + 1;
  if after_seq = 0 then
    first_seq := rowbell.seq_before(since) + 1;
  end if;

  with looked as materialized (
    select e.seq, e.type_id, e.scope, e.key, e.op, e.subject, e.data, e.occurred_at, e.fanned_out_at, e.fanout
      from rowbell.events e where e.seq >= first_seq order by e.seq limit most)
  select max(l.seq), count(*),
         array_agg(l.seq order by l.seq) filter (
           where l.fanned_out_at is not null and l.occurred_at >= since and (until is null or l.occurred_at < until)
             and not target.id = any (l.fanout)
             -- The relay's rule (relay/sql/fan_out.sql).
             and exists (select from rowbell.routes r
                          where r.type_id = l.type_id and r.subscription_id = target.id
                            and (r.scope is null or r.scope = coalesce(l.scope, '') or l.scope = '*'))
             and case when target.condition is null then true
                      else rowbell.condition_alone(coalesce(l.data, jsonb_build_object(
                             'table', case when l.key is null then l.subject else left(l.subject, -1 - length(l.key)) end,
                             'key', coalesce(l.key, ''), 'op', l.op)), target.condition) is not distinct from 'true' end)
    into last_seq, looked_at, wanted from looked l;
  queued := coalesce(cardinality(wanted), 0);
  if queued = 0 or (arguments ->> 'dry_run')::boolean then
    return jsonb_build_object('queued', queued, 'last_seq', last_seq, 'looked_at', looked_at);
  end if;

  -- Marked first, and jobs only from what was marked (G3).
  with marked as (
    update rowbell.events e set fanout = e.fanout || target.id
     where e.seq = any (wanted) and e.fanned_out_at is not null and not target.id = any (e.fanout)
    returning e.seq, e.subject),
  ready as (
    insert into rowbell.jobs (subscription_id, event_seq)
      select target.id, m.seq from marked m where target.state = 'active' on conflict do nothing),
  held as (
    insert into rowbell.jobs_waiting (subscription_id, event_seq, state, subject)
      select target.id, m.seq, 'held', case when target.ordered then m.subject end from marked m where target.state <> 'active'
      on conflict do nothing)
  select count(*) into queued from marked;
  perform rowbell.notify('rowbell_jobs', target.kind || ' ' || (target.id % 64) || ' ' || wanted[1]);
  return jsonb_build_object('queued', queued, 'last_seq', last_seq, 'looked_at', looked_at);
end $$;
