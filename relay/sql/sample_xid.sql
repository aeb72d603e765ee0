-- The second half: a transaction id of our own. Whoever took a seq at or below the first half has a lower one, since a
-- writer gets its id before its seq. Rows: one: xid. Locks: none.
select pg_current_xact_id() as xid
