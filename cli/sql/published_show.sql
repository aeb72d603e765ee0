-- How a table is published. $1 oid, $2 its name for people. One row or none. Locks: none. Index: published_pkey.
select $2::text as relation, p.name, p.key, p.scope, p.soft_delete, p.watch, p.webhook, p.capture, p.lastval
  from rowbell.published p where p.relation = $1::oid;
