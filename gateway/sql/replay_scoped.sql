-- What a client that may see some scopes has missed: replay.sql for the scopes $7. Each is read by itself, so a quiet
-- tenant costs its own few rows, whatever others do.
-- Parameters: $1 stream, $2 the client's position, $3 the gateway's head, $4 most rows, $5 table names or NULL for
-- all, $6 most rows looked at in all, $7 scopes (with `*`, which is everybody's, as marks are), $8 whether rows without
-- a scope count. Rows: at least one; without entries its columns are NULL. Locks: none.
-- Index: stream_log_scope, at most $4 rows, or $6 + 1 with table names.
with bounds as materialized (
\ir replay_bounds.sql
),
looked_at as materialized (
  select one.*
    from (select entry.*
            from unnest($7::text[]) as wanted (scope)
           cross join lateral (
             select position, prev, scope, name, key, op
               from rowbell.stream_log
              where stream_id = $1::int and scope = wanted.scope and position > $2::bigint and position <= $3::bigint
              order by position
              limit case when $5::text[] is null then $4::bigint else $6::bigint + 1 end) entry
          union all
          (select position, prev, scope, name, key, op
             from rowbell.stream_log
            where $8::boolean and stream_id = $1::int and scope is null and position > $2::bigint
              and position <= $3::bigint
            order by scope, position
            limit case when $5::text[] is null then $4::bigint else $6::bigint + 1 end)) one
   where (select holds from bounds)
   limit case when $5::text[] is null then $4::bigint else $6::bigint + 1 end
)
select bounds.holds, bounds.oldest, bounds.newest,
       $5::text[] is not null and (select count(*) from looked_at) > $6::bigint as over_budget,
       bounds.holds_head, not pg_is_in_recovery() as primary,
       entry.position, entry.prev, entry.scope, entry.name, entry.key, entry.op
  from bounds
  left join lateral (
    select *
      from looked_at
     where $5::text[] is null or name = any ($5::text[]) or op = 'damaged'
     order by position
     limit $4::bigint) entry on true
 order by entry.position;
