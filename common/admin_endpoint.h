// admin_endpoint: /healthz (the loop turns), /readyz (work can make progress: 200 "ready" or 503 with the reason) and
// /metrics, on --admin-listen of every process.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <uv.h>

struct admin_endpoint;

// Every function but _new accepts NULL and does nothing (the address is ""): a process that is stopping has none any
// more.
struct admin_endpoint *admin_endpoint_new(uv_loop_t *loop, const char *listen, struct error *ret_error);
const char *admin_endpoint_address(const struct admin_endpoint *admin);
// reason NULL: ready. Else a static text such as "database: not connected". Not ready ("starting") until told.
void admin_endpoint_set_ready(struct admin_endpoint *admin, const char *reason);
// Called before /metrics is written, so that gauges are fresh without timers. May be NULL.
void admin_endpoint_on_scrape(struct admin_endpoint *admin, void (*on_scrape)(void *arg), void *arg);
void admin_endpoint_close(struct admin_endpoint *admin);
