-- Parameters: $1 bigint retention in milliseconds. Rows: 1: how many went.
select rowbell.prune_attempts($1::bigint);
