#include "dispatcher/endpoint.h"
#include "common/log.h"
#include "common/memory.h"
#include "dispatcher/shard.h"
#include <assert.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_IN_FLIGHT_MOST = 1000 };

static bool read_max_in_flight(const char *settings, int *ret_value, struct error *ret_error) {
    struct json_object *root = json_tokener_parse(settings), *value = NULL;
    bool ok = true;
    *ret_value = ENDPOINT_MAX_IN_FLIGHT;
    if (json_object_is_type(root, json_type_object) && json_object_object_get_ex(root, "max_in_flight", &value) &&
        value) {
        int64_t number = json_object_get_int64(value);
        if (!json_object_is_type(value, json_type_int) || number < 1 || number > MAX_IN_FLIGHT_MOST)
            ok = error_set(ret_error, ERROR_USAGE, "settings.max_in_flight is not a number from 1 to %d",
                           MAX_IN_FLIGHT_MOST);
        else
            *ret_value = (int)number;
    }
    json_object_put(root);
    return ok;
}

static void read_secrets(struct subscription *subscription, const char *json) {
    struct json_object *array = json_tokener_parse(json);
    size_t count = json_object_is_type(array, json_type_array) ? json_object_array_length(array) : 0;
    subscription->secrets = memory_alloc(sizeof(char *) * (count + 1));
    for (size_t i = 0; i < count; i++)
        subscription->secrets[i] = memory_copy_text(json_object_get_string(json_object_array_get_idx(array, i)));
    subscription->secret_count = (int)count;
    json_object_put(array);
}

static struct endpoint_version *version_new(const struct sink *sink, const struct subscription_change *change) {
    struct endpoint_version *version = memory_alloc(sizeof *version);
    version->subscription = (struct subscription){.id = change->id,
                                                  .name = memory_copy_text(change->name),
                                                  .kind = memory_copy_text(change->kind),
                                                  .state = memory_copy_text(change->state),
                                                  .ordered = change->ordered,
                                                  .settings = memory_copy_text(change->settings)};
    read_secrets(&version->subscription, change->secrets);
    version->uses = 1;
    version->max_in_flight = ENDPOINT_MAX_IN_FLIGHT;
    retry_schedule_default(&version->schedule);
    version->prepared = read_max_in_flight(change->settings, &version->max_in_flight, &version->fault) &&
                        retry_schedule_from_settings(change->settings, &version->schedule, &version->fault) &&
                        sink->prepare(sink->arg, &version->subscription, &version->fault);
    if (!version->prepared)
        log_warn("subscription_unusable", LOG_TEXT("subscription", change->name),
                 LOG_TEXT("error", version->fault.text));
    return version;
}

static void version_release(const struct sink *sink, struct endpoint_version *version) {
    if (!version || --version->uses > 0)
        return;
    struct subscription *subscription = &version->subscription;
    if (version->prepared)
        sink->forget(sink->arg, subscription);
    for (int i = 0; i < subscription->secret_count; i++) {
        explicit_bzero(subscription->secrets[i], strlen(subscription->secrets[i]));
        free(subscription->secrets[i]);
    }
    free(subscription->secrets);
    free(subscription->name);
    free(subscription->kind);
    free(subscription->state);
    free(subscription->settings);
    free(version);
}

void endpoint_table_init(struct endpoint_table *table, const struct sink *sink) {
    *table = (struct endpoint_table){.sink = sink};
}

static void endpoint_free(struct endpoint_table *table, struct endpoint *endpoint) {
    HASH_DEL(table->by_id, endpoint);
    version_release(table->sink, endpoint->version);
    free(endpoint->row_version);
    free(endpoint);
}

void endpoint_table_close(struct endpoint_table *table) {
    struct endpoint *endpoint, *next;
    HASH_ITER(hh, table->by_id, endpoint, next) {
        endpoint_free(table, endpoint);
    }
}

struct endpoint *endpoint_find(const struct endpoint_table *table, int id) {
    struct endpoint *endpoint;
    HASH_FIND_INT(table->by_id, &id, endpoint);
    return endpoint && !endpoint->gone ? endpoint : NULL;
}

void endpoint_table_apply(struct endpoint_table *table, const struct subscription_change *change, uint64_t now_ms) {
    struct endpoint *endpoint;
    HASH_FIND_INT(table->by_id, &change->id, endpoint);
    if (!change->name) {
        if (endpoint && endpoint->in_flight == 0)
            endpoint_free(table, endpoint);
        else if (endpoint)
            endpoint->gone = true;
        return;
    }
    if (!endpoint) {
        endpoint = memory_alloc(sizeof *endpoint);
        endpoint->id = change->id;
        HASH_ADD_INT(table->by_id, id, endpoint);
    }
    version_release(table->sink, endpoint->version);
    endpoint->version = version_new(table->sink, change);
    free(endpoint->row_version);
    endpoint->row_version = memory_copy_text(change->version);
    endpoint->gone = false;
    endpoint->hungry = true;
    if (change->pause_ms)
        endpoint->quiet_until_ms = now_ms + change->pause_ms;
}

void endpoint_wake(struct endpoint_table *table, uint64_t shards) {
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (shards & shard_bit(shard_of(endpoint->id)))
            endpoint->hungry = true;
}

static int slots_of(const struct endpoint *endpoint, uint64_t shards, uint64_t now_ms) {
    if (!endpoint->hungry || endpoint->gone || endpoint->quiet_until_ms > now_ms ||
        !(shards & shard_bit(shard_of(endpoint->id))) || strcmp(endpoint->version->subscription.state, "active") != 0)
        return 0;
    int slots = endpoint->version->max_in_flight - endpoint->in_flight - endpoint->foreign_leases;
    return slots > 0 ? slots : 0;
}

size_t endpoint_choose(struct endpoint_table *table, uint64_t shards, int free_slots, uint64_t now_ms,
                       struct job_claim *ret_claims, size_t most) {
    int wanting = 0;
    for (struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        wanting += slots_of(endpoint, shards, now_ms) > 0;
    if (wanting == 0 || free_slots <= 0)
        return 0;
    int share = free_slots / wanting > 1 ? free_slots / wanting : 1;
    struct endpoint *start;
    HASH_FIND_INT(table->by_id, &table->last_served, start);
    start = start && start->hh.next ? start->hh.next : table->by_id;
    size_t count = 0;
    struct endpoint *endpoint = start;
    do {
        int slots = slots_of(endpoint, shards, now_ms);
        if (slots > share)
            slots = share;
        if (slots > free_slots)
            slots = free_slots;
        if (slots > 0) {
            ret_claims[count++] = (struct job_claim){.subscription_id = endpoint->id, .slots = slots};
            free_slots -= slots;
            endpoint->hungry = false;
            table->last_served = endpoint->id;
        }
        endpoint = endpoint->hh.next ? endpoint->hh.next : table->by_id;
    } while (endpoint != start && count < most && free_slots > 0);
    return count;
}

bool endpoint_any_hungry(const struct endpoint_table *table, uint64_t shards, uint64_t now_ms) {
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (slots_of(endpoint, shards, now_ms) > 0)
            return true;
    return false;
}

uint64_t endpoint_busy_shards(const struct endpoint_table *table) {
    uint64_t busy = 0;
    for (const struct endpoint *endpoint = table->by_id; endpoint; endpoint = endpoint->hh.next)
        if (endpoint->in_flight > 0)
            busy |= shard_bit(shard_of(endpoint->id));
    return busy;
}

struct endpoint_version *endpoint_begin(struct endpoint *endpoint) {
    endpoint->in_flight++;
    endpoint->version->uses++;
    return endpoint->version;
}

void endpoint_end(struct endpoint_table *table, struct endpoint *endpoint, struct endpoint_version *version) {
    assert(endpoint->in_flight > 0);
    endpoint->in_flight--;
    version_release(table->sink, version);
    if (endpoint->gone && endpoint->in_flight == 0)
        endpoint_free(table, endpoint);
}
