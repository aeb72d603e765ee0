-- An event's public id: a UUIDv7 (RFC 9562) made of occurred_at and seq. A pure function, so there is no column and no
-- second index: 48 bits of milliseconds, version, microseconds within the millisecond, variant, 62 bits of seq.
create or replace function rowbell.event_id(occurred_at timestamptz, seq bigint) returns uuid
language sql immutable strict parallel safe
return (lpad(to_hex((extract(epoch from occurred_at at time zone 'UTC') * 1000000)::bigint / 1000), 12, '0')
        || '7' || lpad(to_hex((extract(epoch from occurred_at at time zone 'UTC') * 1000000)::bigint % 1000), 3, '0')
        || to_hex(seq | '-9223372036854775808'::bigint))::uuid;

-- The seq inside an id; NULL when it is not one of ours.
create or replace function rowbell.event_seq(id uuid) returns bigint
language sql immutable strict parallel safe
return case when substr(id::text, 15, 1) = '7' and substr(id::text, 20, 1) in ('8', '9', 'a', 'b')
  then (('x' || replace(substr(id::text, 20), '-', ''))::bit(64)::bigint & 4611686018427387903) end;
