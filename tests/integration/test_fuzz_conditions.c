// Conditions from a grammar, hostile ones among them, on a real PostgreSQL: one is refused with 22023 or taken, nothing
// else; and what is taken is evaluated over an event of 256 KiB, of a shape that costs such paths most, within a time
// that only work beyond linear exceeds. ROWBELL_TEST_FUZZ_SEED and ROWBELL_TEST_FUZZ_COUNT: others.
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3000, TEXT_SIZE = 6000, DEPTH_MOST = 6 };

struct text {
    char bytes[TEXT_SIZE];
    size_t length;
    uint64_t random;
};

static unsigned draw(struct text *text, unsigned below) {
    text->random = text->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(text->random >> 33) % below;
}

static void put(struct text *text, const char *more) {
    size_t length = strlen(more);
    if (text->length + length + 1 < sizeof text->bytes) {
        memcpy(text->bytes + text->length, more, length + 1);
        text->length += length;
    }
}

#define PUT_ONE(text, list) put(text, (list)[draw(text, sizeof(list) / sizeof *(list))])

static void put_condition(struct text *text, const char *root, unsigned depth);

static const char *const values[] = {
    "1",     "0",        "-2.5", "\"x\"",       "\"\"",           "true",
    "null",  "\"\\\"\"", "1e3",  "\"\\u0041\"", "\"$.a == @.b\"", "12345678901234567890123456789",
    "1e400", "$x",       "-$.a", "\"\\ud800\"", "0x10",           "1_000",
};
static const char *const steps[] = {
    ".a",      ".b",          "[*]",           ".*",           "[0]",         "[last]",
    ".a",      ".\"a b\"",    "[*]",           ".*",           ".\"\\\"\"",   ".\"\\\\\"",
    ".**",     ".**{1 to 2}", ".**{last}",     "[0,0]",        "[0 to last]", "[last - 1]",
    ".$",      ".keyvalue()", ".double()",     ".abs()",       ".datetime()", "[$.a]",
    ".size()", ".type()",     "[99999999999]", ".\"\\u0000\"", "[-1]",        ".a /* c */ .b",
};
static const char *const comparisons[] = {" == ", " != ", " < ", " <= ", " > ", " >= ", " <> ", "=="};
static const char *const odd[] = {
    "",
    " ",
    "(",
    ")",
    "?",
    "@",
    "$",
    "$$",
    "strict",
    "lax ",
    "exists()",
    "!",
    "&&",
    " is unknown",
    "\"",
    "\\",
    ";--",
    "'",
    " like_regex \"(a+)+$\" flag \"xis\"",
    " starts with ",
    "{",
    "\x01",
    "\xc3\xa4",
    ".**.**.**",
    " + $.a * 2",
};

// The first 12 steps are of the subset, and drawn most.
static void put_path(struct text *text, const char *root, unsigned depth) {
    put(text, draw(text, 30) == 0 ? "$" : root);
    for (unsigned i = draw(text, 6); i > 0; i--) {
        if (draw(text, 12) == 0)
            PUT_ONE(text, steps);
        else if (depth < DEPTH_MOST && draw(text, 8) == 0 && (*root == '$' || draw(text, 10) == 0)) {
            put(text, " ? (");
            put_condition(text, "@", depth + 1);
            put(text, ")");
        } else
            put(text, steps[draw(text, 12)]);
    }
    if (draw(text, 10) == 0)
        put(text, draw(text, 2) ? ".size()" : ".type()");
}

static void put_value(struct text *text) {
    put(text, values[draw(text, draw(text, 8) == 0 ? sizeof values / sizeof *values : 10)]);
}

static void put_condition(struct text *text, const char *root, unsigned depth) {
    switch (depth >= DEPTH_MOST ? draw(text, 5) : draw(text, 11)) {
    case 0:
    case 1:
        put_path(text, root, depth);
        put(text, comparisons[draw(text, 6)]);
        put_value(text);
        break;
    case 2:
        put_value(text);
        PUT_ONE(text, comparisons);
        put_path(text, root, depth);
        break;
    case 3:
        put_path(text, root, depth);
        put(text, comparisons[draw(text, 6)]);
        put_path(text, root, depth); // each with each
        break;
    case 4:
        put_path(text, root, depth);
        put(text, " starts with \"x\"");
        break;
    case 5:
    case 6:
        put(text, "exists(");
        put_path(text, root, depth + 1);
        put(text, ")");
        break;
    case 7:
        put(text, "!(");
        put_condition(text, root, depth + 1);
        put(text, ")");
        break;
    case 8:
        put(text, "(");
        put_condition(text, root, depth + 1);
        put(text, ") is unknown");
        break;
    default:
        put_condition(text, root, depth + 1);
        put(text, draw(text, 2) ? " && " : " || ");
        put_condition(text, root, depth + 1);
    }
    if (draw(text, 60) == 0)
        PUT_ONE(text, odd);
}

static void make_condition(struct text *text) {
    text->length = 0;
    text->bytes[0] = '\0';
    if (draw(text, 4) == 0)
        put(text, "strict ");
    if (draw(text, 6) == 0)
        put_path(text, "$", 0);
    else
        put_condition(text, "$", 0);
    // Or any bytes in it.
    if (draw(text, 20) == 0 && text->length > 0)
        text->bytes[draw(text, (unsigned)text->length)] = (char)(1 + draw(text, 255));
}

// "" when it went well, else the SQLSTATE.
static const char *state_of(PGconn *conn, const char *sql, const char *condition) {
    static char state[6];
    PGresult *result = PQexecParams(conn, sql, 1, NULL, &condition, NULL, NULL, 0);
    const char *field = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    snprintf(state, sizeof state, "%s", field ? field : PQresultStatus(result) == PGRES_TUPLES_OK ? "" : "lost!");
    PQclear(result);
    return state;
}

// Bytes that are no UTF-8 and texts that are no jsonpath never come to the check.
static bool is_refusal(const char *state) {
    return strcmp(state, "22023") == 0 || strcmp(state, "22021") == 0;
}

static uint64_t number_of(const char *variable, uint64_t fallback) {
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : fallback;
}

START_TEST(a_condition_is_refused_or_linear) {
    static struct text text;
    fixture_database();
    PGconn *conn = fixture_connect();
    // Arrays below members below arrays of the names that paths have: about 256 KiB, 100,000 values.
    sql_run(conn,
            "create temp table data as select 's' as size, data from (select jsonb_build_object('a', jsonb_agg(x), "
            "'b', jsonb_agg(x)) as data from (select jsonb_build_object('a', jsonb_build_array(i, 'x', null), 'b', "
            "jsonb_build_object('a', i, 'b', jsonb_build_array(jsonb_build_object('a', 1)))) as x from "
            "generate_series(1, 2200) i) t) d");
    int64_t bytes = sql_int(conn, "select length(data::text) from data");
    ck_assert_msg(bytes > 240 << 10 && bytes < 300 << 10, "%d bytes", (int)bytes);
    // A path of a thousand characters over 256 KiB takes some tenths of a second; one step more of the power, minutes.
    sql_run(conn, "set statement_timeout = '30s'");
    text.random = number_of("ROWBELL_TEST_FUZZ_SEED", 42);
    int allowed = 0, refused = 0;
    for (uint64_t i = number_of("ROWBELL_TEST_FUZZ_COUNT", COUNT); i > 0; i--) {
        make_condition(&text);
        const char *state = state_of(conn, "select rowbell.condition_check($1)", text.bytes);
        ck_assert_msg(*state == '\0' || is_refusal(state), "%s: %s", state, text.bytes);
        refused += *state != '\0';
        if (*state != '\0')
            continue;
        allowed++;
        state =
            state_of(conn, "select rowbell.condition_alone(data, rowbell.condition_check($1)) from data", text.bytes);
        ck_assert_msg(*state == '\0', "%s: %s", state, text.bytes);
        // What it is printed as is read as the same, and is taken again.
        state = state_of(conn,
                         "select 1 / (rowbell.condition_check($1)::text = "
                         "rowbell.condition_check(rowbell.condition_check($1)::text)::text)::int",
                         text.bytes);
        ck_assert_msg(*state == '\0', "%s, read again: %s", state, text.bytes);
    }
    printf("%d conditions were taken, %d refused\n", allowed, refused);
    ck_assert_int_gt(allowed, 100);
    ck_assert_int_gt(refused, 100);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "conditions", 600);
    tcase_add_test(tcase, a_condition_is_refused_or_linear);
}

int main(void) {
    return suite_main("fuzz", add_tests);
}
