// db_url: a database URL, read as libpq reads it, with errors that say what is wrong with it.
//
// A URL holds a password, and one that is not percent-encoded may end up anywhere in it. So an error names a parameter
// only where it cannot be a piece of one, and never quotes a value that is not a plain word.
#pragma once
#include "common/error.h"
#include <libpq-fe.h>

// The parameters of the URL, to be freed by PQconninfoFree; NULL: ERROR_USAGE.
PQconninfoOption *db_url_read(const char *url, struct error *ret_error);
bool db_url_check(const char *url, struct error *ret_error);
const char *db_url_value(const PQconninfoOption *options, const char *keyword); // view; NULL: absent or empty
// Did the URL or PGAPPNAME give the connection an application_name? Then it is not for us to give it another.
bool db_url_named(PGconn *conn);
// What an unknown parameter of a URL is called: the names in its query part, with commas between, of which `is_known`
// (NULL: none) says false. "": there is none, or the query part may be a piece of a password.
void url_strange_parameters(const char *url, bool (*is_known)(void *arg, const char *name, const char *value),
                            void *arg, char *ret_names, size_t size);
