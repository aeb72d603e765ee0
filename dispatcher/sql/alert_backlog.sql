-- Parameters: none. Rows: 1: how many alerts were made.
select rowbell.alert_backlog();
