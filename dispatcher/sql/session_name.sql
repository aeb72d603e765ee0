-- Shows something to those that look at sessions. Only on the session that holds the shards, which no pooler shares.
-- Parameters: $1 text. Rows: 1. Locks: none. Index: none.
select set_config('application_name', $1::text, false);
