// The table of commands: the parser, --help and docs/cli.md come from it.
#include "cli/command.h"

static const struct command_option migrate_options[] = {
    {"status", NULL, "list the migrations: name, applied at, state"},
    {"dry-run", NULL, "say what would be applied, and change nothing"},
    {"print", NULL, "write the SQL for psql to stdout; needs no database"},
    {"no-roles", NULL, "create and use no roles: for managed databases"},
    {"trust", "ROLE,...", "roles that may run code with the rights of this login: see docs/operating.md"},
    {0},
};

static const struct command_option publish_options[] = {
    {"scope", "COLUMN", "the column that says who may see the row's address"},
    {"soft-delete", "COLUMN", "the column that turns non-null when the row is deleted"},
    {"watch", "A,B", "only updates that change one of these columns count"},
    {"key", "A,B", "unique columns that address a row, instead of the primary key"},
    {"name", "NAME", "the table's name on the wire, instead of its own"},
    {"no-webhook", NULL, "its events may not leave by webhook"},
    {"capture", "rows|collection",
     "an event for each row, or one for each statement, which costs the same whatever it changes"},
    {"lastval", "true|false", "keep lastval(); default: where a column takes numbers of a sequence"},
    {0},
};

// What can be set when an endpoint is added, and later.
#define WEBHOOK_OPTIONS                                                                                                \
    {"type", "PATTERN", "events to send: posts.update, 'posts.*', '*'; repeat it for more"},                           \
        {"scope", "SCOPE",                                                                                             \
         "only events of this scope; without it every scope's, for which the right all_scopes is needed"},             \
        {"condition", "JSONPATH", "only events whose data it is true for, such as '$.plan == \"pro\"'"},               \
        {"retry", "1s,5s,5m", "delays between attempts, instead of 5s,5m,30m,2h,5h,10h,14h,20h,24h"},                  \
        {"deadline", "20s", "how long one request may take in all, at most 20s"},                                      \
        {"max-in-flight", "N", "requests at a time, 1 to 64 (16)"},                                                    \
        {"rate", "10|30/m", "at most so many requests a second, minute (/m) or hour (/h)"},                            \
        {"header", "'NAME: VALUE'", "a header to send with each request; repeat it for more"},                         \
        {"status", "404=retry", "what an answer means: delivered, retry, reject, disable; 4xx=... for a class"},       \
        {"signature", "STYLE",                                                                                         \
         "standard (webhook-signature), timestamp (t=...,v1=...) or body (x-hub-signature-256)"},                      \
        {"ca", "FILE", "authorities to judge its certificate by, instead of the system's (PEM)"},                      \
        {"client-certificate", "FILE", "to show to a receiver that asks for one (PEM)"},                               \
        {"client-key", "FILE", "its private key (PEM); stored sealed under ROWBELL_SECRET_KEY"},                       \
        {"ordered", NULL, "one at a time and in order for each subject"}, {                                            \
        "allow-http", NULL, "the URL may be http: instead of https:"                                                   \
    }
#define SECRET_OPTIONS                                                                                                 \
    {"ed25519", NULL, "sign with a new Ed25519 key (v1a); its public part is printed"}, {                              \
        "secret-file", "FILE", "sign with the secret in the file's first line (- for standard input)"                  \
    }

static const struct command_option webhook_options[] = {WEBHOOK_OPTIONS, SECRET_OPTIONS, {0}};

static const struct command_option index_options[] = {
    {"target", "TARGET", "postgres (rowbell.search), opensearch, elasticsearch or meilisearch"},
    {"type", "PATTERN", "tables to index: 'posts.*', '*'; repeat it for more"},
    {"url", "URL", "of the search engine; not with postgres"},
    {"columns", "A,B", "columns to index, instead of all; with postgres the first one weighs most"},
    {"language", "NAME", "postgres: how words are read: simple (default), english, german, ..."},
    {"index", "NAME", "the engine's index of each table, such as app-{table} ({table})"},
    {"scope", "SCOPE", "only rows of this scope; without it every scope's, for which the right all_scopes is needed"},
    {"authorization-file", "FILE", "its first line is the Authorization header for the engine (- for standard input)"},
    {"max-in-flight", "N", "changes in one batch, 1 to 1000 (200)"},
    {"allow-http", NULL, "the URL may be http: instead of https:"},
    {0},
};

static const struct command_option index_rebuild_options[] = {
    {"no-wait", NULL, "do not wait for its end"},
    {0},
};

static const struct command_option set_options[] = {
    {"url", "URL", "where to send them"},
    WEBHOOK_OPTIONS,
    {"unset", "FLAG,FLAG", "back to what it is without this flag: scope, rate, header, ordered, ..."},
    {0},
};

static const struct command_option rotate_secret_options[] = {
    {"grace", "24h", "how long the old secret signs beside the new one, 0s to 7d"},
    SECRET_OPTIONS,
    {0},
};

static const struct command_option resume_options[] = {
    {"rate", "10|30/m", "let go of the held jobs at so many a second, minute (/m) or hour (/h)"},
    {0},
};

static const struct command_option test_options[] = {
    {"allow-egress", "CIDR",
     "addresses that the dispatchers may reach although they are private; else ROWBELL_ALLOW_EGRESS"},
    {"ca-file", "FILE", "authorities that the dispatchers were given (PEM)"},
    {0},
};

static const struct command_option dry_run_options[] = {
    {"dry-run", NULL, "say how many it would be, and change nothing"},
    {0},
};

static const struct command_option event_list_options[] = {
    {"type", "TYPE", "only this type, such as posts.update"},
    {"state", "STATE", "only pending, retrying, poisoned, cancelled or fanned-out ones"},
    {"limit", "N", "at most so many (50)"},
    {0},
};

static const struct command_option job_list_options[] = {
    {"state", "STATE", "only ready, running, waiting, held, poisoned or cancelled ones"},
    {"subscription", "NAME", "only of this subscription"},
    {"limit", "N", "at most so many (50)"},
    {0},
};

static const struct command_option attempt_list_options[] = {
    {"subscription", "NAME", "only of this subscription"},
    {"class", "CLASS", "only those that ended so: delivered, dns, connect, tls, timeout, http_4xx, http_5xx, ..."},
    {"limit", "N", "at most so many (50)"},
    {0},
};

static const struct command_option requeue_events_options[] = {
    {"id", "ID", "this event (number or UUID); repeat it, or separate them by commas"},
    {"since", "TIME", "poisoned since then: 2026-11-29T20:00Z, or an age such as 2h"},
    {"until", "TIME", "poisoned before then"},
    {"all", NULL, "every poisoned event"},
    {"dry-run", NULL, "say how many it would be, and change nothing"},
    {0},
};

static const struct command_option requeue_jobs_options[] = {
    {"subscription", "NAME", "of this subscription"},
    {"id", "ID", "of this event (number or UUID); repeat it, or separate them by commas"},
    {"since", "TIME", "of events since then: 2026-11-29T20:00Z, or an age such as 2h"},
    {"until", "TIME", "of events before then"},
    {"state", "STATE", "poisoned, cancelled, waiting (not at its time but now) or held; repeat it for more"},
    {"all", NULL, "every poisoned or cancelled job"},
    {"dry-run", NULL, "say how many it would be, and change nothing"},
    {0},
};

static const struct command_option replay_options[] = {
    {"since", "TIME", "events since then: 2026-11-29T20:00Z, or an age such as 2h"},
    {"until", "TIME", "events before then"},
    {"dry-run", NULL, "say how many it would be, and change nothing"},
    {0},
};

static const struct command_option prune_options[] = {
    {"events", "AGE", "events that were fanned out so long ago, and that no job names (7d)"},
    {"attempts", "AGE", "attempts that began so long ago (30d)"},
    {"stream", "AGE", "entries of the stream that were appended so long ago (24h)"},
    {0},
};

static const struct command_option status_options[] = {
    {"watch", NULL, "again every two seconds, until interrupted"},
    {0},
};

static const struct command_option tail_options[] = {
    {"url", "URL", "the gateway's stream (http://127.0.0.1:8080/events)"},
    {"table", "NAME", "only changes of this table; repeat it for more"},
    {"header", "'NAME: VALUE'", "a header to send, such as Authorization; repeat it for more"},
    {"last-event-id", "ID", "go on after this event"},
    {"count", "N", "end after so many events"},
    {0},
};

static const struct command_option generate_client_options[] = {
    {"module", "NAME", "where the pages import rowbell.js from, instead of rowbell"},
    {0},
};

static const struct command_option console_options[] = {
    {"listen", "ADDRESS:PORT", "where the page is (127.0.0.1:8070)"},
    {"token-file", "FILE", "its first line is the token to give, instead of a new one each time"},
    {"read-only", NULL, "show, and change nothing"},
    {0},
};

static const struct command_option dev_options[] = {
    {"listen", "ADDRESS:PORT", "where the gateway serves GET /events and its demo page (127.0.0.1:8080)"},
    {"allow-egress", "CIDR", "addresses that webhooks may be sent to, besides this machine's own; repeat it for more"},
    {"cors-origin", "ORIGIN", "web origin that may read the stream; repeat it for more"},
    {0},
};

// Commands of one group stand together.
const struct command commands[] = {
    {"migrate", "", 0, 0, "Create the schema, or bring it up to this program's version", migrate_options, run_migrate},
    {"publish", "TABLE", 1, 1, "Capture every change of a table from now on", publish_options, run_publish},
    {"unpublish", "TABLE", 1, 1, "Stop capturing a table", NULL, run_unpublish},
    {"subscription add webhook", "NAME URL", 2, 2, "Send events to an endpoint; prints its secret once",
     webhook_options, run_subscription_add_webhook},
    {"subscription add index", "NAME", 1, 1,
     "Keep the rows of tables searchable; what is there already is indexed at once", index_options,
     run_subscription_add_index},
    {"subscription list", "", 0, 0, "List subscriptions with their open work", NULL, run_subscription_list},
    {"subscription show", "NAME", 1, 1, "Show one subscription in full", NULL, run_subscription_show},
    {"subscription pause", "NAME", 1, 1, "Hold its jobs until it is resumed", NULL, run_subscription_pause},
    {"subscription set", "NAME", 1, 1, "Change an endpoint; what is not given stays as it is", set_options,
     run_subscription_set},
    {"subscription set-owner", "NAME ROLE", 2, 2,
     "Give a subscription to another role, whose members may then change it", NULL, run_subscription_set_owner},
    {"subscription rotate-secret", "NAME", 1, 1, "Sign with a new secret, and with the old one for a while",
     rotate_secret_options, run_subscription_rotate_secret},
    {"subscription test", "NAME", 1, 1, "Send a signed test event from here, and explain every step", test_options,
     run_subscription_test},
    {"subscription resume", "NAME", 1, 1, "Send again, held jobs first", resume_options, run_subscription_resume},
    {"subscription enable", "NAME", 1, 1, "The same, for one that was disabled", resume_options,
     run_subscription_resume},
    {"subscription remove", "NAME", 1, 1, "Remove a subscription and its jobs", NULL, run_subscription_remove},
    {"index rebuild", "SUBSCRIPTION", 1, 1, "Build an index anew from its tables, online; shows how far it is",
     index_rebuild_options, run_index_rebuild},
    {"index status", "SUBSCRIPTION", 1, 1, "Show the last walk over each table of an index", NULL, run_index_status},
    {"event list", "", 0, 0, "List the newest events", event_list_options, run_event_list},
    {"event show", "ID", 1, 1, "Show an event, where it went, and every attempt", NULL, run_event_show},
    {"event cancel", "ID", 1, 1,
     "Give a poisoned event up: no webhook, no index; ordered subscriptions go on without it", NULL, run_event_cancel},
    {"job list", "", 0, 0, "List jobs that are not delivered yet", job_list_options, run_job_list},
    {"job retry", "SUBSCRIPTION EVENT", 2, 2, "Send an event now, also one that was delivered", NULL, run_job_retry},
    {"job cancel", "SUBSCRIPTION EVENT", 2, 2, "Give a job up; an ordered subscription goes on without it", NULL,
     run_job_cancel},
    {"attempt list", "", 0, 0, "List the latest requests that were made", attempt_list_options, run_attempt_list},
    {"requeue events", "", 0, 0, "Put poisoned events back in line", requeue_events_options, run_requeue_events},
    {"requeue jobs", "", 0, 0, "Put poisoned and cancelled jobs back in line", requeue_jobs_options, run_requeue_jobs},
    {"replay", "SUBSCRIPTION", 1, 1, "Send events that it wants and never got, from before it was added",
     replay_options, run_replay},
    {"secrets rekey", "", 0, 0, "Seal all secrets under the first key of ROWBELL_SECRET_KEY", dry_run_options,
     run_secrets_rekey},
    {"prune", "", 0, 0, "Delete what is older than its retention, as dispatchers do by themselves", prune_options,
     run_prune},
    {"status", "", 0, 0, "Show the installation at a glance", status_options, run_status},
    {"doctor", "", 0, 0, "Say what is wrong with this installation, and what to do; exit 5 if anything is", NULL,
     run_doctor},
    {"tail", "", 0, 0, "Follow the stream of a gateway as a client does", tail_options, run_tail},
    {"console", "", 0, 0,
     "Show events, jobs and subscriptions as a web page, until Ctrl-C; prints its address, with a token",
     console_options, run_console},
    {"dev", "", 0, 0, "Run relay, dispatcher and gateway on this database until Ctrl-C", dev_options, run_dev},
    {"generate client", "", 0, 0, "Write TypeScript: the query keys of the published tables", generate_client_options,
     run_generate_client},
    {0},
};
