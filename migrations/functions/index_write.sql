-- Writing rowbell.search, and walks over whole tables.

-- Signatures of before.
drop function if exists rowbell.index_write_keys(rowbell.subscriptions, rowbell.published, text[], bigint[]),
  rowbell.index_write(int, bigint[]), rowbell.index_walk_step(int, bigint, text, int), rowbell.index_walk_save(int, text, bigint, text, text, bigint);

-- The text search configuration of an index. Only those of PostgreSQL itself: a dictionary of others is code of theirs.
create or replace function rowbell.index_language(settings jsonb) returns regconfig
language sql stable
return ('pg_catalog.' || quote_ident(coalesce(settings ->> 'language', 'simple')))::regconfig;

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
-- advisory lock; the rows are read in a later statement, so whoever comes last has read what is newest.
-- Rows: the keys whose rows are in no document though they are there, and why.
create or replace function rowbell.index_write_keys(s rowbell.subscriptions, p rowbell.published, keys text[], seqs bigint[])
returns table (key text, problem text)
language plpgsql set search_path = pg_catalog, pg_temp set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
set bytea_output = 'hex' set extra_float_digits = 1 set lc_monetary = 'C' set row_security = off set constraint_exclusion = off as $$
#variable_conflict use_column
declare
  columns  constant text[] := rowbell.index_columns(s.settings);
  language constant regconfig := rowbell.index_language(s.settings);
  source   constant text := rowbell.index_lock(s, p);
begin
  perform pg_advisory_xact_lock(l.id)
    from (select distinct hashtextextended(p.name || '/' || k, s.id) as id from unnest(keys) as k order by 1) as l;
  return query execute format(
    'with found as materialized (%s), '
    'gone as (delete from rowbell.search d using found f '
    '          where f.document is null and d.subscription_id = $3 and d.name = $4 and d.key = f.key), '
    'written as (insert into rowbell.search as d (subscription_id, name, key, scope, document, content, event_seq) '
    'select $3, $4, f.key, f.scope, f.document, rowbell.search_vector($5, f.document, $6), q.seq '
    '  from found f join (select u.key, max(u.seq) as seq from unnest($8, $7) as u(key, seq) group by u.key) q on q.key = f.key '
    ' where f.document is not null '
    'on conflict (subscription_id, name, key) do update '
    '   set scope = excluded.scope, document = excluded.document, content = excluded.content, '
    '       event_seq = greatest(d.event_seq, excluded.event_seq), indexed_at = now()) '
    'select f.key, f.problem from found f where f.problem is not null',
    rowbell.index_rows_sql(p, columns, source))
    using array(select distinct k from unnest(keys) as k), s.scope, s.id, p.name, language, columns, seqs, keys;
end $$;

-- The same, where a row that fails spoils no other: halves are written until it is alone. It keeps no document of before.
-- Errors that are not the rows' are raised.
create or replace function rowbell.index_write_rows(s rowbell.subscriptions, p rowbell.published, keys text[], seqs bigint[])
returns table (key text, problem text)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  ranges int[] := array[1, cardinality(keys)];
  first  int;
  last   int;
begin
  while cardinality(ranges) > 0 loop
    first := ranges[1];
    last := ranges[2];
    ranges := ranges[3:];
    begin
      return query select w.key, w.problem from rowbell.index_write_keys(s, p, keys[first:last], seqs[first:last]) as w;
    exception when others then
      if rowbell.index_fault_of_system(sqlstate) then
        raise;
      elsif first = last then
        delete from rowbell.search d where d.subscription_id = s.id and d.name = p.name and d.key = keys[first];
        return query select keys[first], sqlerrm;
      else
        ranges := array[first, (first + last) / 2, (first + last) / 2 + 1, last] || ranges;
      end if;
    end;
  end loop;
end $$;

-- Writes what some events name into rowbell.search. Rows: one for each event that could not be: seq, SQLSTATE, problem.
create or replace function rowbell.index_write(subscription int, seqs bigint[])
returns table (seq bigint, state text, problem text)
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
  for g in select t.published_id, array_agg(e.seq order by e.seq) as seqs, array_agg(e.key order by e.seq) as keys,
                  min(left(t.type, -length(e.op) - 1)) as name
             from rowbell.events e join rowbell.event_types t on t.id = e.type_id
            where e.seq = any (seqs) and e.key is not null group by t.published_id order by t.published_id loop
    begin
      select * into p from rowbell.published_tables() o where o.id = g.published_id;
      if not found or cardinality(p.key) = 0 then
        return query select u, '55000', format('table %s is not published with a key', g.name) from unnest(g.seqs) as u;
        continue;
      end if;
      return query select u.seq, '55000', w.problem
                     from rowbell.index_write_rows(s, p, g.keys, g.seqs) as w join unnest(g.seqs, g.keys) as u(seq, key) on u.key = w.key;
    exception when others then
      if sqlstate in ('40001', '40P01', '57014') or left(sqlstate, 2) = '53' then
        raise;
      end if;
      return query select u, sqlstate, rowbell.index_problem(sqlstate, sqlerrm, p) from unnest(g.seqs) as u;
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
  -- A transaction that is yet to come is one of another cluster, whose dump was restored.
  if w.phase is null or w.phase = 'done' or w.mark < event or (w.phase = 'waiting' and w.mark_xact > greatest(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned())) then
    select * into target from rowbell.published_tables() o where o.name = index_walk_open.name;
    if not found or cardinality(target.key) = 0 then
      raise exception 'table % is not published with a key', name using errcode = 'object_not_in_prerequisite_state';
    end if;
    select q.last_value into newest from rowbell.events_seq_seq q;   -- before the transaction's id is assigned
    insert into rowbell.index_walks as o (subscription_id, name, phase, mark, mark_xact, rows_expected)
      values (subscription, name, 'waiting', newest, pg_current_xact_id(),
              (select greatest(sum(c.reltuples), 0)::bigint from rowbell.publish_relations(target.relation) as r join pg_class c on c.oid = r))
      on conflict on constraint index_walks_pkey do update
        set phase = 'waiting', mark = excluded.mark, mark_xact = excluded.mark_xact, after_key = null, rows_done = 0, refused = 0, refused_rows = '{}',
            rows_expected = excluded.rows_expected, started_at = now(), updated_at = now()
      returning * into w;
  elsif w.phase = 'waiting' and w.mark_xact <= pg_snapshot_xmin(pg_current_snapshot()) then
    update rowbell.index_walks o set phase = 'rows', updated_at = now()
     where o.subscription_id = subscription and o.name = index_walk_open.name returning * into w;
  end if;
  return w;
end $$;

-- Writes how far a walk came. phase done: the events up to its mark need no walk any more. refused: the rows of this step that are
-- in no document, key and reason.
create or replace function rowbell.index_walk_save(subscription int, name text, mark bigint, phase text, after_key text, rows_done bigint,
                                                  refused text[] default '{}')
returns rowbell.index_walks language sql set search_path = pg_catalog, pg_temp
begin atomic
  update rowbell.index_walks o
     set phase = index_walk_save.phase, after_key = index_walk_save.after_key, rows_done = o.rows_done + index_walk_save.rows_done,
         refused = o.refused + cardinality(index_walk_save.refused), refused_rows = (o.refused_rows || index_walk_save.refused)[1:20],
         updated_at = now(), covered_to = case when index_walk_save.phase = 'done' then o.mark else o.covered_to end
   where o.subscription_id = subscription and o.name = index_walk_save.name and o.mark = index_walk_save.mark
   returning o.*;
end;

-- One step of a walk in rowbell.search: rows first, then documents that no row renewed. Answers the walk as it is now.
create or replace function rowbell.index_walk_step(subscription int, event bigint, name text, "limit" int)
returns rowbell.index_walks language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  w       rowbell.index_walks;
  s       rowbell.subscriptions;
  p       rowbell.published;
  keys    text[];
  usable  text[];
  refused text[];
  more    boolean;
begin
  w := rowbell.index_walk_open(subscription, event, name);
  if w.phase in ('done', 'waiting') then
    return w;
  end if;
  select * into s from rowbell.subscriptions o where o.id = subscription;
  select * into p from rowbell.published_tables() o where o.name = index_walk_step.name;
  if w.phase = 'rows' then
    keys := rowbell.index_next_keys(s, p, w.after_key, "limit");
  else
    keys := array(select d.key from rowbell.search d
                   where d.subscription_id = subscription and d.name = index_walk_step.name and d.event_seq < w.mark
                     and (w.after_key is null or d.key > w.after_key) order by d.key limit "limit");
  end if;
  usable := array(select k from unnest(keys) as k where octet_length(k) <= 1024);
  if cardinality(usable) > 0 then
    refused := array(select left(r.key || ': ' || r.problem, 500)
                       from rowbell.index_write_rows(s, p, usable, array_fill(w.mark, array[cardinality(usable)])) as r);
  end if;
  more := cardinality(keys) = "limit";
  return rowbell.index_walk_save(subscription, name, w.mark,
                                 case when more then w.phase when w.phase = 'rows' then 'sweep' else 'done' end,
                                 case when more then keys[cardinality(keys)] end,
                                 case w.phase when 'rows' then cardinality(keys) else 0 end,
                                 case w.phase when 'rows' then coalesce(refused, '{}') else '{}' end);
exception when insufficient_privilege or undefined_column then
  raise exception using errcode = sqlstate, message = rowbell.index_problem(sqlstate, sqlerrm, p);
end $$;
