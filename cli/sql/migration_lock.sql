-- Takes the lock of migration_lock_try.sql, waiting for whoever has it.
-- One row. Locks: the same advisory lock.
select pg_advisory_xact_lock(32210705887620204);
