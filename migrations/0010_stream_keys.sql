-- The keys that sign what dispatchers publish on Redis (common/stream_message.h), so that who reaches Redis forges nothing.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

create table rowbell.stream_keys (
  id         int generated always as identity primary key,
  -- 32 bytes of the server's strong random numbers, hashed: a UUID has fixed bits.
  key        bytea not null check (octet_length(key) = 32)
             default sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
  created_at timestamptz not null default clock_timestamp()
);
insert into rowbell.stream_keys default values;
