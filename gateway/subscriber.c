// A subscriber's states:
//
//   JOINING --the log's answer--> LIVE --peer gone, too slow, drain--> CLOSED --uv_close--> freed
//      ^  |                        |
//      |  +---(the same ends)------|--> CLOSED
//      +----the ring overran-------+
//
// JOINING waits for what the log says about its position; what is appended meanwhile stays in the ring. If the ring
// holds the position already, a subscriber starts LIVE. Invariants of LIVE: every event that it may see with a position
// <= `position` was given to its socket (or came before it); `pending` of those after it are in the ring, the first of
// them at or after `cursor`; with a socket that is not full, pending is 0 after each write.
#include "gateway/subscriber.h"
#include "common/backoff.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include "gateway/frame.h"
#include "gateway/metrics.h"
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

enum {
    FRAMES_A_WRITE = 256,
    TICK_MS = 200,
    END_TICK_MS = 1000,
    // The default lets the kernel hold megabytes for a reader that is slow; then its slowness would not be seen.
    SEND_BUFFER_BYTES = 16384,
    // A peer that vanished without a word: by unanswered data, or by unanswered probes when there is none.
    UNACKNOWLEDGED_MS = 30000,
    KEEPALIVE_IDLE_S = 60,
    KEEPALIVE_INTERVAL_S = 10,
    KEEPALIVE_PROBES = 3,
};

enum subscriber_state { JOINING, LIVE, CLOSED };

struct subscriber {
    uv_tcp_t *socket; // owned; its data is the subscriber
    int fd;           // of the socket
    struct subscribers *all;
    struct subscriber *prev, *next; // of all->list, in the order of heartbeat_due_ms
    struct table_filter *tables;    // owned; NULL: all
    struct scope_rights *rights;    // owned; NULL: all, without `scoped`
    struct replay_request *joining; // with JOINING
    int64_t position;
    uint64_t cursor; // sequence in the ring
    uint64_t heartbeat_due_ms;
    uint32_t pending;
    uint16_t held_writes;
    uint8_t state : 2;
    bool ping : 1;
    uint32_t turn_first; // of all->glimpses, counted from 1; 0: it sees nothing of this turn
    uint32_t turn_last;
    struct admission_ticket ticket;
};

// One frame of the turn that one subscriber sees.
struct glimpse {
    uint64_t sequence;
    uint32_t next; // of the same subscriber, counted from 1; 0: the last
};

// Bytes that the socket did not take at once, and libuv's request for them: one block.
struct held_write {
    uv_write_t request;
    struct subscriber *subscriber;
    struct held_write *prev, *next; // of all->held
    uint64_t since_ms;              // the socket last took something
    size_t queue_seen;
    char bytes[];
};

struct subscribers {
    struct subscribers_options options;
    struct subscriber *list;
    struct held_write *held;
    size_t count;
    uint64_t flushed;         // sequence in the ring: everything before it was offered to everybody LIVE
    int64_t flushed_position; // the head at that time
    struct buffer turn;       // the frames of the turn that is being flushed, when there are several: one piece is
    uint64_t turn_begin;      // sent faster than many
    uint64_t turn_end;
    struct scope_index *index;
    struct subscriber **touched; // those who see something of the turn that is being flushed
    size_t touched_count;
    size_t touched_capacity;
    struct glimpse *glimpses; // what they see of it
    uint32_t glimpse_count;
    uint32_t glimpse_capacity;
    uint64_t glimpse_sequence; // the frame that is being looked at
    uint64_t next_end_ms;      // when the first grant ends; UINT64_MAX: none does
    uv_timer_t timer;
    size_t open;           // handles: the sockets, also those closing, and the timer
    char read_bytes[4096]; // what clients send is dropped; shared by all
};

static void subscriber_close(struct subscriber *subscriber, const char *reason);
static void subscriber_write(struct subscriber *subscriber);

// ---- what a subscriber may see ----

static bool subscriber_sees(const struct subscriber *subscriber, const struct frame *frame) {
    return frame->position > subscriber->position && table_filter_holds(subscriber->tables, frame->table) &&
           scope_rights_see(subscriber->rights, frame_audience(frame));
}

// How many entries of [begin, end) it may see; *ret_first is the first of them.
static size_t count_visible(const struct subscriber *subscriber, uint64_t begin, uint64_t end, uint64_t *ret_first) {
    const struct ring *ring = subscriber->all->options.ring;
    *ret_first = begin;
    if (begin == end ||
        (!subscriber->tables && !subscriber->rights && ring_at(ring, begin)->position > subscriber->position)) {
        return (size_t)(end - begin);
    }
    size_t count = 0;
    for (uint64_t s = begin; s < end; s++) {
        if (subscriber_sees(subscriber, ring_at(ring, s)) && count++ == 0) {
            *ret_first = s;
        }
    }
    return count;
}

// ---- the socket ----

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *ret_buf) {
    const struct subscriber *subscriber = handle->data;
    *ret_buf = uv_buf_init(subscriber->all->read_bytes, sizeof subscriber->all->read_bytes);
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
    if (count < 0) {
        subscriber_close(stream->data, "client");
    }
}

// On the listener, whose sockets inherit it: a call for each stream is a twentieth of what a stream costs. Keepalive is
// left out where heartbeats do its work: they are unanswered data, which TCP_USER_TIMEOUT ends.
void subscribers_tune(int listener, uint64_t heartbeat_ms) {
    static const struct {
        int level;
        int name;
        int value;
    } settings[] = {
        {SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES},
        {IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
    };
    enum { WITHOUT_KEEPALIVE = 2, ALL = sizeof settings / sizeof settings[0] };
    size_t count = heartbeat_ms <= 1000 * KEEPALIVE_IDLE_S ? WITHOUT_KEEPALIVE : ALL;
    for (size_t i = 0; i < count; i++) {
        // Without them a stream still works.
        setsockopt(listener, settings[i].level, settings[i].name, &settings[i].value, sizeof settings[i].value);
    }
}

// The last one frees: libuv closes handles in no promised order.
static void handle_closed(struct subscribers *all) {
    if (--all->open == 0) {
        assert(!all->held);
        scope_index_free(all->index);
        free(all->touched);
        free(all->glimpses);
        buffer_free(&all->turn);
        free(all);
    }
}

static void on_socket_closed(uv_handle_t *handle) {
    struct subscriber *subscriber = handle->data;
    struct subscribers *all = subscriber->all;
    table_filter_free(subscriber->tables);
    scope_rights_free(subscriber->rights);
    free(subscriber->socket);
    free(subscriber);
    handle_closed(all);
}

static void subscriber_close(struct subscriber *subscriber, const char *reason) {
    struct subscribers *all = subscriber->all;
    if (subscriber->state == CLOSED) {
        return;
    }
    replay_cancel(subscriber->joining);
    subscriber->joining = NULL;
    subscriber->state = CLOSED;
    admission_give_back(all->options.admission, &subscriber->ticket);
    DL_DELETE(all->list, subscriber);
    all->count--;
    metric_add(METRIC_STREAM_DISCONNECTS, reason, NULL, 1);
    log_debug("stream_closed", LOG_TEXT("reason", reason), LOG_INT("position", subscriber->position));
    uv_close((uv_handle_t *)subscriber->socket, on_socket_closed);
}

static void on_held_written(uv_write_t *request, int status) {
    struct held_write *held = request->data;
    struct subscriber *subscriber = held->subscriber;
    DL_DELETE(subscriber->all->held, held);
    subscriber->held_writes--;
    free(held);
    if (subscriber->state == CLOSED) {
        return; // freed when the socket's close is done, which is after this
    }
    if (status < 0) {
        subscriber_close(subscriber, "client");
    } else {
        subscriber_write(subscriber);
    }
}

// libuv writes these bytes as the socket takes them. They are copied: the ring goes on without this subscriber.
static void subscriber_hold(struct subscriber *subscriber, const char *bytes, size_t length) {
    struct held_write *held = memory_alloc(sizeof *held + length);
    memcpy(held->bytes, bytes, length);
    held->request.data = held;
    held->subscriber = subscriber;
    held->since_ms = clock_ms();
    DL_APPEND(subscriber->all->held, held);
    subscriber->held_writes++;
    uv_buf_t buf = uv_buf_init(held->bytes, (unsigned)length);
    int rv = uv_write(&held->request, (uv_stream_t *)subscriber->socket, &buf, 1, on_held_written);
    if (rv < 0) {
        on_held_written(&held->request, rv);
    }
}

// Writes what the socket takes now; nothing may be held. Not uv_try_write: an event goes to thousands of sockets, and
// each visit to libuv's handle is one more cache miss.
static ssize_t socket_write(int fd, const uv_buf_t *bufs, unsigned count) {
    struct msghdr message = {.msg_iov = (struct iovec *)bufs, .msg_iovlen = count};
    ssize_t written;
    do {
        written = count == 1 ? send(fd, bufs[0].base, bufs[0].len, MSG_NOSIGNAL) : sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (written < 0 && errno == EINTR);
    return written < 0 && (errno == EAGAIN || errno == ENOBUFS) ? 0 : written;
}

// Bytes for this subscriber only, in their turn behind what is held.
static void subscriber_send(struct subscriber *subscriber, const char *bytes, size_t length) {
    ssize_t written = 0;
    if (subscriber->held_writes == 0) {
        uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)length);
        written = socket_write(subscriber->fd, &buf, 1);
    }
    if (written < 0) {
        subscriber_close(subscriber, "client");
    } else if ((size_t)written < length) {
        subscriber_hold(subscriber, bytes + written, length - (size_t)written);
    }
}

// When to come back; only on a frame's boundary.
static void subscriber_say_goodbye(struct subscriber *subscriber, uint64_t retry_ms) {
    if (subscriber->held_writes == 0) {
        struct buffer text = {0};
        frame_append_retry(&text, retry_ms);
        subscriber_send(subscriber, text.bytes, text.length);
        buffer_free(&text);
    }
}

// ---- from the ring ----

static void subscriber_join(struct subscriber *subscriber);

static bool is_turn(const struct subscribers *all, const uint64_t *sequences, unsigned count) {
    return count > 1 && count == all->turn_end - all->turn_begin && sequences[0] == all->turn_begin &&
           sequences[count - 1] == all->turn_end - 1;
}

static void turn_make(struct subscribers *all, uint64_t begin, uint64_t end) {
    buffer_clear(&all->turn);
    all->turn_begin = begin;
    all->turn_end = end - begin > 1 && end - begin <= FRAMES_A_WRITE ? end : begin;
    for (uint64_t s = begin; s < all->turn_end; s++) {
        const struct frame *frame = ring_at(all->options.ring, s);
        buffer_append(&all->turn, frame->bytes, frame->length);
    }
}

// One write of as much as the socket takes of these frames, the first ones that are pending. Returns false when there
// is nothing more to do now.
static bool subscriber_write_frames(struct subscriber *subscriber, const uint64_t *sequences, unsigned count) {
    const struct subscribers *all = subscriber->all;
    uv_buf_t bufs[FRAMES_A_WRITE];
    for (unsigned i = 0; i < count; i++) {
        const struct frame *frame = ring_at(all->options.ring, sequences[i]);
        bufs[i] = uv_buf_init((char *)frame->bytes, (unsigned)frame->length);
    }
    uv_buf_t turn = uv_buf_init(all->turn.bytes, (unsigned)all->turn.length);
    ssize_t written = is_turn(all, sequences, count) ? socket_write(subscriber->fd, &turn, 1)
                                                     : socket_write(subscriber->fd, bufs, count);
    if (written < 0) {
        subscriber_close(subscriber, "client");
        return false;
    }
    size_t left = (size_t)written;
    for (unsigned i = 0; i < count; i++) {
        subscriber->position = ring_at(all->options.ring, sequences[i])->position;
        subscriber->cursor = sequences[i] + 1;
        subscriber->pending--;
        if (left < bufs[i].len) {
            // The socket is full. libuv waits for it with the rest of this frame; those behind it stay in the ring.
            subscriber_hold(subscriber, bufs[i].base + left, bufs[i].len - left);
            return false;
        }
        left -= bufs[i].len;
    }
    return true;
}

static bool subscriber_write_some(struct subscriber *subscriber) {
    uint64_t sequences[FRAMES_A_WRITE];
    unsigned count = 0;
    for (uint64_t s = subscriber->cursor; count < FRAMES_A_WRITE && count < subscriber->pending; s++) {
        if (subscriber_sees(subscriber, ring_at(subscriber->all->options.ring, s))) {
            sequences[count++] = s;
        }
    }
    return subscriber_write_frames(subscriber, sequences, count);
}

static void subscriber_write(struct subscriber *subscriber) {
    const struct subscribers *all = subscriber->all;
    while (subscriber->state == LIVE && subscriber->pending > 0 && subscriber->held_writes == 0) {
        if (subscriber->cursor < ring_begin(all->options.ring)) {
            subscriber_join(subscriber); // what it has not taken is only in the log by now
            return;
        }
        if (!subscriber_write_some(subscriber)) {
            break;
        }
    }
    if (subscriber->state == LIVE && subscriber->pending > all->options.buffer) {
        subscriber_close(subscriber, "slow");
    }
}

// `count` more are pending, the first of them at `first`. Returns whether nothing was before.
static bool subscriber_add_pending(struct subscriber *subscriber, uint64_t first, size_t count) {
    bool none = subscriber->pending == 0;
    if (none) {
        int64_t before = ring_at(subscriber->all->options.ring, first)->prev;
        subscriber->cursor = first;
        // Nothing that it may see lies in between, so this is where it would resume if the ring left it behind.
        subscriber->position = before > subscriber->position ? before : subscriber->position;
    }
    subscriber->pending += (uint32_t)count;
    return none;
}

static void subscriber_advance(struct subscriber *subscriber, uint64_t begin, uint64_t end) {
    uint64_t first;
    size_t count = count_visible(subscriber, begin, end, &first);
    if (count > 0) {
        subscriber_add_pending(subscriber, first, count);
        subscriber_write(subscriber);
    }
}

// More than the ring holds was appended in one turn: the log has it.
static void subscriber_overrun(struct subscriber *subscriber) {
    if (subscriber->pending > 0) {
        return; // it will find its cursor gone when its socket has room
    }
    if (subscriber->position < subscriber->all->flushed_position) {
        subscriber->position = subscriber->all->flushed_position;
    }
    subscriber_join(subscriber);
}

// A mark resets everybody.
static void count_marks(const struct subscribers *all, uint64_t begin, uint64_t end) {
    for (uint64_t s = begin; s < end; s++) {
        if (!ring_at(all->options.ring, s)->table) {
            metric_add(METRIC_STREAM_RESETS, reset_reason_name(RESET_STREAM_DAMAGED), NULL, (double)all->count);
        }
    }
}

static void flush_to_everybody(struct subscribers *all, uint64_t begin, uint64_t end, bool overrun) {
    struct subscriber *subscriber, *following;
    DL_FOREACH_SAFE(all->list, subscriber, following) {
        __builtin_prefetch(following); // it comes from memory while the kernel writes for this one
        if (subscriber->state == LIVE && overrun) {
            subscriber_overrun(subscriber);
        } else if (subscriber->state == LIVE) {
            subscriber_advance(subscriber, begin, end);
        }
    }
}

static void on_audience(void *arg, void *member) {
    struct subscribers *all = arg;
    struct subscriber *subscriber = member;
    const struct frame *frame = ring_at(all->options.ring, all->glimpse_sequence);
    if (subscriber->state != LIVE || frame->position <= subscriber->position ||
        !table_filter_holds(subscriber->tables, frame->table)) {
        return;
    }
    if (all->glimpse_count == all->glimpse_capacity) {
        all->glimpse_capacity = all->glimpse_capacity > 0 ? 2 * all->glimpse_capacity : 64;
        all->glimpses = memory_resize(all->glimpses, all->glimpse_capacity, sizeof *all->glimpses);
    }
    all->glimpses[all->glimpse_count++] = (struct glimpse){.sequence = all->glimpse_sequence};
    if (subscriber->turn_first != 0) {
        all->glimpses[subscriber->turn_last - 1].next = all->glimpse_count;
        subscriber->turn_last = all->glimpse_count;
        return;
    }
    if (all->touched_count == all->touched_capacity) {
        all->touched_capacity = all->touched_capacity > 0 ? 2 * all->touched_capacity : 64;
        all->touched = memory_resize(all->touched, all->touched_capacity, sizeof *all->touched);
    }
    subscriber->turn_first = subscriber->turn_last = all->glimpse_count;
    all->touched[all->touched_count++] = subscriber;
}

// What it sees of the turn is known, so nothing is searched for as long as its socket keeps up.
static void subscriber_take_glimpses(struct subscriber *subscriber) {
    const struct subscribers *all = subscriber->all;
    uint64_t sequences[FRAMES_A_WRITE];
    unsigned gathered = 0;
    size_t count = 0;
    for (uint32_t at = subscriber->turn_first; at != 0; at = all->glimpses[at - 1].next) {
        if (count++ < FRAMES_A_WRITE) {
            sequences[gathered++] = all->glimpses[at - 1].sequence;
        }
    }
    subscriber->turn_first = subscriber->turn_last = 0;
    if (subscriber->state != LIVE || gathered == 0) {
        return;
    }
    bool up_to_date = subscriber_add_pending(subscriber, sequences[0], count);
    if (up_to_date && subscriber->held_writes == 0) {
        subscriber_write_frames(subscriber, sequences, gathered);
    }
    subscriber_write(subscriber);
}

// First who sees what of the turn, then one write each: nobody else is looked at.
static void flush_by_scope(struct subscribers *all, uint64_t begin, uint64_t end) {
    all->touched_count = 0;
    all->glimpse_count = 0;
    for (uint64_t s = begin; s < end; s++) {
        all->glimpse_sequence = s;
        scope_index_each(all->index, frame_audience(ring_at(all->options.ring, s)), on_audience, all);
    }
    for (size_t i = 0; i < all->touched_count; i++) {
        subscriber_take_glimpses(all->touched[i]);
    }
}

void subscribers_flush(struct subscribers *all) {
    const struct ring *ring = all->options.ring;
    uint64_t begin = all->flushed;
    uint64_t end = ring_end(ring);
    if (begin == end) {
        return;
    }
    bool overrun = begin < ring_begin(ring);
    all->flushed = end;
    count_marks(all, overrun ? ring_begin(ring) : begin, end);
    turn_make(all, overrun ? end : begin, end);
    if (overrun || !all->options.scoped) {
        flush_to_everybody(all, begin, end, overrun);
    } else {
        flush_by_scope(all, begin, end);
    }
    all->turn_begin = all->turn_end;
    all->flushed_position = ring_head(ring);
}

// ---- opening, resuming ----

// Everything up to `position` is given; the ring holds what follows it.
static void subscriber_go_live(struct subscriber *subscriber, int64_t position, uint64_t sequence) {
    subscriber->state = LIVE;
    subscriber->position = position;
    subscriber->pending = 0;
    subscriber_advance(subscriber, sequence, ring_end(subscriber->all->options.ring));
}

static void subscriber_reset(struct subscriber *subscriber, enum reset_reason reason) {
    const struct ring *ring = subscriber->all->options.ring;
    struct buffer text = {0};
    metric_add(METRIC_STREAM_RESETS, reset_reason_name(reason), NULL, 1);
    frame_append_reset(&text, ring_head(ring), reset_reason_name(reason));
    subscriber_send(subscriber, text.bytes, text.length);
    buffer_free(&text);
    if (subscriber->state != CLOSED) {
        subscriber_go_live(subscriber, ring_head(ring), ring_end(ring));
    }
}

static void on_replay(void *arg, const struct replay_answer *answer, const struct error *error) {
    struct subscriber *subscriber = arg;
    struct subscribers *all = subscriber->all;
    const struct ring *ring = all->options.ring;
    subscriber->joining = NULL;
    subscribers_flush(all); // so that ring_end is where everybody LIVE is
    if (error) {
        struct buffer text = {0};
        log_warn("replay_failed", LOG_TEXT("error", error->text));
        frame_append_retry(&text, jitter_ms(all->options.retry_ms, 0.5));
        subscriber_send(subscriber, text.bytes, text.length);
        buffer_free(&text);
        subscriber_close(subscriber, "replay_failed");
        return;
    }
    if (answer->decision.kind == RESUME_RESET) {
        subscriber_reset(subscriber, answer->decision.reason);
        return;
    }
    if (answer->count > 0) {
        subscriber_send(subscriber, answer->frames->bytes, answer->frames->length);
    }
    if (subscriber->state == CLOSED) {
        return;
    }
    uint64_t sequence;
    if (ring_find(ring, subscriber->position, &sequence)) {
        subscriber_go_live(subscriber, subscriber->position, sequence);
    } else if (subscriber->position > ring_head(ring)) {
        // Another gateway is ahead of this one. What it has sent is skipped here when it comes.
        subscriber_go_live(subscriber, subscriber->position, ring_end(ring));
    } else {
        subscriber_join(subscriber); // the ring overran meanwhile
    }
}

// Asks the log what came after `position`, up to where the ring is now. position moves there at once, since the answer
// covers all of it; the request keeps the old one.
static void subscriber_join(struct subscriber *subscriber) {
    int64_t head = ring_head(subscriber->all->options.ring);
    int64_t after = subscriber->position;
    subscriber->state = JOINING;
    subscriber->pending = 0;
    subscriber->position = after > head ? after : head;
    subscriber->joining = replay_start(subscriber->all->options.replay, after, head, subscriber->tables,
                                       subscriber->rights, on_replay, subscriber);
}

// The ring holds the position, or the log is asked.
static void subscriber_resume(struct subscriber *subscriber, int64_t position) {
    const struct subscribers *all = subscriber->all;
    const struct ring *ring = all->options.ring;
    uint64_t sequence;
    subscriber->position = position;
    if (!ring_find(ring, position, &sequence)) {
        metric_add(METRIC_STREAM_OPENED, "log", NULL, 1);
        subscriber_join(subscriber);
        return;
    }
    metric_add(METRIC_STREAM_OPENED, "ring", NULL, 1);
    uint64_t first;
    struct resume_facts facts = {
        .primary = true,
        .holds_head = true,
        .holds = true,
        .newest = ring_head(ring),
        .missed = count_visible(subscriber, sequence, ring_end(ring), &first),
    };
    struct resume_decision decision = resume_decide(position, ring_head(ring), all->options.max_replay, &facts);
    if (decision.kind == RESUME_RESET) {
        subscriber_reset(subscriber, decision.reason);
    } else {
        subscriber_go_live(subscriber, position, sequence);
    }
}

void subscriber_open(struct subscribers *all, uv_tcp_t *socket, struct buffer *head, const struct resume_ask *ask,
                     const struct grant *grant, struct table_filter *tables, bool ping,
                     const struct admission_ticket *ticket) {
    assert(all->options.scoped != grant->open); // or somebody would see everything by mistake
    struct ring *ring = all->options.ring;
    struct subscriber *subscriber = memory_alloc(sizeof *subscriber);
    *subscriber = (struct subscriber){
        .socket = socket,
        .all = all,
        .tables = tables,
        .state = JOINING,
        .ping = ping,
        .heartbeat_due_ms = clock_ms() + all->options.heartbeat_ms,
    };
    if (ticket) {
        subscriber->ticket = *ticket;
    }
    subscriber->rights = scope_rights_new(all->index, grant, subscriber);
    if (grant->end_ms > 0 && grant->end_ms < all->next_end_ms) {
        all->next_end_ms = grant->end_ms;
    }
    subscribers_flush(all); // so that what is in the ring now is not offered again
    socket->data = subscriber;
    uv_fileno((uv_handle_t *)socket, &subscriber->fd);
    DL_APPEND(all->list, subscriber);
    all->count++;
    all->open++;
    uv_read_start((uv_stream_t *)socket, on_alloc, on_read);

    frame_append_opening(head, all->options.retry_ms);
    if (ask->kind == RESUME_ASK_FRESH) {
        frame_append_position(head, ring_head(ring), ping);
    }
    subscriber_send(subscriber, head->bytes, head->length);
    if (subscriber->state == CLOSED) {
        return;
    }
    switch (ask->kind) {
    case RESUME_ASK_FRESH:
        metric_add(METRIC_STREAM_OPENED, "fresh", NULL, 1);
        subscriber_go_live(subscriber, ring_head(ring), ring_end(ring));
        break;
    case RESUME_ASK_UNREADABLE:
        metric_add(METRIC_STREAM_OPENED, "ring", NULL, 1);
        subscriber_reset(subscriber, RESET_ID_UNREADABLE);
        break;
    case RESUME_ASK_POSITION:
        subscriber_resume(subscriber, ask->position);
        break;
    }
}

void subscribers_rewound(struct subscribers *all, int64_t held, enum reset_reason reason) {
    const struct ring *ring = all->options.ring;
    struct subscriber *subscriber, *following;
    all->flushed = ring_end(ring);
    all->flushed_position = held;
    DL_FOREACH_SAFE(all->list, subscriber, following) {
        bool past = subscriber->position > held || reason == RESET_HISTORY_EXPIRED;
        if (subscriber->held_writes > 0 || subscriber->state == JOINING) {
            // In the middle of something that was true before. It comes back, and the log decides.
            subscriber_close(subscriber, "rewound");
        } else if (past) {
            subscriber_reset(subscriber, reason);
        }
    }
}

// ---- time ----

static void send_heartbeats(struct subscribers *all, uint64_t now) {
    struct subscriber *subscriber;
    // Bounded by the count, since those that are done go to the end of the same list.
    for (size_t left = all->count; left > 0 && (subscriber = all->list) && subscriber->heartbeat_due_ms <= now;
         left--) {
        DL_DELETE(all->list, subscriber);
        subscriber->heartbeat_due_ms = now + all->options.heartbeat_ms;
        DL_APPEND(all->list, subscriber);
        if (subscriber->held_writes == 0) {
            const char *text = subscriber->ping ? frame_ping : frame_heartbeat;
            subscriber_send(subscriber, text, strlen(text));
        }
    }
}

static void close_stalled(struct subscribers *all, uint64_t now) {
    struct held_write *held;
    // subscriber_close takes nothing from this list: libuv answers the writes later.
    DL_FOREACH(all->held, held) {
        size_t queue = uv_stream_get_write_queue_size((uv_stream_t *)held->subscriber->socket);
        if (queue != held->queue_seen) {
            held->queue_seen = queue;
            held->since_ms = now;
        } else if (now - held->since_ms > all->options.stall_ms) {
            subscriber_close(held->subscriber, "stalled");
        }
    }
}

// Looks at all of them, but only when one is due and not in every tick: grants that end close together are many.
static void close_ended(struct subscribers *all, uint64_t now) {
    struct subscriber *subscriber, *following;
    if (now < all->next_end_ms) {
        return;
    }
    uint64_t next = UINT64_MAX;
    DL_FOREACH_SAFE(all->list, subscriber, following) {
        uint64_t end = scope_rights_end_ms(subscriber->rights);
        if (end > now && end < next) {
            next = end;
        } else if (end > 0 && end <= now) {
            subscriber_say_goodbye(subscriber, jitter_ms(all->options.retry_ms, 0.5));
            subscriber_close(subscriber, "grant_ended");
        }
    }
    all->next_end_ms = next < now + END_TICK_MS ? now + END_TICK_MS : next;
}

static void on_timer(uv_timer_t *timer) {
    struct subscribers *all = timer->data;
    uint64_t now = clock_ms();
    close_ended(all, now);
    send_heartbeats(all, now);
    close_stalled(all, now);
}

// ---- all of them ----

struct subscribers *subscribers_new(const struct subscribers_options *options) {
    struct subscribers *all = memory_alloc(sizeof *all);
    all->options = *options;
    all->index = scope_index_new(options->unscoped);
    all->next_end_ms = UINT64_MAX;
    uv_timer_init(options->loop, &all->timer);
    all->timer.data = all;
    all->open = 1;
    uv_timer_start(&all->timer, on_timer, TICK_MS, TICK_MS);
    return all;
}

size_t subscribers_count(const struct subscribers *all) {
    return all->count;
}

bool subscribers_disconnect_one(struct subscribers *all, unsigned long retry_ms) {
    struct subscriber *subscriber = all->list;
    if (!subscriber) {
        return false;
    }
    subscriber_say_goodbye(subscriber, retry_ms);
    subscriber_close(subscriber, "drain");
    return true;
}

static void on_timer_closed(uv_handle_t *handle) {
    handle_closed(handle->data);
}

void subscribers_close(struct subscribers *all) {
    if (!all) {
        return;
    }
    while (all->list) {
        subscriber_close(all->list, "drain");
    }
    uv_close((uv_handle_t *)&all->timer, on_timer_closed);
}
