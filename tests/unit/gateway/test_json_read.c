#include "common/json_read.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/auth_tests.h"
#include <stdlib.h>
#include <string.h>

static struct json_document *read_text(const char *text) {
    struct error error;
    return json_read(text, strlen(text), &error);
}

START_TEST(what_is_json_is_read) {
    struct json_document *document = read_text(
        " {\"a\\u00e9\\n\" : [1, -0.5e+3, true,false ,null, \"\\ud83d\\ude00\"], \"b\":{\"c\":{}}, \"d\":[] } ");
    ck_assert_ptr_nonnull(document);
    const struct json_value *root = json_root(document);
    ck_assert_uint_eq(root->count, 3);
    const struct json_value *array = json_member(root, "a\u00e9\n");
    ck_assert(json_is(array, JSON_ARRAY));
    ck_assert_uint_eq(array->count, 6);
    int64_t number;
    ck_assert(json_integer(array->first, &number));
    ck_assert_int_eq(number, 1);
    ck_assert(!json_integer(array->first->next, &number));
    ck_assert_str_eq(array->first->next->text, "-0.5e+3");
    ck_assert_str_eq(array->first->next->next->next->next->next->text, "\U0001F600");
    ck_assert(json_is(json_member(json_member(root, "b"), "c"), JSON_OBJECT));
    ck_assert_ptr_null(json_member(root, "c"));
    ck_assert_ptr_null(json_member(array, "c"));
    json_free(document);
}
END_TEST

START_TEST(numbers_at_the_ends) {
    struct json_document *document = read_text("[9223372036854775807,9223372036854775808,0]");
    int64_t number;
    const struct json_value *first = json_root(document)->first;
    ck_assert(json_integer(first, &number));
    ck_assert(!json_integer(first->next, &number)); // not clamped
    ck_assert(json_integer(first->next->next, &number));
    json_free(document);
    document = read_text("12"); // nothing behind it that could be its NUL
    ck_assert_str_eq(json_root(document)->text, "12");
    json_free(document);
}
END_TEST

START_TEST(what_is_not_json_is_refused) {
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "}",
                                        "[1",
                                        "[1,]",
                                        "[,1]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{a:1}",
                                        "{'a':1}",
                                        "\"a",
                                        "\"\\x\"",
                                        "\"\\u12\"",
                                        "\"\\u0000\"",
                                        "\"\\ud800\"",
                                        "\"\\ud800x\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800\\u0041\"",
                                        "01",
                                        "-",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "+1",
                                        "NaN",
                                        "Infinity",
                                        "nul",
                                        "truex",
                                        "1 2",
                                        "[1]]",
                                        "{\"a\":1,\"a\":2}",
                                        "{\"a\":1,\"\\u0061\":2}",
                                        "// a\n1",
                                        "[1/**/]",
                                        "\"\n\"",
                                        "\"\t\"",
                                        "\xEF\xBB\xBF{}",
                                        "\"\xff\"",
                                        "\"\xc0\x80\"",
                                        "\"\xed\xa0\x80\""};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct json_document *document = read_text(texts[i]);
        ck_assert_msg(document == NULL, "%s", texts[i]);
    }
    struct error error;
    ck_assert_ptr_null(json_read("[1\0]", 4, &error));
}
END_TEST

START_TEST(limits_hold) {
    char *deep = calloc(1, 2 * (JSON_DEPTH_MAX + 1) + 1);
    memset(deep, '[', JSON_DEPTH_MAX);
    memset(deep + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    struct json_document *document = read_text(deep);
    ck_assert_ptr_nonnull(document);
    json_free(document);
    memset(deep, '[', JSON_DEPTH_MAX + 1);
    memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    ck_assert_ptr_null(read_text(deep));
    free(deep);
    for (int members = JSON_MEMBERS_MAX; members <= JSON_MEMBERS_MAX + 1; members++) {
        char *text = calloc(1, (size_t)members * 16 + 3);
        char *at = text;
        for (int i = 0; i < members; i++) {
            at += sprintf(at, "%c\"%d\":0", i == 0 ? '{' : ',', i);
        }
        strcpy(at, "}");
        document = read_text(text);
        ck_assert_int_eq(document != NULL, members == JSON_MEMBERS_MAX);
        json_free(document);
        free(text);
    }
}
END_TEST

void json_read_tests(Suite *suite) {
    TCase *json = suite_case(suite, "json_read", 10);
    tcase_add_test(json, what_is_json_is_read);
    tcase_add_test(json, numbers_at_the_ends);
    tcase_add_test(json, what_is_not_json_is_refused);
    tcase_add_test(json, limits_hold);
}
