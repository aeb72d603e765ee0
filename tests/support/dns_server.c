#include "tests/support/dns_server.h"
#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RULES_MOST = 64, MESSAGE_BYTES = 1500, HEAD_BYTES = 12, TYPE_A = 1, TYPE_AAAA = 28, NXDOMAIN = 3 };

struct rule {
    char name[256], addresses[1000];
    enum dns_action action;
    unsigned ttl_s;
    int questions;
};

struct dns_server {
    pthread_t thread;
    pthread_mutex_t lock; // rules
    int udp, tcp, wake[2];
    char address[32];
    struct rule rules[RULES_MOST];
    int rule_count;
};

struct message {
    unsigned char bytes[MESSAGE_BYTES];
    size_t length;
};

static void put16(struct message *message, unsigned value) {
    message->bytes[message->length++] = (unsigned char)(value >> 8);
    message->bytes[message->length++] = (unsigned char)value;
}

static struct rule *rule_find(struct dns_server *server, const char *name, bool exact) {
    struct rule *best = NULL;
    for (int i = 0; i < server->rule_count; i++) {
        struct rule *rule = &server->rules[i];
        size_t suffix = strlen(rule->name) - 1, length = strlen(name);
        bool below =
            rule->name[0] == '*' && length >= suffix && strcasecmp(name + length - suffix, rule->name + 1) == 0;
        bool fits = strcasecmp(rule->name, name) == 0 || (!exact && below);
        if (fits && (!best || strlen(rule->name) > strlen(best->name)))
            best = rule;
    }
    return best;
}

// Reads the one question. False: it is none that we answer.
static bool question_read(const struct message *query, char *ret_name, int *ret_type, size_t *ret_end) {
    size_t at = HEAD_BYTES, out = 0;
    while (at < query->length && query->bytes[at] != 0) {
        size_t label = query->bytes[at++];
        if (label > 63 || at + label > query->length || out + label + 2 > 255)
            return false;
        memcpy(ret_name + out, query->bytes + at, label);
        at += label;
        out += label;
        ret_name[out++] = '.';
    }
    ret_name[out > 0 ? out - 1 : 0] = '\0';
    if (at + 5 > query->length)
        return false;
    *ret_type = query->bytes[at + 1] << 8 | query->bytes[at + 2];
    *ret_end = at + 5;
    return true;
}

static void head_write(struct message *answer, const struct message *query, size_t end, unsigned code, bool truncated) {
    memcpy(answer->bytes, query->bytes, end);
    answer->length = end;
    answer->bytes[2] = (unsigned char)(0x84 | (query->bytes[2] & 1) | (truncated ? 2 : 0));
    answer->bytes[3] = (unsigned char)(0x80 | code);
    memset(answer->bytes + 6, 0, 6); // no records yet
}

static void records_write(struct message *answer, const char *addresses, int type, unsigned ttl_s) {
    char copy[1000];
    snprintf(copy, sizeof copy, "%s", addresses);
    for (char *rest = copy, *text; (text = strsep(&rest, " "));) {
        unsigned char bytes[16];
        unsigned size = type == TYPE_A ? 4 : 16;
        if (inet_pton(type == TYPE_A ? AF_INET : AF_INET6, text, bytes) != 1)
            continue;
        put16(answer, 0xc00c); // the name of the question
        put16(answer, (unsigned)type);
        put16(answer, 1);
        put16(answer, ttl_s >> 16);
        put16(answer, ttl_s & 0xffff);
        put16(answer, size);
        memcpy(answer->bytes + answer->length, bytes, size);
        answer->length += size;
        answer->bytes[7]++;
    }
}

// Writes up to two messages; returns how many.
static int answer_write(struct dns_server *server, const struct message *query, bool udp, struct message answers[2]) {
    char name[256];
    int type;
    size_t end;
    if (query->length < HEAD_BYTES || !question_read(query, name, &type, &end))
        return 0;
    pthread_mutex_lock(&server->lock);
    struct rule *found = rule_find(server, name, false);
    struct rule rule = found ? *found : (struct rule){.action = DNS_NXDOMAIN};
    if (found && type == TYPE_A)
        found->questions++;
    pthread_mutex_unlock(&server->lock);

    static const unsigned codes[] = {
        [DNS_NXDOMAIN] = NXDOMAIN, [DNS_SERVFAIL] = 2, [DNS_REFUSED] = 5, [DNS_NO_AAAA] = 0};
    if (rule.action == DNS_SILENT || (rule.action == DNS_NO_AAAA && type == TYPE_AAAA))
        return 0;
    if (rule.action == DNS_GARBAGE) {
        memset(answers->bytes, 0xa5, 40);
        memcpy(answers->bytes, query->bytes, 2);
        answers->length = 40;
        return 1;
    }
    struct message *answer = answers;
    if (rule.action == DNS_SPOOFED && udp) {
        head_write(answer, query, end, 0, false);
        answer->bytes[0] ^= 0x5a;
        records_write(answer, "127.0.0.66", type, rule.ttl_s);
        answer++;
    }
    bool truncated = rule.action == DNS_TRUNCATED && udp;
    head_write(answer, query, end, codes[rule.action], truncated);
    if (rule.action == DNS_MALFORMED) {
        put16(answer, 0xc00c);
        put16(answer, (unsigned)type);
        answer->bytes[7] = 1;
    } else if (!truncated && codes[rule.action] == 0 && rule.action != DNS_NODATA) {
        records_write(answer, rule.addresses, type, rule.ttl_s);
    }
    return (int)(answer - answers) + 1;
}

static void serve_udp(struct dns_server *server) {
    struct message query, answers[2];
    struct sockaddr_in from;
    socklen_t size = sizeof from;
    ssize_t length = recvfrom(server->udp, query.bytes, sizeof query.bytes, 0, (struct sockaddr *)&from, &size);
    query.length = length > 0 ? (size_t)length : 0;
    int count = answer_write(server, &query, true, answers);
    for (int i = 0; i < count; i++)
        sendto(server->udp, answers[i].bytes, answers[i].length, 0, (struct sockaddr *)&from, size);
}

static void serve_tcp(struct dns_server *server) {
    struct message query, answers[2];
    unsigned char prefix[2];
    int fd = accept(server->tcp, NULL, NULL);
    struct timeval patience = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    while (recv(fd, prefix, 2, MSG_WAITALL) == 2) {
        query.length = (size_t)(prefix[0] << 8 | prefix[1]);
        if (query.length > sizeof query.bytes ||
            recv(fd, query.bytes, query.length, MSG_WAITALL) < (ssize_t)query.length)
            break;
        if (answer_write(server, &query, false, answers) != 1)
            break;
        prefix[0] = (unsigned char)(answers->length >> 8);
        prefix[1] = (unsigned char)answers->length;
        if (send(fd, prefix, 2, MSG_NOSIGNAL | MSG_MORE) != 2 ||
            send(fd, answers->bytes, answers->length, MSG_NOSIGNAL) < 0)
            break;
    }
    close(fd);
}

static void *run(void *arg) {
    struct dns_server *server = arg;
    for (;;) {
        struct pollfd polls[] = {{.fd = server->wake[0], .events = POLLIN},
                                 {.fd = server->udp, .events = POLLIN},
                                 {.fd = server->tcp, .events = POLLIN}};
        poll(polls, 3, -1);
        if (polls[0].revents)
            return NULL;
        if (polls[1].revents)
            serve_udp(server);
        if (polls[2].revents)
            serve_tcp(server);
    }
}

struct dns_server *dns_server_start(void) {
    struct dns_server *server = calloc(1, sizeof *server);
    ck_assert_ptr_nonnull(server);
    bool bound = false;
    for (int i = 0; i < 50 && !bound; i++) { // a port that both have
        struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof own;
        int large = 4 << 20;
        server->udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        server->tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(server->udp, SOL_SOCKET, SO_RCVBUF, &large, sizeof large);
        bound = bind(server->udp, (struct sockaddr *)&own, size) == 0 &&
                getsockname(server->udp, (struct sockaddr *)&own, &size) == 0 &&
                bind(server->tcp, (struct sockaddr *)&own, size) == 0 && listen(server->tcp, 64) == 0;
        snprintf(server->address, sizeof server->address, "127.0.0.1:%d", ntohs(own.sin_port));
        if (!bound) {
            close(server->udp);
            close(server->tcp);
        }
    }
    ck_assert(bound);
    ck_assert_int_eq(pipe(server->wake), 0);
    pthread_mutex_init(&server->lock, NULL);
    ck_assert_int_eq(pthread_create(&server->thread, NULL, run, server), 0);
    return server;
}

const char *dns_server_address(const struct dns_server *server) {
    return server->address;
}

void dns_server_set(struct dns_server *server, const char *name, enum dns_action action, const char *addresses,
                    unsigned ttl_s) {
    pthread_mutex_lock(&server->lock);
    struct rule *rule = rule_find(server, name, true);
    if (!rule) {
        ck_assert_int_lt(server->rule_count, RULES_MOST);
        rule = &server->rules[server->rule_count++];
        snprintf(rule->name, sizeof rule->name, "%s", name);
    }
    rule->action = action;
    rule->ttl_s = ttl_s;
    snprintf(rule->addresses, sizeof rule->addresses, "%s", addresses ? addresses : "");
    pthread_mutex_unlock(&server->lock);
}

int dns_server_count(struct dns_server *server, const char *name) {
    pthread_mutex_lock(&server->lock);
    const struct rule *rule = rule_find(server, name, true);
    int questions = rule ? rule->questions : 0;
    pthread_mutex_unlock(&server->lock);
    return questions;
}

void dns_server_stop(struct dns_server *server) {
    ck_assert_int_eq(write(server->wake[1], "x", 1), 1);
    pthread_join(server->thread, NULL);
    close(server->udp);
    close(server->tcp);
    close(server->wake[0]);
    close(server->wake[1]);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
