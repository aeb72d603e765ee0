-- Changes an endpoint. $1 name, $2 changes jsonb. One row: was there one? Locks: its row.
select rowbell.set_webhook($1, $2::jsonb) as found;
