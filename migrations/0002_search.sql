-- Search: the documents of PostgreSQL index subscriptions, and how far each walk over a whole table came.
-- compatible_from: 1
-- Runs once, as rowbell_owner (with --no-roles: as whoever migrates), in one transaction.

-- A document for each row that an index subscription with target postgres covers.
create table rowbell.search (
  subscription_id int not null references rowbell.subscriptions on delete cascade,
  name            text not null,          -- the published name of the table
  key             text not null,          -- as in events
  scope           text,
  document        jsonb not null,         -- the chosen columns
  language        regconfig not null,
  content         tsvector not null,
  event_seq       bigint not null,        -- every change up to this one is in the document
  indexed_at      timestamptz not null default now(),
  primary key (subscription_id, name, key)
);
create index search_content on rowbell.search using gin (content);

-- A walk brings the index of one table in line with all of its rows: for a rebuild, and for an event that names the whole
-- table. It goes waiting -> rows -> sweep -> done, in steps that commit by themselves, so that another process can go on.
create table rowbell.index_walks (
  subscription_id int not null references rowbell.subscriptions on delete cascade,
  name            text not null,
  phase           text not null check (phase in ('waiting', 'rows', 'sweep', 'done')),
  -- The mark is exact (docs/decisions/0002): the sequence was read, then a transaction id assigned; once no older
  -- transaction runs, every change up to mark is visible.
  mark            bigint not null,
  mark_xact       xid8 not null,
  after_key       text,                   -- the rows (or documents) up to this key are done
  rows_done       bigint not null default 0,
  rows_expected   bigint not null default 0,
  started_at      timestamptz not null default now(),
  updated_at      timestamptz not null default now(),
  -- Events up to this one need no walk any more.
  covered_to      bigint not null default 0,
  primary key (subscription_id, name)
);

-- A rebuild is a job like any other: it has an event of this type for each table.
insert into rowbell.event_types (type, description, webhook)
  values ('rowbell.index.rebuild', 'An index is built anew from a whole table', false);
