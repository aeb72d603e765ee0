-- Takes the lock that lets one migration of this database run at a time.
-- One row: taken boolean. Locks: advisory lock 0x726f7762656c6c ("rowbell"), kept until the transaction ends.
select pg_try_advisory_xact_lock(32210705887620204) as taken;
