// arguments: the command line against the table of commands, by getopt_long; and --help, written from the same table.
#pragma once
#include "cli/command.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

extern const struct command_option arguments_global_options[];

// Fills command, arguments, given and json of *cli. --help and --version print to stdout and set *ret_exit. Anything
// else that is not a whole command is ERROR_USAGE and names what is wrong. Global options may stand before the command.
bool arguments_parse(const struct command *table, int argc, char **argv, struct cli *cli, bool *ret_exit,
                     struct error *ret_error);

// The tree of the commands whose path begins with prefix ("" for all).
void arguments_print_tree(FILE *file, const struct command *table, const char *prefix);
void arguments_print_command(FILE *file, const struct command *command);

// Options of the command that runs. The flag must be in its table. The last one given wins.
bool option_given(const struct cli *cli, const char *flag);
const char *option_value(const struct cli *cli, const char *flag); // view; NULL when not given
// Calls each for every value given, in order, and for each part of a value where separator is not 0. False as soon as
// each returns false.
bool option_each(const struct cli *cli, const char *flag, char separator, bool (*each)(void *arg, const char *value),
                 void *arg);
// True when the flag was not given, or is one of these (ends with NULL).
bool option_choice(const struct cli *cli, const char *flag, const char *const *choices, struct error *ret_error);
// *ret_value is left alone when the flag was not given.
bool option_integer(const struct cli *cli, const char *flag, int64_t least, int64_t most, int64_t *ret_value,
                    struct error *ret_error);
