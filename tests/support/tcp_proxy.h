// tcp_proxy: a listener on 127.0.0.1 in a thread of its own, between a client and a real server, that fails on demand.
#pragma once
#include <stddef.h>

struct tcp_proxy;

struct tcp_proxy *tcp_proxy_start(const char *host,
                                  int port); // forwards to host:port (an IP address) until told otherwise
int tcp_proxy_port(const struct tcp_proxy *proxy);
// Each has effect when it returns.
void tcp_proxy_pass(struct tcp_proxy *proxy);   // listens and forwards; what was held back goes out
void tcp_proxy_refuse(struct tcp_proxy *proxy); // connections are reset, the port refuses
void tcp_proxy_silence(
    struct tcp_proxy *proxy); // connections stay, no byte passes; new ones are accepted and not answered
// New connections get these bytes at once, and are closed after whatever the client then sends.
void tcp_proxy_answer(struct tcp_proxy *proxy, const void *bytes, size_t length);
int tcp_proxy_accepted(struct tcp_proxy *proxy); // connections so far
void tcp_proxy_stop(struct tcp_proxy *proxy);
