// log: one line an event, logfmt or JSON, to stderr. Event names are stable words (claim_failed); values carry
// the particulars. Never payloads, never secrets.
//
//   log_info("relay_started", LOG_INT("batch_size", 200), LOG_TEXT("admin", "127.0.0.1:40001"));
//   -> time=2026-11-29T20:39:22.123Z level=info event=relay_started process=rowbell-relay batch_size=200 admin=...
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log_field {
    const char *key; // NULL ends the list
    enum { LOG_FIELD_TEXT, LOG_FIELD_INT, LOG_FIELD_DOUBLE, LOG_FIELD_BOOL } kind;
    union {
        const char *text; // NULL prints as empty
        int64_t integer;
        double number;
        bool flag;
    };
};
#define LOG_TEXT(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_TEXT, .text = (v)})
#define LOG_INT(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_INT, .integer = (int64_t)(v)})
#define LOG_DOUBLE(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_DOUBLE, .number = (v)})
#define LOG_BOOL(k, v) ((struct log_field){.key = (k), .kind = LOG_FIELD_BOOL, .flag = (v)})
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){.key = 0}})

void log_init(const char *process_name, enum log_level level, enum log_format format); // keeps process_name
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields);

#define log_debug(event, ...) log_write(LOG_DEBUG, event, LOG_FIELDS(__VA_ARGS__))
#define log_info(event, ...) log_write(LOG_INFO, event, LOG_FIELDS(__VA_ARGS__))
#define log_warn(event, ...) log_write(LOG_WARN, event, LOG_FIELDS(__VA_ARGS__))
#define log_error(event, ...) log_write(LOG_ERROR, event, LOG_FIELDS(__VA_ARGS__))
