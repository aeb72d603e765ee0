-- What an index reads: the rows of published tables, by their address, with the rights of the dispatcher's login, in a statement that
-- begins after the event was committed. So a document is never older than the event that asked for it.
--
-- Two questions come before each reading, once the table is locked, so that neither the table nor its types change meanwhile:
--
-- Whose rights? The dispatcher may read more than the owner of the subscription. So the owner's own SELECT is looked at, column by column.
--
-- Whose code? PostgreSQL runs code of others when it plans and runs a query of their table, with the rights of whoever reads: a
-- view's functions, a policy, a function in an index's predicate or expression, in statistics, in a partition key; casts, operators
-- and functions that are found by a type's name. All of it may change while a reader has its lock, which stops no CREATE INDEX. So:
--   * The owner of the table and of its schema must be trusted, and so must be the owner of each function, operator and type
--     that the indexes, statistics and partition keys of the table name.
--   * A view is never read, nor a policy, nor a CHECK constraint (row_security and constraint_exclusion are off).
--   * A value is rendered by the output function of its type, which only a superuser can make. Only types of PostgreSQL itself become
--     JSON or are compared as what they are; the others are their text.

-- Signatures of before.
drop function if exists rowbell.index_read(int, bigint[]), rowbell.index_read_keys(int, text, text[]), rowbell.index_walk_rows(int, text, text, int),
  rowbell.index_read_rows(rowbell.subscriptions, rowbell.published, text[]), rowbell.index_next_keys(rowbell.published, text, int), rowbell.index_rows_sql(rowbell.published, text[]),
  rowbell.index_next_keys_sql(rowbell.published, boolean), rowbell.index_document_sql(rowbell.published, text[]),
  rowbell.index_table_sql(rowbell.published), rowbell.index_column_sql(oid, name), rowbell.index_plain_type(oid), rowbell.index_document_sql(text[]),
  rowbell.index_problem(text, text, rowbell.published);

create or replace function rowbell.percent_decode(value text) returns text
language sql immutable strict parallel safe
return case when position('%' in value) = 0 then value
            else convert_from((select string_agg(case when left(m[1], 1) = '%' then decode(substr(m[1], 2), 'hex')
                                                      else convert_to(m[1], 'UTF8') end, ''::bytea order by i)
                                 from regexp_matches(value, '%[0-9A-Fa-f]{2}|[^%]+', 'g') with ordinality as t(m, i)), 'UTF8') end;

create or replace function rowbell.index_columns(settings jsonb) returns text[]
language sql immutable
return case when settings -> 'columns' is null then null
            else array(select jsonb_array_elements_text(settings -> 'columns')) end;

-- What keeps a role from reading what an index reads of a table; NULL: nothing. columns NULL: all of them.
create or replace function rowbell.index_denied(reader name, p rowbell.published, columns text[]) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select case
    when r.oid is null then format('the role that owns the subscription, %s, is gone', coalesce(quote_ident(reader), 'NULL'))
    when not has_schema_privilege(r.oid, c.relnamespace, 'usage')
      then format('role %I, who owns the subscription, has no right to schema %s', reader, c.relnamespace::regnamespace)
    when x.attname is not null
      then format('role %I, who owns the subscription, may not read column %I of table %s: grant select on %s to %I',
                  reader, x.attname, c.oid::regclass, c.oid::regclass, reader)
    when c.relrowsecurity and not r.rolsuper and not r.rolbypassrls and (c.relforcerowsecurity or not pg_has_role(r.oid, c.relowner, 'usage'))
      then format('row level security restricts what role %I, who owns the subscription, reads of table %s', reader, c.oid::regclass) end
    from pg_class c left join pg_roles r on r.rolname = reader
    left join lateral (
      select a.attname from pg_attribute a
       where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
         and (columns is null or a.attname = any (columns) or a.attname = any ((p).key) or a.attname in ((p).scope, (p).soft_delete))
         and not has_column_privilege(r.oid, c.oid, a.attnum, 'select') order by a.attnum limit 1) x on true
   where c.oid = (p).relation
  union all
  select format('table %s is gone', (p).name) where not exists (select from pg_class c where c.oid = (p).relation)
  limit 1);
end $$;

-- True when code of this role may run with the rights of a dispatcher.
create or replace function rowbell.index_trusts(role oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return (
  select coalesce(bool_or(r.rolsuper or r.rolname = current_user or pg_has_role(r.oid, n.nspowner, 'member')
                          or exists (select from pg_roles t where t.rolname = 'rowbell_trusted' and pg_has_role(r.oid, t.oid, 'member'))), false)
    from pg_roles r cross join pg_namespace n
   where n.nspname = 'rowbell'
     and r.oid = case when role = (select g.oid from pg_roles g where g.rolname = 'pg_database_owner')
                      then (select d.datdba from pg_database d where d.datname = current_database()) else role end);
end $$;

-- A table with its partitions and children.
create or replace function rowbell.index_tree(relation oid) returns setof oid
language sql stable
begin atomic
  with recursive below as (
    select relation as oid union select i.inhrelid from below b join pg_inherits i on i.inhparent = b.oid)
  select b.oid from below b;
end;

-- Whose code PostgreSQL could run when this table is read: what it is, and who owns it.
create or replace function rowbell.index_code(relation oid) returns table (what text, owner oid)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  return query
  with recursive below as (
    select relation as oid union select i.inhrelid from below b join pg_inherits i on i.inhparent = b.oid),
  above as (
    select relation as oid union select i.inhparent from above a join pg_inherits i on i.inhrelid = a.oid),
  tables as (select b.oid from below b union select a.oid from above a),
  evaluated as (
    select 'pg_class'::regclass::oid as classid, i.indexrelid as objid
      from tables t join pg_index i on i.indrelid = t.oid where i.indexprs is not null or i.indpred is not null
    union all
    select 'pg_class'::regclass, k.partrelid from tables t join pg_partitioned_table k on k.partrelid = t.oid where k.partexprs is not null
    union all
    select 'pg_statistic_ext'::regclass, x.oid from tables t join pg_statistic_ext x on x.stxrelid = t.oid where x.stxexprs is not null),
  named as (
    select distinct d.refclassid, d.refobjid from evaluated e join pg_depend d on d.classid = e.classid and d.objid = e.objid
     where d.refclassid in ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_type'::regclass))
  select 'table ' || c.oid::regclass, c.relowner from tables t join pg_class c on c.oid = t.oid
  union all
  select 'schema ' || n.nspname, n.nspowner from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = relation
  union all
  select 'function ' || f.oid::regprocedure, f.proowner from named n join pg_proc f on n.refclassid = 'pg_proc'::regclass and f.oid = n.refobjid
  union all
  select 'operator ' || o.oid::regoperator, v.owner
    from named n join pg_operator o on n.refclassid = 'pg_operator'::regclass and o.oid = n.refobjid
    join pg_proc f on f.oid = o.oprcode cross join lateral (values (o.oprowner), (f.proowner)) as v(owner)
  union all
  select 'type ' || y.oid::regtype, y.typowner from named n join pg_type y on n.refclassid = 'pg_type'::regclass and y.oid = n.refobjid;
end $$;

-- Locks a table and looks whether it may be read for a subscription. Answers how a FROM clause names it. To be called by the
-- function that reads, with the settings that the functions below have.
create or replace function rowbell.index_lock(s rowbell.subscriptions, p rowbell.published) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  source constant text := p.relation::oid::regclass;
  class  pg_class;
  code   record;
  fault  text;
begin
  -- The server refuses itself to read a view or a foreign table that takes the table's place (since 14.13, 15.8, 16.4).
  if current_setting('restrict_nonsystem_relation_kind', true) is not null then
    perform set_config('restrict_nonsystem_relation_kind', 'view, foreign-table', true);
  end if;
  if p.relation is null and exists (select from rowbell.published_candidates(p)) then
    raise exception 'table % is not captured: it must be published again, see rowbell doctor', p.name using errcode = 'undefined_table';
  elsif to_regclass(source) is null then
    raise exception 'table % is gone', p.name using errcode = 'object_not_in_prerequisite_state';
  end if;
  select * into class from pg_class c where c.oid = p.relation;
  if class.relkind in ('r', 'p') then
    execute format('lock table only %s in access share mode', source);
    select * into class from pg_class c where c.oid = p.relation;
  end if;
  if class.oid is null or class.oid::regclass::text <> source or to_regclass(source) is distinct from class.oid::regclass then
    raise exception 'table % was renamed meanwhile', source using errcode = 'serialization_failure';
  end if;
  select format('%s is not a table, so it is not indexed', c.oid::regclass) into fault
    from rowbell.index_tree(p.relation) as t join pg_class c on c.oid = t where c.relkind not in ('r', 'p') limit 1;
  if fault is null then
    select format('column %I of table %s is computed when it is read, so the table is not indexed', a.attname, a.attrelid::regclass) into fault
      from rowbell.index_tree(p.relation) as t join pg_attribute a on a.attrelid = t and a.attnum > 0 and a.attgenerated not in ('', 's') limit 1;
  end if;
  if fault is not null then
    raise exception 'rowbell: %', fault using errcode = 'object_not_in_prerequisite_state';
  end if;
  select c.what, c.owner into code from rowbell.index_code(p.relation) as c where not rowbell.index_trusts(c.owner) limit 1;
  if found then
    raise exception 'rowbell: the owner of % is not trusted: grant rowbell_trusted to %, if code of theirs may run with the rights of a dispatcher',
      code.what, quote_ident(pg_get_userbyid(code.owner)) using errcode = 'object_not_in_prerequisite_state';
  end if;
  fault := rowbell.index_denied(s.owner, p, rowbell.index_columns(s.settings));
  if fault is not null then
    raise exception '%', fault using errcode = 'insufficient_privilege';
  end if;
  return source;
end $$;

-- What a domain is a domain of, and so on.
create or replace function rowbell.index_base_type(type oid) returns oid
language sql stable
begin atomic
  with recursive base as (
    select t.oid, t.typbasetype from pg_type t where t.oid = type
    union all select t.oid, t.typbasetype from base b join pg_type t on t.oid = b.typbasetype)
  select b.oid from base b where b.typbasetype = 0;
end;

-- True of the types that PostgreSQL itself has, and of domains of them. Nobody can make a cast or an operator between these.
create or replace function rowbell.index_own_type(type oid) returns boolean
language sql stable
begin atomic
  select t.typnamespace = 'pg_catalog'::regnamespace and t.typtype in ('b', 'r', 'm') from pg_type t where t.oid = rowbell.index_base_type(type);
end;

-- What a true array is an array of; NULL: it is none.
create or replace function rowbell.index_element_type(type oid) returns oid
language sql stable
begin atomic
  select t.typelem from pg_type t
   where t.oid = rowbell.index_base_type(type) and t.typelem <> 0 and t.typsubscript = 'array_subscript_handler'::regproc;
end;

-- The expression of a column for a document, given a reference to it. to_jsonb looks for casts of the types that PostgreSQL
-- did not bring along, also of those within arrays and records: these are rendered first.
create or replace function rowbell.index_column_sql(type oid, reference text) returns text
language sql stable
begin atomic
  select case
    when rowbell.index_own_type(coalesce(rowbell.index_element_type(type), type)) then reference
    when rowbell.index_element_type(type) is not null
      then format('case when num_nonnulls(%1$s) = 1 then (select coalesce(jsonb_agg(case when num_nonnulls(e) = 1 then concat(e) end), ''[]'') '
                  'from unnest(%1$s) as e) end', reference)
    else format('case when num_nonnulls(%1$s) = 1 then concat(%1$s) end', reference) end;
end;

-- The parts of a rendered key (an SQL expression) as values of the key's types: a comma-separated list. A domain's values are
-- those of its base type, so that none of its checks runs. A value of a type that is not PostgreSQL's own is compared as text.
create or replace function rowbell.index_key_values_sql(p rowbell.published, key_sql text) returns text
language sql stable
return (select string_agg(format('rowbell.percent_decode(split_part(%s, ''/'', %s))%s', key_sql, k.i,
                                 case when rowbell.index_own_type(a.atttypid) then '::' || format_type(rowbell.index_base_type(a.atttypid), -1) end),
                          ', ' order by k.i)
          from unnest(p.key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = p.relation and a.attname = k.attname and not a.attisdropped);

create or replace function rowbell.index_key_columns_sql(p rowbell.published) returns text
language sql stable
return (select string_agg(format(case when rowbell.index_own_type(a.atttypid) then '"rowbell$r".%I' else 'concat("rowbell$r".%I)' end, k.attname),
                          ', ' order by k.i)
          from unnest(p.key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = p.relation and a.attname = k.attname and not a.attisdropped);

-- Rows that are there for subscribers: not soft-deleted.
create or replace function rowbell.index_alive_sql(p rowbell.published) returns text
language sql immutable
return case when p.soft_delete is null then 'true' else format('"rowbell$r".%I is not distinct from null', p.soft_delete) end;

create or replace function rowbell.index_scope_sql(p rowbell.published) returns text
language sql stable
return case when p.scope is null then 'null::text'
            else format('rowbell.scope_of(%s)', coalesce(
              (select rowbell.capture_text_sql(a, format('"rowbell$r".%I', p.scope))
                 from pg_attribute a where a.attrelid = p.relation and a.attname = p.scope and not a.attisdropped),
              format('"rowbell$r".%I', p.scope))) end;

create or replace function rowbell.index_document_max_bytes() returns int language sql immutable return 1048576;
-- What a dispatcher takes into its memory by one reading: no further document once there is so much.
create or replace function rowbell.index_reading_max_bytes() returns int language sql immutable return 16777216;

-- A query of the present state of some addresses. $1 text[] keys, $2 text the subscription's scope (NULL: all).
-- Rows: the number of the key, key, scope, document, problem. document NULL: gone, outside the scope, or there is a problem: it is too large. How large a row
-- is, is asked before its values are fetched, as far as PostgreSQL knows it without.
create or replace function rowbell.index_rows_sql(p rowbell.published, columns text[], source text) returns text
language sql stable
return (
  select format(
    'select k.i, k.key, x.scope, x.document, x.problem from unnest($1::text[]) with ordinality as k(key, i) left join lateral ('
    'select s.scope, case when s.bytes <= %7$s then s.document end as document, '
    'case when s.bytes > %7$s then ''the row has '' || s.bytes || '' bytes, more than a document may have (%7$s)'' end as problem '
    'from (select r.scope, r.document, greatest(r.bytes, octet_length(r.document::text)) as bytes from ('
    'select %1$s as scope, b.bytes, case when b.bytes <= %7$s then (select to_jsonb("rowbell$c") from (select %2$s) as "rowbell$c") end as document '
    'from %3$s as "rowbell$r" cross join lateral (select %8$s as bytes offset 0) as b where (%4$s) = (%5$s) and %6$s limit 1) as r '
    'where $2::text is null or r.scope = $2::text offset 0) as s) as x on true',
    rowbell.index_scope_sql(p), string_agg(format('%s as %I', coalesce(rowbell.index_column_sql(a.atttypid, u.reference), u.reference), u.c), ', ' order by u.i),
    source, rowbell.index_key_columns_sql(p), rowbell.index_key_values_sql(p, 'k.key'), rowbell.index_alive_sql(p), rowbell.index_document_max_bytes(),
    coalesce(string_agg(format(case when rowbell.index_base_type(a.atttypid) in ('text'::regtype, 'varchar'::regtype, 'bytea'::regtype)
                                    then 'coalesce(octet_length(%s), 0)'
                                    when rowbell.index_base_type(a.atttypid) = 'json'::regtype then 'coalesce(octet_length(%s::text), 0)'
                                    else 'coalesce(pg_column_size(%s), 0)' end, u.reference), '::bigint + ')
               filter (where a.attlen < 0), '0') || '::bigint')
    from unnest(coalesce(columns, array(select a.attname::text from pg_attribute a where a.attrelid = p.relation and a.attnum > 0
                                           and not a.attisdropped order by a.attnum))) with ordinality as v(c, i)
   cross join lateral (select v.c, v.i, format('"rowbell$r".%I', v.c) as reference) as u
    left join pg_attribute a on a.attrelid = p.relation and a.attname = u.c and not a.attisdropped);

-- The next keys of a table, in key order. $1 text the key to begin after (NULL: from the start), $2 int how many. Keys that
-- are too long to be an address have none.
create or replace function rowbell.index_next_keys_sql(p rowbell.published, resumed boolean, source text) returns text
language sql stable
return format('select %s as key from %s as "rowbell$r" where ($1::text is null or true) and %s order by %s limit $2::int',
              rowbell.capture_key_sql(p.relation, p.key, '"rowbell$r"'), source,
              case when resumed then format('(%s) > (%s)', rowbell.index_key_columns_sql(p), rowbell.index_key_values_sql(p, '$1::text'))
                   else 'true' end,
              rowbell.index_key_columns_sql(p));

-- Why a table cannot be read, for people, with the remedy where there is one.
create or replace function rowbell.index_problem(state text, message text, p rowbell.published) returns text
language sql stable
return case when state = '42501' and message like 'permission denied for %' then format('%s: grant select on %s to %I', message, p.relation::regclass, current_user)
            when state = '42703' then format('%s: the index names a column that table %s does not have', message, p.relation::regclass)
            else message end;

-- True of an error that is not the rows': what comes next would have it, too.
create or replace function rowbell.index_fault_of_system(state text) returns boolean
language sql immutable
return left(state, 2) in ('08', '25', '40', '42', '53', '55', '57', '58');

-- The present state of some rows of one table. A row that cannot be read has a problem, and spoils no other: halves are read
-- until it is alone. Errors that are not the rows' are raised. postponed: there is a document, and too much was read to take it now; the
-- first of the keys never is.
create or replace function rowbell.index_read_rows(s rowbell.subscriptions, p rowbell.published, keys text[])
returns table (key text, scope text, document text, problem text, postponed boolean)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set lc_monetary = 'C' set row_security = off set constraint_exclusion = off as $$
#variable_conflict use_column
declare
  -- A statement of its own: the next one, which reads the columns' types, must have a snapshot from after the lock.
  source constant text := rowbell.index_lock(s, p);
  -- In order, so that the first row comes when the last one is made: what was returned before an error would stay.
  query  constant text := format(
    'select r.key, r.scope, case when r.before < %1$s then r.document end, r.problem, r.before >= %1$s and r.document is not null '
    'from (select d.*, coalesce(sum(octet_length(d.document)) over (order by d.i rows between unbounded preceding and 1 preceding), 0) as before '
    'from (select r.i, r.key, r.scope, r.document::text, r.problem from (%2$s) as r offset 0) as d) as r order by r.i',
    rowbell.index_reading_max_bytes(), rowbell.index_rows_sql(p, rowbell.index_columns(s.settings), source));
  ranges int[] := array[1, cardinality(keys)];
  first  int;
  last   int;
begin
  while cardinality(ranges) > 0 loop
    first := ranges[1];
    last := ranges[2];
    ranges := ranges[3:];
    begin
      return query execute query using keys[first:last], s.scope;
    exception when others then
      if rowbell.index_fault_of_system(sqlstate) then
        raise;
      elsif first = last then
        return query select keys[first], null, null, sqlerrm, false;
      else
        ranges := array[first, (first + last) / 2, (first + last) / 2 + 1, last] || ranges;
      end if;
    end;
  end loop;
end $$;

-- The present state of what some events name. For targets outside of the database.
-- Rows: one for each event: seq, name, key, scope, document (NULL: gone), state (an SQLSTATE when it could not be read, `later` when
-- it was postponed) and problem.
create or replace function rowbell.index_read(subscription int, seqs bigint[])
returns table (seq bigint, name text, key text, scope text, document text, state text, problem text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
  p rowbell.published;
  g record;
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  for g in select t.published_id, array_agg(e.seq) as seqs, array_agg(e.key) as keys, array_agg(distinct e.key) as distinct_keys,
                  min(left(t.type, -length(e.op) - 1)) as name
             from rowbell.events e join rowbell.event_types t on t.id = e.type_id
            where e.seq = any (seqs) and e.key is not null group by t.published_id loop
    begin
      select * into p from rowbell.published_tables() o where o.id = g.published_id;
      if not found or cardinality(p.key) = 0 then
        return query select u.seq, g.name, u.key, null, null, '55000', format('table %s is not published with a key', g.name)
          from unnest(g.seqs, g.keys) as u(seq, key);
        continue;
      end if;
      return query select u.seq, p.name, u.key, r.scope, r.document, case when r.problem is not null then '55000' when r.postponed then 'later' end, r.problem
                     from unnest(g.seqs, g.keys) as u(seq, key) join rowbell.index_read_rows(s, p, g.distinct_keys) as r on r.key = u.key;
    exception when others then
      if sqlstate in ('40001', '40P01', '57014') or left(sqlstate, 2) = '53' then
        raise;
      end if;
      return query select u.seq, g.name, u.key, null, null, sqlstate, rowbell.index_problem(sqlstate, sqlerrm, p)
        from unnest(g.seqs, g.keys) as u(seq, key);
    end;
  end loop;
end $$;

-- The same for keys of one table: whether there is a document.
create or replace function rowbell.index_read_keys(subscription int, name text, keys text[])
returns table (key text, is_there boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
  p rowbell.published;
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published_tables() o where o.name = index_read_keys.name;
  return query select r.key, r.document is not null or r.postponed from rowbell.index_read_rows(s, p, keys) as r;
exception when insufficient_privilege or undefined_column then
  raise exception using errcode = sqlstate, message = rowbell.index_problem(sqlstate, sqlerrm, p);
end $$;

-- The next keys of a table for a walk.
create or replace function rowbell.index_next_keys(s rowbell.subscriptions, p rowbell.published, after_key text, "limit" int) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set lc_monetary = 'C' set row_security = off set constraint_exclusion = off as $$
declare
  source constant text := rowbell.index_lock(s, p);   -- first, and alone: see index_read_rows
  keys text[];
begin
  execute format('select array(%s)', rowbell.index_next_keys_sql(p, after_key is not null, source)) into keys using after_key, "limit";
  return keys;
end $$;

-- One step of a walk's reading, for targets outside of the database: up to so many rows after a key.
-- Rows, in key order: key, scope, document (NULL: outside the scope, soft-deleted, or gone in between), problem, postponed.
create or replace function rowbell.index_walk_rows(subscription int, name text, after_key text, "limit" int)
returns table (key text, scope text, document text, problem text, postponed boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s    rowbell.subscriptions;
  p    rowbell.published;
  keys text[];
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published_tables() o where o.name = index_walk_rows.name;
  keys := rowbell.index_next_keys(s, p, after_key, "limit");
  return query select o.key, r.scope, r.document, r.problem, r.postponed
                 from unnest(keys) with ordinality as o(key, i) join rowbell.index_read_rows(s, p, keys) as r on r.key = o.key order by o.i;
exception when insufficient_privilege or undefined_column then
  raise exception using errcode = sqlstate, message = rowbell.index_problem(sqlstate, sqlerrm, p);
end $$;
