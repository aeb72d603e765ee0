-- The largest tables, with dead rows told apart: what retention, a held snapshot or a missing vacuum leaves. Rows: by size, with
-- indexes; all numbers as statistics and the last vacuum or analyze know them, so that no table has to be opened. Locks: none.
select c.relname as table, pg_stat_get_live_tuples(c.oid) as rows, pg_stat_get_dead_tuples(c.oid) as dead,
       (c.relpages + coalesce((select sum(p.relpages) from pg_class p
                                where p.oid = c.reltoastrelid or p.oid in (select i.indexrelid from pg_index i
                                                                            where i.indrelid in (c.oid, c.reltoastrelid))), 0))
         * current_setting('block_size')::bigint as bytes
  from pg_class c
 where c.relnamespace = 'rowbell'::regnamespace and c.relkind = 'r'
 order by bytes desc, c.relname limit 6;
