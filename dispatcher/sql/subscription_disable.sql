-- The receiver said that it wants no more. An alert says so.
-- Parameters: $1 int[] subscriptions. Rows: name of each that was active. Locks: subscriptions rows.
-- Index: subscriptions_pkey.
with gone as (
  update rowbell.subscriptions s
     set state = 'disabled'
   where s.id = any($1::int[])
     and s.state = 'active'
  returning s.name
)
select g.name,
       rowbell.alert('rowbell.subscription.disabled', 'subscription/' || g.name,
                     jsonb_build_object('subscription', g.name, 'reason', 'the receiver said so'))
  from gone g;
