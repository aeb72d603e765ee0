// console: a web page over the commands of this program.
//
//   page --POST /run {"command": "event list", "options": {"state": "poisoned"}}--> rowbell event list --json
//   --state=poisoned
//
// There is no second interface to the database: a request runs one command of the table below in a child process, and
// is answered with its exit status, its document and its error. So the page can do what the command line can, with the
// same rights, checks and texts, and shows the command lines that it runs. Every request carries a token, in a header
// that no other site's page can set; the page reads it from the URL's fragment, which is never sent.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/console_child.h"
#include "cli/console_files.h"
#include "cli/output.h"
#include "common/http_server.h"
#include "common/json_read.h"
#include "common/memory.h"
#include <assert.h>
#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CHILDREN = 8,
    MAX_READERS = 6, // of these: looking, however slow, leaves room to act
    READER_DEADLINE_MS = 60 * 1000,
    MAX_ARGUMENTS = 64,
    TOKEN_BYTES = 24,
    TOKEN_LEAST = 16,
    TOKEN_MOST = 512
};

// What the page may run. Left out: what prints secrets, changes the schema, reads files of this machine or never ends.
static const struct runnable {
    const char *path;
    const char *options; // those that may be given; name= takes a value
    bool acts;           // it changes something: not with --read-only
} runnables[] = {
    {"status", "", false},
    {"doctor", "", false},
    {"event list", "type= state= limit=", false},
    {"event show", "", false},
    {"event cancel", "", true},
    {"job list", "state= subscription= limit=", false},
    {"job retry", "", true},
    {"job cancel", "", true},
    {"attempt list", "subscription= class= limit=", false},
    {"requeue events", "id= all dry-run", true},
    {"requeue jobs", "id= subscription= state= all dry-run", true},
    {"subscription list", "", false},
    {"subscription show", "", false},
    {"subscription pause", "", true},
    {"subscription resume", "rate=", true},
    {"subscription test", "", true},
    {"index status", "", false},
};

struct console {
    uv_loop_t loop;
    struct http_server *server;
    uv_signal_t signals[2];
    char token[TOKEN_MOST + 1];
    bool read_only;
    bool stopping;
    struct run *runs[MAX_CHILDREN]; // NULL: free
};

// A command that runs for a request.
struct run {
    struct console *console;
    bool acts;
    struct http_exchange *exchange;
    struct console_child *child;
    struct buffer line; // as a person would type it
};

// ---- answers

static const char page_headers[] =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
    "data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

static void respond_json(struct http_exchange *exchange, int status, struct buffer *body) {
    http_exchange_respond(exchange, status, "application/json", page_headers, buffer_cstr(body), body->length);
    buffer_free(body);
}

static void respond_error(struct http_exchange *exchange, int status, const char *text) {
    struct buffer body = {0};
    buffer_text(&body, "{\"error\":");
    buffer_json_string(&body, text, strlen(text));
    buffer_text(&body, "}\n");
    respond_json(exchange, status, &body);
}

// ---- a command

static void run_end(struct run *run) {
    for (size_t i = 0; i < MAX_CHILDREN; i++)
        if (run->console->runs[i] == run)
            run->console->runs[i] = NULL;
    buffer_free(&run->line);
    free(run);
}

static void on_end(void *arg, const struct console_outcome *outcome, const struct error *error) {
    struct run *run = arg;
    if (outcome == NULL) {
        struct error wrapped = *error;
        if (run->acts)
            error_wrap(&wrapped, "a part of it may be done; when it is run again it goes on");
        respond_error(run->exchange, error->code == ERROR_CANCELLED ? 503 : 500, wrapped.text);
        run_end(run);
        return;
    }
    struct buffer body = {0};
    buffer_text(&body, "{\"command\":");
    buffer_json_string(&body, buffer_cstr(&run->line), run->line.length);
    buffer_format(&body, ",\"exit\":%d,\"output\":%s,\"error\":", outcome->status,
                  outcome->output.length > 0 ? outcome->output.bytes : "null");
    size_t length = outcome->error.length;
    while (length > 0 && outcome->error.bytes[length - 1] == '\n')
        length--;
    if (length > 0)
        buffer_json_string(&body, outcome->error.bytes, length);
    else
        buffer_text(&body, "null");
    buffer_text(&body, "}\n");
    respond_json(run->exchange, 200, &body);
    run_end(run);
}

// A word as a shell takes it.
static void append_word(struct buffer *line, const char *word) {
    size_t plain = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,@%+=");
    buffer_char(line, ' ');
    if (plain > 0 && word[plain] == 0) {
        buffer_text(line, word);
        return;
    }
    buffer_char(line, '\'');
    for (; *word != 0; word++)
        if (*word == '\'')
            buffer_text(line, "'\\''");
        else
            buffer_char(line, *word);
    buffer_char(line, '\'');
}

struct command_line {
    char *words[MAX_ARGUMENTS + 1]; // owned
    size_t count;
};

static bool add_word(struct command_line *line, const char *word) {
    if (line->count == MAX_ARGUMENTS)
        return false;
    line->words[line->count++] = memory_copy_text(word);
    return true;
}

static void command_line_free(struct command_line *line) {
    for (size_t i = 0; i < line->count; i++)
        free(line->words[i]);
}

static const struct runnable *runnable_find(const char *path) {
    for (size_t i = 0; path != NULL && i < sizeof(runnables) / sizeof(*runnables); i++)
        if (strcmp(runnables[i].path, path) == 0)
            return &runnables[i];
    return NULL;
}

// *ret_valued: it takes a value.
static bool option_may(const struct runnable *runnable, const char *name, bool *ret_valued) {
    size_t length = strlen(name);
    for (const char *at = runnable->options; *at != 0; at += strcspn(at, " "), at += *at == ' ')
        if (strcspn(at, " =") == length && strncmp(at, name, length) == 0) {
            *ret_valued = at[length] == '=';
            return true;
        }
    return false;
}

// A value is always of the same word as its option: getopt would take the next word for it, whatever that is.
static bool add_option(struct command_line *line, const char *name, bool valued, const struct json_value *value) {
    struct buffer word = {0};
    buffer_format(&word, "--%s", name);
    if (valued && json_is(value, JSON_STRING))
        buffer_format(&word, "=%s", value->text);
    bool ok = json_is(value, valued ? JSON_STRING : JSON_TRUE) && add_word(line, word.bytes);
    buffer_free(&word);
    return ok;
}

// {"option": "value" | true | ["value", ...]}
static bool add_options(struct command_line *line, const struct runnable *runnable, const struct json_value *options) {
    bool valued = false;
    for (const struct json_value *option = options->first; option != NULL; option = option->next) {
        if (!option_may(runnable, option->name, &valued))
            return false;
        if (!json_is(option, JSON_ARRAY)) {
            if (!add_option(line, option->name, valued, option))
                return false;
            continue;
        }
        for (const struct json_value *value = option->first; value != NULL; value = value->next)
            if (!add_option(line, option->name, valued, value))
                return false;
    }
    return true;
}

// The words of a command line from a request: rowbell event list --json --state=poisoned -- ... False: it is none.
static bool read_command_line(const struct json_value *request, const struct runnable *runnable,
                              struct command_line *line) {
    const struct json_value *options = json_member(request, "options"), *arguments = json_member(request, "arguments");
    if ((options != NULL && !json_is(options, JSON_OBJECT)) || (arguments != NULL && !json_is(arguments, JSON_ARRAY)))
        return false;
    add_word(line, "rowbell");
    char *path = memory_copy_text(runnable->path), *rest = path;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        add_word(line, word);
    free(path);
    add_word(line, "--json");
    if (options != NULL && !add_options(line, runnable, options))
        return false;
    if (arguments == NULL || arguments->first == NULL)
        return true;
    bool ok = add_word(line, "--"); // what follows is never a flag
    for (const struct json_value *word = arguments->first; ok && word != NULL; word = word->next)
        ok = json_is(word, JSON_STRING) && add_word(line, word->text);
    return ok;
}

// MAX_CHILDREN: there is no room.
static size_t slot_find(const struct console *console, bool acts) {
    size_t slot = MAX_CHILDREN, readers = 0;
    for (size_t i = 0; i < MAX_CHILDREN; i++) {
        if (console->runs[i] == NULL)
            slot = i;
        else
            readers += !console->runs[i]->acts;
    }
    return acts || readers < MAX_READERS ? slot : MAX_CHILDREN;
}

static void run_start(struct console *console, struct http_exchange *exchange, const struct command_line *line,
                      bool acts) {
    struct error error = {0};
    size_t slot = slot_find(console, acts);
    if (slot == MAX_CHILDREN || console->stopping) {
        respond_error(exchange, 503,
                      console->stopping ? "the console ends" : "too many commands are running: try again");
        return;
    }
    struct run *run = memory_alloc(sizeof(*run));
    *run = (struct run){.console = console, .acts = acts, .exchange = exchange};
    buffer_text(&run->line, line->words[0]);
    for (size_t i = 1; i < line->count; i++) {
        bool ours = strcmp(line->words[i], "--json") == 0 || strcmp(line->words[i], "--") == 0;
        if (!ours || (i > 1 && strcmp(line->words[i - 1], "--") == 0))
            append_word(&run->line, line->words[i]);
    }
    console->runs[slot] = run;
    run->child = console_child_start(&console->loop, line->words, acts ? 0 : READER_DEADLINE_MS, on_end, run, &error);
    if (run->child == NULL) {
        respond_error(exchange, 500, error.text);
        run_end(run);
    }
}

static void handle_run(struct console *console, struct http_exchange *exchange, const struct http_request *request) {
    struct error error = {0};
    struct command_line line = {0};
    struct json_document *document = json_read(request->body, request->body_length, &error);
    const struct json_value *root = document != NULL ? json_root(document) : NULL;
    const struct runnable *runnable = runnable_find(json_member_text(root, "command"));
    bool dry = json_is(json_member(json_member(root, "options"), "dry-run"), JSON_TRUE);
    if (document == NULL)
        respond_error(exchange, 400, error.text);
    else if (runnable == NULL)
        respond_error(exchange, 404, "expected {\"command\": ...} with a command that the console runs");
    else if (console->read_only && runnable->acts && !dry)
        respond_error(exchange, 403, "this console was started with --read-only");
    else if (!read_command_line(root, runnable, &line))
        respond_error(exchange, 400,
                      "expected \"arguments\": [text, ...] and \"options\": {name: text, true or a list of "
                      "texts}, with options that the console gives to this command");
    else
        run_start(console, exchange, &line, runnable->acts && !dry);
    command_line_free(&line);
    json_free(document);
}

// ---- requests

static bool token_matches(const struct console *console, const struct http_request *request) {
    static const char scheme[] = "Bearer ";
    const char *given = http_request_header(request, "authorization");
    if (given == NULL || strncmp(given, scheme, sizeof(scheme) - 1) != 0)
        return false;
    given += sizeof(scheme) - 1;
    size_t length = strlen(console->token);
    return strlen(given) == length && CRYPTO_memcmp(given, console->token, length) == 0;
}

static const struct {
    const char *path, *name, *content_type;
} pages[] = {
    {"/", "index.html", "text/html; charset=utf-8"},
    {"/console.css", "console.css", "text/css; charset=utf-8"},
    {"/console.js", "console.js", "text/javascript; charset=utf-8"},
};

static const struct embedded_file *page_find(const char *path, const char **ret_type) {
    for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
        for (size_t k = 0; strcmp(pages[i].path, path) == 0 && k < console_files_count; k++)
            if (strcmp(console_files[k].name, pages[i].name) == 0) {
                *ret_type = pages[i].content_type;
                return &console_files[k];
            }
    return NULL;
}

static void handle(void *arg, struct http_exchange *exchange, const struct http_request *request) {
    struct console *console = arg;
    const char *type = NULL;
    const struct embedded_file *page = page_find(request->path, &type);
    if (page != NULL && (strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0))
        http_exchange_respond(exchange, 200, type, page_headers, page->bytes, page->length);
    else if (page != NULL)
        http_exchange_respond(exchange, 405, NULL, "Allow: GET, HEAD\r\n", "", 0);
    else if (strcmp(request->path, "/run") != 0)
        respond_error(exchange, 404, "nothing here; the page is at /");
    else if (strcmp(request->method, "POST") != 0)
        http_exchange_respond(exchange, 405, NULL, "Allow: POST\r\n", "", 0);
    else if (!token_matches(console, request))
        respond_error(exchange, 401,
                      "expected Authorization: Bearer TOKEN, with the token that the console was started with");
    else
        handle_run(console, exchange, request);
}

// ---- start and end

static bool read_token_file(const char *path, char ret_token[TOKEN_MOST + 1], struct error *ret_error) {
    char line[TOKEN_MOST + 2];
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return error_set(ret_error, ERROR_IO, "--token-file %s: %m", path);
    bool ok = fgets(line, sizeof(line), file) != NULL;
    fclose(file);
    size_t length = ok ? strcspn(line, "\r\n") : 0;
    for (size_t i = 0; i < length; i++)
        ok = ok && isgraph((unsigned char)line[i]);
    if (!ok || length < TOKEN_LEAST || length > TOKEN_MOST)
        return error_set(ret_error, ERROR_USAGE,
                         "--token-file %s: its first line must be %d to %d printable characters", path, TOKEN_LEAST,
                         TOKEN_MOST);
    memcpy(ret_token, line, length);
    ret_token[length] = 0;
    return true;
}

static void make_token(char ret_token[TOKEN_MOST + 1]) {
    unsigned char bytes[TOKEN_BYTES];
    int done = RAND_bytes(bytes, sizeof(bytes));
    assert(done == 1);
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(ret_token + 2 * i, 3, "%02x", bytes[i]);
}

static void on_signal(uv_signal_t *signal, int number) {
    struct console *console = signal->data;
    if (console->stopping)
        return;
    console->stopping = true;
    for (size_t i = 0; i < MAX_CHILDREN; i++)
        if (console->runs[i] != NULL)
            console_child_stop(console->runs[i]->child);
    http_server_close(console->server, NULL, NULL);
    for (size_t i = 0; i < 2; i++)
        uv_close((uv_handle_t *)&console->signals[i], NULL);
}

static void tell_address(const struct cli *cli, const struct console *console, bool with_token) {
    struct buffer url = {0};
    buffer_format(&url, "http://%s/", http_server_address(console->server));
    if (with_token)
        buffer_format(&url, "#token=%s", console->token);
    if (cli->json) {
        json_object *json = json_object_new_object();
        json_object_object_add(json, "url", json_object_new_string(url.bytes));
        output_json(json);
    } else {
        puts(url.bytes);
    }
    fflush(stdout);
    buffer_free(&url);
}

bool run_console(struct cli *cli, struct error *ret_error) {
    struct console console = {.read_only = option_given(cli, "read-only")};
    const char *token_file = option_value(cli, "token-file");
    if (token_file != NULL && !read_token_file(token_file, console.token, ret_error))
        return false;
    if (token_file == NULL)
        make_token(console.token);
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error)) // says now what is wrong, and not at each command
        return false;
    cli_disconnect(cli);
    // Not on the commands' lines, which others can see.
    if (option_given(cli, "database-url"))
        setenv("ROWBELL_DATABASE_URL", option_value(cli, "database-url"), 1);

    uv_loop_init(&console.loop);
    const struct http_server_options options = {.listen = option_given(cli, "listen") ? option_value(cli, "listen")
                                                                                      : "127.0.0.1:8070",
                                                .max_connections = 64,
                                                .arg = &console,
                                                .handle = handle};
    console.server = http_server_new(&console.loop, &options, ret_error);
    if (console.server != NULL) {
        static const int numbers[] = {SIGINT, SIGTERM};
        for (size_t i = 0; i < 2; i++) {
            uv_signal_init(&console.loop, &console.signals[i]);
            console.signals[i].data = &console;
            uv_signal_start(&console.signals[i], on_signal, numbers[i]);
        }
        signal(SIGPIPE, SIG_IGN);
        tell_address(cli, &console, token_file == NULL);
    }
    uv_run(&console.loop, UV_RUN_DEFAULT);
    uv_loop_close(&console.loop);
    OPENSSL_cleanse(console.token, sizeof(console.token));
    return console.server != NULL;
}
