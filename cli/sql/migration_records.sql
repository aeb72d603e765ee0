-- What was applied, in order. Rows: one a file. Locks: none. Reads the whole table, a few dozen rows.
select name, version, checksum, applied_at from rowbell.migrations order by version nulls last, name;
