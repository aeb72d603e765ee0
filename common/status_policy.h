// status_policy: what a subscription makes of a receiver's statuses where it differs from the usual (outcome.c). Pure.
// Setting `statuses`: {"404": "retry", "4xx": "reject", "409": "delivered", "410": "reject"}; a status wins over its
// class.
#pragma once
#include "common/error.h"
#include <json-c/json.h>
#include <stdbool.h>

enum { STATUS_POLICY_MAX = 50 };

enum status_fate { STATUS_USUAL, STATUS_DELIVERED, STATUS_RETRY, STATUS_REJECT, STATUS_DISABLE };

struct status_policy {
    int count;
    struct {
        short from, to;
        enum status_fate fate;
    } rules[STATUS_POLICY_MAX];
};

// `object` is a JSON object (view). ERROR_USAGE names the entry that is none.
bool status_policy_read(struct status_policy *policy, struct json_object *object, struct error *ret_error);
enum status_fate status_policy_find(const struct status_policy *policy, int status); // policy may be NULL
