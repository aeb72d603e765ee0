-- Sealed secrets. A form is sealed for one subscription and one use (common/seal.h): whoever copies it elsewhere has a secret that does
-- not open there. So a caller may give one, once the subscription is there to be sealed for. Forms of earlier versions (sealed:1)
-- open anywhere: they stay where they are until `rowbell secrets rekey` seals them again, and are taken from no caller.

-- What to seal a subscription's secrets for. No row: there is none of this name.
create or replace function rowbell.seal_place(subscription text) returns table (seal_id uuid, kind text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  answer jsonb;
begin
  insert into rowbell.calls (name, arguments) values ('seal_place', jsonb_build_object('name', subscription)) returning result into answer;
  if answer <> 'null' then
    seal_id := answer ->> 'seal_id';
    kind := answer ->> 'kind';
    return next;
  end if;
end $$;

create or replace function rowbell.seal_place_as(caller name, arguments jsonb) returns jsonb
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  select coalesce((select jsonb_build_object('seal_id', s.seal_id, 'kind', s.kind)
                     from rowbell.subscription_find(caller, arguments ->> 'name') as s where s.id is not null), 'null');
end;

-- What is wrong with a form that a caller gives; NULL: nothing. The secret is never quoted.
create or replace function rowbell.given_form_problem(form text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case when form like 'sealed:%' and form not like 'sealed:2:%' then
  'the secret is sealed for no place, by an earlier version of rowbell: use this one, or give it unsealed' end;

-- Scheme, host and port, as two URLs are compared. What is written in another way counts as another origin.
create or replace function rowbell.url_origin(url text) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return regexp_replace(lower(substring(url from '^[A-Za-z]+://[^/?#]*')), '^(https://.*):443$|^(http://.*):80$', '\1\2');

-- What keeps the credentials in a webhook's settings from another host: whoever may change the URL need not know them. NULL: nothing does.
create or replace function rowbell.redirect_problem(settings jsonb, new_settings jsonb, changes jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp
return case
  when rowbell.url_origin(settings ->> 'url') = rowbell.url_origin(new_settings ->> 'url') then null
  when coalesce(settings -> 'headers', '{}') <> '{}' and not changes ? 'headers' then
    'the URL leads to another host, which would be sent the headers, and they may be credentials: give headers again, or null'
  when settings ? 'client_key' and not changes ? 'client_key' then
    'the URL leads to another host, which would be shown the client certificate: give client_certificate and client_key again, or null' end;
