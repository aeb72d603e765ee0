-- Says that this session is a dispatcher, and which one: shared locks that live as long as the session. Others count the first; the
-- second tells leases of a process that is here from those of one that is gone.
-- Parameters: $1 int the lane's offset, $2 bigint the process part of our tokens. Rows: 1. Locks: advisory (0x726f7763, offset + 64)
-- and (0x726f7767, the lower 31 bits of the process part), shared, session. Index: none.
select pg_try_advisory_lock_shared(1919907683, $1::int + 64), pg_try_advisory_lock_shared(1919907687, ($2::bigint & 2147483647)::int);
