// client_address: which client a request comes from, behind whatever proxies the operator trusts. Pure.
//
// The peer of the connection is the client, unless it is a trusted proxy: then the rightmost address of the forwarded
// header (X-Forwarded-For, or Forwarded of RFC 7239) is, unless that is a trusted proxy too, and so on. What is left of
// the first one that is not trusted is the client's own word and counts for nothing.
#pragma once
#include "common/egress.h"
#include "common/http_request.h"
#include <stdbool.h>

struct client_address {
    unsigned char bytes[16]; // IPv4 as IPv4-mapped; of IPv6 the /64, which one host has whole
    bool is_public;          // else it may be a proxy that nobody has named
};

// forwarded: the header's name in lower case. peer: "10.1.2.3".
struct client_address client_address_of(const char *peer, const struct egress_policy *trusted, const char *forwarded,
                                        const struct http_request *request);
