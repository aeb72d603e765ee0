#include "common/log.h"
#include "common/buffer.h"
#include "common/clock.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static struct {
    const char *process_name;
    enum log_level level;
    enum log_format format;
} settings = {"rowbell", LOG_INFO, LOG_LOGFMT};

void log_init(const char *process_name, enum log_level level, enum log_format format) {
    settings.process_name = process_name;
    settings.level = level;
    settings.format = format;
}

bool log_enabled(enum log_level level) {
    return level >= settings.level;
}

// Readers of logfmt split at spaces and at the first `=`: anything beyond plain ASCII words is quoted, as JSON would.
static bool logfmt_plain(const char *text) {
    for (const char *c = text; *c != '\0'; c++)
        if (*c <= ' ' || *c >= 0x7F || *c == '=' || *c == '"' || *c == '\\')
            return false;
    return true;
}

static void write_text(struct buffer *line, const char *text) {
    if (text == NULL)
        text = "";
    if (settings.format == LOG_LOGFMT && logfmt_plain(text))
        buffer_text(line, text);
    else
        buffer_json_string(line, text, strlen(text));
}

static void write_key(struct buffer *line, const char *key) {
    if (settings.format == LOG_JSON) {
        buffer_char(line, line->length == 0 ? '{' : ',');
        buffer_json_string(line, key, strlen(key));
        buffer_char(line, ':');
    } else {
        if (line->length > 0)
            buffer_char(line, ' ');
        buffer_text(line, key);
        buffer_char(line, '=');
    }
}

static void write_text_field(struct buffer *line, const char *key, const char *text) {
    write_key(line, key);
    write_text(line, text);
}

static void write_number(struct buffer *line, double number) {
    if (isfinite(number))
        buffer_format(line, "%.10g", number);
    else
        buffer_text(line, "null"); // JSON has no NaN and no infinity
}

static void write_field(struct buffer *line, const struct log_field *field) {
    write_key(line, field->key);
    switch (field->kind) {
    case LOG_FIELD_TEXT:
        write_text(line, field->text);
        break;
    case LOG_FIELD_INT:
        buffer_format(line, "%" PRId64, field->integer);
        break;
    case LOG_FIELD_DOUBLE:
        write_number(line, field->number);
        break;
    case LOG_FIELD_BOOL:
        buffer_text(line, field->flag ? "true" : "false");
        break;
    }
}

static void write_time(struct buffer *line) {
    int64_t now_us = clock_wall_us();
    time_t seconds = (time_t)(now_us / 1000000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char text[sizeof "2026-11-29T20:39:22"];
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    char stamp[sizeof text + sizeof ".123Z"];
    snprintf(stamp, sizeof stamp, "%s.%03dZ", text, (int)(now_us / 1000 % 1000));
    write_text_field(line, "time", stamp);
}

void log_write(enum log_level level, const char *event, const struct log_field *fields) {
    if (!log_enabled(level))
        return;
    int saved_errno = errno;
    struct buffer line = {0};
    write_time(&line);
    write_text_field(&line, "level", level_names[level]);
    write_text_field(&line, "event", event);
    write_text_field(&line, "process", settings.process_name);
    for (const struct log_field *field = fields; field->key != NULL; field++)
        write_field(&line, field);
    buffer_text(&line, settings.format == LOG_JSON ? "}\n" : "\n");
    // One write a line, so that processes which share a stderr do not cut each other's lines. What cannot be written is
    // dropped: there is nobody to tell.
    for (size_t done = 0; done < line.length;) {
        ssize_t written = write(STDERR_FILENO, line.bytes + done, line.length - done);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    buffer_free(&line);
    errno = saved_errno;
}
