// Who is found by an event's scope (G7), against a model that asks everybody.
#include "gateway/scope_index.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/auth_tests.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 60, SCOPES = 12 };

static int hits[MEMBERS];

static void hit(void *arg, void *member) {
    hits[(int *)member - (int *)arg]++;
}

static struct scope_rights *rights_of(struct scope_index *index, const char *scopes, bool every, void *member) {
    struct grant grant = {0};
    char copy[200];
    snprintf(copy, sizeof copy, "%s", scopes);
    for (char *scope = strtok(copy, ","); scope; scope = strtok(NULL, ",")) {
        grant_add_scope(&grant, scope, every);
    }
    struct scope_rights *rights = scope_rights_new(index, &grant, member);
    grant_free(&grant);
    return rights;
}

static void check_seen(bool unscoped, const char *scopes, bool every, const char *scope, bool expected) {
    int member[1];
    struct scope_index *index = scope_index_new(unscoped);
    struct scope_rights *rights = rights_of(index, scopes, every, member);
    memset(hits, 0, sizeof hits);
    scope_index_each(index, scope, hit, member);
    ck_assert_msg(hits[0] == (expected ? 1 : 0), "%s sees %s", scopes, scope ? scope : "none");
    ck_assert_msg(scope_rights_see(rights, scope) == expected, "%s sees %s", scopes, scope ? scope : "none");
    scope_rights_free(rights);
    ck_assert_uint_eq(scope_index_count(index), 0);
    scope_index_free(index);
}

START_TEST(it_fails_closed) {
    check_seen(false, "", false, "a", false);
    check_seen(false, "", false, NULL, false);
    check_seen(false, "", false, "*", false); // no scopes, no events
    check_seen(true, "", false, NULL, false);
    check_seen(false, "a", false, "a", true);
    check_seen(false, "a", false, "A", false);
    check_seen(false, "a", false, "ab", false);
    check_seen(false, "a", false, NULL, false);
    check_seen(true, "a", false, NULL, true);
    check_seen(false, "a,b", false, "*", true);
    check_seen(false, "*", false, "a", false);
    check_seen(false, "*", true, "a", true);
    check_seen(false, "*", true, "*", true);
    check_seen(false, "*", true, NULL, false);
    check_seen(true, "*,a", true, NULL, true);
}
END_TEST

START_TEST(a_grant_with_too_much_is_a_grant_of_nothing) {
    struct grant grant = {0};
    char scope[16];
    for (int i = 0; i <= GRANT_SCOPES_MAX; i++) {
        snprintf(scope, sizeof scope, "s%d", i);
        grant_add_scope(&grant, scope, false);
    }
    ck_assert(grant.overflow);
    struct scope_index *index = scope_index_new(true);
    struct scope_rights *rights = scope_rights_new(index, &grant, NULL);
    ck_assert(!scope_rights_see(rights, "s1"));
    ck_assert(!scope_rights_see(rights, NULL));
    scope_rights_free(rights);
    scope_index_free(index);
    grant_free(&grant);
}
END_TEST

// Members come, go and are asked for at random; everybody who may see is found, once, and nobody else.
START_TEST(everybody_who_may_see_is_found_once) {
    unsigned seed = (unsigned)(_i * 7919 + 1);
    int members[MEMBERS];
    struct scope_rights *rights[MEMBERS] = {0};
    bool holds[MEMBERS][SCOPES];
    bool every[MEMBERS];
    bool unscoped = _i % 2 == 1;
    struct scope_index *index = scope_index_new(unscoped);
    for (int step = 0; step < 4000; step++) {
        int m = rand_r(&seed) % MEMBERS;
        if (rights[m]) {
            scope_rights_free(rights[m]);
            rights[m] = NULL;
        } else {
            char text[200] = "";
            every[m] = rand_r(&seed) % 8 == 0;
            for (int s = 0; s < SCOPES; s++) {
                holds[m][s] = rand_r(&seed) % 5 == 0;
                if (holds[m][s]) {
                    snprintf(text + strlen(text), sizeof text - strlen(text), "scope-%d,", s);
                }
            }
            rights[m] = rights_of(index, every[m] ? "*" : text, true, &members[m]);
        }
        int s = rand_r(&seed) % (SCOPES + 2) - 2;
        char name[16];
        snprintf(name, sizeof name, s == -1 ? "*" : "scope-%d", s);
        memset(hits, 0, sizeof hits);
        scope_index_each(index, s == -2 ? NULL : name, hit, members);
        for (m = 0; m < MEMBERS; m++) {
            bool anything = false;
            for (int t = 0; rights[m] && t < SCOPES; t++) {
                anything |= holds[m][t];
            }
            anything |= rights[m] && every[m];
            bool expected = rights[m] && (s == -2   ? unscoped && anything
                                          : s == -1 ? anything
                                                    : every[m] || holds[m][s]);
            ck_assert_msg(hits[m] == (expected ? 1 : 0), "seed %d step %d member %d scope %d: %d", _i, step, m, s,
                          hits[m]);
        }
    }
    for (int m = 0; m < MEMBERS; m++) {
        scope_rights_free(rights[m]);
    }
    ck_assert_uint_eq(scope_index_count(index), 0);
    scope_index_free(index);
}
END_TEST

START_TEST(tables_are_narrowed) {
    struct table_filter *asked = NULL;
    struct table_filter *allowed = NULL;
    struct buffer text = {0};
    table_filter_add(&allowed, "posts");
    table_filter_add(&allowed, "tags");
    table_filter_narrow(&asked, NULL);
    ck_assert_ptr_null(asked);
    table_filter_narrow(&asked, allowed);
    ck_assert(table_filter_holds(asked, "posts") && table_filter_holds(asked, "tags"));
    ck_assert(!table_filter_holds(asked, "users"));
    table_filter_free(asked);
    asked = NULL;
    table_filter_add(&asked, "users");
    table_filter_narrow(&asked, allowed);
    ck_assert_ptr_nonnull(asked); // NULL would be every table
    ck_assert(!table_filter_holds(asked, "users") && !table_filter_holds(asked, "posts"));
    table_filter_append_array(asked, &text);
    ck_assert_str_eq(text.bytes, "{}");
    buffer_free(&text);
    table_filter_free(asked);
    table_filter_free(allowed);
}
END_TEST

void scope_index_tests(Suite *suite) {
    TCase *index = suite_case(suite, "scope_index", 20);
    tcase_add_test(index, it_fails_closed);
    tcase_add_test(index, a_grant_with_too_much_is_a_grant_of_nothing);
    tcase_add_loop_test(index, everybody_who_may_see_is_found_once, 0, 4);
    tcase_add_test(index, tables_are_narrowed);
}
