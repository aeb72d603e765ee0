-- The keys that sign what dispatchers publish on Redis, the newest first.
-- Parameters: none. Rows: key id, key in hex. Locks: none. Index: none needed; the table is small.
select id, encode(key, 'hex') from rowbell.stream_keys order by id desc limit 8;
