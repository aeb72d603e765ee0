-- One housekeeper at a time. Parameters: none. Rows: 1: taken. Locks: advisory (0x726f7768, 0), session. Index: none.
select pg_try_advisory_lock(1919907688, 0);
