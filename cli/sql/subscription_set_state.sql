-- Pauses (its jobs are held) or resumes. $1 name, $2 active or paused. One row: was there one? Locks: its rows.
select rowbell.set_subscription_state($1, $2) as found;
