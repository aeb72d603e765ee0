#include "common/status_policy.h"
#include <string.h>

static const struct {
    const char *name;
    enum status_fate fate;
} fates[] = {
    {"delivered", STATUS_DELIVERED},
    {"retry", STATUS_RETRY},
    {"reject", STATUS_REJECT},
    {"disable", STATUS_DISABLE},
};

static enum status_fate fate_of(struct json_object *value) {
    const char *name = json_object_is_type(value, json_type_string) ? json_object_get_string(value) : "";
    for (size_t i = 0; i < sizeof fates / sizeof *fates; i++)
        if (strcmp(fates[i].name, name) == 0)
            return fates[i].fate;
    return STATUS_USUAL;
}

// "404" or "4xx".
static bool read_range(const char *text, short *ret_from, short *ret_to) {
    if (strlen(text) != 3 || text[0] < '2' || text[0] > '5')
        return false;
    int hundreds = (text[0] - '0') * 100;
    if (strcmp(text + 1, "xx") == 0) {
        *ret_from = (short)hundreds;
        *ret_to = (short)(hundreds + 99);
        return true;
    }
    if (strspn(text, "0123456789") != 3)
        return false;
    *ret_from = *ret_to = (short)(hundreds + (text[1] - '0') * 10 + (text[2] - '0'));
    return true;
}

bool status_policy_read(struct status_policy *policy, struct json_object *object, struct error *ret_error) {
    policy->count = 0;
    json_object_object_foreach(object, key, value) {
        if (policy->count == STATUS_POLICY_MAX)
            return error_set(ret_error, ERROR_USAGE, "statuses: at most %d", STATUS_POLICY_MAX);
        enum status_fate fate = fate_of(value);
        if (fate == STATUS_USUAL ||
            !read_range(key, &policy->rules[policy->count].from, &policy->rules[policy->count].to))
            return error_set(ret_error, ERROR_USAGE,
                             "statuses: %.60s: a status (404) or a class of them (4xx) is delivered, retry, reject or "
                             "disable",
                             key);
        policy->rules[policy->count++].fate = fate;
    }
    return true;
}

enum status_fate status_policy_find(const struct status_policy *policy, int status) {
    enum status_fate found = STATUS_USUAL;
    for (int i = 0; policy && i < policy->count; i++) {
        if (status < policy->rules[i].from || status > policy->rules[i].to)
            continue;
        if (policy->rules[i].from == policy->rules[i].to)
            return policy->rules[i].fate;
        found = policy->rules[i].fate;
    }
    return found;
}
