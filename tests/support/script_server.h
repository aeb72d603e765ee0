// script_server: an HTTP peer on the test's own libuv loop that answers each request with given bytes, however wrong
// they are, and then keeps, closes, drips or floods. For what a well-behaved receiver cannot be made to do.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

enum script_then {
    THEN_KEEP,  // the connection waits for the next request
    THEN_CLOSE, // FIN
    THEN_RESET, // RST
    THEN_DRIP,  // one byte every 20 ms
    THEN_FLOOD, // 16 KiB chunks for as long as they are taken
};

struct script {
    const char *answer; // NULL: nothing
    size_t length;      // 0: strlen(answer)
    enum script_then then;
    const char *filler; // what drips or floods
    bool at_head;       // answers when it has the head, and takes what follows for the next request
};

struct script_server {
    uv_tcp_t listener;
    int port;
    struct script script; // for the requests from now on
    int connections;      // accepted
    int open;             // not closed yet
    int requests;         // complete ones
    char last_request[65536];
};

void script_server_start(struct script_server *server, uv_loop_t *loop); // on 127.0.0.1; fails the test
