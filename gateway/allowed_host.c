#include "gateway/allowed_host.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>
#include <strings.h>

bool allowed_host(const struct config_list *allowed, const char *host) {
    static const char local[] = "localhost";
    char name[256];
    unsigned char address[16];
    if (!host) {
        return true;
    }
    bool bracketed = host[0] == '[';
    size_t length = bracketed ? strcspn(host + 1, "]") : strcspn(host, ":");
    if (length == 0 || length >= sizeof name) {
        return false;
    }
    const char *rest = host + length + bracketed;
    if (bracketed && *rest++ != ']') {
        return false;
    }
    if (*rest != '\0' && (*rest != ':' || rest[1 + strspn(rest + 1, "0123456789")] != '\0')) {
        return false;
    }
    memcpy(name, bracketed ? host + 1 : host, length);
    name[length] = '\0';
    // A name can be pointed anywhere, an address cannot: whoever writes it there means this server.
    if (inet_pton(bracketed ? AF_INET6 : AF_INET, name, address) == 1) {
        return true;
    }
    if (name[length - 1] == '.') {
        name[--length] = '\0';
    }
    for (const char *c = name; *c != '\0'; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-._", *c)) {
            return false;
        }
    }
    size_t local_length = sizeof local - 1;
    if (length >= local_length && strcasecmp(name + length - local_length, local) == 0 &&
        (length == local_length || name[length - local_length - 1] == '.')) {
        return true;
    }
    for (size_t i = 0; i < allowed->count; i++) {
        if (strcasecmp(allowed->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}
