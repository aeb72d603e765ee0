#include "common/http_target.h"
#include "common/http_client.h"
#include <stdio.h>
#include <string.h>

static bool url_part(CURLU *url, CURLUPart part, char *ret_text, size_t size) {
    char *text = NULL;
    bool fits = curl_url_get(url, part, &text, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) == CURLUE_OK &&
                (size_t)snprintf(ret_text, size, "%s", text) < size;
    curl_free(text);
    return fits;
}

static bool url_has(CURLU *url, CURLUPart part) {
    char *text = NULL;
    CURLUcode code = curl_url_get(url, part, &text, 0);
    curl_free(text);
    return code == CURLUE_OK;
}

static bool resource_write(CURLU *url, char *ret_text, size_t size) {
    if (!url_part(url, CURLUPART_PATH, ret_text, size))
        return false;
    size_t length = strlen(ret_text);
    if (!url_has(url, CURLUPART_QUERY))
        return true;
    ret_text[length++] = '?';
    return url_part(url, CURLUPART_QUERY, ret_text + length, size - length);
}

bool http_target_parse(CURLU *url, const char *text, bool allow_http, struct http_target *ret_target,
                       struct error *ret_error) {
    if (strlen(text) > HTTP_URL_MAX_BYTES)
        return error_set(ret_error, ERROR_USAGE, "url: longer than %d bytes", HTTP_URL_MAX_BYTES);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f)
            return error_set(ret_error, ERROR_USAGE,
                             "url: a space, control or non-ASCII character; percent-encode it (a host name: xn--...)");
    curl_url_set(url, CURLUPART_URL, NULL, 0); // else a relative one would be joined to the URL of before
    CURLUcode code = curl_url_set(url, CURLUPART_URL, text, 0);
    if (code != CURLUE_OK)
        return error_set(ret_error, ERROR_USAGE, "url: %s", curl_url_strerror(code));

    const char *authority = strstr(text, "://");
    if (!authority || authority[3] == '/') // libcurl overlooks a third slash
        return error_set(ret_error, ERROR_USAGE, "url: no host; write https://host/path");

    char scheme[16] = "";
    url_part(url, CURLUPART_SCHEME, scheme, sizeof scheme);
    if (strcmp(scheme, "http") == 0 && !allow_http)
        return error_set(ret_error, ERROR_USAGE,
                         "url: http is not allowed; use https, or allow http for this subscription");
    if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        return error_set(ret_error, ERROR_USAGE, "url: the scheme must be https");
    if (url_has(url, CURLUPART_USER) || url_has(url, CURLUPART_PASSWORD))
        return error_set(ret_error, ERROR_USAGE, "url: no user or password in the URL; use a header");
    if (url_has(url, CURLUPART_FRAGMENT))
        return error_set(ret_error, ERROR_USAGE, "url: no fragment (#...)");
    if (url_has(url, CURLUPART_ZONEID))
        return error_set(ret_error, ERROR_USAGE, "url: no zone id");

    char host[258];
    if (!url_part(url, CURLUPART_HOST, host, sizeof host) ||
        !url_part(url, CURLUPART_PORT, ret_target->port, sizeof ret_target->port))
        return error_set(ret_error, ERROR_USAGE, "url: the host or the port is too long");
    size_t length = strlen(host);
    bool bracketed = host[0] == '[' && host[length - 1] == ']';
    bool dotted = length > 1 && host[length - 1] == '.';
    size_t skip = bracketed ? 1 : 0;
    size_t bare_length = length - (bracketed ? 2 : dotted ? 1 : 0);
    if (bare_length == 0 || bare_length >= sizeof ret_target->host)
        return error_set(ret_error, ERROR_USAGE, "url: the host is too long");
    memcpy(ret_target->host, host + skip, bare_length);
    ret_target->host[bare_length] = '\0';
    snprintf(ret_target->dotted, sizeof ret_target->dotted, "%s", dotted ? host : "");
    ret_target->secure = strcmp(scheme, "https") == 0;
    bool own_port = strcmp(ret_target->port, ret_target->secure ? "443" : "80") == 0;
    snprintf(ret_target->authority, sizeof ret_target->authority, bracketed ? "[%s]%s%s" : "%s%s%s", ret_target->host,
             own_port ? "" : ":", own_port ? "" : ret_target->port);
    snprintf(ret_target->origin, sizeof ret_target->origin, "%s://%s:%s", scheme, ret_target->host, ret_target->port);
    if (!resource_write(url, ret_target->resource, sizeof ret_target->resource))
        return error_set(ret_error, ERROR_USAGE, "url: the path or the query is too long");
    ret_target->literal = bracketed || (!dotted && strspn(host, "0123456789.") == length);
    return true;
}

bool http_url_check(const char *url, bool allow_http, struct error *ret_error) {
    CURLU *parsed = curl_url();
    struct http_target target;
    bool good = http_target_parse(parsed, url, allow_http, &target, ret_error);
    curl_url_cleanup(parsed);
    return good;
}
