// rowbell: the program for people. This file is the table of its commands; --help is printed from it.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include <stdio.h>
#include <stdlib.h>

static const struct command_option migrate_options[] = {
    {"status", NULL, "list the migrations: name, applied at, state"},
    {"dry-run", NULL, "say what would be applied, and change nothing"},
    {"print", NULL, "write the SQL for psql to stdout; needs no database"},
    {"no-roles", NULL, "create and use no roles: for managed databases"},
    {0},
};

static const struct command commands[] = {
    {"migrate", "", 0, 0, "Create the schema in the database, or bring it up to this program's version",
     migrate_options, run_migrate},
    {0},
};

int main(int argc, char **argv) {
    struct cli cli = {0};
    struct error error = {0};
    bool exit_early = false;
    bool ok = arguments_parse(commands, argc, argv, &cli, &exit_early, &error);
    if (ok && !exit_early)
        ok = cli.command->run(&cli, &error);
    cli_disconnect(&cli);
    free(cli.given);
    if (ok && (fflush(stdout) != 0 || ferror(stdout)))
        ok = error_set(&error, ERROR_IO, "standard output: %m");
    if (ok)
        return 0;
    fflush(stdout);
    fprintf(stderr, "rowbell: %s\n", error.text);
    return error_exit_status(&error);
}
