-- What a subscription's secrets are sealed for. $1 name. One row or none: seal_id, kind. Locks: none. Index: subscriptions_name_key.
select p.seal_id, p.kind from rowbell.seal_place($1) as p;
