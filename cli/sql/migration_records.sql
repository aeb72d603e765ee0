-- What was applied, in order; where rows are missing, as after a dump without data was loaded, what a comment says. Rows: one a file. Locks: none.
-- Reads the whole table, a few dozen rows.
select m.name, m.version, m.checksum, m.applied_at from rowbell.migrations m
union all
select r.n[1], r.n[2]::int, r.n[4], now()
  from regexp_matches(obj_description('rowbell.migrations'::regclass, 'pg_class'), '^([0-9]{4}_[a-z0-9_]+) ([0-9]+) ([0-9]+) ([0-9a-f]{64})$', 'gn') as r(n)
 where not exists (select from rowbell.migrations)
 order by 2 nulls last, 1;
