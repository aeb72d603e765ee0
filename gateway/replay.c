// The happy path is: WAITING in the queue, ASKED when a place is free, done. The failure modes are: a log that cannot
// know (a copy that lags or has another history: LATER, and after LAG_MS of its primary) and one that is away (the
// queue stands). Past PATIENCE_MS a request is done with an error: the client is sent away and comes back.
#include "gateway/replay.h"
#include "common/memory.h"
#include "gateway/frame.h"
#include "gateway/metrics.h"
#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

enum {
    IN_FLIGHT_MOST = 8,
    RETRY_MS = 100,
    LAG_MS = 5000,
    PATIENCE_MS = 10000,
};

struct replay_request {
    struct replay *replay;
    struct replay_request *prev, *next; // of `waiting` or `later`
    enum { WAITING, ASKED, LATER } state;
    bool cancelled; // while ASKED: the answer is dropped
    bool primary;   // the copy could not tell
    int64_t after;
    int64_t head;
    const struct table_filter *tables;
    const struct scope_rights *rights;
    uint64_t started_ms;
    replay_done *done;
    void *arg;
};

struct replay {
    struct stream_source source;
    size_t max_replay;
    size_t in_flight;
    struct replay_request *waiting;
    struct replay_request *later;
    uv_timer_t retry_timer;
    bool away; // the last answer was that nobody is there: the queue stands until the timer
    bool closing;
    int open; // the timer, and each read in flight
};

static void send_waiting(struct replay *replay);

static uint64_t now_ms(const struct replay *replay) {
    return replay->source.now_ms(replay->source.arg);
}

static void finish(struct replay_request *request, const struct replay_answer *answer, const struct error *error) {
    if (!request->cancelled) {
        metric_observe(METRIC_REPLAY_SECONDS, NULL, (double)(now_ms(request->replay) - request->started_ms) / 1000);
        request->done(request->arg, answer, error);
    }
    free(request);
}

static bool has_waited(const struct replay_request *request, uint64_t ms) {
    return now_ms(request->replay) - request->started_ms > ms;
}

static void on_retry_timer(uv_timer_t *timer) {
    struct replay *replay = timer->data;
    struct replay_request *request, *following;
    bool away = replay->away;
    replay->away = false;
    DL_CONCAT(replay->waiting, replay->later);
    replay->later = NULL;
    DL_FOREACH_SAFE(replay->waiting, request, following) {
        request->state = WAITING;
        if (away && has_waited(request, PATIENCE_MS)) {
            struct error error;
            error_set(&error, ERROR_CONNECT, "the log is away");
            DL_DELETE(replay->waiting, request);
            finish(request, NULL, &error);
        } else if (away && has_waited(request, LAG_MS)) {
            request->primary = true;
        }
    }
    send_waiting(replay);
}

static void ask_again_later(struct replay_request *request, const struct error *error) {
    struct replay *replay = request->replay;
    if (has_waited(request, PATIENCE_MS) || replay->closing) {
        finish(request, NULL, error);
        return;
    }
    request->primary = request->primary || has_waited(request, LAG_MS);
    request->state = LATER;
    DL_APPEND(replay->later, request);
    if (!uv_is_active((uv_handle_t *)&replay->retry_timer)) {
        uv_timer_start(&replay->retry_timer, on_retry_timer, RETRY_MS, 0);
    }
}

// Appends the events that pass the live filter, and counts them.
static size_t append_frames(const struct stream_missed *missed, const struct replay_request *request,
                            struct buffer *frames) {
    size_t count = 0;
    for (size_t i = 0; i < missed->count; i++) {
        struct frame *frame = frame_new(&missed->entries[i]);
        if (table_filter_holds(request->tables, frame->table) &&
            scope_rights_see(request->rights, frame_audience(frame))) {
            buffer_append(frames, frame->bytes, frame->length);
            count++;
        }
        frame_free(frame);
    }
    return count;
}

// A copy that is not behind but does not hold what we have, or does not know a position above its end: waiting longer
// would not make it know.
static bool only_the_primary_knows(const struct stream_missed *missed, int64_t head) {
    return !missed->primary && missed->newest >= head;
}

static void decide(struct replay_request *request, const struct stream_missed *missed) {
    struct buffer frames = {0};
    struct replay_answer answer = {.frames = &frames};
    answer.count = append_frames(missed, request, &frames);
    answer.decision =
        resume_decide(request->after, request->head, request->replay->max_replay,
                      &(struct resume_facts){
                          .primary = missed->primary,
                          .holds_head = missed->holds_head,
                          .holds = missed->holds,
                          .oldest = missed->oldest,
                          .newest = missed->newest,
                          // A full page is not all of it, whatever the live filter leaves of it.
                          .missed = missed->count > request->replay->max_replay ? missed->count : answer.count,
                          .over_budget = missed->over_budget,
                      });
    if (answer.decision.kind == RESUME_LAGGING) {
        struct error lagging;
        error_set(&lagging, ERROR_TIMEOUT, "the log that was asked does not have the stream's end");
        request->primary = request->primary || only_the_primary_knows(missed, request->head);
        ask_again_later(request, &lagging);
    } else {
        finish(request, &answer, NULL);
    }
    buffer_free(&frames);
}

static void closed_one(struct replay *replay) {
    if (--replay->open == 0) {
        free(replay);
    }
}

static void on_missed(void *arg, const struct stream_missed *missed, const struct error *error) {
    struct replay_request *request = arg;
    struct replay *replay = request->replay;
    replay->in_flight--;
    if (request->cancelled || (error && error->code != ERROR_CONNECT)) {
        finish(request, NULL, error);
    } else if (error) {
        replay->away = true;
        ask_again_later(request, error);
    } else {
        replay->away = false;
        decide(request, missed);
    }
    send_waiting(replay);
    closed_one(replay);
}

static void ask(struct replay_request *request) {
    struct replay *replay = request->replay;
    request->state = ASKED;
    replay->in_flight++;
    replay->open++;
    replay->source.read_missed(replay->source.arg,
                               &(struct stream_missed_ask){
                                   .after = request->after,
                                   .head = request->head,
                                   .limit = replay->max_replay + 1,
                                   .tables = request->tables,
                                   .rights = request->rights,
                                   .primary = request->primary,
                               },
                               on_missed, request);
}

static void send_waiting(struct replay *replay) {
    while (replay->waiting && replay->in_flight < IN_FLIGHT_MOST && !replay->away && !replay->closing) {
        struct replay_request *request = replay->waiting;
        DL_DELETE(replay->waiting, request);
        ask(request);
    }
}

struct replay *replay_new(uv_loop_t *loop, const struct stream_source *source, size_t max_replay) {
    struct replay *replay = memory_alloc(sizeof *replay);
    replay->source = *source;
    replay->max_replay = max_replay;
    replay->open = 1;
    uv_timer_init(loop, &replay->retry_timer);
    replay->retry_timer.data = replay;
    return replay;
}

struct replay_request *replay_start(struct replay *replay, int64_t after, int64_t head,
                                    const struct table_filter *tables, const struct scope_rights *rights,
                                    replay_done *done, void *arg) {
    struct replay_request *request = memory_alloc(sizeof *request);
    *request = (struct replay_request){
        .replay = replay,
        .state = WAITING,
        .after = after,
        .head = head,
        .tables = tables,
        .rights = rights,
        .started_ms = now_ms(replay),
        .done = done,
        .arg = arg,
    };
    DL_APPEND(replay->waiting, request);
    send_waiting(replay);
    return request;
}

void replay_cancel(struct replay_request *request) {
    if (!request) {
        return;
    }
    if (request->state == ASKED) {
        request->cancelled = true;
        request->tables = NULL; // the borrow ends here; nobody looks at the answer
        request->rights = NULL;
        return;
    }
    if (request->state == WAITING) {
        DL_DELETE(request->replay->waiting, request);
    } else {
        DL_DELETE(request->replay->later, request);
    }
    free(request);
}

static void on_timer_closed(uv_handle_t *handle) {
    closed_one(handle->data);
}

void replay_close(struct replay *replay) {
    if (!replay) {
        return;
    }
    assert(!replay->waiting && !replay->later);
    replay->closing = true;
    uv_close((uv_handle_t *)&replay->retry_timer, on_timer_closed);
}
