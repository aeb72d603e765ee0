// search_fake: a search engine that refuses whatever the real API documents as invalid, in a thread of its own. For
// tests: OpenSearch, Elasticsearch and Meilisearch cannot be installed here.
//
// FAKE_BULK is the _bulk, _refresh and _delete_by_query APIs of Elasticsearch 8 and OpenSearch 2 with external versions
// and tombstones. FAKE_MEILISEARCH is the documents and tasks APIs of Meilisearch 1: writes are tasks, run one after
// the other some requests later. A request that breaks a rule of the protocol is answered as documented and noted as a
// complaint; a document whose column `title` is 'unindexable' is refused by itself, without a complaint.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum search_fake_kind { FAKE_BULK, FAKE_MEILISEARCH };

struct search_fake;
struct search_fake *search_fake_start(enum search_fake_kind kind, const char *authorization); // NULL: none is wanted
const char *search_fake_url(const struct search_fake *fake);
int search_fake_count(struct search_fake *fake, const char *index); // documents
// A field of the document of a key, as text; NULL when there is no such document. Owned by the fixture.
const char *search_fake_field(struct search_fake *fake, const char *index, const char *key, const char *field);
const char *search_fake_complaint(struct search_fake *fake); // the first one; "" for none
int search_fake_requests(struct search_fake *fake);          // that write documents
int search_fake_largest_batch(struct search_fake *fake);     // documents in one request

int search_fake_most_open(struct search_fake *fake);     // Meilisearch: tasks that had not run when one more came
int search_fake_most_requests(struct search_fake *fake); // that waited for their answers at a time
int search_fake_overlaps(struct search_fake *fake);      // _bulk: documents that two requests wanted to write at a time

void search_fake_down(struct search_fake *fake, bool down);    // connections are closed without an answer
void search_fake_busy(struct search_fake *fake, int requests); // the next ones are answered 429
// Each request is handled after up to so long, by chance: requests on different connections overtake each other.
void search_fake_jitter(struct search_fake *fake, unsigned max_ms, unsigned seed);
void search_fake_limit(struct search_fake *fake, size_t max_bytes); // larger bodies are answered 413
