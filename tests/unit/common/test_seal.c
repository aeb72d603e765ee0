// seal: what is opened is what was sealed, and nothing else opens.
#include "common/seal.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <stdlib.h>
#include <string.h>

#define KEY_A "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY_B "//////////////////////////////////////////8="
#define SECRET "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

static const struct seal_place place = {"0f8fad5b-d9cb-469f-a165-70867728950e", SEAL_SIGNING};

static struct seal_keys keys_of(const char *text) {
    struct seal_keys keys;
    struct error error = {0};
    ck_assert_msg(seal_keys_init(&keys, text, &error), "%s", error.text);
    return keys;
}

static char *sealed_with(const char *key, const char *text) {
    struct seal_keys keys = keys_of(key);
    struct buffer form = {0};
    seal_text(&keys, place, text, &form);
    return form.bytes;
}

static void expect_opened(const char *key, const char *form, const char *text) {
    struct seal_keys keys = keys_of(key);
    struct buffer opened = {0};
    struct error error = {0};
    ck_assert_msg(seal_open(&keys, place, form, &opened, &error), "%s", error.text);
    ck_assert_str_eq(buffer_cstr(&opened), text);
    buffer_free(&opened);
}

static void expect_refused(const char *key, const char *form, const char *says) {
    struct seal_keys keys = keys_of(key);
    struct buffer opened = {0};
    struct error error = {0};
    ck_assert(!seal_open(&keys, place, form, &opened, &error));
    ck_assert_uint_eq(opened.length, 0);
    ck_assert_msg(strstr(error.text, says) != NULL, "'%s' lacks '%s'", error.text, says);
    ck_assert_ptr_null(strstr(error.text, "whsec_"));
    buffer_free(&opened);
}

START_TEST(what_is_sealed_opens_with_its_key_alone) {
    char *form = sealed_with(KEY_A, SECRET);
    ck_assert(strncmp(form, "sealed:2:", 9) == 0 && strspn(form + 9, "0123456789abcdef") == 16 && form[25] == ':');
    ck_assert_ptr_null(strstr(form, "MfKQ9r8G"));
    expect_opened(KEY_A, form, SECRET);
    expect_opened(KEY_B "," KEY_A, form, SECRET); // re-keying: the old key still opens
    expect_refused(KEY_B, form, "which ROWBELL_SECRET_KEY lacks");
    expect_refused(NULL, form, "ROWBELL_SECRET_KEY is not set here");
    char *again = sealed_with(KEY_A, SECRET);
    ck_assert_str_ne(form, again); // a nonce of its own
    free(form);
    free(again);
}
END_TEST

// Made by another implementation (Node's crypto), so that what is stored stays readable.
START_TEST(what_another_implementation_sealed_opens) {
    expect_opened(KEY_A,
                  "sealed:2:c152db843e8f30a9:AAECAwQFBgcICQoLMGqlfqa6j33GEK75ia4zNPKk00OaLg84AC6p1Ucgb4BNceKd/LZ/tP/"
                  "54BsZGqVnu0kd3hiw",
                  SECRET);
    // Of before a form had a place.
    expect_opened(KEY_A,
                  "sealed:1:c152db843e8f30a9:AAECAwQFBgcICQoLMGqlfqa6j33GEK75ia4zNPKk00OaLg84AC6p1Ucgb4BNceKd/"
                  "LbOhelsDWWCoNFD633pyXpy",
                  SECRET);
}
END_TEST

// A form that somebody copies to another subscription, or puts to another use, gives nothing there.
START_TEST(what_is_sealed_opens_in_its_place_alone) {
    static const struct seal_place others[] = {
        {"0f8fad5b-d9cb-469f-a165-70867728950f", SEAL_SIGNING},
        {"0f8fad5b-d9cb-469f-a165-70867728950e", SEAL_AUTHORIZATION},
        {"0f8fad5b-d9cb-469f-a165-70867728950e", SEAL_CLIENT_KEY},
        {"0f8fad5b-d9cb-469f-a165-70867728950esigning", ""}, // the same bytes in a row
        {"", SEAL_SIGNING},
        {NULL, SEAL_SIGNING},
    };
    char *form = sealed_with(KEY_A, SECRET);
    struct seal_keys keys = keys_of(KEY_A);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct buffer opened = {0};
        struct error error;
        ck_assert_msg(!seal_open(&keys, others[i], form, &opened, &error), "opened in place %zu", i);
        ck_assert_uint_eq(opened.length, 0);
    }
    // The head of an earlier version does not loosen it.
    form[7] = '1';
    expect_refused(KEY_A, form, "was changed");
    free(form);
}
END_TEST

START_TEST(no_changed_byte_opens) {
    char *form = sealed_with(KEY_A, SECRET);
    struct seal_keys keys = keys_of(KEY_A);
    for (size_t i = 0; form[i]; i++) {
        char kept = form[i];
        form[i] = kept == 'A' ? 'B' : 'A';
        struct buffer opened = {0};
        struct error error;
        ck_assert_msg(!seal_open(&keys, place, form, &opened, &error), "opened with another byte %zu", i);
        ck_assert_uint_eq(opened.length, 0);
        buffer_free(&opened);
        form[i] = kept;
    }
    for (size_t length = strlen(form); length-- > 0;) {
        form[length] = '\0';
        expect_refused(KEY_A, form, "secret: ");
    }
    free(form);
}
END_TEST

START_TEST(other_forms_are_opened_or_refused) {
    expect_opened(NULL, "plain:" SECRET, SECRET);
    expect_opened(KEY_A, "plain:", "");
    expect_refused(KEY_A, "", "form that is not known");
    expect_refused(KEY_A, SECRET, "form that is not known");
    expect_refused(KEY_A, "sealed:3:0011223344556677:AAAA", "form that is not known");
    expect_refused(KEY_A, "sealed:2:", "no key id");
    expect_refused(KEY_A, "sealed:1:AAAA", "no key id");
    expect_refused(KEY_A, "sealed:2:0011223344556677:AAAA", "under key 0011223344556677");
    char *longest = calloc(1, SEAL_TEXT_MAX_BYTES + 1);
    memset(longest, 'k', SEAL_TEXT_MAX_BYTES);
    char *form = sealed_with(KEY_A, longest);
    expect_opened(KEY_A, form, longest);
    free(form);
    free(longest);
}
END_TEST

static const struct {
    const char *text;
    const char *says; // NULL: good
    int count;
} key_texts[] = {
    {NULL, NULL, 0},
    {"", NULL, 0},
    {KEY_A, NULL, 1},
    {KEY_A "," KEY_B, NULL, 2},
    {KEY_A ",", "ends with a comma", 0},
    {"," KEY_A, "key 1 is not", 0},
    {KEY_A ",short", "key 2 is not", 0},
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8", "key 1 is not", 0},   // no padding
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh9=", "key 1 is not", 0},  // bits after the end
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHg==", "key 1 is not", 0},  // 31 bytes
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8f", "key 1 is not", 0},  // 33
    {"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= ", "key 1 is not", 0}, // a space
    {KEY_A "," KEY_A "," KEY_A "," KEY_A "," KEY_A "," KEY_A "," KEY_A "," KEY_A "," KEY_A, "more than 8", 0},
};

START_TEST(keys_are_read_strictly_and_never_quoted) {
    struct seal_keys keys;
    struct error error = {0};
    bool good = seal_keys_init(&keys, key_texts[_i].text, &error);
    ck_assert_int_eq(good, key_texts[_i].says == NULL);
    if (good)
        ck_assert_int_eq(keys.count, key_texts[_i].count);
    else
        ck_assert_msg(strstr(error.text, key_texts[_i].says) && !strstr(error.text, "AAEC"), "%s", error.text);
}
END_TEST

START_TEST(the_end_of_a_secret_stands_before_its_form) {
    int64_t end_s;
    ck_assert_str_eq(seal_split("until=1764446400;plain:x", &end_s), "plain:x");
    ck_assert_int_eq(end_s, 1764446400);
    static const char *const without[] = {"plain:x",         "sealed:1:x",       "until=;plain:x",
                                          "until=12plain:x", "until=-1;plain:x", "until=9999999999999999;plain:x"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        ck_assert_str_eq(seal_split(without[i], &end_s), without[i]);
        ck_assert_int_eq(end_s, INT64_MAX);
    }
}
END_TEST

START_TEST(the_first_key_is_the_current_one) {
    char *form = sealed_with(KEY_A, SECRET);
    struct seal_keys first = keys_of(KEY_A "," KEY_B), second = keys_of(KEY_B "," KEY_A), none = keys_of(NULL);
    ck_assert(seal_is_current(&first, form));
    ck_assert(!seal_is_current(&second, form));
    ck_assert(!seal_is_current(&none, form));
    ck_assert(!seal_is_current(&first, "plain:" SECRET));
    form[7] = '1'; // sealed by an earlier version, for no place
    ck_assert(!seal_is_current(&first, form));
    free(form);
}
END_TEST

void seal_tests(Suite *suite) {
    TCase *seal = suite_case(suite, "seal", 20);
    tcase_add_test(seal, what_is_sealed_opens_with_its_key_alone);
    tcase_add_test(seal, what_another_implementation_sealed_opens);
    tcase_add_test(seal, what_is_sealed_opens_in_its_place_alone);
    tcase_add_test(seal, no_changed_byte_opens);
    tcase_add_test(seal, other_forms_are_opened_or_refused);
    tcase_add_loop_test(seal, keys_are_read_strictly_and_never_quoted, 0, sizeof key_texts / sizeof *key_texts);
    tcase_add_test(seal, the_end_of_a_secret_stands_before_its_form);
    tcase_add_test(seal, the_first_key_is_the_current_one);
}
