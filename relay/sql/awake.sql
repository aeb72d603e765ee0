-- Says that a relay is awake, so that writers need not NOTIFY: a shared session lock that capture tries to take exclusively
-- (rowbell.relays_sleep). Only tried: refused, we work as if awake. Rows: one: taken.
select pg_try_advisory_lock_shared(x'726f7766'::int, 0) as taken
