-- Whether any event waits: asked instead of a pass that will hardly find one, at a fifth of its price.
-- Parameters: $1 the low-water mark, as in pass_plain.sql. Rows: one: waiting, claim_ms, xmin. Locks: none. Index: events_claim.
select exists (select from rowbell.events e
                where e.fanned_out_at is null and e.poisoned_at is null and e.retry_at is null and e.seq > $1::bigint) as waiting,
       (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000)::float8 as claim_ms,
       pg_snapshot_xmin(pg_current_snapshot()) as xmin
