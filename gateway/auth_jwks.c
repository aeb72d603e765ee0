// The happy path is: RESTING until the set is due (or somebody waits), READING, RESTING. The failure mode is a set that
// cannot be had: the old keys stay, and the next reading comes sooner, with a backoff.
#include "gateway/auth_jwks.h"
#include "common/backoff.h"
#include "common/buffer.h"
#include "common/clock.h"
#include "common/http_client.h"
#include "common/log.h"
#include "common/memory.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum {
    SET_MAX_BYTES = 256 * 1024,
    COOLDOWN_MS = 5000, // between two readings, whoever waits
    DEADLINE_MS = 10000,
    CONNECT_MS = 5000,
    WAITERS_MOST = 1024,
    BACKOFF_FIRST_MS = 1000,
    BACKOFF_MOST_MS = 60000,
    KEYS_LAST_MS = 12 * 3600 * 1000,
};

struct auth_jwks {
    const char *source;
    bool is_url;
    uint64_t refresh_ms;
    struct http_client *client; // with is_url
    struct egress_policy egress;
    struct jwt_keys keys;
    struct backoff backoff;
    bool reading;
    bool closing;
    uint64_t started_ms;           // the last reading; 0: none yet
    uint64_t read_ms;              // the last one that succeeded
    struct auth_jwks_waiter *next; // for the reading to come
    struct auth_jwks_waiter *now;  // for the one that is under way
    size_t waiters;
    uv_timer_t timer;
};

bool auth_file_read(const char *path, size_t most, struct buffer *ret_bytes, struct error *ret_error) {
    char chunk[4096];
    size_t got = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        return error_set(ret_error, ERROR_USAGE, "%s: %s", path, strerror(errno));
    }
    while (ret_bytes->length <= most && (got = fread(chunk, 1, sizeof chunk, file)) > 0) {
        buffer_append(ret_bytes, chunk, got);
    }
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed) {
        return error_set(ret_error, ERROR_USAGE, "%s: cannot be read", path);
    }
    return ret_bytes->length <= most || error_set(ret_error, ERROR_USAGE, "%s: more than %zu bytes", path, most);
}

static void arm(struct auth_jwks *jwks, uint64_t delay_ms);

static void tell(struct auth_jwks *jwks, struct auth_jwks_waiter **list, bool fresh) {
    // Whoever is told may wait again, on the other list.
    struct auth_jwks_waiter *told = *list;
    struct auth_jwks_waiter *waiter, *following;
    *list = NULL;
    DL_FOREACH_SAFE(told, waiter, following) {
        jwks->waiters--;
        waiter->done(waiter, fresh);
    }
}

static uint64_t cooldown_left_ms(const struct auth_jwks *jwks) {
    uint64_t over_ms = jwks->started_ms + COOLDOWN_MS;
    uint64_t now = clock_ms();
    return jwks->started_ms == 0 || over_ms <= now ? 0 : over_ms - now;
}

static bool take_set(struct auth_jwks *jwks, const char *bytes, size_t length, struct error *ret_error) {
    struct jwt_keys keys = {0};
    // A secret does not belong into what a URL serves.
    if (!jwt_keys_from_jwks(&keys, bytes, length, !jwks->is_url, ret_error)) {
        return false;
    }
    if (jwks->keys.count != keys.count) {
        log_info("jwks_read", LOG_INT("keys", keys.count), LOG_INT("unusable", keys.unusable));
    }
    jwt_keys_free(&jwks->keys);
    jwks->keys = keys;
    jwks->read_ms = clock_ms();
    return true;
}

static void reading_ended(struct auth_jwks *jwks, bool read, const struct error *error) {
    jwks->reading = false;
    if (read) {
        backoff_reset(&jwks->backoff);
    } else if (!jwks->closing) {
        log_warn("jwks_unavailable", LOG_TEXT("error", error->text));
        if (jwks->keys.count > 0 && clock_ms() - jwks->read_ms > KEYS_LAST_MS) {
            jwt_keys_free(&jwks->keys);
            jwks->keys.named = true;
        }
    }
    uint64_t delay_ms = read ? jitter_ms(jwks->refresh_ms, 0.1) : backoff_next_ms(&jwks->backoff);
    tell(jwks, &jwks->now, read);
    if (!jwks->closing) {
        arm(jwks, jwks->next ? cooldown_left_ms(jwks) : delay_ms);
    }
}

static void on_fetched(void *arg, const struct http_outcome *outcome) {
    struct auth_jwks *jwks = arg;
    struct error error;
    bool read = false;
    if (outcome->failure != HTTP_OK) {
        error_set(&error, ERROR_IO, "%s", outcome->error);
    } else if (outcome->status != 200) {
        error_set(&error, ERROR_PROTOCOL, "status %d", outcome->status);
    } else if (outcome->answer_length >= SET_MAX_BYTES) {
        error_set(&error, ERROR_PROTOCOL, "more than %d bytes", SET_MAX_BYTES);
    } else {
        read = take_set(jwks, outcome->answer, outcome->answer_length, &error);
    }
    reading_ended(jwks, read, &error);
}

static void fetch(struct auth_jwks *jwks) {
    static const char *const headers[] = {"accept: application/jwk-set+json, application/json", NULL};
    http_client_send(jwks->client,
                     &(struct http_call){
                         .url = jwks->source,
                         .headers = headers,
                         .deadline_ms = DEADLINE_MS,
                         .connect_ms = CONNECT_MS,
                         .allow_http = true,
                         .get = true,
                         .answer_max_bytes = SET_MAX_BYTES,
                     },
                     on_fetched, jwks);
}

static bool read_file(struct auth_jwks *jwks, struct error *ret_error) {
    struct buffer bytes = {0};
    bool read =
        auth_file_read(jwks->source, SET_MAX_BYTES, &bytes, ret_error) &&
        (take_set(jwks, buffer_cstr(&bytes), bytes.length, ret_error) || error_wrap(ret_error, "%s", jwks->source));
    buffer_free(&bytes);
    return read;
}

static void on_timer(uv_timer_t *timer) {
    struct auth_jwks *jwks = timer->data;
    struct error error;
    jwks->reading = true;
    jwks->started_ms = clock_ms();
    DL_CONCAT(jwks->now, jwks->next);
    jwks->next = NULL;
    if (jwks->is_url) {
        fetch(jwks);
    } else {
        bool read = read_file(jwks, &error);
        reading_ended(jwks, read, &error);
    }
}

static void arm(struct auth_jwks *jwks, uint64_t delay_ms) {
    uv_update_time(jwks->timer.loop);
    uv_timer_start(&jwks->timer, on_timer, delay_ms, 0);
}

static bool is_url(const char *source) {
    return strncmp(source, "https://", 8) == 0 || strncmp(source, "http://", 7) == 0;
}

struct auth_jwks *auth_jwks_new(uv_loop_t *loop, const struct gateway_config *config, struct error *ret_error) {
    struct auth_jwks *jwks = memory_alloc(sizeof *jwks);
    jwks->source = config->jwt_jwks;
    jwks->is_url = is_url(jwks->source);
    jwks->refresh_ms = (uint64_t)config->jwks_refresh_ms;
    jwks->keys.named = true;
    jwks->backoff = (struct backoff){.first_ms = BACKOFF_FIRST_MS, .most_ms = BACKOFF_MOST_MS};
    bool usable = jwks->is_url ? http_url_check(jwks->source, true, ret_error) : read_file(jwks, ret_error);
    if (!usable) {
        error_wrap(ret_error, "--jwt-jwks");
        free(jwks);
        return NULL;
    }
    if (jwks->is_url) {
        // The operator names the place; it may well be a private one.
        struct config_list anywhere = {.items = (const char *[]){"0.0.0.0/0", "::/0"}, .count = 2};
        egress_policy_init(&jwks->egress, &anywhere, NULL);
        jwks->client = http_client_new(loop, &(struct http_client_options){.user_agent = "rowbell-gateway",
                                                                           .egress = &jwks->egress,
                                                                           .max_connections = 2,
                                                                           .ca_file = config->auth_ca_file});
        if (strncmp(jwks->source, "http://", 7) == 0) {
            log_warn("jwks_without_tls", LOG_TEXT("why", "whoever is on the way can put in keys"));
        }
    }
    uv_timer_init(loop, &jwks->timer);
    jwks->timer.data = jwks;
    arm(jwks, jwks->is_url ? 0 : jwks->refresh_ms);
    return jwks;
}

const struct jwt_keys *auth_jwks_keys(const struct auth_jwks *jwks) {
    return &jwks->keys;
}

bool auth_jwks_wait(struct auth_jwks *jwks, struct auth_jwks_waiter *waiter) {
    if (jwks->waiters == WAITERS_MOST || jwks->closing) {
        return false;
    }
    jwks->waiters++;
    if (jwks->reading && jwks->keys.count == 0) {
        DL_APPEND(jwks->now, waiter); // nothing was ever read: what comes is news
        return true;
    }
    DL_APPEND(jwks->next, waiter);
    if (!jwks->reading) {
        uint64_t delay_ms = cooldown_left_ms(jwks);
        if (uv_timer_get_due_in(&jwks->timer) > delay_ms) {
            arm(jwks, delay_ms);
        }
    }
    return true;
}

static void on_client_closed(void *arg) {
    struct auth_jwks *jwks = arg;
    egress_policy_close(&jwks->egress);
    jwt_keys_free(&jwks->keys);
    free(jwks);
}

static void on_timer_closed(uv_handle_t *handle) {
    struct auth_jwks *jwks = handle->data;
    if (jwks->client) {
        http_client_close(jwks->client, on_client_closed, jwks);
    } else {
        on_client_closed(jwks);
    }
}

void auth_jwks_close(struct auth_jwks *jwks) {
    if (!jwks) {
        return;
    }
    jwks->closing = true;
    tell(jwks, &jwks->now, false);
    tell(jwks, &jwks->next, false);
    uv_close((uv_handle_t *)&jwks->timer, on_timer_closed);
}
