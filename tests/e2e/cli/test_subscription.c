// Subscriptions: their life, what is refused, their settings, the test event.
#include "tests/e2e/cli/world.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

START_TEST(test_subscription_life) {
    set_up();
    expect_status(RUN("publish", "posts"), 0);
    expect_status(RUN("subscription", "add", "webhook", "orders", "https://example.com/hook", "--type", "posts.*",
                      "--type", "other.update", "--scope", "t1", "--retry", "1s,5s", "--deadline", "2s",
                      "--max-in-flight", "3", "--header", "x-key: a \"b\"", "--ordered"),
                  0);
    expect_text(out, "subscription orders was added\nsecret  whsec_");
    ck_assert_str_eq(
        sql_text(conn, "select concat_ws(' ', types, scope, ordered, settings ->> 'retry', settings ->> "
                       "'deadline_ms', settings ->> 'max_in_flight', settings ->> 'headers', settings ->> "
                       "'url') from rowbell.subscriptions where name = 'orders'"),
        "{posts.*,other.update} t1 t [1000, 5000] 2000 3 {\"x-key\": \"a \\\"b\\\"\"} https://example.com/hook");

    expect_status(
        RUN("subscription", "add", "webhook", "plain", "http://127.0.0.1:9/", "--type", "*", "--allow-http", "--json"),
        0);
    expect_json("j ->> 'name' = 'plain' and j ->> 'secret' like 'whsec\\_%' and jsonb_typeof(j -> 'id') = 'number'");

    expect_status(RUN("subscription", "list"), 0);
    expect_text(out, "name    id  kind     state   types");
    expect_text(out, "https://example.com/hook");
    expect_status(RUN("subscription", "list", "--json"), 0);
    expect_json("jsonb_array_length(j) = 3 and j -> 0 ->> 'name' = 'orders' and j -> 0 -> 'types' ? 'posts.*' and "
                "j -> 0 -> 'open' = '0'");

    expect_status(RUN("subscription", "show", "orders"), 0);
    expect_text(out, "ordered          yes\n");
    ck_assert_ptr_null(strstr(out, "whsec_"));
    expect_status(RUN("subscription", "show", "orders", "--json"), 0);
    expect_json("j ->> 'scope' = 't1' and j -> 'settings' -> 'retry' = '[1000, 5000]' and not j ? 'secrets'");
    ck_assert_ptr_null(strstr(out, "whsec_"));

    sql_run(
        conn,
        "insert into rowbell.jobs (subscription_id, event_seq) select id, 1 from rowbell.subscriptions where name = "
        "'orders'");
    expect_status(RUN("subscription", "pause", "orders"), 0);
    expect_text(out, "subscription orders is paused");
    ck_assert_str_eq(sql_text(conn, "select state from rowbell.jobs_waiting"), "held");
    expect_status(RUN("subscription", "resume", "orders", "--json"), 0);
    expect_json("j = '{\"name\": \"orders\", \"state\": \"active\"}'");
    // A dispatcher lets go of what was held, at this rate.
    expect_status(RUN("subscription", "resume", "orders", "--rate", "30/m"), 0);
    ck_assert_str_eq(
        sql_text(conn, "select state || (settings ->> 'resume_rate') from rowbell.subscriptions where name = 'orders'"),
        "active0.5");
    expect_status(RUN("subscription", "resume", "orders", "--rate", "0"), 2);
    expect_text(err, "--rate 0: expected how many a second");

    const char *owner = fixture_has_roles() ? "rowbell_app" : sql_text(conn, "select current_user");
    char text[200];
    expect_status(RUN("subscription", "set-owner", "orders", owner), 0);
    snprintf(text, sizeof text, "subscription orders belongs to %s\n", owner);
    expect_text(out, text);
    expect_status(RUN("subscription", "show", "orders", "--json"), 0);
    snprintf(text, sizeof text, "j ->> 'owner' = '%s'", owner);
    expect_json(text);
    expect_status(RUN("subscription", "set-owner", "orders", "no_such_role"), 1);
    expect_text(err, "there is no role no_such_role");
    expect_status(RUN("subscription", "set-owner", "none", owner), 1);
    expect_status(RUN("subscription", "set", "orders", "--scope", "*"), 2);
    expect_status(RUN("subscription", "set", "orders", "--unset", "scope"), 0);
    ck_assert_str_eq(sql_text(conn, "select scope is null from rowbell.subscriptions where name = 'orders'"), "t");

    expect_status(RUN("subscription", "remove", "orders"), 0);
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.jobs"), 0);
    static const char *const actions[] = {"remove", "show", "pause", "resume", NULL};
    for (int i = 0; actions[i] != NULL; i++) {
        expect_status(RUN("subscription", actions[i], "orders"), 1);
        expect_text(err, "rowbell: there is no subscription orders: see rowbell subscription list\n");
    }
    expect_status(RUN("subscription", "remove", "stream"), 1);
    expect_text(err, "Pause it instead");
}
END_TEST

START_TEST(test_subscription_refusals) {
    set_up();
    static const struct {
        const char *const arguments[8];
        int status;
        const char *text;
    } cases[] = {
        {{"a", "not a url", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "ftp://example.com/", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "http://example.com/", "--type", "*"}, 2, "--allow-http"},
        {{"a", "https://user:secret@example.com/", "--type", "*"}, 2, "expected https://host/path"},
        {{"a", "https://example.com/"}, 2, "--type is missing"},
        {{"a", "https://example.com/", "--type", "a b"}, 2, "'a b' is not a type pattern"},
        {{"a b", "https://example.com/", "--type", "*"}, 2, "'a b' cannot be a name"},
        {{"stream", "https://example.com/", "--type", "*"}, 1, "there is a subscription named 'stream' already"},
        {{"a", "https://example.com/", "--type", "*", "--retry", "5"}, 2, "--retry 5: expected delays"},
        {{"a", "https://example.com/", "--type", "*", "--deadline", "21s"}, 2, "--deadline 21s: expected a duration"},
        {{"a", "https://example.com/", "--type", "*", "--max-in-flight", "65"}, 2, "from 1 to 64"},
        {{"a", "https://example.com/", "--type", "*", "--header", "nonsense"}, 2, "expected 'name: value'"},
        {{"a", "https://example.com/", "--type", "*", "--header", "a: b\r\nc: d"}, 2, "a has a line break"},
        {{"a", "https://example.com/", "--type", "*", "--header", "Webhook-Id: x"},
         2,
         "--header: Webhook-Id is reserved"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *arguments[12] = {"subscription", "add", "webhook"};
        for (size_t j = 0; j < 8 && cases[i].arguments[j] != NULL; j++)
            arguments[3 + j] = cases[i].arguments[j];
        expect_status(run(arguments), cases[i].status);
        expect_text(err, cases[i].text);
        ck_assert_msg(strchr(err, '\n') == err + strlen(err) - 1, "more than a line: %s", err);
        ck_assert_str_eq(out, "");
        ck_assert_ptr_null(strstr(err, "secret@"));
    }
    ck_assert_int_eq(sql_int(conn, "select count(*) from rowbell.subscriptions"), 1);
}
END_TEST

START_TEST(test_subscription_test) {
    set_up();
    struct receiver *receiver = receiver_start();
    setenv("ROWBELL_SECRET_KEY", KEY_A, 1);
    add_endpoint("w", receiver_url(receiver));
    expect_status(RUN("subscription", "test", "w", "--allow-egress", "127.0.0.1"), 0);
    expect_text(out, "settings  ok      http://127.0.0.1:");
    expect_text(out, "dns       ok      127.0.0.1 is 127.0.0.1");
    expect_text(out, "egress    ok      127.0.0.1 allowed");
    expect_text(out, "connect   ok      127.0.0.1:");
    expect_text(out, "http      ok      200 after ");
    ck_assert_ptr_null(strstr(out, "tls "));
    struct received received = receiver_get(receiver, 0);
    ck_assert_ptr_nonnull(strstr(received.body, "\"type\":\"rowbell.test\""));
    ck_assert_ptr_nonnull(strstr(received.body, "\"data\":{\"test\":true,\"subscription\":\"w\"}"));
    ck_assert_int_eq(strncmp(received_header(&received, "webhook-signature"), "v1,", 3), 0);
    ck_assert_uint_eq(strlen(received_header(&received, "webhook-id")), 36);

    expect_status(RUN("subscription", "test", "w"), 1); // nothing is sent
    expect_text(out, "egress    FAILED  127.0.0.1 denied: loopback; if it is yours and meant, give --allow-egress");
    expect_text(err, "w did not take the test event");
    setenv("ROWBELL_ALLOW_EGRESS", "10.0.0.0/8,127.0.0.0/8", 1);
    receiver_answer(receiver, 401, NULL, 0);
    expect_status(RUN("subscription", "test", "w", "--json"), 1);
    expect_json(
        "j ->> 'passed' = 'false' and j -> 'steps' -> 4 ->> 'step' = 'http' and j -> 'steps' -> 4 ->> 'text' like "
        "'401 after % ms; does it verify with this secret%'");
    receiver_answer(receiver, 307, "Location: http://169.254.169.254/\r\n", 0);
    expect_status(RUN("subscription", "test", "w"), 1);
    expect_text(out, "redirects are never followed");
    ck_assert_int_eq(receiver_count(receiver), 3);

    // What the dispatchers could not do either.
    setenv("ROWBELL_SECRET_KEY", KEY_B, 1);
    expect_status(RUN("subscription", "test", "w"), 1);
    expect_text(out, "settings  FAILED  secret: it is sealed under key ");
    unsetenv("ROWBELL_SECRET_KEY");
    add_endpoint("nowhere", "http://no-such-host.invalid/");
    expect_status(RUN("subscription", "test", "nowhere"), 1);
    expect_text(out, "dns       FAILED  dns nxdomain: no-such-host.invalid: ");
    add_endpoint("closed", "http://127.0.0.1:1/");
    expect_status(RUN("subscription", "test", "closed"), 1);
    expect_text(out, "connect   FAILED  ");
    char https[64];
    snprintf(https, sizeof(https), "https%s", receiver_url(receiver) + strlen("http"));
    add_endpoint("no-tls", https);
    expect_status(RUN("subscription", "test", "no-tls"), 1);
    expect_text(out, "connect   ok ");
    expect_text(out, "tls       FAILED  ");
    expect_status(RUN("subscription", "test", "stream"), 1);
    expect_status(RUN("subscription", "test", "none"), 1);
    expect_text(err, "there is no subscription none");
    expect_status(RUN("subscription", "test", "w", "--allow-egress", "everything"), 2);
    const char *operator= fixture_login("rowbell_operator");
    expect_status(RUN("subscription", "test", "closed", "--database-url", operator), 1);
    expect_text(out, "settings  FAILED  secret: it is stored unsealed, and this login may not read it");
}
END_TEST

START_TEST(test_subscription_set) {
    set_up();
    expect_status(RUN("subscription", "add", "webhook", "w", "https://a.example/", "--type", "*", "--deadline", "2s",
                      "--ordered", "--condition", "$.a == 1", "--rate", "100/h", "--status", "404=retry,4xx=reject"),
                  0);
    ck_assert_str_eq(sql_text(conn,
                              "select concat_ws(' ', settings -> 'rate', settings -> 'statuses', condition, ordered) "
                              "from rowbell.subscriptions where name = 'w'"),
                     "0.0277777778 {\"404\": \"retry\", \"4xx\": \"reject\"} ($.\"a\" == 1) t");
    expect_status(RUN("subscription", "set", "w", "--url", "https://b.example/", "--type", "posts.*", "--scope", "t1",
                      "--rate", "5", "--header", "x-key: 1", "--signature", "timestamp", "--unset",
                      "deadline,ordered,condition,status"),
                  0);
    expect_text(out, "subscription w was changed\n");
    ck_assert_str_eq(sql_text(conn, "select concat_ws(' ', settings, types, scope, ordered, condition is null) from "
                                    "rowbell.subscriptions where name = 'w'"),
                     "{\"url\": \"https://b.example/\", \"rate\": 5, \"headers\": {\"x-key\": \"1\"}, \"signature\": "
                     "\"timestamp\"} {posts.*} t1 f t");
    static const struct {
        const char *const arguments[4];
        int status;
        const char *text;
    } cases[] = {
        {{"w"}, 2, "nothing to set"},
        {{"w", "--unset", "url"}, 2, "--unset url: give the name of a flag that can be left out"},
        {{"w", "--unset", "rate,rate"}, 2, "set by the same command"},
        {{"w", "--url", "http://b.example/"}, 2, "not https"},
        {{"w", "--status", "404=maybe"}, 2, "--status 404=maybe: expected"},
        {{"w", "--status", "x"}, 2, "--status x: expected"},
        {{"w", "--rate", "fast"}, 2, "--rate fast: expected"},
        {{"w", "--signature", "md5"}, 2, "--signature"},
        {{"w", "--client-key", "/nowhere"}, 2, "need each other"},
        {{"none", "--rate", "5"}, 1, "there is no webhook none"},
        {{"stream", "--rate", "5"}, 1, "there is no webhook stream"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const char *arguments[8] = {"subscription", "set"};
        for (size_t j = 0; j < 4 && cases[i].arguments[j] != NULL; j++)
            arguments[2 + j] = cases[i].arguments[j];
        expect_status(run(arguments), cases[i].status);
        expect_text(err, cases[i].text);
    }
}
END_TEST

void subscription_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "subscription", 60);
    tcase_add_test(tcase, test_subscription_life);
    tcase_add_test(tcase, test_subscription_refusals);
    tcase_add_test(tcase, test_subscription_test);
    tcase_add_test(tcase, test_subscription_set);
}
