-- Parameters: $1 bigint milliseconds without a success. Rows: 1: how many were disabled.
select rowbell.disable_failing($1::bigint);
