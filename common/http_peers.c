#include "common/http_peers.h"
#include "common/memory.h"
#include <assert.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

enum { PEER_KEY_BYTES = 8 }; // an IPv6 /64, or ::ffff and an IPv4 address

struct http_peer {
    unsigned char key[PEER_KEY_BYTES];
    size_t held;
    struct http_peer_link *links;  // in the order of their age
    struct http_peer *prev, *next; // of those that hold as many
    UT_hash_handle hh;
};

struct http_peers {
    struct http_peer *all;
    size_t most;
    size_t highest;           // nobody holds more
    struct http_peer *rank[]; // by how many they hold; the last: so many or more
};

struct http_peers *http_peers_new(size_t most_connections) {
    struct http_peers *peers = memory_alloc(sizeof *peers + (most_connections + 1) * sizeof(struct http_peer *));
    peers->most = most_connections;
    return peers;
}

void http_peers_free(struct http_peers *peers) {
    assert(!peers || !peers->all);
    free(peers);
}

static void key_of(const struct sockaddr *address, unsigned char ret_key[PEER_KEY_BYTES]) {
    static const unsigned char ipv4[4] = {0, 0, 0xff, 0xff};
    memset(ret_key, 0, PEER_KEY_BYTES);
    if (address->sa_family == AF_INET) {
        memcpy(ret_key, ipv4, 4);
        memcpy(ret_key + 4, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct in6_addr *ipv6 = &((const struct sockaddr_in6 *)address)->sin6_addr;
        bool mapped = IN6_IS_ADDR_V4MAPPED(ipv6); // of a dual-stack listener
        memcpy(ret_key, mapped ? ipv4 : ipv6->s6_addr, mapped ? 4 : PEER_KEY_BYTES);
        if (mapped)
            memcpy(ret_key + 4, ipv6->s6_addr + 12, 4);
    }
}

static size_t rank_of(const struct http_peers *peers, const struct http_peer *peer) {
    return peer->held < peers->most ? peer->held : peers->most;
}

static void hold(struct http_peers *peers, struct http_peer *peer, int change) {
    if (peer->held > 0)
        DL_DELETE(peers->rank[rank_of(peers, peer)], peer);
    peer->held = change > 0 ? peer->held + 1 : peer->held - 1;
    if (peer->held > 0) {
        DL_APPEND(peers->rank[rank_of(peers, peer)], peer);
        if (rank_of(peers, peer) > peers->highest)
            peers->highest = rank_of(peers, peer);
    }
    while (peers->highest > 0 && !peers->rank[peers->highest])
        peers->highest--;
}

void http_peers_add(struct http_peers *peers, struct http_peer_link *link, const struct sockaddr *address) {
    unsigned char key[PEER_KEY_BYTES];
    struct http_peer *peer;
    key_of(address, key);
    HASH_FIND(hh, peers->all, key, sizeof key, peer);
    if (!peer) {
        peer = memory_alloc(sizeof *peer);
        memcpy(peer->key, key, sizeof key);
        HASH_ADD(hh, peers->all, key, sizeof key, peer);
    }
    link->peer = peer;
    DL_APPEND(peer->links, link);
    hold(peers, peer, 1);
}

void http_peers_remove(struct http_peers *peers, struct http_peer_link *link) {
    struct http_peer *peer = link->peer;
    if (!peer)
        return;
    link->peer = NULL;
    DL_DELETE(peer->links, link);
    hold(peers, peer, -1);
    if (peer->held == 0) {
        HASH_DEL(peers->all, peer);
        free(peer);
    }
}

size_t http_peers_held(const struct http_peer_link *link) {
    return link->peer ? link->peer->held : 0;
}

static struct http_peer_link *oldest_of(const struct http_peer *peer,
                                        bool (*may_close)(const struct http_peer_link *link)) {
    struct http_peer_link *link;
    DL_FOREACH(peer->links, link) {
        if (may_close(link))
            return link;
    }
    return NULL;
}

struct http_peer_link *http_peers_oldest(const struct http_peer_link *link,
                                         bool (*may_close)(const struct http_peer_link *link)) {
    return link->peer ? oldest_of(link->peer, may_close) : NULL;
}

struct http_peer_link *http_peers_victim(const struct http_peers *peers,
                                         bool (*may_close)(const struct http_peer_link *link)) {
    for (size_t rank = peers->highest; rank > 0; rank--) {
        struct http_peer *peer;
        DL_FOREACH(peers->rank[rank], peer) {
            struct http_peer_link *link = oldest_of(peer, may_close);
            if (link)
                return link;
        }
    }
    return NULL;
}
