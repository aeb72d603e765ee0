// support: what the files of this directory share and tests do not see.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Memory that lives until fixture_close.
void *support_keep(void *memory);                // takes malloc'ed memory, returns it
const char *support_keep_text(const char *text); // a copy; NULL gives ""
void support_forget_memory(void);

uint64_t support_now_ms(void);
// The end of a wait that may take so long: never sooner than HANG_MS, since a slow machine is no fault.
uint64_t support_end_ms(unsigned deadline_ms);
void support_pause(void);                  // between two looks at a condition: 2 ms
const char *support_env(const char *name); // fails the test when it is not set
// A port that nobody listens on, below those that the kernel gives to outgoing connections: it stays free until used.
int support_port(void);
// Waits for a child's end and returns its wait status; one that is late is killed, and the test fails.
int support_wait_child(pid_t pid, unsigned deadline_ms, const char *what);

// Parts that fixture_close ends, in this order.
void support_stop_daemons(void);
void support_stop_receivers(void);
void support_stop_sse_clients(void);
void support_stop_databases(void);
// After the last test, in the runner: what failed tests left behind.
void support_drop_leftover_databases(void);

// NULL when there is no fixture_database yet.
const char *support_database_url(void);
