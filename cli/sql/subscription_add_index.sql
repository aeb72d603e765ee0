-- Adds an index. $1 name, $2 types text[], $3 scope, $4 options jsonb. One row: id, name.
-- Locks: the rows it inserts.
select rowbell.add_index($1, $2::text[], $3, $4::jsonb) as id, $1::text as name;
