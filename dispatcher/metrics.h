// The dispatcher's metrics: metrics.def as an enum.
#pragma once

enum dispatcher_metric {
#define METRIC(kind, id, name, labels, help) METRIC_##id,
#include "dispatcher/metrics.def"
#undef METRIC
    METRIC_COUNT,
};
