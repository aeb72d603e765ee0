-- Gives waiting events their positions in the stream. Runs in the transaction that holds stream_lock, with
-- synchronous_commit on.
-- Parameters: $1 int stream, $2 bigint and $3 bigint the lowest and highest seq to take (the whole range, or one job),
-- $4 bigint[] seqs to leave alone (their append failed for data), $5 boolean also NOTIFY (there is no Redis).
-- Rows, in order: position, prev, scope, name, key, op. Locks: jobs rows, SKIP LOCKED;
-- the streams row after a failover. Index: jobs_pkey, TID scan, events_pkey, stream_log_pkey.
with here as materialized (
  select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as timeline, c.system_identifier
    from pg_control_system() c
),
stream as materialized (
  select t.subscription_id, (t.timeline, t.system_identifier) is distinct from (h.timeline, h.system_identifier) as moved
    from rowbell.streams t
    join rowbell.subscriptions s on s.id = t.subscription_id and s.state = 'active'
   cross join here h
   where t.id = $1::int
),
taken as (
  delete from rowbell.jobs j
   where j.ctid = any(array(
           select k.ctid
             from rowbell.jobs k
            where k.subscription_id = (select s.subscription_id from stream s)
              and k.event_seq between $2::bigint and $3::bigint
              and k.event_seq <> all($4::bigint[])
            order by k.event_seq
            limit 500
              for update skip locked))
  returning j.event_seq
),
entries as materialized (
  select row_number() over (order by k.event_seq) as n, k.event_seq, e.scope, e.name, e.key, e.op
    from taken k
   cross join lateral (
     select v.scope, left(t.type, -length(v.op) - 1) as name, v.key, v.op
       from rowbell.events v
       join rowbell.event_types t on t.id = v.type_id
      where v.seq = k.event_seq and v.op is not null
      limit 1) e
),
-- Only with an entry: what finds nothing to append must leave the jump below to whoever does.
noted as (
  update rowbell.streams t
     set timeline = h.timeline, system_identifier = h.system_identifier
    from here h, stream s
   where t.id = $1::int and s.moved and exists (select from entries)
),
-- After a failover the first position jumps by a minute, so that clocks that differ cannot issue a lost id again (G6).
ends as materialized (
  select l.position as newest,
         greatest(l.position + 1, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
           + case when s.moved then 60000000 else 0 end as first
    from stream s
   cross join lateral (
     select g.position from rowbell.stream_log g where g.stream_id = $1::int order by g.position desc limit 1) l
),
added as (
  insert into rowbell.stream_log as g (stream_id, position, prev, event_seq, scope, name, key, op)
  select $1::int, p.first + e.n - 1, case when e.n = 1 then p.newest else p.first + e.n - 2 end,
         e.event_seq, e.scope, e.name, e.key, e.op
    from entries e
   cross join ends p
  returning g.position, g.prev, g.scope, g.name, g.key, g.op
)
select a.position, a.prev, a.scope, a.name, a.key, a.op,
       case when $5::boolean and a.position = (select max(b.position) from added b)
            then rowbell.notify('rowbell_stream', a.position::text)::text end
  from added a
 order by a.position;
