-- Parameters: $1 text chore, $2 text error; NULL: it succeeded. Rows: 1: the unix time since which it fails; NULL: it does not.
-- Locks: rows of rowbell.housekeeping. Index: housekeeping_pkey.
select rowbell.housekeeping_result($1, $2);
