-- Queues the rebuild of an index. $1 subscription. Rows: one for each table: table, and the number of the event whose job it is.
-- Locks: the rows it inserts.
select r.name as "table", r.event from rowbell.rebuild_index($1) as r;
