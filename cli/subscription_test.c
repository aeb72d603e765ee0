// subscription test: a signed test event to an endpoint, step by step, with what a failed step means.
//
//   settings --> dns --> egress --> connect --> tls --> http
//
// It is sent from here, by the code that the dispatchers use: what differs is this machine's view of names and
// addresses, and its --allow-egress. Nothing is stored.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/secrets.h"
#include "cli/sql.h"
#include "common/clock.h"
#include "common/egress.h"
#include "common/http_target.h"
#include "common/memory.h"
#include "common/resolver.h"
#include "common/webhook_endpoint.h"
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct test {
    struct cli *cli;
    json_object *steps; // NULL: for people
    uv_loop_t loop;
    struct egress_policy egress;
    struct seal_keys keys;
    struct webhook_endpoint endpoint;
    struct http_target target;
    bool https;
    bool passed; // the last step
    bool done;   // an answer of the resolver or of the client is there
    uint64_t began_ns;
};

static double ms_since(uint64_t began_ns) {
    return (double)(clock_ns() - began_ns) / 1e6;
}

// Tells one step; *text is a line. Returns passed.
static bool step(struct test *test, bool passed, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static bool step(struct test *test, bool passed, const char *name, const char *format, ...) {
    char text[2000];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    test->passed = passed;
    if (test->steps != NULL) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "step", json_object_new_string(name));
        json_object_object_add(json, "passed", json_object_new_boolean(passed));
        json_object_object_add(json, "text", json_object_new_string(text));
        json_object_array_add(test->steps, json);
    } else {
        printf("%-8s  %-6s  ", name, passed ? "ok" : "FAILED");
        output_text(text);
        putchar('\n');
        fflush(stdout);
    }
    return passed;
}

// ---- settings and secrets

static bool read_endpoint(struct test *test, const PGresult *row) {
    struct error error = {0};
    if (strcmp(PQgetvalue(row, 0, 0), "webhook") != 0)
        return step(test, false, "settings", "it is no webhook but of kind %s", PQgetvalue(row, 0, 0));
    if (PQgetvalue(row, 0, 5)[0] != 't')
        return step(test, false, "settings",
                    "its headers or its client key may be credentials, which this login may not read: connect as the "
                    "schema's owner");
    json_object *secrets = json_tokener_parse(PQgetvalue(row, 0, 2));
    int count = json_object_is_type(secrets, json_type_array) ? (int)json_object_array_length(secrets) : 0;
    char **stored = memory_alloc((size_t)(count + 1) * sizeof(*stored));
    bool readable = true;
    for (int i = 0; i < count; i++) {
        stored[i] = (char *)json_object_get_string(json_object_array_get_idx(secrets, (size_t)i));
        readable &= stored[i] != NULL;
    }
    bool ok = readable ? webhook_endpoint_init(&test->endpoint, PQgetvalue(row, 0, 1), stored, count,
                                               PQgetvalue(row, 0, 6), &test->keys, false, &error)
                       : error_set(&error, ERROR_SQL,
                                   "secret: it is stored unsealed, and this login may not read it: seal it (rowbell "
                                   "secrets rekey), or connect as the schema's owner");
    free(stored);
    json_object_put(secrets);
    ok = ok && http_target_parse(test->endpoint.url, test->endpoint.allow_http, &test->target, &error);
    if (!ok)
        return step(test, false, "settings", "%s", error.text);
    test->https = strncasecmp(test->endpoint.url, "https:", 6) == 0;
    return step(test, true, "settings", "%s, signed in %s by %d secret%s", test->endpoint.url,
                webhook_signer_header(test->endpoint.signer), count, count == 1 ? "" : "s");
}

// ---- dns and egress

static void address_text(const union resolver_address *address, char *ret_text, size_t size) {
    bool v6 = address->any.sa_family == AF_INET6;
    inet_ntop(address->any.sa_family, v6 ? (const void *)&address->v6.sin6_addr : &address->v4.sin_addr, ret_text,
              (socklen_t)size);
}

static void list_addresses(struct test *test, const struct resolver_answer *answer) {
    struct buffer all = {0}, judged = {0};
    size_t allowed = 0;
    for (size_t i = 0; i < answer->count; i++) {
        char text[INET6_ADDRSTRLEN];
        const char *range = NULL;
        address_text(&answer->addresses[i], text, sizeof(text));
        bool may = egress_allows(&test->egress, &answer->addresses[i].any, &range);
        allowed += may;
        buffer_format(&all, "%s%s", i > 0 ? ", " : "", text);
        buffer_format(&judged, "%s%s %s%s", i > 0 ? "; " : "", text, may ? "allowed" : "denied: ", may ? "" : range);
    }
    step(test, true, "dns", "%s is %s (%.0f ms)", test->target.host, buffer_cstr(&all), ms_since(test->began_ns));
    step(test, allowed > 0, "egress", "%s%s", buffer_cstr(&judged),
         allowed > 0 ? "" : "; if it is yours and meant, give --allow-egress, here and to every dispatcher");
    buffer_free(&all);
    buffer_free(&judged);
}

static void on_resolved(void *arg, const struct resolver_answer *answer, const struct error *error) {
    struct test *test = arg;
    test->done = true;
    if (answer != NULL)
        list_addresses(test, answer);
    else
        step(test, false, "dns", "%s; is the name right, and known where the dispatchers run?", error->text);
}

static bool resolve(struct test *test) {
    struct resolver *resolver = resolver_get(&test->loop);
    test->done = false;
    test->began_ns = clock_ns();
    resolver_lookup(resolver, test->target.host, false, on_resolved, test);
    while (!test->done)
        uv_run(&test->loop, UV_RUN_ONCE);
    resolver_release(resolver);
    uv_run(&test->loop, UV_RUN_DEFAULT);
    return test->passed;
}

// ---- connect, tls, http

static const struct advice {
    int from, to;
    const char *text;
} advices[] = {
    {300, 399, "; redirects are never followed: set the URL that it leads to"},
    {401, 403, "; does it verify with this secret? rowbell subscription rotate-secret makes a new one"},
    {404, 404, "; is the path right?"},
    {410, 410, "; that disables a subscription"},
    {413, 413, "; it takes smaller bodies only"},
    {429, 429, "; a dispatcher would wait as Retry-After says"},
    {500, 599, "; a dispatcher would try again later"},
};

static const char *advice_for(int status) {
    for (size_t i = 0; i < sizeof(advices) / sizeof(*advices); i++)
        if (status >= advices[i].from && status <= advices[i].to)
            return advices[i].text;
    return "";
}

static void explain_answer(struct test *test, const struct http_outcome *http) {
    enum status_fate fate = status_policy_find(&test->endpoint.statuses, http->status);
    bool good = fate == STATUS_DELIVERED || (fate == STATUS_USUAL && http->status >= 200 && http->status <= 299);
    step(test, good, "http", "%d after %.0f ms%s%s%s", http->status, http->first_byte_ms,
         fate != STATUS_USUAL ? " (judged by this subscription's statuses)" : "", good ? "" : advice_for(http->status),
         http->delivery_control != NULL ? "; it sent webhook-delivery, by which it steers us" : "");
    if (http->response_head != NULL && *http->response_head != 0)
        step(test, good, "answer", "%.300s", http->response_head);
}

static void on_answer(void *arg, const struct http_outcome *http) {
    struct test *test = arg;
    test->done = true;
    if (http->failure == HTTP_EGRESS_DENIED) {
        step(test, false, "egress", "%s", http->error);
        return;
    }
    if (http->connect_ms < 0) {
        step(test, false, "connect", "%s; does it run, and may this machine reach it?", http->error);
        return;
    }
    step(test, true, "connect", "%s in %.0f ms", http->peer, http->connect_ms);
    if (test->https && http->tls_ms < 0) {
        step(test, false, "tls", "%s%s", http->error,
             test->endpoint.ca != NULL ? ""
                                       : "; if its authority is your own, give it: rowbell subscription set --ca FILE");
        return;
    }
    if (test->https)
        step(test, true, "tls", "verified against %s in %.0f ms%s",
             test->endpoint.ca != NULL ? "its own authorities" : "the system's authorities", http->tls_ms,
             test->endpoint.client_certificate != NULL ? ", with a client certificate" : "");
    if (http->status == 0)
        step(test, false, "http", "%s", http->error);
    else
        explain_answer(test, http);
}

static void send_event(struct test *test, const PGresult *row) {
    struct http_client *client =
        http_client_new(&test->loop, &(struct http_client_options){.user_agent = "rowbell/" ROWBELL_VERSION,
                                                                   .egress = &test->egress,
                                                                   .ca_file = option_value(test->cli, "ca-file")});
    struct buffer body = {0}, headers = {0}, data = {0};
    buffer_text(&data, "{\"test\":true,\"subscription\":");
    buffer_json_string(&data, test->cli->arguments[0], strlen(test->cli->arguments[0]));
    buffer_char(&data, '}');
    const char *id = PQgetvalue(row, 0, 3);
    webhook_body_write(&body,
                       &(struct webhook_event){
                           .id = id, .type = "rowbell.test", .timestamp = PQgetvalue(row, 0, 4), .data = data.bytes});
    const char *list[HTTP_CALL_MAX_HEADERS + 1];
    struct http_call call =
        webhook_endpoint_call(&test->endpoint, id, strtoll(PQgetvalue(row, 0, 7), NULL, 10), &body, &headers, list);
    test->done = false;
    http_client_send(client, &call, on_answer, test);
    while (!test->done)
        uv_run(&test->loop, UV_RUN_ONCE);
    http_client_close(client, NULL, NULL);
    uv_run(&test->loop, UV_RUN_DEFAULT);
    buffer_free(&body);
    buffer_free(&headers);
    buffer_free(&data);
}

// ---- the command

struct ranges {
    const char *items[64];
    size_t count;
    char *copy; // of the variable
};

static bool add_range(void *arg, const char *value) {
    struct ranges *ranges = arg;
    if (ranges->count < sizeof(ranges->items) / sizeof(*ranges->items))
        ranges->items[ranges->count++] = memory_copy_text(value);
    return true;
}

// Of --allow-egress, else of ROWBELL_ALLOW_EGRESS, which the dispatchers read.
static bool read_egress(struct test *test, struct error *ret_error) {
    struct ranges ranges = {0};
    const char *variable = getenv("ROWBELL_ALLOW_EGRESS");
    if (option_given(test->cli, "allow-egress")) {
        option_each(test->cli, "allow-egress", ',', add_range, &ranges);
    } else if (variable != NULL) {
        ranges.copy = memory_copy_text(variable);
        for (char *rest = ranges.copy, *item; (item = strsep(&rest, ",")) != NULL;)
            add_range(&ranges, item);
    }
    bool ok = egress_policy_init(&test->egress, &(struct config_list){ranges.items, ranges.count}, ret_error) ||
              error_wrap(ret_error, "--allow-egress");
    for (size_t i = 0; i < ranges.count; i++)
        free((char *)ranges.items[i]);
    free(ranges.copy);
    return ok;
}

static bool verdict(struct test *test, struct error *ret_error) {
    if (test->steps != NULL) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "name", json_object_new_string(test->cli->arguments[0]));
        json_object_object_add(json, "passed", json_object_new_boolean(test->passed));
        json_object_object_add(json, "steps", test->steps);
        output_json(json);
    }
    return test->passed || error_set(ret_error, ERROR_SQL, "%s did not take the test event", test->cli->arguments[0]);
}

bool run_subscription_test(struct cli *cli, struct error *ret_error) {
    struct test test = {.cli = cli};
    PGresult *row = NULL;
    bool ok = (resolver_set_servers(getenv("ROWBELL_DNS_SERVERS"), ret_error) ||
               error_wrap(ret_error, "ROWBELL_DNS_SERVERS")) &&
              read_egress(&test, ret_error) && secrets_keys(&test.keys, ret_error) &&
              cli_connect(cli, CONNECT_FOR_WORK, ret_error) &&
              cli_query(cli, &sql_subscription_test, 1, cli->arguments, &row, ret_error);
    if (ok && PQntuples(row) == 0)
        ok = error_set(ret_error, ERROR_SQL, "there is no subscription %s: see rowbell subscription list",
                       cli->arguments[0]);
    if (ok) {
        test.steps = cli->json ? json_object_new_array() : NULL;
        uv_loop_init(&test.loop);
        if (read_endpoint(&test, row) && resolve(&test))
            send_event(&test, row);
        uv_loop_close(&test.loop);
        ok = verdict(&test, ret_error);
        webhook_endpoint_close(&test.endpoint);
    }
    PQclear(row);
    egress_policy_close(&test.egress);
    seal_keys_close(&test.keys);
    return ok;
}
