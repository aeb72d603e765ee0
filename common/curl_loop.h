// curl_loop: a libcurl multi handle driven by a libuv loop. It owns the sockets, so that an idle connection stays
// watched (most are used again at once: that spares two system calls a request) and a watch always ends before its
// descriptor.
#pragma once
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct curl_loop;

struct curl_loop_options {
    long max_connections; // open ones, in use and idle
    // A transfer ended; its handle is out of the multi handle when finished is called. read (before) may still ask it
    // for what curl_easy_getinfo knows. Both get CURLOPT_PRIVATE.
    void (*read)(void *easy_private, CURLcode code);
    void (*finished)(void *easy_private);
};

struct curl_loop *curl_loop_new(uv_loop_t *loop, const struct curl_loop_options *options);
// Starts and cancels transfers; not from inside a callback of libcurl. Nothing is called from inside curl_loop_add.
void curl_loop_add(struct curl_loop *self, CURL *easy);
void curl_loop_remove(struct curl_loop *self, CURL *easy);

// For CURLOPT_OPENSOCKETFUNCTION. connected is called at most once, when TCP stands: libcurl itself tells that only
// when TLS stands as well. It is not called any more once the socket's transfer has ended. CURL_SOCKET_BAD on failure.
curl_socket_t curl_loop_open_socket(struct curl_loop *self, const struct curl_sockaddr *address,
                                    void (*connected)(void *arg), void *arg);
// A CURLOPT_CLOSESOCKETFUNCTION; its data is the curl_loop.
int curl_loop_close_socket(void *self, curl_socket_t fd);
uint64_t curl_loop_connections_opened(const struct curl_loop *self); // since the start

// No transfer may be left in it. Closes all connections.
void curl_loop_close(struct curl_loop *self, void (*on_closed)(void *arg), void *arg);
