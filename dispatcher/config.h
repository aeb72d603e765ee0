// The dispatcher's configuration: common/config.def and config.def as a struct.
#pragma once
#include "common/config.h"

struct dispatcher_config {
    struct config_common common;
#define OPTION(kind, field, flag, fallback, argument, help) CONFIG_TYPE_##kind field;
#include "dispatcher/config.def"
#undef OPTION
};
