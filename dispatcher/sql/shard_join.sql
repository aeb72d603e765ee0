-- Says that this session is a dispatcher: a shared lock that lives as long as the session and that others count.
-- Parameters: none. Rows: 1. Locks: advisory (0x726f7763, 64), shared, session. Index: none.
select pg_try_advisory_lock_shared(1919907683, 64);
