-- Index subscriptions for applications and people: add_index, rebuild_index, search_documents.

-- Raises the numbers of events above whatever a history of this database that is gone may have given out: search engines
-- refuse a document whose version is below the one that they have. 2^32 is more than can have been lost; the clock, in
-- microseconds, is above the raises that were lost themselves (a backup that is restored twice).
create or replace function rowbell.raise_seq() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  -- One at a time: whoever read the number before another one's raise would set it back.
  perform from rowbell.installation for update;
  perform setval('rowbell.events_seq_seq',
                 greatest(q.last_value + 4294967296, (extract(epoch from clock_timestamp()) * 1000000)::bigint))
     from rowbell.events_seq_seq q;
end $$;

-- Queues a job for each table of an index subscription that walks over it. Rows: table and event.
create or replace function rowbell.queue_walks(s rowbell.subscriptions) returns table (name text, event bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  type   int;
  target rowbell.published;
begin
  select t.id into strict type from rowbell.event_types t where t.type = 'rowbell.index.rebuild';
  perform pg_current_xact_id();
  for target in select p.* from rowbell.published_tables() p
                 where cardinality(p.key) > 0 and exists (select from rowbell.event_types t join rowbell.routes r on r.type_id = t.id
                                                           where t.published_id = p.id and r.subscription_id = s.id) order by p.name loop
    insert into rowbell.events as e (type_id, subject, data, fanned_out_at, fanout)
      values (type, target.name, jsonb_build_object('table', target.name), now(), array[s.id])
      returning e.seq into event;
    insert into rowbell.jobs (subscription_id, event_seq) values (s.id, event);
    perform rowbell.notify('rowbell_jobs', 'index ' || (s.id % 64) || ' ' || event);
    name := target.name;
    return next;
  end loop;
end $$;

-- The worker of rebuild_index.
create or replace function rowbell.rebuild_index_as(caller name, arguments jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  wanted constant text := arguments ->> 'subscription';
  s rowbell.subscriptions;
begin
  s := rowbell.subscription_require(caller, wanted);
  if s.kind <> 'index' then
    raise exception 'rowbell.rebuild_index: % is no index', quote_literal(wanted) using errcode = 'undefined_object';
  end if;
  -- Whoever asks may have restored a dump, which leaves no trace that follow_failover could see.
  if s.settings ->> 'target' in ('opensearch', 'elasticsearch') then
    perform rowbell.raise_seq();
  end if;
  return (select coalesce(jsonb_agg(jsonb_build_object('name', w.name, 'event', w.event)), '[]') from rowbell.queue_walks(s) as w);
end $$;

-- Queues a job for each table of an index subscription that builds it again, online, whatever is in it. Rows: table and event.
create or replace function rowbell.rebuild_index(subscription text) returns table (name text, event bigint)
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  done jsonb;
begin
  insert into rowbell.calls as c (name, arguments) values ('rebuild_index', jsonb_build_object('subscription', subscription))
    returning c.result into done;
  return query select r.name, r.event from jsonb_to_recordset(done) as r(name text, event bigint);
end $$;

-- After a failover or a restore commits may be lost that are in the search engines' indexes, with versions above those
-- to come: the numbers of events are raised, and these indexes are rebuilt. (rowbell.search was lost along, and has what
-- the tables have.) Does nothing when the database's history is the one that was followed last. Returns how many rebuilds
-- it queued; with the number of the history in one transaction, so it may be called, and killed, at any time. A dump that was restored
-- has given the tables other numbers: that is followed here, too.
create or replace function rowbell.follow_failover() returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  perform rowbell.published_follow();
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

-- The worker of add_index.
create or replace function rowbell.add_index_as(caller name, arguments jsonb) returns jsonb
language plpgsql set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  name     constant text := arguments ->> 'name';
  types    constant text[] := array(select jsonb_array_elements_text(nullif(arguments -> 'types', 'null')));
  scope    constant text := arguments ->> 'scope';
  options  jsonb := nullif(arguments -> 'options', 'null');
  target   text;
  url      text;
  option   text;
  keyless  text;
  fault    text;
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
  perform rowbell.owner_limit_check(caller);
  perform rowbell.subscription_types_check(types, 'index');
  select p.name into keyless from rowbell.published p
   where cardinality(p.key) = 0 and exists (select from unnest(types) as t where t <> '*' and not starts_with(t, '*.') and rowbell.type_matches(t, p.name || '.update')) limit 1;
  if found then
    raise exception 'rowbell.add_index: table % has no key, so its rows cannot be documents', quote_literal(keyless)
      using errcode = 'invalid_parameter_value', hint = 'Publish it with a primary key, or with key => ''{...}''.';
  end if;
  select rowbell.index_denied(caller, p, rowbell.index_columns(options)) into fault from rowbell.published_tables() p
   where exists (select from rowbell.event_types t cross join unnest(types) as pattern
                  where t.published_id = p.id and rowbell.type_matches(pattern, t.type))
     and rowbell.index_denied(caller, p, rowbell.index_columns(options)) is not null limit 1;
  if found then
    raise exception 'rowbell.add_index: %', fault using errcode = 'insufficient_privilege', hint = 'An index reads what its owner may read.';
  end if;
  -- A target that is away is waited for, however long; what it refuses is given up at once.
  settings := options - 'authorization' - 'secret' || jsonb_build_object(
    'max_in_flight', coalesce(options -> 'max_in_flight', '200'),
    'retry', '[1000, 1000, 2000, 2000, 5000, 5000, 10000, 10000, 30000]'::jsonb, 'retry_forever', true);
  if target <> 'postgres' and not settings ? 'index' then
    settings := settings || '{"index": "{table}"}';
  end if;
  begin
    insert into rowbell.subscriptions as s (name, kind, types, scope, owner, "coalesce", settings, secrets)
      values (name, 'index', types, rowbell.subscription_scope(caller, scope, (arguments ->> 'all_scopes')::boolean), caller, true, settings,
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
  return to_jsonb(added.id);
end $$;

-- Adds an index: what the rows of some published tables hold is kept searchable at a target. Tables that are there already
-- are built at once. Options:
--   target         postgres | opensearch | elasticsearch | meilisearch
--   url            of the search engine; not with postgres
--   authorization  the value of the Authorization header, kept as a secret
--   secret         the same as it is stored: plain:... A sealed one is given to rotate_secret afterwards
--   columns        array of column names; without it every column
--   language       text search configuration (postgres); default simple
--   index          name of the index of each table at the engine, such as app-{table}; default {table}. No other
--                  subscription may write to it
--   allow_http     true: the URL may be http:
--   max_in_flight  1 to 1000: how many changes one batch may take; default 200
-- scope: only rows of this scope; all_scopes: of every scope (rowbell.subscription_scope says who must give which).
drop function if exists rowbell.add_index(text, text[], text, jsonb);   -- had no all_scopes
create or replace function rowbell.add_index(name text, types text[], scope text default null, options jsonb default '{}',
                                            all_scopes boolean default false) returns int
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
  done jsonb;
begin
  insert into rowbell.calls as c (name, arguments)
    values ('add_index', jsonb_build_object('name', add_index.name, 'types', types, 'scope', scope, 'options', options, 'all_scopes', all_scopes))
    returning c.result into done;
  return done::int;
end $$;

-- The documents that a caller may search: of subscriptions whose owner it is, or a member of, as long as that owner may read
-- what is in them.
create or replace function rowbell.search_documents_of(caller name, ticket text, query text, scope text, "limit" int)
returns table (name text, key text, document jsonb, rank real, headline text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
  if not rowbell.caller_is(caller, ticket) then
    raise exception 'permission denied for function rowbell.search_documents' using errcode = 'insufficient_privilege';
  elsif length(query) > 1000 then
    raise exception 'rowbell.search_documents: the query has % characters, more than 1000', length(query) using errcode = 'invalid_parameter_value';
  elsif scope in ('', '*') then
    raise exception 'rowbell.search_documents: % is not the name of a scope', quote_literal(scope)
      using errcode = 'invalid_parameter_value', hint = 'Leave it out (NULL) for every scope.';
  elsif "limit" is null or "limit" not between 0 and 1000 then
    raise exception 'rowbell.search_documents: limit must be 0 to 1000' using errcode = 'invalid_parameter_value';
  end if;
  return query
  with readable as materialized (
    select s.id, p.name, rowbell.index_language(s.settings) as language
      from rowbell.subscriptions s cross join rowbell.published_tables() p
     where s.kind = 'index' and s.settings ->> 'target' = 'postgres'
       and exists (select from pg_roles o where o.rolname = s.owner and pg_has_role(caller, o.oid, 'member'))
       and exists (select from rowbell.event_types t join rowbell.routes r on r.type_id = t.id where t.published_id = p.id and r.subscription_id = s.id)
       and rowbell.index_denied(s.owner, p, rowbell.index_columns(s.settings)) is null),
  queries as materialized (
    select l.language, websearch_to_tsquery(l.language, query) as words from (select distinct r.language from readable r) as l),
  best as materialized (
    select d.name, d.key, d.document, q.language, q.words, ts_rank_cd(d.content, q.words, 1) as rank
      from queries q join rowbell.search d on d.content @@ q.words
     where (search_documents_of.scope is null or d.scope = rowbell.scope_of(search_documents_of.scope))
       and exists (select from readable r where r.id = d.subscription_id and r.name = d.name and r.language = q.language)
     order by ts_rank_cd(d.content, q.words, 1) desc, d.name, d.key limit "limit")
  select b.name, b.key, b.document, b.rank,
         -- Matches come between two private characters, which become tags once the text is escaped.
         replace(replace(replace(replace(replace(
           ts_headline(b.language, (select left(string_agg(v #>> '{}', ' … '), 100000)
                                      from jsonb_path_query(b.document, 'strict $.** ? (@.type() == "string")', silent => true) as v),
                       b.words, U&'StartSel=\E000, StopSel=\E001, MaxFragments=2, MaxWords=20, MinWords=5'),
           '&', '&amp;'), '<', '&lt;'), '>', '&gt;'), U&'\E000', '<mark>'), U&'\E001', '</mark>')
    from best b order by b.rank desc, b.name, b.key;
end $$;

-- Full-text search over the documents of target postgres. query is what people type: words, "a phrase", or, -not. scope
-- NULL: all scopes, so an application passes the one that its user may see. headline is HTML: the text is escaped,
-- matches are in <mark>. Best first. Found is what is in indexes of the caller's roles.
create or replace function rowbell.search_documents(query text, scope text default null, "limit" int default 20)
returns table (name text, key text, document jsonb, rank real, headline text)
language sql stable set search_path = pg_catalog, pg_temp
begin atomic
  select f.* from rowbell.caller c cross join lateral rowbell.search_documents_of(c.name, c.ticket, query, scope, "limit") as f;
end;
