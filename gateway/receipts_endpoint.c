// The happy path: the request is admitted, its receipt is looked up at once, and again whenever NOTIFY rowbell_fanned
// names a number in its range; when what was asked for is true, it is answered. What no NOTIFY tells (an index job that
// ended, a rollback) is looked for every LOOK_MS as long as somebody waits for it. The failure modes: the database is
// away (503), the receipt is not one (404), the wait ends (200 with what is known).
#include "gateway/receipts_endpoint.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/config.h"
#include "common/db_conn.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/cors.h"
#include "gateway/parameter_name.h"
#include "gateway/sql.h"
#include "gateway/sql_array.h"
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    TOKEN_MOST_BYTES = 200,
    LOOK_INDEX_MS = 20,   // an index job may end any moment
    LOOK_FANNED_MS = 250, // NOTIFY tells; this is for a lost one, and for a rollback
    LOOK_TOLD_MS = 10,    // not sooner after the last look because of a NOTIFY, which anybody may send
    QUERY_DEADLINE_MS = 5000,
    ASKING_MOST = 256, // requests that wait for auth, and those that look once
    OF_ONE_MOST = 32,  // that wait, of one user; more of them are answered at once
};

static const char prefix[] = "/receipts/";

struct waiter {
    struct waiter *prev, *next;
    struct receipts_endpoint *endpoint;
    struct http_exchange *exchange;
    const struct http_request *request; // valid as long as the exchange is not answered
    char token[TOKEN_MOST_BYTES + 1];
    char *ticket;        // owned, NULL if absent
    int64_t first, last; // numbers of the transaction's events; first is 0 until a look has found it
    bool for_index;
    long wait_ms;
    uint64_t until_ms, look_at_ms;
    uint64_t looked_ms; // last; 0: never
    bool asked;         // in the query that runs
    bool told;          // again, since that query was sent
    bool fanned_out;    // by the last look
    char problem[200];
    struct admission_ticket place;
};

struct receipts_endpoint {
    uv_loop_t *loop;
    const struct gateway_config *config;
    struct auth *auth;
    struct admission *admission;
    const struct egress_policy *proxies;
    struct db_conn *conn; // NULL until the first request
    struct waiter *waiters;
    size_t waiting, asking; // those who wait; those who wait for auth
    bool querying, closing;
    uv_timer_t timer;
};

static void look(struct receipts_endpoint *endpoint);

// ---- Answers

static void respond(struct waiter *waiter, int status, const char *content_type, const char *extra_headers,
                    const char *body, size_t length) {
    const struct receipts_endpoint *endpoint = waiter->endpoint;
    struct buffer headers = {0};
    buffer_text(&headers, "Cache-Control: no-store\r\n");
    if (extra_headers) {
        buffer_text(&headers, extra_headers);
    }
    cors_append_headers(&endpoint->config->cors_origins, http_request_header(waiter->request, "origin"), false,
                        &headers);
    http_exchange_respond(waiter->exchange, status, content_type, headers.bytes, body, length);
    buffer_free(&headers);
    if (waiter->ticket) {
        OPENSSL_cleanse(waiter->ticket, strlen(waiter->ticket));
    }
    free(waiter->ticket);
    free(waiter);
}

static void respond_text(struct waiter *waiter, int status, const char *extra_headers, const char *text) {
    respond(waiter, status, "text/plain; charset=utf-8", extra_headers, text, strlen(text));
}

static void leave(struct waiter *waiter) {
    struct receipts_endpoint *endpoint = waiter->endpoint;
    DL_DELETE(endpoint->waiters, waiter);
    endpoint->waiting--;
    admission_give_back(endpoint->admission, &waiter->place);
}

// ---- Looking

static bool is_true(const PGresult *rows, int row, int column) {
    return PQgetvalue(rows, row, column)[0] == 't';
}

static const char *number(const PGresult *rows, int row, int column) {
    return PQgetisnull(rows, row, column) ? "0" : PQgetvalue(rows, row, column);
}

static void respond_state(struct waiter *waiter, const PGresult *rows, int row) {
    struct buffer body = {0};
    buffer_format(&body,
                  "{\"state\":\"%s\",\"events\":%s,\"pending\":%s,\"poisoned\":%s,\"fanned_out\":%s,\"indexed\":%s,"
                  "\"open\":{\"webhook\":%s,\"index\":%s,\"sse\":%s}}\n",
                  PQgetvalue(rows, row, 0), number(rows, row, 1), number(rows, row, 2), number(rows, row, 3),
                  is_true(rows, row, 7) ? "true" : "false", is_true(rows, row, 8) ? "true" : "false",
                  number(rows, row, 4), number(rows, row, 5), number(rows, row, 6));
    respond(waiter, 200, "application/json", NULL, body.bytes, body.length);
    buffer_free(&body);
}

// True: it was answered.
static bool judge(struct waiter *waiter, const PGresult *rows, int row, uint64_t now_ms) {
    const char *state = PQgetvalue(rows, row, 0);
    waiter->fanned_out = is_true(rows, row, 7);
    waiter->first = strtoll(number(rows, row, 9), NULL, 10);
    bool reached = strcmp(state, "aborted") == 0 || (waiter->for_index ? is_true(rows, row, 8) : waiter->fanned_out);
    if (strcmp(state, "unknown") == 0) {
        leave(waiter);
        respond_text(waiter, 404, NULL, "this is not a receipt of this installation\n");
        return true;
    }
    if (reached || now_ms >= waiter->until_ms) {
        leave(waiter);
        respond_state(waiter, rows, row);
        return true;
    }
    waiter->look_at_ms = now_ms + (waiter->fanned_out ? LOOK_INDEX_MS : LOOK_FANNED_MS);
    if (waiter->told || waiter->look_at_ms > waiter->until_ms) {
        waiter->look_at_ms = waiter->told ? waiter->looked_ms + LOOK_TOLD_MS : waiter->until_ms;
    }
    return false;
}

static void arm(struct receipts_endpoint *endpoint);

static void on_states(void *arg, const struct db_reply *reply, const struct error *error) {
    struct receipts_endpoint *endpoint = arg;
    struct waiter *waiter, *next;
    uint64_t now = clock_ms();
    int row = 0;
    endpoint->querying = false;
    DL_FOREACH_SAFE(endpoint->waiters, waiter, next) {
        if (!waiter->asked) {
            continue;
        }
        waiter->asked = false;
        if (!error) {
            judge(waiter, reply->results[0], row++, now);
        } else if (now >= waiter->until_ms || endpoint->closing) {
            leave(waiter);
            respond_text(waiter, 503, "Retry-After: 1\r\n", "the database is not reachable now\n");
        } else {
            waiter->look_at_ms = now + LOOK_FANNED_MS < waiter->until_ms ? now + LOOK_FANNED_MS : waiter->until_ms;
        }
    }
    if (error && error->code != ERROR_CANCELLED) {
        log_warn("receipts_unknown", LOG_TEXT("error", error->text));
    }
    arm(endpoint);
}

// Asks for all whose time has come.
static void look(struct receipts_endpoint *endpoint) {
    uint64_t now = clock_ms();
    struct buffer tokens = {0};
    struct waiter *waiter;
    if (endpoint->querying || endpoint->closing) {
        return;
    }
    DL_FOREACH(endpoint->waiters, waiter) {
        if (waiter->look_at_ms > now) {
            continue;
        }
        waiter->asked = true;
        waiter->looked_ms = now;
        waiter->told = false;
        buffer_char(&tokens, tokens.length == 0 ? '{' : ',');
        sql_array_append(&tokens, waiter->token);
    }
    if (tokens.length > 0) {
        buffer_char(&tokens, '}');
        endpoint->querying = true;
        db_query(endpoint->conn, &sql_receipt_status, 1, (const char *[]){tokens.bytes}, QUERY_DEADLINE_MS, on_states,
                 endpoint);
    }
    buffer_free(&tokens);
    arm(endpoint);
}

static void on_timer(uv_timer_t *timer) {
    look(timer->data);
}

static void arm(struct receipts_endpoint *endpoint) {
    uint64_t soonest = UINT64_MAX, now = clock_ms();
    const struct waiter *waiter;
    DL_FOREACH(endpoint->waiters, waiter) {
        soonest = !waiter->asked && waiter->look_at_ms < soonest ? waiter->look_at_ms : soonest;
    }
    if (soonest == UINT64_MAX || endpoint->querying || endpoint->closing) {
        uv_timer_stop(&endpoint->timer);
        return;
    }
    uv_update_time(endpoint->loop);
    uv_timer_start(&endpoint->timer, on_timer, soonest > now ? soonest - now : 0, 0);
}

// The payload is numbers of events, separated by spaces. Who waits for one between the least and the greatest is looked
// for at once, since that costs little whatever somebody else has sent.
static void on_notify(void *arg, const char *channel, const char *payload) {
    struct receipts_endpoint *endpoint = arg;
    struct waiter *waiter;
    int64_t least = INT64_MAX, greatest = INT64_MIN;
    for (char *end; *payload; payload = end) {
        int64_t seq = strtoll(payload, &end, 10);
        if (end == payload) {
            break;
        }
        least = seq < least ? seq : least;
        greatest = seq > greatest ? seq : greatest;
    }
    DL_FOREACH(endpoint->waiters, waiter) {
        if (greatest >= waiter->first && least <= waiter->last && !waiter->fanned_out) {
            waiter->told = true;
            uint64_t look_at_ms = waiter->looked_ms + LOOK_TOLD_MS;
            waiter->look_at_ms = look_at_ms < waiter->look_at_ms ? look_at_ms : waiter->look_at_ms;
        }
    }
    look(endpoint);
}

// ---- GET /receipts/{token}

static bool take_wait(struct waiter *waiter, const char *value) {
    if (!config_parse_duration_ms(value, &waiter->wait_ms, NULL) || waiter->wait_ms < 0) {
        snprintf(waiter->problem, sizeof waiter->problem, "query parameter wait takes a duration such as 2s or 500ms");
        return false;
    }
    if (waiter->wait_ms > RECEIPTS_WAIT_MOST_MS) {
        waiter->wait_ms = RECEIPTS_WAIT_MOST_MS;
    }
    return true;
}

static bool take_for(struct waiter *waiter, const char *value) {
    waiter->for_index = strcmp(value, "index") == 0;
    if (!waiter->for_index && strcmp(value, "fanout") != 0) {
        snprintf(waiter->problem, sizeof waiter->problem, "query parameter for takes fanout or index");
        return false;
    }
    return true;
}

static bool take_ticket(struct waiter *waiter, const char *value) {
    if (waiter->ticket) {
        snprintf(waiter->problem, sizeof waiter->problem, "query parameter ticket is given twice");
        return false;
    }
    waiter->ticket = memory_copy_text(value);
    return true;
}

static const struct {
    const char *name;
    bool (*take)(struct waiter *waiter, const char *value);
} parameters[] = {
    {"wait", take_wait},
    {"for", take_for},
    {"ticket", take_ticket},
};

static bool on_parameter(void *arg, const char *name, const char *value) {
    struct waiter *waiter = arg;
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++) {
        if (strcmp(parameters[i].name, name) == 0) {
            return parameters[i].take(waiter, value);
        }
    }
    // Another tool's, unless one of ours is meant: without it the answer would come too soon, or be about less.
    bool ours = parameter_name_near(name, "wait") || parameter_name_near(name, "for");
    if (ours) {
        snprintf(waiter->problem, sizeof waiter->problem, "unknown query parameter; known are wait, for and ticket");
    }
    return !ours;
}

// r2.<installation>.<transaction>.<began>.<last>.<hash>: whether it is genuine is for the database to say.
static bool read_token(struct waiter *waiter, const char *token) {
    size_t length = strlen(token);
    if (length > TOKEN_MOST_BYTES || strspn(token, "abcdefghijklmnopqrstuvwxyz0123456789.") != length) {
        return false;
    }
    memcpy(waiter->token, token, length + 1);
    return sscanf(token, "r2.%*[0-9a-f].%*[0-9].%*[0-9].%19" SCNd64 ".", &waiter->last) == 1;
}

static void on_conn_down(void *arg, struct db_conn *conn, const struct error *error, bool first) {
    struct receipts_endpoint *endpoint = arg;
    endpoint->conn = conn; // may come before db_conn_new has returned
    log_warn("receipts_database_down", LOG_TEXT("error", error->text));
}

static void on_conn_up(void *arg, struct db_conn *conn) {
    struct receipts_endpoint *endpoint = arg;
    struct waiter *waiter;
    endpoint->conn = conn;
    DL_FOREACH(endpoint->waiters, waiter) {
        waiter->look_at_ms = 0;
    }
    look(endpoint);
}

static void connect_once(struct receipts_endpoint *endpoint) {
    static const char *const channels[] = {"rowbell_fanned", NULL};
    const struct config_common *common = &endpoint->config->common;
    if (endpoint->conn) {
        return;
    }
    endpoint->conn =
        db_conn_new(endpoint->loop, &(struct db_conn_options){.url = common->database_url,
                                                              .direct_url = common->direct_database_url,
                                                              .application_name = "rowbell-gateway receipts",
                                                              .channels = channels,
                                                              .arg = endpoint,
                                                              .on_up = on_conn_up,
                                                              .on_down = on_conn_down,
                                                              .on_notify = on_notify});
}

static void admitted(struct waiter *waiter) {
    struct receipts_endpoint *endpoint = waiter->endpoint;
    bool room = endpoint->waiting < RECEIPTS_WAITERS_MOST;
    uint64_t now = clock_ms();
    waiter->until_ms = room ? now + (uint64_t)waiter->wait_ms : now;
    connect_once(endpoint);
    bool up = db_conn_is_up(endpoint->conn);
    waiter->look_at_ms = up ? 0 : now + QUERY_DEADLINE_MS;
    if (!up && waiter->until_ms < waiter->look_at_ms) {
        waiter->until_ms = waiter->look_at_ms; // the first request waits for the connection
    }
    DL_APPEND(endpoint->waiters, waiter);
    endpoint->waiting++;
    look(endpoint);
}

static void auth_answered(struct waiter *waiter, struct auth_answer *answer) {
    struct receipts_endpoint *endpoint = waiter->endpoint;
    if (answer->verdict == AUTH_ADMITTED && !endpoint->closing) {
        struct client_address client = client_address_of(http_exchange_peer(waiter->exchange), endpoint->proxies,
                                                         endpoint->config->forwarded_header, waiter->request);
        if (!admission_wait(endpoint->admission, &answer->grant, &client, OF_ONE_MOST, &waiter->place)) {
            waiter->wait_ms = 0;
        }
    }
    grant_free(&answer->grant);
    if (answer->verdict == AUTH_ADMITTED && !endpoint->closing) {
        admitted(waiter);
        return;
    }
    char text[200];
    bool refused = answer->verdict == AUTH_REFUSED;
    snprintf(text, sizeof text, "%s\n", refused ? answer->problem : "come again later");
    respond_text(waiter, refused ? answer->status : 503,
                 !refused                ? "Retry-After: 1\r\n"
                 : answer->status == 401 ? "WWW-Authenticate: Bearer realm=\"rowbell\"\r\n"
                                         : NULL,
                 text);
}

static void on_auth(void *arg, struct auth_answer *answer) {
    struct waiter *waiter = arg;
    waiter->endpoint->asking--;
    auth_answered(waiter, answer);
}

bool receipts_endpoint_matches(const char *path) {
    return strncmp(path, prefix, sizeof prefix - 1) == 0;
}

void receipts_endpoint_get(struct receipts_endpoint *endpoint, struct http_exchange *exchange,
                           const struct http_request *request) {
    struct waiter *waiter = memory_alloc(sizeof *waiter);
    struct auth_answer answer;
    *waiter = (struct waiter){.endpoint = endpoint, .exchange = exchange, .request = request};
    if (!http_query_each(request->query, on_parameter, waiter)) {
        char text[sizeof waiter->problem + 2];
        snprintf(text, sizeof text, "%s\n", waiter->problem[0] ? waiter->problem : "malformed query string");
        respond_text(waiter, 400, NULL, text);
    } else if (!read_token(waiter, request->path + sizeof prefix - 1)) {
        respond_text(waiter, 404, NULL, "this is not a receipt of this installation\n");
    } else if (endpoint->asking + endpoint->waiting >= ASKING_MOST || endpoint->closing) {
        respond_text(waiter, 503, "Retry-After: 1\r\n", "too many requests at once\n");
    } else if (auth_check(endpoint->auth, exchange, request, waiter->ticket, &answer, on_auth, waiter)) {
        auth_answered(waiter, &answer);
    } else {
        endpoint->asking++;
    }
}

// ---- Life

struct receipts_endpoint *receipts_endpoint_new(uv_loop_t *loop, const struct gateway_config *config, struct auth *auth,
                                                struct admission *admission, const struct egress_policy *proxies) {
    struct receipts_endpoint *endpoint = memory_alloc(sizeof *endpoint);
    *endpoint = (struct receipts_endpoint){
        .loop = loop, .config = config, .auth = auth, .admission = admission, .proxies = proxies};
    uv_timer_init(loop, &endpoint->timer);
    endpoint->timer.data = endpoint;
    return endpoint;
}

static void on_timer_closed(uv_handle_t *handle) {
    free(handle->data);
}

static void on_conn_closed(void *arg) {
    struct receipts_endpoint *endpoint = arg;
    uv_close((uv_handle_t *)&endpoint->timer, on_timer_closed);
}

void receipts_endpoint_close(struct receipts_endpoint *endpoint) {
    if (!endpoint) {
        return;
    }
    endpoint->closing = true;
    uv_timer_stop(&endpoint->timer);
    struct waiter *waiter, *next;
    DL_FOREACH_SAFE(endpoint->waiters, waiter, next) {
        leave(waiter);
        respond_text(waiter, 503, "Retry-After: 1\r\n", "the gateway is restarting\n");
    }
    db_conn_close(endpoint->conn, on_conn_closed, endpoint);
}
