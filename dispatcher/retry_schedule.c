#include "dispatcher/retry_schedule.h"
#include <assert.h>
#include <json-c/json.h>
#include <string.h>

#define SECOND ((uint64_t)1000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

static const uint64_t default_delays_ms[] = {
    5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR,
};
static const double jitter_share = 0.2;
enum { FAILURES_MOST = 30000 }; // jobs.attempts is a smallint

void retry_schedule_default(struct retry_schedule *schedule) {
    schedule->forever = false;
    schedule->count = (int)(sizeof default_delays_ms / sizeof default_delays_ms[0]);
    memcpy(schedule->delay_ms, default_delays_ms, sizeof default_delays_ms);
}

static bool read_delays(struct json_object *retry, struct retry_schedule *schedule, struct error *error) {
    if (!json_object_is_type(retry, json_type_array))
        return error_set(error, ERROR_USAGE, "settings.retry is not an array of milliseconds");
    size_t count = json_object_array_length(retry);
    if (count > RETRY_SCHEDULE_MOST)
        return error_set(error, ERROR_USAGE, "settings.retry has %zu delays; at most %d are allowed", count,
                         RETRY_SCHEDULE_MOST);
    schedule->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        struct json_object *item = json_object_array_get_idx(retry, i);
        if (!json_object_is_type(item, json_type_int) || json_object_get_int64(item) < 0 ||
            (uint64_t)json_object_get_int64(item) > RETRY_DELAY_MOST_MS)
            return error_set(error, ERROR_USAGE, "settings.retry[%zu] is not a number of milliseconds up to 30 days",
                             i);
        schedule->delay_ms[i] = (uint64_t)json_object_get_int64(item);
    }
    return true;
}

bool retry_schedule_from_settings(const char *settings, struct retry_schedule *ret_schedule, struct error *ret_error) {
    struct json_object *root = json_tokener_parse(settings);
    struct json_object *retry = NULL;
    struct retry_schedule schedule;
    retry_schedule_default(&schedule);
    bool ok = true;
    if (json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "retry", &retry) && retry)
        ok = read_delays(retry, &schedule, ret_error);
    if (json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "retry_forever", &retry))
        schedule.forever = json_object_get_boolean(retry);
    if (ok)
        *ret_schedule = schedule;
    json_object_put(root);
    return ok;
}

bool retry_schedule_next(const struct retry_schedule *schedule, int failures, uint64_t after_ms, double unit,
                         uint64_t *ret_delay_ms) {
    assert(failures >= 1);
    if (failures > schedule->count && schedule->forever && schedule->count > 0 && failures < FAILURES_MOST)
        failures = schedule->count;
    if (failures > schedule->count)
        return false;
    double delay = (double)schedule->delay_ms[failures - 1] * (1 - jitter_share + 2 * jitter_share * unit);
    uint64_t delay_ms = (uint64_t)(delay + 0.5);
    *ret_delay_ms = delay_ms > after_ms ? delay_ms : after_ms;
    return true;
}
