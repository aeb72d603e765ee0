// doctor: what is wrong with this installation, and what to do about it. Exit 5 when there is something.
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/clock.h"
#include <inttypes.h>
#include <stdio.h>

static void print_problems(const PGresult *problems) {
    for (int row = 0; row < PQntuples(problems); row++) {
        output_text(PQgetvalue(problems, row, 0));
        fputs(": ", stdout);
        output_text(PQgetvalue(problems, row, 1));
        if (!PQgetisnull(problems, row, 2) && *PQgetvalue(problems, row, 2)) {
            fputs(" (", stdout);
            output_text(PQgetvalue(problems, row, 2));
            putchar(')');
        }
        fputs("\n    ", stdout);
        output_text(PQgetvalue(problems, row, 3));
        putchar('\n');
    }
}

bool run_doctor(struct cli *cli, struct error *ret_error) {
    PGresult *problems = NULL;
    char now[24];
    snprintf(now, sizeof now, "%" PRId64, clock_wall_us() / 1000000);
    if (!cli_connect(cli, CONNECT_FOR_DOCTOR, ret_error) ||
        !cli_query(cli, &sql_doctor, 1, (const char *const[]){now}, &problems, ret_error))
        return false;
    int count = PQntuples(problems);
    if (cli->json)
        output_json(output_json_rows(problems));
    else if (count == 0)
        puts("nothing is wrong");
    else
        print_problems(problems);
    PQclear(problems);
    return count == 0 || error_set(ret_error, ERROR_PROBLEMS, "doctor: %d problem%s", count, count == 1 ? "" : "s");
}
