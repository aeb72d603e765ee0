// publish and unpublish: start and stop capturing a table. The work is rowbell.publish's, in SQL.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/parameters.h"
#include "cli/sql.h"
#include "common/memory.h"
#include <stdio.h>
#include <string.h>

struct relation {
    PGresult *row;    // owned
    const char *oid;  // view
    const char *name; // view; "public.posts"
};

static bool relation_find(struct cli *cli, struct relation *relation, struct error *ret_error) {
    const char *values[] = {cli->arguments[0], cli->search_path};
    bool ok = cli_query(cli, &sql_relation_find, 2, values, &relation->row, ret_error);
    // 42601, 42602, 0A000: not the name of anything ("a..b").
    bool no_name = !ok && (strncmp(ret_error->sqlstate, "4260", 4) == 0 || strcmp(ret_error->sqlstate, "0A000") == 0);
    if (!ok && !no_name)
        return false;
    if (no_name || PQgetisnull(relation->row, 0, 0))
        return error_set(
            ret_error, ERROR_SQL,
            "there is no table %s: check its name, and put its schema before it if it is not on the search_path",
            cli->arguments[0]);
    relation->oid = PQgetvalue(relation->row, 0, 0);
    relation->name = PQgetvalue(relation->row, 0, 1);
    return true;
}

static void print_published(const PGresult *published, const struct relation *relation, bool json) {
    bool readable = published != NULL && PQntuples(published) == 1;
    if (json && readable) {
        output_json(output_json_row(published, 0));
    } else if (json) {
        json_object *row = json_object_new_object();
        json_object_object_add(row, "relation", json_object_new_string(relation->name));
        output_json(row);
    } else {
        printf("every change of %s is captured from now on\n", relation->name);
        if (readable)
            output_record(published, 0);
    }
}

bool run_publish(struct cli *cli, struct error *ret_error) {
    struct relation relation = {0};
    struct buffer watch = {0}, key = {0};
    PGresult *published = NULL;
    bool ok = cli_connect(cli, CONNECT_FOR_PUBLISH, ret_error) && relation_find(cli, &relation, ret_error);
    if (!ok)
        goto done;
    const char *values[] = {
        relation.oid,
        option_value(cli, "scope"),
        option_value(cli, "soft-delete"),
        parameter_array(cli, "watch", ',', &watch),
        parameter_array(cli, "key", ',', &key),
        option_value(cli, "name"),
        option_given(cli, "no-webhook") ? "false" : "true",
        option_value(cli, "capture"),
        option_value(cli, "lastval"),
    };
    ok = cli_query(cli, &sql_publish, 9, values, NULL, ret_error);
    if (!ok)
        goto done;
    // An owner of a table need not be allowed to read our tables: then less is printed.
    struct error unreadable = {0};
    const char *shown[] = {relation.oid, relation.name};
    if (!cli_query(cli, &sql_published_show, 2, shown, &published, &unreadable))
        published = NULL;
    print_published(published, &relation, cli->json);
done:
    PQclear(published);
    PQclear(relation.row);
    buffer_free(&watch);
    buffer_free(&key);
    return ok;
}

bool run_unpublish(struct cli *cli, struct error *ret_error) {
    struct relation relation = {0};
    PGresult *result = NULL;
    bool ok = cli_connect(cli, CONNECT_FOR_PUBLISH, ret_error) && relation_find(cli, &relation, ret_error) &&
              cli_query(cli, &sql_unpublish, 1, &relation.oid, &result, ret_error);
    if (ok && cli->json)
        output_json(output_json_row(result, 0));
    else if (ok)
        printf(PQgetvalue(result, 0, 0)[0] == 't' ? "%s is not captured any more\n" : "%s was not published\n",
               relation.name);
    PQclear(result);
    PQclear(relation.row);
    return ok;
}
