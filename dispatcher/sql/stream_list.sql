-- The streams that may be appended to now, and the installation, whose id names the Redis channel.
-- Parameters: none. Rows: stream id, installation id. Locks: none. Index: none; both tables are small.
select t.id, i.id
  from rowbell.streams t
  join rowbell.subscriptions s on s.id = t.subscription_id and s.state = 'active'
 cross join rowbell.installation i
 order by t.id;
