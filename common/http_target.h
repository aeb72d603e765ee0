// http_target: where a webhook's URL leads. http_url_check is declared in http_client.h, for those who store URLs.
#pragma once
#include "common/error.h"
#include "common/http_client.h"
#include <curl/curl.h>
#include <stdbool.h>

// Where a URL leads, after libcurl's parser made 0x7f.1 and its kin into addresses.
struct http_target {
    char host[256];   // without brackets or a trailing dot
    char dotted[258]; // as the URL has it, when that ends with a dot; else ""
    char port[8];
    bool literal; // an IP address as it stands: libcurl needs no pin
    bool secure;
    char authority[272];                   // for the Host header: no port where it is the scheme's own
    char origin[280];                      // scheme, host and port: what connections are kept by
    char resource[HTTP_URL_MAX_BYTES + 2]; // path and query: what a request asks for
};

// `url` is the parser to use, which spares an allocation a call. The rules are those of http_url_check.
bool http_target_parse(CURLU *url, const char *text, bool allow_http, struct http_target *ret_target,
                       struct error *ret_error);
