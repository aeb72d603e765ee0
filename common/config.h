// config: one table a process gives the parser, --help and the docs. The table is a `config.def` of OPTION lines; see
// common/config.def for its columns. Kinds and the C type of their field:
//   STRING const char * (view of argv, the environment or the default) | INT long | FLAG bool (a flag without argument)
//   DURATION long, milliseconds ("200ms", "5s", "1m", "24h", "7d"; a bare number is refused) | LIST struct config_list
//   (the flag may be repeated; a variable is split at commas)
// A STRING whose argument is words between bars ("logfmt|json") takes only these. INT is 0 to 2147483647.
#pragma once
#include "common/error.h"
#include <stdbool.h>
#include <stddef.h>

struct config_list {
    const char **items; // owned by the config; views inside
    size_t count;
};

#define CONFIG_TYPE_STRING const char *
#define CONFIG_TYPE_INT long
#define CONFIG_TYPE_FLAG bool
#define CONFIG_TYPE_DURATION long
#define CONFIG_TYPE_LIST struct config_list

enum config_kind { CONFIG_STRING, CONFIG_INT, CONFIG_FLAG, CONFIG_DURATION, CONFIG_LIST };

struct config_option {
    enum config_kind kind;
    size_t offset; // of the field in the struct that is filled
    const char *flag;
    const char *fallback; // parsed like a given value; NULL leaves the field zero
    const char *argument; // for --help
    const char *help;
};

// The fields of common/config.def. Each process's config struct has it as its first member, named `common`.
struct config_common {
#define OPTION(kind, field, flag, fallback, argument, help) CONFIG_TYPE_##kind field;
#include "common/config.def"
#undef OPTION
};

// A program: its name, one sentence, and its own table (the common one is implied).
struct config_program {
    const char *name;
    const char *summary;
    const struct config_option *options;
    size_t option_count;
};

// Fills `config` (its first member is a struct config_common). An unknown flag, a bad value or a stray argument is
// ERROR_USAGE and names the flag or variable and what it takes. `--help` and `--version` print to stdout and set
// *ret_exit. Unknown ROWBELL_* variables are not an error.
bool config_parse(const struct config_program *program, int argc, char **argv, void *config, bool *ret_exit,
                  struct error *ret_error);
bool config_parse_duration_ms(const char *text, long *ret_ms, struct error *ret_error);
// "127.0.0.1:8080", "[::1]:0", "0.0.0.0:80"; host must be an IP address. *ret_host is at least 64 bytes.
bool config_parse_address(const char *text, char *ret_host, size_t host_size, int *ret_port, struct error *ret_error);
void config_free(const struct config_program *program, void *config); // lists only
