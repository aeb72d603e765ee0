-- Has the database another history than the search engines' indexes? Then they are rebuilt.
-- Parameters: none. Rows: 1: how many rebuilds were queued. Locks: after a failover, the installation row. Index: none.
select rowbell.follow_failover();
