#include "cli/output.h"
#include "common/buffer.h"
#include "common/memory.h"
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    OID_BOOL = 16,
    OID_INT8 = 20,
    OID_INT2 = 21,
    OID_INT4 = 23,
    OID_JSON = 114,
    OID_FLOAT4 = 700,
    OID_FLOAT8 = 701,
    OID_INT4_ARRAY = 1007,
    OID_TEXT_ARRAY = 1009,
    OID_INT8_ARRAY = 1016,
    OID_NAME_ARRAY = 1003,
    OID_TIMESTAMPTZ = 1184,
    OID_NUMERIC = 1700,
    OID_JSONB = 3802,
};

static bool is_number(Oid type) {
    return type == OID_INT2 || type == OID_INT4 || type == OID_INT8 || type == OID_FLOAT4 || type == OID_FLOAT8 ||
           type == OID_NUMERIC;
}

static bool is_array(Oid type) {
    return type == OID_TEXT_ARRAY || type == OID_NAME_ARRAY || type == OID_INT4_ARRAY || type == OID_INT8_ARRAY;
}

// Calls each for every element of a one-dimensional array in PostgreSQL's text form; NULL for a NULL element.
static void each_element(const char *array, void (*each)(void *arg, const char *element), void *arg) {
    struct buffer element = {0};
    const char *at = array + (array[0] == '{');
    while (*at != 0 && *at != '}') {
        buffer_clear(&element);
        bool quoted = *at == '"';
        if (quoted) {
            for (at++; *at != 0 && *at != '"'; at++) {
                if (*at == '\\' && at[1] != 0)
                    at++;
                buffer_char(&element, *at);
            }
            at += *at == '"';
        } else {
            for (; *at != 0 && *at != ',' && *at != '}'; at++)
                buffer_char(&element, *at);
        }
        each(arg, !quoted && strcmp(buffer_cstr(&element), "NULL") == 0 ? NULL : buffer_cstr(&element));
        at += *at == ',';
    }
    buffer_free(&element);
}

struct joined {
    struct buffer *cell;
    int count;
};

static void join_element(void *arg, const char *element) {
    struct joined *joined = arg;
    if (joined->count++ > 0)
        buffer_text(joined->cell, ", ");
    buffer_text(joined->cell, element != NULL ? element : "-");
}

static void append_printable(struct buffer *to, const char *text) {
    for (const unsigned char *at = (const unsigned char *)text; *at != 0; at++) {
        // C0, DEL, and C1 in UTF-8 (C2 80 to C2 9F).
        if (*at < 0x20 || *at == 0x7f)
            buffer_format(to, "\\x%02x", *at);
        else if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
            buffer_format(to, "\\x%02x", *++at);
        else
            buffer_char(to, (char)*at);
    }
}

void output_text(const char *text) {
    struct buffer safe = {0};
    append_printable(&safe, text);
    fputs(buffer_cstr(&safe), stdout);
    buffer_free(&safe);
}

// "2026-11-29 20:51:20.123456+00" for people without its fraction, for programs as RFC 3339.
static void append_time(struct buffer *to, const char *text, bool json) {
    char separator = json ? 'T' : ' ';
    bool in_fraction = false;
    for (const char *at = text; *at != 0 && *at != '+'; at++) {
        in_fraction |= *at == '.';
        if (!in_fraction || json)
            buffer_char(to, *at == ' ' ? separator : *at);
    }
    buffer_char(to, 'Z');
}

static void append_cell(struct buffer *to, const PGresult *result, int row, int column) {
    const char *value = PQgetvalue(result, row, column);
    Oid type = PQftype(result, column);
    if (PQgetisnull(result, row, column)) {
        buffer_text(to, "-");
    } else if (type == OID_BOOL) {
        buffer_text(to, value[0] == 't' ? "yes" : "no");
    } else if (type == OID_TIMESTAMPTZ) {
        append_time(to, value, false);
    } else if (is_array(type)) {
        struct buffer text = {0};
        each_element(value, join_element, &(struct joined){&text, 0});
        append_printable(to, text.length > 0 ? buffer_cstr(&text) : "-");
        buffer_free(&text);
    } else {
        append_printable(to, value[0] != 0 ? value : "-");
    }
}

static size_t code_points(const char *text) {
    size_t count = 0;
    for (; *text != 0; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

// Bytes of the first `count` code points.
static size_t code_points_bytes(const char *text, size_t count) {
    const char *at = text;
    while (*at != 0 && (count > 0 || ((unsigned char)*at & 0xc0) == 0x80)) {
        count -= ((unsigned char)*at & 0xc0) != 0x80;
        at++;
    }
    return (size_t)(at - text);
}

// 0 when stdout is not a terminal: nothing is cut.
static size_t terminal_width(void) {
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

static void append_padded(struct buffer *line, const char *cell, size_t width, bool right, bool last) {
    size_t padding = width - code_points(cell);
    if (right)
        buffer_format(line, "%*s%s", (int)padding, "", cell);
    else
        buffer_format(line, "%s%*s", cell, last ? 0 : (int)padding, "");
    if (!last)
        buffer_text(line, "  ");
}

static void print_line(const struct buffer *line, size_t width, bool bold) {
    const char *text = buffer_cstr(line);
    size_t bytes = width > 0 ? code_points_bytes(text, width) : line->length;
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    printf("%s%.*s%s\n", bold ? "\033[1m" : "", (int)bytes, text, bold ? "\033[0m" : "");
}

static void append_title(struct buffer *to, const PGresult *result, int column) {
    for (const char *at = PQfname(result, column); *at != 0; at++)
        buffer_char(to, *at == '_' ? ' ' : *at);
}

void output_table(const PGresult *result) {
    int rows = PQntuples(result), columns = PQnfields(result);
    if (rows == 0) {
        puts("none");
        return;
    }
    // Row 0 of the cells is the header.
    struct buffer *cells = memory_alloc((size_t)(rows + 1) * (size_t)columns * sizeof(*cells));
    size_t *widths = memory_alloc((size_t)columns * sizeof(*widths));
    for (int row = 0; row <= rows; row++)
        for (int column = 0; column < columns; column++) {
            struct buffer *cell = &cells[row * columns + column];
            if (row == 0)
                append_title(cell, result, column);
            else
                append_cell(cell, result, row - 1, column);
            size_t width = code_points(buffer_cstr(cell));
            if (width > widths[column])
                widths[column] = width;
        }
    size_t width = terminal_width();
    struct buffer line = {0};
    for (int row = 0; row <= rows; row++) {
        buffer_clear(&line);
        for (int column = 0; column < columns; column++)
            append_padded(&line, buffer_cstr(&cells[row * columns + column]), widths[column],
                          is_number(PQftype(result, column)), column == columns - 1);
        print_line(&line, width, row == 0 && isatty(STDOUT_FILENO));
    }
    buffer_free(&line);
    for (int i = 0; i < (rows + 1) * columns; i++)
        buffer_free(&cells[i]);
    free(cells);
    free(widths);
}

void output_record(const PGresult *result, int row) {
    size_t width = 0;
    for (int column = 0; column < PQnfields(result); column++)
        if (strlen(PQfname(result, column)) > width)
            width = strlen(PQfname(result, column));
    struct buffer line = {0};
    for (int column = 0; column < PQnfields(result); column++) {
        struct buffer title = {0};
        append_title(&title, result, column);
        buffer_clear(&line);
        append_padded(&line, buffer_cstr(&title), width, false, false);
        append_cell(&line, result, row, column);
        puts(buffer_cstr(&line));
        buffer_free(&title);
    }
    buffer_free(&line);
}

// PostgreSQL wrote it, so it is JSON; json-c would change big numbers and repeated keys by parsing it.
static int write_verbatim(struct json_object *json, struct printbuf *to, int level, int flags) {
    const char *text = json_object_get_userdata(json);
    return printbuf_memappend(to, text, (int)strlen(text));
}

static json_object *verbatim(const char *text) {
    json_object *json = json_object_new_object();
    json_object_set_serializer(json, write_verbatim, memory_copy_text(text), json_object_free_userdata);
    return json;
}

struct json_elements {
    json_object *array;
    bool numbers;
};

static void add_element(void *arg, const char *element) {
    struct json_elements *elements = arg;
    json_object *json = NULL;
    if (element != NULL)
        json = elements->numbers ? verbatim(element) : json_object_new_string(element);
    json_object_array_add(elements->array, json);
}

static json_object *json_cell(const PGresult *result, int row, int column) {
    const char *value = PQgetvalue(result, row, column);
    Oid type = PQftype(result, column);
    if (PQgetisnull(result, row, column))
        return NULL;
    if (type == OID_BOOL)
        return json_object_new_boolean(value[0] == 't');
    // NaN and Infinity are numbers to PostgreSQL and not to JSON.
    if (type == OID_JSON || type == OID_JSONB || (is_number(type) && !isalpha((unsigned char)value[value[0] == '-'])))
        return verbatim(value);
    if (is_array(type)) {
        struct json_elements elements = {json_object_new_array(), type == OID_INT4_ARRAY || type == OID_INT8_ARRAY};
        each_element(value, add_element, &elements);
        return elements.array;
    }
    if (type != OID_TIMESTAMPTZ)
        return json_object_new_string(value);
    struct buffer time = {0};
    append_time(&time, value, true);
    json_object *json = json_object_new_string(buffer_cstr(&time));
    buffer_free(&time);
    return json;
}

json_object *output_json_row(const PGresult *result, int row) {
    json_object *object = json_object_new_object();
    for (int column = 0; column < PQnfields(result); column++)
        json_object_object_add(object, PQfname(result, column), json_cell(result, row, column));
    return object;
}

json_object *output_json_rows(const PGresult *result) {
    json_object *array = json_object_new_array();
    for (int row = 0; row < PQntuples(result); row++)
        json_object_array_add(array, output_json_row(result, row));
    return array;
}

void output_json(json_object *json) {
    puts(json_object_to_json_string_ext(json, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE));
    json_object_put(json);
}

void output_rows(const PGresult *result, bool json) {
    if (json)
        output_json(output_json_rows(result));
    else
        output_table(result);
}
