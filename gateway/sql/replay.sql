-- What a client that has seen position $2 missed up to $3, and whether that can be told at all: one statement, so one
-- snapshot answers both.
-- For a client that may see every scope; replay_scoped.sql is the other.
-- Parameters: $1 stream, $2 the client's position, $3 the gateway's head, $4 most rows, $5 table names or NULL for
-- all, $6 most rows looked at, $7 whether rows without a scope count. Marks (op damaged) are everybody's. Rows: at
-- least one; without entries its columns are NULL. Locks: none.
-- Index: stream_log_pkey, at most $4 rows, or $6 + $4 when only some count.
with bounds as (
\ir replay_bounds.sql
)
select bounds.holds, bounds.oldest, bounds.newest,
       -- Only a search for some rows in a long range can look at more than it returns.
       ($5::text[] is not null or not $7::boolean) and bounds.holds and exists (
         select from rowbell.stream_log
          where stream_id = $1::int and position > $2::bigint and position <= $3::bigint
          order by position offset $6::bigint limit 1) as over_budget,
       bounds.holds_head, not pg_is_in_recovery() as primary,
       entry.position, entry.prev, entry.scope, entry.name, entry.key, entry.op
  from bounds
  left join lateral (
    select looked_at.*
      from (select position, prev, scope, name, key, op
              from rowbell.stream_log
             where stream_id = $1::int and position > $2::bigint and position <= $3::bigint and bounds.holds
             order by position
             limit $6::bigint) looked_at
     where ($5::text[] is null or looked_at.name = any ($5::text[]) or looked_at.op = 'damaged')
       and ($7::boolean or looked_at.scope is not null)
     limit $4::int) entry on true
 order by entry.position;
