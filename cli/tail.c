// tail: follows a gateway's stream as any client does, and reconnects with Last-Event-ID.
//
// Happy path: GET, 200, events until the gateway closes, wait as long as it asked (`retry:`), GET again from the last
// id. Failure: the first connection must succeed, else the URL is wrong and the command ends; later ones are retried
// for ever. An answer that says "you may not" (4xx) always ends it.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/sse_parser.h"
#include "common/http_client.h"
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_RETRY_MS = 3000,
    LEAST_RETRY_MS = 500,
    CONNECT_TIMEOUT_S = 10,
    SILENCE_S = 90, // more than three heartbeats of 25 s
    REFUSAL_MAX_BYTES = 300,
};

struct tail {
    struct cli *cli;
    CURL *curl;
    struct curl_slist *headers;
    struct buffer url;
    struct sse_parser parser;
    struct buffer refusal; // the first line of a body that is no stream
    int64_t wanted;        // 0: for ever
    int64_t seen;
    bool opened; // a stream was open once
    bool broken; // what came is no event stream
};

static void print_text(const struct sse_event *event) {
    json_object *data = json_tokener_parse(event->data);
    json_object *field;
    printf("%s  %-6s  ", event->id, event->type);
    static const char *const names[] = {"op", "table", "key", "reason"};
    bool any = false;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (json_object_object_get_ex(data, names[i], &field)) {
            printf("%s", any ? " " : "");
            output_text(field != NULL ? json_object_get_string(field) : "(all)");
            any = true;
        }
    if (!any)
        output_text(event->data);
    puts("");
    json_object_put(data);
}

static void print_json(const struct sse_event *event) {
    json_object *line = json_object_new_object();
    json_object_object_add(line, "event", json_object_new_string(event->type));
    json_object_object_add(line, "id", json_object_new_string(event->id));
    json_object *data = json_tokener_parse(event->data);
    json_object_object_add(line, "data", data != NULL ? data : json_object_new_string(event->data));
    output_json(line);
}

static void on_event(void *arg, const struct sse_event *event) {
    struct tail *tail = arg;
    if (tail->wanted > 0 && tail->seen >= tail->wanted)
        return;
    tail->seen++;
    if (tail->cli->json)
        print_json(event);
    else
        print_text(event);
    fflush(stdout);
}

static bool is_finished(const struct tail *tail) {
    return ferror(stdout) || (tail->wanted > 0 && tail->seen >= tail->wanted);
}

static long status_of(const struct tail *tail) {
    long status = 0;
    curl_easy_getinfo(tail->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static bool is_event_stream(const struct tail *tail) {
    const char *type = NULL;
    curl_easy_getinfo(tail->curl, CURLINFO_CONTENT_TYPE, &type);
    return status_of(tail) == 200 && type != NULL && strncasecmp(type, "text/event-stream", 17) == 0;
}

// Less than was given ends the transfer.
static size_t on_bytes(char *bytes, size_t size, size_t count, void *arg) {
    struct tail *tail = arg;
    size_t length = size * count;
    if (!is_event_stream(tail)) {
        size_t room = REFUSAL_MAX_BYTES - tail->refusal.length;
        buffer_append(&tail->refusal, bytes, length < room ? length : room);
        return tail->refusal.length < REFUSAL_MAX_BYTES ? length : 0;
    }
    tail->opened = true;
    if (!sse_parser_feed(&tail->parser, bytes, length)) {
        tail->broken = true;
        return 0;
    }
    return is_finished(tail) ? 0 : length;
}

static struct curl_slist *with_last_id(const struct tail *tail, struct curl_slist *headers) {
    struct buffer line = {0};
    buffer_format(&line, "Last-Event-ID: %s", buffer_cstr(&tail->parser.last_id));
    headers = curl_slist_append(headers, buffer_cstr(&line));
    buffer_free(&line);
    return headers;
}

static bool add_header(void *arg, const char *value) {
    struct curl_slist **headers = arg;
    *headers = curl_slist_append(*headers, value);
    return true;
}

// One connection, until it ends.
static CURLcode follow(struct tail *tail) {
    curl_slist_free_all(tail->headers);
    tail->headers = curl_slist_append(NULL, "Accept: text/event-stream");
    option_each(tail->cli, "header", 0, add_header, &tail->headers);
    if (tail->parser.last_id.length > 0)
        tail->headers = with_last_id(tail, tail->headers);
    buffer_clear(&tail->refusal);
    sse_parser_reconnect(&tail->parser);
    curl_easy_setopt(tail->curl, CURLOPT_HTTPHEADER, tail->headers);
    return curl_easy_perform(tail->curl);
}

// After a connection has ended: true to try again, else the error says why not.
static bool may_reconnect(struct tail *tail, CURLcode code, struct error *ret_error) {
    long status = status_of(tail);
    const char *url = option_value(tail->cli, "url") != NULL ? option_value(tail->cli, "url") : buffer_cstr(&tail->url);
    if (tail->broken)
        return error_set(ret_error, ERROR_PROTOCOL, "%s sent an event of more than %d bytes", url, SSE_EVENT_MAX_BYTES);
    if (is_event_stream(tail) && (tail->opened || code == CURLE_OK))
        return true;
    if (status == 401 || status == 403)
        return error_set(ret_error, ERROR_REFUSED, "%s answered %ld: give credentials with --header", url, status);
    // A proxy's 502 during a deploy must not end a stream that was open.
    if (status != 0 && (!tail->opened || (status >= 400 && status < 500 && status != 429)))
        return error_set(ret_error, ERROR_PROTOCOL,
                         "%s answered %ld and no event stream (%.*s): is it a gateway's /events?", url, status,
                         (int)strcspn(buffer_cstr(&tail->refusal), "\r\n"), buffer_cstr(&tail->refusal));
    if (status == 0 && !tail->opened)
        return error_set(ret_error, ERROR_CONNECT,
                         "cannot reach %s: %s: is rowbell-gateway running, and is --url right?", url,
                         curl_easy_strerror(code));
    return true;
}

static bool add_table(void *arg, const char *value) {
    struct tail *tail = arg;
    char *escaped = curl_easy_escape(tail->curl, value, 0);
    buffer_format(&tail->url, "%ctable=%s", strchr(buffer_cstr(&tail->url), '?') != NULL ? '&' : '?', escaped);
    curl_free(escaped);
    return true;
}

static bool tail_set_up(struct tail *tail, struct error *ret_error) {
    const char *url = option_value(tail->cli, "url");
    const char *last_id = option_value(tail->cli, "last-event-id");
    if (url == NULL)
        url = "http://127.0.0.1:8080/events";
    struct error refused = {0};
    if (!http_url_check(url, true, &refused))
        return error_set(ret_error, refused.code, "%s: expected http://host:8080/events", refused.text);
    if (!option_integer(tail->cli, "count", 1, INT64_MAX, &tail->wanted, ret_error))
        return false;
    if (last_id != NULL && strpbrk(last_id, "\r\n") != NULL)
        return error_set(ret_error, ERROR_USAGE, "--last-event-id: a line break cannot be in an id");
    sse_parser_init(&tail->parser, on_event, tail);
    if (last_id != NULL)
        buffer_text(&tail->parser.last_id, last_id);
    tail->curl = curl_easy_init();
    buffer_text(&tail->url, url);
    option_each(tail->cli, "table", 0, add_table, tail);
    curl_easy_setopt(tail->curl, CURLOPT_URL, buffer_cstr(&tail->url));
    curl_easy_setopt(tail->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(tail->curl, CURLOPT_USERAGENT, "rowbell/" ROWBELL_VERSION);
    curl_easy_setopt(tail->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(tail->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(tail->curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
    curl_easy_setopt(tail->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(tail->curl, CURLOPT_WRITEDATA, tail);
    return true;
}

bool run_tail(struct cli *cli, struct error *ret_error) {
    struct tail tail = {.cli = cli};
    bool ok = tail_set_up(&tail, ret_error);
    while (ok) {
        CURLcode code = follow(&tail);
        if (is_finished(&tail))
            break;
        ok = may_reconnect(&tail, code, ret_error);
        if (ok) {
            long wait_ms = tail.parser.retry_ms >= 0 ? tail.parser.retry_ms : DEFAULT_RETRY_MS;
            if (wait_ms < LEAST_RETRY_MS)
                wait_ms = LEAST_RETRY_MS;
            fprintf(stderr, "rowbell: the stream ended (%s): reconnecting in %ld ms\n", curl_easy_strerror(code),
                    wait_ms);
            poll(NULL, 0, (int)wait_ms);
        }
    }
    curl_slist_free_all(tail.headers);
    curl_easy_cleanup(tail.curl);
    sse_parser_close(&tail.parser);
    buffer_free(&tail.url);
    buffer_free(&tail.refusal);
    return ok;
}
