-- Capture: writes the trigger functions of one published table, one for each kind of statement. They are static SQL over the
-- transition tables, one INSERT ... SELECT a statement whatever its row count, and run as the schema's owner, so that writers
-- need no rights.
--
-- The owner of the table chooses the types of its columns, and may change them later. PostgreSQL looks for casts, operators and
-- functions each time it plans a statement, so none may be looked for that the owner of a type can make. Rows are compared byte by
-- byte (*=, *<>). A value is rendered by its type's output function, which only a superuser can make: concat() calls it, whatever
-- the type is by then. A cast to text is quicker; it stands behind a test, made anew with each plan, that the column still has the
-- type of PostgreSQL's own that it had when the function was written. All else is done with the rendered text.

-- True of types whose values need no escaping, no pinned setting and no look at their length.
create or replace function rowbell.capture_plain_type(type oid) returns boolean
language sql immutable strict
return type in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'uuid'::regtype, 'oid'::regtype, 'bool'::regtype);

-- True of types whose text depends on no setting.
create or replace function rowbell.capture_settled_type(type oid) returns boolean
language sql immutable strict
return rowbell.capture_plain_type(type) or type in ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'numeric'::regtype);

-- Whether a value has a type. To be called with `case when false then COLUMN end`, of which the planner makes a NULL of the column's type,
-- and so computes this and drops the branch that it rules out, unseen: what it sees, it may evaluate. The type is the one that the statement
-- was parsed with, never one from the catalog: a snapshot of a transaction (REPEATABLE READ) may be older than the table.
create or replace function rowbell.type_is(value anyelement, type oid) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$ select pg_typeof(value)::oid = type $$;

-- A value of any type as text, whatever the session's settings.
create or replace function rowbell.text_of(value anyelement) returns text
language sql stable strict cost 1
set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601' set bytea_output = 'hex' set extra_float_digits = 1
set lc_monetary = 'C' set quote_all_identifiers = off set search_path = pg_catalog, pg_temp as $$
  select case pg_typeof(value) when 'bool'::regtype then case concat(value) when 't' then 'true' else 'false' end
                               when 'bpchar'::regtype then rtrim(concat(value), ' ')
                               else concat(value) end collate "C" $$;

-- The expression for a column as text, given a reference to it, escaped by a function of text (NULL: not at all). Plain types need no
-- escape; a type that is not PostgreSQL's own is rendered with the settings that capture_create pins.
create or replace function rowbell.capture_text_sql(a pg_attribute, reference text, escape text default null) returns text
language sql stable
return (select case when t.typtype = 'b' and t.typnamespace = 'pg_catalog'::regnamespace and t.typelem = 0
                 then format('(case when rowbell.type_is(case when false then %s end, %s) then %s else %s end collate "C")', reference, (a).atttypid,
                             case when rowbell.capture_plain_type((a).atttypid) or escape is null then '' else escape end || format('(%s::text)', reference),
                             coalesce(escape, '') || format('(rowbell.text_of(%s))', reference))
                 else format('(%s(case when %s is distinct from null then concat(%2$s) end) collate "C")', coalesce(escape, ''), reference) end
          from pg_type t where t.oid = (a).atttypid);

create or replace function rowbell.capture_key_sql(relation oid, key name[], alias text) returns text
language sql stable
return (select string_agg(rowbell.capture_text_sql(a, format('%s.%I', alias, a.attname), 'rowbell.percent_encode'), ' || ''/'' || ' order by k.i)
          from unnest(key) with ordinality as k(attname, i)
          join pg_attribute a on a.attrelid = relation and a.attname = k.attname and not a.attisdropped);

-- True when every relay sleeps (or none runs), so that this writer should wake one. Relays hold this lock shared while they
-- are awake; it is tried and given back at once, since a lock kept to the end of a long transaction would silence others.
create or replace function rowbell.relays_sleep() returns boolean
language sql volatile
return pg_try_advisory_lock(x'726f7766'::int, 0) and pg_advisory_unlock(x'726f7766'::int, 0);

create or replace function rowbell.wake_relay() returns void
language sql volatile
begin atomic
  select rowbell.notify('rowbell_events', '');
end;

-- notify: a writer wakes a sleeping relay, and pays nothing while one is awake. poll: relays look every --poll-ms; for
-- databases with two-phase commit.
create or replace function rowbell.set_wake(mode text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if mode is null or mode not in ('notify', 'poll') then
    raise exception 'rowbell.set_wake: % is not notify or poll', coalesce(quote_literal(mode), 'NULL')
      using errcode = 'invalid_parameter_value';
  end if;
  update rowbell.installation set wake = mode;
  perform rowbell.capture_create(p) from rowbell.published_tables() p where p.relation is not null;
end $$;

-- Whether statements on a table keep lastval(): as publish was told; NULL: where a column takes numbers of a sequence.
create or replace function rowbell.keeps_lastval(relation oid, told boolean) returns boolean
language sql stable
begin atomic
  select coalesce(told, exists (
    select from pg_attribute a left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where a.attrelid = relation and not a.attisdropped and (a.attidentity <> '' or pg_get_expr(d.adbin, d.adrelid) like '%nextval(%')));
end;

-- The functions of a table: one for each kind of statement, and the one that keeps lastval().
create or replace function rowbell.capture_kinds() returns text[]
language sql immutable
return array['insert', 'update', 'delete', 'truncate', 'lastval'];

-- The same as GRANT and DROP list them.
create or replace function rowbell.capture_functions(published_id bigint) returns text
language sql immutable
return (select string_agg(format('rowbell.%I()', 'capture_' || published_id || '_' || op), ', ') from unnest(rowbell.capture_kinds()) as op);

-- True where the statements of a table are those of a published one: it is that table, its partition or its child. A trigger stays on
-- a partition that was detached; it captures nothing there. The numbers of this database are looked at first: rowbell.published_tables()
-- takes longer.
create or replace function rowbell.capture_covers(published_id int, relation oid) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  above constant oid[] := array(
    with recursive above as (
      select relation as relation
      union select i.inhparent from pg_inherits i join above a on i.inhrelid = a.relation where not i.inhdetachpending)
    select a.relation from above a);
begin
  perform from rowbell.published p join pg_proc f on f.oid = p.function_oid
    where p.id = published_id and p.relation_oid = any (above) and f.proname = 'capture_' || published_id || '_insert'
      and f.pronamespace = 'rowbell'::regnamespace;
  if found then
    return true;
  end if;
  return exists (select from rowbell.published_tables() p where p.id = published_id and p.relation = any (above));
end $$;

-- The body of the function for one kind of statement.
create or replace function rowbell.capture_body(p rowbell.published, op text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp set standard_conforming_strings = on as $$
declare
  keyed    constant boolean := cardinality(p.key) > 0;
  -- The alias is what PostgreSQL's error names when a captured column is gone, so it says what to do.
  row_ref  constant text := '"rowbell.publish must be called again: row"';
  old_ref  constant text := '"rowbell.publish must be called again: old row"';
  new_ref  constant text := '"rowbell.publish must be called again: new row"';
  key_sql  constant text := coalesce(rowbell.capture_key_sql(p.relation, p.key, row_ref) || ' collate "C"', 'null::text');
  -- True of a row whose rendered key may have over 1,024 bytes, told without escaping it: a byte becomes %XX, and outside of
  -- UTF-8 up to three of these. NULL: no key can.
  long_sql constant text := (
    select format('%s > %s', string_agg(format('octet_length(%s)', rowbell.capture_text_sql(a, format('%s.%I', row_ref, a.attname))), ' + '),
                  (1024 - 40 * cardinality(p.key)) / case getdatabaseencoding() when 'UTF8' then 3 else 9 end)
      from pg_attribute a where a.attrelid = p.relation and a.attname = any (p.key) and not rowbell.capture_plain_type(a.atttypid)
    having count(*) > 0);
  event_op constant text := case op when 'insert' then 'create' else op end;
  scope_sql text := 'null::text';
  gone_sql  text := 'false';
  image_sql text;
  address   text;   -- the columns that address a row, as one record
  stays_sql text;   -- a row has the same address before and after, and is there
  old_side  text;   -- a transition table, rendered: key, scope, gone, image
  new_side  text;
  its_side  text;   -- the one whose rows are the events
  emit      text;   -- what ends a statement: rows of changes(op, scope, key) become events
  emit_long text;   -- the same where a key may be long
  each      text;   -- an event for each row
  whole     text;   -- an event for each scope
  pairs     text;   -- an UPDATE's old and new rows, each with the other
  create_id int; update_id int; delete_id int;
begin
  -- Runs with the writer's rights: every name is qualified. What it notes is good for the function that fires next, which knows it by the id.
  if op = 'lastval' then
    return case when rowbell.keeps_lastval(p.relation, p.lastval) then format($body$
declare
  kept text;
begin
  begin
    kept := pg_catalog.set_config('rowbell.lastval', case when pg_catalog.current_setting('exit_on_error')::pg_catalog.bool then ''
                                                          else pg_catalog.concat(':%s:', pg_catalog.lastval()) end, true);
  exception when others then
    kept := pg_catalog.set_config('rowbell.lastval', '', true);
  end;
  return null;
end $body$, p.id) else ' begin return null; end ' end;
  end if;
  select min(t.id) filter (where t.type = p.name || '.create'), min(t.id) filter (where t.type = p.name || '.update'),
         min(t.id) filter (where t.type = p.name || '.delete')
    into strict create_id, update_id, delete_id
    from rowbell.event_types t where t.published_id = p.id;
  if p.scope is not null then
    scope_sql := rowbell.capture_text_sql(a, format('%s.%I', row_ref, p.scope), 'rowbell.scope_of')
      from pg_attribute a where a.attrelid = p.relation and a.attname = p.scope and not a.attisdropped;
    scope_sql := coalesce(scope_sql, format('%s.%I', row_ref, p.scope));   -- gone: the error names it
  end if;
  if p.soft_delete is not null then
    gone_sql := format('%s.%I is distinct from null', row_ref, p.soft_delete);   -- of a composite value IS NOT NULL asks for each field
  end if;
  if p.watch is null then
    image_sql := row_ref;
  else
    -- The key and the scope are always watched: their change is a change of address.
    image_sql := format('row(%s)::record', (select string_agg(format('%s.%I', row_ref, w), ', ') from unnest(p.watch) as w));
  end if;
  old_side := format('select %s as key, %s as scope, %s as gone, %s as image from "rowbell$old" as %s',
                     key_sql, scope_sql, gone_sql, image_sql, row_ref);
  new_side := format('select %s as key, %s as scope, %s as gone, %s as image from "rowbell$new" as %s',
                     key_sql, scope_sql, gone_sql, image_sql, row_ref);
  its_side := case op when 'delete' then old_side else new_side end;
  emit := format($sql$
    insert into rowbell.events (type_id, scope, key, op, subject)
    select case c.op when 'create' then %s when 'update' then %s else %s end, c.scope, c.key, c.op, %L || c.key
      from changes c$sql$, create_id, update_id, delete_id, p.name || '/');
  emit_long := case when long_sql is null then emit else format($sql$%s where octet_length(c.key) <= 1024
    union all
    select distinct case c.op when 'create' then %s when 'update' then %s else %s end, c.scope, null, c.op, %L
      from changes c where octet_length(c.key) > 1024$sql$, emit, create_id, update_id, delete_id, p.name) end;
  each := format($sql$
    with sides as (%s), changes as (select %L as op, s.scope, s.key from sides s where not s.gone)$sql$, its_side, event_op);
  each := case when long_sql is null or op = 'update' then each || emit || ';' else format($sql$
    select true into long from %s as %s where %s limit 1;
    if found then%s%s;
    else%s%s;
    end if;$sql$, case op when 'delete' then '"rowbell$old"' else '"rowbell$new"' end, row_ref, long_sql, each, emit_long, each, emit) end;

  case op
  when 'insert', 'delete' then
    whole := format($sql$
    with sides as (%s)
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %s, s.scope, null, %L, %L from sides s where not s.gone;$sql$,
      its_side, case op when 'insert' then create_id else delete_id end, event_op, p.name);
  when 'update' then
    pairs := format($sql$
    open old_rows no scroll for %s;
    open new_rows no scroll for %s;
    with pairs as (select p.* from rowbell.capture_pairs(old_rows, new_rows) as p)$sql$, old_side, new_side);
    -- A wrong pair can only add an event: if every pair is equal, the table is as it was.
    whole := format(case when keyed then $sql$
    with sides as (%2$s union all %3$s)
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %4$s, s.scope, null, 'update', %5$L from sides s where not s.gone;$sql$ else $sql$%1$s
    insert into rowbell.events (type_id, scope, key, op, subject)
    select distinct %4$s, v.scope, null, 'update', %5$L
      from pairs p cross join lateral (values (p.old_scope), (p.new_scope)) as v(scope)
     where p.changed is distinct from false or p.old_scope is distinct from p.new_scope or p.old_gone is distinct from p.new_gone;
    close old_rows;
    close new_rows;$sql$ end, pairs, old_side, new_side, update_id, p.name);
    select format('row(%s)::record', string_agg(format('%s.%I', row_ref, a.attname), ', ' order by a.attnum)) into address
      from pg_attribute a where a.attrelid = p.relation and a.attname = any (p.key || p.scope);
    stays_sql := concat_ws(' and ',
      format('%s *= %s', replace(address, row_ref, old_ref), replace(address, row_ref, new_ref)),
      'not ' || replace(gone_sql, row_ref, old_ref), 'not ' || replace(gone_sql, row_ref, new_ref),
      'not ' || replace(long_sql, row_ref, new_ref));
    -- The usual case, one row that stays where it is, is told without pairs: each new row has an old one. In any other case changed is
    -- NULL. A pair that has not one key is no pair: these rows are joined on the key. A row that is there before and not after (its key
    -- changed, it moved to another scope, it was soft-deleted) is a delete; one that is there after and not before is a create, and comes last.
    each := format($sql$
    select case when %s and not exists (select from "rowbell$old" offset 1) then %s *<> %s end into changed
      from "rowbell$old" as %s left join "rowbell$new" as %s on true limit 1;
    if changed then%s
    elsif found and changed is null then%s,
    leaves as (select p.* from pairs p where p.old_key <> p.new_key or p.new_key is null),
    comes as (select p.* from pairs p where p.old_key <> p.new_key or p.old_key is null),
    rows as (
      select p.* from pairs p where p.old_key = p.new_key
      union all
      select o.old_key, o.old_scope, o.old_gone, n.new_key, n.new_scope, n.new_gone, true from leaves o left join comes n on n.new_key = o.old_key
      union all
      select null, null, null, n.new_key, n.new_scope, n.new_gone, true
        from comes n where not exists (select from leaves o where o.old_key = n.new_key)),
    changes as (
      select v.op, case v.op when 'delete' then v.old_scope else v.new_scope end as scope,
             case v.op when 'delete' then v.old_key else v.new_key end as key
        from (select r.*, unnest(case when r.old_key is null or r.old_gone then case when not r.new_gone then '{create}'::text[] end
                                      when r.new_key is null or r.new_gone then '{delete}'
                                      when r.old_scope is distinct from r.new_scope then '{delete,create}'
                                      when r.changed then '{update}' end) as op
                from rows r) v)%s;
    close old_rows;
    close new_rows;
    else
      return null;
    end if;$sql$,
      stays_sql, replace(image_sql, row_ref, old_ref), replace(image_sql, row_ref, new_ref), old_ref, new_ref,
      each, pairs, emit_long);
  when 'truncate' then
    -- Of a table that is captured as a collection, all kinds of statements come here: see publish_triggers.
    whole := format($sql$
    if tg_op = 'TRUNCATE' and rowbell.truncate_is_covered(%s, tg_relid, tg_when) then
      return null;
    end if;
    insert into rowbell.events (type_id, scope, key, op, subject)
    select case tg_op when 'INSERT' then %s when 'UPDATE' then %s else %s end, %L, null,
           case tg_op when 'INSERT' then 'create' when 'UPDATE' then 'update' else 'delete' end, %L;$sql$,
      p.id, create_id, update_id, delete_id, case when p.scope is not null then '*' end, p.name);
  end case;

  -- The published table itself is told by its number and its name; a partition, a child, and one that was renamed or restored, by a look.
  return format($body$
declare
  kept bigint;%s
begin
  if tg_relid = %s and tg_table_name = %L and tg_table_schema = %L%s then%s
  elsif rowbell.capture_covers(%s, tg_relid) then%s
  end if;
  if found then%s%s
  end if;
  return null;
end $body$,
    case when op = 'update' then E'\n  changed  boolean;\n  old_rows refcursor;\n  new_rows refcursor;'
         when long_sql is not null then E'\n  long boolean;' else '' end,
    p.relation::oid, (select c.relname from pg_class c where c.oid = p.relation),
    (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p.relation),
    case when keyed and op <> 'truncate' then ' and current_setting(''rowbell.capture'', true) is distinct from ''collection''' else '' end,
    case when keyed and op <> 'truncate' then each else whole end,
    p.id,
    case when keyed and op <> 'truncate' then format($if$
    if current_setting('rowbell.capture', true) is distinct from 'collection' then%s
    else%s
    end if;$if$, each, whole) else whole end,
    case when rowbell.keeps_lastval(p.relation, p.lastval) then format($put$
    kept := nullif(split_part(current_setting('rowbell.lastval', true), ':%s:', 2), '')::bigint;
    kept := rowbell.lastval_put(kept);$put$, p.id) else '' end,
    case when (select i.wake from rowbell.installation i) = 'notify' then $wake$
    if rowbell.relays_sleep() then
      perform rowbell.wake_relay();
    end if;$wake$ else '' end);
end $$;

-- An UPDATE adds its old rows and its new rows to the transition tables in one order, so they are paired by their places and read
-- once: a join, or a sort, of rows that do not fit into memory would write them once more, out-of-line values included. Cursors
-- over the rendered sides (key, scope, gone, image).
create or replace function rowbell.capture_pairs(old_rows refcursor, new_rows refcursor)
returns table (old_key text, old_scope text, old_gone boolean, new_key text, new_scope text, new_gone boolean, changed boolean)
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  o record;
  n record;
begin
  loop
    fetch old_rows into o;
    fetch new_rows into n;
    exit when o.gone is null and n.gone is null;
    old_key := o.key;
    old_scope := o.scope;
    old_gone := o.gone;
    new_key := n.key;
    new_scope := n.scope;
    new_gone := n.gone;
    changed := o.image *<> n.image;   -- NULL: one of the two is missing
    return next;
  end loop;
end $$;

-- A TRUNCATE of a table with partitions or children fires the trigger of each of them, the root's first. The BEFORE
-- trigger counts those that will follow, and their AFTER triggers count down: one event for the whole statement. The count is
-- in a table of ours, since a setting could be changed by the writer.
create or replace function rowbell.truncate_is_covered(published_id int, relation oid, trigger_when text) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  following int;
begin
  if trigger_when = 'BEFORE' then
    delete from rowbell.truncating t where t.published_id = published_id and t.xact = pg_current_xact_id() and t.left_to_skip = 0;
    with recursive below as (
      select i.inhrelid from pg_inherits i where i.inhparent = relation and not i.inhdetachpending
      union select i.inhrelid from pg_inherits i join below b on i.inhparent = b.inhrelid where not i.inhdetachpending)
    select count(*) into following from below b
      join pg_trigger g on g.tgrelid = b.inhrelid and g.tgname = '~rowbell_truncate' and g.tgenabled in ('O', 'A');
    insert into rowbell.truncating (published_id, xact, left_to_skip) values (published_id, pg_current_xact_id(), following)
      on conflict do nothing;   -- a partition that has partitions: its root has counted
    return true;
  end if;
  if not exists (select from pg_inherits i where i.inhrelid = relation) then
    return false;
  end if;
  update rowbell.truncating t set left_to_skip = t.left_to_skip - 1
   where t.published_id = published_id and t.xact = pg_current_xact_id() and t.left_to_skip > 0;
  if not found then
    return false;
  end if;
  delete from rowbell.truncating t where t.published_id = published_id and t.xact = pg_current_xact_id() and t.left_to_skip = 0;
  return true;
end $$;

-- Creates or replaces the capture functions of a published table. Settings that change how a value is rendered are pinned
-- where the key or the scope has a type that they change. The search_path that they pin is read as `pg_catalog, pg_temp`:
-- pg_catalog comes first where it is not named, and naming it costs each statement a look-up.
create or replace function rowbell.capture_create(p rowbell.published) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  pinned text := '';
  op     text;
  name   text;
begin
  if exists (select from pg_attribute a
              where a.attrelid = p.relation and (a.attname = any (p.key) or a.attname = p.scope)
                and not rowbell.capture_settled_type(a.atttypid)) then
    pinned := $set$ set datestyle = 'ISO, YMD' set timezone = 'UTC' set intervalstyle = 'iso_8601'
      set bytea_output = 'hex' set extra_float_digits = 1 set lc_monetary = 'C' set quote_all_identifiers = off$set$;
  end if;
  foreach op in array rowbell.capture_kinds() loop
    name := 'capture_' || p.id || '_' || op;
    execute format('create or replace function rowbell.%I() returns trigger language plpgsql %s as %L', name,
                   case when op <> 'lastval' then 'security definer set search_path = pg_temp' || pinned end, rowbell.capture_body(p, op));
    execute format('revoke all on function rowbell.%I() from public', name);
    execute format('comment on function rowbell.%I() is %L', name, rowbell.publish_command(p));   -- a dump without data has it
  end loop;
end $$;
