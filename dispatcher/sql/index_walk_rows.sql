-- The next rows of a walk.
-- Parameters: $1 int subscription, $2 text name, $3 text key to begin after (NULL: the start), $4 int how many.
-- Rows, in key order: key, scope, document (NULL: not for this subscription), problem,
-- postponed. Locks: none. Index: the key of the table.
select r.key, r.scope, r.document, r.problem, r.postponed
  from rowbell.index_walk_rows($1::int, $2::text, $3::text, $4::int) r;
