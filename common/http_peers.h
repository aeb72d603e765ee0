// http_peers: a server's connections by the address that they come from, to find the one whose place may be given to
// somebody else: of the address that holds most, the oldest. IPv6 is grouped by /64, which one host has whole.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

struct http_peers;
struct http_peer;

// In each connection.
struct http_peer_link {
    struct http_peer *peer; // NULL: not counted
    struct http_peer_link *prev, *next;
};

struct http_peers *http_peers_new(size_t most_connections);
void http_peers_free(struct http_peers *peers); // none is left in it
void http_peers_add(struct http_peers *peers, struct http_peer_link *link, const struct sockaddr *address);
void http_peers_remove(struct http_peers *peers, struct http_peer_link *link); // one that is not counted is allowed
size_t http_peers_held(const struct http_peer_link *link);                     // by its address, itself included
// The oldest connection of this one's address that may_close allows; NULL: none.
struct http_peer_link *http_peers_oldest(const struct http_peer_link *link,
                                         bool (*may_close)(const struct http_peer_link *link));
// The oldest of the address that holds most, or of the next one.
struct http_peer_link *http_peers_victim(const struct http_peers *peers,
                                         bool (*may_close)(const struct http_peer_link *link));
