#include "common/http_target.h"
#include "common/http_client.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAME_MOST_BYTES = 253, LABEL_MOST_BYTES = 63, PORT_MOST = 65535 };

static const char letters_digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";

// In its usual form, which is also the one that is written here: else 127.1 and its kin would be addresses.
static bool address_read(const char *text, int family, char *ret_text, size_t size) {
    unsigned char bytes[sizeof(struct in6_addr)];
    return inet_pton(family, text, bytes) == 1 && inet_ntop(family, bytes, ret_text, (socklen_t)size);
}

// Readers that know more forms take a name for an address when its last label is a number (080, 0x7f).
static bool is_number(const char *label) {
    const char *digits = strncmp(label, "0x", 2) == 0 ? label + 2 : label;
    return digits[strspn(digits, digits == label ? "0123456789" : "0123456789abcdef")] == '\0';
}

// Labels of letters, digits, - and _, with dots between; `host` is in lower case.
static const char *name_problem(const char *host) {
    if (strlen(host) > NAME_MOST_BYTES)
        return "the host is too long";
    for (const char *label = host;;) {
        size_t length = strcspn(label, ".");
        if (length == 0)
            return "the host has an empty label (two dots, or a dot at its end)";
        if (length > LABEL_MOST_BYTES)
            return "the host has a label of more than 63 bytes";
        if (label[0] == '-' || label[length - 1] == '-')
            return "the host has a label that begins or ends with -";
        for (size_t i = 0; i < length; i++)
            if (!strchr(letters_digits, label[i]) && label[i] != '-' && label[i] != '_')
                return "a host is written with letters, digits, dots, - and _ (others: xn--...)";
        if (label[length] == '\0')
            return is_number(label) ? "the host reads as an address; write it as 192.0.2.1" : NULL;
        label += length + 1;
    }
}

static const char *port_problem(const char *port) {
    size_t length = strlen(port);
    bool good = length >= 1 && length <= 5 && port[0] != '0' && strspn(port, "0123456789") == length;
    return good && atoi(port) <= PORT_MOST ? NULL : "a port is 1 to 65535, without leading zeros";
}

// host, host:port or [address]:port. Returns what is wrong.
static const char *authority_read(const char *text, size_t length, struct http_target *target) {
    char copy[sizeof target->authority];
    if (memchr(text, '@', length))
        return "no user or password in the URL; use a header";
    if (length >= sizeof copy)
        return "the host is too long";
    for (size_t i = 0; i < length; i++)
        copy[i] = (char)tolower((unsigned char)text[i]);
    copy[length] = '\0';

    char *host = copy, *end = strchr(copy, ':');
    bool bracketed = host[0] == '[';
    if (bracketed && (end = strchr(++host, ']')))
        *end++ = '\0';
    if (bracketed && !end)
        return "a [ without its ]";
    const char *port = target->secure ? "443" : "80";
    if (end && *end) {
        if (*end != ':')
            return "something stands between the host and the port";
        *end = '\0';
        port = end + 1;
    }
    const char *problem = port_problem(port);
    target->literal = address_read(host, bracketed ? AF_INET6 : AF_INET, target->host, sizeof target->host);
    if (!problem && !target->literal)
        problem = bracketed ? "between [ and ] stands an IPv6 address, without a zone" : name_problem(host);
    if (problem)
        return problem;
    if (!target->literal)
        snprintf(target->host, sizeof target->host, "%s", host);
    snprintf(target->port, sizeof target->port, "%s", port);
    return NULL;
}

bool http_target_parse(const char *text, bool allow_http, struct http_target *ret_target, struct error *ret_error) {
    if (strlen(text) > HTTP_URL_MAX_BYTES)
        return error_set(ret_error, ERROR_USAGE, "url: longer than %d bytes", HTTP_URL_MAX_BYTES);
    for (const char *at = text; *at; at++)
        if ((unsigned char)*at <= ' ' || (unsigned char)*at >= 0x7f || *at == '\\')
            return error_set(ret_error, ERROR_USAGE,
                             "url: a space, control or non-ASCII character or a backslash; percent-encode it (a host "
                             "name: xn--...)");
    ret_target->secure = strncasecmp(text, "https://", 8) == 0;
    if (!ret_target->secure && strncasecmp(text, "http://", 7) != 0)
        return error_set(ret_error, ERROR_USAGE, "url: the scheme must be https; write https://host/path");
    if (!ret_target->secure && !allow_http)
        return error_set(ret_error, ERROR_USAGE,
                         "url: http is not allowed; use https, or allow http for this subscription");
    if (strchr(text, '#'))
        return error_set(ret_error, ERROR_USAGE, "url: no fragment (#...)");

    const char *authority = text + (ret_target->secure ? 8 : 7);
    size_t length = strcspn(authority, "/?");
    const char *problem =
        length > 0 ? authority_read(authority, length, ret_target) : "no host; write https://host/path";
    if (problem)
        return error_set(ret_error, ERROR_USAGE, "url: %s", problem);

    bool v6 = strchr(ret_target->host, ':') != NULL;
    bool own_port = strcmp(ret_target->port, ret_target->secure ? "443" : "80") == 0;
    snprintf(ret_target->authority, sizeof ret_target->authority, v6 ? "[%s]%s%s" : "%s%s%s", ret_target->host,
             own_port ? "" : ":", own_port ? "" : ret_target->port);
    snprintf(ret_target->origin, sizeof ret_target->origin, v6 ? "http%s://[%s]:%s" : "http%s://%s:%s",
             ret_target->secure ? "s" : "", ret_target->host, ret_target->port);
    const char *resource = authority + length;
    snprintf(ret_target->resource, sizeof ret_target->resource, "%s%s", *resource == '/' ? "" : "/", resource);
    return true;
}

bool http_url_check(const char *url, bool allow_http, struct error *ret_error) {
    struct http_target target;
    return http_target_parse(url, allow_http, &target, ret_error);
}
