#include "gateway/admission.h"
#include "tests/support/fixture.h"
#include "tests/unit/gateway/tests.h"

enum { MOST = 2, TRIES = 5 };

static const struct client_address private_one = {{[15] = 1}, .is_public = false};
static const struct client_address public_one = {{[15] = 2}, .is_public = true};
static const struct client_address another = {{[15] = 3}, .is_public = true};

// Whether an address that is not public counts: one may be a proxy in front of everybody.
static const struct {
    size_t proxies; // that are named
    bool given;     // the bound
    int of_private;
} rules[] = {{0, false, TRIES}, {1, false, MOST}, {0, true, MOST}};

enum way { TAKE, ASK, WAIT, WAYS };

static bool one_more(struct admission *admission, enum way way, const struct client_address *address,
                     struct admission_ticket *ticket) {
    struct grant grant = {0};
    const char *reason = "";
    switch (way) {
    case ASK:
        return admission_ask(admission, address, MOST, ticket);
    case WAIT:
        return admission_wait(admission, &grant, address, MOST, ticket);
    default:
        if (admission_take(admission, &grant, address, ticket, &reason))
            return true;
        ck_assert_str_eq(reason, "address");
        return false;
    }
}

// How many of some tries come in.
static int admitted(struct admission *admission, enum way way, const struct client_address *address,
                    struct admission_ticket tickets[TRIES]) {
    int count = 0;
    for (int i = 0; i < TRIES; i++)
        count += one_more(admission, way, address, &tickets[i]);
    return count;
}

static void give_back(struct admission *admission, struct admission_ticket *tickets, int count) {
    for (int i = 0; i < count; i++)
        admission_give_back(admission, &tickets[i]);
}

START_TEST(one_address_has_its_bound) {
    int rule = _i / WAYS;
    enum way way = (enum way)(_i % WAYS);
    struct gateway_config config = {.max_per_address = MOST, .max_per_address_given = rules[rule].given};
    config.trusted_proxies.count = rules[rule].proxies;
    struct admission *admission = admission_new(&config);
    struct admission_ticket of_private[TRIES], of_public[TRIES], of_another[TRIES];
    ck_assert_int_eq(admitted(admission, way, &private_one, of_private), rules[rule].of_private);
    ck_assert_int_eq(admitted(admission, way, &public_one, of_public), MOST);
    ck_assert_int_eq(admitted(admission, way, &another, of_another), MOST);
    give_back(admission, of_public, TRIES);
    ck_assert_int_eq(admitted(admission, way, &public_one, of_public), MOST);
    give_back(admission, of_private, TRIES);
    give_back(admission, of_public, TRIES);
    give_back(admission, of_another, TRIES);
    admission_free(admission); // asserts that nothing is held
}
END_TEST

// Streams, requests that wait for their auth, and requests that wait for a receipt are counted apart.
START_TEST(what_is_counted_apart) {
    struct gateway_config config = {.max_per_address = MOST};
    struct admission *admission = admission_new(&config);
    struct admission_ticket tickets[WAYS][TRIES];
    for (int way = 0; way < WAYS; way++)
        ck_assert_int_eq(admitted(admission, (enum way)way, &public_one, tickets[way]), MOST);
    for (int way = 0; way < WAYS; way++)
        give_back(admission, tickets[way], TRIES);
    admission_free(admission);
}
END_TEST

void admission_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "admission", 20);
    tcase_add_loop_test(tcase, one_address_has_its_bound, 0, WAYS * (int)(sizeof rules / sizeof *rules));
    tcase_add_test(tcase, what_is_counted_apart);
}
