// The small pure parts of the HTTP side.
#include "gateway/client_address.h"
#include "gateway/cors.h"
#include "gateway/drain.h"
#include "gateway/events_endpoint.h"
#include "gateway/table_filter.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"

static const struct {
    const char *accept;
    bool allowed;
} accepts[] = {
    {NULL, true},
    {"", true},
    {"text/event-stream", true},
    {"*/*", true},
    {"text/*", true},
    {"Text/Event-Stream; charset=utf-8", true},
    {"application/json, text/event-stream;q=0.5", true},
    {"application/json, */*;q=0.1", true},
    {"application/json", false},
    {"text/html", false},
    {"text/event-streams", false},
    {"text/event-stream;q=0", false},
    {"text/event-stream;q=0.000, */*", false}, // the more precise range decides
    {"text/event-stream; q=0.001", true},
    {"*/*;q=0", false},
    {"*/*;q=0, text/event-stream", true},
    {"text/html,application/xhtml+xml,*/*;q=0.8", true},
    {",,,", false},
};

START_TEST(accept_header) {
    ck_assert_msg(accept_allows(accepts[_i].accept, "text", "event-stream") == accepts[_i].allowed, "%s",
                  accepts[_i].accept);
}
END_TEST

static const struct {
    const char *origin;
    bool good;
} origins[] = {
    {"https://app.example", true},
    {"http://localhost:3000", true},
    {"http://[::1]:3000", true},
    {"https://app.example/", false},
    {"*", false},
    {"app.example", false},
    {"https://", false},
    {"https://App.example", false},
    {"null", false},
    {"https://a.example\r\nX: 1", false},
};

START_TEST(cors_takes_origins_only) {
    struct error error;
    struct config_list list = {.items = (const char *[]){origins[_i].origin}, .count = 1};
    ck_assert_msg(cors_check(&list, &error) == origins[_i].good, "%s", origins[_i].origin);
}
END_TEST

START_TEST(cors_answers_listed_origins_only) {
    struct buffer headers = {0};
    struct config_list none = {0};
    struct config_list list = {.items = (const char *[]){"https://a.example", "https://b.example"}, .count = 2};
    cors_append_headers(&none, "https://a.example", true, &headers);
    ck_assert_str_eq(buffer_cstr(&headers), "");
    cors_append_headers(&list, "https://evil.example", true, &headers);
    ck_assert_str_eq(buffer_cstr(&headers), "Vary: Origin\r\n");
    buffer_clear(&headers);
    cors_append_headers(&list, "https://b.example", false, &headers);
    ck_assert_str_eq(buffer_cstr(&headers), "Vary: Origin\r\nAccess-Control-Allow-Origin: https://b.example\r\n"
                                            "Access-Control-Allow-Credentials: true\r\n");
    buffer_free(&headers);
}
END_TEST

START_TEST(table_filter_names) {
    struct table_filter *filter = NULL;
    struct buffer array = {0};
    ck_assert(table_filter_holds(NULL, "anything"));
    table_filter_add(&filter, "posts");
    table_filter_add(&filter, "a\"b\\c, {d}");
    table_filter_add(&filter, "posts");
    ck_assert(table_filter_holds(filter, "posts"));
    ck_assert(table_filter_holds(filter, "a\"b\\c, {d}"));
    ck_assert(!table_filter_holds(filter, "post"));
    ck_assert(!table_filter_holds(filter, ""));
    table_filter_append_array(filter, &array);
    ck_assert_str_eq(array.bytes, "{\"posts\",\"a\\\"b\\\\c, {d}\"}");
    buffer_free(&array);
    table_filter_free(filter);
}
END_TEST

START_TEST(drain_spreads_over_the_window) {
    static const struct {
        size_t streams;
        uint64_t window_ms;
    } cases[] = {{1, 1000}, {10, 1000}, {10000, 23000}, {3, 0}, {99, 51}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t left = cases[i].streams;
        uint64_t now = 0;
        size_t most = 0;
        while (left > 0) {
            uint64_t left_ms = now < cases[i].window_ms ? cases[i].window_ms - now : 0;
            size_t quota = drain_quota(left, left_ms);
            ck_assert_uint_gt(quota, 0);
            ck_assert_uint_le(quota, left);
            most = quota > most ? quota : most;
            left -= quota;
            now += left > 0 ? DRAIN_STEP_MS : 0;
        }
        ck_assert_uint_le(now, cases[i].window_ms);
        size_t steps = cases[i].window_ms / DRAIN_STEP_MS;
        ck_assert_uint_le(most, steps == 0 ? cases[i].streams : cases[i].streams / steps + 1);
    }
}
END_TEST

static const struct {
    const char *peer;
    const char *forwarded; // the header's name
    const char *values[3];
    const char *client; // as it would be if it connected itself
} forwards[] = {
    {"198.41.0.4", "x-forwarded-for", {"8.8.8.8"}, "198.41.0.4"}, // not a proxy of ours: its word counts for nothing
    {"10.0.0.1", "x-forwarded-for", {NULL}, "10.0.0.1"},
    {"10.0.0.1", "x-forwarded-for", {"8.8.8.8"}, "8.8.8.8"},
    {"10.0.0.1", "x-forwarded-for", {"1.1.1.1, 8.8.8.8 ,\t10.0.0.2"}, "8.8.8.8"},
    {"10.0.0.1", "x-forwarded-for", {"1.1.1.1", "8.8.8.8", "10.0.0.2,10.0.0.3"}, "8.8.8.8"},
    {"10.0.0.1", "x-forwarded-for", {"1.1.1.1, unknown"}, "10.0.0.1"}, // the last that is certain
    {"10.0.0.1", "x-forwarded-for", {"1.1.1.1, , 10.0.0.2"}, "10.0.0.2"},
    {"10.0.0.1", "x-forwarded-for", {"1.1.1.1", "unknown", "10.0.0.2"}, "10.0.0.2"},
    {"10.0.0.1", "x-forwarded-for", {""}, "10.0.0.1"},
    {"10.0.0.1", "x-forwarded-for", {"8.8.8.8:4711"}, "8.8.8.8"},
    {"10.0.0.1", "x-forwarded-for", {"[2a00:1:2:3::1]:4711"}, "2a00:1:2:3:ffff::9"}, // one /64
    {"10.0.0.1", "x-forwarded-for", {"::ffff:8.8.8.8"}, "8.8.8.8"},
    {"::1", "x-forwarded-for", {"2a00:1:2:3::1"}, "2a00:1:2:3::"},
    {"10.0.0.1", "forwarded", {"for=1.1.1.1, for=8.8.8.8;proto=https"}, "8.8.8.8"},
    {"10.0.0.1", "forwarded", {"proto=http; FOR=\"[2a00:1:2:3::1]:47\""}, "2a00:1:2:3::"},
    {"10.0.0.1", "forwarded", {"for=\"1.1.1.1, for=8.8.8.8"}, "8.8.8.8"}, // a quote that is never closed
    {"10.0.0.1", "forwarded", {"for=_hidden"}, "10.0.0.1"},
    {"10.0.0.1", "forwarded", {"by=1.1.1.1"}, "10.0.0.1"},
};

START_TEST(the_client_behind_the_proxies) {
    const char *ours[] = {"10.0.0.0/8", "::1"};
    struct egress_policy trusted, none = {0};
    ck_assert(egress_policy_init(&trusted, &(struct config_list){.items = ours, .count = 2}, NULL));
    struct http_request request = {.header_count = 1};
    request.headers[0] = (struct http_header){"x-other", "9.9.9.9"};
    for (int i = 0; i < 3 && forwards[_i].values[i]; i++) {
        request.headers[request.header_count++] = (struct http_header){forwards[_i].forwarded, forwards[_i].values[i]};
    }
    struct client_address client = client_address_of(forwards[_i].peer, &trusted, forwards[_i].forwarded, &request);
    struct client_address expected = client_address_of(forwards[_i].client, &none, "x-forwarded-for", &request);
    ck_assert_mem_eq(client.bytes, expected.bytes, sizeof client.bytes);
    ck_assert(client.is_public == expected.is_public);
    egress_policy_close(&trusted);
}
END_TEST

void http_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "http", 10);
    tcase_add_loop_test(tcase, accept_header, 0, sizeof accepts / sizeof accepts[0]);
    tcase_add_loop_test(tcase, cors_takes_origins_only, 0, sizeof origins / sizeof origins[0]);
    tcase_add_test(tcase, cors_answers_listed_origins_only);
    tcase_add_test(tcase, table_filter_names);
    tcase_add_test(tcase, drain_spreads_over_the_window);
    tcase_add_loop_test(tcase, the_client_behind_the_proxies, 0, (int)(sizeof forwards / sizeof forwards[0]));
}
