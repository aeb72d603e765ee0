#include "gateway/parameter_name.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"

static const struct {
    const char *name, *ours;
    bool near;
} names[] = {
    {"tables", "table", true},     {"Table", "table", true},
    {"TABLE", "table", true},      {"table[]", "table", true},
    {"table[0]", "table", true},   {"_table", "table", true},
    {"table_name", "table", true}, {"tableName", "table", true},
    {"tabel", "table", true},      {"tabels", "table", true},
    {"tabl", "table", true},       {"tble", "table", true},
    {"ttable", "table", true},     {"tavle", "table", true},
    {"scope", "scope", true},      {"scopes", "scope", true},
    {"scpoe", "scope", true},      {"scope_id", "scope", true},
    {"_", "table", false},         {"", "table", false},
    {"s", "table", false},         {"evs_preamble", "table", false},
    {"tab", "table", false},       {"t", "table", false},
    {"tenant", "table", false},    {"timestamp", "table", false},
    {"cb", "scope", false},        {"evs_buffer_size_limit", "scope", false},
    {"code", "scope", false},      {"For", "for", true},
    {"fore", "for", false},        {"or", "for", false},
    {"wait_ms", "wait", true},     {"wiat", "wait", true},
    {"await", "wait", true},
};

START_TEST(near_misses) {
    ck_assert_msg(parameter_name_near(names[_i].name, names[_i].ours) == names[_i].near, "%s, %s", names[_i].name,
                  names[_i].ours);
}
END_TEST

START_TEST(spellings) {
    ck_assert(parameter_name_same("lastEventId", "last_event_id"));
    ck_assert(parameter_name_same("Last-Event-ID", "last_event_id"));
    ck_assert(!parameter_name_same("evs_last_event_id", "last_event_id"));
    ck_assert(!parameter_name_same("last_event", "last_event_id"));
    ck_assert(!parameter_name_same("", "last_event_id"));
}
END_TEST

void parameter_name_tests(Suite *suite) {
    TCase *parameters = suite_case(suite, "parameter_name", 10);
    tcase_add_loop_test(parameters, near_misses, 0, (int)(sizeof names / sizeof *names));
    tcase_add_test(parameters, spellings);
}
