// rowbell: the program for people. Its commands: cli/commands.c.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "common/process.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    process_keep_memory_private();
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
