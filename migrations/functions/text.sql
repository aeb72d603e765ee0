-- How keys and scopes are rendered; used by capture and by every other place that must agree with it.

-- RFC 3986: everything but ALPHA DIGIT - . _ ~ becomes %XX, byte by byte of UTF-8.
create or replace function rowbell.percent_encode_slow(value text) returns text
language sql immutable strict parallel safe
return (select string_agg(case when byte between 48 and 57 or byte between 65 and 90 or byte between 97 and 122
                                 or byte in (45, 46, 95, 126) then chr(byte)
                               else '%' || upper(lpad(to_hex(byte), 2, '0')) end, '' order by i)
          from (select i, get_byte(convert_to(value, 'UTF8'), i) as byte
                  from generate_series(0, octet_length(convert_to(value, 'UTF8')) - 1) as i) as bytes);

create or replace function rowbell.percent_encode(value text) returns text
language sql immutable parallel safe
return case when value ~ '^[A-Za-z0-9._~-]*$' then value else rowbell.percent_encode_slow(value) end;

-- A scope as it is stored and compared: '' and the reserved '*' are none; long ones are named by their digest. Functions that
-- PostgreSQL does not call immutable are kept apart: then this one is an expression of the statement that calls it.
create or replace function rowbell.scope_digest(value text) returns text
language sql immutable strict parallel safe
return 'sha256:' || encode(sha256(convert_to(value, 'UTF8')), 'hex');

create or replace function rowbell.scope_of(value text) returns text
language sql immutable parallel safe
return case when value in ('', '*') then null
            when octet_length(value) > 256 then rowbell.scope_digest(value)
            else value end;
