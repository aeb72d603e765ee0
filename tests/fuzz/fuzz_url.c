// A URL of a webhook: what is taken leads where libcurl, which connects, would be led, and its host is a strict one.
// The same bytes as the URL of a Redis: nothing is read beyond its end, and the error does not repeat it.
#include "common/http_target.h"
#include "common/redis_conn.h"
#include "tests/fuzz/fuzz.h"
#include <arpa/inet.h>
#include <curl/curl.h>
#include <strings.h>

static char *part(CURLU *url, CURLUPart which, unsigned flags) {
    char *text = NULL;
    require(curl_url_get(url, which, &text, flags) == CURLUE_OK && text != NULL);
    return text;
}

static bool same_address(int family, const char *one, const char *other) {
    unsigned char bytes[2][16];
    return inet_pton(family, one, bytes[0]) == 1 && inet_pton(family, other, bytes[1]) == 1 &&
           memcmp(bytes[0], bytes[1], family == AF_INET ? 4 : 16) == 0;
}

static void check_host(const struct http_target *target) {
    unsigned char address[16];
    const char *host = target->host;
    if (target->literal) {
        require(inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1);
        return;
    }
    require(host[0] != '\0' && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") == strlen(host));
    require(strstr(host, "..") == NULL && host[0] != '.' && host[strlen(host) - 1] != '.');
    // No reader of old forms (127.1, 0x7f000001, 017700000001) takes it for an address.
    struct in_addr old;
    require(inet_aton(host, &old) == 0);
}

static void compare(const char *text, const struct http_target *target) {
    CURLU *url = curl_url();
    require(url && curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) == CURLUE_OK);
    char *host = part(url, CURLUPART_HOST, 0), *port = part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
    char *path = part(url, CURLUPART_PATH, 0), *user = NULL;
    if (host[0] == '[') {
        host[strcspn(host, "]")] = '\0';
        require(target->literal && same_address(AF_INET6, host + 1, target->host));
    } else {
        require(strcasecmp(host, target->host) == 0);
    }
    require(strcmp(port, target->port) == 0);
    require(curl_url_get(url, CURLUPART_USER, &user, 0) != CURLUE_OK);
    size_t length = strcspn(target->resource, "?");
    require(strlen(path) == length && memcmp(path, target->resource, length) == 0);
    curl_free(host);
    curl_free(port);
    curl_free(path);
    curl_url_cleanup(url);
}

FUZZ_TARGET(url) {
    char *text = input_text(bytes, length);
    struct http_target target;
    struct error error = {0};
    if (http_target_parse(text, true, &target, &error)) {
        check_host(&target);
        compare(text, &target);
        require(target.resource[0] == '/' && strpbrk(target.resource, " \r\n\t#") == NULL);
        require(strpbrk(target.authority, " \r\n\t@/?#\\") == NULL);
        require(target.secure || !http_target_parse(text, false, &target, &error));
    } else {
        require(error.code == ERROR_USAGE && error.text[0] != '\0');
    }
    error = (struct error){0};
    if (!redis_url_check(text, &error))
        require(error.code == ERROR_USAGE && (strlen(text) < 20 || strstr(error.text, text) == NULL));
    free(text);
    return 0;
}
