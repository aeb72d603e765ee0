#include "common/http_target.h"
#include "tests/support/urls.h"
#include "tests/unit/common/tests.h"
#include <string.h>

START_TEST(what_all_readers_read_alike_is_a_url) {
    struct error error = {0};
    ck_assert_msg(http_url_check(good_urls[_i], true, &error), "%s: %s", good_urls[_i], error.text);
}
END_TEST

START_TEST(what_is_read_in_two_ways_is_no_url) {
    struct error error = {0};
    ck_assert_msg(!http_url_check(bad_urls[_i], true, &error), "accepted: %s", bad_urls[_i]);
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_int_eq(strncmp(error.text, "url: ", 5), 0);
}
END_TEST

static const struct {
    const char *url, *host, *port, *authority, *origin, *resource;
    bool literal;
} parts[] = {
    {"https://EXAMPLE.com", "example.com", "443", "example.com", "https://example.com:443", "/", false},
    {"http://h:8080?x=1", "h", "8080", "h:8080", "http://h:8080", "/?x=1", false},
    {"https://h:443/a/../B?c/d", "h", "443", "h", "https://h:443", "/a/../B?c/d", false},
    {"http://192.0.2.1:80/", "192.0.2.1", "80", "192.0.2.1", "http://192.0.2.1:80", "/", true},
    {"https://[2001:DB8:0::1]:444/", "2001:db8::1", "444", "[2001:db8::1]:444", "https://[2001:db8::1]:444", "/", true},
};

START_TEST(parts_of_a_url) {
    struct http_target target;
    ck_assert(http_target_parse(parts[_i].url, true, &target, NULL));
    ck_assert_str_eq(target.host, parts[_i].host);
    ck_assert_str_eq(target.port, parts[_i].port);
    ck_assert_str_eq(target.authority, parts[_i].authority);
    ck_assert_str_eq(target.origin, parts[_i].origin);
    ck_assert_str_eq(target.resource, parts[_i].resource);
    ck_assert_int_eq(target.literal, parts[_i].literal);
}
END_TEST

START_TEST(the_longest_name_fits) {
    char url[300] = "https://";
    for (int i = 0; i < 126; i++)
        strcat(url, "a.");
    strcat(url, "a:65535/"); // 253 bytes of name
    ck_assert(http_url_check(url, false, NULL));
    strcpy(url + strlen(url) - 7, "b.c/");
    ck_assert(!http_url_check(url, false, NULL));
}
END_TEST

void http_target_tests(Suite *suite) {
    TCase *tcase = tcase_create("http_target");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, what_all_readers_read_alike_is_a_url, 0, (int)(sizeof good_urls / sizeof *good_urls));
    tcase_add_loop_test(tcase, what_is_read_in_two_ways_is_no_url, 0, (int)(sizeof bad_urls / sizeof *bad_urls));
    tcase_add_loop_test(tcase, parts_of_a_url, 0, (int)(sizeof parts / sizeof *parts));
    tcase_add_test(tcase, the_longest_name_fits);
}
