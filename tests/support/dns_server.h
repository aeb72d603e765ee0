// dns_server: a name server on 127.0.0.1 (UDP and TCP, one port) in a thread of its own, that fails on demand.
#pragma once

struct dns_server;
enum dns_action {
    DNS_ANSWER,
    DNS_NODATA,
    DNS_NXDOMAIN,
    DNS_SERVFAIL,
    DNS_REFUSED,
    DNS_SILENT,
    DNS_GARBAGE,   // bytes that are no message; and nothing else
    DNS_MALFORMED, // a good head and question, then a record that runs past the end
    DNS_TRUNCATED, // over UDP; over TCP it is answered
    DNS_SPOOFED,   // first a wrong id with 127.0.0.66, then the answer
    DNS_NO_AAAA,   // as DNS_ANSWER, but questions for IPv6 are left without an answer
};

struct dns_server *dns_server_start(void);
const char *dns_server_address(const struct dns_server *server); // "127.0.0.1:PORT"
// What is said about a name from now on ("*.silent.test": all below it; "*": all others, NXDOMAIN at first). addresses:
// "127.0.0.1 ::1", or NULL. A later row of the same name replaces it.
void dns_server_set(struct dns_server *server, const char *name, enum dns_action action, const char *addresses,
                    unsigned ttl_s);
int dns_server_count(struct dns_server *server, const char *name); // questions for its IPv4 addresses so far
void dns_server_stop(struct dns_server *server);
