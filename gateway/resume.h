// resume: what a client that shows a Last-Event-ID is owed: nothing yet (fresh), the events since (replay), or the
// news that they cannot be told (reset). Pure. The rules: docs/stream.md.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum resume_ask_kind { RESUME_ASK_FRESH, RESUME_ASK_POSITION, RESUME_ASK_UNREADABLE };
struct resume_ask {
    enum resume_ask_kind kind;
    int64_t position; // with RESUME_ASK_POSITION
};

// text comes from whoever connects. NULL, "" and "0" are fresh; a position is 1 to 19 digits, no sign, no leading zero,
// that fit int64_t; everything else is unreadable.
struct resume_ask resume_ask_parse(const char *text);
// The newer of two that one request shows: a position is newer than none and than an unreadable one, which cannot have
// come from us.
struct resume_ask resume_ask_newer(struct resume_ask a, struct resume_ask b);

// Stable strings on the wire (openapi.json lists them).
enum reset_reason {
    RESET_HISTORY_EXPIRED, // the position is older than what the log keeps
    RESET_ID_UNREADABLE,   // it is not a position
    RESET_ID_AHEAD,        // it is newer than anything in the log
    RESET_REPLAY_LIMIT,    // more happened since than is replayed
    RESET_STREAM_REWOUND,  // the database lost what was sent (a restore, a failover): it is between, yet not there
    RESET_STREAM_DAMAGED,  // an entry could not be appended: nobody knows who should have seen it
    RESET_REASON_COUNT
};
const char *reset_reason_name(enum reset_reason reason);

// What the log (or the ring, which is its newest part) says about a position.
struct resume_facts {
    bool primary;     // the primary says so (or the ring, which follows it); a copy may lag
    bool holds_head;  // it holds the gateway's head: the same history
    bool holds;       // the log holds the position asked for
    int64_t oldest;   // of the log; read only when it does not hold it
    int64_t newest;   // of the log
    size_t missed;    // events after it that this client may see; may stop counting at max_replay + 1
    bool over_budget; // there were too many rows to look through
};

enum resume_kind {
    RESUME_REPLAY,
    RESUME_RESET,
    RESUME_LAGGING, // the answer came from a database that cannot know (a copy, one behind us): ask again, ask the
                    // primary
};
struct resume_decision {
    enum resume_kind kind;
    enum reset_reason reason; // with RESUME_RESET
};
struct resume_decision resume_decide(int64_t asked, int64_t head, size_t max_replay, const struct resume_facts *facts);
// Why a position that the log does not hold is not there.
enum reset_reason resume_absence(int64_t position, int64_t oldest, int64_t newest);
