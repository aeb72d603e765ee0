// Attacks on the gateway, over real connections: who reaches Redis, who holds a valid credential, who only can connect.
#include "common/buffer.h"
#include "common/clock.h"
#include "common/stream_message.h"
#include "tests/e2e/gateway/world.h"
#include "tests/support/redis_server.h"
#include "tests/support/stream_keys.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

// ---- who reaches Redis ----

static char channel[STREAM_CHANNEL_SIZE];

static struct gateway gateway_on(struct redis *redis) {
    fresh_database();
    redis_start(redis);
    stream_channel(channel, sizeof channel, sql_text(db, "select id from rowbell.installation"), 1);
    struct gateway gateway = gateway_start(WITH("--redis-url", redis->url));
    daemon_wait_log(gateway.daemon, "redis_up", SOON_MS);
    return gateway;
}

static void write_message(struct buffer *message, int64_t prev, const char *key) {
    stream_message_begin(message, prev, prev + 1, 1);
    stream_message_entry(message, &(struct stream_entry){.scope = "acme", .name = "posts", .key = key, .op = "update"});
}

static void publish(struct redis *redis, const struct buffer *message) {
    redis_command(redis, "PUBLISH %s %b", channel, message->bytes, message->length);
}

struct rejections {
    const struct gateway *gateway;
    const char *reason;
    double count;
};

static bool are_rejected(void *arg) {
    const struct rejections *rejections = arg;
    char name[100];
    snprintf(name, sizeof name, "rowbell_stream_messages_rejected_total{reason=\"%s\"}", rejections->reason);
    return gateway_metric(rejections->gateway, name) >= rejections->count;
}

static void wait_rejected(const struct gateway *gateway, const char *reason, double count) {
    wait_for(are_rejected, &(struct rejections){gateway, reason, count}, HANG_MS, reason);
}

// Each of these goes on from the head, so that without a signature it would be told to everybody.
START_TEST(who_reaches_redis_forges_no_address) {
    struct redis redis = {0};
    struct gateway gateway = gateway_on(&redis);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t head = log_newest();
    struct stream_keys keys = stream_keys_read(db);
    struct stream_key guessed = {.id = keys.keys[0].id};
    struct buffer message = {0};
    char unsigned_message[200];
    wait_position(client, head);

    snprintf(unsigned_message, sizeof unsigned_message, "rowbell-stream 1 %lld %lld 1\nacme\tposts\tforged\tupdate\n",
             (long long)head, (long long)head + 1); // as an old dispatcher would send it
    redis_command(&redis, "PUBLISH %s %s", channel, unsigned_message);
    wait_rejected(&gateway, "version", 1);
    write_message(&message, head, "forged");
    publish(&redis, &message); // key 0, no signature
    guessed.bytes[0] = 1;
    stream_message_sign(&message, &guessed, channel);
    publish(&redis, &message);
    wait_rejected(&gateway, "signature", 1);
    write_message(&message, head, "forged");
    char other[STREAM_CHANNEL_SIZE];
    stream_channel(other, sizeof other, "another", 1); // of another installation that has, say, our dump
    stream_message_sign(&message, &keys.keys[0], other);
    publish(&redis, &message);
    wait_rejected(&gateway, "signature", 2);
    wait_rejected(&gateway, "key", 1);

    // What is genuine still comes by Redis.
    int64_t newest = log_append_quietly("posts", "real", 1, 6);
    stream_message_begin(&message, head, newest, 1);
    stream_message_entry(&message, &(struct stream_entry){.name = "posts", .key = "real00", .op = "update"});
    stream_message_sign(&message, &keys.keys[0], channel);
    publish(&redis, &message);
    wait_position(client, newest);
    ck_assert_ptr_null(strstr(body_of(client), "forged"));
    ck_assert_int_eq(count_of(body_of(client), "event: reset"), 0);
    buffer_free(&message);
    redis_stop(&redis);
}
END_TEST

START_TEST(a_key_that_was_given_away_is_forgotten) {
    struct redis redis = {0};
    struct gateway gateway = gateway_on(&redis);
    struct sse_client *client = sse_open(gateway.port, "/events", NULL);
    int64_t head = log_newest();
    struct stream_keys stolen = stream_keys_read(db);
    struct buffer message = {0};
    wait_position(client, head);
    sql_run(db, "update rowbell.stream_keys set created_at = clock_timestamp()");
    sql_run(db, "select rowbell.rotate_stream_key()"); // in the course of things: the present one goes on
    ck_assert_int_eq(sql_int(db, "select count(*) from rowbell.stream_keys"), 2);
    sql_run(db, "update rowbell.stream_keys set created_at = created_at - interval '1 hour' where id = "
                "(select min(id) from rowbell.stream_keys)");
    ck_assert_int_eq(sql_int(db, "select rowbell.stream_signing_key()"), stolen.keys[0].id);
    // The one before the one that signs is accepted no more from the next rotation on.
    sql_run(db, "begin; update rowbell.stream_keys set created_at = created_at - interval '1 hour'");
    sql_run(db, "select rowbell.rotate_stream_key()");
    ck_assert_int_eq(sql_int(db, "select count(*) from rowbell.stream_keys"), 2);
    ck_assert_int_gt(sql_int(db, "select min(id) from rowbell.stream_keys"), stolen.keys[0].id);
    sql_run(db, "rollback");
    sql_run(db, "select rowbell.rotate_stream_key(true)");
    ck_assert_int_eq(sql_int(db, "select count(*) from rowbell.stream_keys"), 1);
    // Gateways read the keys every few seconds.
    uint64_t end = clock_ms() + 60000;
    while (gateway_metric(&gateway, "rowbell_stream_messages_rejected_total{reason=\"key\"}") == 0) {
        ck_assert_msg(clock_ms() < end, "the stolen key counts for ever");
        write_message(&message, 1, "old"); // not at the head: it changes nothing while the key counts
        stream_message_sign(&message, &stolen.keys[0], channel);
        publish(&redis, &message);
    }
    write_message(&message, head, "forged");
    stream_message_sign(&message, &stolen.keys[0], channel);
    publish(&redis, &message);
    wait_position(client, log_append("posts", "p", 1));
    ck_assert_ptr_null(strstr(body_of(client), "forged"));
    buffer_free(&message);
    redis_stop(&redis);
}
END_TEST

START_TEST(nobody_else_reads_the_keys) {
    static const char *const roles[] = {"rowbell_app", "rowbell_relay", "rowbell_operator"};
    fresh_database();
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        PGconn *conn = PQconnectdb(fixture_login(roles[i]));
        PGresult *result = PQexec(conn, "select key from rowbell.stream_keys");
        ck_assert_str_eq(PQresultErrorField(result, PG_DIAG_SQLSTATE), "42501");
        PQclear(result);
        PQfinish(conn);
    }
    for (int i = 0; i < 2; i++) {
        PGconn *conn = PQconnectdb(fixture_login(i == 0 ? "rowbell_dispatcher" : "rowbell_gateway"));
        PGresult *result = PQexec(conn, "select key from rowbell.stream_keys");
        ck_assert_int_eq(PQntuples(result), 1);
        PQclear(result);
        result = PQexec(conn, "select rowbell.rotate_stream_key()");
        ck_assert_str_eq(PQresultErrorField(result, PG_DIAG_SQLSTATE), "42501");
        PQclear(result);
        PQfinish(conn);
    }
}
END_TEST

// ---- who may enter ----

static bool is_told_to_wait(struct sse_client *client) {
    wait_for(stream_is_closed, client, SOON_MS, "the end of a stream that is one too many");
    check_has(sse_bytes(client), "HTTP/1.1 200 OK\r\n");
    return strncmp(body_of(client), "retry: ", 7) == 0 && !strstr(body_of(client), "id:");
}

START_TEST(one_user_does_not_fill_the_gateway) {
    enum { MOST = 50, OF_ONE = 8 };
    static const char mallory[] = "X-Rowbell-Scopes: acme\r\nX-User: mallory\r\n";
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--subject-header",
                                                "X-User", "--max-connections", "50"));
    struct sse_client *held[OF_ONE];
    for (int i = 0; i < OF_ONE; i++) {
        held[i] = sse_open(gateway.port, "/events", mallory);
        sse_wait(held[i], "\nid: ", SOON_MS);
    }
    for (int i = OF_ONE; i < MOST; i++) {
        struct sse_client *more = sse_open(gateway.port, "/events", mallory);
        ck_assert(is_told_to_wait(more));
        sse_close(more);
    }
    ck_assert(gateway_metric(&gateway, "rowbell_stream_refused_total{reason=\"subject\"}") == MOST - OF_ONE);
    sse_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: acme\r\nX-User: alice\r\n"), "\nid: ", SOON_MS);
    // What ends makes room for another.
    sse_close(held[0]);
    uint64_t end = clock_ms() + SOON_MS;
    while (gateway_metric(&gateway, "rowbell_stream_subscribers") > OF_ONE) {
        ck_assert_msg(clock_ms() < end, "the gateway does not notice that a client left");
    }
    sse_wait(sse_open(gateway.port, "/events", mallory), "\nid: ", SOON_MS);
}
END_TEST

START_TEST(one_tenant_does_not_fill_the_gateway) {
    fresh_database();
    struct gateway gateway = gateway_start(
        WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--max-connections", "50", "--max-per-scopes", "3"));
    for (int i = 0; i < 3; i++) {
        sse_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: acme,tools\r\n"), "\nid: ", SOON_MS);
    }
    ck_assert(is_told_to_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: tools, acme\r\n")));
    sse_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: acme\r\n"), "\nid: ", SOON_MS);
}
END_TEST

// Else who asks often enough where there is no room is kept out where there is.
START_TEST(what_is_refused_takes_no_place) {
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--subject-header",
                                                "X-User", "--max-per-scopes", "1", "--max-per-subject", "2"));
    sse_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: acme\r\nX-User: bob\r\n"), "\nid: ", SOON_MS);
    for (int i = 0; i < 3; i++) {
        ck_assert(is_told_to_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: acme\r\nX-User: ann\r\n")));
    }
    sse_wait(sse_open(gateway.port, "/events", "X-Rowbell-Scopes: tools\r\nX-User: ann\r\n"), "\nid: ", SOON_MS);
}
END_TEST

START_TEST(one_address_does_not_fill_the_gateway) {
    fresh_database();
    struct gateway gateway =
        gateway_start(WITH("--max-per-address", "2", "--trusted-proxy", "127.0.0.1", "--trusted-proxy", "10.0.0.0/8"));
    // What the client itself writes on the left counts for nothing.
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 192.0.2.1, 203.0.113.9, 10.1.1.1\r\n"),
             "\nid: ", SOON_MS);
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 192.0.2.2\r\nX-Forwarded-For: 203.0.113.9\r\n"),
             "\nid: ", SOON_MS);
    ck_assert(is_told_to_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 192.0.2.3,203.0.113.9\r\n")));
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 203.0.113.10\r\n"), "\nid: ", SOON_MS);
    // The other header is not read; the proxy's own address counts.
    for (int i = 0; i < 2; i++) {
        sse_wait(sse_open(gateway.port, "/events", "Forwarded: for=192.0.2.77\r\n"), "\nid: ", SOON_MS);
    }
    ck_assert(is_told_to_wait(sse_open(gateway.port, "/events", "Forwarded: for=192.0.2.78\r\n")));
    // A /64 is one host.
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 2001:db8:0:1::1\r\n"), "\nid: ", SOON_MS);
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 2001:db8:0:1::2\r\n"), "\nid: ", SOON_MS);
    ck_assert(is_told_to_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 2001:db8:0:1:ffff::3\r\n")));
    sse_wait(sse_open(gateway.port, "/events", "X-Forwarded-For: 2001:db8:0:2::1\r\n"), "\nid: ", SOON_MS);
}
END_TEST

enum { WAITS = 40, WAITS_OF_ONE = 32 };

static int answered(struct sse_client *const *clients) {
    int count = 0;
    for (int i = 0; i < WAITS; i++) {
        count += strstr(sse_bytes(clients[i]), "\"state\"") != NULL;
    }
    return count;
}

static bool rest_is_answered(void *arg) {
    return answered(arg) >= WAITS - WAITS_OF_ONE;
}

START_TEST(one_user_does_not_take_every_place_to_wait_for_a_receipt) {
    struct sse_client *clients[WAITS];
    char target[300];
    fresh_database();
    sql_run(db, "select rowbell.declare_type('thing.happened'); begin; select rowbell.record('thing.happened', 'a/1')");
    const char *receipt = sql_text(db, "select rowbell.receipt()"); // nobody fans out: it would wait for ever
    sql_run(db, "commit");
    struct gateway gateway =
        gateway_start(WITH("--auth", "header", "--trusted-peer", "127.0.0.1", "--subject-header", "X-User"));
    snprintf(target, sizeof target, "/receipts/%s?wait=30s", receipt);
    for (int i = 0; i < WAITS; i++) {
        clients[i] = sse_open(gateway.port, target, "X-Rowbell-Scopes: acme\r\nX-User: mallory\r\n");
    }
    wait_for(rest_is_answered, clients, HANG_MS, "an answer to those that are too many");
    ck_assert_int_eq(answered(clients), WAITS - WAITS_OF_ONE);
}
END_TEST

// ---- who only can connect ----

static int half_head(int port) {
    static const char half[] = "GET /events HTTP/1.1\r\nHost: localhost\r\nX-";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(send(fd, half, sizeof half - 1, MSG_NOSIGNAL), sizeof half - 1);
    return fd;
}

START_TEST(heads_that_never_end_keep_nobody_out) {
    enum { HALVES = 4200, STREAMS = 200 }; // more than the 4,000 places for heads
    static int halves[HALVES];
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    ck_assert_uint_gt(limit.rlim_cur, HALVES + STREAMS + 100);
    fresh_database();
    struct gateway gateway = gateway_start(NULL);
    for (int i = 0; i < HALVES; i++) {
        halves[i] = half_head(gateway.port);
    }
    for (int i = 0; i < STREAMS; i++) {
        struct sse_client *client = sse_open(gateway.port, "/events", NULL);
        sse_wait(client, "\nid: ", SOON_MS);
    }
    for (int i = 0; i < HALVES; i++) {
        close(halves[i]);
    }
}
END_TEST

START_TEST(a_page_of_a_site_that_points_its_name_here_reads_nothing) {
    static const struct {
        const char *host;
        const char *answer;
    } rows[] = {{"evil.example", "HTTP/1.1 403 "},
                {"localhost.evil.example", "HTTP/1.1 403 "},
                {"evillocalhost:80", "HTTP/1.1 403 "},
                {"127.0.0.1.evil.example", "HTTP/1.1 403 "},
                {"", "HTTP/1.1 403 "},
                {"localhost", "HTTP/1.1 200 "},
                {"LOCALHOST.:8080", "HTTP/1.1 200 "},
                {"app.localhost:8080", "HTTP/1.1 200 "},
                {"127.0.0.1:8080", "HTTP/1.1 200 "},
                {"[::1]:8080", "HTTP/1.1 200 "},
                {"192.168.1.5", "HTTP/1.1 200 "},
                {"rowbell.internal:80", "HTTP/1.1 200 "},
                {"x.rowbell.internal:80", "HTTP/1.1 403 "}};
    fresh_database();
    struct gateway gateway = gateway_start(WITH("--auth", "none", "--allow-host", "rowbell.internal"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *bytes =
            request(gateway.port, "HEAD /events HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", rows[i].host);
        ck_assert_msg(strncmp(bytes, rows[i].answer, strlen(rows[i].answer)) == 0, "Host %s: %s", rows[i].host, bytes);
    }
    // Nor anything else that is there.
    check_has(request(gateway.port, "GET /receipts/r2 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"),
              "HTTP/1.1 403 ");
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *redis = suite_case(suite, "redis", 120);
    tcase_add_test(redis, who_reaches_redis_forges_no_address);
    tcase_add_test(redis, a_key_that_was_given_away_is_forgotten);
    tcase_add_test(redis, nobody_else_reads_the_keys);
    TCase *clients = suite_case(suite, "clients", 120);
    tcase_add_test(clients, one_user_does_not_fill_the_gateway);
    tcase_add_test(clients, one_tenant_does_not_fill_the_gateway);
    tcase_add_test(clients, what_is_refused_takes_no_place);
    tcase_add_test(clients, one_address_does_not_fill_the_gateway);
    tcase_add_test(clients, one_user_does_not_take_every_place_to_wait_for_a_receipt);
    tcase_add_test(clients, heads_that_never_end_keep_nobody_out);
    tcase_add_test(clients, a_page_of_a_site_that_points_its_name_here_reads_nothing);
}

int main(void) {
    return suite_main("hostile-gateway", add_tests);
}
