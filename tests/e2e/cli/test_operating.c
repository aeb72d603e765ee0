// What people watch an installation with, and `rowbell dev`.
#include "tests/e2e/cli/world.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(test_status) {
    make_events();
    expect_status(RUN("status"), 0);
    expect_text(out, "events pending             1\n");
    expect_text(out, "events poisoned            1\n");
    expect_text(out, "jobs poisoned              1\n");
    expect_text(out, "stream  ");
    expect_status(RUN("status", "--json"), 0);
    expect_json(
        "j -> 'events_pending' = '1' and j -> 'jobs_poisoned' = '1' and jsonb_array_length(j -> 'subscriptions') = 3 "
        "and jsonb_typeof(j -> 'stream_position') = 'number'");
}
END_TEST

START_TEST(test_status_watch) {
    set_up();
    struct daemon *status = daemon_start("rowbell", (const char *const[]){"status", "--watch", "--json", NULL});
    daemon_wait_log(status, "\"events_pending\":0", HANG_MS);
    sql_run(conn, "select rowbell.declare_type('a.b'); select rowbell.record('a.b', 's')");
    daemon_wait_log(status, "\"events_pending\":1", HANG_MS);
    daemon_signal(status, SIGINT);
    ck_assert_int_eq(daemon_wait_exit(status, HANG_MS), 128 + SIGINT);
}
END_TEST

START_TEST(test_doctor) {
    set_up();
    static const struct {
        const char *sql;
        const char *says;
    } problems[] = {
        {"select 1", "no process: rowbell-relay"},
        {"select rowbell.publish('posts', scope => 'tenant'); alter table posts rename tenant to org",
         "column is gone: public.posts (tenant)\n    select rowbell.publish('public.posts', scope => 'org', key => "
         "'{id}', name => 'posts')"},
        {"select rowbell.publish('posts'); alter table posts disable trigger \"~rowbell_update\"",
         "not captured: public.posts"},
        {"alter table posts enable trigger \"~rowbell_update\"; create table q (id int primary key) partition by range "
         "(id);"
         "select rowbell.publish('q'); create table q1 partition of q default",
         "not captured: public.q1 (written directly, its changes are missed)"},
        {"select rowbell.publish('q'); create table k (id int not null unique); select rowbell.publish('k', key => "
         "'{id}');"
         "alter table k drop constraint k_id_key",
         "key is not unique: public.k (id)"},
        {"drop table k", "table is gone: k"},
        {"update rowbell.events set poisoned_at = now(), retry_at = now(); insert into posts values ('p'); "
         "update rowbell.events set poisoned_at = now(), retry_at = now();"
         "insert into rowbell.events_set_aside select max(seq) from rowbell.events",
         "poisoned: events (1)"},
        {"select rowbell.set_wake('notify')", "prepared transactions may fail"},
    };
    for (size_t i = 0; i < sizeof(problems) / sizeof(*problems); i++) {
        sql_run(conn, problems[i].sql);
        expect_status(RUN("doctor"), 5);
        expect_text(out, problems[i].says);
        expect_status(RUN("doctor", "--json"), 5);
        expect_json("jsonb_array_length(j) > 0 and j->0 ? 'remedy'");
    }
    // What it says to do helps.
    sql_run(
        conn,
        "delete from rowbell.published where name = 'k'; select rowbell.set_wake('poll'); delete from rowbell.events; "
        "delete from rowbell.events_set_aside");
    daemon_wait_log(daemon_start("rowbell-relay", (const char *const[]){NULL}), "relay_started", HANG_MS);
    daemon_wait_log(daemon_start("rowbell-dispatcher", (const char *const[]){NULL}), "dispatcher_started", HANG_MS);
    expect_status(RUN("doctor"), 0);
    ck_assert_str_eq(out, "nothing is wrong\n");
}
END_TEST

static pid_t child_of(const struct daemon *daemon, const char *name) {
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "rowbell-%s runs as process ", name);
    const char *found = strstr(daemon->log, pattern);
    ck_assert_ptr_nonnull(found);
    return atoi(found + strlen(pattern));
}

static struct daemon *start_dev(void) {
    static const char *const arguments[] = {"dev", "--listen", "127.0.0.1:0", NULL};
    struct daemon *daemon = daemon_start("rowbell", arguments);
    daemon_wait_log(daemon, "event=relay_started", HANG_MS);
    daemon_wait_log(daemon, "event=dispatcher_started", HANG_MS);
    daemon_wait_log(daemon, "event=gateway_started", HANG_MS);
    return daemon;
}

// Ended; whoever inherited it may not have taken leave of it.
static bool is_gone(pid_t pid) {
    char path[64], stat[200] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true;
    bool read = fgets(stat, sizeof(stat), file) != NULL;
    fclose(file);
    const char *state = strrchr(stat, ')');
    return !read || state == NULL || state[2] == 'Z';
}

static bool are_gone(void *arg) {
    const pid_t *children = arg;
    return is_gone(children[0]) && is_gone(children[1]) && is_gone(children[2]);
}

START_TEST(test_dev_runs_all_and_stops_all) {
    set_up();
    expect_status(RUN("publish", "posts"), 0);
    struct receiver *receiver = receiver_start();
    add_endpoint("w", receiver_url(receiver));
    struct daemon *daemon = start_dev();
    sql_run(conn, "insert into posts values ('p1', 't1', 'x')");
    receiver_wait(receiver, 1, HANG_MS); // through relay and dispatcher, to this machine
    sql_wait(conn, HANG_MS, "select count(*) > 1 from rowbell.stream_log");
    pid_t children[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    daemon_signal(daemon, SIGINT);
    ck_assert_int_eq(daemon_wait_exit(daemon, HANG_MS), 0);
    ck_assert(are_gone(children));
}
END_TEST

START_TEST(test_dev_ends_with_any_of_its_children) {
    set_up();
    struct daemon *daemon = start_dev();
    pid_t children[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    kill(children[1], SIGKILL);
    ck_assert_int_eq(daemon_wait_exit(daemon, HANG_MS), 1);
    expect_text(daemon->log, "rowbell-dispatcher ended with signal 9, so the others were stopped");
    ck_assert(are_gone(children));

    daemon = start_dev(); // killed itself, it takes them along
    pid_t others[] = {child_of(daemon, "relay"), child_of(daemon, "dispatcher"), child_of(daemon, "gateway")};
    daemon_signal(daemon, SIGKILL);
    daemon_wait_exit(daemon, HANG_MS);
    wait_for(are_gone, others, HANG_MS, "the children to end");
    expect_status(RUN("dev", "--database-url", "postgres://nobody@127.0.0.1:1/x"), 3);
}
END_TEST

void operating_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "operating", 60);
    tcase_add_test(tcase, test_status);
    tcase_add_test(tcase, test_status_watch);
    tcase_add_test(tcase, test_doctor);
    tcase_add_test(tcase, test_dev_runs_all_and_stops_all);
    tcase_add_test(tcase, test_dev_ends_with_any_of_its_children);
}
