/* Figure 2 of the ePAPI paper, its left half, with code that is known between the calls. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "known.h"
#include "papi.h"

#define NUM_EVENTS 1

int main(void)
{
    int Events[NUM_EVENTS] = {PAPI_TOT_CYC};
    long long values[NUM_EVENTS];

    /* Start counting events */
    PAPI_start_counters(Events, NUM_EVENTS);

    INSTRUCTIONS(1000);

    /* Read counters */
    PAPI_read_counters(values, NUM_EVENTS);

    INSTRUCTIONS(50000);

    /* Add the counters */
    PAPI_accum_counters(values, NUM_EVENTS);
    long long both = values[0];

    INSTRUCTIONS(3000);

    /* Stop counting events */
    PAPI_stop_counters(values, NUM_EVENTS);

    say("both", both);
    say("last", values[0]);
    return 0;
}
