-- The last walk over each table of an index. $1 subscription. Rows: table, phase, rows, those that are in no document, times. Locks: none.
select w.name as "table", w.phase, w.rows_done, w.rows_expected, w.refused, w.started_at, w.updated_at, w.refused_rows
  from rowbell.index_walks w join rowbell.subscriptions s on s.id = w.subscription_id
 where s.name = $1 order by w.name;
