// lanes: which work a dispatcher does and how much at once: the values of --lanes and --concurrency. Pure.
#pragma once
#include "common/config.h"
#include "common/error.h"
#include <stdbool.h>

enum lane { LANE_WEBHOOK, LANE_INDEX, LANE_SSE, LANE_COUNT };

struct lanes {
    bool wanted[LANE_COUNT];
    int concurrency[LANE_COUNT];
};

const char *lane_name(enum lane lane); // static
// Values may hold several words between commas. ERROR_USAGE names the bad one and what is allowed.
bool lanes_read(const struct config_list *names, const struct config_list *concurrency, struct lanes *ret_lanes,
                struct error *ret_error);
