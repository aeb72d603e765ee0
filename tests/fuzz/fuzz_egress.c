// An address (the first 16 bytes) and a range (the rest): one address is judged alike in each of its forms, none of
// those that are well known to be private is allowed, and a range holds what it says and nothing more.
#include "common/egress.h"
#include "tests/fuzz/fuzz.h"
#include <arpa/inet.h>

static bool allows_ipv4(const struct egress_policy *policy, const unsigned char *address) {
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    const char *range = NULL;
    memcpy(&ipv4.sin_addr, address, 4);
    bool allowed = egress_allows(policy, (struct sockaddr *)&ipv4, &range);
    require(allowed || range);
    return allowed;
}

static bool allows_ipv6(const struct egress_policy *policy, const unsigned char *address) {
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    const char *range = NULL;
    memcpy(&ipv6.sin6_addr, address, 16);
    bool allowed = egress_allows(policy, (struct sockaddr *)&ipv6, &range);
    require(allowed || range);
    return allowed;
}

static bool is_private_ipv4(const unsigned char *a) {
    return a[0] == 0 || a[0] == 10 || a[0] == 127 || a[0] >= 224 || (a[0] == 100 && a[1] >> 6 == 1) ||
           (a[0] == 169 && a[1] == 254) || (a[0] == 172 && a[1] >> 4 == 1) || (a[0] == 192 && a[1] == 168);
}

static void check_address(const unsigned char *address) {
    static const struct egress_policy none;
    static const unsigned char prefixes[][12] = {{[10] = 0xff, [11] = 0xff}, {[8] = 0xff, [9] = 0xff}, {0}};
    bool ipv4 = allows_ipv4(&none, address + 12);
    require(!ipv4 || !is_private_ipv4(address + 12));
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        unsigned char embedding[16];
        memcpy(embedding, prefixes[i], 12);
        memcpy(embedding + 12, address + 12, 4);
        require(ipv4 || !allows_ipv6(&none, embedding));
        require(i > 0 || allows_ipv6(&none, embedding) == ipv4);
    }
    static const unsigned char zero[8];
    if (allows_ipv6(&none, address))
        require(address[0] >> 5 == 1 || memcmp(address, zero, 8) == 0);
    // NAT64 and 6to4 lead to any IPv4 address.
    unsigned char leading[16] = {0x00, 0x64, 0xff, 0x9b};
    memcpy(leading + 12, address + 12, 4);
    require(!allows_ipv6(&none, leading));
    memcpy(leading, "\x20\x02", 2);
    require(!allows_ipv6(&none, leading));
}

static void check_range(const char *text, const unsigned char *address) {
    const char *items[] = {text};
    struct config_list list = {items, 1};
    struct egress_policy policy;
    struct error error = {0};
    if (!egress_policy_init(&policy, &list, &error)) {
        require(error.code == ERROR_USAGE && policy.count == 0 && !policy.allowed);
        return;
    }
    char host[INET6_ADDRSTRLEN];
    snprintf(host, sizeof host, "%.*s", (int)strcspn(text, "/"), text);
    require(egress_policy_lists(&policy, host));
    const struct egress_range *range = &policy.allowed[0];
    bool inside = true;
    for (unsigned bit = 0; bit < range->bits; bit++)
        inside = inside && !((range->prefix[bit / 8] ^ address[bit / 8]) & (0x80 >> bit % 8));
    require(inet_ntop(AF_INET6, address, host, sizeof host));
    require(egress_policy_lists(&policy, host) == inside);
    require(!inside || allows_ipv6(&policy, address));
    egress_policy_close(&policy);
}

FUZZ_TARGET(egress) {
    unsigned char address[16];
    if (length < sizeof address)
        return 0;
    memcpy(address, bytes, sizeof address);
    char *text = input_text(bytes + sizeof address, length - sizeof address);
    check_address(address);
    check_range(text, address);
    egress_policy_lists(&(struct egress_policy){0}, text);
    free(text);
    return 0;
}
