#include "common/egress.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <arpa/inet.h>
#include <string.h>

static const char *denied(const struct egress_policy *policy, const char *text) {
    struct sockaddr_storage address = {0};
    if (inet_pton(AF_INET, text, &((struct sockaddr_in *)&address)->sin_addr) == 1) {
        address.ss_family = AF_INET;
    } else {
        ck_assert_msg(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)&address)->sin6_addr) == 1, "%s", text);
        address.ss_family = AF_INET6;
    }
    const char *range = NULL;
    bool allowed = egress_allows(policy, (struct sockaddr *)&address, &range);
    ck_assert_msg(allowed == (range == NULL), "%s: a range is named if and only if it denies", text);
    return range;
}

// The first and the last address of each range, and the neighbours that are outside of it.
static const struct {
    const char *address;
    const char *range; // NULL: allowed
} judgements[] = {
    {"0.0.0.0", "this network"},
    {"0.255.255.255", "this network"},
    {"1.0.0.0", NULL},
    {"1.1.1.1", NULL},
    {"9.255.255.255", NULL},
    {"10.0.0.0", "private"},
    {"10.255.255.255", "private"},
    {"11.0.0.0", NULL},
    {"100.63.255.255", NULL},
    {"100.64.0.0", "carrier-grade NAT"},
    {"100.127.255.255", "carrier-grade NAT"},
    {"100.128.0.0", NULL},
    {"126.255.255.255", NULL},
    {"127.0.0.0", "loopback"},
    {"127.0.0.1", "loopback"},
    {"127.255.255.255", "loopback"},
    {"128.0.0.0", NULL},
    {"169.253.255.255", NULL},
    {"169.254.0.0", "link-local"},
    {"169.254.169.254", "link-local"},
    {"169.254.255.255", "link-local"},
    {"169.255.0.0", NULL},
    {"172.15.255.255", NULL},
    {"172.16.0.0", "private"},
    {"172.31.255.255", "private"},
    {"172.32.0.0", NULL},
    {"191.255.255.255", NULL},
    {"192.0.0.0", "protocol assignments"},
    {"192.0.0.255", "protocol assignments"},
    {"192.0.1.0", NULL},
    {"192.0.2.0", "documentation"},
    {"192.0.2.255", "documentation"},
    {"192.0.3.0", NULL},
    {"192.88.99.1", "6to4 relay"},
    {"192.167.255.255", NULL},
    {"192.168.0.0", "private"},
    {"192.168.255.255", "private"},
    {"192.169.0.0", NULL},
    {"198.17.255.255", NULL},
    {"198.18.0.0", "benchmark"},
    {"198.19.255.255", "benchmark"},
    {"198.20.0.0", NULL},
    {"198.51.99.255", NULL},
    {"198.51.100.7", "documentation"},
    {"198.51.101.0", NULL},
    {"203.0.112.255", NULL},
    {"203.0.113.9", "documentation"},
    {"203.0.114.0", NULL},
    {"223.255.255.255", NULL},
    {"224.0.0.0", "multicast"},
    {"239.255.255.255", "multicast"},
    {"240.0.0.0", "reserved"},
    {"255.255.255.254", "reserved"},
    {"255.255.255.255", "broadcast"},

    {"::", "unspecified"},
    {"::1", "loopback"},
    {"100::1", "discard"},
    {"2001::1", "Teredo"},
    {"2001:0:ffff::1", "Teredo"},
    {"2001:2::1", "benchmark"},
    {"2001:10::1", "ORCHID"},
    {"2001:2f:ffff::1", "ORCHID"},
    {"2001:db7:ffff::1", NULL},
    {"2001:db8::1", "documentation"},
    {"2001:db8:ffff::1", "documentation"},
    {"2001:db9::1", NULL},
    {"2001:4860:4860::8888", NULL},
    {"2002::1", "6to4"},
    {"2002:808:808::1", "6to4"}, // though its inner address is public
    {"2003::1", NULL},
    {"2606:4700::1111", NULL},
    {"3ffe::1", NULL},
    {"3fff::1", "documentation"},
    {"3fff:fff:ffff::1", "documentation"},
    {"3fff:1000::1", NULL},
    {"4000::1", "not global unicast"},
    {"1fff::1", "not global unicast"},
    {"fbff::1", "not global unicast"},
    {"fc00::1", "private"},
    {"fdff:ffff::1", "private"},
    {"fe00::1", "not global unicast"},
    {"fe80::1", "link-local"},
    {"febf:ffff::1", "link-local"},
    {"fec0::1", "site-local"},
    {"ff02::1", "multicast"},

    {"64:ff9b::808:808", "NAT64"},
    {"64:ff9b::7f00:1", "NAT64"},
    {"64:ff9b:1::1", "NAT64"},
    {"::ffff:127.0.0.1", "loopback"},
    {"::ffff:10.1.2.3", "private"},
    {"::ffff:169.254.169.254", "link-local"},
    {"::ffff:8.8.8.8", NULL},
    {"::ffff:0:127.0.0.1", "loopback"},
    {"::ffff:0:8.8.8.8", NULL},
    {"::127.0.0.1", "loopback"},
    {"::192.168.1.1", "private"},
    {"::8.8.8.8", NULL},
    {"2606:4700::5efe:7f00:1", "loopback"},
    {"2606:4700::200:5efe:a01:203", "private"},
    {"2606:4700::5efe:808:808", NULL},
    {"4000::5efe:808:808", "not global unicast"},
};

START_TEST(each_range_is_denied_to_its_edges) {
    struct egress_policy policy;
    ck_assert(egress_policy_init(&policy, &(struct config_list){0}, NULL));
    const char *range = denied(&policy, judgements[_i].address);
    ck_assert_msg((range == NULL) == (judgements[_i].range == NULL) &&
                      (!range || strcmp(range, judgements[_i].range) == 0),
                  "%s: %s instead of %s", judgements[_i].address, range ? range : "allowed",
                  judgements[_i].range ? judgements[_i].range : "allowed");
}
END_TEST

START_TEST(allowed_ranges_win) {
    const char *items[] = {"10.1.0.0/16", "127.0.0.1", "fd00::/8", "::1/128", "64:ff9b::/96"};
    struct egress_policy policy;
    struct error error;
    ck_assert_msg(egress_policy_init(&policy, &(struct config_list){items, 5}, &error), "%s", error.text);
    ck_assert_ptr_null(denied(&policy, "10.1.255.255"));
    ck_assert_ptr_nonnull(denied(&policy, "10.2.0.0"));
    ck_assert_ptr_null(denied(&policy, "127.0.0.1"));
    ck_assert_ptr_nonnull(denied(&policy, "127.0.0.2"));
    ck_assert_ptr_null(denied(&policy, "::ffff:10.1.2.3")); // the same address in another form
    ck_assert_ptr_null(denied(&policy, "::10.1.2.3"));
    ck_assert_ptr_nonnull(denied(&policy, "::ffff:10.2.2.3"));
    ck_assert_ptr_null(denied(&policy, "fd12::1"));
    ck_assert_ptr_nonnull(denied(&policy, "fc12::1"));
    ck_assert_ptr_null(denied(&policy, "::1"));
    ck_assert_ptr_nonnull(denied(&policy, "::"));
    ck_assert_ptr_null(denied(&policy, "64:ff9b::808:808"));
    egress_policy_close(&policy);
}
END_TEST

START_TEST(whole_families_can_be_allowed) {
    const char *items[] = {"0.0.0.0/0"};
    struct egress_policy policy;
    ck_assert(egress_policy_init(&policy, &(struct config_list){items, 1}, NULL));
    ck_assert_ptr_null(denied(&policy, "127.0.0.1"));
    ck_assert_ptr_nonnull(denied(&policy, "::1"));
    egress_policy_close(&policy);
}
END_TEST

START_TEST(bad_ranges_are_named) {
    static const char *const bad[] = {
        "",        "localhost",   "10.0.0.0/",   "10.0.0.0/33", "10.0.0.0/-1",    "10.0.0.0/8x", "10.0.0/8",
        "::1/129", "10.1.2.3/16", "10.0.0.0/ 8", "fe80::1%lo",  "2001:db8::1/32", "010.0.0.1",   "10.0.0.0/0008",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *items[] = {"10.0.0.0/8", bad[i]};
        struct egress_policy policy;
        struct error error;
        ck_assert_msg(!egress_policy_init(&policy, &(struct config_list){items, 2}, &error), "%s", bad[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
        ck_assert_msg(strncmp(error.text, bad[i], strlen(bad[i])) == 0, "%s", error.text);
        ck_assert_ptr_null(policy.allowed);
    }
}
END_TEST

void egress_tests(Suite *suite) {
    TCase *egress = suite_case(suite, "egress", 10);
    tcase_add_loop_test(egress, each_range_is_denied_to_its_edges, 0, (int)(sizeof judgements / sizeof *judgements));
    tcase_add_test(egress, allowed_ranges_win);
    tcase_add_test(egress, whole_families_can_be_allowed);
    tcase_add_test(egress, bad_ranges_are_named);
}
