-- The largest tables, dead rows told apart: what retention, a held snapshot or a missing vacuum leaves. Rows: by size; counts are
-- those of the statistics. Locks: none.
select c.relname as table, pg_stat_get_live_tuples(c.oid) as rows, pg_stat_get_dead_tuples(c.oid) as dead,
       pg_total_relation_size(c.oid) as bytes
  from pg_class c
 where c.relnamespace = 'rowbell'::regnamespace and c.relkind = 'r'
 order by bytes desc, c.relname limit 6;
