-- Takes the lock of migration_lock_try.sql, waiting for whoever has it.
-- One row. Locks: the same session advisory lock.
select pg_advisory_lock(32210705887620204);
