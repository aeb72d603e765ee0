// event_id: an event's public id and time as text, as rowbell.event_id and to_char give them
// (migrations/functions/event_id.sql). They are made here because a claim of a thousand jobs spent a third of its time
// on them in SQL.
#pragma once
#include <stdint.h>

enum { EVENT_ID_BYTES = 37, EVENT_TIME_BYTES = 28 };

// A UUIDv7 of the microseconds since 1970 and the seq.
void event_id_write(char text[EVENT_ID_BYTES], int64_t occurred_us, int64_t seq);
// RFC 3339 in UTC, with microseconds; years 1970 to 9999.
void event_time_write(char text[EVENT_TIME_BYTES], int64_t occurred_us);
