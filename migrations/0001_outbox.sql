-- The tables of Rowbell: outbox, subscriptions, jobs, stream log.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- One row: what is true of the whole installation.
create table rowbell.installation (
  id          text not null default replace(gen_random_uuid()::text, '-', ''),
  -- How writers wake a sleeping relay. A transaction that executed NOTIFY cannot be prepared for two-phase commit.
  wake        text not null check (wake in ('notify', 'poll'))
              default case when current_setting('max_prepared_transactions') = '0' then 'notify' else 'poll' end,
  receipt_key text not null default replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
  singleton   boolean primary key default true check (singleton)
);
insert into rowbell.installation default values;

-- What may happen: `<name>.<op>` for each published relation, and declared domain events.
create table rowbell.event_types (
  id          int generated always as identity primary key,
  type        text not null unique check (type <> '' and length(type) <= 200 and type !~ '[\s*]'),
  relation    oid,                    -- the published relation; NULL for a domain event
  description text not null default '',
  webhook     boolean not null        -- may leave by webhook
);
create index event_types_relation on rowbell.event_types (relation) where relation is not null;

-- What rowbell.publish was told, so that a capture function can be made again.
create table rowbell.published (
  relation    oid primary key,
  name        text not null unique,   -- `table` on the wire
  key         name[] not null,        -- empty: keyless, every event names the whole collection
  scope       name,
  soft_delete name,
  watch       name[],                 -- NULL: every column
  attnums     jsonb not null,         -- of all these columns, so that a renamed one is found again
  webhook     boolean not null
);

-- The outbox. Its writers are capture functions and rowbell.record, inside the application's transactions.
create table rowbell.events (
  seq             bigint generated always as identity (cache 1) primary key,
  occurred_at     timestamptz not null default clock_timestamp(),
  xact            xid8 not null default pg_current_xact_id(),
  type_id         int not null,
  scope           text,
  key             text,
  op              text,   -- create | update | delete, NULL for a domain event; unchecked: a check costs a bulk write 10 %
  subject         text,
  data            jsonb,
  fanned_out_at   timestamptz,
  fanout          int[],
  fanout_via      bigint[],
  fanout_attempts smallint not null default 0,
  retry_at        timestamptz,
  poisoned_at     timestamptz,
  last_error      text
);
-- The claim's index: only what waits for its first pass.
create index events_claim on rowbell.events (seq)
  where fanned_out_at is null and poisoned_at is null and retry_at is null;
-- What failed: set aside (poisoned_at NULL) or poisoned. One index for both, since each partial index costs every captured
-- statement 3 us; a poisoned event keeps its retry_at.
create index events_set_aside on rowbell.events (subject, seq, poisoned_at, retry_at)
  where retry_at is not null and fanned_out_at is null;

create table rowbell.subscriptions (
  id          int generated always as identity primary key,
  name        text not null unique check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
  kind        text not null check (kind in ('webhook', 'index', 'sse')),
  state       text not null default 'active' check (state in ('active', 'paused', 'disabled')),
  types       text[] not null check (cardinality(types) > 0),
  scope       text,                   -- NULL: all scopes
  condition   jsonpath,
  "coalesce"  boolean not null default false,
  ordered     boolean not null default false,
  settings    jsonb not null default '{}',
  secrets     text[] not null default '{}',   -- newest first; `plain:...` or `sealed:1:<keyid>:<base64>`
  created_at  timestamptz not null default now()
);

-- Which subscriptions want a type: kept by triggers, so that the relay matches by an index.
create table rowbell.routes (
  type_id         int not null references rowbell.event_types on delete cascade,
  subscription_id int not null references rowbell.subscriptions on delete cascade,
  scope           text,
  primary key (type_id, subscription_id)
);
create index routes_match on rowbell.routes (type_id, scope);
create index routes_subscription on rowbell.routes (subscription_id);

-- Kept apart from subscriptions because it is hot.
create table rowbell.subscription_state (
  subscription_id int primary key references rowbell.subscriptions on delete cascade,
  not_before      timestamptz,
  failing_since   timestamptz,
  last_success_at timestamptz,
  last_failure_at timestamptz,
  last_error      text
) with (fillfactor = 50);

-- Ready and running jobs. Lean on purpose (docs/decisions/0002): delivered = deleted, a claim is a HOT update.
create table rowbell.jobs (
  subscription_id int not null,
  event_seq       bigint not null,
  lease_until     timestamptz,
  lease_token     bigint,
  attempts        smallint not null default 0,
  primary key (subscription_id, event_seq)
) with (fillfactor = 60);

-- Jobs that nobody may claim now, so that a claim never scans them.
create table rowbell.jobs_waiting (
  subscription_id int not null,
  event_seq       bigint not null,
  state           text not null check (state in ('waiting', 'held', 'poisoned', 'cancelled')),
  run_at          timestamptz,
  attempts        smallint not null default 0,
  last_class      text,
  primary key (subscription_id, event_seq)
);
create index jobs_waiting_due on rowbell.jobs_waiting (run_at) where state = 'waiting';
create index jobs_waiting_event on rowbell.jobs_waiting (event_seq);
create index jobs_waiting_state on rowbell.jobs_waiting (state) where state <> 'waiting';

-- One row for each request on the wire (and each lost attempt).
create table rowbell.attempts (
  subscription_id int not null,
  event_seq       bigint not null,
  attempt         smallint not null,
  manual          boolean not null default false,
  started_at      timestamptz not null,
  dns_ms          real,
  connect_ms      real,
  tls_ms          real,
  first_byte_ms   real,
  total_ms        real,
  status          smallint,           -- HTTP status; NULL when there was no answer
  class           text not null check (class in ('delivered', 'dns', 'connect', 'tls', 'timeout', 'http_4xx',
                                                 'http_5xx', 'rejected', 'lost', 'egress_denied', 'condition')),
  peer            text,
  response_head   text
);
create index attempts_event on rowbell.attempts (event_seq, subscription_id);
create index attempts_started on rowbell.attempts using brin (started_at);

create table rowbell.streams (
  id                int primary key,
  name              text not null unique,
  subscription_id   int not null unique references rowbell.subscriptions,
  timeline          text not null,
  system_identifier bigint not null
);

-- Positions are dense in meaning, not in number: each entry names its predecessor (docs/guarantees.md, G5 and G6).
create table rowbell.stream_log (
  stream_id   int not null,
  position    bigint not null,
  prev        bigint not null,
  event_seq   bigint not null,
  scope       text,
  name        text not null,
  key         text,
  op          text not null,
  appended_at timestamptz not null default now(),
  primary key (stream_id, position)
);
create index stream_log_scope on rowbell.stream_log (stream_id, scope, position);

insert into rowbell.subscriptions (name, kind, types) values ('stream', 'sse', '{*}');
insert into rowbell.streams (id, name, subscription_id, timeline, system_identifier)
  select 1, 'default', s.id, substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8), c.system_identifier
    from rowbell.subscriptions s, pg_control_system() c where s.name = 'stream';
-- The log is never empty, so 0 is never a position and every client can be given one.
insert into rowbell.stream_log (stream_id, position, prev, event_seq, scope, name, key, op)
  values (1, (extract(epoch from now()) * 1000000)::bigint, 0, 0, '', '', null, 'delete');
