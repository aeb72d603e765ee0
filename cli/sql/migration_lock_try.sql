-- Takes the lock that lets one migration of this database run at a time.
-- One row: taken boolean. Locks: session advisory lock 0x726f7762656c6c ("rowbell"), kept until the session ends.
select pg_try_advisory_lock(32210705887620204) as taken;
