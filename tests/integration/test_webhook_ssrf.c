// Server-side request forgery: every way to write an address that deliveries may not reach, through the webhook sink,
// with a real receiver behind it that must hear nothing. Names are answered by a name server of this program's own.
#include "common/resolver.h"
#include "dispatcher/sink_webhook.h"
#include "tests/support/dns_server.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- the sink

static uv_loop_t loop;
static struct egress_policy egress;
static const struct database_clock clock_unknown; // then it is the wall clock
static struct sink sink;
static struct receiver *receiver;
static struct dns_server *names;
static char settings[300];
static char *secrets[] = {"plain:whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"};
static struct subscription subscription;

static void start(const char *allowed) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    ck_assert(egress_policy_init(&egress, &(struct config_list){&allowed, allowed ? 1 : 0}, NULL));
    if (!receiver)
        receiver = receiver_start();
    if (!names)
        names = dns_server_start();
    ck_assert(resolver_set_servers(dns_server_address(names), NULL));
    ck_assert(sink_webhook_init(&sink, &loop,
                                &(struct sink_webhook_options){.egress = &egress, .clock = &clock_unknown}, NULL));
    subscription = (struct subscription){
        .id = 7, .name = "hook", .kind = "webhook", .settings = settings, .secrets = secrets, .secret_count = 1};
}

static void on_closed(void *arg) {
    *(bool *)arg = true;
}

static void stop(void) {
    bool closed = false;
    sink.forget(sink.arg, &subscription);
    sink.close(sink.arg, on_closed, &closed);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(closed);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    egress_policy_close(&egress);
}

struct result {
    struct attempt_outcome outcome;
    char error[512], peer[64];
    bool done;
};

static void on_done(void *arg, const struct attempt_outcome *outcome) {
    struct result *result = arg;
    result->outcome = *outcome;
    snprintf(result->error, sizeof result->error, "%s", outcome->error ? outcome->error : "");
    snprintf(result->peer, sizeof result->peer, "%s", outcome->peer ? outcome->peer : "");
    result->done = true;
    uv_stop(&loop);
}

static int port_of(const struct receiver *of) {
    return atoi(strrchr(receiver_url(of), ':') + 1);
}

static bool prepare(const char *authority, int port, struct error *ret_error) {
    snprintf(settings, sizeof settings, "{\"url\":\"http://%s:%d/hook\",\"allow_http\":true,\"deadline_ms\":3000}",
             authority, port);
    return sink.prepare(sink.arg, &subscription, ret_error);
}

static struct result deliver(const char *authority, int port) {
    struct error error = {0};
    struct result result = {0};
    struct delivery delivery = {.subscription = &subscription,
                                .event_seq = 42,
                                .attempt = 1,
                                .event_id = "019ac2b1-5d1f-7000-8000-00000000002a",
                                .type = "posts.update",
                                .occurred_at = "2026-11-29T20:39:22.123456Z",
                                .data = "{}"};
    ck_assert_msg(prepare(authority, port, &error), "%s: %s", authority, error.text);
    sink.send(sink.arg, &delivery, on_done, &result);
    while (!result.done)
        uv_run(&loop, UV_RUN_DEFAULT);
    return result;
}

static void expect_denied(const struct result *result, const char *authority, const char *range) {
    ck_assert_msg(result->outcome.class == CLASS_EGRESS_DENIED, "%s: class %s, %s", authority,
                  attempt_class_name(result->outcome.class), result->error);
    ck_assert_int_eq(result->outcome.verdict, VERDICT_REJECTED);
    ck_assert_msg(strstr(result->error, range), "%s: '%s' does not say %s", authority, result->error, range);
    ck_assert_int_eq(result->outcome.status, 0);
}

// ---- forms of an address

#define FORM_TEST(test, ...)                                                                                           \
    START_TEST(test) {                                                                                                 \
        static const struct form forms[] = {__VA_ARGS__};                                                              \
        check_forms(forms, sizeof forms / sizeof *forms);                                                              \
    }                                                                                                                  \
    END_TEST

struct form {
    const char *authority;
    const char *range; // that denies it; NULL: it is no URL, since not all readers take it for this address
    bool reaches;      // the receiver, where its address is allowed: so the form is not refused for being unreadable
};

static void check_forms(const struct form *forms, size_t count) {
    start(NULL);
    for (size_t i = 0; i < count; i++) {
        struct error error = {0};
        if (forms[i].range) {
            struct result result = deliver(forms[i].authority, port_of(receiver));
            expect_denied(&result, forms[i].authority, forms[i].range);
        } else {
            ck_assert_msg(!prepare(forms[i].authority, port_of(receiver), &error), "accepted: %s", forms[i].authority);
            ck_assert_int_eq(error.code, ERROR_USAGE);
        }
        sink.forget(sink.arg, &subscription);
    }
    ck_assert_int_eq(receiver_count(receiver), 0);
    stop();

    start("127.0.0.1");
    int reached = 0;
    for (size_t i = 0; i < count; i++) {
        if (!forms[i].reaches)
            continue;
        struct result result = deliver(forms[i].authority, port_of(receiver));
        ck_assert_msg(result.outcome.class == CLASS_DELIVERED, "%s: %s", forms[i].authority, result.error);
        sink.forget(sink.arg, &subscription);
        reached++;
    }
    ck_assert_int_eq(receiver_count(receiver), reached);
    stop();
}

FORM_TEST(an_address_in_decimal, {"2130706433", NULL, false}, {"2852039166", NULL, false}, {"0", NULL, false},
          {"080", NULL, false})
FORM_TEST(an_address_in_hex, {"0x7f000001", NULL, false}, {"0x7f.0x0.0x0.0x1", NULL, false}, {"0x7f.1", NULL, false},
          {"0xa9fea9fe", NULL, false}, {"0x", NULL, false})
FORM_TEST(an_address_in_octal, {"017700000001", NULL, false}, {"0177.0.0.1", NULL, false},
          {"0000177.0.0.01", NULL, false})
FORM_TEST(an_address_that_is_shortened, {"127.1", NULL, false}, {"127.0.1", NULL, false}, {"10.1", NULL, false})
FORM_TEST(an_address_with_a_trailing_dot, {"127.0.0.1.", NULL, false}, {"localhost.", NULL, false})
FORM_TEST(a_name_for_this_machine, {"localhost", "loopback", true}, {"LOCALHOST", "loopback", true},
          {"any.localhost", "loopback", true})
FORM_TEST(private_and_metadata_addresses, {"10.0.0.1", "private", false}, {"172.16.0.1", "private", false},
          {"192.168.0.1", "private", false}, {"169.254.169.254", "link-local", false},
          {"100.64.0.1", "carrier-grade NAT", false}, {"0.0.0.0", "this network", false},
          {"224.0.0.1", "multicast", false}, {"255.255.255.255", "broadcast", false})
FORM_TEST(ipv6_of_this_machine_and_its_network, {"[::1]", "loopback", false}, {"[0:0:0:0:0:0:0:1]", "loopback", false},
          {"[::]", "unspecified", false}, {"[fe80::1]", "link-local", false}, {"[fe80::1%25lo]", NULL, false},
          {"[fd00::1]", "private", false}, {"[ff02::1]", "multicast", false})
FORM_TEST(ipv4_mapped_into_ipv6, {"[::ffff:127.0.0.1]", "loopback", true}, {"[::ffff:7f00:1]", "loopback", true},
          {"[0:0:0:0:0:ffff:a9fe:a9fe]", "link-local", false})
FORM_TEST(ipv4_embedded_in_ipv6, {"[::127.0.0.1]", "loopback", false}, {"[::ffff:0:127.0.0.1]", "loopback", false},
          {"[64:ff9b::127.0.0.1]", "NAT64", false}, {"[64:ff9b::a9fe:a9fe]", "NAT64", false},
          {"[2002:7f00:1::1]", "6to4", false}, {"[2001::1]", "Teredo", false})

// ---- names

START_TEST(a_name_that_leads_inside) {
    start(NULL);
    dns_server_set(names, "inside.example", DNS_ANSWER, "127.0.0.1", 0);
    struct result result = deliver("inside.example", port_of(receiver));
    expect_denied(&result, "inside.example", "loopback");
    dns_server_set(names, "mapped.example", DNS_ANSWER, "::ffff:127.0.0.1", 0);
    sink.forget(sink.arg, &subscription);
    result = deliver("mapped.example", port_of(receiver));
    expect_denied(&result, "mapped.example", "loopback");
    ck_assert_int_eq(receiver_count(receiver), 0);
    stop();
}
END_TEST

// The stand-in for a public address is 127.0.0.1, which this sink may reach; 127.0.0.2 is as good as 169.254.169.254.
START_TEST(a_name_that_is_bound_anew_between_check_and_use) {
    start("127.0.0.1");
    dns_server_set(names, "rebinding.example", DNS_ANSWER, "127.0.0.1", 0);
    struct result result = deliver("rebinding.example", port_of(receiver));
    ck_assert_int_eq(result.outcome.class, CLASS_DELIVERED);
    ck_assert_int_eq(strncmp(result.peer, "127.0.0.1:", 10), 0);
    ck_assert_int_eq(dns_server_count(names, "rebinding.example"),
                     1); // what was judged is what is connected to; libcurl looks nothing up
    stop();

    // The next look, in a process that has not seen the first.
    start("127.0.0.1");
    dns_server_set(names, "rebinding.example", DNS_ANSWER, "127.0.0.2", 0);
    result = deliver("rebinding.example", port_of(receiver));
    expect_denied(&result, "rebinding.example", "loopback");
    ck_assert_int_eq(dns_server_count(names, "rebinding.example"), 2);
    ck_assert_int_eq(receiver_count(receiver), 1);
    stop();
}
END_TEST

START_TEST(of_mixed_answers_the_allowed_one_is_used) {
    static const char *const mixed[] = {"10.0.0.1 127.0.0.1 169.254.169.254", "::1 fe80::1 127.0.0.1",
                                        "127.0.0.1 127.0.0.2"};
    start("127.0.0.1");
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "mixed%d.example", i);
        dns_server_set(names, name, DNS_ANSWER, mixed[i], 0);
        struct result result = deliver(name, port_of(receiver));
        ck_assert_msg(result.outcome.class == CLASS_DELIVERED, "%s: %s", mixed[i], result.error);
        ck_assert_int_eq(strncmp(result.peer, "127.0.0.1:", 10), 0);
        sink.forget(sink.arg, &subscription);
    }
    ck_assert_int_eq(receiver_count(receiver), 3);
    dns_server_set(names, "none.example", DNS_ANSWER, "10.0.0.1 169.254.169.254 ::1", 0);
    struct result result = deliver("none.example", port_of(receiver));
    expect_denied(&result, "none.example", "loopback");
    stop();
}
END_TEST

// ---- around the address

START_TEST(a_redirect_to_an_inner_address_is_not_followed) {
    struct receiver *outside = receiver_start();
    start("127.0.0.1"); // so that following would work
    static const int statuses[] = {301, 302, 303, 307, 308};
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
        char location[200];
        snprintf(location, sizeof location, "Location: %s/latest/meta-data\r\nRefresh: 0; url=%s/\r\n",
                 receiver_url(receiver), receiver_url(receiver));
        receiver_answer(outside, statuses[i], location, 0);
        struct result result = deliver("127.0.0.1", port_of(outside));
        ck_assert_int_eq(result.outcome.verdict, VERDICT_REJECTED);
        ck_assert_int_eq(result.outcome.status, statuses[i]);
        sink.forget(sink.arg, &subscription);
    }
    ck_assert_int_eq(receiver_count(outside), 5);
    ck_assert_int_eq(receiver_count(receiver), 0);
    stop();
}
END_TEST

START_TEST(user_info_hides_no_host) {
    static const char *const authorities[] = {"example.com@127.0.0.1",    "example.com:443@127.0.0.1",
                                              "example.com%40@127.0.0.1", "@127.0.0.1",
                                              "example.com#@127.0.0.1",   "example.com\\\\@127.0.0.1"};
    start(NULL);
    for (size_t i = 0; i < sizeof authorities / sizeof *authorities; i++) {
        struct error error = {0};
        ck_assert_msg(!prepare(authorities[i], port_of(receiver), &error), "accepted: %s", authorities[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
    }
    ck_assert_int_eq(receiver_count(receiver), 0);
    stop();
}
END_TEST

START_TEST(other_schemes_are_refused) {
    static const char *const urls[] = {"file:///etc/passwd", "gopher://127.0.0.1/",         "ftp://127.0.0.1/",
                                       "dict://127.0.0.1/",  "unix:///var/run/docker.sock", "//127.0.0.1/"};
    start("127.0.0.1");
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct error error = {0};
        snprintf(settings, sizeof settings, "{\"url\":\"%s\",\"allow_http\":true}", urls[i]);
        ck_assert_msg(!sink.prepare(sink.arg, &subscription, &error), "accepted: %s", urls[i]);
    }
    stop();
}
END_TEST

START_TEST(a_proxy_of_the_environment_is_not_used) {
    char proxy[100];
    start("127.0.0.1");
    struct receiver *through = receiver_start();
    snprintf(proxy, sizeof proxy, "%s", receiver_url(through));
    setenv("http_proxy", proxy, 1);
    setenv("ALL_PROXY", proxy, 1);
    struct result result = deliver("127.0.0.1", port_of(receiver));
    ck_assert_int_eq(result.outcome.class, CLASS_DELIVERED);
    ck_assert_int_eq(receiver_count(receiver), 1);
    ck_assert_int_eq(receiver_count(through), 0);
    stop();
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *forms = suite_case(suite, "ssrf", 30);
    tcase_add_test(forms, an_address_in_decimal);
    tcase_add_test(forms, an_address_in_hex);
    tcase_add_test(forms, an_address_in_octal);
    tcase_add_test(forms, an_address_that_is_shortened);
    tcase_add_test(forms, an_address_with_a_trailing_dot);
    tcase_add_test(forms, a_name_for_this_machine);
    tcase_add_test(forms, private_and_metadata_addresses);
    tcase_add_test(forms, ipv6_of_this_machine_and_its_network);
    tcase_add_test(forms, ipv4_mapped_into_ipv6);
    tcase_add_test(forms, ipv4_embedded_in_ipv6);
    tcase_add_test(forms, a_name_that_leads_inside);
    tcase_add_test(forms, a_name_that_is_bound_anew_between_check_and_use);
    tcase_add_test(forms, of_mixed_answers_the_allowed_one_is_used);
    tcase_add_test(forms, a_redirect_to_an_inner_address_is_not_followed);
    tcase_add_test(forms, user_info_hides_no_host);
    tcase_add_test(forms, other_schemes_are_refused);
    tcase_add_test(forms, a_proxy_of_the_environment_is_not_used);
}

int main(void) {
    return suite_main("webhook", add_tests);
}
