-- Adds an endpoint. $1 name, $2 url, $3 types text[], $4 scope (NULL: all), $5 options jsonb. One row: id, name, secret (shown once).
-- Locks: the rows it inserts.
select a.subscription_id as id, $1::text as name, a.secret
  from rowbell.add_webhook($1, $2, $3::text[], $4, $5::jsonb, $4::text is null) as a;
