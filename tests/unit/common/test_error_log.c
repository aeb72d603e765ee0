// error and log: one line, whatever is put in.
#include "common/error.h"
#include "common/json_read.h"
#include "common/log.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

START_TEST(error_set_makes_one_line) {
    struct error error = {.code = ERROR_SQL, .sqlstate = "42P01"};
    ck_assert(!error_set(&error, ERROR_CONNECT, "connect:\nrefused\tby %s\n\n", "peer"));
    ck_assert_int_eq(error.code, ERROR_CONNECT);
    ck_assert_str_eq(error.text, "connect: refused by peer");
    ck_assert_str_eq(error.sqlstate, "");
    ck_assert(!error_set(NULL, ERROR_IO, "nobody asks"));
}
END_TEST

START_TEST(error_set_may_use_its_own_text) {
    struct error error;
    error_set(&error, ERROR_IO, "inner");
    error_set(&error, ERROR_USAGE, "outer %s", error.text);
    ck_assert_str_eq(error.text, "outer inner");
}
END_TEST

START_TEST(error_wrap_reads_outside_in) {
    struct error error = {.sqlstate = "08006"};
    error_set(&error, ERROR_TIMEOUT, "timeout after %d ms", 5000);
    strcpy(error.sqlstate, "08006");
    ck_assert(!error_wrap(&error, "connect"));
    ck_assert(!error_wrap(&error, "claim %s", "jobs"));
    ck_assert_str_eq(error.text, "claim jobs: connect: timeout after 5000 ms");
    ck_assert_int_eq(error.code, ERROR_TIMEOUT);
    ck_assert_str_eq(error.sqlstate, "08006");
    ck_assert(!error_wrap(NULL, "nobody asks"));
}
END_TEST

// The context stays, the end of the inner text is lost, and no character is cut in two.
START_TEST(error_text_is_cut_at_a_character) {
    char text[1000];
    for (size_t shift = 0; shift < 2; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 3 < sizeof text; i += 2)
            memcpy(text + i, "\xC3\xA9", 3);
        struct error error;
        error_set(&error, ERROR_IO, "%s", text);
        size_t length = strlen(error.text);
        ck_assert_uint_ge(length, sizeof error.text - 3);
        ck_assert_uint_eq((length - shift) % 2, 0);
        error_wrap(&error, "context");
        ck_assert_int_eq(strncmp(error.text, "context: ", 9), 0);
        ck_assert_uint_lt(strlen(error.text), sizeof error.text);
        ck_assert_uint_eq((strlen(error.text) - 9 - shift) % 2, 0);
    }
}
END_TEST

START_TEST(error_codes_have_the_exit_status_of_the_manual) {
    static const struct {
        enum error_code code;
        int status;
        enum error_class class;
        const char *name;
    } rows[] = {
        {ERROR_USAGE, 2, ERROR_CLASS_PERMANENT, "USAGE"}, {ERROR_CONNECT, 3, ERROR_CLASS_RETRY, "CONNECT"},
        {ERROR_AUTH, 3, ERROR_CLASS_RETRY, "AUTH"},       {ERROR_SCHEMA, 4, ERROR_CLASS_RETRY, "SCHEMA"},
        {ERROR_SQL, 1, ERROR_CLASS_PERMANENT, "SQL"},     {ERROR_TIMEOUT, 1, ERROR_CLASS_RETRY, "TIMEOUT"},
        {ERROR_KEY, 1, ERROR_CLASS_RETRY, "KEY"},         {ERROR_PROBLEMS, 5, ERROR_CLASS_PERMANENT, "PROBLEMS"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error error = {.code = rows[i].code};
        ck_assert_int_eq(error_exit_status(&error), rows[i].status);
        ck_assert_int_eq(error_class(&error), rows[i].class);
        ck_assert_str_eq(error_code_name(rows[i].code), rows[i].name);
    }
    ck_assert_int_eq(error_exit_status(&(struct error){0}), 0);
}
END_TEST

// stderr as a datagram socket: each write is one message, so a line that came in two would be seen.
static int log_socket;
static int old_stderr;

static void capture_start(void) {
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    old_stderr = dup(STDERR_FILENO);
    dup2(pair[1], STDERR_FILENO);
    close(pair[1]);
    log_socket = pair[0];
}

static void capture_end(void) {
    dup2(old_stderr, STDERR_FILENO);
    close(old_stderr);
    close(log_socket);
}

// One line without its newline; "" when nothing was written.
static const char *captured(void) {
    static char line[20000];
    ssize_t length = recv(log_socket, line, sizeof line - 1, MSG_DONTWAIT);
    if (length <= 0)
        return "";
    ck_assert_int_eq(line[length - 1], '\n');
    line[length - 1] = '\0';
    return line;
}

START_TEST(log_writes_logfmt) {
    log_init("rowbell-test", LOG_INFO, LOG_LOGFMT);
    log_info("x_happened", LOG_INT("count", -7), LOG_TEXT("plain", "127.0.0.1:80"), LOG_TEXT("none", NULL),
             LOG_TEXT("odd", "a b=\"c\"\n"), LOG_DOUBLE("share", 0.25), LOG_BOOL("ready", true));
    const char *line = captured();
    ck_assert_int_eq(strncmp(line, "time=20", 7), 0);
    ck_assert_int_eq(line[28], 'Z');
    ck_assert_str_eq(line + 29, " level=info event=x_happened process=rowbell-test count=-7 plain=127.0.0.1:80 none= "
                                "odd=\"a b=\\\"c\\\"\\n\" share=0.25 ready=true");
}
END_TEST

START_TEST(log_leaves_out_what_is_below_the_level) {
    log_init("rowbell-test", LOG_WARN, LOG_LOGFMT);
    ck_assert(!log_enabled(LOG_INFO));
    ck_assert(log_enabled(LOG_ERROR));
    log_info("not_written");
    log_warn("written");
    ck_assert_ptr_nonnull(strstr(captured(), " level=warn event=written "));
    ck_assert_str_eq(captured(), "");
}
END_TEST

// RFC 8259 and UTF-8. Not json-c: in its strict mode 0.18 takes every byte above 0x7f for a control character.
static struct json_document *parse_strictly(const char *line) {
    struct error error;
    struct json_document *document = json_read(line, strlen(line), &error);
    ck_assert_msg(document, "not JSON: %s: %s", error.text, line);
    return document;
}

START_TEST(log_json_is_valid_for_any_bytes) {
    log_init("rowbell-test", LOG_DEBUG, LOG_JSON);
    // Every pair of bytes that differs in what UTF-8 or JSON make of it.
    for (int first = 1; first < 256; first++) {
        for (int second = 1; second < 256; second += 7) {
            char text[] = {'<', (char)first, (char)second, '>', '\0'};
            log_debug("bytes", LOG_TEXT("text", text), LOG_DOUBLE("nan", NAN), LOG_DOUBLE("far", -INFINITY));
            const char *line = captured();
            ck_assert_ptr_null(strchr(line, '\n'));
            struct json_document *document = parse_strictly(line);
            const struct json_value *object = json_root(document);
            const char *read = json_member_text(object, "text");
            ck_assert_ptr_nonnull(read);
            ck_assert_int_eq(read[0], '<');
            ck_assert_int_eq(read[strlen(read) - 1], '>');
            ck_assert(json_is(json_member(object, "nan"), JSON_NULL));
            ck_assert(json_is(json_member(object, "far"), JSON_NULL));
            json_free(document);
        }
    }
}
END_TEST

START_TEST(log_json_keeps_text_as_it_is) {
    log_init("rowbell-test", LOG_DEBUG, LOG_JSON);
    log_error("text", LOG_TEXT("text", "\xC3\xA9 \"\\\n\x01"), LOG_INT("count", 3));
    struct json_document *document = parse_strictly(captured());
    const struct json_value *object = json_root(document);
    int64_t count;
    ck_assert_str_eq(json_member_text(object, "text"), "\xC3\xA9 \"\\\n\x01");
    ck_assert(json_integer(json_member(object, "count"), &count));
    ck_assert_int_eq(count, 3);
    ck_assert_str_eq(json_member_text(object, "level"), "error");
    json_free(document);
}
END_TEST

void error_tests(Suite *suite) {
    TCase *error = suite_case(suite, "error", 10);
    tcase_add_test(error, error_set_makes_one_line);
    tcase_add_test(error, error_set_may_use_its_own_text);
    tcase_add_test(error, error_wrap_reads_outside_in);
    tcase_add_test(error, error_text_is_cut_at_a_character);
    tcase_add_test(error, error_codes_have_the_exit_status_of_the_manual);
    TCase *log = suite_case(suite, "log", 10);
    tcase_add_checked_fixture(log, capture_start, capture_end);
    tcase_add_test(log, log_writes_logfmt);
    tcase_add_test(log, log_leaves_out_what_is_below_the_level);
    tcase_add_test(log, log_json_is_valid_for_any_bytes);
    tcase_add_test(log, log_json_keeps_text_as_it_is);
}
