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

static void print_json(const PGresult *schema, const PGresult *problems) {
    json_object *rows = output_json_rows(schema), *more = problems != NULL ? output_json_rows(problems) : NULL;
    for (size_t i = 0; more != NULL && i < json_object_array_length(more); i++)
        json_object_array_add(rows, json_object_get(json_object_array_get_idx(more, i)));
    json_object_put(more);
    output_json(rows);
}

bool run_doctor(struct cli *cli, struct error *ret_error) {
    PGresult *schema = NULL, *problems = NULL;
    char now[24];
    snprintf(now, sizeof now, "%" PRId64, clock_wall_us() / 1000000);
    if (!cli_connect(cli, CONNECT_FOR_DOCTOR, ret_error) ||
        !cli_query(cli, &sql_doctor_schema, 0, NULL, &schema, ret_error))
        return false;
    // Where something is wrong with the schema, the rest may be unreadable because of it.
    int count = PQntuples(schema);
    bool read = cli_query(cli, &sql_doctor, 1, (const char *const[]){now}, &problems, ret_error);
    if (!read && count == 0) {
        PQclear(schema);
        return false;
    }
    count += PQntuples(problems);
    if (cli->json)
        print_json(schema, problems);
    else if (count == 0)
        puts("nothing is wrong");
    if (!cli->json) {
        print_problems(schema);
        print_problems(problems);
    }
    PQclear(schema);
    PQclear(problems);
    return count == 0 || error_set(ret_error, ERROR_PROBLEMS, "doctor: %d problem%s%s", count, count == 1 ? "" : "s",
                                   read ? "" : "; the rest cannot be read before");
}
