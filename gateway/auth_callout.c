// auth_callout: the application decides. One GET per connection to its own URL, with the client's Cookie and
// Authorization:
//
//   200 {"scopes": ["acme"], "tables": ["posts"], "expires_in": 300, "subject": "7"}
//                                                                       admitted: to these scopes, only these tables
//                                                                       (absent: all), for so many seconds; subject:
//                                                                       the user, whose streams are counted together
//   401, 403                                                            refused with the same status
//   anything else, and no answer in time                                come again later
//
// Calls in flight are bounded; a crowd that comes back at once is told to come a little later, and spreads.
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_client.h"
#include "common/json_read.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/auth_way.h"
#include <math.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_FLIGHT_MOST = 256,
    ANSWER_MAX_BYTES = 256 * 1024,
    LOG_EVERY_MS = 1000,
};

struct callout_way {
    const struct gateway_config *config;
    struct http_client *client;
    struct egress_policy egress;
    uint64_t logged_ms;
    uint64_t failures; // since then
};

struct call {
    struct callout_way *way;
    auth_done *done;
    void *arg;
    char *credential; // owned; "": none
};

static void *start(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error) {
    if (!http_url_check(config->callout_url, true, ret_error)) {
        error_wrap(ret_error, "--callout-url");
        return NULL;
    }
    struct callout_way *way = memory_alloc(sizeof *way);
    // The operator names the place; it is usually a private one.
    struct config_list anywhere = {.items = (const char *[]){"0.0.0.0/0", "::/0"}, .count = 2};
    egress_policy_init(&way->egress, &anywhere, NULL);
    way->config = config;
    way->client = http_client_new(loop, &(struct http_client_options){.user_agent = "rowbell-gateway",
                                                                      .egress = &way->egress,
                                                                      .max_connections = IN_FLIGHT_MOST + 16,
                                                                      .ca_file = config->auth_ca_file});
    return way;
}

static void on_client_closed(void *arg) {
    struct callout_way *way = arg;
    egress_policy_close(&way->egress);
    free(way);
}

static void stop(void *self) {
    struct callout_way *way = self;
    http_client_close(way->client, on_client_closed, way);
}

// ---- the answer ----

static bool read_tables(const struct json_value *tables, struct grant *grant) {
    if (!tables || json_is(tables, JSON_NULL)) {
        return true;
    }
    if (!json_is(tables, JSON_ARRAY)) {
        return false;
    }
    table_filter_add_none(&grant->tables);
    for (const struct json_value *table = tables->first; table; table = table->next) {
        if (!json_is(table, JSON_STRING)) {
            return false;
        }
        table_filter_add(&grant->tables, table->text);
    }
    return true;
}

// Seconds. *ret_ms is 0 when it is absent.
static bool read_lasts_ms(const struct json_value *expires_in, int64_t *ret_ms) {
    *ret_ms = 0;
    if (!expires_in || json_is(expires_in, JSON_NULL)) {
        return true;
    }
    double seconds = json_is(expires_in, JSON_NUMBER) ? strtod(expires_in->text, NULL) : 0;
    if (!(seconds > 0)) {
        return false;
    }
    *ret_ms = seconds < 1e9 ? (int64_t)ceil(seconds * 1000) : INT64_MAX;
    return true;
}

// Without one the credential stands for its holder.
static bool read_subject(const struct json_value *subject, const char *credential, struct grant *grant) {
    bool absent = !subject || json_is(subject, JSON_NULL);
    if (!absent && !json_is(subject, JSON_STRING) && !json_is(subject, JSON_NUMBER)) {
        return false;
    }
    if (!absent) {
        grant_set_subject(grant, "subject", subject->text);
    } else if (credential[0] != '\0') {
        grant_set_subject(grant, "credential", credential);
    }
    return true;
}

static bool read_answer(const struct callout_way *way, const struct http_outcome *outcome, const char *credential,
                        struct grant *grant, struct error *ret_error) {
    struct json_document *document = json_read(outcome->answer, outcome->answer_length, ret_error);
    if (!document) {
        return false;
    }
    int64_t lasts_ms = 0;
    const struct json_value *root = json_root(document);
    bool read = json_is(root, JSON_OBJECT) &&
                grant_add_scopes(grant, json_member(root, "scopes"), way->config->allow_all_scopes) &&
                !grant->overflow && read_tables(json_member(root, "tables"), grant) &&
                read_lasts_ms(json_member(root, "expires_in"), &lasts_ms) &&
                read_subject(json_member(root, "subject"), credential, grant);
    if (!read) {
        error_set(ret_error, ERROR_PROTOCOL,
                  "the answer is not {\"scopes\": [at most %d texts], \"tables\": [texts], \"expires_in\": seconds, "
                  "\"subject\": "
                  "text or number}",
                  GRANT_SCOPES_MAX);
    }
    grant->end_ms = auth_end_ms(way->config, lasts_ms);
    json_free(document);
    return read;
}

// An application that is down fails for everybody at once: one line a second.
static void log_failure(struct callout_way *way, const char *text) {
    uint64_t now = clock_ms();
    way->failures++;
    if (way->logged_ms == 0 || now - way->logged_ms >= LOG_EVERY_MS) {
        log_warn("callout_failed", LOG_TEXT("error", text), LOG_INT("failures", way->failures));
        way->logged_ms = now;
        way->failures = 0;
    }
}

static void on_outcome(void *arg, const struct http_outcome *outcome) {
    struct call *call = arg;
    struct auth_answer answer;
    struct grant grant = {0};
    struct error error;
    auth_unavailable(&answer);
    if (outcome->failure == HTTP_CANCELLED) {
        // We are closing.
    } else if (outcome->failure != HTTP_OK) {
        log_failure(call->way, outcome->error);
    } else if (outcome->status == 401 || outcome->status == 403) {
        auth_refuse(&answer, outcome->status, "the application refused");
    } else if (outcome->status != 200) {
        error_set(&error, ERROR_PROTOCOL, "status %d", outcome->status);
        log_failure(call->way, error.text);
    } else if (read_answer(call->way, outcome, call->credential, &grant, &error)) {
        answer = (struct auth_answer){.verdict = AUTH_ADMITTED, .grant = grant};
    } else {
        grant_free(&grant);
        log_failure(call->way, error.text);
    }
    call->done(call->arg, &answer);
    OPENSSL_cleanse(call->credential, strlen(call->credential));
    free(call->credential);
    free(call);
}

// ---- the question ----

static bool check(void *self, const struct http_exchange *exchange, const struct http_request *request,
                  const char *ticket, struct auth_answer *ret_answer, auth_done *done, void *arg) {
    struct callout_way *way = self;
    const char *authorization;
    if (!auth_header_once(request, "authorization", &authorization)) {
        return auth_refuse(ret_answer, 401, "there are two Authorization headers");
    }
    if (http_client_in_flight(way->client) >= IN_FLIGHT_MOST) {
        log_failure(way, "too many calls in flight");
        return auth_unavailable(ret_answer);
    }
    struct buffer cookies = {0};
    struct buffer lines[2] = {0};
    const char *headers[4] = {"accept: application/json"};
    size_t count = 1;
    auth_cookies(request, &cookies);
    if (cookies.length > 0) {
        buffer_format(&lines[0], "cookie: %s", cookies.bytes);
        headers[count++] = lines[0].bytes;
    }
    if (authorization) {
        buffer_format(&lines[1], "authorization: %s", authorization);
        headers[count++] = lines[1].bytes;
    }
    struct call *call = memory_alloc(sizeof *call);
    *call = (struct call){way, done, arg, memory_copy_text(authorization ? authorization : buffer_cstr(&cookies))};
    unsigned deadline_ms = (unsigned)way->config->callout_timeout_ms;
    http_client_send(way->client,
                     &(struct http_call){
                         .url = way->config->callout_url,
                         .headers = headers,
                         .deadline_ms = deadline_ms,
                         .connect_ms = deadline_ms,
                         .allow_http = true,
                         .get = true,
                         .answer_max_bytes = ANSWER_MAX_BYTES,
                     },
                     on_outcome, call);
    buffer_free(&cookies);
    buffer_free(&lines[0]);
    buffer_free(&lines[1]);
    return false;
}

const struct auth_way auth_callout = {start, check, stop};
