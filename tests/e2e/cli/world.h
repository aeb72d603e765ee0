// The commands of rowbell against a real database.
#pragma once
#include "tests/support/fixture.h"

#define RUN(...) run((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

extern const char *out, *err; // of the last command
extern PGconn *conn;
extern const char *database_url;

int run(const char *const *arguments);
void expect_status(int status, int expected);
void expect_text(const char *text, const char *part);
// stdout is one JSON document, of which the SQL condition holds; PostgreSQL is an independent reader.
void expect_json(const char *condition);
void set_up(void); // a database with a table posts
// Three events: one delivered and failing elsewhere, one poisoned in fan-out, one waiting for the relay.
void make_events(void);
void add_endpoint(const char *name, const char *url); // a webhook for everything

// Keys that seal secrets.
#define KEY_A "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
#define KEY_B "//////////////////////////////////////////8="

void publish_tests(Suite *suite);
void subscription_tests(Suite *suite);
void secrets_tests(Suite *suite);
void events_tests(Suite *suite);
void operating_tests(Suite *suite);
void usage_tests(Suite *suite);
void tail_tests(Suite *suite);
void console_tests(Suite *suite);
