#include "common/webhook_signature.h"
#include "tests/support/fixture.h"
#include "tests/unit/dispatcher/webhook_tests.h"
#include <check.h>
#include <string.h>

#define ID "msg_p5jXN8AQM9LWM0D4loKWxJek"
#define TIMESTAMP 1614265330
#define BODY "{\"test\": 2432232314}"

#define WHSEC_1 "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
#define V1_1 "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
#define WHSEC_2 "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
#define V1_2 "v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44="
#define WHSK_SEED "whsk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk="
#define V1A_SEED "v1a,tQ9V2XOqn7jL/DQenEFpqIugdBVtiMmER5mhSkXBNwM0mkATuDe6KYYUuxqtaiHeYGb7KaaBRdM5WqyeFiL8Ag=="
#define WHSK_PAIR "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
#define V1A_PAIR "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

static const struct {
    const char *style;
    const char *secrets[3];
    const char *id;
    const char *body;
    const char *header;
    const char *value;
} vectors[] = {
    {"standard", {WHSEC_1}, ID, BODY, "webhook-signature", V1_1},
    {"standard", {WHSEC_2}, ID, BODY, "webhook-signature", V1_2},
    {"standard", {WHSK_SEED}, ID, BODY, "webhook-signature", V1A_SEED},
    {"standard", {WHSK_PAIR}, ID, BODY, "webhook-signature", V1A_PAIR},
    {"standard", {WHSEC_1, WHSEC_2}, ID, BODY, "webhook-signature", V1_1 " " V1_2},
    {"standard", {WHSEC_2, WHSK_SEED, WHSEC_1}, ID, BODY, "webhook-signature", V1_2 " " V1A_SEED " " V1_1},
    {"body",
     {"It's a Secret to Everybody", "not this one"},
     ID,
     "Hello, World!",
     "x-hub-signature-256",
     "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
    // printf '1614265330.Hello, World!' | openssl dgst -sha256 -hmac "It's a Secret to Everybody"; then -hmac old
    {"timestamp",
     {"It's a Secret to Everybody", "old"},
     ID,
     "Hello, World!",
     "webhook-signature",
     "t=1614265330,v1=f37376a318b83773050e9e3ac8c6d599d2254e4f69edd75a1419cb54dc7264f3,v1="
     "7ccd3f6b325b327acde00aad199eab9954a04af6b5de9944b4a9b87d6f35eb59"},
};

static int count_secrets(const char *const secrets[3]) {
    int count = 0;
    while (count < 3 && secrets[count])
        count++;
    return count;
}

START_TEST(vectors_come_out) {
    struct error error;
    struct webhook_signer *signer =
        webhook_signer_new(vectors[_i].style, vectors[_i].secrets, count_secrets(vectors[_i].secrets), &error);
    ck_assert_msg(signer, "%s", error.text);
    ck_assert_str_eq(webhook_signer_header(signer), vectors[_i].header);
    struct buffer value = {0};
    for (int round = 0; round < 3; round++) { // a key is used again and again
        buffer_clear(&value);
        webhook_signer_sign(signer, vectors[_i].id, TIMESTAMP, vectors[_i].body, strlen(vectors[_i].body), &value);
        ck_assert_str_eq(buffer_cstr(&value), vectors[_i].value);
    }
    buffer_free(&value);
    webhook_signer_free(signer);
}
END_TEST

static const struct {
    const char *style;
    const char *secret;
    const char *says;
} refusals[] = {
    {"standard", "", "must begin with"},
    {"standard", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "must begin with"},
    {"standard", "whsec_", "24 to 64 bytes"},
    {"standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS", "24 to 64 bytes"},   // 31 characters
    {"standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa==", "24 to 64 bytes"},  // 22 bytes
    {"standard", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2La-aSw", "24 to 64 bytes"},  // another alphabet
    {"standard", "whsec_ MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "24 to 64 bytes"}, // a space
    {"standard",
     "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
     "24 to 64 bytes"},                                                                   // 72 bytes
    {"standard", "whsec_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTll=", "24 to 64 bytes"}, // stray bits after the end
    {"standard", "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "32-byte seed"},
    {"standard", "whpk_VEVTVFNJR05JTkdLRVlET05PVFVTRVRISVNGT1JBTlk=", "must begin with"},
    {"standard", "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvw==",
     "does not belong"}, // the last byte of the public part is another
    {"body", "", "empty"},
    {"md5", WHSEC_1, "none of standard, timestamp, body"},
};

START_TEST(bad_secrets_are_refused_and_not_shown) {
    struct error error;
    ck_assert_ptr_null(webhook_signer_new(refusals[_i].style, &refusals[_i].secret, 1, &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_msg(strstr(error.text, refusals[_i].says), "%s", error.text);
    if (strlen(refusals[_i].secret) > 10)
        ck_assert_msg(!strstr(error.text, refusals[_i].secret + 6), "%s", error.text);
}
END_TEST

START_TEST(one_bad_secret_refuses_all) {
    const char *secrets[] = {WHSEC_1, "whsec_"};
    ck_assert_ptr_null(webhook_signer_new("standard", secrets, 2, NULL));
    ck_assert_ptr_null(webhook_signer_new("standard", secrets, 0, NULL));
}
END_TEST

static void expect_signed_at(struct webhook_signer *signer, int64_t timestamp_s, const char *pattern) {
    struct buffer value = {0};
    webhook_signer_sign(signer, ID, timestamp_s, BODY, strlen(BODY), &value);
    size_t signatures = 1;
    for (const char *at = buffer_cstr(&value); (at = strchr(at, ' ')) != NULL; at++)
        signatures++;
    ck_assert_msg(signatures == strlen(pattern), "at %lld: %s", (long long)timestamp_s, buffer_cstr(&value));
    buffer_free(&value);
}

START_TEST(an_old_secret_signs_until_its_end_and_not_in_that_second) {
    const char *secrets[] = {WHSEC_1, WHSEC_2, WHSK_SEED};
    struct webhook_signer *signer = webhook_signer_new("standard", secrets, 3, NULL);
    webhook_signer_end(signer, 1, TIMESTAMP);
    webhook_signer_end(signer, 2, TIMESTAMP + 10);
    expect_signed_at(signer, TIMESTAMP - 1, "123");
    expect_signed_at(signer, TIMESTAMP, "13");
    expect_signed_at(signer, TIMESTAMP + 9, "13");
    expect_signed_at(signer, TIMESTAMP + 10, "1");
    struct buffer value = {0};
    webhook_signer_sign(signer, ID, TIMESTAMP, BODY, strlen(BODY), &value);
    ck_assert_str_eq(buffer_cstr(&value), V1_1 " " V1A_SEED);
    buffer_free(&value);
    webhook_signer_free(signer);
}
END_TEST

START_TEST(body_may_hold_any_byte) {
    const char *secret = WHSEC_1;
    struct webhook_signer *signer = webhook_signer_new("standard", &secret, 1, NULL);
    struct buffer whole = {0};
    struct buffer cut = {0};
    webhook_signer_sign(signer, ID, TIMESTAMP, "a\0b", 3, &whole);
    webhook_signer_sign(signer, ID, TIMESTAMP, "a", 1, &cut);
    ck_assert_str_ne(buffer_cstr(&whole), buffer_cstr(&cut));
    buffer_free(&whole);
    buffer_free(&cut);
    webhook_signer_free(signer);
}
END_TEST

void webhook_signature_tests(Suite *suite) {
    TCase *tcase = suite_case(suite, "webhook_signature", 10);
    tcase_add_loop_test(tcase, vectors_come_out, 0, (int)(sizeof vectors / sizeof *vectors));
    tcase_add_loop_test(tcase, bad_secrets_are_refused_and_not_shown, 0, (int)(sizeof refusals / sizeof *refusals));
    tcase_add_test(tcase, one_bad_secret_refuses_all);
    tcase_add_test(tcase, an_old_secret_signs_until_its_end_and_not_in_that_second);
    tcase_add_test(tcase, body_may_hold_any_byte);
}
