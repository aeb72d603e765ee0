-- The same for ordered subscriptions: a job is sendable only when every event below it is fanned out and no earlier job or event
-- of its subject is open. Jobs behind an open one move to jobs_waiting, held and blocked; job_unblock brings them back.
-- Relays commit out of order, so the lowest row still to be fanned out is a bound; rows that were set aside or poisoned block
-- their own subject only.
-- Parameters and rows as job_claim.sql; locks: the rows it moves or claims; of each subscription the lowest 500 are looked at. Index: jobs_pkey, events_claim,
-- events_pkey, jobs_waiting_subject, events_set_aside_subject, TID scan.
with wanted as materialized (
  select w.id, w.slots, w.lowest, w.highest, w.place
    from unnest($1::int[], $2::int[], $4::bigint[], $5::bigint[]) with ordinality w(id, slots, lowest, highest, place)
   where exists (select from rowbell.subscriptions s where s.id = w.id and s.state = 'active')
),
bound as materialized (
  select coalesce((select v.seq from rowbell.events v
                    where v.fanned_out_at is null and v.poisoned_at is null and v.retry_at is null
                    order by v.seq limit 1), 9223372036854775807) as seq
),
seen as materialized (
  select w.id as subscription_id, w.slots, w.place, l.event_seq, l.at, l.lease_until, l.lease_token, l.attempts, l.uncounted, l.subject
    from wanted w
   cross join bound b
   cross join lateral (
     select j.ctid as at, j.event_seq, j.lease_until, j.lease_token, j.attempts, j.uncounted,
            (select e.subject from rowbell.events e where e.seq = j.event_seq) as subject
       from rowbell.jobs j
      where j.subscription_id = w.id
        and j.event_seq between w.lowest and least(w.highest, b.seq - 1)
      order by j.event_seq
      limit 500) l
),
judged as materialized (
  select s.*,
         s.lease_until is null or s.lease_until < now() as free,
         s.subject is not null and (
           row_number() over (partition by s.subscription_id, s.subject order by s.event_seq) > 1
           or exists (select from rowbell.jobs_waiting k
                       where k.subscription_id = s.subscription_id and k.subject = s.subject and k.event_seq < s.event_seq
                         and k.state <> 'cancelled')
           or exists (select from rowbell.events_set_aside a
                       where a.subject = s.subject and a.event_seq < s.event_seq)) as behind
    from seen s
),
found as materialized (
  select x.subscription_id, x.place, x.event_seq, x.at, x.lease_token, x.lease_until is not null as expired
    from (select g.*, row_number() over (partition by g.subscription_id order by g.event_seq) as slot
            from judged g where g.free and not g.behind) x
   where x.slot <= x.slots
),
parked as (
  delete from rowbell.jobs j
   where j.ctid = any(array(select g.at from judged g where g.free and g.behind))
  returning j.subscription_id, j.event_seq, j.attempts, j.uncounted
),
blocked as (
  insert into rowbell.jobs_waiting (subscription_id, event_seq, state, attempts, uncounted, subject, blocked)
  select p.subscription_id, p.event_seq, 'held', p.attempts, p.uncounted,
         (select e.subject from rowbell.events e where e.seq = p.event_seq limit 1), true   -- a join with judged may go over all pairs
    from parked p
  on conflict (subscription_id, event_seq) do nothing
),
\ir job_claim_found.sql
