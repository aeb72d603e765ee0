// parameters: what people type on the command line, as parameters of SQL statements.
#pragma once
#include "cli/command.h"
#include "common/buffer.h"

// The values of a repeatable flag as the literal of a PostgreSQL array; a value is split at separator (0: not). The
// view is NULL when the flag was not given, and valid as long as *buffer.
const char *parameter_array(const struct cli *cli, const char *flag, char separator, struct buffer *buffer);
void parameter_array_add(struct buffer *buffer, const char *element); // the literal without its closing brace

// An event's seq (decimal) or id (UUID)?
bool parameter_is_event(const char *text);
bool parameter_event(const char *text, struct error *ret_error); // ERROR_USAGE names what is neither
// Like parameter_array, of --id: ERROR_USAGE names what is neither seq nor UUID.
bool parameter_events(const struct cli *cli, struct buffer *buffer, const char **ret_array, struct error *ret_error);

// A flag that takes a time ("2026-11-29 20:00", in UTC unless it says so) or an age ("2h": so long before the
// database's now). *ret_time is owned, NULL when not given; the session must be connected. ERROR_USAGE when it is
// neither.
bool parameter_time(struct cli *cli, const char *flag, char **ret_time, struct error *ret_error);
