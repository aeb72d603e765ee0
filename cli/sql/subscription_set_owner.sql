-- Gives a subscription to another role. $1 name, $2 role. One row: was there one? Locks: its row.
select rowbell.set_subscription_owner($1, $2::name) as found;
