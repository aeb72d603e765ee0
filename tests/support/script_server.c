#include "tests/support/script_server.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { DRIP_MS = 20 };

struct peer {
    uv_tcp_t stream;
    uv_timer_t drip;
    struct script_server *server;
    char bytes[65536];
    size_t length;
    int handles; // not closed yet
};

static void on_closed(uv_handle_t *handle) {
    struct peer *peer = handle->data;
    if (--peer->handles == 0)
        free(peer);
}

static void peer_close(struct peer *peer) {
    if (uv_is_closing((uv_handle_t *)&peer->stream))
        return;
    peer->server->open--;
    uv_close((uv_handle_t *)&peer->stream, on_closed);
    uv_close((uv_handle_t *)&peer->drip, on_closed);
}

static void peer_write(struct peer *peer, const char *bytes, size_t length, uv_write_cb written);

static void on_written(uv_write_t *write, int status) {
    struct peer *peer = write->data;
    free(write);
    if (status < 0)
        peer_close(peer);
}

static void on_flooded(uv_write_t *write, int status) {
    struct peer *peer = write->data;
    on_written(write, status);
    if (status == 0)
        peer_write(peer, peer->server->script.filler, strlen(peer->server->script.filler), on_flooded);
}

static void on_last_written(uv_write_t *write, int status) {
    struct peer *peer = write->data;
    on_written(write, status);
    peer_close(peer);
}

static void on_last_written_reset(uv_write_t *write, int status) {
    struct peer *peer = write->data;
    struct linger at_once = {.l_onoff = 1};
    uv_os_fd_t fd;
    ck_assert_int_eq(uv_fileno((uv_handle_t *)&peer->stream, &fd), 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    on_last_written(write, status);
}

static void peer_write(struct peer *peer, const char *bytes, size_t length, uv_write_cb written) {
    uv_write_t *write = malloc(sizeof *write);
    write->data = peer;
    uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)length); // the bytes are literals or the test's
    ck_assert_int_eq(uv_write(write, (uv_stream_t *)&peer->stream, &buf, 1, written), 0);
}

static void on_drip(uv_timer_t *timer) {
    struct peer *peer = timer->data;
    peer_write(peer, peer->server->script.filler, 1, on_written);
}

static void answer(struct peer *peer) {
    const struct script *script = &peer->server->script;
    uv_write_cb written = script->then == THEN_FLOOD   ? on_flooded
                          : script->then == THEN_CLOSE ? on_last_written
                          : script->then == THEN_RESET ? on_last_written_reset
                                                       : on_written;
    if (script->answer)
        peer_write(peer, script->answer, script->length ? script->length : strlen(script->answer), written);
    else if (script->then == THEN_CLOSE)
        peer_close(peer);
    if (script->then == THEN_DRIP)
        uv_timer_start(&peer->drip, on_drip, DRIP_MS, DRIP_MS);
}

// A request is complete with its blank line and as many bytes as its Content-Length says.
static size_t complete_request(struct peer *peer) {
    peer->bytes[peer->length] = '\0';
    const char *blank = strstr(peer->bytes, "\r\n\r\n");
    if (!blank)
        return 0;
    const char *field = strcasestr(peer->bytes, "\r\ncontent-length:");
    size_t body = field && !peer->server->script.at_head ? strtoul(field + strlen("\r\ncontent-length:"), NULL, 10) : 0;
    size_t total = (size_t)(blank - peer->bytes) + 4 + body;
    return peer->length >= total ? total : 0;
}

static void on_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf) {
    struct peer *peer = stream->data;
    if (count < 0) {
        peer_close(peer);
        return;
    }
    peer->length += (size_t)count;
    for (size_t total; (total = complete_request(peer)) > 0;) {
        struct script_server *server = peer->server;
        server->requests++;
        memcpy(server->last_request, peer->bytes, total);
        server->last_request[total] = '\0';
        peer->length -= total;
        memmove(peer->bytes, peer->bytes + total, peer->length);
        answer(peer);
    }
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf) {
    struct peer *peer = handle->data;
    *buf = uv_buf_init(peer->bytes + peer->length, (unsigned)(sizeof peer->bytes - 1 - peer->length));
}

static void on_connection(uv_stream_t *listener, int status) {
    struct script_server *server = listener->data;
    ck_assert_int_eq(status, 0);
    struct peer *peer = calloc(1, sizeof *peer);
    peer->server = server;
    peer->stream.data = peer->drip.data = peer;
    peer->handles = 2;
    uv_tcp_init(listener->loop, &peer->stream);
    uv_timer_init(listener->loop, &peer->drip);
    ck_assert_int_eq(uv_accept(listener, (uv_stream_t *)&peer->stream), 0);
    server->connections++;
    server->open++;
    uv_read_start((uv_stream_t *)&peer->stream, on_alloc, on_read);
}

void script_server_start(struct script_server *server, uv_loop_t *loop) {
    *server = (struct script_server){0};
    struct sockaddr_in address;
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &server->listener);
    server->listener.data = server;
    ck_assert_int_eq(uv_tcp_bind(&server->listener, (const struct sockaddr *)&address, 0), 0);
    ck_assert_int_eq(uv_listen((uv_stream_t *)&server->listener, 128, on_connection), 0);
    int length = sizeof address;
    ck_assert_int_eq(uv_tcp_getsockname(&server->listener, (struct sockaddr *)&address, &length), 0);
    server->port = ntohs(address.sin_port);
}
