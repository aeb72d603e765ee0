#include "common/metrics.h"
#include "common/memory.h"
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { MAX_LABELS = 2 };

// The upper bounds of a histogram's buckets, in seconds. One more bucket (+Inf) follows.
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
enum { BUCKETS = sizeof bounds / sizeof bounds[0] + 1 };

struct series {
    UT_hash_handle hh;
    double value;      // of a counter or gauge; of a histogram the sum
    uint64_t *buckets; // histograms only: how many fell into each, not cumulated
    char key[];        // the labels as they are written: `lane="webhook",class="delivered"`
};

static struct {
    const struct metric *table;
    int count;
    struct series **series; // one hash table a metric
} registry;

void metrics_init(const struct metric *table, int count) {
    metrics_free();
    registry.table = table;
    registry.count = count;
    registry.series = memory_alloc((size_t)count * sizeof registry.series[0]);
    // A metric without labels is there from the start: rate() and alerts then see it leave 0.
    for (int id = 0; id < count; id++) {
        if (table[id].labels[0] != '\0')
            continue;
        if (table[id].kind == METRIC_COUNTER)
            metric_add(id, NULL, NULL, 0);
        else if (table[id].kind == METRIC_GAUGE)
            metric_set(id, NULL, NULL, 0);
    }
}

// Prometheus exposition format 0.0.4: in label values \, " and newline are escaped.
static void append_label_value(struct buffer *buffer, const char *value) {
    for (const char *c = value; *c != '\0'; c++) {
        if (*c == '\n')
            buffer_text(buffer, "\\n");
        else if (*c == '"' || *c == '\\')
            buffer_format(buffer, "\\%c", *c);
        else
            buffer_char(buffer, *c);
    }
}

static void append_labels(struct buffer *key, const struct metric *metric, const char *const *values) {
    const char *names = metric->labels;
    for (int i = 0; i < MAX_LABELS; i++) {
        // As many values as the table names labels: anything else is a mistake in the caller.
        assert((names[0] != '\0') == (values[i] != NULL));
        if (values[i] == NULL)
            continue;
        size_t length = strcspn(names, ",");
        if (i > 0)
            buffer_char(key, ',');
        buffer_append(key, names, length);
        buffer_text(key, "=\"");
        append_label_value(key, values[i]);
        buffer_char(key, '"');
        names += length;
        names += names[0] == ',';
    }
    assert(names[0] == '\0');
}

// create false: NULL when there is none.
static struct series *series_find(int id, enum metric_kind kind, const char *label_1, const char *label_2,
                                  bool create) {
    assert(id >= 0 && id < registry.count);
    const struct metric *metric = &registry.table[id];
    assert(metric->kind == kind);
    static struct buffer key; // kept for its memory
    buffer_clear(&key);
    append_labels(&key, metric, (const char *const[]){label_1, label_2});
    struct series *series = NULL;
    HASH_FIND(hh, registry.series[id], buffer_cstr(&key), key.length, series);
    if (series == NULL && create) {
        series = memory_alloc(sizeof *series + key.length + 1);
        memcpy(series->key, buffer_cstr(&key), key.length + 1);
        if (kind == METRIC_HISTOGRAM)
            series->buckets = memory_alloc(BUCKETS * sizeof series->buckets[0]);
        HASH_ADD_KEYPTR(hh, registry.series[id], series->key, key.length, series);
    }
    return series;
}

void metric_add(int id, const char *label_1, const char *label_2, double amount) {
    assert(amount >= 0); // a counter that falls looks like a restart
    series_find(id, METRIC_COUNTER, label_1, label_2, true)->value += amount;
}

void metric_set(int id, const char *label_1, const char *label_2, double value) {
    series_find(id, METRIC_GAUGE, label_1, label_2, true)->value = value;
}

void metric_observe(int id, const char *label_1, double seconds) {
    struct series *series = series_find(id, METRIC_HISTOGRAM, label_1, NULL, true);
    size_t bucket = 0;
    while (bucket < BUCKETS - 1 && seconds > bounds[bucket])
        bucket++;
    series->buckets[bucket]++;
    series->value += seconds;
}

double metric_value(int id, const char *label_1, const char *label_2) {
    const struct series *series = series_find(id, registry.table[id].kind, label_1, label_2, false);
    return series == NULL ? 0 : series->value;
}

static void write_number(struct buffer *out, double value) {
    if (isnan(value))
        buffer_text(out, "NaN");
    else if (isinf(value))
        buffer_text(out, value > 0 ? "+Inf" : "-Inf");
    else if (value == floor(value) && fabs(value) < 9e15)
        buffer_format(out, "%" PRId64, (int64_t)value); // counters and positions stay readable
    else
        buffer_format(out, "%.10g", value);
}

static void write_line(struct buffer *out, const char *name, const char *suffix, const char *labels, double value) {
    buffer_format(out, "%s%s", name, suffix);
    if (labels[0] != '\0')
        buffer_format(out, "{%s}", labels);
    buffer_char(out, ' ');
    write_number(out, value);
    buffer_char(out, '\n');
}

static void write_histogram(struct buffer *out, const char *name, const struct series *series) {
    uint64_t total = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        total += series->buckets[i];
        buffer_format(out, "%s_bucket{%s%sle=\"", name, series->key, series->key[0] != '\0' ? "," : "");
        write_number(out, i < BUCKETS - 1 ? bounds[i] : INFINITY);
        buffer_format(out, "\"} %" PRIu64 "\n", total);
    }
    write_line(out, name, "_sum", series->key, series->value);
    write_line(out, name, "_count", series->key, (double)total);
}

static void write_head(struct buffer *out, const struct metric *metric) {
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buffer_format(out, "# HELP %s ", metric->name);
    for (const char *c = metric->help; *c != '\0'; c++) {
        if (*c == '\n')
            buffer_text(out, "\\n");
        else if (*c == '\\')
            buffer_text(out, "\\\\");
        else
            buffer_char(out, *c);
    }
    buffer_format(out, "\n# TYPE %s %s\n", metric->name, kinds[metric->kind]);
}

void metrics_write(struct buffer *out) {
    for (int id = 0; id < registry.count; id++) {
        const struct metric *metric = &registry.table[id];
        write_head(out, metric);
        for (const struct series *series = registry.series[id]; series != NULL; series = series->hh.next) {
            if (metric->kind == METRIC_HISTOGRAM)
                write_histogram(out, metric->name, series);
            else
                write_line(out, metric->name, "", series->key, series->value);
        }
    }
    write_head(out,
               &(struct metric){METRIC_GAUGE, "rowbell_build_info", "version", "1, with the version of this build"});
    buffer_text(out, "rowbell_build_info{version=\"" ROWBELL_VERSION "\"} 1\n");
}

void metrics_free(void) {
    for (int id = 0; id < registry.count; id++) {
        struct series *series;
        struct series *next;
        HASH_ITER(hh, registry.series[id], series, next) {
            HASH_DEL(registry.series[id], series);
            free(series->buckets);
            free(series);
        }
    }
    free(registry.series);
    registry.table = NULL;
    registry.count = 0;
    registry.series = NULL;
}
