-- Which subscriptions want a type. Kept by triggers, so that the relay matches a batch by an index however many
-- subscriptions there are.

-- Patterns: `posts.update`, `posts.*`, `*.delete`, `*`. A pattern that begins with `*` never matches rowbell's own types
-- (alerts): who wants those names them.
create or replace function rowbell.type_matches(pattern text, type text) returns boolean
language sql immutable strict parallel safe
return case
  when pattern = '*' then not starts_with(type, 'rowbell.')
  when starts_with(pattern, '*.') then right(type, length(pattern) - 1) = substr(pattern, 2)
                                       and not starts_with(type, 'rowbell.')
  when right(pattern, 2) = '.*' then starts_with(type, left(pattern, -1))
  else pattern = type
end;

create or replace function rowbell.route_wanted(s rowbell.subscriptions, t rowbell.event_types) returns boolean
language sql stable
return case s.kind when 'webhook' then t.webhook else t.published_id is not null end
       and exists (select from unnest(s.types) as pattern where rowbell.type_matches(pattern, t.type));

-- A new subscription and a new type may be made at the same moment, neither seeing the other. So a type's maker holds
-- this lock exclusively and a subscription's maker holds it shared: subscriptions never wait for each other.
create or replace function rowbell.routes_of_subscription() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock_shared(x'726f7765'::int, 0);
  delete from rowbell.routes r where r.subscription_id = new.id;
  insert into rowbell.routes (type_id, subscription_id, scope)
    select t.id, s.id, s.scope from rowbell.subscriptions s, rowbell.event_types t
     where s.id = new.id and rowbell.route_wanted(s, t);
  return null;
end $$;

create or replace function rowbell.routes_of_type() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform pg_advisory_xact_lock(x'726f7765'::int, 0);
  delete from rowbell.routes r where r.type_id = new.id;
  insert into rowbell.routes (type_id, subscription_id, scope)
    select t.id, s.id, s.scope from rowbell.subscriptions s, rowbell.event_types t
     where t.id = new.id and rowbell.route_wanted(s, t);
  return null;
end $$;

create or replace trigger routes_of_subscription after insert or update of types, scope, kind on rowbell.subscriptions
  for each row execute function rowbell.routes_of_subscription();
create or replace trigger routes_of_type after insert or update of type, webhook, published_id on rowbell.event_types
  for each row execute function rowbell.routes_of_type();
