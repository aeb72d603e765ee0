// delivery: what tests of the dispatcher program share. Jobs are put in by SQL, as a relay would.
#pragma once
#include "tests/support/fixture.h"

enum { WAIT_MS = HANG_MS };
extern const char *const plain[];        // arguments: both lanes
extern const char *const webhook_only[]; // and one of them
extern const char *const sse_only[];
#define NO_JOBS "select count(*) = 0 from rowbell.jobs"
#define attempts(conn, class_name) sql_int(conn, "select count(*) from rowbell.attempts where class = '" class_name "'")

// A database with a published table posts and a type thing.happened; seqs are above 2^32.
PGconn *fresh(void);
void prepare(PGconn *conn); // makes a migrated database such a one
// A webhook for everything, to the receiver; more_options begins with a comma. Returns its id.
int webhook(PGconn *conn, const char *name, struct receiver *receiver, const char *more_options);
// One event for each of count new rows, and a job of each for the subscription, as a relay leaves them.
void queue(PGconn *conn, int subscription, int count);
// The same for every subscription whose name is LIKE names: count jobs of each.
void queue_matching(PGconn *conn, const char *names, int count);
struct daemon *start(const char *const *arguments); // a dispatcher that has begun
void stop(struct daemon *daemon);                   // SIGTERM; it must end well
int distinct_ids(struct receiver *receiver);
// The number of shards of each process, ascending.
void wait_shards(PGconn *conn, const char *expected, unsigned deadline_ms);
