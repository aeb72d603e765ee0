#include "gateway/client_address.h"
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

enum { ADDRESS_SIZE = INET6_ADDRSTRLEN };

// "1.2.3.4", "1.2.3.4:567", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:567".
static bool read_address(const char *text, size_t length, char ret_address[ADDRESS_SIZE]) {
    unsigned char bytes[16];
    if (length > 0 && text[0] == '[') {
        const char *end = memchr(text, ']', length);
        length = end ? (size_t)(end - text - 1) : 0;
        text++;
    } else {
        const char *colon = memchr(text, ':', length);
        if (colon && !memchr(colon + 1, ':', length - (size_t)(colon + 1 - text))) {
            length = (size_t)(colon - text);
        }
    }
    if (length == 0 || length >= ADDRESS_SIZE) {
        return false;
    }
    memcpy(ret_address, text, length);
    ret_address[length] = '\0';
    return inet_pton(AF_INET, ret_address, bytes) == 1 || inet_pton(AF_INET6, ret_address, bytes) == 1;
}

static void trim(const char **text, size_t *length) {
    while (*length > 0 && strchr(" \t\"", (*text)[0])) {
        ++*text;
        --*length;
    }
    while (*length > 0 && strchr(" \t\"", (*text)[*length - 1])) {
        --*length;
    }
}

// The address of one element: of X-Forwarded-For all of it, of Forwarded what for= names.
static bool read_element(const char *text, size_t length, bool rfc_7239, char ret_address[ADDRESS_SIZE]) {
    while (rfc_7239 && length > 0) {
        size_t pair = 0;
        while (pair < length && text[pair] != ';') {
            pair++;
        }
        const char *value = text;
        size_t value_length = pair;
        trim(&value, &value_length);
        if (value_length > 4 && strncasecmp(value, "for=", 4) == 0) {
            text = value + 4;
            length = value_length - 4;
            break;
        }
        text += pair + (pair < length);
        length -= pair + (pair < length);
    }
    trim(&text, &length);
    return read_address(text, length, ret_address);
}

static void keep(struct client_address *client, const char *address) {
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    static const struct egress_policy none;
    struct sockaddr_in ipv4 = {.sin_family = AF_INET};
    struct sockaddr_in6 ipv6 = {.sin6_family = AF_INET6};
    const char *range;
    memset(client, 0, sizeof *client);
    if (inet_pton(AF_INET, address, &ipv4.sin_addr) == 1) {
        memcpy(client->bytes, mapped, sizeof mapped);
        memcpy(client->bytes + 12, &ipv4.sin_addr, 4);
        client->is_public = egress_allows(&none, (struct sockaddr *)&ipv4, &range);
    } else if (inet_pton(AF_INET6, address, &ipv6.sin6_addr) == 1) {
        bool is_mapped = IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr);
        memcpy(client->bytes, &ipv6.sin6_addr, is_mapped ? 16 : 8);
        client->is_public = egress_allows(&none, (struct sockaddr *)&ipv6, &range);
    }
}

struct client_address client_address_of(const char *peer, const struct egress_policy *trusted, const char *forwarded,
                                        const struct http_request *request) {
    struct client_address client;
    char address[ADDRESS_SIZE];
    bool rfc_7239 = strcmp(forwarded, "forwarded") == 0;
    bool on = egress_policy_lists(trusted, peer);
    keep(&client, peer);
    for (size_t i = request->header_count; on && i-- > 0;) {
        const char *value = request->headers[i].value;
        size_t end = strlen(value);
        if (strcmp(request->headers[i].name, forwarded) != 0) {
            continue;
        }
        // From the right: a proxy appends, so that no quote of the client's opens what comes after it.
        while (on) {
            size_t start = end;
            while (start > 0 && value[start - 1] != ',') {
                start--;
            }
            on = read_element(value + start, end - start, rfc_7239, address);
            if (on) {
                keep(&client, address);
                on = egress_policy_lists(trusted, address);
            }
            if (start == 0) {
                break;
            }
            end = start - 1;
        }
    }
    return client;
}
