-- The receiver said that it wants no more. An alert says so.
-- One that a transaction of its owner holds is left, until its receiver says so again: nobody's deliveries wait for it.
-- Parameters: $1 int[] subscriptions. Rows: name of each that was active. Locks: subscriptions rows, SKIP LOCKED.
-- Index: subscriptions_pkey.
with gone as (
  update rowbell.subscriptions s
     set state = 'disabled'
   where s.id = any(array(
           select k.id from rowbell.subscriptions k where k.id = any($1::int[]) and k.state = 'active' for update skip locked))
     and s.state = 'active'
  returning s.name
)
select g.name,
       rowbell.alert('rowbell.subscription.disabled', 'subscription/' || g.name,
                     jsonb_build_object('subscription', g.name, 'reason', 'the receiver said so'))
  from gone g;
