// What tests of dumps stand on: PostgreSQL's own pg_dump and pg_restore, our programs, and tables whose numbers are
// told apart easily.
#pragma once
#include "tests/support/fixture.h"

#define RUN(...) run((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})
extern const char *out, *err;          // of the last program
int run(const char *const *arguments); // rowbell; its status
void expect_status(int status, int expected);
void expect_text(const char *text, const char *part);

// A command line; its status. What it prints is in `said`.
extern char said[4000];
__attribute__((format(printf, 1, 2))) int shell(const char *format, ...);
#define SHELL(...) ck_assert_msg(shell(__VA_ARGS__) == 0, "%s", said)
const char *dump_file(void);          // a name for a dump
PGconn *connect_url(const char *url); // closed by the test
// The newest fixture_database belongs to a new login, which is nothing more; its URL. Gone with owner_gone.
const char *owner_url(const char *url);
void owner_gone(void);

// A database with schema app: columns with gaps in their numbers, a detached partition, a table that was dropped and
// one that was renamed, and treasure, which is not published.
extern const char *const furniture;
PGconn *furnished(void);
// The commands that publish them as they are published there.
extern const char *const publish_posts, *const publish_parted, *const publish_named;
const char *remedies(PGconn *conn, const char *problem); // doctor's, of problems like this
void expect_captured(PGconn *conn);                      // every kind of statement, under the right name and scope
void expect_indexed(PGconn *conn, const char *url);      // by our programs, after expect_captured
void expect_unpublished(PGconn *conn);                   // no trigger is left
void add_dumps(Suite *suite);
void add_without_data(Suite *suite);
void add_older(Suite *suite);
