-- The installation's id, which names the Redis channel.
-- Parameters: none. Rows: one. Locks: none. Index: none needed (one row).
select id from rowbell.installation;
