// metrics: counters, gauges and histograms of one process, in Prometheus text format 0.0.4. Each process has a
// `metrics.def` of METRIC lines: METRIC(kind, id, name, label names or "", help).
//
// The registry is process-wide (one loop, one thread). Series are made at first use; label values come from small
// fixed sets, never from the wire.
#pragma once
#include "common/buffer.h"
#include <stdint.h>

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric {
    enum metric_kind kind;
    const char *name;
    const char *labels; // "lane,class"; "" for none; at most two
    const char *help;
};

// Replaces the registry's table; `table` is kept and indexed by the ids of the caller's enum.
void metrics_init(const struct metric *table, int count);
void metric_add(int id, const char *label_1, const char *label_2, double amount); // counters
void metric_set(int id, const char *label_1, const char *label_2, double value);  // gauges
void metric_observe(int id, const char *label_1, double seconds);                 // histograms, 1 ms to 60 s
double metric_value(int id, const char *label_1, const char *label_2);            // 0 when never set; for tests
void metrics_write(struct buffer *buffer); // the whole registry, plus rowbell_build_info
void metrics_free(void);
