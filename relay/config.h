// The relay's configuration: common/config.def and config.def as a struct.
#pragma once
#include "common/config.h"

struct relay_config {
    struct config_common common;
#define OPTION(kind, field, flag, fallback, argument, help) CONFIG_TYPE_##kind field;
#include "relay/config.def"
#undef OPTION
};
