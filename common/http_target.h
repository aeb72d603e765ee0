// http_target: where a URL of a webhook, a search engine, a callout or a key set leads. http_url_check is declared in
// http_client.h, for those who store URLs.
//
// Only what every reader reads alike is a URL here: printable ASCII, no backslash, no user, no fragment; a host that is
// an address in its usual form (192.0.2.1, [2001:db8::1]) or a name that cannot be taken for one. The same rule in SQL:
// rowbell.url_problem.
#pragma once
#include "common/error.h"
#include "common/http_client.h"
#include <stdbool.h>

struct http_target {
    char host[256]; // in lower case, without brackets
    char port[8];
    bool literal; // an IP address: there is nothing to look up
    bool secure;
    char authority[272];                   // for the Host header: no port where it is the scheme's own
    char origin[280];                      // scheme, host and port: what connections are kept by
    char resource[HTTP_URL_MAX_BYTES + 2]; // path and query: what a request asks for
};

// The rules are those of http_url_check.
bool http_target_parse(const char *text, bool allow_http, struct http_target *ret_target, struct error *ret_error);
