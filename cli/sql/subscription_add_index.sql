-- Adds an index. $1 name, $2 types text[], $3 scope (NULL: all), $4 options jsonb. One row: id, name.
-- Locks: the rows it inserts.
select rowbell.add_index($1, $2::text[], $3, $4::jsonb, $3::text is null) as id, $1::text as name;
