#include "dispatcher/lanes.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int concurrency, most;
    const char *why_most;
} lane_table[LANE_COUNT] = {
    [LANE_WEBHOOK] = {"webhook", 256, 10000, "each is a socket"},
    [LANE_INDEX] = {"index", 8, 64, "each is a batch"},
    [LANE_SSE] = {"sse", 1, 1, "appenders of a stream take turns"},
};

const char *lane_name(enum lane lane) {
    return lane_table[lane].name;
}

static bool lane_find(const char *text, size_t length, enum lane *ret_lane) {
    for (int lane = 0; lane < LANE_COUNT; lane++)
        if (strlen(lane_table[lane].name) == length && strncmp(lane_table[lane].name, text, length) == 0) {
            *ret_lane = (enum lane)lane;
            return true;
        }
    return false;
}

static bool read_lane(struct lanes *lanes, const char *word, int length, struct error *error) {
    enum lane lane;
    if (!lane_find(word, (size_t)length, &lane))
        return error_set(error, ERROR_USAGE, "--lanes: %.*s is no lane; lanes are webhook, index and sse", length,
                         word);
    lanes->wanted[lane] = true;
    return true;
}

static bool read_concurrency(struct lanes *lanes, const char *word, int length, struct error *error) {
    enum lane lane;
    const char *equals = memchr(word, '=', (size_t)length);
    if (!equals || !lane_find(word, (size_t)(equals - word), &lane))
        return error_set(error, ERROR_USAGE, "--concurrency: %.*s is not LANE=N; lanes are webhook, index and sse",
                         length, word);
    char *end;
    long value = strtol(equals + 1, &end, 10);
    if (end != word + length || end == equals + 1 || value < 1 || value > lane_table[lane].most)
        return error_set(error, ERROR_USAGE, "--concurrency: %.*s: from 1 to %d (%s)", length, word,
                         lane_table[lane].most, lane_table[lane].why_most);
    lanes->concurrency[lane] = (int)value;
    return true;
}

static bool each_word(const struct config_list *list, struct lanes *lanes,
                      bool (*read)(struct lanes *lanes, const char *word, int length, struct error *error),
                      struct error *error) {
    for (size_t i = 0; i < list->count; i++)
        for (const char *word = list->items[i]; *word;) {
            size_t length = strcspn(word, ",");
            if (!read(lanes, word, (int)length, error))
                return false;
            word += length + (word[length] == ',');
        }
    return true;
}

bool lanes_read(const struct config_list *names, const struct config_list *concurrency, struct lanes *ret_lanes,
                struct error *ret_error) {
    struct lanes lanes = {0};
    for (int lane = 0; lane < LANE_COUNT; lane++)
        lanes.concurrency[lane] = lane_table[lane].concurrency;
    if (!each_word(names, &lanes, read_lane, ret_error) || !each_word(concurrency, &lanes, read_concurrency, ret_error))
        return false;
    bool any = false;
    for (int lane = 0; lane < LANE_COUNT; lane++)
        any = any || lanes.wanted[lane];
    if (!any)
        return error_set(ret_error, ERROR_USAGE, "--lanes: name at least one of webhook, index, sse");
    *ret_lanes = lanes;
    return true;
}
