// loop: turning a libuv loop until something has happened.
#pragma once
#include <uv.h>

// Turns the loop until *count reaches the number; fails the test after deadline_ms.
void loop_turn_until(uv_loop_t *loop, const int *count, int number, unsigned deadline_ms, const char *what);
// Turns it for so long.
void loop_turn_for(uv_loop_t *loop, unsigned ms);
