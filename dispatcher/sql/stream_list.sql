-- The streams that may be appended to now, the installation, whose id names the Redis channel, and the key that signs what
-- is published there.
-- Parameters: none. Rows: stream id, installation id, key id, key in hex (both NULL when there is none). Locks: none.
-- Index: none; the tables are small.
select t.id, i.id, k.id, encode(k.key, 'hex')
  from rowbell.streams t
  join rowbell.subscriptions s on s.id = t.subscription_id and s.state = 'active'
 cross join rowbell.installation i
  left join rowbell.stream_keys k on k.id = rowbell.stream_signing_key()
 order by t.id;
