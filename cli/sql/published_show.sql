-- How a table is published. $1 oid, $2 its name for people. One row or none. Locks: none. Index: none, the table is small.
select $2::text as relation, p.name, p.key, p.scope, p.soft_delete, p.watch, p.webhook
  from rowbell.published_tables() p where p.relation = $1::oid;
