-- What is wrong with a URL of a webhook or a search engine; NULL: nothing. Only what every reader reads alike passes: printable
-- ASCII, no backslash, no user, no fragment; a host that is an address in its usual form (192.0.2.1, [2001:db8::1]) or a name that
-- cannot be taken for one. The same rule in C: common/http_target.c; both are tested with tests/support/urls.h.
create or replace function rowbell.url_problem(url text) returns text
language plpgsql immutable set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
  authority text := lower(substring(url collate "C" from '^[hH][tT][tT][pP][sS]?://([^/?]+)'));
  host text := substring(authority from '^(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[1-9][0-9]{0,4})?$');
  port text := substring(authority from ':([0-9]+)$');
begin
  if url is null or octet_length(url) > 2048 or url collate "C" !~ '^[!-~]*$' or url ~ '[\\#]' or authority is null then
    return 'it is not https://host/path in printable ASCII, with no fragment, no backslash and at most 2048 characters';
  elsif authority ~ '@' then
    return 'it has a user or a password';
  elsif host is null then
    return 'its host is not written with letters, digits, dots, - and _ (others: xn--...), or its port is not 1 to 65535';
  elsif host like '[%' then
    if family(trim(both '[]' from host)::inet) = 6 and (right(authority, 1) = ']' or port::int <= 65535) then
      return null;
    end if;
    return 'between [ and ] stands an IPv6 address, and a port is 1 to 65535';
  elsif port::int > 65535 then
    return 'a port is 1 to 65535';
  elsif host ~ '^((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(\.(?!$)|$)){4}$' then
    return null;
  elsif host ~ '(^|\.)([0-9]+|0x[0-9a-f]*)$' then
    return 'its host reads as an address; write it as 192.0.2.1';
  elsif length(host) > 253 or host !~ '^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.(?!$)|$))+$' then
    return 'its host has an empty label, one of more than 63 characters, or one that begins or ends with -, or is too long';
  end if;
  return null;
exception
  when invalid_text_representation then
    return 'between [ and ] stands an IPv6 address';
end $$;
