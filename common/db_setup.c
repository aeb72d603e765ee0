// The happy path: one batch looks at what is there, and leaves nothing behind: the server's process, whether it takes
// what we need, whether the schema is ours and fits. Then a session is set up (settings, LISTEN), or, behind a
// transaction pooler, nothing at all: each batch brings its settings.
//
// A pooler hands out numbers of its own where PostgreSQL greets with that of its process. Such a connection is taken
// for one to a transaction pooler, where whatever is set stays behind for others. Only who needs a session, and was
// given
// --direct-database-url, finds out more, since a proxy that keeps a session for each client (a pooler in session mode)
// serves as well: a second connection and this one ask in turn which process they have. If it ever is the same one, or
// another one than before, transactions share processes.
#include "common/buffer.h"
#include "common/db_conn_inside.h"
#include "common/db_server.h"
#include "common/db_session.h"
#include "common/db_url.h"
#include "common/memory.h"
#include "common/schema_version.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SETUP_DEADLINE_MS = 10000, WITNESS_DEADLINE_MS = 2000, WITNESS_ROUNDS = 5, MAX_CHANNELS = 16 };

static const char past_it[] = "LISTEN and session locks need a session of their own";

// What is added to it has to live until it is sent.
static struct db_batch *batch_begin(struct db_conn *conn) {
    struct db_batch *batch = db_batch_begin(conn);
    batch->internal = true;
    return batch;
}

// ---- the session

static void on_session_set(void *arg, const struct db_reply *reply, const struct error *error) {
    struct error wrapped;
    if (!error)
        return;
    wrapped = *error;
    error_wrap(&wrapped, "set the session up");
    db_conn_drop(arg, &wrapped);
}

static void on_listening(void *arg, const struct db_reply *reply, const struct error *error) {
    struct error wrapped;
    if (!error) {
        db_conn_is_set_up(arg);
        return;
    }
    wrapped = *error;
    error_wrap(&wrapped, "LISTEN");
    db_conn_drop(arg, &wrapped);
}

static void settings_make(struct db_conn *conn) {
    struct db_conn_options options = conn->options;
    if (db_url_named(conn->pg))
        options.application_name = NULL;
    free(conn->settings_sql);
    conn->settings_sql = db_session_settings_sql(&options, conn->pooled);
}

static void session_begin(struct db_conn *conn) {
    settings_make(conn);
    struct db_batch *batch = batch_begin(conn);
    const struct db_statement settings = {NULL, conn->settings_sql};
    db_batch_add(batch, &settings, 0, NULL);
    db_batch_send(batch, SETUP_DEADLINE_MS, on_session_set, conn);
    if (conn->state != STATE_SETTING_UP)
        return; // that found the connection broken
    batch = batch_begin(conn);
    struct db_statement statements[MAX_CHANNELS];
    struct buffer texts[MAX_CHANNELS] = {0};
    int count = 0;
    for (const char *const *channel = conn->options.channels; channel && *channel; channel++, count++) {
        assert(count < MAX_CHANNELS);
        char *quoted = PQescapeIdentifier(conn->pg, *channel, strlen(*channel));
        buffer_format(&texts[count], "listen %s", quoted ? quoted : "");
        PQfreemem(quoted);
        statements[count] = (struct db_statement){NULL, texts[count].bytes};
        db_batch_add(batch, &statements[count], 0, NULL);
    }
    db_batch_send(batch, SETUP_DEADLINE_MS, on_listening, conn);
    while (count > 0)
        buffer_free(&texts[--count]);
}

// ---- the witness

static const struct db_statement ask_pid = {NULL, "select pg_catalog.pg_backend_pid()"};

// Outlives the connection that it is for until its own is closed.
struct db_witness {
    struct db_conn *of; // NULL: nobody wants to know any more
    struct db_conn *conn;
    int rounds;
};

static void witness_closed(void *arg) {
    free(arg);
}

void db_setup_stop(struct db_conn *conn) {
    struct db_witness *witness = conn->witness;
    conn->witness = NULL;
    if (!witness)
        return;
    witness->of = NULL;
    db_conn_close(witness->conn, witness_closed, witness);
}

static void witness_says(struct db_conn *conn, bool shared) {
    struct error error;
    db_setup_stop(conn);
    if (!shared) {
        session_begin(conn);
        return;
    }
    error_set(&error, ERROR_USAGE,
              "--direct-database-url leads to a transaction pooler: give an address that leads past it, since %s",
              past_it);
    db_conn_drop(conn, &error);
}

static int pid_of(const struct db_reply *reply) {
    return atoi(PQgetvalue(reply->results[0], 0, 0));
}

static void witness_ask(struct db_witness *witness);

static void on_own_pid(void *arg, const struct db_reply *reply, const struct error *error) {
    struct db_conn *conn = arg;
    if (error)
        db_conn_drop(conn, error);
    else if (pid_of(reply) != conn->server_pid || ++conn->witness->rounds == WITNESS_ROUNDS)
        witness_says(conn, pid_of(reply) != conn->server_pid);
    else
        witness_ask(conn->witness);
}

// No answer is no proof: a pooler in session mode with one server process gives it to this connection alone.
static void on_witness_pid(void *arg, const struct db_reply *reply, const struct error *error) {
    const struct db_witness *witness = arg;
    struct db_conn *conn = witness->of;
    if (!conn || conn->state != STATE_SETTING_UP)
        return;
    if (error || pid_of(reply) == conn->server_pid) {
        witness_says(conn, !error);
        return;
    }
    struct db_batch *batch = batch_begin(conn);
    db_batch_add(batch, &ask_pid, 0, NULL);
    db_batch_send(batch, SETUP_DEADLINE_MS, on_own_pid, conn);
}

static void witness_ask(struct db_witness *witness) {
    db_query(witness->conn, &ask_pid, 0, NULL, WITNESS_DEADLINE_MS, on_witness_pid, witness);
}

static void witness_up(void *arg, struct db_conn *conn) {
    struct db_witness *witness = arg;
    witness->conn = conn;
    if (witness->rounds == 0)
        witness_ask(witness);
}

static void witness_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct db_witness *witness = arg;
    if (first)
        witness_says(witness->of, false);
}

static void witness_call(struct db_conn *conn) {
    struct db_witness *witness = memory_alloc(sizeof *witness);
    *witness = (struct db_witness){.of = conn};
    conn->witness = witness;
    witness->conn = db_conn_new(conn->loop, &(struct db_conn_options){
                                                .url = conn->options.url,
                                                .application_name = conn->options.application_name,
                                                .pooled = true,
                                                .skip_schema_check = true,
                                                .arg = witness,
                                                .on_up = witness_up,
                                                .on_down = witness_down,
                                            });
}

// ---- the look

enum { LOOK_SETTINGS, LOOK_SERVER, LOOK_OWNER, LOOK_VERSION };

static void session_choose(struct db_conn *conn, const PGresult *server) {
    struct error error;
    conn->server_pid = db_server_pid(server);
    bool direct = conn->server_pid == PQbackendPID(conn->pg);
    conn->pooled = conn->options.pooled || (!direct && !conn->options.session);
    if (conn->pooled) {
        settings_make(conn);
        if (db_server_reads_committed(server, &error))
            db_conn_is_set_up(conn);
        else
            db_conn_drop(conn, &error);
    } else if (direct) {
        session_begin(conn);
    } else if (conn->options.direct_url) {
        witness_call(conn);
    } else {
        error_set(&error, ERROR_USAGE,
                  "a connection pooler answers at --database-url, and %s: give --direct-database-url, an address that "
                  "leads past it (or the same again, if the pooler keeps a session for each client)",
                  past_it);
        db_conn_drop(conn, &error);
    }
}

static enum db_need need_of(const struct db_conn *conn) {
    return conn->options.writes ? DB_WRITES : conn->options.channels ? DB_LISTENS : DB_READS;
}

static void on_looked(void *arg, const struct db_reply *reply, const struct error *sql_error) {
    struct db_conn *conn = arg;
    struct error error;
    bool checks = !conn->options.skip_schema_check;
    if (sql_error)
        error = *sql_error;
    bool good = reply ? db_server_gives(reply->results[LOOK_SERVER], need_of(conn), &error)
                      : checks || error_wrap(&error, "look at the server");
    if (good && checks)
        good = schema_version_check(reply ? reply->results[LOOK_VERSION] : NULL, sql_error, &error);
    if (good)
        session_choose(conn, reply->results[LOOK_SERVER]);
    else
        db_conn_drop(conn, &error);
}

void db_setup_start(struct db_conn *conn) {
    struct db_batch *batch = batch_begin(conn);
    const struct db_statement statements[] = {[LOOK_SETTINGS] = {NULL, db_server_settings_sql},
                                              [LOOK_SERVER] = {NULL, db_server_sql},
                                              [LOOK_OWNER] = {NULL, schema_owner_sql},
                                              [LOOK_VERSION] = {NULL, schema_version_sql}};
    int count = conn->options.skip_schema_check ? LOOK_OWNER : LOOK_VERSION + 1;
    for (int i = 0; i < count; i++)
        db_batch_add(batch, &statements[i], 0, NULL);
    db_batch_send(batch, SETUP_DEADLINE_MS, on_looked, conn);
}
