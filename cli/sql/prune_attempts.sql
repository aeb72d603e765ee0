-- A step of pruning. $1 retention in milliseconds. One row: how many went. Locks: the rows it deletes. Index: attempts_started.
select rowbell.prune_attempts($1::bigint);
