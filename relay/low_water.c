#include "relay/low_water.h"
#include <string.h>

enum {
    CHEAP_CLAIM_MS = 2, // below this no mark is kept: then a late commit waits for nothing
    SAMPLE_EVERY_MS = 200,
    BARE_EVERY_MS = 3000, // a pass without the mark, at the least
    BARE_SHARE = 20,      // and such passes take at most one part in so many of the time
};

void low_water_init(struct low_water *water) {
    *water = (struct low_water){0};
}

static bool bare_is_due(const struct low_water *water, uint64_t now_ms) {
    uint64_t rest_ms = (uint64_t)(water->bare_ms * BARE_SHARE);
    return now_ms - water->bare_at_ms >= (rest_ms > BARE_EVERY_MS ? rest_ms : BARE_EVERY_MS);
}

int64_t low_water_next(const struct low_water *water, uint64_t now_ms) {
    return water->needed && !bare_is_due(water, now_ms) ? water->mark : 0;
}

bool low_water_wants_sample(const struct low_water *water, uint64_t now_ms) {
    return water->needed && now_ms - water->sampled_at_ms >= SAMPLE_EVERY_MS;
}

void low_water_on_sample(struct low_water *water, const struct low_water_sample *sample, uint64_t now_ms) {
    water->sampled_at_ms = now_ms;
    if (sample->seq == water->sampled_seq)
        return;
    water->sampled_seq = sample->seq;
    if (water->sample_count == LOW_WATER_SAMPLES) {
        // A long writer holds everything back. Keep the oldest ones, which will be useful first, and thin out the rest.
        int kept = 0;
        for (int i = 0; i < LOW_WATER_SAMPLES; i += 2)
            water->samples[kept++] = water->samples[i];
        water->sample_count = kept;
    }
    water->samples[water->sample_count++] = *sample;
}

// The highest seq such that every row at or below it was visible to a snapshot with this xmin, or will never exist.
static int64_t settled(struct low_water *water, uint64_t xmin) {
    int usable = 0;
    while (usable < water->sample_count && water->samples[usable].xid <= xmin)
        usable++;
    if (usable == 0)
        return 0;
    int64_t seq = water->samples[usable - 1].seq;
    // The newest usable one says all that the older ones do; it stays for the passes to come.
    memmove(water->samples, water->samples + usable - 1,
            (size_t)(water->sample_count - usable + 1) * sizeof *water->samples);
    water->sample_count -= usable - 1;
    return seq;
}

void low_water_on_pass(struct low_water *water, const struct low_water_pass *pass, uint64_t now_ms) {
    if (pass->mark == 0) {
        water->bare_ms = pass->claim_ms;
        water->bare_at_ms = now_ms;
        water->needed = pass->claim_ms >= CHEAP_CLAIM_MS;
        if (!water->needed) {
            water->mark = 0;
            water->sample_count = 0;
            return;
        }
    }
    if (pass->marked + pass->left < pass->claimed) {
        water->mark = 0; // seen and left: it will be claimed again, wherever it is
        return;
    }
    if (pass->left > 0)
        return; // above the mark, where the next pass finds it
    int64_t seq = settled(water, pass->xmin);
    if (pass->full && pass->highest < seq)
        seq = pass->highest;
    if (seq > water->mark)
        water->mark = seq;
}
