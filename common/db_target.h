// db_target: where a connection goes. It reads the URL once, looks up its host names (resolver.h), and starts
// libpq's non-blocking handshake with the addresses, so that nothing in this process ever waits for a name server.
//
// Left to libpq as they are: unix sockets, IP literals, hostaddr. A host of a list that has no address is left out.
#pragma once
#include "common/error.h"
#include <libpq-fe.h>
#include <uv.h>

struct db_target;

// Exactly one of pg and error is set. pg (takes) is in libpq's connecting state. The error never holds the password.
typedef void db_target_started(void *arg, PGconn *pg, const struct error *error);

struct db_target *db_target_new(uv_loop_t *loop, const char *url); // copies
// Calls started once: from inside when no name has to be resolved, else in a later turn. One at a time.
void db_target_connect(struct db_target *target, db_target_started *started, void *arg);
void db_target_cancel(struct db_target *target); // started is not called any more
void db_target_free(struct db_target *target);   // cancels; NULL is allowed
