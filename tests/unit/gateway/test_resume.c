#include "gateway/resume.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"

static const struct {
    const char *text;
    enum resume_ask_kind kind;
    int64_t position;
} asks[] = {
    {NULL, RESUME_ASK_FRESH, 0},
    {"", RESUME_ASK_FRESH, 0},
    {"0", RESUME_ASK_FRESH, 0},
    {"1", RESUME_ASK_POSITION, 1},
    {"1764446400000123", RESUME_ASK_POSITION, 1764446400000123},
    {"9223372036854775807", RESUME_ASK_POSITION, INT64_MAX},
    {"9223372036854775808", RESUME_ASK_UNREADABLE, 0},
    {"99999999999999999999999999999999999999999999999999", RESUME_ASK_UNREADABLE, 0},
    {"00", RESUME_ASK_UNREADABLE, 0},
    {"01", RESUME_ASK_UNREADABLE, 0},
    {"-1", RESUME_ASK_UNREADABLE, 0},
    {"+1", RESUME_ASK_UNREADABLE, 0},
    {" 1", RESUME_ASK_UNREADABLE, 0},
    {"1 ", RESUME_ASK_UNREADABLE, 0},
    {"1.0", RESUME_ASK_UNREADABLE, 0},
    {"1e3", RESUME_ASK_UNREADABLE, 0},
    {"0x10", RESUME_ASK_UNREADABLE, 0},
    {"abc", RESUME_ASK_UNREADABLE, 0},
    {"\xd9\xa1", RESUME_ASK_UNREADABLE, 0}, // an Arabic digit
};

START_TEST(what_a_client_shows) {
    struct resume_ask ask = resume_ask_parse(asks[_i].text);
    ck_assert_int_eq(ask.kind, asks[_i].kind);
    if (ask.kind == RESUME_ASK_POSITION) {
        ck_assert_int_eq(ask.position, asks[_i].position);
    }
}
END_TEST

START_TEST(the_newer_of_two) {
    static const char *const oldest_first[] = {NULL, "garbage", "99", "100", "1764446400000123"};
    for (size_t i = 0; i < 5; i++) {
        for (size_t j = 0; j < 5; j++) {
            struct resume_ask a = resume_ask_parse(oldest_first[i]), b = resume_ask_parse(oldest_first[j]);
            struct resume_ask newer = resume_ask_newer(a, b), expected = i > j ? a : b;
            ck_assert_int_eq(newer.kind, expected.kind);
            ck_assert_int_eq(newer.position, expected.position);
        }
    }
}
END_TEST

// The log runs from 100 to 200, the gateway's head is 200 unless said otherwise, at most 10 are replayed.
static const struct {
    const char *what;
    int64_t asked;
    int64_t head;
    struct resume_facts facts;
    enum resume_kind kind;
    enum reset_reason reason;
} decisions[] = {
    {"held, nothing missed", 200, 200, {true, true, true, 0, 200, 0, false}, RESUME_REPLAY, 0},
    {"held, as much as is replayed", 150, 200, {true, true, true, 0, 200, 10, false}, RESUME_REPLAY, 0},
    {"held, one more", 149, 200, {true, true, true, 0, 200, 11, false}, RESUME_RESET, RESET_REPLAY_LIMIT},
    {"held, too many rows to look at", 120, 200, {true, true, true, 0, 200, 3, true}, RESUME_RESET, RESET_REPLAY_LIMIT},
    {"pruned", 99, 200, {true, true, false, 100, 200, 0, false}, RESUME_RESET, RESET_HISTORY_EXPIRED},
    {"from nowhere", 201, 200, {true, true, false, 100, 200, 0, false}, RESUME_RESET, RESET_ID_AHEAD},
    {"lost by the database", 150, 200, {true, true, false, 100, 200, 0, false}, RESUME_RESET, RESET_STREAM_REWOUND},
    {"another gateway is ahead", 210, 200, {true, true, true, 0, 220, 0, false}, RESUME_REPLAY, 0},
    {"the database lags", 150, 200, {true, true, true, 0, 190, 0, false}, RESUME_LAGGING, 0},
    {"a copy does not know ahead", 201, 200, {false, true, false, 100, 200, 0, false}, RESUME_LAGGING, 0},
    {"a copy knows what was pruned",
     99,
     200,
     {false, true, false, 100, 200, 0, false},
     RESUME_RESET,
     RESET_HISTORY_EXPIRED},
    {"a copy with another history", 150, 200, {false, false, true, 100, 300, 0, false}, RESUME_LAGGING, 0},
    {"our head is gone", 150, 200, {true, false, true, 100, 300, 0, false}, RESUME_LAGGING, 0},
    {"the database lags: ahead is not decided", 195, 200, {true, true, false, 100, 190, 0, false}, RESUME_LAGGING, 0},
};

START_TEST(what_it_is_owed) {
    struct resume_decision decision = resume_decide(decisions[_i].asked, decisions[_i].head, 10, &decisions[_i].facts);
    ck_assert_msg(decision.kind == decisions[_i].kind, "%s", decisions[_i].what);
    if (decision.kind == RESUME_RESET) {
        ck_assert_msg(decision.reason == decisions[_i].reason, "%s: %s", decisions[_i].what,
                      reset_reason_name(decision.reason));
    }
}
END_TEST

START_TEST(reasons_are_the_published_strings) {
    ck_assert_str_eq(reset_reason_name(RESET_HISTORY_EXPIRED), "history_expired");
    ck_assert_str_eq(reset_reason_name(RESET_ID_UNREADABLE), "id_unreadable");
    ck_assert_str_eq(reset_reason_name(RESET_ID_AHEAD), "id_ahead");
    ck_assert_str_eq(reset_reason_name(RESET_REPLAY_LIMIT), "replay_limit");
    ck_assert_str_eq(reset_reason_name(RESET_STREAM_REWOUND), "stream_rewound");
    ck_assert_str_eq(reset_reason_name(RESET_STREAM_DAMAGED), "stream_damaged");
}
END_TEST

void resume_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "resume", 10);
    tcase_add_loop_test(tcase, what_a_client_shows, 0, sizeof asks / sizeof asks[0]);
    tcase_add_test(tcase, the_newer_of_two);
    tcase_add_loop_test(tcase, what_it_is_owed, 0, sizeof decisions / sizeof decisions[0]);
    tcase_add_test(tcase, reasons_are_the_published_strings);
}
