// hint: how often something that anybody may send makes us look at the database. Every login of a database may NOTIFY
// any channel with any payload, so a NOTIFY is a hint and never more: it is followed at once as long as hints are few,
// and at a steady pace when they come in a storm; none is dropped, several become one look. Pure.
#pragma once
#include <stdint.h>

struct hint_pace {
    unsigned every_ms; // a look
    unsigned burst;    // looks that may be spent at once
    uint64_t spent_ms; // until when the looks so far have been paid for
};

// When a hint that comes now may be followed: now_ms, or later.
static inline uint64_t hint_due_ms(const struct hint_pace *pace, uint64_t now_ms) {
    uint64_t credit_ms = (uint64_t)pace->every_ms * pace->burst;
    return pace->spent_ms > now_ms + credit_ms ? pace->spent_ms - credit_ms : now_ms;
}

// A look that a hint has caused.
static inline void hint_spend(struct hint_pace *pace, uint64_t now_ms) {
    pace->spent_ms = (pace->spent_ms > now_ms ? pace->spent_ms : now_ms) + pace->every_ms;
}
