-- Says that this session is a dispatcher: a shared lock that lives as long as the session and that others count.
-- Parameters: $1 int the lane's offset. Rows: 1. Locks: advisory (0x726f7763, offset + 64), shared, session. Index: none.
select pg_try_advisory_lock_shared(1919907683, $1::int + 64);
