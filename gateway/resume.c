#include "gateway/resume.h"
#include <assert.h>

static const char *const reason_names[RESET_REASON_COUNT] = {
    [RESET_HISTORY_EXPIRED] = "history_expired",
    [RESET_ID_UNREADABLE] = "id_unreadable",
    [RESET_ID_AHEAD] = "id_ahead",
    [RESET_REPLAY_LIMIT] = "replay_limit",
    [RESET_STREAM_REWOUND] = "stream_rewound",
    [RESET_STREAM_DAMAGED] = "stream_damaged",
};

const char *reset_reason_name(enum reset_reason reason) {
    assert((unsigned)reason < RESET_REASON_COUNT);
    return reason_names[reason];
}

struct resume_ask resume_ask_parse(const char *text) {
    const struct resume_ask unreadable = {RESUME_ASK_UNREADABLE, 0};
    if (!text || text[0] == '\0' || (text[0] == '0' && text[1] == '\0')) {
        return (struct resume_ask){RESUME_ASK_FRESH, 0};
    }
    if (text[0] == '0') {
        return unreadable;
    }
    int64_t position = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || __builtin_mul_overflow(position, 10, &position) ||
            __builtin_add_overflow(position, *c - '0', &position)) {
            return unreadable;
        }
    }
    return (struct resume_ask){RESUME_ASK_POSITION, position};
}

struct resume_ask resume_ask_newer(struct resume_ask a, struct resume_ask b) {
    static const int ranks[] = {[RESUME_ASK_FRESH] = 0, [RESUME_ASK_UNREADABLE] = 1, [RESUME_ASK_POSITION] = 2};
    bool second = a.kind == b.kind ? b.position > a.position : ranks[b.kind] > ranks[a.kind];
    return second ? b : a;
}

enum reset_reason resume_absence(int64_t position, int64_t oldest, int64_t newest) {
    if (position < oldest) {
        return RESET_HISTORY_EXPIRED;
    }
    return position > newest ? RESET_ID_AHEAD : RESET_STREAM_REWOUND;
}

struct resume_decision resume_decide(int64_t asked, int64_t head, size_t max_replay, const struct resume_facts *facts) {
    if (facts->newest < head || !facts->holds_head) {
        return (struct resume_decision){.kind = RESUME_LAGGING};
    }
    if (!facts->holds) {
        // Another gateway may have shown it the primary's newest, which a copy does not have yet.
        if (asked > facts->newest && !facts->primary) {
            return (struct resume_decision){.kind = RESUME_LAGGING};
        }
        return (struct resume_decision){RESUME_RESET, resume_absence(asked, facts->oldest, facts->newest)};
    }
    if (facts->missed > max_replay || facts->over_budget) {
        return (struct resume_decision){RESUME_RESET, RESET_REPLAY_LIMIT};
    }
    return (struct resume_decision){.kind = RESUME_REPLAY};
}
