// config: the gateway's flags (config.def), and what must hold between them.
#pragma once
#include "common/config.h"
#include "common/error.h"
#include <stdbool.h>

struct gateway_config {
    struct config_common common;
#define OPTION(kind, field, flag, fallback, argument, help) CONFIG_TYPE_##kind field;
#include "gateway/config.def"
#undef OPTION
    bool max_per_address_given; // set by gateway_config_check
};

extern const struct config_program gateway_program;

// Refuses what would be unsafe or senseless (ERROR_USAGE, the text names the flag and the remedy); raises `buffer` to
// max_replay + 1 and fills in max_connections and the bounds
// that follow from it. Call after process_init, which raises the descriptor limit.
bool gateway_config_check(struct gateway_config *config, struct error *ret_error);
