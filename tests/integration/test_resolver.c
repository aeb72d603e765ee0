// The resolver against a name server that does everything wrong.
#include "common/clock.h"
#include "common/resolver.h"
#include "tests/support/dns_server.h"
#include "tests/support/fixture.h"
#include <arpa/inet.h>
#include <string.h>

static uv_loop_t loop;
static struct resolver *resolver;
static struct dns_server *server;

struct looked_up {
    int calls;
    size_t count;
    char first[64], error[500];
};

static void setup(void) {
    server = dns_server_start();
    ck_assert(resolver_set_servers(dns_server_address(server), NULL));
    ck_assert_int_eq(uv_loop_init(&loop), 0);
    resolver = resolver_get(&loop);
}

static void teardown(void) {
    resolver_release(resolver);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(uv_loop_close(&loop), 0);
    dns_server_stop(server);
    resolver_set_servers(NULL, NULL);
}

static void on_looked_up(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct looked_up *result = arg;
    ck_assert((answer == NULL) != (error == NULL));
    result->calls++;
    result->count = answer ? answer->count : 0;
    snprintf(result->error, sizeof result->error, "%s", error ? error->text : "");
    if (answer) {
        const union resolver_address *first = &answer->addresses[0];
        bool v6 = first->any.sa_family == AF_INET6;
        inet_ntop(first->any.sa_family, v6 ? (const void *)&first->v6.sin6_addr : &first->v4.sin_addr, result->first,
                  sizeof result->first);
    }
}

static struct looked_up look_up(const char *host) {
    struct looked_up result = {0};
    resolver_lookup(resolver, host, false, on_looked_up, &result);
    ck_assert_int_eq(result.calls, 0); // never from inside
    while (result.calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    ck_assert_int_eq(result.calls, 1);
    return result;
}

static const struct {
    enum dns_action action;
    const char *addresses;
    size_t count;
    const char *first, *error; // the beginning of it
} answers[] = {
    {DNS_ANSWER, "192.0.2.1", 1, "192.0.2.1", ""},
    {DNS_ANSWER, "2001:db8::1 192.0.2.1 2001:db8::2", 3, "192.0.2.1", ""},
    {DNS_ANSWER, "2001:db8::1", 1, "2001:db8::1", ""},
    {DNS_TRUNCATED, "192.0.2.7", 1, "192.0.2.7", ""},
    {DNS_SPOOFED, "192.0.2.8", 1, "192.0.2.8", ""},
    {DNS_NO_AAAA, "192.0.2.9", 1, "192.0.2.9", ""},
    {DNS_NODATA, NULL, 0, "", "dns nodata: name.example: the name has no address"},
    {DNS_NXDOMAIN, NULL, 0, "", "dns nxdomain: name.example: there is no such name"},
    {DNS_SERVFAIL, NULL, 0, "", "dns servfail: name.example: "},
    {DNS_REFUSED, NULL, 0, "", "dns refused: name.example: "},
    {DNS_MALFORMED, NULL, 0, "", "dns malformed: name.example: "},
    {DNS_SILENT, NULL, 0, "", "dns timeout: name.example: "},
    {DNS_GARBAGE, NULL, 0, "", "dns "}, // a timeout; with c-ares of Debian 13, malformed
};

START_TEST(each_answer_and_fault) {
    dns_server_set(server, "name.example", answers[_i].action, answers[_i].addresses, 60);
    struct looked_up result = look_up("name.example");
    ck_assert_str_eq(result.first, answers[_i].first);
    ck_assert_uint_eq(result.count, answers[_i].count);
    ck_assert_msg(strncmp(result.error, answers[_i].error, strlen(answers[_i].error)) == 0, "%s", result.error);
    ck_assert_int_eq(result.count > 0, result.error[0] == '\0');
    struct resolver_answer known;
    ck_assert_int_eq(resolver_peek(resolver, "name.example", &known), result.count > 0);
    ck_assert_uint_eq(resolver_wait_ms(resolver, "name.example"), 0);
    int asked = dns_server_count(server, "name.example");
    look_up("name.example"); // known, be it a fault
    ck_assert_int_eq(dns_server_count(server, "name.example"), asked);
}
END_TEST

START_TEST(a_closed_port_is_unreachable) {
    resolver_release(resolver);
    ck_assert(resolver_set_servers("127.0.0.1:1", NULL));
    uv_run(&loop, UV_RUN_DEFAULT);
    resolver = resolver_get(&loop);
    struct looked_up result = look_up("name.example");
    ck_assert_str_eq(result.error, "dns unreachable: name.example: no name server can be reached");
}
END_TEST

START_TEST(many_addresses_are_bounded) {
    char addresses[1000] = "2001:db8::1";
    for (int i = 0; i < 60; i++)
        snprintf(addresses + strlen(addresses), sizeof addresses - strlen(addresses), " 192.0.2.%d", i);
    dns_server_set(server, "many.example", DNS_ANSWER, addresses, 60);
    ck_assert_uint_le(look_up("many.example").count, RESOLVER_MAX_ADDRESSES);
}
END_TEST

START_TEST(what_needs_no_name_server_asks_none) {
    static const char *const known[] = {"127.0.0.1", "::1", "::ffff:192.0.2.1", "localhost", "a.LocalHost"};
    dns_server_set(server, "*", DNS_ANSWER, "192.0.2.66", 60);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct resolver_answer answer;
        ck_assert(resolver_peek(resolver, known[i], &answer));
        ck_assert_str_eq(look_up(known[i]).error, "");
    }
    static const char *const bad[] = {"", "a b", "a/b", "a:b", "%31", "no-such.invalid"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_str_ne(look_up(bad[i]).error, "");
    char longest[300] = "";
    memset(longest, 'a', 255);
    ck_assert_str_ne(look_up(longest).error, "");
    ck_assert_int_eq(dns_server_count(server, "*"), 0);
}
END_TEST

START_TEST(one_look_up_serves_all_who_wait) {
    struct looked_up results[100] = {0};
    dns_server_set(server, "name.example", DNS_ANSWER, "192.0.2.1", 60);
    struct resolver_wait *second = NULL;
    for (int i = 0; i < 100; i++) {
        struct resolver_wait *wait = resolver_lookup(resolver, "name.example", false, on_looked_up, &results[i]);
        second = i == 1 ? wait : second;
    }
    resolver_cancel(second);
    while (results[99].calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(results[i].calls, i == 1 ? 0 : 1);
    ck_assert_int_eq(dns_server_count(server, "name.example"), 1);
}
END_TEST

// 2,000 silent names, and one that answers: it waits for none of them.
START_TEST(silent_names_hold_up_no_other) {
    struct looked_up silent = {0};
    dns_server_set(server, "*.silent.example", DNS_SILENT, NULL, 0);
    dns_server_set(server, "name.example", DNS_ANSWER, "192.0.2.1", 60);
    struct resolver_wait *waits[2000];
    for (int i = 0; i < 2000; i++) {
        char host[64];
        snprintf(host, sizeof host, "n%d.silent.example", i);
        waits[i] = resolver_lookup(resolver, host, false, on_looked_up, &silent);
    }
    ck_assert_str_eq(look_up("name.example").first, "192.0.2.1");
    ck_assert_int_eq(silent.calls, 0); // none of them is over
    for (int i = 0; i < 2000; i++)
        resolver_cancel(waits[i]);
}
END_TEST

START_TEST(one_who_waits_for_a_silent_name_may_cancel_while_another_answers) {
    struct looked_up silent = {0};
    dns_server_set(server, "silent.example", DNS_SILENT, NULL, 0);
    dns_server_set(server, "name.example", DNS_ANSWER, "192.0.2.1", 60);
    struct resolver_wait *wait = resolver_lookup(resolver, "silent.example", false, on_looked_up, &silent);
    ck_assert_uint_gt(resolver_wait_ms(resolver, "silent.example"), 0);
    look_up("name.example");
    resolver_cancel(wait);
    ck_assert_int_eq(silent.calls, 0);
}
END_TEST

START_TEST(servers_are_read) {
    static const char *const good[] = {"192.0.2.53", "192.0.2.53:5353,192.0.2.54", "[2001:db8::53]:53", ""};
    static const char *const bad[] = {"name.example", "192.0.2.53:x"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        ck_assert_msg(resolver_set_servers(good[i], NULL), "%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error error;
        ck_assert_msg(!resolver_set_servers(bad[i], &error), "%s", bad[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
    }
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "resolver", 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, each_answer_and_fault, 0, (int)(sizeof answers / sizeof *answers));
    tcase_add_test(tcase, a_closed_port_is_unreachable);
    tcase_add_test(tcase, many_addresses_are_bounded);
    tcase_add_test(tcase, what_needs_no_name_server_asks_none);
    tcase_add_test(tcase, one_look_up_serves_all_who_wait);
    tcase_add_test(tcase, silent_names_hold_up_no_other);
    tcase_add_test(tcase, one_who_waits_for_a_silent_name_may_cancel_while_another_answers);
    tcase_add_test(tcase, servers_are_read);
}

int main(void) {
    return suite_main("resolver", add_tests);
}
