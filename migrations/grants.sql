-- Least privilege: what each kind of program needs and nothing more. Skipped by `migrate --no-roles`.
revoke all on all tables in schema rowbell from public;
revoke all on all sequences in schema rowbell from public;
revoke all on all functions in schema rowbell from public;
revoke create on schema rowbell from public;
grant usage on schema rowbell to public;

-- The way in for what depends on its caller: each call checks the caller's EXECUTE on the function that it is named after.
grant insert (name, arguments), select (result) on rowbell.calls to public;

-- Applications: the functions, no table. publish needs this grant, and works only for the owner of a table.
grant execute on function rowbell.publish(regclass, name, name, name[], name[], text, boolean), rowbell.unpublish(regclass) to rowbell_publish;
-- These read the catalog, or tell of the caller's own tables.
grant execute on function rowbell.publish_triggers(int, oid), rowbell.publish_relations(oid), rowbell.published_now(oid[]),
  rowbell.follow_ddl(boolean), rowbell.event_id(timestamptz, bigint), rowbell.event_seq(uuid) to public;
grant execute on function rowbell.record(text, text, jsonb, text), rowbell.declare_type(text, text, boolean),
  rowbell.add_webhook(text, text, text[], text, jsonb), rowbell.remove_subscription(text),
  rowbell.set_webhook(text, jsonb), rowbell.rotate_secret(text, interval, text), rowbell.set_subscription_state(text, text)
  to rowbell_app, rowbell_operator;
grant execute on function rowbell.subscription_secrets(text), rowbell.subscription_sealed_secrets(text), rowbell.secret_parts(text) to rowbell_operator;

grant select on rowbell.migrations, rowbell.installation to rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_operator;

grant select, update on rowbell.events to rowbell_relay;
grant select, insert, update, delete on rowbell.events_set_aside to rowbell_relay;
grant select on rowbell.event_types, rowbell.subscriptions, rowbell.routes, rowbell.status to rowbell_relay;
grant select, insert on rowbell.jobs, rowbell.jobs_waiting to rowbell_relay;   -- select: for RETURNING
grant select on sequence rowbell.events_seq_seq to rowbell_relay;
grant execute on function rowbell.condition_alone(jsonb, jsonpath), rowbell.alert(text, text, jsonb) to rowbell_relay;

grant select on rowbell.events, rowbell.events_set_aside, rowbell.event_types, rowbell.subscriptions, rowbell.streams, rowbell.status
  to rowbell_dispatcher;
grant update (state) on rowbell.subscriptions to rowbell_dispatcher;
grant select, insert, update, delete on rowbell.jobs, rowbell.jobs_waiting, rowbell.subscription_state to rowbell_dispatcher;
grant select, insert on rowbell.attempts, rowbell.stream_log to rowbell_dispatcher;
grant update (timeline, system_identifier) on rowbell.streams to rowbell_dispatcher;
grant execute on function rowbell.hold_jobs(int), rowbell.event_id(timestamptz, bigint), rowbell.alert(text, text, jsonb) to rowbell_dispatcher;
grant execute on function rowbell.prune_events(bigint, bigint, int), rowbell.prune_attempts(bigint, int),
  rowbell.prune_stream_log(bigint, int) to rowbell_dispatcher, rowbell_operator;
grant execute on function rowbell.prune_orphans(int), rowbell.disable_failing(bigint), rowbell.unblock_subjects(int),
  rowbell.alert_backlog(bigint, bigint), rowbell.list_set_aside(bigint, int), rowbell.follow_failover() to rowbell_dispatcher;
grant select on rowbell.streams, rowbell.stream_log to rowbell_gateway;
grant execute on function rowbell.receipt_status(text) to rowbell_gateway, rowbell_app, rowbell_operator;
grant execute on function rowbell.stream_reached(bigint) to rowbell_app;
grant execute on function rowbell.receipt() to public;   -- it tells a writer about its own transaction

grant select on all tables in schema rowbell to rowbell_operator;
revoke select on rowbell.subscriptions, rowbell.installation from rowbell_operator;
grant select (id, name, kind, state, types, scope, condition, "coalesce", ordered, settings, created_at)
  on rowbell.subscriptions to rowbell_operator;
grant select (id, wake) on rowbell.installation to rowbell_operator;
grant execute on function rowbell.requeue_events(bigint[], timestamptz, timestamptz, boolean, int),
  rowbell.requeue_jobs(text, bigint[], timestamptz, timestamptz, boolean, text[], int), rowbell.retry_job(text, bigint),
  rowbell.cancel_job(text, bigint), rowbell.cancel_event(bigint), rowbell.replay(text, timestamptz, timestamptz, bigint, int, boolean), rowbell.set_wake(text), rowbell.attempt_log(text, text, int), rowbell.doctor() to rowbell_operator;

-- Index subscriptions. Who may add one: rowbell_index, and each needs SELECT of its own on what is indexed. Who may search: whoever is a
-- member of the role that owns the subscription.
grant select on rowbell.caller to public;
grant execute on function rowbell.add_index(text, text[], text, jsonb), rowbell.rebuild_index(text) to rowbell_index, rowbell_operator;
grant execute on function rowbell.search_documents(text, text, int), rowbell.search_documents_of(name, text, text, text, int)
  to rowbell_app, rowbell_index, rowbell_operator;
revoke select on rowbell.search, rowbell.caller_key from rowbell_operator;
-- The tables that are indexed are the application's: grant select on them to rowbell_dispatcher.
grant select on rowbell.published to rowbell_dispatcher;
grant select, insert, update, delete on rowbell.search, rowbell.index_walks to rowbell_dispatcher;
grant select on sequence rowbell.events_seq_seq to rowbell_dispatcher;
grant execute on function rowbell.index_read(int, bigint[]), rowbell.index_read_keys(int, text, text[]),
  rowbell.index_read_rows(rowbell.subscriptions, rowbell.published, text[]), rowbell.index_walk_rows(int, text, text, int),
  rowbell.index_write(int, bigint[]), rowbell.index_write_rows(rowbell.subscriptions, rowbell.published, text[], bigint[]),
  rowbell.index_write_keys(rowbell.subscriptions, rowbell.published, text[], bigint[]),
  rowbell.index_walk_open(int, bigint, text), rowbell.index_walk_save(int, text, bigint, text, text, bigint, text[]),
  rowbell.index_walk_step(int, bigint, text, int), rowbell.index_next_keys(rowbell.subscriptions, rowbell.published, text, int),
  rowbell.index_lock(rowbell.subscriptions, rowbell.published), rowbell.index_denied(name, rowbell.published, text[]),
  rowbell.index_trusts(oid), rowbell.index_code(oid), rowbell.index_tree(oid), rowbell.index_base_type(oid), rowbell.index_own_type(oid),
  rowbell.index_element_type(oid), rowbell.index_column_sql(oid, text), rowbell.index_key_values_sql(rowbell.published, text),
  rowbell.index_key_columns_sql(rowbell.published), rowbell.index_alive_sql(rowbell.published), rowbell.index_scope_sql(rowbell.published),
  rowbell.index_document_max_bytes(), rowbell.index_reading_max_bytes(), rowbell.index_rows_sql(rowbell.published, text[], text),
  rowbell.index_next_keys_sql(rowbell.published, boolean, text), rowbell.index_columns(jsonb), rowbell.index_language(jsonb),
  rowbell.index_problem(text, text, rowbell.published), rowbell.index_fault_of_system(text), rowbell.search_vector(regconfig, jsonb, text[]),
  rowbell.percent_decode(text), rowbell.percent_encode(text), rowbell.percent_encode_slow(text), rowbell.scope_of(text), rowbell.scope_digest(text),
  rowbell.capture_key_sql(oid, name[], text), rowbell.capture_plain_type(oid), rowbell.capture_text_sql(oid, text),
  rowbell.capture_part_sql(oid, text, text), rowbell.text_of(anyelement) to rowbell_dispatcher;
