-- The first condition that is slow, of those that an event meets. After time_limit.sql, in its transaction.
-- Parameters: $1 the event's seq, $2 look only at subscriptions above this id, $3 text[] keys of conditions that are known as slow.
-- Rows: none, or one: subscription, key of its condition, slow (see rowbell.condition_examine). Locks: none.
-- Index: events_pkey, routes_match, subscriptions_pkey.
select x.subscription, x.condition_key, x.slow
  from rowbell.condition_examine($1::bigint, $2::int, $3::text[]) x
