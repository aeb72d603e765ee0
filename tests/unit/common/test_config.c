// config: flags, variables, defaults; errors that name the place and never the secret.
#include "common/config.h"
#include "tests/support/fixture.h"
#include "tests/unit/common/tests.h"
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sample {
    struct config_common common;
    long batch_size;
    long sweep_ms;
    bool once;
    const char *redis_url;
    const char *auth;
    struct config_list egress;
};

static const struct config_option options[] = {
    {CONFIG_INT, offsetof(struct sample, batch_size), "batch-size", "200", "N", "how many events a pass takes"},
    {CONFIG_DURATION, offsetof(struct sample, sweep_ms), "sweep", "60s", "DURATION", "how often it looks anyway"},
    {CONFIG_FLAG, offsetof(struct sample, once), "once", NULL, NULL, "one pass, then the end"},
    {CONFIG_STRING, offsetof(struct sample, redis_url), "redis-url", NULL, "URL", "Redis"},
    {CONFIG_STRING, offsetof(struct sample, auth), "auth", "none", "none|jwt", "who may listen"},
    {CONFIG_LIST, offsetof(struct sample, egress), "allow-egress", NULL, "CIDR",
     "an address range that is allowed although it is private; this text is long so that it has to be wrapped"},
};
static const struct config_program program = {"rowbell-sample", "does what a sample does", options,
                                              sizeof options / sizeof options[0]};

static struct sample sample;
static struct error error;
static bool exit_now;

static bool parse_list(char **argv) {
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    memset(&sample, 0xAA, sizeof sample); // the fields need not be zero before
    memset(&error, 0, sizeof error);
    return config_parse(&program, argc, argv, &sample, &exit_now, &error);
}
#define parse(...) parse_list((char *[]){"rowbell-sample", __VA_ARGS__ __VA_OPT__(, ) NULL})

#define assert_usage(expected)                                                                                         \
    do {                                                                                                               \
        ck_assert_str_eq(error.text, expected);                                                                        \
        ck_assert_int_eq(error.code, ERROR_USAGE);                                                                     \
    } while (0)

static void teardown(void) {
    config_free(&program, &sample);
}

START_TEST(config_defaults) {
    ck_assert(parse());
    ck_assert(!exit_now);
    ck_assert_int_eq(sample.batch_size, 200);
    ck_assert_int_eq(sample.sweep_ms, 60000);
    ck_assert(!sample.once);
    ck_assert_ptr_null(sample.redis_url);
    ck_assert_str_eq(sample.auth, "none");
    ck_assert_uint_eq(sample.egress.count, 0);
    ck_assert_ptr_null(sample.common.database_url);
    ck_assert_str_eq(sample.common.admin_listen, "127.0.0.1:0");
    ck_assert_int_eq(sample.common.drain_ms, 25000);
}
END_TEST

START_TEST(config_flags_in_both_forms) {
    ck_assert(parse("--batch-size", "5", "--sweep=200ms", "--once", "--auth=jwt", "--database-url",
                    "postgres://h/d?a=b", "--log-format", "json"));
    ck_assert_int_eq(sample.batch_size, 5);
    ck_assert_int_eq(sample.sweep_ms, 200);
    ck_assert(sample.once);
    ck_assert_str_eq(sample.auth, "jwt");
    ck_assert_str_eq(sample.common.database_url, "postgres://h/d?a=b");
    ck_assert_str_eq(sample.common.log_format, "json");
    ck_assert(parse("--database-url=postgres://h/d?a=b", "--once=false"));
    ck_assert_str_eq(sample.common.database_url, "postgres://h/d?a=b");
    ck_assert(!sample.once);
}
END_TEST

START_TEST(config_variables_and_who_wins) {
    setenv("ROWBELL_BATCH_SIZE", "7", 1);
    setenv("ROWBELL_ONCE", "yes", 1);
    setenv("ROWBELL_SWEEP", "", 1); // empty is not set
    setenv("DATABASE_URL", "postgres://plain/d", 1);
    setenv("DIRECT_DATABASE_URL", "postgres://direct/d", 1);
    setenv("REDIS_URL", "redis://plain", 1);
    setenv("ROWBELL_REDIS_URL", "redis://ours", 1);
    setenv("ROWBELL_NO_SUCH_FLAG", "x", 1);
    setenv("BATCH_SIZE", "9", 1); // only the URLs go without prefix
    ck_assert(parse());
    ck_assert_int_eq(sample.batch_size, 7);
    ck_assert(sample.once);
    ck_assert_int_eq(sample.sweep_ms, 60000);
    ck_assert_str_eq(sample.common.database_url, "postgres://plain/d");
    ck_assert_str_eq(sample.common.direct_database_url, "postgres://direct/d");
    ck_assert_str_eq(sample.redis_url, "redis://ours");
    ck_assert(parse("--batch-size=8", "--database-url", "postgres://flag/d"));
    ck_assert_int_eq(sample.batch_size, 8);
    ck_assert_str_eq(sample.common.database_url, "postgres://flag/d");
}
END_TEST

START_TEST(config_lists) {
    setenv("ROWBELL_ALLOW_EGRESS", " 10.0.0.0/8, ::1/128 ,,", 1);
    ck_assert(parse());
    ck_assert_uint_eq(sample.egress.count, 2);
    ck_assert_str_eq(sample.egress.items[0], "10.0.0.0/8");
    ck_assert_str_eq(sample.egress.items[1], "::1/128");
    teardown();
    ck_assert(parse("--allow-egress", "127.0.0.1", "--once", "--allow-egress=::1", "--allow-egress=10.0.0.0/8"));
    ck_assert_uint_eq(sample.egress.count, 3);
    ck_assert_str_eq(sample.egress.items[0], "127.0.0.1");
    ck_assert_str_eq(sample.egress.items[2], "10.0.0.0/8");
}
END_TEST

START_TEST(config_errors_name_flag_and_remedy) {
    ck_assert(!parse("--batch-sise", "5"));
    assert_usage("unknown flag --batch-sise; see rowbell-sample --help");
    ck_assert(!parse("--batch-size"));
    assert_usage("--batch-size needs a value: N");
    ck_assert(!parse("--batch-size", "--once"));
    assert_usage("--batch-size needs a value: N");
    ck_assert(!parse("--batch-size=12x"));
    assert_usage("--batch-size: \"12x\" is not a whole number");
    ck_assert(!parse("--batch-size", "-1"));
    assert_usage("--batch-size: \"-1\" is not a whole number");
    ck_assert(!parse("--batch-size="));
    assert_usage("--batch-size: \"\" is not a whole number");
    ck_assert(!parse("--batch-size=2147483648"));
    assert_usage("--batch-size: \"2147483648\" is more than 2147483647");
    ck_assert(!parse("--batch-size=99999999999999999999"));
    assert_usage("--batch-size: \"99999999999999999999\" is more than 2147483647");
    ck_assert(!parse("--sweep=5"));
    assert_usage("--sweep: \"5\" is not a duration such as 200ms, 5s, 1m, 24h or 7d");
    ck_assert(!parse("--once=maybe"));
    assert_usage("--once: \"maybe\" is neither true nor false");
    ck_assert(!parse("--auth", "jw"));
    assert_usage("--auth: \"jw\" is none of none|jwt");
    ck_assert(!parse("--once", "extra"));
    assert_usage("argument 2 (\"extra\") belongs to no flag; see rowbell-sample --help");
    ck_assert(!parse("--log-level=trace"));
    assert_usage("--log-level: \"trace\" is none of debug|info|warn|error");
}
END_TEST

START_TEST(config_errors_name_the_variable) {
    setenv("ROWBELL_SWEEP", "soon", 1);
    ck_assert(!parse());
    assert_usage("ROWBELL_SWEEP: \"soon\" is not a duration such as 200ms, 5s, 1m, 24h or 7d");
    setenv("ROWBELL_SWEEP", "1s", 1);
    setenv("ROWBELL_BATCH_SIZE", "many", 1);
    ck_assert(!parse("--allow-egress", "::1"));
    assert_usage("ROWBELL_BATCH_SIZE: \"many\" is not a whole number");
}
END_TEST

START_TEST(config_errors_never_show_a_secret) {
    static const char *const secrets[] = {"postgres://u:hunter2@h/d", "host=h password=hunter2", "whsec_hunter2",
                                          "u:hunter2@h", "hunter2-hunter2-hunter2-hunter2-hunter2-hunter2"};
    for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++) {
        char *secret = (char *)secrets[i];
        char attached[200];
        char *const tries[][2] = {{secret, NULL},     {"--batch-size", secret}, {"--sweep", secret},
                                  {"--auth", secret}, {"--once", secret},       {attached, NULL}};
        for (size_t t = 0; t < sizeof tries / sizeof tries[0]; t++) {
            snprintf(attached, sizeof attached, "--databse-url=%s", secret);
            ck_assert(!parse_list((char *[]){"rowbell-sample", tries[t][0], tries[t][1], NULL}));
            ck_assert_int_eq(error.code, ERROR_USAGE);
            ck_assert_msg(strstr(error.text, "hunter2") == NULL, "%s", error.text);
        }
        snprintf(attached, sizeof attached, "--%s", secret);
        ck_assert(!parse(attached));
        ck_assert_msg(strstr(error.text, "hunter2") == NULL, "%s", error.text);
        setenv("ROWBELL_SWEEP", secret, 1);
        ck_assert(!parse());
        ck_assert_msg(strstr(error.text, "hunter2") == NULL, "%s", error.text);
        unsetenv("ROWBELL_SWEEP");
    }
}
END_TEST

START_TEST(config_durations) {
    static const struct {
        const char *text;
        long ms; // -1: refused
    } rows[] = {{"0ms", 0},
                {"200ms", 200},
                {"5s", 5000},
                {"1m", 60000},
                {"24h", 86400000},
                {"7d", 604800000},
                {"3650d", 315360000000},
                {"3651d", -1},
                {"99999999999999999999s", -1},
                {"5", -1},
                {"s", -1},
                {"", -1},
                {" 5s", -1},
                {"5 s", -1},
                {"-5s", -1},
                {"+5s", -1},
                {"1.5s", -1},
                {"5S", -1},
                {"5sx", -1},
                {"0x10s", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        long ms = -2;
        bool ok = config_parse_duration_ms(rows[i].text, &ms, &error);
        ck_assert_msg(ok == (rows[i].ms >= 0), "%s", rows[i].text);
        ck_assert_int_eq(ms, ok ? rows[i].ms : -2); // written only on success
    }
}
END_TEST

START_TEST(config_addresses) {
    static const struct {
        const char *text;
        const char *host; // NULL: refused
        int port;
    } rows[] = {{"127.0.0.1:8080", "127.0.0.1", 8080},
                {"[::1]:0", "::1", 0},
                {"0.0.0.0:65535", "0.0.0.0", 65535},
                {"[2001:db8::1]:80", "2001:db8::1", 80},
                {"localhost:80", NULL, 0},
                {"127.0.0.1", NULL, 0},
                {"127.0.0.1:", NULL, 0},
                {":80", NULL, 0},
                {"::1:80", NULL, 0},
                {"[::1]80", NULL, 0},
                {"[127.0.0.1]:80", NULL, 0},
                {"127.0.0.1:65536", NULL, 0},
                {"127.0.0.1:+8", NULL, 0},
                {"127.0.0.1:8x", NULL, 0},
                {"127.0.0.1:000080", NULL, 0},
                {"[]:80", NULL, 0},
                {"[:80", NULL, 0},
                {"", NULL, 0},
                {"256.0.0.1:80", NULL, 0},
                {"[::1:80", NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[64] = "";
        int port = -1;
        bool ok = config_parse_address(rows[i].text, host, sizeof host, &port, &error);
        ck_assert_msg(ok == (rows[i].host != NULL), "%s", rows[i].text);
        if (!ok)
            continue;
        ck_assert_str_eq(host, rows[i].host);
        ck_assert_int_eq(port, rows[i].port);
    }
}
END_TEST

// What --help and --version print.
static const char *printed(char *flag) {
    static char text[20000];
    int pair[2];
    ck_assert_int_eq(pipe(pair), 0);
    fcntl(pair[1], F_SETPIPE_SZ, 1 << 16);
    fflush(stdout);
    int old_stdout = dup(STDOUT_FILENO);
    dup2(pair[1], STDOUT_FILENO);
    bool ok = parse(flag, "--no-such-flag");
    dup2(old_stdout, STDOUT_FILENO);
    close(old_stdout);
    close(pair[1]);
    ssize_t length = read(pair[0], text, sizeof text - 1);
    close(pair[0]);
    ck_assert(ok);
    ck_assert(exit_now);
    ck_assert_int_gt(length, 0);
    text[length] = '\0';
    return text;
}

START_TEST(config_help_comes_from_the_table) {
    setenv("ROWBELL_BATCH_SIZE", "nonsense", 1); // help is given whatever else is wrong
    const char *help = printed("--help");
    static const char *const parts[] = {
        "rowbell-sample: does what a sample does\n",
        "  --batch-size N               how many events a pass takes [default 200; ROWBELL_BATCH_SIZE]\n",
        "  --once                       one pass, then the end [ROWBELL_ONCE]\n",
        "  --redis-url URL              Redis [ROWBELL_REDIS_URL or REDIS_URL]\n",
        "[ROWBELL_DIRECT_DATABASE_URL or DIRECT_DATABASE_URL]",
        "  --log-level debug|info|warn|error\n                               the least level",
        "\nExit status:\n  0  ",
        "\n  4  the schema",
        "\nExample:\n  rowbell-sample --database-url postgres://",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        ck_assert_msg(strstr(help, parts[i]) != NULL, "no %s in:\n%s", parts[i], help);
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 100, "too long: %s", line);
}
END_TEST

START_TEST(config_version) {
    ck_assert_str_eq(printed("--version"), "rowbell-sample " ROWBELL_VERSION "\n");
}
END_TEST

void config_tests(Suite *suite) {
    TCase *config = suite_case(suite, "config", 10);
    tcase_add_checked_fixture(config, NULL, teardown);
    tcase_add_test(config, config_defaults);
    tcase_add_test(config, config_flags_in_both_forms);
    tcase_add_test(config, config_variables_and_who_wins);
    tcase_add_test(config, config_lists);
    tcase_add_test(config, config_errors_name_flag_and_remedy);
    tcase_add_test(config, config_errors_name_the_variable);
    tcase_add_test(config, config_errors_never_show_a_secret);
    tcase_add_test(config, config_durations);
    tcase_add_test(config, config_addresses);
    tcase_add_test(config, config_help_comes_from_the_table);
    tcase_add_test(config, config_version);
}
