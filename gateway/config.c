#include "gateway/config.h"
#include "common/egress.h"
#include "common/redis_conn.h"
#include "gateway/cors.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>

// Descriptors that are not streams: log, loop, listeners, PostgreSQL, Redis, heads still being read.
enum { OTHER_DESCRIPTORS = 256, RING_MOST = 1 << 24, REPLAY_MOST = 50000 };

static const struct config_option options[] = {
#define OPTION(kind, field, flag, fallback, argument, help)                                                            \
    {CONFIG_##kind, offsetof(struct gateway_config, field), flag, fallback, argument, help},
#include "gateway/config.def"
#undef OPTION
};

const struct config_program gateway_program = {
    .name = "rowbell-gateway",
    .summary = "Serves the stream of changes as Server-Sent Events.",
    .options = options,
    .option_count = sizeof options / sizeof options[0],
};

static bool is_loopback(const char *host) {
    struct in_addr v4;
    if (inet_pton(AF_INET, host, &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127;
    }
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) != 1) {
        return false;
    }
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

static bool check_range(const char *flag, long value, long least, long most, struct error *ret_error) {
    if (value >= least && value <= most) {
        return true;
    }
    return error_set(ret_error, ERROR_USAGE, "--%s takes a number from %ld to %ld, not %ld", flag, least, most, value);
}

static bool check_auth_none(const struct gateway_config *config, struct error *ret_error) {
    char host[64];
    int port;
    if (!config_parse_address(config->listen, host, sizeof host, &port, ret_error)) {
        return error_wrap(ret_error, "--listen");
    }
    if (!is_loopback(host) && !config->allow_anonymous) {
        return error_set(ret_error, ERROR_USAGE,
                         "--listen %s is not a loopback address and --auth none lets everybody in: listen on "
                         "127.0.0.1, choose another --auth, or pass --allow-anonymous if that is meant",
                         config->listen);
    }
    return true;
}

static bool check_auth_jwt(const struct gateway_config *config, struct error *ret_error) {
    if (!config->jwt_secret + !config->jwt_key + !config->jwt_jwks != 2) {
        return error_set(ret_error, ERROR_USAGE,
                         "--auth jwt takes one of --jwt-secret, --jwt-key and --jwt-jwks, to check tokens with");
    }
    return check_range("jwt-leeway", config->jwt_leeway_ms, 0, 300000, ret_error) &&
           check_range("jwks-refresh", config->jwks_refresh_ms, 1000, 86400000, ret_error);
}

static bool check_auth_callout(const struct gateway_config *config, struct error *ret_error) {
    if (!config->callout_url) {
        return error_set(ret_error, ERROR_USAGE, "--auth callout needs --callout-url, the application's URL to ask");
    }
    return check_range("callout-timeout", config->callout_timeout_ms, 100, 60000, ret_error);
}

// A token of RFC 9110, 5.6.2.
static bool is_header_name(const char *name) {
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return name[0] != '\0' && name[strspn(name, token)] == '\0';
}

static bool check_auth_header(const struct gateway_config *config, struct error *ret_error) {
    if (config->trusted_peers.count == 0) {
        return error_set(ret_error, ERROR_USAGE,
                         "--auth header needs --trusted-peer, the addresses of the proxies that are believed");
    }
    if (!is_header_name(config->scopes_header)) {
        return error_set(ret_error, ERROR_USAGE, "--scopes-header takes the name of a header");
    }
    return !config->subject_header || is_header_name(config->subject_header) ||
           error_set(ret_error, ERROR_USAGE, "--subject-header takes the name of a header");
}

static bool check_auth(const struct gateway_config *config, struct error *ret_error) {
    static const struct {
        const char *auth;
        bool (*check)(const struct gateway_config *config, struct error *ret_error);
    } checks[] = {
        {"none", check_auth_none},
        {"jwt", check_auth_jwt},
        {"callout", check_auth_callout},
        {"header", check_auth_header},
    };
    if (!config->auth) {
        return error_set(
            ret_error, ERROR_USAGE,
            "--auth must be said: jwt, callout or header; or none, with which everybody who reaches --listen "
            "receives every change");
    }
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (strcmp(checks[i].auth, config->auth) == 0 && !checks[i].check(config, ret_error)) {
            return false;
        }
    }
    return check_range("auth-max-age", config->auth_max_age_ms, 1000, INT32_MAX, ret_error);
}

static bool check_proxies(const struct gateway_config *config, struct error *ret_error) {
    struct egress_policy proxies;
    if (!egress_policy_init(&proxies, &config->trusted_proxies, ret_error)) {
        return error_wrap(ret_error, "--trusted-proxy");
    }
    egress_policy_close(&proxies);
    return true;
}

static void fill_in_bounds(struct gateway_config *config) {
    enum { LEAST = 8 };
    const struct {
        long *bound;
        long fallback;
    } bounds[] = {
        {&config->max_per_subject, config->max_connections / 50},
        {&config->max_per_scopes, config->max_connections / 4 * 3},
        {&config->max_per_address, config->max_connections / 4},
    };
    config->max_per_address_given = config->max_per_address > 0;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (*bounds[i].bound == 0) {
            *bounds[i].bound = bounds[i].fallback > LEAST ? bounds[i].fallback : LEAST;
        }
    }
}

bool gateway_config_check(struct gateway_config *config, struct error *ret_error) {
    if (config->redis_url && config->redis_url[0] == '\0') {
        config->redis_url = NULL;
    }
    if (config->redis_url && !redis_url_check(config->redis_url, ret_error)) {
        return error_wrap(ret_error, "--redis-url");
    }
    if (!check_auth(config, ret_error) || !check_range("ring", config->ring, 1, RING_MOST, ret_error) ||
        !check_range("max-replay", config->max_replay, 0, REPLAY_MOST, ret_error) ||
        !check_range("buffer", config->buffer, 1, RING_MOST, ret_error) ||
        !check_range("max-connections", config->max_connections, 0, 10000000, ret_error) ||
        !check_proxies(config, ret_error) || !cors_check(&config->cors_origins, ret_error)) {
        return false;
    }
    if (config->heartbeat_ms < 100 || config->retry_ms < 100) {
        return error_set(ret_error, ERROR_USAGE, "--%s takes 100ms or more",
                         config->heartbeat_ms < 100 ? "heartbeat" : "retry");
    }
    if (config->buffer < config->max_replay + 1) {
        config->buffer = config->max_replay + 1;
    }
    if (config->max_connections == 0) {
        struct rlimit limit = {.rlim_cur = 1024};
        getrlimit(RLIMIT_NOFILE, &limit);
        config->max_connections =
            limit.rlim_cur > 2 * OTHER_DESCRIPTORS ? (long)(limit.rlim_cur - OTHER_DESCRIPTORS) : OTHER_DESCRIPTORS;
    }
    fill_in_bounds(config);
    return true;
}
