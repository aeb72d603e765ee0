-- The rest of a pass, after `claimed` (row_id, seq, type_id, scope). Not a statement of its own.
-- Parameter: $2 alone: the event is alone, so that a condition which raises an error is the only thing that fails.
--
-- Matches once per distinct (type, scope) of the batch, marks the events, and inserts jobs only from what the marking
-- UPDATE returned: a row that changed between the snapshot and its lock is claimed but not found by the UPDATE, and
-- must get no job now (it is claimed again). Joins by ctid stay TID scans whatever the table's size.
-- A commit that is lost in a crash of the server takes mark and jobs with it, so it need not wait for the disk.
timed as materialized (
  select count(*) as claimed, max(c.seq) as highest,
         (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000)::float8 as claim_ms
    from claimed c
),
kinds as materialized (
  select c.type_id, coalesce(c.scope, '') as scope from timed t cross join claimed c group by c.type_id, coalesce(c.scope, '')
),
matched as materialized (
  -- plain: subscriptions that get every event of this type and scope. special: whose event has to be looked at.
  select d.type_id, d.scope,
         coalesce(array_agg(s.id order by s.id) filter (where s.plain), '{}') as plain,
         coalesce(array_agg(s.id order by s.id) filter (where not s.plain), '{}') as special,
         coalesce(bool_or(not s.plain), false) as has_special
    from kinds d
    left join rowbell.routes r
      on r.type_id = d.type_id and (r.scope is null or r.scope = d.scope or d.scope = '*')
    left join (select b.id, b.state = 'active' and not b."coalesce" and b.condition is null as plain
                 from rowbell.subscriptions b) s on s.id = r.subscription_id
   group by d.type_id, d.scope
),
wanting as materialized (
  select m.type_id, m.scope, s.id as subscription_id, s.state, s."coalesce", s.condition, s.ordered
    from matched m cross join unnest(m.special) as u(subscription_id)
    join rowbell.subscriptions s on s.id = u.subscription_id
),
verdicts as materialized (
  select x.seq, x.subscription_id, x.state, x.verdict, x.ordered_by,
         -- Coalescing: within the batch, the latest event of a subject stands for those before it.
         case when x."coalesce" and x.verdict = 'true' then max(x.seq) over (
           partition by x.subscription_id, x.subject, x."coalesce" and coalesce(x.verdict = 'true', false)) end as latest
    from (select c.seq, e.subject, w.subscription_id, w.state, w."coalesce", case when w.ordered then e.subject end as ordered_by,
                 case when w.condition is null then 'true'
                      when $2::boolean then rowbell.condition_alone(e.data, w.condition)
                      else jsonb_path_query_first_tz(e.data, w.condition, '{}', true) end as verdict
            from wanting w
            join claimed c on c.type_id = w.type_id and coalesce(c.scope, '') = w.scope
           cross join lateral (select v.subject, coalesce(v.data, jsonb_build_object(
                 'table', case when v.key is null then v.subject else left(v.subject, -1 - length(v.key)) end,
                 'key', coalesce(v.key, ''), 'op', v.op)) as data
                                 from rowbell.events v where v.ctid = c.row_id) e
          offset 0) x   -- so that each condition is evaluated once
),
special as materialized (
  select v.seq, v.subscription_id, v.latest, v.ordered_by,
         case when v.verdict = 'true' and v.latest > v.seq then 'covered'
              when v.verdict = 'true' and v.state = 'active' then 'ready'
              when v.verdict in ('true', '"held"') then 'held'
              when v.verdict in ('false', 'null') then 'unwanted'
              else 'poisoned' end as fate
    from verdicts v
),
special_by_event as materialized (
  select s.seq,
         coalesce(array_agg(s.subscription_id order by s.subscription_id) filter (where s.fate in ('ready', 'held', 'poisoned')),
                  '{}') as fanout,
         array_agg(distinct s.latest) filter (where s.fate = 'covered') as via
    from special s group by s.seq
),
marked as (
  update rowbell.events e
     set fanned_out_at = now(), retry_at = null,
         fanout = case when m.has_special then m.plain || (select s.fanout from special_by_event s where s.seq = e.seq)
                       else m.plain end,
         fanout_via = case when m.has_special then (select s.via from special_by_event s where s.seq = e.seq) end
    from matched m
   where e.ctid = any (array(select c.row_id from claimed c))
     and m.type_id = e.type_id and m.scope = coalesce(e.scope, '')
  returning e.seq, e.occurred_at, e.type_id, m.scope, m.plain
),
summed as materialized (
  select m.plain, g.events, g.lowest, g.oldest, g.seqs
    from (select k.type_id, k.scope, count(*) as events, min(k.seq) as lowest, min(k.occurred_at) as oldest,
                 string_agg(k.seq::text, ' ') as seqs
            from marked k group by k.type_id, k.scope) g
    join matched m on m.type_id = g.type_id and m.scope = g.scope
),
recovered as (
  delete from rowbell.events_set_aside a using marked k where $2::boolean and a.event_seq = k.seq
),
ready as (
  select s.subscription_id, s.seq from special s where s.fate = 'ready' and s.seq = any (array(select k.seq from marked k))
),
queued as (
  insert into rowbell.jobs (subscription_id, event_seq)
  select unnest(k.plain), k.seq from marked k
  union all
  select r.subscription_id, r.seq from ready r
),
set_apart as (
  insert into rowbell.jobs_waiting (subscription_id, event_seq, state, last_class, subject)
  select s.subscription_id, s.seq, s.fate, case when s.fate = 'poisoned' then 'condition' end, s.ordered_by
    from special s
   where s.fate in ('held', 'poisoned') and s.seq = any (array(select k.seq from marked k))
  returning subscription_id, event_seq, state
),
alerted as (
  -- An alert never alerts about itself.
  select count(*) as poisoned,
         rowbell.alert('rowbell.job.poisoned', 'subscription/' || s.name,
                       jsonb_build_object('subscription', s.name, 'jobs', count(*), 'class', 'condition',
                                          'seqs', to_jsonb((array_agg(a.event_seq order by a.event_seq))[1:20])))::text as done
    from set_apart a join rowbell.subscriptions s on s.id = a.subscription_id
   where a.state = 'poisoned'
     and not exists (select from claimed c join rowbell.event_types t on t.id = c.type_id
                      where c.seq = a.event_seq and starts_with(t.type, 'rowbell.'))
   group by s.name
),
woken as (
  -- Dispatchers listen: lane, shard and lowest seq of what arrived.
  select count(pg_notify('rowbell_jobs', a.kind || ' ' || a.shard || ' ' || a.lowest)) as notified
    from (select s.kind, s.id % 64 as shard, min(q.event_seq) as lowest
            from (select unnest(g.plain) as subscription_id, g.lowest as event_seq from summed g
                  union all
                  select r.subscription_id, r.seq from ready r) q
            join rowbell.subscriptions s on s.id = q.subscription_id
           group by s.kind, s.id % 64) a
),
done as (
  select coalesce(sum(g.events), 0)::bigint as events, coalesce(sum(g.events * cardinality(g.plain)), 0)::bigint as plain,
         min(g.oldest) as oldest, string_agg(g.seqs, ' ') as seqs
    from summed g
)
-- Rows: one.
select d.events,
       d.plain + (select count(*) from ready) as jobs,
       coalesce(extract(epoch from clock_timestamp() - d.oldest), 0)::float8 as oldest_age_s,
       t.claimed,
       coalesce(t.highest, 0) as highest,
       t.claim_ms,
       pg_snapshot_xmin(pg_current_snapshot()) as xmin,
       (select count(*) from set_apart a where a.state = 'poisoned') as poisoned,
       (select count(l.done) from alerted l) as alerts,
       -- Receipts wait for these.
       case when d.events > 0 then pg_notify('rowbell_fanned', d.seqs) end as fanned,
       (select w.notified from woken w) as notified,
       set_config('synchronous_commit', 'off', true) as commit_mode
  from timed t cross join done d
