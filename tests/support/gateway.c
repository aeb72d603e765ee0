#include "tests/support/gateway.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gateway gateway_start(const char *const *arguments) {
    const char *all[40] = {"--listen", "127.0.0.1:0"};
    bool auth = false;
    size_t count = 2;
    for (size_t i = 0; arguments && arguments[i]; i++) {
        auth = auth || strcmp(arguments[i], "--auth") == 0;
        all[count++] = arguments[i];
    }
    if (!auth) {
        all[count++] = "--auth";
        all[count++] = "none";
    }
    struct gateway gateway = {.daemon = daemon_start("rowbell-gateway", all)};
    daemon_wait_log(gateway.daemon, "stream_ready", HANG_MS);
    gateway.port = daemon_log_port(gateway.daemon, "listen");
    gateway.admin_port = daemon_log_port(gateway.daemon, "admin");
    return gateway;
}

double gateway_metric(const struct gateway *gateway, const char *name) {
    char url[100];
    char pattern[200];
    const char *body;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/metrics", gateway->admin_port);
    ck_assert_int_eq(http_get(url, &body), 200);
    snprintf(pattern, sizeof pattern, "\n%s ", name);
    const char *line = strstr(body, pattern);
    return line ? strtod(line + strlen(pattern), NULL) : 0;
}

void gateway_kill(struct gateway *gateway) {
    daemon_signal(gateway->daemon, SIGKILL);
    daemon_wait_exit(gateway->daemon, HANG_MS);
}
