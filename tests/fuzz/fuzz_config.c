// Lines as arguments and variables ("ROWBELL_X=..."), as a duration and as an address: what is taken is within bounds,
// and an error does not repeat what may be a secret.
#include "common/config.h"
#include "tests/fuzz/fuzz.h"
#include <arpa/inet.h>
#include <stddef.h>

struct sample {
    struct config_common common;
    long count, pause_ms;
    bool once;
    const char *redis_url, *auth;
    struct config_list egress;
};
static const struct config_option options[] = {
    {CONFIG_INT, offsetof(struct sample, count), "count", "200", "N", "a number"},
    {CONFIG_DURATION, offsetof(struct sample, pause_ms), "pause", "60s", "DURATION", "a time"},
    {CONFIG_FLAG, offsetof(struct sample, once), "once", NULL, NULL, "a flag"},
    {CONFIG_STRING, offsetof(struct sample, redis_url), "redis-url", NULL, "URL", "a text"},
    {CONFIG_STRING, offsetof(struct sample, auth), "auth", "none", "none|jwt", "a choice"},
    {CONFIG_LIST, offsetof(struct sample, egress), "allow-egress", "10.0.0.0/8, ::1", "CIDR", "a list"},
};
static const struct config_program program = {"sample", "is a sample", options, sizeof options / sizeof options[0]};
static const char *const variables[] = {"ROWBELL_COUNT", "ROWBELL_PAUSE", "ROWBELL_ONCE",
                                        "ROWBELL_AUTH",  "REDIS_URL",     "ROWBELL_ALLOW_EGRESS"};
enum { ARGUMENTS_MOST = 16, VARIABLES = sizeof variables / sizeof variables[0] };

static void check_texts(const char *text) {
    struct error error = {0};
    char host[64];
    int port;
    long ms;
    unsigned char address[16];
    if (config_parse_duration_ms(text, &ms, &error))
        require(ms >= 0 && ms <= 3650L * 86400000);
    if (config_parse_address(text, host, sizeof host, &port, &error))
        require(port >= 0 && port <= 65535 &&
                (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1));
}

static bool set_variable(const char *line) {
    for (size_t i = 0; i < VARIABLES; i++) {
        size_t name = strlen(variables[i]);
        if (strncmp(line, variables[i], name) == 0 && line[name] == '=') {
            setenv(variables[i], line + name + 1, 1);
            return true;
        }
    }
    return false;
}

FUZZ_TARGET(config) {
    char name[] = "sample";
    char *lines[ARGUMENTS_MOST + 1] = {name}; // the last is NULL
    int count = 1;
    bool asks = false;
    for (size_t i = 0; i < VARIABLES; i++)
        unsetenv(variables[i]);
    for (char *line; count < ARGUMENTS_MOST && (line = input_line(&bytes, &length));) {
        check_texts(line);
        asks = asks || strcmp(line, "--help") == 0 || strcmp(line, "--version") == 0; // they print
        if (set_variable(line))
            free(line);
        else
            lines[count++] = line;
    }
    struct sample sample;
    struct error error = {0};
    bool exits;
    memset(&sample, 0xaa, sizeof sample);
    if (!asks && config_parse(&program, count, lines, &sample, &exits, &error)) {
        require(!exits && sample.count >= 0 && sample.count <= INT32_MAX && sample.pause_ms >= 0);
        require(strcmp(sample.auth, "none") == 0 || strcmp(sample.auth, "jwt") == 0);
        for (size_t i = 0; i < sample.egress.count; i++)
            require(sample.egress.items[i] != NULL);
        config_free(&program, &sample);
    } else if (!asks) {
        require(error.code == ERROR_USAGE && error.text[0] != '\0');
        for (int i = 1; i < count; i++)
            require(strlen(lines[i]) < 4 || strchr(lines[i], '@') == NULL || strstr(error.text, lines[i]) == NULL);
    }
    for (int i = 1; i < count; i++)
        free(lines[i]);
    return 0;
}
