#include "common/egress.h"
#include "common/memory.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

// One row denies one range. The first row that matches names the rule, so the narrower rows come first.
struct denied_range {
    const char *prefix;
    unsigned bits; // counted in the family of the prefix
    const char *name;
};

// IANA IPv4 Special-Purpose Address Registry, and the multicast and reserved blocks.
static const struct denied_range denied_ipv4[] = {
    {"0.0.0.0", 8, "this network"},
    {"10.0.0.0", 8, "private"},
    {"100.64.0.0", 10, "carrier-grade NAT"},
    {"127.0.0.0", 8, "loopback"},
    {"169.254.0.0", 16, "link-local"},
    {"172.16.0.0", 12, "private"},
    {"192.0.0.0", 24, "protocol assignments"},
    {"192.0.2.0", 24, "documentation"},
    {"192.88.99.0", 24, "6to4 relay"},
    {"192.168.0.0", 16, "private"},
    {"198.18.0.0", 15, "benchmark"},
    {"198.51.100.0", 24, "documentation"},
    {"203.0.113.0", 24, "documentation"},
    {"224.0.0.0", 4, "multicast"},
    {"255.255.255.255", 32, "broadcast"},
    {"240.0.0.0", 4, "reserved"},
};

// IANA IPv6 Special-Purpose Address Registry. What is not global unicast (2000::/3) is denied even without a row.
static const struct denied_range denied_ipv6[] = {
    {"::", 128, "unspecified"},    {"::1", 128, "loopback"},
    {"64:ff9b::", 96, "NAT64"},    {"64:ff9b:1::", 48, "NAT64"},
    {"100::", 64, "discard"},      {"2001::", 32, "Teredo"},
    {"2001:2::", 48, "benchmark"}, {"2001:10::", 28, "ORCHID"},
    {"2001:20::", 28, "ORCHID"},   {"2001:db8::", 32, "documentation"},
    {"2002::", 16, "6to4"},        {"3fff::", 20, "documentation"},
    {"fc00::", 7, "private"},      {"fe80::", 10, "link-local"},
    {"fec0::", 10, "site-local"},  {"ff00::", 8, "multicast"},
};

// IPv6 forms that carry an IPv4 address in their last four bytes and reach it: judged by that address.
static const struct embedding {
    unsigned char offset; // where `bytes` must be
    unsigned char length;
    unsigned char bytes[12];
} embeddings[] = {
    {0, 12, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}, // ::ffff:0:0/96, IPv4-mapped
    {0, 12, {0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0}}, // ::ffff:0:0:0/96, IPv4-translated (SIIT)
    {0, 12, {0}},                                        // ::/96, IPv4-compatible
    {8, 4, {0x00, 0x00, 0x5e, 0xfe}},                    // ISATAP, local interface identifier
    {8, 4, {0x02, 0x00, 0x5e, 0xfe}},                    // ISATAP, universal interface identifier
};

static const unsigned char mapped_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static void map_ipv4(unsigned char ret_address[16], const void *ipv4) {
    memcpy(ret_address, mapped_prefix, sizeof mapped_prefix);
    memcpy(ret_address + sizeof mapped_prefix, ipv4, 4);
}

static bool in_range(const unsigned char *address, const unsigned char *prefix, unsigned bits) {
    unsigned bytes = bits / 8;
    if (memcmp(address, prefix, bytes) != 0)
        return false;
    unsigned rest = bits % 8;
    return rest == 0 || (address[bytes] ^ prefix[bytes]) >> (8 - rest) == 0;
}

static const char *denied_by(int family, const unsigned char *address) {
    const struct denied_range *rows = family == AF_INET ? denied_ipv4 : denied_ipv6;
    size_t count =
        family == AF_INET ? sizeof denied_ipv4 / sizeof *denied_ipv4 : sizeof denied_ipv6 / sizeof *denied_ipv6;
    for (size_t i = 0; i < count; i++) {
        unsigned char prefix[16];
        inet_pton(family, rows[i].prefix, prefix);
        if (in_range(address, prefix, rows[i].bits))
            return rows[i].name;
    }
    return NULL;
}

static bool allowed_by(const struct egress_policy *policy, const unsigned char address[16]) {
    for (size_t i = 0; i < policy->count; i++)
        if (in_range(address, policy->allowed[i].prefix, policy->allowed[i].bits))
            return true;
    return false;
}

bool egress_policy_lists(const struct egress_policy *policy, const char *address) {
    unsigned char bytes[16];
    unsigned char ipv4[4];
    if (inet_pton(AF_INET, address, ipv4) == 1) {
        map_ipv4(bytes, ipv4);
    } else if (inet_pton(AF_INET6, address, bytes) != 1) {
        return false;
    }
    return allowed_by(policy, bytes);
}

static const struct embedding *embedding_of(const unsigned char address[16]) {
    for (size_t i = 0; i < sizeof embeddings / sizeof *embeddings; i++)
        if (memcmp(address + embeddings[i].offset, embeddings[i].bytes, embeddings[i].length) == 0)
            return &embeddings[i];
    return NULL;
}

bool egress_allows(const struct egress_policy *policy, const struct sockaddr *address, const char **ret_range) {
    unsigned char bytes[16];
    if (address->sa_family == AF_INET) {
        map_ipv4(bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr);
    } else if (address->sa_family == AF_INET6) {
        memcpy(bytes, &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr, sizeof bytes);
    } else {
        *ret_range = "not an IP address";
        return false;
    }
    if (allowed_by(policy, bytes))
        return true;

    bool mapped = memcmp(bytes, mapped_prefix, sizeof mapped_prefix) == 0;
    const char *range = mapped ? NULL : denied_by(AF_INET6, bytes);
    const struct embedding *embedding = range ? NULL : embedding_of(bytes);
    if (embedding) {
        unsigned char inner[16];
        map_ipv4(inner, bytes + 12);
        if (allowed_by(policy, inner))
            return true;
        range = denied_by(AF_INET, bytes + 12);
    }
    bool is_ipv4 = embedding && embedding->offset == 0;
    if (!range && !is_ipv4 && bytes[0] >> 5 != 1)
        range = "not global unicast";
    if (range)
        *ret_range = range;
    return range == NULL;
}

static bool parse_range(const char *text, struct egress_range *ret_range, struct error *ret_error) {
    char host[64];
    size_t host_length = strcspn(text, "/");
    if (host_length >= sizeof host)
        goto bad;
    memcpy(host, text, host_length);
    host[host_length] = '\0';

    unsigned char bytes[16];
    unsigned family_bits;
    if (inet_pton(AF_INET, host, bytes) == 1) {
        family_bits = 32;
        map_ipv4(ret_range->prefix, bytes);
    } else if (inet_pton(AF_INET6, host, ret_range->prefix) == 1) {
        family_bits = 128;
    } else {
        goto bad;
    }

    unsigned bits = family_bits;
    if (text[host_length] == '/') {
        const char *digits = text + host_length + 1;
        size_t length = strlen(digits);
        if (length == 0 || length > 3 || strspn(digits, "0123456789") != length)
            goto bad;
        bits = (unsigned)strtoul(digits, NULL, 10);
        if (bits > family_bits)
            goto bad;
    }
    ret_range->bits = 128 - family_bits + bits;

    // Bits after the prefix are a mistake that would allow more than was meant.
    for (unsigned bit = ret_range->bits; bit < 128; bit++)
        if (ret_range->prefix[bit / 8] & (0x80 >> bit % 8))
            return error_set(ret_error, ERROR_USAGE,
                             "%s: bits are set after the first %u; did you mean a longer prefix?", text, bits);
    return true;
bad:
    return error_set(ret_error, ERROR_USAGE, "%.100s: not an address or a range such as 10.1.0.0/16 or fd00::/8", text);
}

bool egress_policy_init(struct egress_policy *policy, const struct config_list *allowed, struct error *ret_error) {
    *policy = (struct egress_policy){0};
    if (allowed->count == 0)
        return true;
    policy->allowed = memory_alloc(allowed->count * sizeof *policy->allowed);
    for (; policy->count < allowed->count; policy->count++) {
        if (!parse_range(allowed->items[policy->count], &policy->allowed[policy->count], ret_error)) {
            egress_policy_close(policy);
            return false;
        }
    }
    return true;
}

void egress_policy_close(struct egress_policy *policy) {
    free(policy->allowed);
    *policy = (struct egress_policy){0};
}
