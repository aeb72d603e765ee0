-- The end of a pass, after `marked` (seq, occurred_at, plain), `queue` (subscription_id, seq: its jobs), `wanted` (lane: whom
-- to wake) and `apart` (jobs, poisoned, alerts: of special
-- subscriptions; examined: how many of the events that have one were looked at; put_aside: conditions of $4).
--
-- A commit that is lost in a crash of the server takes mark and jobs with it, so it need not wait for the disk.
queued as (
  insert into rowbell.jobs (subscription_id, event_seq) select q.subscription_id, q.seq from queue q
)
-- Rows: one. special: how many of the claimed have a special subscription; left: how many of these are left to the next pass.
select d.events,
       d.jobs + a.jobs as jobs,
       coalesce(date_part('epoch', clock_timestamp() - d.oldest), 0) as oldest_age_s,
       c.claimed,
       c.highest,
       c.claim_ms,
       pg_snapshot_xmin(pg_current_snapshot()) as xmin,
       a.poisoned,
       c.special,
       c.special - a.examined as left,
       a.put_aside,
       a.alerts,
       -- Receipts wait for these.
       case when d.events > 0 then rowbell.notify('rowbell_fanned', d.seqs) end as fanned,
       -- Dispatchers listen: lane, shard and lowest seq of what arrived. PostgreSQL sends the same text once.
       (select count(rowbell.notify('rowbell_jobs', w.lane || ' ' || d.lowest)) from wanted w where d.events > 0) as notified,
       set_config('synchronous_commit', 'off', true) as commit_mode
  from (select coalesce(sum(m.claimed), 0) as claimed, coalesce(max(m.highest), 0) as highest,
               coalesce(sum(m.claimed) filter (where not m.all_plain), 0) as special,
               date_part('epoch', coalesce(max(m.claimed_at), clock_timestamp()) - statement_timestamp()) * 1000 as claim_ms
          from matched m) c
 cross join (select count(*) as events, coalesce(sum(cardinality(k.plain)), 0) as jobs, min(k.seq) as lowest,
                    min(k.occurred_at) as oldest, string_agg(k.seq::text, ' ') as seqs
               from marked k) d
 cross join apart a
