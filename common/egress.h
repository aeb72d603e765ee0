// egress: which addresses a delivery may be sent to. Pure. Judged on the address that is really connected to.
#pragma once
#include "common/config.h"
#include "common/error.h"
#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>

struct egress_range {
    unsigned char prefix[16]; // IPv4 as IPv4-mapped
    unsigned bits;            // of the 128
};
struct egress_policy {
    struct egress_range *allowed; // owned
    size_t count;
};

// From --allow-egress values, "10.1.0.0/16" or "::1/128" or a bare address. ERROR_USAGE names the bad one.
bool egress_policy_init(struct egress_policy *policy, const struct config_list *allowed, struct error *ret_error);
void egress_policy_close(struct egress_policy *policy);
// Is this address ("10.1.2.3", "::1") in one of the allowed ranges? No more than that: not a rule for sending.
bool egress_policy_lists(const struct egress_policy *policy, const char *address);
// Denied: loopback, private, link-local, CGNAT, 0/8, 192.0.0/24, documentation, benchmark, multicast, 240/4, broadcast;
// IPv6 ::, ::1, fc00::/7, fe80::/10, multicast, documentation, 6to4, NAT64, Teredo, and whatever embeds a denied IPv4.
// An allowed range wins. *ret_range names the rule that denied ("loopback"); static.
bool egress_allows(const struct egress_policy *policy, const struct sockaddr *address, const char **ret_range);
