-- A new secret for an endpoint. $1 name, $2 grace in milliseconds, $3 the secret as it is stored, or NULL: the database makes
-- it. One row: the secret that the database made, or NULL; when the old ones end. Locks: the subscription.
select rowbell.rotate_secret($1, $2::bigint * interval '1 millisecond', $3) as secret,
       now() + $2::bigint * interval '1 millisecond' as old_until;
