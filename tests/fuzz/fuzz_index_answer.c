// Any bytes as the answer of a search engine: what is not the answer to a request is no success for any document.
#include "dispatcher/index_target.h"
#include "tests/fuzz/fuzz.h"

enum { DOCUMENTS = 2 };

static void check_documents(struct index_document *documents, enum index_judgement judgement, char *problem) {
    require((judgement == JUDGED_FAILED || judgement == JUDGED_SPLIT) == (problem != NULL));
    for (size_t i = 0; i < DOCUMENTS; i++) {
        require(judgement != JUDGED_DONE || documents[i].fate != FATE_OPEN);
        index_document_clear(&documents[i]);
    }
    free(problem);
}

static void judge_as(const struct index_engine *engine, const char *answer, bool task) {
    struct index_document documents[DOCUMENTS] = {0};
    char *problem = NULL;
    int64_t number = 0;
    enum index_judgement judgement =
        (task ? engine->judge_task : engine->judge)(documents, DOCUMENTS, answer, &number, &problem);
    check_documents(documents, judgement, problem);
}

FUZZ_TARGET(index_answer) {
    char *answer = input_text(bytes, length), **keys = NULL;
    size_t count = 0;
    bool more;
    judge_as(&index_bulk, answer, false);
    judge_as(&index_meilisearch, answer, false);
    judge_as(&index_meilisearch, answer, true);
    index_bulk.judge_sweep(answer, &more);
    require(index_meilisearch.judge_list(answer, &keys, &count) || count == 0);
    for (size_t i = 0; i < count; i++)
        free(keys[i]);
    free(keys);
    free(answer);
    return 0;
}
