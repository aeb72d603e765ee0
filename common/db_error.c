#include "common/db_error.h"
#include <string.h>

// Where the fault lies with the system, so that no row is blamed for it.
static const char *const system_classes[] = {
    "08", // connection
    "25", // transaction state: read-only standby, idle in transaction
    "28", // login
    "3D", // no such database
    "40", // rolled back: serialization, deadlock
    "42", // no such table or column, no permission: a schema that does not fit
    "53", // out of disk, memory or connections
    "55", // lock not available, object in use
    "57", // shutdown, cancel
    "58", // I/O
    "XX", // internal
};

static const struct {
    const char *prefix;
    enum error_code code;
} codes[] = {
    {"28", ERROR_AUTH},
    {"3D000", ERROR_AUTH},
    {"57P0", ERROR_CONNECT},
    {"08", ERROR_CONNECT},
};

static bool has_prefix(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

// What an SQLSTATE means; fatal: the session has ended with it.
static enum error_code sqlstate_code(const char *sqlstate, bool fatal) {
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        if (has_prefix(sqlstate, codes[i].prefix))
            return codes[i].code;
    }
    return fatal ? ERROR_CONNECT : ERROR_SQL;
}

static void sqlstate_set(struct error *error, const char *sqlstate) {
    if (error)
        memcpy(error->sqlstate, sqlstate, sizeof(error->sqlstate));
}

void db_error_from_result(const PGresult *result, struct error *ret_error) {
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    if (!sqlstate || strlen(sqlstate) != 5) {
        // Made by libpq itself: the connection is gone or out of step. Its first line says what; the rest is advice.
        const char *message = PQresultErrorMessage(result);
        int length = message ? (int)strcspn(message, "\n") : 0;
        if (length)
            error_set(ret_error, ERROR_CONNECT, "%.*s", length, message);
        else
            error_set(ret_error, ERROR_CONNECT, "the connection was lost");
        return;
    }
    bool fatal = severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
    error_set(ret_error, sqlstate_code(sqlstate, fatal), "%s", text ? text : "no message");
    sqlstate_set(ret_error, sqlstate);
}

static bool is_sqlstate(const char *text) {
    for (int i = 0; i < 5; i++) {
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'Z')))
            return false;
    }
    return true;
}

// "...: FATAL:  28P01: text" -> at "28P01", or NULL. The severity may be in the server's language.
static const char *sqlstate_find(const char *line, const char *end) {
    for (const char *c = line; c + 10 <= end; c++) {
        if (has_prefix(c, ":  ") && is_sqlstate(c + 3) && has_prefix(c + 8, ": "))
            return c + 3;
    }
    return NULL;
}

// libpq tells the SQLSTATE of a refused connection only inside its text, and only with PQERRORS_VERBOSE:
//   connection to server at "127.0.0.1", port 5432 failed: FATAL:  28P01: password authentication failed for user "a"
//   LOCATION:  auth_failed, auth.c:330
// One paragraph for each address that was tried, each with advice on further lines. The last with an SQLSTATE counts,
// else the last, else (no address was tried) the first line.
void db_error_from_conn(const PGconn *conn, struct error *ret_error) {
    const char *best = NULL, *best_state = NULL;
    for (const char *line = PQerrorMessage(conn); *line;) {
        const char *end = line + strcspn(line, "\n");
        const char *state = sqlstate_find(line, end);
        if (state || !best || (!best_state && has_prefix(line, "connection to server"))) {
            best = line;
            best_state = state;
        }
        line = *end ? end + 1 : end;
    }
    if (!best_state && best && has_prefix(best, "invalid ")) {
        // A parameter that libpq looks at when it connects: no server was asked. What it quotes may be half a password.
        int length = (int)strcspn(best, memchr(best, '@', strcspn(best, "\n")) ? "\"\n" : "\n");
        error_set(ret_error, ERROR_USAGE, "the database URL cannot be used: %.*s", length, best);
        return;
    }
    if (!best_state) {
        best = best && *best != '\n' ? best : "no reason given";
        error_set(ret_error, ERROR_CONNECT, "%.*s", (int)strcspn(best, "\n"), best);
        return;
    }
    char sqlstate[6] = "";
    memcpy(sqlstate, best_state, 5);
    const char *text = best_state + 7;
    error_set(ret_error, sqlstate_code(sqlstate, true), "%.*s%.*s", (int)(best_state - best), best,
              (int)strcspn(text, "\n"), text);
    sqlstate_set(ret_error, sqlstate);
}

bool db_error_is_system(const struct error *error) {
    if (!*error->sqlstate)
        return true;
    for (size_t i = 0; i < sizeof(system_classes) / sizeof(*system_classes); i++) {
        if (has_prefix(error->sqlstate, system_classes[i]))
            return true;
    }
    return false;
}

// Rights, tables and columns of ours, and whether writes are taken.
static const char *const lasting_states[] = {"25006", "3F000", "42501", "42703", "42883", "42P01"};

bool db_error_is_lasting(const struct error *error) {
    for (size_t i = 0; i < sizeof(lasting_states) / sizeof(*lasting_states); i++)
        if (strcmp(error->sqlstate, lasting_states[i]) == 0)
            return true;
    return false;
}

bool db_error_is_transient_conflict(const struct error *error) {
    return strcmp(error->sqlstate, "40001") == 0 || strcmp(error->sqlstate, "40P01") == 0;
}
