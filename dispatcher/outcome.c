#include "dispatcher/outcome.h"
#include <assert.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static const char *const class_names[] = {
    [CLASS_DELIVERED] = "delivered", [CLASS_DNS] = "dns",
    [CLASS_CONNECT] = "connect",     [CLASS_TLS] = "tls",
    [CLASS_TIMEOUT] = "timeout",     [CLASS_HTTP_4XX] = "http_4xx",
    [CLASS_HTTP_5XX] = "http_5xx",   [CLASS_REJECTED] = "rejected",
    [CLASS_LOST] = "lost",           [CLASS_EGRESS_DENIED] = "egress_denied",
    [CLASS_CONDITION] = "condition", [CLASS_ABORTED] = "aborted",
};

const char *attempt_class_name(enum attempt_class class) {
    assert((size_t) class < sizeof class_names / sizeof *class_names);
    return class_names[class];
}

// The first row that holds the status wins.
static const struct status_rule {
    int from, to;
    enum verdict verdict;
    enum attempt_class class;
    bool disables;        // the receiver wants no more of them
    bool pauses_endpoint; // its Retry-After speaks for all jobs
} status_rules[] = {
    {200, 299, VERDICT_DELIVERED, CLASS_DELIVERED, false, false},
    {300, 399, VERDICT_REJECTED, CLASS_REJECTED, false, false}, // redirects are never followed
    {408, 408, VERDICT_RETRY, CLASS_HTTP_4XX, false, false},
    {410, 410, VERDICT_REJECTED, CLASS_HTTP_4XX, true, false},
    {425, 425, VERDICT_RETRY, CLASS_HTTP_4XX, false, false},
    {429, 429, VERDICT_RETRY, CLASS_HTTP_4XX, false, true},
    {400, 499, VERDICT_REJECTED, CLASS_HTTP_4XX, false, false},
    {503, 503, VERDICT_RETRY, CLASS_HTTP_5XX, false, true},
    {500, 999, VERDICT_RETRY, CLASS_HTTP_5XX, false,
     false},                                              // 600 and up is nobody's, so the sender's fault least of all
    {0, 199, VERDICT_RETRY, CLASS_CONNECT, false, false}, // no final answer
};

static const struct failure_rule {
    enum verdict verdict;
    enum attempt_class class;
} failure_rules[] = {
    [HTTP_DNS] = {VERDICT_RETRY, CLASS_DNS},         [HTTP_EGRESS_DENIED] = {VERDICT_REJECTED, CLASS_EGRESS_DENIED},
    [HTTP_CONNECT] = {VERDICT_RETRY, CLASS_CONNECT}, [HTTP_TLS] = {VERDICT_RETRY, CLASS_TLS},
    [HTTP_TIMEOUT] = {VERDICT_RETRY, CLASS_TIMEOUT}, [HTTP_BAD_ANSWER] = {VERDICT_RETRY, CLASS_CONNECT},
    [HTTP_CANCELLED] = {VERDICT_RETRY, CLASS_LOST},  [HTTP_REFUSED] = {VERDICT_REJECTED, CLASS_REJECTED},
};

static bool parse_seconds(const char *text, uint64_t *ret_ms) {
    size_t length = strlen(text);
    if (length == 0 || strspn(text, "0123456789") != length)
        return false;
    uint64_t seconds = 0;
    for (const char *digit = text; *digit && seconds <= RETRY_AFTER_MAX_MS; digit++)
        seconds = seconds * 10 + (uint64_t)(*digit - '0');
    *ret_ms = seconds * 1000;
    return true;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" // the formats are the rows below

// strptime takes far more than the format says (any spaces, short numbers, a wrong weekday). Written again from the
// time that was read, the text must come out the same.
static bool parse_date(const char *text, time_t *ret_time) {
    static const char *const formats[] = {
        "%a, %d %b %Y %H:%M:%S GMT", // IMF-fixdate
        "%A, %d-%b-%y %H:%M:%S GMT", // RFC 850
        "%a %b %e %H:%M:%S %Y",      // asctime
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        struct tm parts = {0};
        const char *end = strptime(text, formats[i], &parts);
        if (!end || *end != '\0')
            continue;
        time_t time = timegm(&parts);
        char again[64];
        if (gmtime_r(&time, &parts) && strftime(again, sizeof again, formats[i], &parts) > 0 &&
            strcmp(again, text) == 0) {
            *ret_time = time;
            return true;
        }
    }
    return false;
}

#pragma GCC diagnostic pop

uint64_t retry_after_ms(const char *text, const char *date, int64_t now_s) {
    uint64_t ms = 0;
    time_t then, answered;
    if (!parse_seconds(text, &ms) && parse_date(text, &then)) {
        if (date && parse_date(date, &answered))
            now_s = answered;
        if (then > now_s)
            ms = (uint64_t)(then - now_s) * 1000;
    }
    return ms < RETRY_AFTER_MAX_MS ? ms : RETRY_AFTER_MAX_MS;
}

// What a subscription says of a status, in the terms of the table. Its Retry-After counts as it does usually.
static struct status_rule rule_of_fate(struct status_rule rule, enum status_fate fate) {
    if (fate == STATUS_USUAL)
        return rule;
    bool usually_good = rule.verdict == VERDICT_DELIVERED;
    rule.verdict = fate == STATUS_DELIVERED ? VERDICT_DELIVERED
                   : fate == STATUS_RETRY   ? VERDICT_RETRY
                                            : VERDICT_REJECTED;
    rule.disables = fate == STATUS_DISABLE;
    if (fate == STATUS_DELIVERED)
        rule.class = CLASS_DELIVERED;
    else if (usually_good)
        rule.class = CLASS_REJECTED;
    return rule;
}

static void judge_status(struct attempt_outcome *outcome, const struct http_outcome *http,
                         const struct status_policy *policy, int64_t now_s) {
    const struct status_rule *usual = status_rules;
    while (http->status < usual->from || http->status > usual->to)
        usual++;
    struct status_rule own = rule_of_fate(*usual, status_policy_find(policy, http->status));
    const struct status_rule *rule = &own;
    outcome->verdict = rule->verdict;
    outcome->class = rule->class;
    outcome->disable_subscription = rule->disables;
    if (http->retry_after && rule->verdict == VERDICT_RETRY)
        outcome->after_ms = retry_after_ms(http->retry_after, http->date, now_s);
    outcome->pause_endpoint = rule->pauses_endpoint && outcome->after_ms > 0;

    // Standard Webhooks, "webhook-delivery": the receiver steers by a header, whatever its status.
    const char *control = http->delivery_control ? http->delivery_control : "";
    if (strcasecmp(control, "disable") == 0)
        outcome->disable_subscription = true;
    if (strcasecmp(control, "abort-message") == 0 && rule->verdict != VERDICT_DELIVERED) {
        outcome->verdict = VERDICT_ABORTED;
        outcome->class = CLASS_ABORTED;
        outcome->after_ms = 0;
        outcome->pause_endpoint = false;
    }
}

struct attempt_outcome outcome_of_answer(const struct http_outcome *http, int64_t now_s) {
    return outcome_by_policy(http, NULL, now_s);
}

struct attempt_outcome outcome_by_policy(const struct http_outcome *http, const struct status_policy *policy,
                                         int64_t now_s) {
    assert(http->status >= 0 && http->status <= 999);
    struct attempt_outcome outcome = {
        .status = http->status,
        .dns_ms = http->dns_ms,
        .connect_ms = http->connect_ms,
        .tls_ms = http->tls_ms,
        .first_byte_ms = http->first_byte_ms,
        .total_ms = http->total_ms,
        .peer = http->peer[0] ? http->peer : NULL,
        .response_head = http->response_head && *http->response_head ? http->response_head : NULL,
    };
    if (http->failure == HTTP_OK) {
        judge_status(&outcome, http, policy, now_s);
    } else {
        assert((size_t)http->failure < sizeof failure_rules / sizeof *failure_rules);
        outcome.verdict = failure_rules[http->failure].verdict;
        outcome.class = failure_rules[http->failure].class;
        outcome.error = http->error;
        if (http->failure == HTTP_DNS) // the log of attempts has its code
            outcome.response_head = http->error;
    }
    return outcome;
}
