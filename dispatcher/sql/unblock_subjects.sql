-- Parameters: none. Rows: 1: how many jobs were freed.
select rowbell.unblock_subjects();
