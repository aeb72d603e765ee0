// The relay's metrics: metrics.def as an enum.
#pragma once

enum relay_metric {
#define METRIC(kind, id, name, labels, help) METRIC_##id,
#include "relay/metrics.def"
#undef METRIC
    METRIC_COUNT,
};
