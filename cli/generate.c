// generate client: TypeScript for an application's pages. `queryKeys` to read with, and `keysByTable`, which says for
// each published table what of that a change touches. client/rowbell.js takes the latter; docs/stream.md shows both at
// work.
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/connect.h"
#include "cli/output.h"
#include "cli/sql.h"
#include "common/buffer.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char head[] =
    "// Written by `rowbell generate client` from the published tables: run it again after `rowbell publish`.\n";

static const char queries_comment[] = "// What to read with: every query of a table begins with `all`, those of many "
                                      "rows with `list`, and that of one row is\n"
                                      "// `row`.\n";

static const char keys_comment[] =
    "// For connect(): the queries that a change touches. An empty key is the whole collection.\n";

static bool is_identifier(const char *text) {
    if (text[0] == 0 || isdigit((unsigned char)text[0]))
        return false;
    for (; *text != 0; text++)
        if ((unsigned char)*text >= 128 || (!isalnum((unsigned char)*text) && *text != '_' && *text != '$'))
            return false;
    return true;
}

static void append_string(struct buffer *out, const char *text) {
    buffer_json_string(out, text, strlen(text));
}

// The table as a property. What is no identifier is computed; so is __proto__, which would set the prototype.
static void append_property(struct buffer *out, const char *table) {
    bool plain = is_identifier(table) && strcmp(table, "__proto__") != 0;
    buffer_text(out, plain ? "  " : "  [");
    if (plain)
        buffer_text(out, table);
    else
        append_string(out, table);
    buffer_text(out, plain ? ": " : "]: ");
}

static void append_array(struct buffer *out, json_object *key, bool names) {
    for (size_t i = 0; i < json_object_array_length(key); i++) {
        buffer_text(out, i > 0 ? ", " : "");
        if (names)
            append_string(out, json_object_get_string(json_object_array_get_idx(key, i)));
        else
            buffer_text(out, "Part");
    }
}

static void append_queries(struct buffer *out, const char *table, json_object *key) {
    append_property(out, table);
    buffer_text(out, "{\n    all: [");
    append_string(out, table);
    buffer_text(out, "],\n    list: (...filter: unknown[]) => [");
    append_string(out, table);
    buffer_text(out, ", \"list\", ...filter] as const,\n");
    if (json_object_array_length(key) > 0) {
        buffer_text(out, "    // of the key ");
        append_array(out, key, true);
        buffer_text(out, "\n    row: (...key: [");
        append_array(out, key, false);
        buffer_text(out, "]) => [");
        append_string(out, table);
        buffer_text(out, ", \"row\", rowKey(...key)] as const,\n");
    }
    buffer_text(out, "  },\n");
}

static void append_keys(struct buffer *out, const char *table, json_object *key) {
    append_property(out, table);
    if (json_object_array_length(key) == 0) {
        buffer_text(out, "[[");
        append_string(out, table);
        buffer_text(out, "]],\n");
        return;
    }
    buffer_text(out, "(key: string) => (key === \"\" ? [[");
    append_string(out, table);
    buffer_text(out, "]] : [[");
    append_string(out, table);
    buffer_text(out, ", \"list\"], [");
    append_string(out, table);
    buffer_text(out, ", \"row\", key]]),\n");
}

static void append_each(struct buffer *out, const PGresult *tables,
                        void (*append)(struct buffer *out, const char *table, json_object *key)) {
    for (int row = 0; row < PQntuples(tables); row++) {
        json_object *key = json_tokener_parse(PQgetvalue(tables, row, 1));
        append(out, PQgetvalue(tables, row, 0), key);
        json_object_put(key);
    }
}

static void append_name(struct buffer *out, const char *table, json_object *key) {
    buffer_text(out, "  ");
    append_string(out, table);
    buffer_text(out, ",\n");
}

static void write_typescript(const PGresult *tables, const char *module) {
    struct buffer out = {0};
    buffer_format(&out, "%simport { rowKey, type KeysByTable } from ", head);
    append_string(&out, module);
    buffer_text(&out, ";\n\ntype Part = Parameters<typeof rowKey>[number];\n\n"
                      "// The published tables by their names on the wire.\nexport const tables = [\n");
    append_each(&out, tables, append_name);
    buffer_format(&out, "] as const;\n\n%sexport const queryKeys = {\n", queries_comment);
    append_each(&out, tables, append_queries);
    buffer_format(&out, "} as const;\n\n%sexport const keysByTable = {\n", keys_comment);
    append_each(&out, tables, append_keys);
    buffer_text(&out, "} satisfies KeysByTable;\n");
    fwrite(out.bytes, 1, out.length, stdout);
    buffer_free(&out);
}

bool run_generate_client(struct cli *cli, struct error *ret_error) {
    PGresult *tables = NULL;
    const char *module = option_value(cli, "module");
    if (!cli_connect(cli, CONNECT_FOR_WORK, ret_error) ||
        !cli_query(cli, &sql_generate_client, 0, NULL, &tables, ret_error))
        return false;
    if (cli->json)
        output_rows(tables, true);
    else
        write_typescript(tables, module != NULL ? module : "rowbell");
    PQclear(tables);
    return true;
}
