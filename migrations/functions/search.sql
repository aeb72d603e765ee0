-- Indexing: what a dispatcher asks of the database for index subscriptions, add_index, rebuild_index, search_documents.
--
-- Rows are read with the rights of the caller, the dispatcher: it needs SELECT on the tables that it indexes. Whoever owns a
-- table, or one of its types, may have PostgreSQL run code of theirs when it is read: by a cast, a domain's check, a view's
-- rule, a generated column, a policy, an index's predicate. So only tables of trusted owners are read, only as tables, and types
-- that are not a superuser's only through their output functions, which only a superuser can make. Rows are
-- read by their address, in a statement that begins after the event was committed, so a document is never older than the
-- event that asked for it. row_security is off: a policy that would hide rows is an error, not a hole in the index.

create or replace function rowbell.percent_decode(value text) returns text
language sql immutable strict parallel safe
return case when position('%' in value) = 0 then value
            else convert_from((select string_agg(case when left(m[1], 1) = '%' then decode(substr(m[1], 2), 'hex')
                                                      else convert_to(m[1], 'UTF8') end, ''::bytea order by i)
                                 from regexp_matches(value, '%[0-9A-Fa-f]{2}|[^%]+', 'g') with ordinality as t(m, i)), 'UTF8') end;

-- The table of a FROM clause, with all of its partitions, if it may be read with our rights.
create or replace function rowbell.index_table_sql(p rowbell.published) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  part record;
begin
  for part in
    with recursive tree as (
      select p.relation as oid union select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.oid)
    select c.oid::regclass as relation, c.relkind, o.rolname as owner,
           o.rolsuper or o.rolname = current_user
             or c.relowner in (select d.datdba from pg_database d where d.datname = current_database()
                               union all select n.nspowner from pg_namespace n where n.nspname = 'rowbell')
             or exists (select from pg_roles r where r.rolname in ('rowbell_app', 'rowbell_operator') and pg_has_role(c.relowner, r.oid, 'member')) as trusted,
           (select a.attname from pg_attribute a where a.attrelid = c.oid and a.attgenerated not in ('', 's') limit 1) as computed
      from tree t join pg_class c on c.oid = t.oid join pg_roles o on o.oid = c.relowner loop
    if part.relkind not in ('r', 'p') then
      raise exception 'rowbell: % is not a table, so it is not indexed', part.relation using errcode = 'object_not_in_prerequisite_state';
    elsif not part.trusted then
      raise exception 'rowbell: the owner of table % is not trusted: grant rowbell_app to %, if code of theirs may run with the rights of a dispatcher',
        part.relation, quote_ident(part.owner) using errcode = 'object_not_in_prerequisite_state';
    elsif part.computed is not null then
      raise exception 'rowbell: column % of table % is computed when it is read, so the table is not indexed', quote_ident(part.computed), part.relation
        using errcode = 'object_not_in_prerequisite_state';
    end if;
  end loop;
  return p.relation::regclass;
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

-- True when only a superuser can have made a cast of the type, or of what it is an array of.
create or replace function rowbell.index_plain_type(type oid) returns boolean
language sql stable
return (select r.rolsuper from pg_type t
          left join pg_type e on e.oid = t.typelem and t.typcategory = 'A'
          join pg_type b on b.oid = rowbell.index_base_type(coalesce(e.oid, t.oid))
          join pg_roles r on r.oid = b.typowner
         where t.oid = rowbell.index_base_type(type));

-- A column "rowbell$r".c for a document.
create or replace function rowbell.index_column_sql(relation oid, attname name) returns text
language sql stable
return (select coalesce((select case when rowbell.index_plain_type(a.atttypid) then c.ref
                                     when t.typcategory = 'A' then format(
                                       'case when num_nonnulls(%s) = 1 then (select coalesce(jsonb_agg(case when num_nonnulls(e) = 1 then '
                                       'pg_catalog.format(''%%s'', e) end), ''[]'') from unnest(%s) as e) end', c.ref, c.ref)
                                     else format('case when num_nonnulls(%s) = 1 then pg_catalog.format(''%%s'', %s) end', c.ref, c.ref) end
                           from pg_attribute a join pg_type t on t.oid = rowbell.index_base_type(a.atttypid)
                          where a.attrelid = relation and a.attname = index_column_sql.attname and not a.attisdropped), c.ref)
          from (select format('"rowbell$r".%I', attname) as ref) c);

-- The document of a row "rowbell$r".
create or replace function rowbell.index_document_sql(p rowbell.published, columns text[]) returns text
language sql stable
return case when columns is null and not exists (select from pg_attribute a where a.attrelid = p.relation and a.attnum > 0 and not a.attisdropped
                                                    and not rowbell.index_plain_type(a.atttypid)) then 'to_jsonb("rowbell$r")'
            else (select format('(select to_jsonb("rowbell$c") from (select %s) as "rowbell$c")',
                                string_agg(format('%s as %I', rowbell.index_column_sql(p.relation, u.c), u.c), ', ' order by u.i))
                    from unnest(coalesce(columns, array(select a.attname::text from pg_attribute a where a.attrelid = p.relation and a.attnum > 0
                                                           and not a.attisdropped order by a.attnum))) with ordinality as u(c, i)) end;

-- The parts of a rendered key (an SQL expression) as values of the key's types: a comma-separated list. A domain's values are
-- those of its base type, so that none of its checks runs; other types that are not plain are compared as text.
create or replace function rowbell.index_key_values_sql(p rowbell.published, key_sql text) returns text
language sql stable
return (select string_agg(format('rowbell.percent_decode(split_part(%s, ''/'', %s))%s', key_sql, k.i,
                                 case when rowbell.index_plain_type(a.atttypid) then '::' || case when t.typtype = 'd'
                                        then format_type(rowbell.index_base_type(t.oid), -1) else format_type(a.atttypid, a.atttypmod) end
                                      else '' end), ', ' order by k.i)
          from unnest(p.key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = p.relation and a.attname = k.attname
          join pg_type t on t.oid = a.atttypid);

create or replace function rowbell.index_key_columns_sql(p rowbell.published) returns text
language sql stable
return (select string_agg(case when rowbell.index_plain_type(a.atttypid) then format('"rowbell$r".%I', k.attname)
                               else format('pg_catalog.format(''%%s'', "rowbell$r".%I)', k.attname) end, ', ' order by k.i)
          from unnest(p.key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = p.relation and a.attname = k.attname);

-- Rows that are there for subscribers: not soft-deleted.
create or replace function rowbell.index_alive_sql(p rowbell.published) returns text
language sql immutable
return case when p.soft_delete is null then 'true' else format('"rowbell$r".%I is null', p.soft_delete) end;

create or replace function rowbell.index_scope_sql(p rowbell.published) returns text
language sql stable
return case when p.scope is null then 'null::text'
            else format('rowbell.scope_of(%s)', coalesce(
              (select rowbell.capture_text_sql(a, format('"rowbell$r".%I', p.scope))
                 from pg_attribute a where a.attrelid = p.relation and a.attname = p.scope), format('"rowbell$r".%I', p.scope))) end;

-- A query of the present state of some addresses. $1 text[] keys, $2 text the subscription's scope (NULL: all).
-- Rows: key, scope, document; document NULL: gone, or outside the scope.
create or replace function rowbell.index_rows_sql(p rowbell.published, columns text[]) returns text
language sql stable
return format('select k.key, x.scope, x.document from unnest($1::text[]) as k(key) left join lateral ('
              'select s.scope, s.document from (select %s as scope, %s as document from %s as "rowbell$r" where (%s) = (%s) and %s limit 1) as s '
              'where $2::text is null or s.scope = $2::text) as x on true',
              rowbell.index_scope_sql(p), rowbell.index_document_sql(p, columns), rowbell.index_table_sql(p),
              rowbell.index_key_columns_sql(p), rowbell.index_key_values_sql(p, 'k.key'), rowbell.index_alive_sql(p));

-- The next keys of a table, in key order. $1 text the key to begin after (NULL: from the start), $2 int how many. Keys that
-- are too long to be an address have none.
create or replace function rowbell.index_next_keys_sql(p rowbell.published, resumed boolean) returns text
language sql stable
return format('select %s as key from %s as "rowbell$r" where ($1::text is null or true) and %s order by %s limit $2::int',
              rowbell.capture_key_sql(p.relation, p.key, '"rowbell$r"'), rowbell.index_table_sql(p),
              case when resumed then format('(%s) > (%s)', rowbell.index_key_columns_sql(p), rowbell.index_key_values_sql(p, '$1::text'))
                   else 'true' end,
              rowbell.index_key_columns_sql(p));

-- Had one parameter.
drop function if exists rowbell.index_document_sql(text[]);

create or replace function rowbell.index_columns(settings jsonb) returns text[]
language sql immutable
return case when settings -> 'columns' is null then null
            else array(select jsonb_array_elements_text(settings -> 'columns')) end;

-- Why a table cannot be read, for people, with the remedy where there is one.
create or replace function rowbell.index_problem(state text, message text, p rowbell.published) returns text
language sql stable
return case when state = '42501' then format('%s: grant select on %s to %I', message, p.relation::regclass, current_user)
            when state = '42703' then format('%s: the index names a column that table %s does not have', message, p.relation::regclass)
            else message end;

-- The present state of what some events name. For targets outside of the database.
-- Rows: one for each event: seq, name, key, scope, document (NULL: gone), state (an SQLSTATE when it could not be read)
-- and problem.
create or replace function rowbell.index_read(subscription int, seqs bigint[])
returns table (seq bigint, name text, key text, scope text, document jsonb, state text, problem text)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set row_security = off as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
  p rowbell.published;
  g record;
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  for g in select t.relation, array_agg(e.seq) as seqs, array_agg(e.key) as keys, array_agg(distinct e.key) as distinct_keys,
                  min(left(t.type, -length(e.op) - 1)) as name
             from rowbell.events e join rowbell.event_types t on t.id = e.type_id
            where e.seq = any (seqs) and e.key is not null group by t.relation loop
    begin
      select * into p from rowbell.published o where o.relation = g.relation;
      if not found or cardinality(p.key) = 0 then
        return query select u.seq, g.name, u.key, null, null::jsonb, '55000', format('table %s is not published with a key', g.name)
          from unnest(g.seqs, g.keys) as u(seq, key);
        continue;
      end if;
      return query execute format('select u.seq, %L, u.key, r.scope, r.document, null, null from unnest($3::bigint[], $4::text[]) as u(seq, key) '
                                  'join (%s) as r on r.key = u.key', p.name, rowbell.index_rows_sql(p, rowbell.index_columns(s.settings)))
        using g.distinct_keys, s.scope, g.seqs, g.keys;
    exception when others then
      if sqlstate in ('40001', '40P01', '57014') or left(sqlstate, 2) = '53' then
        raise;
      end if;
      return query select u.seq, g.name, u.key, null, null::jsonb, sqlstate, rowbell.index_problem(sqlstate, sqlerrm, p)
        from unnest(g.seqs, g.keys) as u(seq, key);
    end;
  end loop;
end $$;

-- The same for keys of one table.
create or replace function rowbell.index_read_keys(subscription int, name text, keys text[])
returns table (key text, scope text, document jsonb)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set row_security = off as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
  p rowbell.published;
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published o where o.name = index_read_keys.name;
  return query execute rowbell.index_rows_sql(p, rowbell.index_columns(s.settings)) using keys, s.scope;
end $$;

-- The words of a document. The first of the chosen columns weighs most (A), then B, C, and D for the rest.
create or replace function rowbell.search_vector(language regconfig, document jsonb, columns text[]) returns tsvector
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  vector tsvector := '';
begin
  if columns is null then
    return jsonb_to_tsvector(language, document, '["string", "numeric"]');
  end if;
  for i in 1 .. cardinality(columns) loop
    vector := vector || setweight(coalesce(jsonb_to_tsvector(language, document -> columns[i], '["string", "numeric"]'), ''),
                                  substr('ABCD', least(i, 4), 1)::"char");
  end loop;
  return vector;
end $$;

-- Brings the documents of some keys of one table in line with their rows. Writers of one document take turns by an
-- advisory lock; the rows are read in a later statement, so whoever comes last has read what is newest (DESIGN 5).
create or replace function rowbell.index_write_keys(s rowbell.subscriptions, p rowbell.published, keys text[], seqs bigint[])
returns void language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set row_security = off as $$
declare
  columns  constant text[] := rowbell.index_columns(s.settings);
  language constant regconfig := coalesce(s.settings ->> 'language', 'simple')::regconfig;
begin
  perform pg_advisory_xact_lock(l.id)
    from (select distinct hashtextextended(p.name || '/' || k, s.id) as id from unnest(keys) as k order by 1) as l;
  execute format(
    'with found as materialized (%s), '
    'gone as (delete from rowbell.search d using found f '
    '          where f.document is null and d.subscription_id = $3 and d.name = $4 and d.key = f.key) '
    'insert into rowbell.search as d (subscription_id, name, key, scope, document, language, content, event_seq) '
    'select $3, $4, f.key, f.scope, f.document, $5, rowbell.search_vector($5, f.document, $6), q.seq '
    '  from found f join (select u.key, max(u.seq) as seq from unnest($1, $7) as u(key, seq) group by u.key) q on q.key = f.key '
    ' where f.document is not null '
    'on conflict (subscription_id, name, key) do update '
    '   set scope = excluded.scope, document = excluded.document, language = excluded.language, content = excluded.content, '
    '       event_seq = greatest(d.event_seq, excluded.event_seq), indexed_at = now()',
    replace(rowbell.index_rows_sql(p, columns), 'unnest($1::text[]) as k(key)', '(select distinct u.key from unnest($1::text[]) as u(key)) as k'))
    using keys, s.scope, s.id, p.name, language, columns, seqs;
end $$;

-- Writes what some events name into rowbell.search. Rows: one for each event that could not be: seq, SQLSTATE, problem,
-- and how many shared its fate.
create or replace function rowbell.index_write(subscription int, seqs bigint[])
returns table (seq bigint, state text, problem text, together bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
  p rowbell.published;
  g record;
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  if not found then
    return;   -- removed: so are its jobs and documents
  end if;
  for g in select t.relation, array_agg(e.seq order by e.seq) as seqs, array_agg(e.key order by e.seq) as keys,
                  min(left(t.type, -length(e.op) - 1)) as name
             from rowbell.events e join rowbell.event_types t on t.id = e.type_id
            where e.seq = any (seqs) and e.key is not null group by t.relation order by t.relation loop
    begin
      select * into p from rowbell.published o where o.relation = g.relation;
      if not found or cardinality(p.key) = 0 then
        return query select u, '55000', format('table %s is not published with a key', g.name), 1::bigint from unnest(g.seqs) as u;
        continue;
      end if;
      perform rowbell.index_write_keys(s, p, g.keys, g.seqs);
    exception when others then
      if sqlstate in ('40001', '40P01', '57014') or left(sqlstate, 2) = '53' then
        raise;
      end if;
      return query select u, sqlstate, rowbell.index_problem(sqlstate, sqlerrm, p), cardinality(g.seqs)::bigint from unnest(g.seqs) as u;
    end;
  end loop;
end $$;

-- Begins or goes on with a walk for an event that names a whole table. Answers the walk; phase `done`: nothing to do.
-- A walk that began after the event was committed serves it; one that began before begins anew.
create or replace function rowbell.index_walk_open(subscription int, event bigint, name text)
returns rowbell.index_walks language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  w      rowbell.index_walks;
  target rowbell.published;
  newest bigint;
begin
  select * into w from rowbell.index_walks o where o.subscription_id = subscription and o.name = index_walk_open.name for update;
  if found and w.covered_to >= event then
    w.phase := 'done';
    return w;
  end if;
  if w.phase is null or w.phase = 'done' or w.mark < event then
    select * into target from rowbell.published o where o.name = index_walk_open.name;
    if not found or cardinality(target.key) = 0 then
      raise exception 'table % is not published with a key', name using errcode = 'object_not_in_prerequisite_state';
    end if;
    select q.last_value into newest from rowbell.events_seq_seq q;   -- before the transaction's id is assigned
    insert into rowbell.index_walks as o (subscription_id, name, phase, mark, mark_xact, rows_expected)
      values (subscription, name, 'waiting', newest, pg_current_xact_id(),
              (select greatest(sum(c.reltuples), 0)::bigint from rowbell.publish_relations(target.relation) as r join pg_class c on c.oid = r))
      on conflict on constraint index_walks_pkey do update
        set phase = 'waiting', mark = excluded.mark, mark_xact = excluded.mark_xact, after_key = null, rows_done = 0,
            rows_expected = excluded.rows_expected, started_at = now(), updated_at = now()
      returning * into w;
  elsif w.phase = 'waiting' and w.mark_xact <= pg_snapshot_xmin(pg_current_snapshot()) then
    update rowbell.index_walks o set phase = 'rows', updated_at = now()
     where o.subscription_id = subscription and o.name = index_walk_open.name returning * into w;
  end if;
  return w;
end $$;

-- Writes how far a walk came. phase done: the events up to its mark need no walk any more.
create or replace function rowbell.index_walk_save(subscription int, name text, mark bigint, phase text, after_key text, rows_done bigint)
returns void language sql set search_path = pg_catalog, pg_temp
begin atomic
  update rowbell.index_walks o
     set phase = index_walk_save.phase, after_key = index_walk_save.after_key, rows_done = o.rows_done + index_walk_save.rows_done,
         updated_at = now(), covered_to = case when index_walk_save.phase = 'done' then o.mark else o.covered_to end
   where o.subscription_id = subscription and o.name = index_walk_save.name and o.mark = index_walk_save.mark;
end;

-- The next keys of a table for a walk.
create or replace function rowbell.index_next_keys(p rowbell.published, after_key text, "limit" int) returns text[]
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set row_security = off as $$
declare
  keys text[];
begin
  execute format('select array(%s)', rowbell.index_next_keys_sql(p, after_key is not null)) into keys using after_key, "limit";
  return keys;
end $$;

-- One step of a walk's reading, for targets outside of the database: up to so many rows after a key.
-- Rows, in key order: key, scope, document (NULL: outside the scope, soft-deleted, or gone in between).
create or replace function rowbell.index_walk_rows(subscription int, name text, after_key text, "limit" int)
returns table (key text, scope text, document jsonb)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set row_security = off as $$
#variable_conflict use_column
declare
  s    rowbell.subscriptions;
  p    rowbell.published;
  keys text[];
begin
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published o where o.name = index_walk_rows.name;
  keys := rowbell.index_next_keys(p, after_key, "limit");
  return query execute format('select o.key, r.scope, r.document from unnest($1) with ordinality as o(key, i) join (%s) as r on r.key = o.key order by o.i',
                              rowbell.index_rows_sql(p, rowbell.index_columns(s.settings))) using keys, s.scope;
exception when insufficient_privilege or undefined_column then
  raise exception using errcode = sqlstate, message = rowbell.index_problem(sqlstate, sqlerrm, p);
end $$;

-- One step of a walk in rowbell.search: rows first, then documents that no row renewed. Answers the phase it is in now.
create or replace function rowbell.index_walk_step(subscription int, event bigint, name text, "limit" int)
returns text language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  w    rowbell.index_walks;
  s    rowbell.subscriptions;
  p    rowbell.published;
  keys text[];
begin
  w := rowbell.index_walk_open(subscription, event, name);
  if w.phase in ('done', 'waiting') then
    return w.phase;
  end if;
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published o where o.name = index_walk_step.name;
  if w.phase = 'rows' then
    keys := rowbell.index_next_keys(p, w.after_key, "limit");
  else
    keys := array(select d.key from rowbell.search d
                   where d.subscription_id = subscription and d.name = index_walk_step.name and d.event_seq < w.mark
                     and (w.after_key is null or d.key > w.after_key) order by d.key limit "limit");
  end if;
  if cardinality(keys) > 0 then
    perform rowbell.index_write_keys(s, p, array(select k from unnest(keys) as k where octet_length(k) <= 1024),
                                     array(select w.mark from unnest(keys) as k where octet_length(k) <= 1024));
  end if;
  if cardinality(keys) = "limit" then
    perform rowbell.index_walk_save(subscription, name, w.mark, w.phase, keys[cardinality(keys)], case w.phase when 'rows' then cardinality(keys) else 0 end);
    return w.phase;
  end if;
  perform rowbell.index_walk_save(subscription, name, w.mark, case w.phase when 'rows' then 'sweep' else 'done' end, null,
                                  case w.phase when 'rows' then cardinality(keys) else 0 end);
  return case w.phase when 'rows' then 'sweep' else 'done' end;
exception when insufficient_privilege or undefined_column then
  raise exception using errcode = sqlstate, message = rowbell.index_problem(sqlstate, sqlerrm, p);
end $$;

-- Raises the numbers of events above whatever a history of this database that is gone may have given out: search engines
-- refuse a document whose version is below the one that they have. 2^32 is more than can have been lost; the clock, in
-- microseconds, is above the raises that were lost themselves (a backup that is restored twice).
create or replace function rowbell.raise_seq() returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  -- One at a time: whoever read the number before another one's raise would set it back.
  perform from rowbell.installation for update;
  perform setval('rowbell.events_seq_seq',
                 greatest(q.last_value + 4294967296, (extract(epoch from clock_timestamp()) * 1000000)::bigint))
     from rowbell.events_seq_seq q;
end $$;

-- Queues a job for each table of an index subscription that walks over it. Rows: table and event.
create or replace function rowbell.queue_walks(s rowbell.subscriptions) returns table (name text, event bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  type   int;
  target rowbell.published;
begin
  select t.id into strict type from rowbell.event_types t where t.type = 'rowbell.index.rebuild';
  perform pg_current_xact_id();
  for target in select p.* from rowbell.published p
                 where cardinality(p.key) > 0 and exists (select from rowbell.event_types t join rowbell.routes r on r.type_id = t.id
                                                           where t.relation = p.relation and r.subscription_id = s.id) order by p.name loop
    insert into rowbell.events as e (type_id, subject, data, fanned_out_at, fanout)
      values (type, target.name, jsonb_build_object('table', target.name), now(), array[s.id])
      returning e.seq into event;
    insert into rowbell.jobs (subscription_id, event_seq) values (s.id, event);
    perform pg_notify('rowbell_jobs', 'index ' || (s.id % 64) || ' ' || event);
    name := target.name;
    return next;
  end loop;
end $$;

-- Queues a job for each table of an index subscription that builds it anew, online, whatever is in it. Rows: table and event.
create or replace function rowbell.rebuild_index(subscription text) returns table (name text, event bigint)
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  s rowbell.subscriptions;
begin
  select * into s from rowbell.subscriptions o where o.name = subscription and o.kind = 'index';
  if not found then
    raise exception 'rowbell.rebuild_index: there is no index subscription named %', coalesce(quote_literal(subscription), 'NULL')
      using errcode = 'undefined_object';
  end if;
  -- Whoever asks may have restored a dump, which leaves no trace that follow_failover could see.
  if s.settings ->> 'target' in ('opensearch', 'elasticsearch') then
    perform rowbell.raise_seq();
  end if;
  return query select * from rowbell.queue_walks(s);
end $$;

-- After a failover or a restore commits may be lost that are in the search engines' indexes, with versions above those
-- to come: the numbers of events are raised, and these indexes are rebuilt. (rowbell.search was lost along, and has what
-- the tables have.) Does nothing when the database's history is the one that was followed last. Returns how many rebuilds
-- it queued; with the number of the history in one transaction, so it may be called, and killed, at any time.
create or replace function rowbell.follow_failover() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  update rowbell.installation i
     set timeline = h.timeline, system_identifier = h.system_identifier
    from (select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as timeline, c.system_identifier from pg_control_system() c) h
   where (i.timeline, i.system_identifier) is distinct from (h.timeline, h.system_identifier);
  if not found then
    return 0;
  end if;
  perform rowbell.raise_seq();
  return (select count(*) from rowbell.subscriptions s cross join lateral rowbell.queue_walks(s)
           where s.kind = 'index' and s.settings ->> 'target' <> 'postgres');
end $$;

-- Adds an index: what the rows of some published tables hold is kept searchable at a target. Tables that are there already
-- are built at once. Options:
--   target         postgres | opensearch | elasticsearch | meilisearch
--   url            of the search engine; not with postgres
--   authorization  the value of the Authorization header, kept as a secret
--   secret         the same as it is stored, plain:...; a sealed one is given to rotate_secret, once the index is there to be sealed for
--   columns        array of column names; without it every column
--   language       text search configuration (postgres); default simple
--   index          name of the index of each table at the engine, such as app-{table}; default {table}. No other
--                  subscription may write to it
--   allow_http     true: the URL may be http:
--   max_in_flight  1 to 1000: how many changes one batch may take; default 200
create or replace function rowbell.add_index(name text, types text[], scope text default null, options jsonb default '{}') returns int
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  target   text;
  url      text;
  option   text;
  keyless  text;
  settings jsonb;
  added    rowbell.subscriptions;
begin
  options := coalesce(options, '{}');
  if jsonb_typeof(options) <> 'object' then
    raise exception 'rowbell.add_index: options must be a JSON object' using errcode = 'invalid_parameter_value';
  end if;
  for option in select jsonb_object_keys(options) loop
    if option <> all (array['target', 'url', 'authorization', 'secret', 'columns', 'language', 'index', 'allow_http', 'max_in_flight']) then
      raise exception 'rowbell.add_index: there is no option %', quote_literal(option) using errcode = 'invalid_parameter_value',
        hint = 'Options are target, url, authorization, secret, columns, language, index, allow_http, max_in_flight.';
    end if;
  end loop;
  target := options ->> 'target';
  url := options ->> 'url';
  if target is null or target not in ('postgres', 'opensearch', 'elasticsearch', 'meilisearch') then
    raise exception 'rowbell.add_index: % is not a target', coalesce(quote_literal(target), 'NULL') using errcode = 'invalid_parameter_value',
      hint = 'Targets are postgres, opensearch, elasticsearch and meilisearch.';
  end if;
  if target = 'postgres' and (url is not null or options ?| '{authorization,secret,index}') then
    raise exception 'rowbell.add_index: target postgres has no url, authorization or index' using errcode = 'invalid_parameter_value',
      hint = 'Its documents are in rowbell.search of this database.';
  end if;
  if target <> 'postgres' and (rowbell.url_problem(url) is not null or url ~ '\?') then
    raise exception 'rowbell.add_index: % is not the URL of a search engine', coalesce(quote_literal(left(url, 200)), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Give https://host or https://host/path: no user name, no query.';
  end if;
  if url ~* '^http:' and options -> 'allow_http' is distinct from 'true' then
    raise exception 'rowbell.add_index: % is not https', quote_literal(left(url, 200))
      using errcode = 'invalid_parameter_value', hint = 'Allow it for this index: options {"allow_http": true}.';
  end if;
  if options ? 'columns' and (jsonb_typeof(options -> 'columns') <> 'array' or jsonb_array_length(options -> 'columns') not between 1 and 200
      or exists (select from jsonb_array_elements(options -> 'columns') as c where jsonb_typeof(c) <> 'string' or c #>> '{}' = '')) then
    raise exception 'rowbell.add_index: columns must be an array of 1 to 200 column names' using errcode = 'invalid_parameter_value';
  end if;
  if target <> 'postgres' and options ? 'language' then
    raise exception 'rowbell.add_index: only target postgres has a language' using errcode = 'invalid_parameter_value',
      hint = 'Set the analyzer in the search engine.';
  end if;
  if options ? 'language' and not exists (select from pg_ts_config c join pg_namespace n on n.oid = c.cfgnamespace
                                           where to_regnamespace(n.nspname) is not null and c.cfgname = options ->> 'language' and n.nspname = 'pg_catalog') then
    raise exception 'rowbell.add_index: % is not a text search configuration', coalesce(quote_literal(options ->> 'language'), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'For example simple, english, german: see \dF in psql.';
  end if;
  if options ? 'index' and coalesce(options ->> 'index', '') !~ '^[a-z0-9._-]*\{table\}[a-z0-9._-]*$' then
    raise exception 'rowbell.add_index: % is not the name of an index', coalesce(quote_literal(options ->> 'index'), 'NULL')
      using errcode = 'invalid_parameter_value', hint = 'Give small letters, digits, . _ - and {table}, which stands for the table: each has an index of its own.';
  end if;
  if options ? 'max_in_flight' and not coalesce(jsonb_typeof(options -> 'max_in_flight') = 'number' and (options ->> 'max_in_flight')::numeric between 1 and 1000, false) then
    raise exception 'rowbell.add_index: max_in_flight must be 1 to 1000' using errcode = 'invalid_parameter_value';
  end if;
  if options ? 'authorization' and coalesce(options ->> 'authorization', '') !~ '^[\x21-\x7e]+( [\x21-\x7e]+)*$' then
    raise exception 'rowbell.add_index: authorization must be a header''s value, such as "ApiKey ..." or "Bearer ..."' using errcode = 'invalid_parameter_value';
  end if;
  if options ->> 'secret' like 'sealed:%' then
    raise exception 'rowbell.add_index: a sealed secret is given to rotate_secret, sealed for the subscription (rowbell.seal_place)' using errcode = 'invalid_parameter_value';
  end if;
  if options ? 'secret' and rowbell.secret_problem(options ->> 'secret', 'authorization') is not null then
    raise exception 'rowbell.add_index: %', rowbell.secret_problem(options ->> 'secret', 'authorization') using errcode = 'invalid_parameter_value';
  end if;
  perform rowbell.subscription_types_check(types, 'index');
  select p.name into keyless from rowbell.published p
   where cardinality(p.key) = 0 and exists (select from unnest(types) as t where t <> '*' and not starts_with(t, '*.') and rowbell.type_matches(t, p.name || '.update')) limit 1;
  if found then
    raise exception 'rowbell.add_index: table % has no key, so its rows cannot be documents', quote_literal(keyless)
      using errcode = 'invalid_parameter_value', hint = 'Publish it with a primary key, or with key => ''{...}''.';
  end if;
  -- A target that is away is waited for, however long; what it refuses is given up at once.
  settings := options - 'authorization' - 'secret' || jsonb_build_object(
    'max_in_flight', coalesce(options -> 'max_in_flight', '200'),
    'retry', '[1000, 1000, 2000, 2000, 5000, 5000, 10000, 10000, 30000]'::jsonb, 'retry_forever', true);
  if target <> 'postgres' and not settings ? 'index' then
    settings := settings || '{"index": "{table}"}';
  end if;
  begin
    insert into rowbell.subscriptions as s (name, kind, types, scope, "coalesce", settings, secrets)
      values (name, 'index', types, rowbell.scope_named(scope), true, settings,
              case when options ? 'secret' then array[options ->> 'secret']
                   when options ? 'authorization' then array['plain:' || (options ->> 'authorization')] else '{}' end)
      returning s.* into added;
  exception
    when unique_violation then
      raise exception 'rowbell.add_index: there is a subscription named % already', quote_literal(name) using errcode = 'duplicate_object';
    when check_violation then
      raise exception 'rowbell.add_index: % cannot be a name: letters, digits, . _ -, at most 100', coalesce(quote_literal(left(name, 200)), 'NULL')
        using errcode = 'invalid_parameter_value';
  end;
  insert into rowbell.subscription_state (subscription_id) values (added.id);
  perform rowbell.queue_walks(added);
  return added.id;
end $$;

-- Full-text search over the documents of target postgres. query is what people type: words, "a phrase", or, -not. scope
-- NULL: all scopes, so an application passes the one that its user may see. headline is HTML: the text is escaped,
-- matches are in <mark>. Best first.
create or replace function rowbell.search_documents(query text, scope text default null, "limit" int default 20)
returns table (name text, key text, document jsonb, rank real, headline text)
language sql stable security definer set search_path = pg_catalog, pg_temp
begin atomic
  with languages as materialized (
    select distinct coalesce(s.settings ->> 'language', 'simple')::regconfig as language
      from rowbell.subscriptions s where s.kind = 'index' and s.settings ->> 'target' = 'postgres'),
  queries as materialized (
    select l.language, websearch_to_tsquery(l.language, query) as words from languages l),
  best as materialized (
    select d.name, d.key, d.document, d.language, q.words, ts_rank_cd(d.content, q.words, 1) as rank
      from queries q join rowbell.search d on d.content @@ q.words and d.language = q.language
     where search_documents.scope is null or d.scope = search_documents.scope
     order by ts_rank_cd(d.content, q.words, 1) desc, d.name, d.key limit "limit")
  select b.name, b.key, b.document, b.rank,
         -- Matches come between two private characters, which become tags once the text is escaped.
         replace(replace(replace(replace(replace(
           ts_headline(b.language, (select string_agg(v #>> '{}', ' … ')
                                      from jsonb_path_query(b.document, 'strict $.** ? (@.type() == "string")', silent => true) as v),
                       b.words, U&'StartSel=\E000, StopSel=\E001, MaxFragments=2, MaxWords=20, MinWords=5'),
           '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), U&'\E000', '<mark>'), U&'\E001', '</mark>')
    from best b order by b.rank desc, b.name, b.key;
end;
