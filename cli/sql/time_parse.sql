-- A point in time from an age or a text. $1 bigint milliseconds before now, or NULL; $2 text. One row. Locks: none.
select coalesce(now() - $1::bigint * interval '1 millisecond', $2::timestamptz)::text;
