/* PAPI's high-level functions around code with known counts. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "known.h"
#include "papi.h"

static volatile uint64_t buffer[8 * 4096];
static long long first[NUM_EVENTS], sums[NUM_EVENTS], last[NUM_EVENTS], unused[NUM_EVENTS];

int main(void)
{
    int events[NUM_EVENTS] = {EVENTS};

    PAPI_start_counters(events, NUM_EVENTS);
    INSTRUCTIONS(1000);
    LOADS(buffer, 100);
    PAPI_read_counters(first, NUM_EVENTS);

    LOADS(buffer, 4000);
    PAPI_accum_counters(sums, NUM_EVENTS);
    INSTRUCTIONS(50000);
    LOADS(buffer, 96);
    PAPI_accum_counters(sums, NUM_EVENTS);

    LOADS(buffer, 1);
    PAPI_stop_counters(last, NUM_EVENTS);
    for (int n = 0; n < NUM_EVENTS; n++) {
        say("read", first[n]);
        say("accum", sums[n]);
        say("stop", last[n]);
    }
    say("late", PAPI_read_counters(unused, NUM_EVENTS));
    return 0;
}
