// curl_loop: libcurl makes connections (CURLOPT_CONNECT_ONLY) on a libuv loop, by one multi handle. It owns the
// sockets: one that is connected can be taken out of libcurl's hands and watched by whoever speaks on it, and a watch
// always ends before its descriptor.
#pragma once
#include <curl/curl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct curl_loop;
struct curl_watch; // a socket

// connected gets CURLOPT_PRIVATE of a handle that has a connection, or failed to make one. The handle stays in the
// multi handle, as libcurl wants it for as long as it is to read and write TLS, until curl_loop_remove.
struct curl_loop *curl_loop_new(uv_loop_t *loop, void (*connected)(void *easy_private, CURLcode code));
// These start a connection, and end one. Not from inside a callback of libcurl; connected is one of ours.
void curl_loop_add(struct curl_loop *self, CURL *easy);
void curl_loop_remove(struct curl_loop *self, CURL *easy);

// For CURLOPT_OPENSOCKETFUNCTION. connected is called at most once, when TCP stands: libcurl itself tells that only
// when TLS stands as well. It is not called any more once the socket is taken or closed. CURL_SOCKET_BAD on failure. A
// handle that opens sockets is not freed before curl_loop_close.
curl_socket_t curl_loop_open_socket(struct curl_loop *self, CURL *easy, const struct curl_sockaddr *address,
                                    void (*connected)(void *arg), void *arg);
// A CURLOPT_CLOSESOCKETFUNCTION; its data is the curl_loop. It closes what was not taken.
int curl_loop_close_socket(void *self, curl_socket_t fd);
uint64_t curl_loop_connections_opened(const struct curl_loop *self); // since the start

// Takes the socket: its events (UV_READABLE, UV_WRITABLE; both after an error) go to on_event from now on.
struct curl_watch *curl_loop_take(struct curl_loop *self, curl_socket_t fd, void (*on_event)(void *arg, int events),
                                  void *arg);
curl_socket_t curl_watch_socket(const struct curl_watch *watch);
void curl_watch_want(struct curl_watch *watch, int events);
void curl_watch_close(struct curl_watch *watch); // and the socket; after curl_loop_remove

// No handle and no taken socket may be left.
void curl_loop_close(struct curl_loop *self, void (*on_closed)(void *arg), void *arg);
