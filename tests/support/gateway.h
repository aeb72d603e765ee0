// gateway: rowbell-gateway on a port of its own choice.
#pragma once
#include "tests/support/fixture.h"

#define WITH(...) ((const char *const[]){__VA_ARGS__, NULL})

struct gateway {
    struct daemon *daemon;
    int port;
    int admin_port;
};
struct gateway gateway_start(const char *const *arguments);
double gateway_metric(const struct gateway *gateway, const char *name); // 0 if absent
void gateway_kill(struct gateway *gateway);
