-- The receiver said that it wants no more.
-- Parameters: $1 int[] subscriptions. Rows: name of each that was active. Locks: subscriptions rows.
-- Index: subscriptions_pkey.
update rowbell.subscriptions s
   set state = 'disabled'
 where s.id = any($1::int[])
   and s.state = 'active'
returning s.name;
