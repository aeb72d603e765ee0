// metrics: ids of the gateway's metrics (metrics.def).
#pragma once
#include "common/metrics.h"

enum gateway_metric {
#define METRIC(kind, id, name, labels, help) METRIC_##id,
#include "gateway/metrics.def"
#undef METRIC
    GATEWAY_METRIC_COUNT
};
