// redis_conn against a real Redis, and through a proxy that fails on demand.
#include "common/clock.h"
#include "common/redis_conn.h"
#include "tests/support/fixture.h"
#include "tests/support/loop.h"
#include "tests/support/redis_server.h"
#include "tests/support/tcp_proxy.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static uv_loop_t loop;

struct probe {
    struct redis_conn *conn;
    int ups, downs, messages, closed;
    struct error down;
    size_t length;
    char bytes[64]; // the first ones of the last message
    void (*on_up)(struct probe *probe);
    void (*on_message)(struct probe *probe);
    void (*on_down)(struct probe *probe);
};

static void on_up(void *arg) {
    struct probe *probe = arg;
    probe->ups++;
    if (probe->on_up)
        probe->on_up(probe);
}

static void on_down(void *arg, const struct error *error) {
    struct probe *probe = arg;
    probe->downs++;
    probe->down = *error;
    if (probe->on_down)
        probe->on_down(probe);
}

static void on_message(void *arg, const char *bytes, size_t length) {
    struct probe *probe = arg;
    probe->messages++;
    probe->length = length;
    memcpy(probe->bytes, bytes, length < sizeof(probe->bytes) ? length : sizeof(probe->bytes));
    if (probe->on_message)
        probe->on_message(probe);
}

static void on_closed(void *arg) {
    ((struct probe *)arg)->closed++;
}

static void turn_until(const int *count, int number, unsigned deadline_ms, const char *what) {
    loop_turn_until(&loop, count, number, deadline_ms, what);
}

static void probe_start(struct probe *probe, const char *url, const char *channel) {
    struct redis_conn_options options = {
        .url = url, .channel = channel, .arg = probe, .on_up = on_up, .on_down = on_down, .on_message = on_message};
    uv_update_time(&loop);
    probe->conn = redis_conn_new(&loop, &options);
}

static void probe_up(struct probe *probe, const char *url, const char *channel) {
    probe_start(probe, url, channel);
    turn_until(&probe->ups, 1, HANG_MS, "on_up");
    ck_assert(redis_conn_is_up(probe->conn));
}

static void close_now(struct probe *probe) {
    if (probe->conn) {
        struct redis_conn *conn = probe->conn;
        probe->conn = NULL;
        redis_conn_close(conn, on_closed, probe);
    }
}

static void probe_close(struct probe *probe) {
    close_now(probe);
    turn_until(&probe->closed, 1, HANG_MS, "on_closed");
}

// Tests run at once on one Redis.
static const char *channel(void) {
    static char name[40];
    snprintf(name, sizeof(name), "test:%d", (int)getpid());
    return name;
}

static struct tcp_proxy *proxy_start(char *ret_url, size_t size) {
    struct tcp_proxy *proxy = tcp_proxy_start("127.0.0.1", atoi(strrchr(fixture_redis(), ':') + 1));
    snprintf(ret_url, size, "redis://127.0.0.1:%d", tcp_proxy_port(proxy));
    return proxy;
}

static void set_up(void) {
    ck_assert_int_eq(uv_loop_init(&loop), 0);
}

// Nothing is left behind; a handle that is would hold this up until the test is late.
static void tear_down(void) {
    uv_run(&loop, UV_RUN_DEFAULT);             // a lookup of a name goes on after its connection was closed
    ck_assert_int_eq(uv_loop_close(&loop), 0); // nothing was left behind
}

START_TEST(messages_arrive_as_they_are) {
    struct probe subscriber = {0}, publisher = {0};
    probe_up(&subscriber, fixture_redis(), channel());
    probe_up(&publisher, fixture_redis(), NULL);
    ck_assert(redis_conn_publish(publisher.conn, channel(), "a\0b\r\n", 5));
    turn_until(&subscriber.messages, 1, HANG_MS, "message");
    ck_assert_uint_eq(subscriber.length, 5);
    ck_assert_mem_eq(subscriber.bytes, "a\0b\r\n", 5);
    ck_assert(redis_conn_publish(publisher.conn, channel(), "", 0));
    size_t length = 1 << 20;
    char *large = calloc(1, length);
    ck_assert(redis_conn_publish(publisher.conn, channel(), large, length));
    free(large);
    ck_assert(redis_conn_publish(publisher.conn, "another", "x", 1));
    ck_assert(redis_conn_publish(publisher.conn, channel(), "last", 4));
    turn_until(&subscriber.messages, 4, HANG_MS, "messages");
    ck_assert_mem_eq(subscriber.bytes, "last", 4);
    probe_close(&publisher);
    probe_close(&subscriber);
}
END_TEST

START_TEST(idle_links_stay_up) {
    struct probe subscriber = {0}, publisher = {0};
    probe_up(&subscriber, fixture_redis(), channel());
    probe_up(&publisher, fixture_redis(), NULL);
    loop_turn_for(&loop, 5500); // longer than the silence that counts as death
    ck_assert_int_eq(subscriber.downs, 0);
    ck_assert_int_eq(publisher.downs, 0);
    ck_assert(redis_conn_publish(publisher.conn, channel(), "x", 1));
    turn_until(&subscriber.messages, 1, HANG_MS, "message");
    probe_close(&publisher);
    probe_close(&subscriber);
}
END_TEST

START_TEST(server_away_for_a_while) {
    char url[100];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    struct probe subscriber = {0}, publisher = {0};
    probe_up(&subscriber, url, channel());
    probe_up(&publisher, url, NULL);
    tcp_proxy_refuse(proxy);
    turn_until(&subscriber.downs, 1, HANG_MS, "on_down");
    turn_until(&publisher.downs, 1, HANG_MS, "on_down");
    ck_assert(!redis_conn_is_up(publisher.conn));
    ck_assert(!redis_conn_publish(publisher.conn, channel(), "x", 1));
    loop_turn_for(&loop, 400); // some refused tries
    tcp_proxy_pass(proxy);
    turn_until(&subscriber.ups, 2, HANG_MS, "on_up");
    turn_until(&publisher.ups, 2, HANG_MS, "on_up");
    ck_assert_int_eq(subscriber.downs, 1); // once an outage
    ck_assert(redis_conn_publish(publisher.conn, channel(), "x", 1));
    turn_until(&subscriber.messages, 1, HANG_MS, "message");
    probe_close(&publisher);
    probe_close(&subscriber);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(silent_link_is_dead_after_three_seconds) {
    char url[100];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    struct probe subscriber = {0}, publisher = {0};
    probe_up(&subscriber, url, channel());
    probe_up(&publisher, url, NULL);
    tcp_proxy_silence(proxy);
    uint64_t start = clock_ms();
    for (int i = 0; i < 1000; i++)
        ck_assert(redis_conn_publish(publisher.conn, channel(), "x", 1));
    ck_assert(!redis_conn_publish(publisher.conn, channel(), "x", 1)); // bounded
    turn_until(&subscriber.downs, 1, HANG_MS, "on_down");
    turn_until(&publisher.downs, 1, HANG_MS, "on_down");
    ck_assert_uint_ge(clock_ms() - start, 2700);
    ck_assert_int_eq(subscriber.down.code, ERROR_TIMEOUT);
    ck_assert_int_eq(publisher.down.code, ERROR_TIMEOUT);
    tcp_proxy_refuse(proxy);
    tcp_proxy_pass(proxy);
    turn_until(&subscriber.ups, 2, HANG_MS, "on_up");
    probe_close(&publisher);
    probe_close(&subscriber);
    tcp_proxy_stop(proxy);
}
END_TEST

START_TEST(silent_server_is_given_up) {
    char url[100];
    struct tcp_proxy *proxy = proxy_start(url, sizeof(url));
    tcp_proxy_silence(proxy);
    struct probe probe = {0};
    probe_start(&probe, url, channel());
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ck_assert_int_eq(probe.down.code, ERROR_TIMEOUT);
    probe_close(&probe);
    tcp_proxy_stop(proxy);
}
END_TEST

static void assert_down(const char *url, enum error_code code, const char *text) {
    static const char *const channels[] = {NULL, "c"};
    for (int i = 0; i < 2; i++) {
        struct probe probe = {0};
        probe_start(&probe, url, channels[i]);
        ck_assert_int_eq(probe.downs, 0); // never from inside
        turn_until(&probe.downs, 1, HANG_MS, url);
        ck_assert_msg(probe.down.code == code && strstr(probe.down.text, text), "%s %s", url, probe.down.text);
        ck_assert_msg(!strstr(probe.down.text, "hunter") && !strstr(probe.down.text, "wrong"), "%s", probe.down.text);
        ck_assert_int_eq(probe.ups, 0);
        probe_close(&probe);
    }
}

START_TEST(connect_tells_why_it_failed) {
    assert_down("redis://127.0.0.1:1", ERROR_CONNECT, "Connection refused");
    assert_down("redis://localhost:1", ERROR_CONNECT, "Connection refused");
    assert_down("redis://no-such-host.invalid", ERROR_CONNECT, "no-such-host.invalid");
    char url[100];
    snprintf(url, sizeof(url), "%s/99999", fixture_redis());
    assert_down(url, ERROR_CONNECT, "refuses SELECT");
}
END_TEST

START_TEST(password_opens) {
    struct redis redis = {.password = "hunter2"};
    redis_start(&redis);
    char url[100];
    snprintf(url, sizeof(url), "redis://:hunter2@127.0.0.1:%d", redis.port);
    struct probe probe = {0};
    probe_up(&probe, url, channel());
    probe_close(&probe);
    snprintf(url, sizeof(url), "redis://default:hunter%%32@localhost:%d/3", redis.port);
    probe = (struct probe){0};
    probe_up(&probe, url, NULL);
    snprintf(url, sizeof(url), "redis://:wrong@127.0.0.1:%d", redis.port);
    assert_down(url, ERROR_AUTH, "refuses AUTH");
    assert_down(redis.url, ERROR_AUTH, "NOAUTH");
    redis_kill(&redis);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    redis_start(&redis);
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    probe_close(&probe);
    redis_stop(&redis);
}
END_TEST

START_TEST(urls_are_checked) {
    static const char *const good[] = {
        "redis://localhost",      "redis://localhost/", "redis://127.0.0.1:6380/5",
        "redis://:p%40ss@host:1", "redis://u:p@host",   "redis://[::1]:6379/0",
    };
    static const char *const bad[] = {
        "",
        "localhost",
        "redis://",
        "http://host",
        "redis://host/a",
        "redis://u@h",
        "redis://h:99999",
        "redis://h/1?x=hunter2",
        "redis://h/1#hunter2",
        "redis://a:hunter2@b c",
        "redis://h/1/2",
    };
    struct error error;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
        ck_assert_msg(redis_url_check(good[i], &error), "%s", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        ck_assert_msg(!redis_url_check(bad[i], &error), "%s", bad[i]);
        ck_assert_int_eq(error.code, ERROR_USAGE);
        ck_assert(!strstr(error.text, "hunter2"));
    }
}
END_TEST

static void reset_once(struct probe *probe) {
    if (probe->downs == 0)
        redis_conn_reset(probe->conn, "from inside");
}

START_TEST(reset_and_close_from_callbacks) {
    struct probe publisher = {0};
    probe_up(&publisher, fixture_redis(), NULL);
    struct probe probe = {.on_up = reset_once};
    probe_start(&probe, fixture_redis(), channel());
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    ck_assert_int_eq(probe.downs, 1);
    probe_close(&probe);

    probe = (struct probe){.on_message = reset_once};
    probe_up(&probe, fixture_redis(), channel());
    redis_conn_publish(publisher.conn, channel(), "1", 1);
    redis_conn_publish(publisher.conn, channel(), "2", 1); // may come with the first: it belongs to a link that is gone
    turn_until(&probe.ups, 2, HANG_MS, "on_up");
    ck_assert_int_eq(probe.messages, 1);
    probe_close(&probe);

    probe = (struct probe){.on_message = close_now};
    probe_up(&probe, fixture_redis(), channel());
    redis_conn_publish(publisher.conn, channel(), "1", 1);
    redis_conn_publish(publisher.conn, channel(), "2", 1);
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
    ck_assert_int_eq(probe.messages, 1);

    probe = (struct probe){.on_up = close_now};
    probe_start(&probe, fixture_redis(), NULL);
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");

    probe = (struct probe){.on_down = close_now};
    probe_start(&probe, "redis://127.0.0.1:1", NULL);
    turn_until(&probe.closed, 1, HANG_MS, "on_closed");
    ck_assert_int_eq(probe.downs, 1);
    probe_close(&publisher);
}
END_TEST

START_TEST(close_at_any_time_before_it_is_up) {
    const char *const urls[] = {fixture_redis(), "redis://no-such-host.invalid", "redis://127.0.0.1:1"};
    for (int turns = 0; turns < 30; turns++) {
        struct probe probe = {0};
        probe_start(&probe, urls[turns % 3], turns % 2 ? channel() : NULL);
        for (int i = 0; i < turns / 3 && probe.ups == 0; i++)
            uv_run(&loop, UV_RUN_NOWAIT);
        probe_close(&probe);
    }
    redis_conn_close(NULL, NULL, NULL);
}
END_TEST

static TCase *with_loop(TCase *tcase) {
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    return tcase;
}

#ifdef ROWBELL_REDIS_TLS
// A Redis with a certificate for localhost that signed itself.
static pid_t tls_redis_start(char *directory, int *ret_port) {
    char command[500], port[16], certificate[100], key[100];
    ck_assert_ptr_nonnull(mkdtemp(directory));
    snprintf(
        command, sizeof command,
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        "-keyout %s/key -out %s/certificate 2>/dev/null",
        directory, directory);
    ck_assert_int_eq(system(command), 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int probe = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(probe, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(getsockname(probe, (struct sockaddr *)&address, &size), 0);
    close(probe);
    *ret_port = ntohs(address.sin_port);
    snprintf(port, sizeof port, "%d", *ret_port);
    snprintf(certificate, sizeof certificate, "%s/certificate", directory);
    snprintf(key, sizeof key, "%s/key", directory);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(open("/dev/null", O_RDWR), STDOUT_FILENO);
        execlp("redis-server", "redis-server", "--port", "0", "--tls-port", port, "--tls-cert-file", certificate,
               "--tls-key-file", key, "--tls-auth-clients", "no", "--save", "", "--dir", "/tmp", "--requirepass",
               "hunter2", (char *)NULL);
        _exit(127);
    }
    return pid;
}

START_TEST(tls_verifies_who_it_talks_to) {
    char directory[] = "/tmp/rowbell-tls-XXXXXX", url[100], ca[100];
    int port;
    pid_t pid = tls_redis_start(directory, &port);
    snprintf(ca, sizeof ca, "%s/certificate", directory);
    snprintf(url, sizeof url, "rediss://:hunter2@localhost:%d", port);
    const struct redis_conn_options good = {
        .url = url, .ca_file = ca, .channel = channel(), .on_up = on_up, .on_down = on_down, .on_message = on_message};
    struct probe subscriber = {0}, publisher = {0}, stranger = {0}, other_name = {0};
    struct redis_conn_options options = good;
    options.arg = &subscriber;
    subscriber.conn = redis_conn_new(&loop, &options);
    turn_until(&subscriber.ups, 1, HANG_MS, "on_up of the subscriber");
    options.arg = &publisher;
    options.channel = NULL;
    publisher.conn = redis_conn_new(&loop, &options);
    turn_until(&publisher.ups, 1, HANG_MS, "on_up of the publisher");
    size_t length = 300000;
    char *large = calloc(1, length);
    ck_assert(redis_conn_publish(publisher.conn, channel(), large, length));
    turn_until(&subscriber.messages, 1, HANG_MS, "message");
    ck_assert_uint_eq(subscriber.length, length);
    free(large);
    options.arg = &stranger;
    options.ca_file = NULL; // signed by nobody that the system knows
    stranger.conn = redis_conn_new(&loop, &options);
    turn_until(&stranger.downs, 1, HANG_MS, "on_down without the authority");
    ck_assert_msg(strstr(stranger.down.text, "certificate verify failed"), "%s", stranger.down.text);
    snprintf(url, sizeof url, "rediss://:hunter2@127.0.0.1:%d", port);
    options.arg = &other_name;
    options.ca_file = ca;
    other_name.conn = redis_conn_new(&loop, &options);
    turn_until(&other_name.downs, 1, HANG_MS, "on_down of another name");
    ck_assert_msg(strstr(other_name.down.text, "certificate verify failed"), "%s", other_name.down.text);
    ck_assert_int_eq(stranger.ups + other_name.ups, 0);
    probe_close(&subscriber);
    probe_close(&publisher);
    probe_close(&stranger);
    probe_close(&other_name);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", directory);
    ck_assert_int_eq(system(command), 0);
}
END_TEST
#else
START_TEST(tls_verifies_who_it_talks_to) {
    struct error error;
    ck_assert(!redis_url_check("rediss://user:hunter2@host", &error));
    ck_assert_int_eq(error.code, ERROR_USAGE);
    ck_assert_ptr_nonnull(strstr(error.text, "rediss:// needs hiredis 1.0 or newer"));
    ck_assert_ptr_null(strstr(error.text, "hunter2"));
}
END_TEST
#endif

// What a Redis sends that is no Redis, or somebody in between. hiredis alone ends the process by an assertion, or takes
// all memory.
static const char many[] = "*1000000000\r\n";
static const struct {
    bool subscriber;
    const char *answer;
    bool floods;
} wrong_answers[] = {
    {false, "+PONG\r\n+OK\r\n", false}, // one more than was asked for
    {false, "*2\r\n$1\r\na\r\n$1\r\nb\r\n", false},
    {false, many, false},
    {true, many, false},
    {true, "*3\r\n:1\r\n:1\r\n:1\r\n", false},
    {true, "*3\r\n$7\r\nmessage\r\n:1\r\n$1\r\na\r\n", false},
    {true, "*3\r\n$11\r\nunsubscribe\r\n$1\r\na\r\n$1\r\na\r\n", false},
    {true, "*3\r\n$9\r\nsubscribe\r\n$7\r\nanother\r\n:1\r\n", false},
    {true, "*1\r\n$7\r\nmessage\r\n", false},
    {true, "*2\r\n*0\r\n*0\r\n", false},
    {true, "$2000000000\r\n", true},
    {false, "+", true}, // a line that never ends
};

struct hostile_server {
    int listener, client;
    const char *answer;
    bool floods;
    size_t sent;
};

static void *serve_hostile(void *arg) {
    struct hostile_server *server = arg;
    static char filler[65536];
    char received[1000];
    memset(filler, 'x', sizeof filler);
    server->client = accept(server->listener, NULL, NULL);
    if (recv(server->client, received, sizeof received, 0) > 0)
        send(server->client, server->answer, strlen(server->answer), MSG_NOSIGNAL);
    while (server->floods && server->sent < 64 << 20) { // the other side ends it
        ssize_t now = send(server->client, filler, sizeof filler, MSG_NOSIGNAL);
        if (now <= 0)
            break;
        server->sent += (size_t)now;
    }
    while (recv(server->client, received, sizeof received, 0) > 0) {
    }
    close(server->client);
    return NULL;
}

START_TEST(a_hostile_redis_is_left) {
    struct hostile_server server = {.listener = socket(AF_INET, SOCK_STREAM, 0),
                                    .answer = wrong_answers[_i].answer,
                                    .floods = wrong_answers[_i].floods};
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ck_assert_int_eq(bind(server.listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(server.listener, 1), 0);
    ck_assert_int_eq(getsockname(server.listener, (struct sockaddr *)&address, &size), 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, serve_hostile, &server), 0);
    char url[100];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    struct probe probe = {0};
    probe_start(&probe, url, wrong_answers[_i].subscriber ? "own" : NULL);
    turn_until(&probe.downs, 1, HANG_MS, "on_down");
    ck_assert_msg(strstr(probe.down.text, "nobody asked for") || strstr(probe.down.text, "at once"), "%s",
                  probe.down.text);
    ck_assert_int_eq(probe.messages, 0);
    probe_close(&probe);
    pthread_join(thread, NULL);
    close(server.listener);
    ck_assert_uint_lt(server.sent, 32 << 20);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *links = with_loop(suite_case(suite, "links", 30));
    tcase_add_test(links, messages_arrive_as_they_are);
    tcase_add_test(links, tls_verifies_who_it_talks_to);
    tcase_add_loop_test(links, a_hostile_redis_is_left, 0, (int)(sizeof wrong_answers / sizeof wrong_answers[0]));
    tcase_add_test(links, idle_links_stay_up);
    tcase_add_test(links, server_away_for_a_while);
    tcase_add_test(links, silent_link_is_dead_after_three_seconds);
    tcase_add_test(links, silent_server_is_given_up);
    TCase *starts = with_loop(suite_case(suite, "starts", 30));
    tcase_add_test(starts, connect_tells_why_it_failed);
    tcase_add_test(starts, password_opens);
    tcase_add_test(starts, urls_are_checked);
    TCase *reentrant = with_loop(suite_case(suite, "reentrant", 30));
    tcase_add_test(reentrant, reset_and_close_from_callbacks);
    tcase_add_test(reentrant, close_at_any_time_before_it_is_up);
}

int main(void) {
    return suite_main("redis_conn", add_tests);
}
