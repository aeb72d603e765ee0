// output: results for people and for programs.
//
// People get aligned columns: a header, one line a row, cut to the terminal's width when stdout is a terminal. Control
// characters are shown as \xNN, so that nothing stored in the database can drive the terminal. NULL is "-".
// Programs (--json) get one JSON document: an array for a list, an object for one thing. Names are the SQL columns';
// int, bool and json columns keep their kind, timestamps are RFC 3339 in UTC, text[] and int[] are arrays.
#pragma once
#include <json-c/json.h>
#include <libpq-fe.h>
#include <stdbool.h>

void output_table(const PGresult *result);           // columns, for people
void output_record(const PGresult *result, int row); // "name  value" lines, for people

json_object *output_json_row(const PGresult *result, int row); // returns owned
json_object *output_json_rows(const PGresult *result);         // returns owned; an array
void output_json(json_object *json);                           // takes; one document and a newline

// A list, in the form that was asked for.
void output_rows(const PGresult *result, bool json);
// Text from elsewhere, safe for a terminal.
void output_text(const char *text);
