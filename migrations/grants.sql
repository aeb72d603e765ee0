-- Least privilege: what each group of roles needs and nothing more. Skipped by `migrate --no-roles`. functions/closed.sql, before this,
-- closed all to everybody. tests/hostile/rights.txt lists what comes of it.

-- What is granted below is all that there is, whatever an earlier version granted.
revoke all on all tables in schema rowbell from rowbell_app, rowbell_record, rowbell_publish, rowbell_subscribe, rowbell_index,
  rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_operator;
revoke all on all sequences in schema rowbell from rowbell_app, rowbell_record, rowbell_publish, rowbell_subscribe, rowbell_index,
  rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_operator;
revoke all on all functions in schema rowbell from rowbell_app, rowbell_record, rowbell_publish, rowbell_subscribe, rowbell_index,
  rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_operator;
-- Also the functions that publish makes later.
alter default privileges revoke execute on functions from public;
grant usage on schema rowbell to public;

-- Applications: functions, no table.
grant execute on function rowbell.record, rowbell.declare_type, rowbell.receipt_status, rowbell.stream_reached to rowbell_record;
-- publish needs this grant, and works only for the owner of a table.
grant execute on function rowbell.publish, rowbell.unpublish to rowbell_publish;
-- What these change belongs to the caller.
grant execute on function rowbell.add_webhook, rowbell.set_webhook, rowbell.rotate_secret to rowbell_subscribe, rowbell_operator;
grant execute on function rowbell.set_subscription_state, rowbell.remove_subscription, rowbell.set_subscription_owner, rowbell.replay,
  rowbell.requeue_jobs, rowbell.retry_job, rowbell.cancel_job, rowbell.attempt_log to rowbell_subscribe, rowbell_index, rowbell_operator;
grant execute on function rowbell.add_index, rowbell.rebuild_index to rowbell_index, rowbell_operator;
-- Each finds what is in indexes that belong to a role of the caller.
grant execute on function rowbell.search_documents, rowbell.search_documents_of to rowbell_app, rowbell_index, rowbell_operator;

grant select on rowbell.migrations to rowbell_relay, rowbell_dispatcher, rowbell_gateway, rowbell_operator;
grant execute on function rowbell.seal_place to rowbell_subscribe, rowbell_index, rowbell_operator;

grant select, update (fanned_out_at, fanout, fanout_via, fanout_attempts, retry_at, poisoned_at, last_error) on rowbell.events to rowbell_relay;
grant select, insert, update, delete on rowbell.events_set_aside to rowbell_relay;
grant select on rowbell.event_types, rowbell.routes, rowbell.status to rowbell_relay;
-- Not settings and secrets.
grant select (id, name, kind, state, types, scope, condition, condition_aside, "coalesce", ordered, created_at, owner) on rowbell.subscriptions
  to rowbell_relay;
grant select, insert on rowbell.jobs, rowbell.jobs_waiting to rowbell_relay;   -- select: for RETURNING
grant select on sequence rowbell.events_seq_seq to rowbell_relay;
grant execute on function rowbell.condition_alone(jsonb, jsonpath), rowbell.condition_key(int, jsonpath), rowbell.condition_data(rowbell.events),
  rowbell.condition_examine(bigint, int, text[]), rowbell.condition_put_aside(text), rowbell.alert(text, text, jsonb) to rowbell_relay;
grant execute on function rowbell.notify(text, text) to rowbell_relay, rowbell_dispatcher;

grant select on rowbell.events, rowbell.events_set_aside, rowbell.event_types, rowbell.subscriptions, rowbell.streams, rowbell.status
  to rowbell_dispatcher;
grant select (id) on rowbell.installation to rowbell_dispatcher, rowbell_gateway;
grant update (state) on rowbell.subscriptions to rowbell_dispatcher;
grant select, insert, update, delete on rowbell.jobs, rowbell.jobs_waiting, rowbell.subscription_state to rowbell_dispatcher;
grant select, insert on rowbell.attempts, rowbell.stream_log to rowbell_dispatcher;
grant update (timeline, system_identifier) on rowbell.streams to rowbell_dispatcher;
grant execute on function rowbell.hold_jobs(int), rowbell.event_id(timestamptz, bigint), rowbell.alert(text, text, jsonb) to rowbell_dispatcher;
grant execute on function rowbell.prune_events(bigint, bigint, int), rowbell.prune_attempts(bigint, int),
  rowbell.prune_stream_log(bigint, int) to rowbell_dispatcher;
grant execute on function rowbell.prune_orphans(int), rowbell.disable_failing(bigint), rowbell.unblock_subjects(int),
  rowbell.alert_backlog(bigint, bigint), rowbell.list_set_aside(bigint, int), rowbell.follow_failover(),
  rowbell.housekeeping_result(text, text) to rowbell_dispatcher;
grant select on rowbell.streams, rowbell.stream_log to rowbell_gateway;
-- The keys of messages on Redis: who signs and who checks, nobody else.
grant select on rowbell.stream_keys to rowbell_dispatcher, rowbell_gateway;
grant execute on function rowbell.stream_signing_key to rowbell_dispatcher;
grant execute on function rowbell.receipt_status to rowbell_gateway, rowbell_operator;

-- People. Not: secrets, the values of headers and client keys (subscription_health shows settings without them), documents of indexes.
grant select on rowbell.events, rowbell.events_set_aside, rowbell.event_types, rowbell.published, rowbell.routes, rowbell.jobs,
  rowbell.jobs_waiting, rowbell.job_states, rowbell.attempts, rowbell.streams, rowbell.stream_log, rowbell.subscription_state,
  rowbell.subscription_health, rowbell.index_walks, rowbell.status, rowbell.housekeeping to rowbell_operator;
grant select (id, name, kind, state, types, scope, condition, condition_aside, "coalesce", ordered, created_at, owner, seal_id) on rowbell.subscriptions
  to rowbell_operator;
grant select (subscription_id, name, key, scope, event_seq, indexed_at) on rowbell.search to rowbell_operator;
grant select (id, wake, timeline, system_identifier, event_bytes, most_per_owner) on rowbell.installation to rowbell_operator;
grant execute on function rowbell.administer, rowbell.all_scopes, rowbell.declare_type, rowbell.requeue_events, rowbell.cancel_event,
  rowbell.prune_events, rowbell.prune_attempts, rowbell.prune_stream_log, rowbell.rotate_stream_key, rowbell.set_wake, rowbell.doctor, rowbell.published_tables, rowbell.published_candidates, rowbell.subscription_settings,
  rowbell.subscription_secrets, rowbell.subscription_sealed_secrets, rowbell.secret_parts to rowbell_operator;

-- Index subscriptions. The tables that are indexed are the application's: grant select on them to rowbell_dispatcher.
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
  rowbell.published_tables(), rowbell.published_candidates(rowbell.published),
  rowbell.percent_decode(text), rowbell.percent_encode(text), rowbell.percent_encode_slow(text), rowbell.scope_of(text), rowbell.scope_digest(text),
  rowbell.capture_key_sql(oid, name[], text), rowbell.capture_plain_type(oid), rowbell.capture_text_sql(pg_attribute, text, text),
  rowbell.text_of(anyelement), rowbell.type_is(anyelement, oid) to rowbell_dispatcher;
