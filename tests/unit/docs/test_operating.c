// docs/operating.md lists every flag and every metric as the tables of the programs have them (config.def,
// metrics.def). ROWBELL_TEST_WRITE_DOCS=1 writes these lists anew.
#include "common/buffer.h"
#include "tests/support/fixture.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char path[] = SOURCE_ROOT "/docs/operating.md";

struct option_row {
    const char *flag, *fallback, *argument, *help;
};
struct metric_row {
    const char *kind, *name, *labels, *help;
};

#define OPTION(kind, field, flag, fallback, argument, help) {flag, fallback, argument, help},
static const struct option_row common_options[] = {
#include "common/config.def"
    {0}};
static const struct option_row relay_options[] = {
#include "relay/config.def"
    {0}};
static const struct option_row dispatcher_options[] = {
#include "dispatcher/config.def"
    {0}};
static const struct option_row gateway_options[] = {
#include "gateway/config.def"
    {0}};
#undef OPTION

#define METRIC(kind, id, name, labels, help) {#kind, name, labels, help},
static const struct metric_row relay_metrics[] = {
#include "relay/metrics.def"
    {0}};
static const struct metric_row dispatcher_metrics[] = {
#include "dispatcher/metrics.def"
    {0}};
static const struct metric_row gateway_metrics[] = {
#include "gateway/metrics.def"
    {0}};
#undef METRIC

static const struct list {
    const char *marker;
    const struct option_row *options; // one of the two
    const struct metric_row *metrics;
} lists[] = {
    {"<!-- flags of every process -->\n", common_options, NULL},
    {"<!-- flags of rowbell-relay -->\n", relay_options, NULL},
    {"<!-- flags of rowbell-dispatcher -->\n", dispatcher_options, NULL},
    {"<!-- flags of rowbell-gateway -->\n", gateway_options, NULL},
    {"<!-- metrics of rowbell-relay -->\n", NULL, relay_metrics},
    {"<!-- metrics of rowbell-dispatcher -->\n", NULL, dispatcher_metrics},
    {"<!-- metrics of rowbell-gateway -->\n", NULL, gateway_metrics},
};
static const char list_end[] = "<!-- end -->\n";

// A bar would end the cell.
static void add_cell(struct buffer *text, const char *cell) {
    for (; *cell; cell++) {
        if (*cell == '|')
            buffer_char(text, '\\');
        buffer_char(text, *cell);
    }
}

static void add_list(struct buffer *text, const struct list *list) {
    buffer_text(text, list->options ? "| flag | default | |\n|---|---|---|\n"
                                    : "| metric | kind, labels | |\n|---|---|---|\n");
    for (const struct option_row *row = list->options; row && row->flag; row++) {
        buffer_format(text, "| `--%s%s", row->flag, row->argument ? " " : "");
        add_cell(text, row->argument ? row->argument : "");
        buffer_text(text, row->fallback && *row->fallback ? "` | `" : "` | ");
        add_cell(text, row->fallback ? row->fallback : "");
        buffer_text(text, row->fallback && *row->fallback ? "` | " : "| ");
        add_cell(text, row->help);
        buffer_text(text, " |\n");
    }
    for (const struct metric_row *row = list->metrics; row && row->name; row++) {
        buffer_format(text, "| `%s` | ", row->name);
        for (const char *at = row->kind; *at; at++)
            buffer_char(text, (char)(*at + ('a' - 'A')));
        buffer_format(text, "%s%s | ", *row->labels ? "; " : "", row->labels);
        add_cell(text, row->help);
        buffer_text(text, " |\n");
    }
}

// The page with each list as it must be.
static void expected_page(const char *page, struct buffer *expected) {
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *begin = strstr(page, lists[i].marker);
        ck_assert_msg(begin != NULL, "%s has no line %s", path, lists[i].marker);
        begin += strlen(lists[i].marker);
        const char *end = strstr(begin, list_end);
        ck_assert_msg(end != NULL, "the list after %s does not end", lists[i].marker);
        buffer_append(expected, page, (size_t)(begin - page));
        add_list(expected, &lists[i]);
        page = end;
    }
    buffer_text(expected, page);
}

START_TEST(operating_lists_every_flag_and_metric) {
    static char page[131072];
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "there is no %s", path);
    page[fread(page, 1, sizeof page - 1, file)] = '\0';
    fclose(file);
    struct buffer expected = {0};
    expected_page(page, &expected);
    if (getenv("ROWBELL_TEST_WRITE_DOCS") != NULL) {
        file = fopen(path, "w");
        ck_assert_ptr_nonnull(file);
        fputs(expected.bytes, file);
        ck_assert_int_eq(fclose(file), 0);
    } else if (strcmp(page, expected.bytes) != 0) {
        size_t at = 0;
        while (page[at] == expected.bytes[at])
            at++;
        ck_abort_msg("%s differs from the tables near \"%.60s\": run this test with ROWBELL_TEST_WRITE_DOCS=1", path,
                     expected.bytes + at);
    }
    buffer_free(&expected);
}
END_TEST

static void add_tests(Suite *suite) {
    TCase *operating = suite_case(suite, "operating", 10);
    tcase_add_test(operating, operating_lists_every_flag_and_metric);
}

int main(void) {
    return suite_main("docs", add_tests);
}
