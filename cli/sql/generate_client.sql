-- What generate client writes about. Rows: one for each published table that still exists, by name: its name on the wire
-- and its key's columns (empty: no key). Locks: none. Index: none, the table is small.
select p.name as "table", to_json(p.key) as key
  from rowbell.published_tables() p
 where p.relation is not null
 order by p.name collate "C";
