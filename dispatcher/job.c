#include "dispatcher/job.h"
#include "common/memory.h"
#include <stdlib.h>
#include <string.h>

// One block for several texts: each *slot is made a view into it.
static char *pack(const char **slots[], size_t count, size_t *ret_bytes) {
    size_t bytes = 1;
    for (size_t i = 0; i < count; i++)
        bytes += *slots[i] ? strlen(*slots[i]) + 1 : 0;
    char *block = memory_alloc(bytes), *at = block;
    for (size_t i = 0; i < count; i++) {
        if (!*slots[i])
            continue;
        size_t length = strlen(*slots[i]) + 1;
        memcpy(at, *slots[i], length);
        *slots[i] = at;
        at += length;
    }
    if (ret_bytes)
        *ret_bytes = bytes;
    return block;
}

struct job *job_new(struct dispatcher *dispatcher, struct endpoint *endpoint, const struct claimed_job *claimed,
                    int64_t token, uint64_t now_ms) {
    struct job *job = memory_alloc(sizeof *job);
    job->dispatcher = dispatcher;
    job->endpoint = endpoint;
    job->version = endpoint->version;
    job->uncounted = claimed->uncounted;
    job->too_large = claimed->too_large;
    job->throttled_long = claimed->throttled_long;
    job->end.ref =
        (struct job_ref){.subscription_id = claimed->subscription_id, .event_seq = claimed->event_seq, .token = token};
    job->end.attempt = claimed->attempt;
    job->end.started_ms = now_ms;
    job->delivery = (struct delivery){.subscription = &job->version->subscription,
                                      .event_seq = claimed->event_seq,
                                      .attempt = claimed->attempt,
                                      .event_id = claimed->event_id,
                                      .type = claimed->type,
                                      .occurred_at = claimed->occurred_at,
                                      .subject = claimed->subject,
                                      .data = claimed->data};
    const char **slots[] = {&job->delivery.event_id, &job->delivery.type, &job->delivery.occurred_at,
                            &job->delivery.subject, &job->delivery.data};
    job->texts = pack(slots, sizeof slots / sizeof slots[0], &job->bytes);
    endpoint_begin(endpoint, job->bytes, now_ms);
    if (job->version->subscription.ordered)
        job->end.subject = job->delivery.subject;
    return job;
}

void job_free(struct job *job) {
    if (!job)
        return;
    free(job->texts);
    free(job->end_texts);
    free(job);
}

// An endpoint that answers, and says when it wants more, has not failed: only its word counts, for as long as it is
// throttled_long not. So often that the numbers of attempts cannot run out.
static bool is_throttled(const struct job *job, const struct attempt_outcome *outcome) {
    enum { UNCOUNTED_MOST = 10000 };
    return outcome->verdict == VERDICT_RETRY && outcome->status == 429 && outcome->after_ms > 0 &&
           !job->throttled_long && job->end.attempt < UNCOUNTED_MOST;
}

static const char *fate_of(const struct job *job, const struct attempt_outcome *outcome, double unit,
                           uint64_t *ret_delay_ms) {
    if (outcome->verdict == VERDICT_DELIVERED)
        return "delivered";
    if (outcome->verdict == VERDICT_REJECTED)
        return "poisoned";
    if (outcome->verdict == VERDICT_ABORTED)
        return "cancelled";
    if (outcome->disable_subscription)
        return "held";
    if (is_throttled(job, outcome)) {
        *ret_delay_ms = outcome->after_ms;
        return "waiting";
    }
    // A lost attempt says nothing about the receiver, a manual one is beside the schedule: neither uses up a step of
    // it.
    int failures = job->end.attempt - job->uncounted;
    return retry_schedule_next(&job->version->schedule, failures > 1 ? failures : 1, outcome->after_ms, unit,
                               ret_delay_ms)
               ? "waiting"
               : "poisoned";
}

void job_decide(struct job *job, const struct attempt_outcome *outcome, double unit) {
    struct job_end *end = &job->end;
    end->fate = fate_of(job, outcome, unit, &end->delay_ms);
    end->uncounts = strcmp(end->fate, "waiting") == 0 && is_throttled(job, outcome);
    end->class = attempt_class_name(outcome->class);
    end->pause_ms = outcome->pause_endpoint ? outcome->after_ms : 0;
    end->dns_ms = outcome->dns_ms;
    end->connect_ms = outcome->connect_ms;
    end->tls_ms = outcome->tls_ms;
    end->first_byte_ms = outcome->first_byte_ms;
    end->total_ms = outcome->total_ms;
    end->status = outcome->status;
    end->peer = outcome->peer;
    end->response_head = outcome->response_head;
    end->error = outcome->error;
    const char **slots[] = {&end->peer, &end->response_head, &end->error};
    job->end_texts = pack(slots, sizeof slots / sizeof slots[0], NULL);
}

void job_strip(struct job *job) {
    job->end.peer = NULL;
    job->end.response_head = NULL;
    job->end.error = NULL;
}
