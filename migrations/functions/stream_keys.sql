-- The keys of messages on Redis. Every key in the table is accepted; one of them signs.

-- The key that signs now: the newest that gateways have surely read (they read the keys every 5 s); the newest of all when
-- there is none so old.
create or replace function rowbell.stream_signing_key() returns int
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select k.id from rowbell.stream_keys k
   order by k.created_at > now() - interval '30 seconds', k.id desc
   limit 1;
end;

-- A new key. It signs after 30 s; the one that signs now is accepted until the next rotation, every older one no more.
-- forget: every key that there was is void at once (somebody else knows one). Until gateways and dispatchers have read the
-- new one, within 5 s, the gateways read the log instead. Returns the new key's id.
create or replace function rowbell.rotate_stream_key(forget boolean default false) returns int
language sql volatile security definer set search_path = pg_catalog, pg_temp
begin atomic
  delete from rowbell.stream_keys k where forget or k.id <> rowbell.stream_signing_key();
  insert into rowbell.stream_keys default values returning id;
end;
