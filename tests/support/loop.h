// loop: turning a libuv loop until something has happened.
#pragma once
#include <uv.h>

// Turns the loop until *count reaches the number; fails the test after deadline_ms. Against a timer of what is tested
// it is no matter of speed: the timers of a loop end in the order in which they are due, however late all of them are.
void loop_turn_until(uv_loop_t *loop, const int *count, int number, unsigned deadline_ms, const char *what);
// Turns it for so long.
void loop_turn_for(uv_loop_t *loop, unsigned ms);
