-- Stops capturing a table. $1 oid. One row: was it published? Locks: ACCESS EXCLUSIVE on the table, shortly.
select rowbell.unpublish($1::oid::regclass) as unpublished;
