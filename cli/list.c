#include "cli/list.h"
#include "cli/arguments.h"
#include "cli/connect.h"
#include "cli/output.h"
#include <inttypes.h>
#include <stdio.h>

bool list_rows(struct cli *cli, const struct db_statement *statement, int value_count, const char *const *values,
               struct error *ret_error) {
    PGresult *rows;
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, statement, value_count, values, &rows, ret_error))
        return false;
    output_rows(rows, cli->json);
    PQclear(rows);
    return true;
}

bool list_some(struct cli *cli, const struct db_statement *statement, const char *choice_flag,
               const char *const *choices, const char *other_flag, struct error *ret_error) {
    int64_t limit = 50;
    char limit_text[24];
    if (!option_integer(cli, "limit", 1, 100000, &limit, ret_error) ||
        !option_choice(cli, choice_flag, choices, ret_error))
        return false;
    snprintf(limit_text, sizeof(limit_text), "%" PRId64, limit);
    const char *values[] = {limit_text, option_value(cli, choice_flag), option_value(cli, other_flag)};
    return list_rows(cli, statement, 3, values, ret_error);
}
