-- Removes a subscription and its jobs. $1 name. One row: was there one? Locks: its rows.
select rowbell.remove_subscription($1) as removed;
