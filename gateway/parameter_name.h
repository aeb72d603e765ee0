// parameter_name: what is meant by the name of a query parameter that is not spelled as ours are. Pure. Other tools
// (EventSource polyfills, caches, proxies) add parameters of their own, which are ignored: an answer 400 ends an
// EventSource for good. A misspelt filter is refused all the same, since a lost filter widens the stream.
#pragma once
#include <stdbool.h>

// The same letters and digits, whatever their case and what stands between them: Last-Event-ID and last_event_id.
bool parameter_name_same(const char *name, const char *ours);
// name begins with ours, or is one letter (or two that changed places) away from it or its plural: tables, table[],
// Table, tabel. ours: letters, lower case; one of fewer than four is near the same word alone.
bool parameter_name_near(const char *name, const char *ours);
