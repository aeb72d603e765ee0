// job_store_pg on real PostgreSQL: what a round may and may not do to the tables (G4), and ownership by session locks.
#include "common/clock.h"
#include "common/metrics.h"
#include "dispatcher/job_store_pg.h"
#include "dispatcher/shard.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

enum { MOST = 64 };

struct bench {
    PGconn *conn;
    uv_loop_t loop;
    struct job_store_pg *pg;
    const struct job_store *store;
    bool up, answered;
    bool no_events; // jobs without an event, for size
    struct error error;
    // Copies of the last answer.
    struct claimed_job claimed[MOST];
    size_t claimed_count;
    struct job_ref ended[MOST], renewed[MOST];
    size_t ended_count, renewed_count;
    int dispatchers;
    uint64_t shards;
    uint64_t heard; // shards that hints named, one by one
    int hints;      // how many
    int promoted;
    int64_t next_due_ms;
    int leases;
    char names[MOST][40];
    int change_count;
};

static void on_up(void *arg) {
    ((struct bench *)arg)->up = true;
}
static void on_down(void *arg, const struct error *error, bool first) {
    ck_assert_msg(!first, "%s", error->text);
    ((struct bench *)arg)->up = false;
}
static void on_jobs(void *arg, const char *lane, uint64_t shards, int64_t lowest) {
    struct bench *bench = arg;
    bool wide = shards == UINT64_MAX;
    if (strcmp(lane, "webhook") == 0 && !wide)
        bench->heard |= shards;
    bench->hints += !wide;
}

static void on_tick(uv_timer_t *timer) {
}

static void turn_until(struct bench *bench, const bool *flag) {
    uint64_t deadline = clock_ms() + HANG_MS;
    uv_timer_t tick; // so that the deadline is looked at
    uv_timer_init(&bench->loop, &tick);
    uv_timer_start(&tick, on_tick, 100, 100);
    while (!*flag) {
        ck_assert_msg(clock_ms() < deadline, "no answer");
        uv_run(&bench->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&bench->loop, UV_RUN_NOWAIT);
}

// A time that is so long after one of this test's: SQL text.
#define AFTER(column, interval)                                                                                        \
    column " between (select at from began) + interval '" interval "' and clock_timestamp() + interval '" interval "'"

static struct bench *open_bench(void) {
    struct bench *bench = calloc(1, sizeof *bench);
    const char *url = fixture_database();
    bench->conn = fixture_connect();
    sql_run(bench->conn, "create table posts (id int primary key); select rowbell.publish('posts');"
                         "select rowbell.add_webhook('a', 'https://a.example/', '{*}'), rowbell.add_webhook('b', "
                         "'https://b.example/', '{*}');"
                         "insert into posts select generate_series(1, 20);"
                         "create table began as select clock_timestamp() as at");
    uv_loop_init(&bench->loop);
    bench->pg = job_store_pg_new(
        &bench->loop,
        &(struct job_store_pg_options){
            .url = url, .kind = "webhook", .arg = bench, .on_up = on_up, .on_down = on_down, .on_jobs = on_jobs});
    bench->store = job_store_pg_port(bench->pg);
    turn_until(bench, &bench->up);
    return bench;
}

static void close_bench(struct bench *bench) {
    job_store_pg_close(bench->pg, NULL, NULL);
    uv_run(&bench->loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&bench->loop), 0);
    free(bench);
}

static int id_of(struct bench *bench, const char *name) {
    char sql[100];
    snprintf(sql, sizeof sql, "select id from rowbell.subscriptions where name = '%s'", name);
    return (int)sql_int(bench->conn, sql);
}

static void queue(struct bench *bench, const char *name, int count) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "insert into rowbell.jobs (subscription_id, event_seq) select %d, seq from rowbell.events order by seq "
             "limit %d",
             id_of(bench, name), count);
    sql_run(bench->conn, sql);
}

static void round_answered(void *arg, const struct job_round_result *result, const struct error *error) {
    struct bench *bench = arg;
    bench->answered = true;
    bench->error = error ? *error : (struct error){0};
    if (!result)
        return;
    ck_assert_uint_le(result->claimed_count, MOST);
    bench->claimed_count = result->claimed_count;
    bench->ended_count = result->ended_count;
    bench->renewed_count = result->renewed_count;
    for (size_t i = 0; i < result->claimed_count; i++) {
        bench->claimed[i] = result->claimed[i];
        if (bench->no_events)
            continue;
        ck_assert_ptr_nonnull(result->claimed[i].event_id);
        ck_assert_str_eq(result->claimed[i].type, "posts.create");
        ck_assert_int_eq(result->claimed[i].occurred_at[26], 'Z');
        char sql[300]; // made in C, they are what SQL makes
        snprintf(sql, sizeof sql,
                 "select rowbell.event_id(occurred_at, seq)::text || to_char(occurred_at, "
                 "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') "
                 "from rowbell.events where seq = %lld",
                 (long long)result->claimed[i].event_seq);
        const char *expected = sql_text(bench->conn, sql);
        ck_assert_int_eq(strncmp(expected, result->claimed[i].event_id, 36), 0);
        ck_assert_str_eq(expected + 36, result->claimed[i].occurred_at);
        ck_assert_ptr_nonnull(strstr(result->claimed[i].data, "{\"table\":\"posts\",\"key\":\""));
    }
    for (size_t i = 0; i < result->ended_count; i++)
        bench->ended[i] = result->ended[i];
    for (size_t i = 0; i < result->renewed_count; i++)
        bench->renewed[i] = result->renewed[i];
}

static struct job_claim claim_of(struct bench *bench, const char *name, int slots) {
    return (struct job_claim){
        .subscription_id = id_of(bench, name), .slots = slots, .lease_ms = 30000, .highest = INT64_MAX};
}

static void run(struct bench *bench, struct job_round round) {
    round.lease_ms = 30000;
    bench->answered = false;
    bench->store->round(bench->store->arg, &round, round_answered, bench);
    turn_until(bench, &bench->answered);
}

static void claim(struct bench *bench, const char *name, int slots, int64_t token) {
    struct job_claim one = claim_of(bench, name, slots);
    run(bench, (struct job_round){.claims = &one, .claim_count = 1, .token = token});
    ck_assert_msg(!bench->error.code, "%s", bench->error.text);
}

static struct job_ref ref(struct bench *bench, size_t i, int64_t token) {
    return (struct job_ref){bench->claimed[i].subscription_id, bench->claimed[i].event_seq, token};
}

static struct job_end end_of(struct job_ref job, const char *fate, const char *class) {
    return (struct job_end){.ref = job,
                            .attempt = 1,
                            .fate = fate,
                            .class = class,
                            .started_ms = clock_ms(),
                            .dns_ms = -1,
                            .connect_ms = -1,
                            .tls_ms = -1,
                            .first_byte_ms = -1,
                            .total_ms = 5};
}

START_TEST(a_claim_takes_what_is_free_in_order) {
    struct bench *bench = open_bench();
    queue(bench, "a", 10);
    queue(bench, "b", 10);
    struct job_claim claims[] = {claim_of(bench, "a", 3), claim_of(bench, "b", 2)};
    run(bench, (struct job_round){.claims = claims, .claim_count = 2, .token = 11});
    ck_assert_uint_eq(bench->claimed_count, 5);
    ck_assert_int_eq(
        sql_int(bench->conn, "select count(*) from rowbell.jobs where lease_token = 11 and attempts = 1 and " AFTER(
                                 "lease_until", "30 s")),
        5);
    ck_assert_int_eq(sql_int(bench->conn,
                             "select count(*) from (select lease_token is null as free, row_number() over "
                             "(partition by subscription_id order by event_seq) as n, subscription_id from "
                             "rowbell.jobs) j where free and n <= 2"),
                     0);
    claim(bench, "a", 100, 12);
    ck_assert_uint_eq(bench->claimed_count, 7); // what runs is left alone
    claim(bench, "a", 100, 13);
    ck_assert_uint_eq(bench->claimed_count, 0);
    sql_run(bench->conn, "update rowbell.subscriptions set state = 'paused' where name = 'b'");
    claim(bench, "b", 100, 14);
    ck_assert_uint_eq(bench->claimed_count, 0);
    close_bench(bench);
}
END_TEST

// Who has lost its shards, and does not know yet, comes second: what it finds free it may not take any more.
START_TEST(a_job_that_was_claimed_meanwhile_is_not_claimed) {
    struct bench *bench = open_bench();
    queue(bench, "a", 3);
    PGconn *owner = fixture_connect();
    sql_run(owner,
            "begin; update rowbell.jobs set lease_until = now() + interval '30 s', lease_token = 61, attempts = 1 "
            "where event_seq = (select min(event_seq) from rowbell.jobs)");
    struct job_claim one = claim_of(bench, "a", 3);
    bench->answered = false;
    bench->store->round(bench->store->arg, &(struct job_round){.claims = &one, .claim_count = 1, .token = 62},
                        round_answered, bench);
    uint64_t deadline = clock_ms() + 60000;
    while (sql_int(bench->conn, "select count(*) from pg_stat_activity where datname = current_database() and "
                                "wait_event_type = 'Lock'") == 0) {
        ck_assert_msg(clock_ms() < deadline && !bench->answered, "it does not wait for the row");
        uv_run(&bench->loop, UV_RUN_NOWAIT);
    }
    sql_run(owner, "commit");
    turn_until(bench, &bench->answered);
    ck_assert_uint_eq(bench->claimed_count, 2);
    ck_assert_str_eq(sql_text(bench->conn, "select string_agg(lease_token || ' ' || attempts, ', ' order by event_seq) "
                                           "from rowbell.jobs"),
                     "61 1, 62 1, 62 1");
    close_bench(bench);
}
END_TEST

// Events of stored sizes, first those of a, then those of b; and jobs for them.
static void queue_sizes(struct bench *bench, const char *name, const char *kibibytes) {
    char sql[700];
    snprintf(sql, sizeof sql,
             "with e as (insert into rowbell.events (type_id, subject, key, op, data) select t.id, 'posts/1', '1', "
             "'create', (select jsonb_build_object('x', string_agg(md5(i::text), '')) from generate_series(1, k * 32) "
             "i) from rowbell.event_types t, unnest('{%s}'::int[]) k where t.type = 'posts.create' returning seq) "
             "insert into rowbell.jobs (subscription_id, event_seq) select %d, seq from e",
             kibibytes, id_of(bench, name));
    sql_run(bench->conn, sql);
}

// How many of each were claimed, and how many subscriptions were told that something was left.
static const char *claimed_of(struct bench *bench) {
    static char text[60];
    int a = 0, b = 0, left = 0;
    for (size_t i = 0; i < bench->claimed_count; i++) {
        left += bench->claimed[i].attempt == 0;
        if (bench->claimed[i].attempt > 0)
            *(bench->claimed[i].subscription_id == id_of(bench, "a") ? &a : &b) += 1;
    }
    snprintf(text, sizeof text, "%d of a, %d of b, %d left", a, b, left);
    return text;
}

START_TEST(a_claim_is_bounded_by_bytes_and_always_brings_one) {
    struct bench *bench = open_bench();
    bench->no_events = true;
    queue_sizes(bench, "a", "3000,300,3000,300,300,300,300");
    queue_sizes(bench, "b", "1,1,1,2000,1");
    struct job_claim claims[] = {claim_of(bench, "a", 16), claim_of(bench, "b", 16)};
    struct job_claim turned[] = {claims[1], claims[0]};
    // The giant is first: it goes alone. Then everybody's first before anybody's second, and giants stand in nobody's
    // way.
    run(bench, (struct job_round){.claims = claims, .claim_count = 2, .token = 11});
    ck_assert_str_eq(claimed_of(bench), "1 of a, 0 of b, 2 left");
    run(bench, (struct job_round){.claims = turned, .claim_count = 2, .token = 12});
    ck_assert_str_eq(claimed_of(bench), "3 of a, 4 of b, 2 left");
    run(bench, (struct job_round){.claims = turned, .claim_count = 2, .token = 13});
    ck_assert_str_eq(claimed_of(bench), "0 of a, 1 of b, 1 left");
    run(bench, (struct job_round){.claims = turned, .claim_count = 2, .token = 14});
    ck_assert_str_eq(claimed_of(bench), "1 of a, 0 of b, 1 left");
    run(bench, (struct job_round){.claims = turned, .claim_count = 2, .token = 15});
    ck_assert_str_eq(claimed_of(bench), "2 of a, 0 of b, 0 left");
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs where attempts <> 1"), 0);
    // Of an ordered subscription too.
    sql_run(bench->conn, "delete from rowbell.jobs; update rowbell.events set fanned_out_at = now()");
    queue_sizes(bench, "a", "2000,1,1");
    sql_run(bench->conn, "update rowbell.events set fanned_out_at = now(), subject = seq::text");
    claims[0].ordered = true;
    run(bench, (struct job_round){.claims = claims, .claim_count = 1, .token = 16});
    ck_assert_str_eq(claimed_of(bench), "1 of a, 0 of b, 1 left");
    run(bench, (struct job_round){.claims = claims, .claim_count = 1, .token = 17});
    ck_assert_str_eq(claimed_of(bench), "2 of a, 0 of b, 0 left");
    close_bench(bench);
}
END_TEST

START_TEST(an_end_counts_only_with_its_lease) {
    struct bench *bench = open_bench();
    queue(bench, "a", 4);
    claim(bench, "a", 4, 21);
    struct job_end ends[] = {end_of(ref(bench, 0, 21), "delivered", "delivered"),
                             end_of(ref(bench, 1, 99), "delivered", "delivered"), // another's token
                             end_of(ref(bench, 2, 21), "waiting", "http_5xx"),
                             end_of(ref(bench, 3, 21), "poisoned", "rejected")};
    ends[0].status = 204;
    ends[2].delay_ms = 60000;
    ends[2].response_head = "a \"quoted\" {answer}, \\ and ü";
    const struct job_end *pointers[] = {&ends[0], &ends[1], &ends[2], &ends[3]};
    run(bench, (struct job_round){.ends = pointers, .end_count = 4});
    ck_assert_uint_eq(bench->ended_count, 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_ne(bench->ended[i].event_seq, ends[1].ref.event_seq);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs"), 1);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.attempts"), 3);
    ck_assert_str_eq(sql_text(bench->conn,
                              "select response_head from rowbell.attempts where class = 'http_5xx' and status "
                              "is null and dns_ms is null and total_ms = 5"),
                     ends[2].response_head);
    ck_assert_str_eq(
        sql_text(bench->conn, "select string_agg(state || coalesce(' ' || (" AFTER(
                                  "run_at", "60 s") "), ''), ',' order by state) from rowbell.jobs_waiting"),
        "poisoned,waiting true");
    // A success beside failures, in one round: it is not failing.
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.subscription_state where failing_since is null "
                                          "and last_success_at = last_failure_at"),
                     1);
    // The same ends once more, as after a lost answer: nothing happens twice.
    run(bench, (struct job_round){.ends = pointers, .end_count = 4});
    ck_assert_uint_eq(bench->ended_count, 0);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.attempts"), 3);
    close_bench(bench);
}
END_TEST

START_TEST(a_round_is_all_or_nothing) {
    struct bench *bench = open_bench();
    queue(bench, "a", 4);
    claim(bench, "a", 2, 31);
    struct job_end bad = end_of(ref(bench, 1, 31), "delivered", "no such class");
    struct job_end good = end_of(ref(bench, 0, 31), "delivered", "delivered");
    const struct job_end *pointers[] = {&good, &bad};
    struct job_claim more = {.subscription_id = id_of(bench, "a"), .slots = 2};
    run(bench, (struct job_round){.ends = pointers, .end_count = 2, .claims = &more, .claim_count = 1, .token = 32});
    ck_assert_str_eq(bench->error.sqlstate, "23514");
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs where lease_token = 31"), 2);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs where lease_token = 32"), 0);
    close_bench(bench);
}
END_TEST

START_TEST(renewal_return_and_loss) {
    struct bench *bench = open_bench();
    queue(bench, "a", 3);
    claim(bench, "a", 3, 41);
    sql_run(bench->conn, "update rowbell.jobs set lease_until = now() + interval '1 s'");
    struct job_ref renewals[] = {ref(bench, 0, 41), ref(bench, 1, 40)};
    struct job_ref returned[] = {ref(bench, 2, 41), ref(bench, 0, 40)}; // the second: it is another's by now
    run(bench, (struct job_round){.renewals = renewals, .renewal_count = 2, .returns = returned, .return_count = 2});
    ck_assert_uint_eq(bench->renewed_count, 1);
    ck_assert_int_eq(bench->renewed[0].event_seq, renewals[0].event_seq);
    ck_assert_int_eq(bench->renewed[0].token, 41);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs where " AFTER("lease_until", "30 s")), 1);
    ck_assert_int_eq(sql_int(bench->conn,
                             "select count(*) from rowbell.jobs where lease_until is null and lease_token is "
                             "null and attempts = 0"),
                     1);
    sql_run(bench->conn, "update rowbell.jobs set lease_until = now() - interval '1 s' where lease_token = 41");
    claim(bench, "a", 3, 42);
    ck_assert_uint_eq(bench->claimed_count, 3);
    int lost = 0;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(bench->claimed[i].attempt, bench->claimed[i].lost + 1);
        lost += bench->claimed[i].lost;
    }
    ck_assert_int_eq(lost, 2);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.attempts where class = 'lost' and attempt = 1"),
                     2);
    close_bench(bench);
}
END_TEST

static void promote_answered(void *arg, const int *ids, size_t count, bool more, int64_t next_due_ms,
                             const struct error *error) {
    struct bench *bench = arg;
    ck_assert_ptr_null(error);
    bench->answered = true;
    bench->promoted = (int)count;
    bench->next_due_ms = next_due_ms;
}

static void hold_answered(void *arg, bool more, const struct error *error) {
    ck_assert_ptr_null(error);
    ((struct bench *)arg)->answered = true;
}

START_TEST(due_jobs_return_and_inactive_ones_are_held) {
    struct bench *bench = open_bench();
    char sql[500];
    snprintf(
        sql, sizeof sql,
        "insert into rowbell.jobs_waiting (subscription_id, event_seq, state, run_at, attempts) select s.id, e.seq, "
        "'waiting', now() + (e.seq - (select min(seq) from rowbell.events) - 2) * interval '1000 s', 3 from "
        "rowbell.events e, rowbell.subscriptions s where s.kind = 'webhook'; update rowbell.subscriptions set state = "
        "'paused' where name = 'b'");
    uint64_t before = clock_ms();
    sql_run(bench->conn, sql);
    bench->answered = false;
    bench->store->promote(bench->store->arg, promote_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(bench->promoted, 1);
    ck_assert_int_le(bench->next_due_ms, 1000000);
    ck_assert_int_ge(bench->next_due_ms, 999998 - (int64_t)(clock_ms() - before));
    ck_assert_int_eq(
        sql_int(bench->conn, "select count(*) from rowbell.jobs where attempts = 3 and lease_until is null"), 3);
    queue(bench, "b", 1); // it is in both tables now: a relay's job beside a waiting one
    int inactive = id_of(bench, "b");
    bench->answered = false;
    bench->store->hold(bench->store->arg, &inactive, 1, hold_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs_waiting where state = 'held'"), 20);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs"), 3);
    // What is in flight stays: if it were held, it would be sent again when the subscription is active.
    claim(bench, "a", 2, 51);
    sql_run(bench->conn, "update rowbell.subscriptions set state = 'paused' where name = 'a'");
    inactive = id_of(bench, "a");
    bench->answered = false;
    bench->store->hold(bench->store->arg, &inactive, 1, hold_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs where lease_token = 51"), 2);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.jobs"), 2);
    close_bench(bench);
}
END_TEST

static void survey_answered(void *arg, int dispatchers, uint64_t held, const struct error *error) {
    struct bench *bench = arg;
    ck_assert_ptr_null(error);
    bench->answered = true;
    bench->dispatchers = dispatchers;
    bench->shards = held;
}
static void shards_answered(void *arg, uint64_t shards, const struct error *error) {
    struct bench *bench = arg;
    ck_assert_ptr_null(error);
    bench->answered = true;
    bench->shards = shards;
}
static void survey(struct bench *bench) {
    bench->answered = false;
    bench->store->survey(bench->store->arg, survey_answered, bench);
    turn_until(bench, &bench->answered);
}

START_TEST(shards_are_locks_of_the_session) {
    struct bench *bench = open_bench();
    survey(bench);
    ck_assert_int_eq(bench->dispatchers, 1);
    ck_assert_uint_eq(bench->shards, 0);
    sql_run(bench->conn, "select pg_advisory_lock(1919907683, 63), pg_advisory_lock(1919907683, 5)"); // another's
    bench->answered = false;
    bench->store->take(bench->store->arg, UINT64_MAX, shards_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_uint_eq(bench->shards, UINT64_MAX & ~shard_bit(63) & ~shard_bit(5));
    survey(bench);
    ck_assert_uint_eq(bench->shards, UINT64_MAX);
    bench->answered = false;
    bench->store->release(bench->store->arg, 0xff, shards_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_uint_eq(bench->shards, 0xff & ~shard_bit(5));
    survey(bench);
    ck_assert_uint_eq(bench->shards, (UINT64_MAX & ~(uint64_t)0xff) | shard_bit(5));
    close_bench(bench);
}
END_TEST

static void leases_answered(void *arg, const struct lease_count *counts, size_t count, const struct error *error) {
    struct bench *bench = arg;
    ck_assert_ptr_null(error);
    bench->answered = true;
    bench->leases = 0;
    for (size_t i = 0; i < count; i++) {
        bench->leases += counts[i].leases;
        ck_assert(!counts[i].present);
    }
}

START_TEST(running_leases_of_others_are_counted) {
    struct bench *bench = open_bench();
    queue(bench, "a", 10);
    claim(bench, "a", 3, ((int64_t)7 << 24) + 1);
    claim(bench, "a", 2, ((int64_t)8 << 24) + 1);
    int id = id_of(bench, "a");
    claim(bench, "a", 4, (bench->store->owner << 24) + 2);
    bench->answered = false;
    bench->store->leases(bench->store->arg, &id, 1, leases_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(bench->leases, 5); // not our own
    // The leases of a process that is gone are cut; an odd token was alone.
    bench->store->cut(bench->store->arg, &(struct lease_count){.subscription_id = id, .owner = 7}, 1);
    claim(bench, "a", 9, 10);
    ck_assert_uint_eq(bench->claimed_count, 4); // three of those, and the one that was free
    int alone = 0;
    for (size_t i = 0; i < 4; i++)
        alone += bench->claimed[i].lost_alone;
    ck_assert_int_eq(alone, 3);
    ck_assert_int_eq(sql_int(bench->conn, "select count(*) from rowbell.attempts where class = 'lost' and alone"), 3);
    close_bench(bench);
}
END_TEST

static void changes_answered(void *arg, const struct subscription_change *changes, size_t count,
                             const struct error *error) {
    struct bench *bench = arg;
    ck_assert_ptr_null(error);
    bench->answered = true;
    bench->change_count = (int)count;
    for (size_t i = 0; i < count; i++)
        snprintf(bench->names[i], sizeof bench->names[i], "%s %s", changes[i].name ? changes[i].name : "gone",
                 changes[i].version ? changes[i].version : "");
}

START_TEST(only_changed_subscriptions_are_read) {
    struct bench *bench = open_bench();
    bench->answered = false;
    bench->store->changes(bench->store->arg, NULL, 0, changes_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(bench->change_count, 2); // the stream's subscription is not of this lane
    char versions[2][40];
    strcpy(versions[0], strchr(bench->names[0], ' ') + 1);
    strcpy(versions[1], strchr(bench->names[1], ' ') + 1);
    struct subscription_known known[] = {
        {id_of(bench, "a"), versions[0]}, {id_of(bench, "b"), versions[1]}, {4711, "1"}};
    bench->answered = false;
    bench->store->changes(bench->store->arg, known, 3, changes_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(bench->change_count, 1);
    ck_assert_str_eq(bench->names[0], "gone ");
    sql_run(bench->conn, "update rowbell.subscriptions set state = 'paused' where name = 'b'");
    bench->answered = false;
    bench->store->changes(bench->store->arg, known, 2, changes_answered, bench);
    turn_until(bench, &bench->answered);
    ck_assert_int_eq(bench->change_count, 1);
    ck_assert_int_eq(strncmp(bench->names[0], "b ", 2), 0);
    close_bench(bench);
}
END_TEST

static bool hears_of(struct bench *bench, uint64_t shards) {
    return (bench->heard & shards) == shards;
}

// Every login may send them: they must not hide those that the relay sends.
START_TEST(a_storm_of_hints_hides_none) {
    struct bench *bench = open_bench();
    sql_run(bench->conn,
            "do $$ begin for i in 1..5000 loop"
            "  perform pg_notify('rowbell_jobs', 'webhook 3 ' || i), pg_notify('rowbell_jobs', 'junk ' || i);"
            "end loop; perform pg_notify('rowbell_jobs', 'webhook 7 1 webhook 9 1'); end $$");
    uv_timer_t tick;
    uv_timer_init(&bench->loop, &tick);
    uv_timer_start(&tick, on_tick, 100, 100);
    uint64_t deadline = clock_ms() + HANG_MS;
    while (!hears_of(bench, shard_bit(3) | shard_bit(7) | shard_bit(9))) {
        ck_assert_msg(clock_ms() < deadline, "the hint was lost");
        uv_run(&bench->loop, UV_RUN_ONCE);
    }
    ck_assert_int_lt(bench->hints, 5000); // most of the storm is followed at once
    uv_close((uv_handle_t *)&tick, NULL);
    close_bench(bench);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *rounds = suite_case(suite, "rounds", 60);
    tcase_add_test(rounds, a_claim_takes_what_is_free_in_order);
    tcase_add_test(rounds, a_job_that_was_claimed_meanwhile_is_not_claimed);
    tcase_add_test(rounds, a_claim_is_bounded_by_bytes_and_always_brings_one);
    tcase_add_test(rounds, an_end_counts_only_with_its_lease);
    tcase_add_test(rounds, a_round_is_all_or_nothing);
    tcase_add_test(rounds, renewal_return_and_loss);
    tcase_add_test(rounds, due_jobs_return_and_inactive_ones_are_held);
    tcase_add_test(rounds, a_storm_of_hints_hides_none);
    TCase *owner = suite_case(suite, "ownership", 60);
    tcase_add_test(owner, shards_are_locks_of_the_session);
    tcase_add_test(owner, running_leases_of_others_are_counted);
    tcase_add_test(owner, only_changed_subscriptions_are_read);
}

int main(void) {
    return suite_main("dispatcher", add_tests);
}
