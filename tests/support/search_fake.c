#include "tests/support/search_fake.h"
#include "tests/support/fixture.h"
#include "tests/support/support.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 256, MAX_TASKS = 100000 };

struct document {
    char *index, *id;
    int64_t version;
    json_object *source; // NULL: a tombstone
};

struct task {
    char *index;
    json_object *body;
    bool removal;
    int polls;
    const char *status, *type, *code; // static
};

struct answer {
    int status;
    char *body; // owned
};

struct connection {
    int fd;
    char *bytes;
    size_t length;
    uint64_t due_ms; // what arrived is looked at from then on
};

struct search_fake {
    enum search_fake_kind kind;
    char *authorization;
    char url[64];
    int listen_fd;
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows
    struct document *documents;
    size_t document_count;
    struct task *tasks;
    int task_count, tasks_run;
    char complaint[500];
    int requests, largest_batch, most_open, most_requests, overlaps, busy;
    bool down;
    size_t max_bytes;
    unsigned jitter_ms, seed;
    struct connection connections[MAX_CONNECTIONS]; // the thread's own
    int connection_count;
    const struct connection *current; // whose request is looked at
};

static struct search_fake *fakes[8];
static int fake_count;

// ---- Documents

static struct document *find(struct search_fake *fake, const char *index, const char *id) {
    for (size_t i = 0; i < fake->document_count; i++)
        if (strcmp(fake->documents[i].id, id) == 0 && strcmp(fake->documents[i].index, index) == 0)
            return &fake->documents[i];
    return NULL;
}

static struct document *find_or_add(struct search_fake *fake, const char *index, const char *id) {
    struct document *document = find(fake, index, id);
    if (document)
        return document;
    fake->documents = realloc(fake->documents, (fake->document_count + 1) * sizeof *fake->documents);
    document = &fake->documents[fake->document_count++];
    *document = (struct document){.index = strdup(index), .id = strdup(id), .version = -1};
    return document;
}

static void store(struct document *document, int64_t version, json_object *source) { // takes source
    json_object_put(document->source);
    document->source = source;
    document->version = version;
}

static bool index_exists(const struct search_fake *fake, const char *index) {
    for (size_t i = 0; i < fake->document_count; i++)
        if (strcmp(fake->documents[i].index, index) == 0)
            return true;
    return false;
}

static const char *text_of(json_object *object, const char *key) {
    json_object *value;
    return json_object_object_get_ex(object, key, &value) ? json_object_get_string(value) : NULL;
}

static bool unindexable(json_object *source) {
    const char *title = text_of(source, "title");
    return title && strcmp(title, "unindexable") == 0;
}

// ---- Answers

static struct answer reply(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));
static struct answer reply(int status, const char *format, ...) {
    struct answer answer = {.status = status};
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&answer.body, format, arguments) < 0)
        abort();
    va_end(arguments);
    return answer;
}

// A rule of the protocol was broken.
static struct answer complain(struct search_fake *fake, int status, const char *text) {
    if (!fake->complaint[0])
        snprintf(fake->complaint, sizeof fake->complaint, "%s", text);
    return reply(status,
                 "{\"error\":{\"type\":\"illegal_argument_exception\",\"reason\":\"%s\"},\"message\":\"%s\","
                 "\"code\":\"bad_request\",\"type\":\"invalid_request\"}",
                 text, text);
}

// One document and nothing else; strict, except with json-c 0.18, which then refuses every character beyond ASCII.
static json_object *parse(const char *text, size_t length) {
    json_tokener *tokener = json_tokener_new();
    if (JSON_C_MAJOR_VERSION > 0 || JSON_C_MINOR_VERSION != 18)
        json_tokener_set_flags(tokener, JSON_TOKENER_STRICT);
    json_object *object = json_tokener_parse_ex(tokener, text, (int)length);
    if (json_tokener_get_error(tokener) == json_tokener_continue)
        object = json_tokener_parse_ex(tokener, "", 1);
    if (json_tokener_get_error(tokener) != json_tokener_success || json_tokener_get_parse_end(tokener) < length) {
        json_object_put(object);
        object = NULL;
    }
    json_tokener_free(tokener);
    return object;
}

// Every query parameter must be one of these (space-separated, with spaces around).
static bool parameters_known(const char *query, const char *known) {
    while (*query) {
        char word[64];
        size_t length = strcspn(query, "=&");
        snprintf(word, sizeof word, " %.*s ", (int)length, query);
        if (!strstr(known, word))
            return false;
        query += strcspn(query, "&");
        query += *query == '&';
    }
    return true;
}

// ---- _bulk

static bool index_name_valid(const char *name) {
    return name[0] && strlen(name) <= 255 && !strchr("-_+", name[0]) && strcmp(name, ".") != 0 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-+@") == strlen(name);
}

static void item(char **out, size_t *length, const char *action, int status, const char *type) {
    char text[300];
    int written =
        type ? snprintf(text, sizeof text,
                        "%s{\"%s\":{\"status\":%d,\"error\":{\"type\":\"%s\",\"reason\":\"as the fake says\"}}}",
                        *length > 10 ? "," : "", action, status, type)
             : snprintf(text, sizeof text, "%s{\"%s\":{\"status\":%d}}", *length > 10 ? "," : "", action, status);
    *out = realloc(*out, *length + (size_t)written + 8);
    memcpy(*out + *length, text, (size_t)written + 1);
    *length += (size_t)written;
}

static bool metadata_known(json_object *metadata) {
    json_object_object_foreach(metadata, name, value) {
        static const char known[] = " _index _id version version_type routing require_alias ";
        char word[64];
        snprintf(word, sizeof word, " %s ", name);
        if (!strstr(known, word))
            return false;
    }
    return true;
}

// Does another request that has arrived and is not answered write this document too?
static bool overlaps(const struct search_fake *fake, const char *id) {
    char item[600];
    int length = snprintf(item, sizeof item, "\"_id\":\"%s\"", id);
    for (int i = 0; i < fake->connection_count; i++) {
        const struct connection *other = &fake->connections[i];
        if (other != fake->current && other->length > 0 && memmem(other->bytes, other->length, item, (size_t)length))
            return true;
    }
    return false;
}

// Returns the status of the item; *ret_type is static.
static int bulk_one(struct search_fake *fake, const char *action, json_object *metadata, json_object *source,
                    const char **ret_type) {
    const char *index = text_of(metadata, "_index"), *id = text_of(metadata, "_id");
    int64_t version = strtoll(text_of(metadata, "version"), NULL, 10);
    bool removal = strcmp(action, "delete") == 0;
    *ret_type = NULL;
    fake->overlaps += overlaps(fake, id);
    if (!index_name_valid(index)) {
        *ret_type = "invalid_index_name_exception";
        return 400;
    }
    if (strlen(id) > 512) {
        *ret_type = "illegal_argument_exception";
        return 400;
    }
    struct document *document = find_or_add(fake, index, id);
    if (document->version > version) {
        *ret_type = "version_conflict_engine_exception";
        return 409;
    }
    if (!removal && unindexable(source)) {
        *ret_type = "document_parsing_exception";
        return 400;
    }
    int status = removal ? (document->source ? 200 : 404) : (document->source ? 200 : 201);
    store(document, version, removal ? NULL : json_object_get(source));
    return status;
}

static struct answer bulk(struct search_fake *fake, const char *body, size_t length) {
    if (length == 0 || body[length - 1] != '\n')
        return complain(fake, 400, "The bulk request must be terminated by a newline");
    char *out = strdup("{\"items\":[");
    size_t out_length = strlen(out);
    int count = 0;
    for (const char *at = body, *end = body + length; at < end;) {
        const char *eol = memchr(at, '\n', (size_t)(end - at));
        json_object *line = parse(at, (size_t)(eol - at)), *metadata = NULL, *source = NULL;
        const char *action = "";
        at = eol + 1;
        if (json_object_is_type(line, json_type_object) && json_object_object_length(line) == 1) {
            json_object_object_foreach(line, name, value) {
                action = name;
                metadata = value;
            }
        }
        bool index = strcmp(action, "index") == 0;
        struct answer bad = {0};
        if (!index && strcmp(action, "delete") != 0)
            bad = complain(fake, 400, "Malformed action/metadata line");
        else if (!metadata_known(metadata))
            bad = complain(fake, 400, "Action/metadata line contains an unknown parameter");
        else if (!text_of(metadata, "_index") || !text_of(metadata, "_id") || !text_of(metadata, "version") ||
                 strcmp(text_of(metadata, "version_type") ? text_of(metadata, "version_type") : "", "external_gte") !=
                     0)
            bad = complain(fake, 400, "an item without _index, _id or an external version");
        if (!bad.body && index) {
            eol = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
            source = eol ? parse(at, (size_t)(eol - at)) : NULL;
            at = eol ? eol + 1 : end;
            if (!json_object_is_type(source, json_type_object))
                bad = complain(fake, 400, "the source of a document is not a JSON object on one line");
        }
        if (!bad.body) {
            const char *type;
            int status = bulk_one(fake, action, metadata, source, &type);
            item(&out, &out_length, action, status, type);
            count++;
        }
        json_object_put(source);
        json_object_put(line);
        if (bad.body) {
            free(out);
            return bad;
        }
    }
    fake->largest_batch = count > fake->largest_batch ? count : fake->largest_batch;
    strcpy(out + out_length, "]}");
    return (struct answer){200, out};
}

static struct answer delete_by_query(struct search_fake *fake, const char *index, const char *query, const char *body,
                                     size_t length) {
    json_object *root = parse(body, length), *at = root;
    static const char *const path[] = {"query", "range", "rowbell_seq", "lt"};
    bool good = true;
    for (size_t i = 0; i < 4 && good; i++)
        good = json_object_is_type(at, json_type_object) && json_object_object_get_ex(at, path[i], &at);
    if (!good || !parameters_known(query, " conflicts max_docs refresh "))
        return complain(fake, 400, "not a delete by query");
    int64_t below = json_object_get_int64(at),
            most = strstr(query, "max_docs=") ? atoll(strstr(query, "max_docs=") + 9) : 1000;
    int64_t deleted = 0;
    for (size_t i = 0; i < fake->document_count && deleted < most; i++) {
        struct document *document = &fake->documents[i];
        json_object *seq;
        if (strcmp(document->index, index) == 0 && document->source &&
            json_object_object_get_ex(document->source, "rowbell_seq", &seq) && json_object_get_int64(seq) < below) {
            store(document, document->version + 1, NULL);
            deleted++;
        }
    }
    json_object_put(root);
    return reply(200,
                 "{\"took\":1,\"total\":%" PRId64 ",\"deleted\":%" PRId64 ",\"version_conflicts\":0,\"failures\":[]}",
                 deleted, deleted);
}

static struct answer handle_bulk(struct search_fake *fake, const char *method, char *path, const char *query,
                                 const char *type, const char *body, size_t length) {
    if (strcmp(method, "POST") != 0)
        return complain(fake, 405, "only POST");
    if (strcmp(path, "/_bulk") == 0) {
        if (!parameters_known(query, " filter_path refresh timeout "))
            return complain(fake, 400, "request [/_bulk] contains an unrecognized parameter");
        if (strcmp(type, "application/x-ndjson") != 0 && strcmp(type, "application/json") != 0)
            return complain(fake, 406, "Content-Type header is not supported");
        fake->requests++;
        return bulk(fake, body, length);
    }
    char *verb = strrchr(path, '/');
    char *index = path + 1;
    if (verb == path || !verb)
        return complain(fake, 400, "no handler found for uri");
    *verb++ = '\0';
    if (!index_exists(fake, index))
        return reply(404, "{\"error\":{\"type\":\"index_not_found_exception\"},\"status\":404}");
    if (strcmp(verb, "_refresh") == 0)
        return length ? complain(fake, 400, "request does not support having a body")
                      : reply(200, "{\"_shards\":{\"total\":1,\"successful\":1,\"failed\":0}}");
    if (strcmp(verb, "_delete_by_query") == 0 && strcmp(type, "application/json") == 0)
        return delete_by_query(fake, index, query, body, length);
    return complain(fake, 400, "no handler found for uri");
}

// ---- Meilisearch

static bool id_valid(const char *id) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    return id && id[0] && strlen(id) <= 511 && strspn(id, allowed) == strlen(id);
}

static void task_fail(struct task *task, const char *code) {
    task->status = "failed";
    task->type = "invalid_request";
    task->code = code;
}

static void task_run(struct search_fake *fake, struct task *task) {
    size_t count = json_object_array_length(task->body);
    task->status = "succeeded";
    if (task->removal && !index_exists(fake, task->index)) {
        task_fail(task, "index_not_found");
        return;
    }
    for (size_t i = 0; i < count && !task->removal; i++) { // all or nothing
        json_object *source = json_object_array_get_idx(task->body, i);
        if (!text_of(source, "rowbell_id"))
            task_fail(task, "missing_document_id");
        else if (!id_valid(text_of(source, "rowbell_id")))
            task_fail(task, "invalid_document_id");
        else if (unindexable(source))
            task_fail(task, "invalid_document_geo_field");
    }
    for (size_t i = 0; i < count && strcmp(task->status, "succeeded") == 0; i++) {
        json_object *element = json_object_array_get_idx(task->body, i);
        const char *id = task->removal ? json_object_get_string(element) : text_of(element, "rowbell_id");
        store(find_or_add(fake, task->index, id), 0, task->removal ? NULL : json_object_get(element));
    }
}

static void tasks_run(struct search_fake *fake, int until) {
    while (fake->tasks_run < until)
        task_run(fake, &fake->tasks[fake->tasks_run++]);
}

static struct answer enqueue(struct search_fake *fake, const char *index, json_object *body, bool removal) {
    if (fake->task_count == MAX_TASKS)
        abort();
    if (!fake->tasks)
        fake->tasks = calloc(MAX_TASKS, sizeof *fake->tasks);
    fake->tasks[fake->task_count] =
        (struct task){.index = strdup(index), .body = body, .removal = removal, .status = "enqueued"};
    int count = (int)json_object_array_length(body);
    fake->largest_batch = count > fake->largest_batch ? count : fake->largest_batch;
    fake->requests++;
    int open = fake->task_count - fake->tasks_run;
    fake->most_open = open > fake->most_open ? open : fake->most_open;
    int uid = fake->task_count++;
    return reply(202,
                 "{\"taskUid\":%d,\"indexUid\":\"%s\",\"status\":\"enqueued\",\"type\":\"%s\",\"enqueuedAt\":"
                 "\"2026-11-29T00:00:00Z\"}",
                 uid, index, removal ? "documentDeletion" : "documentAdditionOrUpdate");
}

static struct answer get_task(struct search_fake *fake, int uid) {
    if (uid < 0 || uid >= fake->task_count)
        return complain(fake, 404, "task_not_found");
    struct task *task = &fake->tasks[uid];
    if (++task->polls == 1 && fake->tasks_run <= uid)
        return reply(200, "{\"uid\":%d,\"status\":\"processing\",\"error\":null}", uid);
    tasks_run(fake, uid + 1);
    if (strcmp(task->status, "failed") != 0)
        return reply(200, "{\"uid\":%d,\"status\":\"%s\",\"error\":null}", uid, task->status);
    return reply(200,
                 "{\"uid\":%d,\"status\":\"failed\",\"error\":{\"message\":\"as the fake "
                 "says\",\"code\":\"%s\",\"type\":\"%s\"}}",
                 uid, task->code, task->type);
}

static struct answer fetch(struct search_fake *fake, const char *index, const char *body, size_t length) {
    json_object *root = parse(body, length), *value;
    tasks_run(fake, fake->task_count);
    if (!json_object_is_type(root, json_type_object))
        return complain(fake, 400, "malformed_payload");
    json_object_object_foreach(root, name, unused) {
        (void)unused;
        if (!strstr(" offset limit fields filter retrieveVectors ", name))
            return complain(fake, 400, "unknown field in documents/fetch");
    }
    if (!index_exists(fake, index)) {
        json_object_put(root);
        return reply(404,
                     "{\"message\":\"Index not found\",\"code\":\"index_not_found\",\"type\":\"invalid_request\"}");
    }
    int64_t offset = json_object_object_get_ex(root, "offset", &value) ? json_object_get_int64(value) : 0;
    int64_t limit = json_object_object_get_ex(root, "limit", &value) ? json_object_get_int64(value) : 20;
    json_object *results = json_object_new_array();
    int64_t at = 0;
    for (size_t i = 0; i < fake->document_count; i++) {
        struct document *document = &fake->documents[i];
        if (strcmp(document->index, index) != 0 || !document->source)
            continue;
        if (at >= offset && at < offset + limit) {
            json_object *result = json_object_new_object();
            json_object_object_add(result, "rowbell_key",
                                   json_object_new_string(text_of(document->source, "rowbell_key")));
            json_object_array_add(results, result);
        }
        at++;
    }
    struct answer answer =
        reply(200, "{\"results\":%s,\"offset\":%" PRId64 ",\"limit\":%" PRId64 ",\"total\":%" PRId64 "}",
              json_object_to_json_string(results), offset, limit, at);
    json_object_put(results);
    json_object_put(root);
    return answer;
}

static struct answer handle_meilisearch(struct search_fake *fake, const char *method, char *path, const char *query,
                                        const char *type, const char *body, size_t length) {
    int uid, used = 0;
    if (strcmp(method, "GET") == 0 && sscanf(path, "/tasks/%d%n", &uid, &used) == 1 && !path[used])
        return get_task(fake, uid);
    char index[512];
    if (strcmp(method, "POST") != 0 || sscanf(path, "/indexes/%500[^/]%n", index, &used) != 1)
        return complain(fake, 404, "not_found");
    if (!id_valid(index) || strlen(index) > 400)
        return complain(fake, 400, "invalid_index_uid");
    if (strcmp(type, "application/json") != 0)
        return complain(fake, 415, "invalid_content_type");
    const char *verb = path + used;
    if (strcmp(verb, "/documents/fetch") == 0)
        return fetch(fake, index, body, length);
    bool removal = strcmp(verb, "/documents/delete-batch") == 0;
    if (!removal && strcmp(verb, "/documents") != 0)
        return complain(fake, 404, "not_found");
    if (!parameters_known(query, removal ? " " : " primaryKey csvDelimiter "))
        return complain(fake, 400, "bad_request: unknown parameter");
    json_object *array = parse(body, length);
    if (!json_object_is_type(array, json_type_array)) {
        json_object_put(array);
        return complain(fake, 400, "malformed_payload");
    }
    return enqueue(fake, index, array, removal);
}

// ---- HTTP

static bool head_line(const char *head, const char *name, char *ret_value, size_t size) {
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\r\n%s:", name);
    const char *at = strcasestr(head, wanted);
    ret_value[0] = '\0';
    if (!at)
        return false;
    at += strlen(wanted);
    at += strspn(at, " ");
    snprintf(ret_value, size, "%.*s", (int)strcspn(at, "\r"), at);
    return true;
}

static struct answer handle(struct search_fake *fake, char *head, const char *body, size_t length) {
    char method[16], target[4096], type[100], authorization[300];
    if (sscanf(head, "%15s %4095s", method, target) != 2)
        return complain(fake, 400, "no request line");
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    head_line(head, "content-type", type, sizeof type);
    head_line(head, "authorization", authorization, sizeof authorization);
    if (fake->authorization && strcmp(authorization, fake->authorization) != 0)
        return reply(401, "{\"message\":\"missing or wrong authorization\"}");
    if (fake->busy > 0) {
        fake->busy--;
        return reply(429, "{\"message\":\"too many requests\"}");
    }
    if (fake->max_bytes && length > fake->max_bytes)
        return reply(413, "{\"message\":\"payload too large\",\"code\":\"payload_too_large\"}");
    return (fake->kind == FAKE_BULK ? handle_bulk : handle_meilisearch)(fake, method, target, query ? query : "", type,
                                                                        body, length);
}

// True while there was a whole request.
static bool request_take(struct search_fake *fake, struct connection *connection) {
    const char *blank = connection->length ? memmem(connection->bytes, connection->length, "\r\n\r\n", 4) : NULL;
    if (!blank)
        return false;
    size_t head_length = (size_t)(blank - connection->bytes) + 4;
    char *head = strndup(connection->bytes, head_length);
    char value[32];
    size_t length = head_line(head, "content-length", value, sizeof value) ? strtoul(value, NULL, 10) : 0;
    if (connection->length < head_length + length) {
        free(head);
        return false;
    }
    pthread_mutex_lock(&fake->lock);
    fake->current = connection;
    struct answer answer = handle(fake, head, connection->bytes + head_length, length);
    pthread_mutex_unlock(&fake->lock);
    char *text;
    int size =
        asprintf(&text, "HTTP/1.1 %d Fake\r\n%sContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                 answer.status, answer.status == 429 ? "Retry-After: 1\r\n" : "", strlen(answer.body), answer.body);
    for (int sent = 0; sent < size;) {
        ssize_t now = send(connection->fd, text + sent, (size_t)(size - sent), MSG_NOSIGNAL);
        if (now <= 0)
            break;
        sent += (int)now;
    }
    free(text);
    free(answer.body);
    free(head);
    connection->length -= head_length + length;
    memmove(connection->bytes, connection->bytes + head_length + length, connection->length);
    return true;
}

static bool connection_turn(struct search_fake *fake, struct connection *connection) {
    char chunk[65536];
    ssize_t got = recv(connection->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    connection->bytes = realloc(connection->bytes, connection->length + (size_t)got + 1);
    memcpy(connection->bytes + connection->length, chunk, (size_t)got);
    connection->length += (size_t)got;
    pthread_mutex_lock(&fake->lock);
    bool down = fake->down;
    if (fake->jitter_ms)
        connection->due_ms = support_now_ms() + (unsigned)rand_r(&fake->seed) % fake->jitter_ms;
    pthread_mutex_unlock(&fake->lock);
    return !down;
}

static void requests_answer(struct search_fake *fake) {
    for (int i = 0; i < fake->connection_count; i++)
        if (fake->connections[i].length > 0 && support_now_ms() >= fake->connections[i].due_ms)
            while (request_take(fake, &fake->connections[i])) {
            }
}

static bool any_late(const struct search_fake *fake) {
    for (int i = 0; i < fake->connection_count; i++)
        if (fake->connections[i].length > 0 && fake->connections[i].due_ms > support_now_ms())
            return true;
    return false;
}

static void note_open(struct search_fake *fake) {
    int open = 0;
    for (int i = 0; i < fake->connection_count; i++)
        open += fake->connections[i].length > 0;
    pthread_mutex_lock(&fake->lock);
    fake->most_requests = open > fake->most_requests ? open : fake->most_requests;
    pthread_mutex_unlock(&fake->lock);
}

static void *fake_run(void *arg) {
    struct search_fake *fake = arg;
    struct pollfd fds[MAX_CONNECTIONS + 1];
    for (;;) {
        int polled = fake->connection_count;
        fds[0] = (struct pollfd){.fd = fake->listen_fd, .events = polled < MAX_CONNECTIONS ? POLLIN : 0};
        for (int i = 0; i < polled; i++)
            fds[i + 1] = (struct pollfd){.fd = fake->connections[i].fd, .events = POLLIN};
        poll(fds, (nfds_t)polled + 1, any_late(fake) ? 1 : -1);
        for (int i = polled - 1; i >= 0; i--) {
            if (!fds[i + 1].revents || connection_turn(fake, &fake->connections[i]))
                continue;
            close(fake->connections[i].fd);
            free(fake->connections[i].bytes);
            fake->connections[i] = fake->connections[--fake->connection_count];
        }
        note_open(fake);
        requests_answer(fake);
        if (fds[0].revents) {
            int fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0)
                fake->connections[fake->connection_count++] = (struct connection){.fd = fd};
        }
    }
    return NULL;
}

// ---- For tests. The thread ends with the test's process.

struct search_fake *search_fake_start(enum search_fake_kind kind, const char *authorization) {
    struct search_fake *fake = fakes[fake_count++] = calloc(1, sizeof *fake);
    fake->kind = kind;
    fake->authorization = authorization ? strdup(authorization) : NULL;
    fake->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    ck_assert_int_eq(bind(fake->listen_fd, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(fake->listen_fd, 128), 0);
    ck_assert_int_eq(getsockname(fake->listen_fd, (struct sockaddr *)&address, &size), 0);
    snprintf(fake->url, sizeof fake->url, "http://127.0.0.1:%d", ntohs(address.sin_port));
    pthread_mutex_init(&fake->lock, NULL);
    ck_assert_int_eq(pthread_create(&fake->thread, NULL, fake_run, fake), 0);
    return fake;
}

const char *search_fake_url(const struct search_fake *fake) {
    return fake->url;
}

int search_fake_count(struct search_fake *fake, const char *index) {
    int count = 0;
    pthread_mutex_lock(&fake->lock);
    tasks_run(fake, fake->task_count);
    for (size_t i = 0; i < fake->document_count; i++)
        count += fake->documents[i].source && strcmp(fake->documents[i].index, index) == 0;
    pthread_mutex_unlock(&fake->lock);
    return count;
}

const char *search_fake_field(struct search_fake *fake, const char *index, const char *key, const char *field) {
    char *found = NULL;
    pthread_mutex_lock(&fake->lock);
    tasks_run(fake, fake->task_count);
    for (size_t i = 0; i < fake->document_count && !found; i++) {
        const struct document *document = &fake->documents[i];
        if (!document->source || strcmp(document->index, index) != 0 ||
            strcmp(text_of(document->source, "rowbell_key"), key) != 0)
            continue;
        const char *text = text_of(document->source, field);
        found = strdup(text ? text : "");
    }
    pthread_mutex_unlock(&fake->lock);
    return found ? support_keep(found) : NULL;
}

const char *search_fake_complaint(struct search_fake *fake) {
    pthread_mutex_lock(&fake->lock);
    char *text = strdup(fake->complaint);
    pthread_mutex_unlock(&fake->lock);
    return support_keep(text);
}

static int read_int(struct search_fake *fake, const int *field) {
    pthread_mutex_lock(&fake->lock);
    int value = *field;
    pthread_mutex_unlock(&fake->lock);
    return value;
}

int search_fake_requests(struct search_fake *fake) {
    return read_int(fake, &fake->requests);
}

int search_fake_largest_batch(struct search_fake *fake) {
    return read_int(fake, &fake->largest_batch);
}

int search_fake_most_open(struct search_fake *fake) {
    return read_int(fake, &fake->most_open);
}

int search_fake_most_requests(struct search_fake *fake) {
    return read_int(fake, &fake->most_requests);
}

int search_fake_overlaps(struct search_fake *fake) {
    return read_int(fake, &fake->overlaps);
}

void search_fake_down(struct search_fake *fake, bool down) {
    pthread_mutex_lock(&fake->lock);
    fake->down = down;
    pthread_mutex_unlock(&fake->lock);
}

void search_fake_busy(struct search_fake *fake, int requests) {
    pthread_mutex_lock(&fake->lock);
    fake->busy = requests;
    pthread_mutex_unlock(&fake->lock);
}

void search_fake_limit(struct search_fake *fake, size_t max_bytes) {
    pthread_mutex_lock(&fake->lock);
    fake->max_bytes = max_bytes;
    pthread_mutex_unlock(&fake->lock);
}

void search_fake_jitter(struct search_fake *fake, unsigned max_ms, unsigned seed) {
    pthread_mutex_lock(&fake->lock);
    fake->jitter_ms = max_ms;
    fake->seed = seed;
    pthread_mutex_unlock(&fake->lock);
}
