-- The rest of a pass, after `claimed`. Not a statement of its own.
-- Matches once per distinct (type, scope) of the batch, marks the events, and inserts jobs only from what the marking
-- UPDATE returned: a row that changed between the snapshot and its lock is claimed but not found by the UPDATE, and
-- must get no job now (it is claimed again). Joins by ctid stay TID scans whatever the table's size.
-- Rows: one: events, jobs, oldest_age_s (since occurred_at), exhausted (fewer than 200 rows were claimed).
-- A commit that is lost in a crash of the server takes mark and jobs with it, so it need not wait for the disk.
matched as materialized (
  select d.type_id, d.scope,
         coalesce(array_agg(s.id order by s.id) filter (where s.id is not null), '{}') as wanted,
         coalesce(array_agg(s.id order by s.id) filter (where s.state = 'active'), '{}') as active,
         coalesce(array_agg(s.id order by s.id) filter (where s.state <> 'active'), '{}') as held
    from (select distinct c.type_id, coalesce(c.scope, '') as scope from claimed c) d
    left join rowbell.routes r
      on r.type_id = d.type_id and (r.scope is null or r.scope = d.scope or d.scope = '*')
    left join rowbell.subscriptions s on s.id = r.subscription_id
   group by d.type_id, d.scope
),
marked as (
  update rowbell.events e
     set fanned_out_at = now(), fanout = m.wanted, retry_at = null
    from matched m
   where e.ctid = any (array(select c.row_id from claimed c))
     and m.type_id = e.type_id and m.scope = coalesce(e.scope, '')
  returning e.seq, e.occurred_at, m.active, m.held
),
queued as (
  insert into rowbell.jobs (subscription_id, event_seq)
  select u.subscription_id, k.seq
    from marked k cross join unnest(k.active) as u(subscription_id)
  returning subscription_id, event_seq
),
held as (
  insert into rowbell.jobs_waiting (subscription_id, event_seq, state)
  select u.subscription_id, k.seq, 'held'
    from marked k cross join unnest(k.held) as u(subscription_id)
),
woken as (
  -- Dispatchers listen: lane, shard and lowest seq of what arrived.
  select count(pg_notify('rowbell_jobs', s.kind || ' ' || a.shard || ' ' || a.lowest)) as notified
    from (select q.subscription_id % 64 as shard, min(q.subscription_id) as subscription_id, min(q.event_seq) as lowest
            from queued q group by q.subscription_id % 64) a
    join rowbell.subscriptions s on s.id = a.subscription_id
)
select (select count(*) from marked) as events,
       (select count(*) from queued) as jobs,
       coalesce((select extract(epoch from clock_timestamp() - min(k.occurred_at)) from marked k), 0)::float8 as oldest_age_s,
       (select count(*) from claimed) < 200 as exhausted,
       (select w.notified from woken w) as notified,
       set_config('synchronous_commit', 'off', true) as commit_mode
