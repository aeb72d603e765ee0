#include "common/db_url.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 48 };

static const char malformed[] =
    "the database URL is malformed: expected postgres://user:password@host:port/database, with special characters of "
    "user and password percent-encoded";

// ---- the query part

// "a=1&b=2" behind the first question mark; NULL: none, or what stands there may belong to a password.
static const char *query_of(const char *url) {
    const char *query = strchr(url, '?');
    return query && !strchr(query, '@') ? query + 1 : NULL;
}

// A word that can be shown.
static bool is_word(const char *text, size_t length) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    return length > 0 && length < NAME_BYTES && strspn(text, letters) >= length;
}

static bool word_copy(const char *text, size_t length, char ret_word[NAME_BYTES]) {
    bool shown = is_word(text, length);
    snprintf(ret_word, NAME_BYTES, "%.*s", shown ? (int)length : 0, text);
    return shown;
}

void url_strange_parameters(const char *url, bool (*is_known)(void *arg, const char *name, const char *value),
                            void *arg, char *ret_names, size_t size) {
    size_t used = 0;
    *ret_names = '\0';
    for (const char *at = query_of(url); at && *at;) {
        size_t length = strcspn(at, "&"), name_length = strcspn(at, "=&");
        char name[NAME_BYTES], value[NAME_BYTES] = "";
        bool shown = word_copy(at, name_length, name);
        if (name_length < length)
            word_copy(at + name_length + 1, length - name_length - 1, value);
        if (shown && !(is_known && is_known(arg, name, value)) && used + strlen(name) + 3 < size)
            used += (size_t)snprintf(ret_names + used, size - used, "%s%s", used ? ", " : "", name);
        at += length + (at[length] == '&');
    }
}

// ---- PostgreSQL's

const char *db_url_value(const PQconninfoOption *options, const char *keyword) {
    for (const PQconninfoOption *option = options; option && option->keyword; option++)
        if (strcmp(option->keyword, keyword) == 0)
            return option->val && *option->val ? option->val : NULL;
    return NULL;
}

static bool is_libpqs(void *arg, const char *name, const char *value) {
    if (strcmp(name, "ssl") == 0)
        return strcmp(value, "true") == 0; // libpq takes this one for the sake of JDBC
    for (const PQconninfoOption *option = arg; option && option->keyword; option++)
        if (strcmp(option->keyword, name) == 0)
            return true;
    return false;
}

// libpq's own message may quote a piece of the URL, so it is not used.
static bool unreadable(const char *url, struct error *ret_error) {
    char names[200];
    PQconninfoOption *known = PQconndefaults();
    url_strange_parameters(url, is_libpqs, known, names, sizeof names);
    PQconninfoFree(known);
    if (!*names)
        return error_set(ret_error, ERROR_USAGE, "%s", malformed);
    bool many = strchr(names, ',') != NULL;
    return error_set(ret_error, ERROR_USAGE,
                     "the database URL has %s that PostgreSQL's client library does not know: %s. %s of another tool: "
                     "remove %s from the URL that Rowbell gets",
                     many ? "parameters" : "a parameter", names, many ? "They are" : "It is", many ? "them" : "it");
}

// libpq quotes a bad port, and in "postgres://user:pass/word@host" that is half a password.
static bool ports_are_good(const char *ports) {
    for (const char *at = ports; at && *at; at += strcspn(at, ","), at += *at == ',') {
        char *end;
        long port = strtol(at, &end, 10);
        if (*at != ',' && ((*end && *end != ',') || port < 1 || port > 65535 || *at < '0' || *at > '9'))
            return false;
    }
    return true;
}

static bool sslmode_is_good(const char *mode, struct error *ret_error) {
    static const char *const modes[] = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"};
    for (size_t i = 0; mode && i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i], mode) == 0)
            return true;
    if (!mode)
        return true;
    char word[NAME_BYTES];
    word_copy(mode, strlen(mode), word);
    return error_set(ret_error, ERROR_USAGE,
                     "the database URL has sslmode=%s, which PostgreSQL's client library does not know: remove it, or "
                     "say disable, allow, prefer, require (encrypted, any certificate), verify-ca or verify-full",
                     *word ? word : "...");
}

PQconninfoOption *db_url_read(const char *url, struct error *ret_error) {
    PQconninfoOption *options = PQconninfoParse(url ? url : "", NULL);
    if (!options) {
        unreadable(url ? url : "", ret_error);
        return NULL;
    }
    bool good = ports_are_good(db_url_value(options, "port")) ||
                error_set(ret_error, ERROR_USAGE, "%s; the port is 1 to 65535", malformed);
    if (good && sslmode_is_good(db_url_value(options, "sslmode"), ret_error))
        return options;
    PQconninfoFree(options);
    return NULL;
}

bool db_url_check(const char *url, struct error *ret_error) {
    PQconninfoOption *options = db_url_read(url, ret_error);
    PQconninfoFree(options);
    return options != NULL;
}

bool db_url_named(PGconn *conn) {
    PQconninfoOption *options = PQconninfo(conn);
    bool named = db_url_value(options, "application_name") != NULL;
    PQconninfoFree(options);
    return named;
}
