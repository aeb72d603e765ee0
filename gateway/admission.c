#include "gateway/admission.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/memory.h"
#include <assert.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { LOG_EVERY_MS = 60000, KEY_BYTES = 16 };

struct admission_share {
    unsigned char key[KEY_BYTES];
    size_t held;
    UT_hash_handle hh;
};

struct admission {
    const struct gateway_config *config;
    struct admission_share *shares;
    unsigned char salt[16]; // so that nobody chooses keys that collide
    uint64_t logged_ms;
};

struct admission *admission_new(const struct gateway_config *config) {
    struct admission *admission = memory_alloc(sizeof *admission);
    admission->config = config;
    if (RAND_bytes(admission->salt, sizeof admission->salt) != 1) {
        abort();
    }
    return admission;
}

void admission_free(struct admission *admission) {
    assert(!admission || !admission->shares);
    free(admission);
}

// kind: what the bytes are, so that no two kinds are one.
static void make_key(const struct admission *admission, char kind, const unsigned char *bytes, size_t length,
                     unsigned char ret_key[KEY_BYTES]) {
    unsigned char text[sizeof admission->salt + 1 + SHA256_DIGEST_LENGTH];
    unsigned char digest[SHA256_DIGEST_LENGTH];
    assert(length <= SHA256_DIGEST_LENGTH);
    memcpy(text, admission->salt, sizeof admission->salt);
    text[sizeof admission->salt] = (unsigned char)kind;
    memcpy(text + sizeof admission->salt + 1, bytes, length);
    SHA256(text, sizeof admission->salt + 1 + length, digest);
    memcpy(ret_key, digest, KEY_BYTES);
}

static bool share_take(struct admission *admission, char kind, const unsigned char *bytes, size_t length, size_t most,
                       struct admission_share **ret_share) {
    unsigned char key[KEY_BYTES];
    struct admission_share *share;
    make_key(admission, kind, bytes, length, key);
    HASH_FIND(hh, admission->shares, key, sizeof key, share);
    if (share && share->held >= most) {
        return false;
    }
    if (!share) {
        share = memory_alloc(sizeof *share);
        memcpy(share->key, key, sizeof key);
        HASH_ADD(hh, admission->shares, key, sizeof key, share);
    }
    share->held++;
    *ret_share = share;
    return true;
}

void admission_give_back(struct admission *admission, struct admission_ticket *ticket) {
    for (size_t i = 0; i < sizeof ticket->shares / sizeof ticket->shares[0]; i++) {
        struct admission_share *share = ticket->shares[i];
        if (share && --share->held == 0) {
            HASH_DEL(admission->shares, share);
            free(share);
        }
    }
    *ticket = (struct admission_ticket){0};
}

// Whatever their order.
static void scopes_digest(const struct grant *grant, unsigned char ret_digest[SHA256_DIGEST_LENGTH]) {
    memset(ret_digest, 0, SHA256_DIGEST_LENGTH);
    for (const char *s = grant->scopes; s < grant->scopes + grant->scopes_size; s += strlen(s) + 1) {
        unsigned char one[SHA256_DIGEST_LENGTH];
        SHA256((const unsigned char *)s, strlen(s), one);
        for (size_t i = 0; i < sizeof one; i++) {
            ret_digest[i] ^= one[i];
        }
    }
}

// Addresses that are not public count only where the operator named the proxies, or a number: else one of them may be
// a proxy in front of everybody.
static bool address_counts(const struct admission *admission, const struct client_address *address) {
    const struct gateway_config *config = admission->config;
    return address->is_public || config->trusted_proxies.count > 0 || config->max_per_address_given;
}

static bool refuse(struct admission *admission, struct admission_ticket *ticket, const char *reason,
                   const char **ret_reason) {
    uint64_t now = clock_ms();
    admission_give_back(admission, ticket);
    if (admission->logged_ms == 0 || now - admission->logged_ms >= LOG_EVERY_MS) {
        admission->logged_ms = now;
        log_warn("streams_bounded", LOG_TEXT("reason", reason));
    }
    *ret_reason = reason;
    return false;
}

bool admission_take(struct admission *admission, const struct grant *grant, const struct client_address *address,
                    struct admission_ticket *ret_ticket, const char **ret_reason) {
    const struct gateway_config *config = admission->config;
    unsigned char scopes[SHA256_DIGEST_LENGTH];
    *ret_ticket = (struct admission_ticket){0};
    if (grant->has_subject && !share_take(admission, 's', grant->subject, sizeof grant->subject,
                                          (size_t)config->max_per_subject, &ret_ticket->shares[0])) {
        return refuse(admission, ret_ticket, "subject", ret_reason);
    }
    if (grant->count > 0) {
        scopes_digest(grant, scopes);
        if (!share_take(admission, 'c', scopes, sizeof scopes, (size_t)config->max_per_scopes,
                        &ret_ticket->shares[1])) {
            return refuse(admission, ret_ticket, "scopes", ret_reason);
        }
    }
    if (address_counts(admission, address) && !share_take(admission, 'a', address->bytes, sizeof address->bytes,
                                                          (size_t)config->max_per_address, &ret_ticket->shares[2])) {
        return refuse(admission, ret_ticket, "address", ret_reason);
    }
    return true;
}

bool admission_ask(struct admission *admission, const struct client_address *address, size_t most,
                   struct admission_ticket *ret_ticket) {
    *ret_ticket = (struct admission_ticket){0};
    return !address_counts(admission, address) ||
           share_take(admission, 'w', address->bytes, sizeof address->bytes, most, &ret_ticket->shares[2]);
}

bool admission_wait(struct admission *admission, const struct grant *grant, const struct client_address *address,
                    size_t most, struct admission_ticket *ret_ticket) {
    *ret_ticket = (struct admission_ticket){0};
    if (grant->has_subject) {
        return share_take(admission, 'r', grant->subject, sizeof grant->subject, most, &ret_ticket->shares[0]);
    }
    return !address_counts(admission, address) ||
           share_take(admission, 'q', address->bytes, sizeof address->bytes, most, &ret_ticket->shares[0]);
}
