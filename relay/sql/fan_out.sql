-- The rest of a pass, after `claimed` (row_id, seq, type_id, scope). Not a statement of its own.
-- Parameters: $2 alone: the event is alone, so that a condition which raises an error is the only thing that fails; $3 text[] keys of
-- conditions that are too slow to be evaluated (rowbell.condition_key); $4 text[] those of them that are to be put aside.
--
-- Events that have to be looked at are looked at up to 1 MiB of their data as it is stored, and at least one; the rest is left to the
-- next pass.
--
-- Marks the events, and inserts jobs only from what the marking UPDATE returned: a row that changed between the snapshot
-- and its lock is claimed but not found by the UPDATE, and must get no job now (it is claimed again). Joins by ctid stay
-- TID scans whatever the table's size.
\ir match.sql
wanting as materialized (
  select m.type_id, m.scope, s.id as subscription_id, s.kind, s.state, s."coalesce", s.condition, s.ordered,
         s.condition_aside or ($3::text[] <> '{}' and s.condition is not null
                               and rowbell.condition_key(s.id, s.condition) = any ($3::text[])) as aside
    from matched m cross join unnest(m.special) as u(subscription_id)
    join rowbell.subscriptions s on s.id = u.subscription_id
),
examined as materialized (
  -- What conditions and coalescing look at.
  select l.seq, l.type_id, l.scope, l.subject, l.data
    from (select c.seq, c.type_id, m.scope, e.subject, e.data, sum(e.bytes) over (order by c.seq) - e.bytes as bytes_before
            from matched m
            join claimed c on c.type_id = m.type_id and coalesce(c.scope, '') = m.scope
           cross join lateral (select v.subject, coalesce(pg_column_size(v.data), 0) as bytes, coalesce(v.data, jsonb_build_object(
                         'table', case when v.key is null then v.subject else left(v.subject, -1 - length(v.key)) end,
                         'key', coalesce(v.key, ''), 'op', v.op)) as data
                                 from rowbell.events v where v.ctid = c.row_id) e
           where not m.all_plain) l
   where l.bytes_before < 1048576
),
verdicts as materialized (
  select x.seq, x.subscription_id, x.kind, x.state, x.verdict, x.ordered_by,
         -- Coalescing: within the batch, the latest event of a subject stands for those before it.
         case when x."coalesce" and x.verdict = 'true' then max(x.seq) over (
           partition by x.subscription_id, x.subject, x."coalesce" and coalesce(x.verdict = 'true', false)) end as latest
    from (select c.seq, c.subject, w.subscription_id, w.kind, w.state, w."coalesce", case when w.ordered then c.subject end as ordered_by,
                 case when w.condition is null then 'true'
                      when w.aside then '"aside"'
                      when $2::boolean then rowbell.condition_alone(c.data, w.condition)
                      else jsonb_path_query_first_tz(c.data, w.condition, '{}', true) end as verdict
            from wanting w
            join examined c on c.type_id = w.type_id and c.scope = w.scope
          offset 0) x   -- so that each condition is evaluated once
),
special as materialized (
  select v.seq, v.subscription_id, v.kind, v.latest, v.ordered_by,
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
         fanout = case when m.all_plain then m.plain
                       else m.plain || (select s.fanout from special_by_event s where s.seq = e.seq) end,
         fanout_via = case when not m.all_plain then (select s.via from special_by_event s where s.seq = e.seq) end
    from matched m
   where e.ctid = any (array(select c.row_id from claimed c))
     and m.type_id = e.type_id and m.scope = coalesce(e.scope, '')
     and (m.all_plain or e.seq = any (array(select x.seq from examined x)))
  returning e.seq, e.occurred_at, m.plain
),
recovered as (
  delete from rowbell.events_set_aside a using marked k where $2::boolean and a.event_seq = k.seq
),
marked_special as materialized (
  select s.seq, s.subscription_id, s.kind, s.ordered_by, s.fate
    from special s where s.fate in ('ready', 'held', 'poisoned') and s.seq = any (array(select k.seq from marked k))
),
set_apart as (
  insert into rowbell.jobs_waiting (subscription_id, event_seq, state, last_class, subject)
  select s.subscription_id, s.seq, s.fate, case when s.fate = 'poisoned' then 'condition' end, s.ordered_by
    from marked_special s
   where s.fate in ('held', 'poisoned')
),
alerted as (
  -- An alert never alerts about itself. Of a condition that is aside the alert was made when it was put there.
  select rowbell.alert('rowbell.job.poisoned', 'subscription/' || s.name,
                       jsonb_build_object('subscription', s.name, 'jobs', count(*), 'class', 'condition',
                                          'seqs', to_jsonb((array_agg(a.seq order by a.seq))[1:20])))::text as done
    from marked_special a join rowbell.subscriptions s on s.id = a.subscription_id
   where a.fate = 'poisoned' and not s.condition_aside
     and not exists (select from claimed c join rowbell.event_types t on t.id = c.type_id
                      where c.seq = a.seq and starts_with(t.type, 'rowbell.'))
   group by s.name
),
queue as (
  select unnest(k.plain) as subscription_id, k.seq from marked k
  union all
  select s.subscription_id, s.seq from marked_special s where s.fate = 'ready'
),
wanted as (
  select unnest(m.lanes) as lane from matched m
  union all
  select s.kind || ' ' || s.subscription_id % 64 from marked_special s where s.fate = 'ready'
),
apart as (
  select count(*) filter (where s.fate = 'ready') as jobs, count(*) filter (where s.fate = 'poisoned') as poisoned,
         (select count(l.done) from alerted l) as alerts, (select count(*) from examined x) as examined,
         (select count(*) filter (where rowbell.condition_put_aside(k)) from unnest($4::text[]) as k) as put_aside
    from marked_special s
),
\ir enqueue.sql
