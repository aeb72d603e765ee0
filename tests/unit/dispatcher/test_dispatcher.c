// The dispatcher over a store that answers when the test says: what is sent, kept, given back, and sent again (G4).
#include "common/clock.h"
#include "common/metrics.h"
#include "dispatcher/dispatcher.h"
#include "dispatcher/endpoint.h"
#include "dispatcher/metrics.h"
#include "tests/unit/dispatcher/dispatcher_tests.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, LEASE_MS = 6000 };

static const struct metric metrics[] = {
#define METRIC(kind, id, name, labels, help) [METRIC_##id] = {METRIC_##kind, name, labels, help},
#include "dispatcher/metrics.def"
#undef METRIC
};

struct sent {
    int64_t seq;
    sink_done *done;
    void *arg;
};

// Both sides of the dispatcher. Everything but rounds is answered at once (in a later turn).
struct world {
    uv_loop_t loop;
    struct dispatcher *dispatcher;
    uv_timer_t answers;
    bool stale; // the session has said nothing for long
    // What waits for an answer.
    survey_done *survey;
    changes_done *changes;
    promoted_done *promoted;
    shards_done *shards;
    uint64_t shard_mask;
    leases_done *leases;
    released_done *released;
    void *arg;
    bool loaded;
    // The round in flight, copied.
    job_round_done *round_done;
    void *round_arg;
    int64_t token;    // of its claims
    int claimed_lost; // of the jobs that its answer brings
    int64_t ends[MOST], end_tokens[MOST], returns[MOST], renewals[MOST], renewal_tokens[MOST];
    const char *end_texts[MOST];
    uint64_t end_delays[MOST];
    size_t end_count, return_count, renewal_count;
    int slots;
    struct sent sent[MOST];
    int sent_count;
    bool stopped;
    unsigned host_wait_ms;
    struct lease_count others; // leases of another process; leases 0: none
    int looks, cuts;           // at leases, of leases
};

static bool is_up(void *arg) {
    return true;
}
static uint64_t answered_ms(void *arg) {
    return ((struct world *)arg)->stale ? clock_ms() - 8000 : clock_ms();
}
static void take_round(void *arg, const struct job_round *round, job_round_done *done, void *done_arg) {
    struct world *world = arg;
    ck_assert_ptr_null(world->round_done); // one at a time
    world->round_done = done;
    world->round_arg = done_arg;
    world->token = round->token;
    world->end_count = round->end_count;
    world->return_count = round->return_count;
    world->renewal_count = round->renewal_count;
    for (size_t i = 0; i < round->end_count; i++) {
        world->ends[i] = round->ends[i]->ref.event_seq;
        world->end_tokens[i] = round->ends[i]->ref.token;
        world->end_texts[i] = round->ends[i]->error;
        world->end_delays[i] = round->ends[i]->delay_ms;
    }
    for (size_t i = 0; i < round->return_count; i++)
        world->returns[i] = round->returns[i].event_seq;
    for (size_t i = 0; i < round->renewal_count; i++) {
        world->renewals[i] = round->renewals[i].event_seq;
        world->renewal_tokens[i] = round->renewals[i].token;
    }
    world->slots = round->claim_count ? round->claims[0].slots : 0;
}
static void take_changes(void *arg, const struct subscription_known *known, size_t count, changes_done *done, void *d) {
    ((struct world *)arg)->changes = done;
    ((struct world *)arg)->arg = d;
}
static void take_promote(void *arg, promoted_done *done, void *d) {
    ((struct world *)arg)->promoted = done;
}
static void take_hold(void *arg, const int *ids, size_t count, held_done *done, void *d) {
    ck_abort_msg("nothing is paused");
}
static void take_survey(void *arg, survey_done *done, void *d) {
    ((struct world *)arg)->survey = done;
}
static void take_shards(void *arg, uint64_t shards, shards_done *done, void *d) {
    ((struct world *)arg)->shards = done;
    ((struct world *)arg)->shard_mask = shards;
}
static void take_leases(void *arg, const int *ids, size_t count, leases_done *done, void *d) {
    ((struct world *)arg)->leases = done;
}

static void take_cut(void *arg, const struct lease_count *leases, size_t count) {
    struct world *world = arg;
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(leases[0].owner, world->others.owner); // nobody else is there
    world->cuts++;
}
static void take_held(void *arg, held_found_done *done, void *d) {
}
static void take_release_held(void *arg, const struct job_release *releases, size_t count, released_done *done,
                              void *d) {
    ((struct world *)arg)->released = done;
}

static void on_answers(uv_timer_t *timer) {
    struct world *world = timer->data;
    static const struct subscription_change one = {.id = 1,
                                                   .name = "w",
                                                   .kind = "webhook",
                                                   .state = "active",
                                                   .settings = "{\"max_in_flight\": 4}",
                                                   .secrets = "[]",
                                                   .version = "1",
                                                   .failing_ms = -1,
                                                   .idle_ms = -1};
    if (world->changes) {
        changes_done *done = world->changes;
        world->changes = NULL;
        done(world->arg, &one, world->loaded ? 0 : 1, NULL);
        world->loaded = true;
    }
    if (world->promoted) {
        promoted_done *done = world->promoted;
        world->promoted = NULL;
        done(world->arg, NULL, 0, false, -1, NULL);
    }
    if (world->survey) {
        survey_done *done = world->survey;
        world->survey = NULL;
        done(world->arg, 1, 0, NULL);
    }
    if (world->shards) {
        shards_done *done = world->shards;
        world->shards = NULL;
        done(world->arg, world->shard_mask, NULL);
    }
    if (world->released) {
        released_done *done = world->released;
        world->released = NULL;
        done(world->arg, NULL, 0, NULL);
    }
    if (world->leases) {
        leases_done *done = world->leases;
        world->leases = NULL;
        done(world->arg, &world->others, world->others.leases > 0, NULL);
        world->looks++;
    }
}

static bool prepare(void *arg, struct subscription *subscription, struct error *ret_error) {
    return true;
}
static void forget(void *arg, struct subscription *subscription) {
}
static unsigned host_wait_ms(void *arg, const struct subscription *subscription) {
    return ((struct world *)arg)->host_wait_ms;
}
static void take_send(void *arg, const struct delivery *delivery, sink_done *done, void *done_arg) {
    struct world *world = arg;
    ck_assert_int_lt(world->sent_count, MOST);
    world->sent[world->sent_count++] = (struct sent){delivery->event_seq, done, done_arg};
}

static struct world *open_world_of(int concurrency) {
    static struct world world;
    static struct job_store store;
    static struct sink sink;
    metrics_init(metrics, METRIC_COUNT);
    memset(&world, 0, sizeof world);
    store = (struct job_store){.arg = &world,
                               .is_up = is_up,
                               .answered_ms = answered_ms,
                               .round = take_round,
                               .changes = take_changes,
                               .promote = take_promote,
                               .hold = take_hold,
                               .survey = take_survey,
                               .take = take_shards,
                               .release = take_shards,
                               .leases = take_leases,
                               .cut = take_cut,
                               .held = take_held,
                               .release_held = take_release_held};
    sink = (struct sink){.kind = "webhook",
                         .deadline_ms = 1000,
                         .arg = &world,
                         .prepare = prepare,
                         .forget = forget,
                         .wait_ms = host_wait_ms,
                         .send = take_send};
    uv_loop_init(&world.loop);
    uv_timer_init(&world.loop, &world.answers);
    world.answers.data = &world;
    uv_timer_start(&world.answers, on_answers, 1, 1);
    world.dispatcher = dispatcher_new(&(struct dispatcher_options){.loop = &world.loop,
                                                                   .store = &store,
                                                                   .sink = &sink,
                                                                   .lane = "webhook",
                                                                   .concurrency = concurrency,
                                                                   .lease_ms = LEASE_MS});
    dispatcher_up(world.dispatcher);
    return &world;
}
static struct world *open_world(void) {
    return open_world_of(256);
}

// Turns until a round is in flight.
static void wait_round(struct world *world) {
    uint64_t deadline = real_clock_ms() + 10000;
    while (!world->round_done) {
        ck_assert_msg(real_clock_ms() < deadline, "no round came");
        uv_run(&world->loop, UV_RUN_ONCE);
    }
}

// Answers the round in flight: every end confirmed, every lease renewed but those of `lost`, `count` jobs from seq
// `first`.
static void answer(struct world *world, int64_t first, int count, int64_t lost) {
    struct job_ref ended[MOST], renewed[MOST];
    struct claimed_job claimed[MOST];
    size_t renewed_count = 0;
    for (size_t i = 0; i < world->end_count; i++)
        ended[i] = (struct job_ref){1, world->ends[i], 0};
    for (size_t i = 0; i < world->renewal_count; i++)
        if (world->renewals[i] != lost)
            renewed[renewed_count++] = (struct job_ref){1, world->renewals[i], world->renewal_tokens[i]};
    for (int i = 0; i < count; i++)
        claimed[i] = (struct claimed_job){.subscription_id = 1,
                                          .event_seq = first + i,
                                          .attempt = 1 + world->claimed_lost,
                                          .lost = world->claimed_lost,
                                          .uncounted = world->claimed_lost,
                                          .event_id = "id",
                                          .type = "t",
                                          .occurred_at = "o",
                                          .data = "{}"};
    struct job_round_result result = {.ended = ended,
                                      .ended_count = world->end_count,
                                      .renewed = renewed,
                                      .renewed_count = renewed_count,
                                      .claimed = claimed,
                                      .claimed_count = (size_t)count};
    job_round_done *done = world->round_done;
    world->round_done = NULL;
    done(world->round_arg, &result, NULL);
}

static void fail_round(struct world *world, enum error_code code, const char *sqlstate) {
    struct error error = {.code = code};
    snprintf(error.sqlstate, sizeof error.sqlstate, "%s", sqlstate);
    snprintf(error.text, sizeof error.text, "made by the test");
    job_round_done *done = world->round_done;
    world->round_done = NULL;
    done(world->round_arg, NULL, &error);
}

static void deliver(struct world *world, int index, const char *text) {
    struct attempt_outcome outcome = {.verdict = VERDICT_DELIVERED, .class = CLASS_DELIVERED, .error = text};
    world->sent[index].done(world->sent[index].arg, &outcome);
}

static void answer_500(struct world *world, int index) {
    struct attempt_outcome outcome = {.verdict = VERDICT_RETRY, .class = CLASS_HTTP_5XX, .status = 500};
    world->sent[index].done(world->sent[index].arg, &outcome);
}

static void on_stopped(void *arg) {
    ((struct world *)arg)->stopped = true;
}

static void close_world(struct world *world) {
    if (!world->stopped) {
        dispatcher_stop(world->dispatcher, on_stopped, world);
        while (!world->stopped) {
            if (world->round_done)
                answer(world, 0, 0, 0);
            uv_run(&world->loop, UV_RUN_ONCE);
        }
    }
    dispatcher_close(world->dispatcher, NULL, NULL);
    uv_close((uv_handle_t *)&world->answers, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&world->loop), 0);
}

START_TEST(slots_are_never_exceeded) {
    struct world *world = open_world();
    wait_round(world);
    ck_assert_int_eq(world->slots, 4);
    answer(world, 100, 4, 0);
    ck_assert_int_eq(world->sent_count, 4);
    ck_assert_int_eq(dispatcher_in_flight(world->dispatcher), 4);
    deliver(world, 0, NULL);
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 1);
    ck_assert_int_eq(world->slots, 1); // the end and the next claim share a round
    answer(world, 104, 1, 0);
    for (int i = 1; i < 5; i++)
        deliver(world, i, NULL);
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 4); // what ended in one turn goes in one round
    answer(world, 0, 0, 0);
    ck_assert_int_eq(dispatcher_in_flight(world->dispatcher), 0);
    close_world(world);
}
END_TEST

START_TEST(a_round_claims_half_of_the_process) { // the other half is being sent meanwhile
    struct world *world = open_world_of(6);
    wait_round(world);
    ck_assert_int_eq(world->slots, 3);
    answer(world, 100, 3, 0);
    wait_round(world);
    ck_assert_int_eq(world->slots, 1); // what is left of the endpoint's four
    answer(world, 0, 0, 0);
    for (int i = 0; i < 3; i++)
        deliver(world, i, NULL);
    close_world(world);
}
END_TEST

START_TEST(ends_are_kept_and_sent_alone_until_confirmed) {
    struct world *world = open_world();
    wait_round(world);
    answer(world, 100, 4, 0);
    deliver(world, 0, "a");
    deliver(world, 1, "b");
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 2);
    fail_round(world, ERROR_CONNECT, "");
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 2);
    ck_assert_int_eq(world->slots, 0); // no claim beside them
    // Refused for its data: one by one; the bad one without its texts.
    fail_round(world, ERROR_SQL, "22021");
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 1);
    ck_assert_int_eq(world->ends[0], 100);
    fail_round(world, ERROR_SQL, "22021");
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 1);
    bool stripped = false;
    for (int i = 0; i < 2; i++) {
        stripped = stripped || (world->ends[0] == 100 && world->end_texts[0] == NULL);
        answer(world, 0, 0, 0);
        wait_round(world);
    }
    ck_assert(stripped);
    deliver(world, 2, NULL);
    deliver(world, 3, NULL);
    ck_assert_int_gt(world->slots, 0);
    close_world(world);
}
END_TEST

START_TEST(a_lost_session_keeps_the_ends) {
    struct world *world = open_world();
    wait_round(world);

    answer(world, 100, 2, 0);
    deliver(world, 0, NULL);
    wait_round(world);
    dispatcher_down(world->dispatcher);
    fail_round(world, ERROR_CONNECT, "");
    deliver(world, 1, NULL); // a send in flight goes on
    dispatcher_up(world->dispatcher);
    size_t ends = 0;
    while (ends < 2) {
        wait_round(world);
        ends += world->end_count;
        ck_assert(world->slots == 0 || ends == 2);
        answer(world, 0, 0, 0);
    }
    ck_assert_int_eq(dispatcher_in_flight(world->dispatcher), 0);

    close_world(world);
}
END_TEST

START_TEST(what_comes_after_the_stop_is_given_back) { // SIGTERM
    struct world *world = open_world();
    wait_round(world);
    dispatcher_stop(world->dispatcher, on_stopped, world);
    answer(world, 100, 3, 0);
    ck_assert_int_eq(world->sent_count, 0);
    wait_round(world);
    ck_assert_uint_eq(world->return_count, 3);
    ck_assert_int_eq(world->returns[2], 102);
    ck_assert_int_eq(world->slots, 0);
    ck_assert(!world->stopped);
    answer(world, 0, 0, 0);
    while (!world->stopped)
        uv_run(&world->loop, UV_RUN_ONCE);
    close_world(world);
}
END_TEST

START_TEST(a_stop_waits_for_what_is_in_flight) {
    struct world *world = open_world();
    wait_round(world);
    answer(world, 100, 1, 0);
    dispatcher_stop(world->dispatcher, on_stopped, world);
    for (int i = 0; i < 50; i++)
        uv_run(&world->loop, UV_RUN_ONCE);
    ck_assert(!world->stopped);
    if (world->round_done)
        answer(world, 0, 0, 0);
    deliver(world, 0, NULL);
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 1);
    ck_assert(!world->stopped);
    answer(world, 0, 0, 0);
    while (!world->stopped)
        uv_run(&world->loop, UV_RUN_ONCE);
    close_world(world);
}
END_TEST

START_TEST(a_claim_on_a_silent_session_is_given_back) { // the check before each send
    struct world *world = open_world();
    wait_round(world);
    world->stale = true;
    answer(world, 100, 2, 0);
    ck_assert_int_eq(world->sent_count, 0);
    wait_round(world);
    ck_assert_uint_eq(world->return_count, 2);
    world->stale = false;
    answer(world, 100, 1, 0);
    ck_assert_int_eq(world->sent_count, 1);
    deliver(world, 0, NULL);
    close_world(world);
}
END_TEST

START_TEST(a_claim_that_is_answered_late_is_given_back) { // its lease would end before its request may
    enum { LATEST_MS = LEASE_MS - 1000 - 1000 };          // the request's deadline, and a margin
    struct world *world = open_world();
    clock_stopped_ms = real_clock_ms();
    wait_round(world);
    clock_moved_ms += LATEST_MS;
    answer(world, 100, 1, 0);
    ck_assert_int_eq(world->sent_count, 1);
    wait_round(world);
    clock_moved_ms += LATEST_MS + 1;
    answer(world, 101, 2, 0);
    ck_assert_int_eq(world->sent_count, 1);
    wait_round(world);
    ck_assert_uint_eq(world->return_count, 2);
    answer(world, 0, 0, 0);
    deliver(world, 0, NULL);
    close_world(world);
}
END_TEST

START_TEST(retries_are_spread) { // what failed together is not tried again together
    static const double units[] = {0, 0.25, 1};
    uint64_t delays[3];
    struct world *world = open_world();
    wait_round(world);
    answer(world, 100, 3, 0);
    for (int i = 0; i < 3; i++) {
        chance = units[i];
        answer_500(world, i);
    }
    chance = -1;
    wait_round(world);
    ck_assert_uint_eq(world->end_count, 3);
    for (int i = 0; i < 3; i++) { // in the order of their seqs
        ck_assert_int_eq(world->ends[i], 100 + i);
        delays[i] = world->end_delays[i];
    }
    ck_assert_uint_eq(delays[1], delays[0] * 9 / 8); // 0.8, 0.9, 1.2 of the schedule's
    ck_assert_uint_eq(delays[2], delays[0] * 3 / 2);
    answer(world, 0, 0, 0);
    close_world(world);
}
END_TEST

START_TEST(endpoints_are_probed_apart) { // nor are those that failed together
    struct world *world = open_world();
    clock_stopped_ms = real_clock_ms();
    chance = 0;
    wait_round(world);
    for (int i = 0; i < ENDPOINT_FAULTS; i++) {
        answer(world, 100 + i, 1, 0);
        answer_500(world, i);
        wait_round(world);
        ck_assert_int_eq(world->ends[0], 100 + i);
    }
    ck_assert_int_eq(world->slots, 0); // it is failing
    answer(world, 0, 0, 0);
    clock_moved_ms += ENDPOINT_PROBE_FIRST_MS * 8 / 10;
    dispatcher_wake(world->dispatcher, 1 << 1, 0);
    wait_round(world);
    ck_assert_int_eq(world->slots, 1);
    answer(world, 0, 0, 0);
    close_world(world);
}
END_TEST

// Turns until leases were looked at once more, a second later by the dispatcher's clock.
static void look_at_leases(struct world *world) {
    int looks = world->looks;
    clock_moved_ms += 1000;
    uint64_t deadline = real_clock_ms() + 10000;
    while (world->looks == looks) {
        ck_assert_msg(real_clock_ms() < deadline, "nobody looked");
        ck_assert_ptr_null(world->round_done); // they are in flight, and there are no more slots
        dispatcher_wake(world->dispatcher, 1 << 1, 0);
        uv_run(&world->loop, UV_RUN_ONCE);
    }
}

// Its leases are somebody else's to end while it may come back; after five seconds it is gone.
START_TEST(a_process_without_a_session_is_gone_after_a_while) {
    struct world *world = open_world();
    clock_stopped_ms = real_clock_ms();
    world->others = (struct lease_count){.subscription_id = 1, .leases = 4, .owner = 7};
    for (int i = 0; i < 4; i++)
        look_at_leases(world);
    ck_assert_int_eq(world->cuts, 0);
    // It was back in between.
    world->others.present = true;
    look_at_leases(world);
    world->others.present = false;
    for (int i = 0; i < 5; i++) {
        look_at_leases(world);
        ck_assert_int_eq(world->cuts, 0);
    }
    look_at_leases(world);
    ck_assert_int_eq(world->cuts, 1);
    close_world(world);
}
END_TEST

// Else endpoints whose names all failed at once, and are asked for again at once, take all slots for as long as that.
START_TEST(no_slot_is_held_while_a_name_is_looked_up_again) {
    struct world *world = open_world();
    wait_round(world);
    world->host_wait_ms = 1;
    answer(world, 100, 2, 0);
    ck_assert_int_eq(dispatcher_in_flight(world->dispatcher), 0);
    ck_assert_int_eq(world->sent_count, 0);
    wait_round(world);
    ck_assert_uint_eq(world->return_count, 2);
    world->host_wait_ms = 0;
    answer(world, 0, 0, 0);
    wait_round(world);
    ck_assert_int_eq(world->slots, 4); // the same jobs, soon
    answer(world, 100, 2, 0);
    ck_assert_int_eq(world->sent_count, 2);
    deliver(world, 0, NULL);
    deliver(world, 1, NULL);
    close_world(world);
}
END_TEST

START_TEST(leases_are_renewed_and_a_lost_one_is_noticed) {
    struct world *world = open_world();
    wait_round(world);
    answer(world, 100, 2, 0);
    uint64_t began = clock_ms();
    do {
        if (world->round_done)
            answer(world, 0, 0, 0);
        wait_round(world);
    } while (world->renewal_count == 0);
    // The lease is the request's own (1 s + 5 s); what is renewed in its last third has the whole one.
    ck_assert(clock_ms() - began >= LEASE_MS * 2 / 3 - 250 && clock_ms() - began < LEASE_MS - 1000);
    ck_assert_uint_eq(world->renewal_count, 2);
    answer(world, 0, 0, 101);
    ck_assert(metric_value(METRIC_LEASES_LOST, NULL, NULL) == 1);
    began = clock_ms();
    do {
        if (world->round_done)
            answer(world, 0, 0, 0);
        wait_round(world);
    } while (world->renewal_count == 0);
    ck_assert_uint_eq(world->renewal_count, 1);
    ck_assert_int_eq(world->renewals[0], 100);
    deliver(world, 0, NULL);
    deliver(world, 1, NULL);
    close_world(world);
}
END_TEST

// While this process had no session its leases were cut; it has the shard again and claims what it is sending itself.
START_TEST(a_job_whose_request_is_on_its_way_is_not_sent_again) {
    struct world *world = open_world();
    wait_round(world);
    answer(world, 100, 2, 0);
    ck_assert_int_eq(world->sent_count, 2);
    wait_round(world);
    dispatcher_down(world->dispatcher);
    fail_round(world, ERROR_CONNECT, "");
    dispatcher_up(world->dispatcher);
    wait_round(world);
    ck_assert_int_eq(world->slots, 2);
    int64_t token = world->token;
    deliver(world, 1, NULL); // ends before the claim is answered
    world->claimed_lost = 1;
    answer(world, 100, 2, 0);
    world->claimed_lost = 0;
    ck_assert_int_eq(world->sent_count, 2);
    wait_round(world);
    ck_assert_uint_eq(world->return_count, 0);
    ck_assert_uint_eq(world->end_count, 1);
    ck_assert_int_eq(world->ends[0], 101);
    ck_assert_int_eq(world->end_tokens[0], token); // or it would be refused, and then sent again
    answer(world, 0, 0, 0);
    deliver(world, 0, NULL);
    do
        wait_round(world);
    while (world->end_count == 0 && (answer(world, 0, 0, 0), true));
    ck_assert_int_eq(world->ends[0], 100);
    ck_assert_int_eq(world->end_tokens[0], token);
    answer(world, 0, 0, 0);
    ck_assert_int_eq(dispatcher_in_flight(world->dispatcher), 0);
    // What is somebody else's is sent.
    wait_round(world);
    world->claimed_lost = 1;
    answer(world, 100, 1, 0);
    ck_assert_int_eq(world->sent_count, 3);
    deliver(world, 2, NULL);
    close_world(world);
}
END_TEST

void add_dispatcher_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "dispatcher", 30);
    tcase_add_test(tcase, slots_are_never_exceeded);
    tcase_add_test(tcase, a_round_claims_half_of_the_process);
    tcase_add_test(tcase, ends_are_kept_and_sent_alone_until_confirmed);
    tcase_add_test(tcase, a_lost_session_keeps_the_ends);
    tcase_add_test(tcase, a_job_whose_request_is_on_its_way_is_not_sent_again);
    tcase_add_test(tcase, what_comes_after_the_stop_is_given_back);
    tcase_add_test(tcase, a_stop_waits_for_what_is_in_flight);
    tcase_add_test(tcase, a_claim_on_a_silent_session_is_given_back);
    tcase_add_test(tcase, a_claim_that_is_answered_late_is_given_back);
    tcase_add_test(tcase, retries_are_spread);
    tcase_add_test(tcase, endpoints_are_probed_apart);
    tcase_add_test(tcase, a_process_without_a_session_is_gone_after_a_while);
    tcase_add_test(tcase, no_slot_is_held_while_a_name_is_looked_up_again);
    tcase_add_test(tcase, leases_are_renewed_and_a_lost_one_is_noticed);
}
