-- Parameters: none. Rows: 1: how many went.
select rowbell.prune_orphans();
