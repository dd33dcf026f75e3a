/* @NAME@: counts the cycles of three pieces of code with PAPI, as in figure 2 of the ePAPI paper. */
#include "cloison.h"
#include "papi.h"

#define NUM_EVENTS 1

enum { WORDS = 64 * 1024 };
static volatile uint64_t buffer[WORDS];

static void work(void)
{
    for (int word = 0; word < WORDS; word++)
        buffer[word] += 1;
}

static void show(const char *when, const long long *values)
{
    cloison_puts("@NAME@: ");
    cloison_puts(when);
    cloison_puts(" cycles=");
    cloison_putu((uint64_t)values[0]);
    cloison_puts("\n");
}

int main(void)
{
    int Events[NUM_EVENTS] = {PAPI_TOT_CYC};
    long long values[NUM_EVENTS];

    /* Start counting events */
    if (PAPI_start_counters(Events, NUM_EVENTS) != PAPI_OK)
        cloison_puts("@NAME@: no counters; does system.toml say `pmu = \"emulated\"`?\n");

    work();

    /* Read counters */
    PAPI_read_counters(values, NUM_EVENTS);
    show("read", values);

    work();

    /* Add the counters */
    PAPI_accum_counters(values, NUM_EVENTS);
    show("accum", values);

    work();

    /* Stop counting events */
    PAPI_stop_counters(values, NUM_EVENTS);
    show("stop", values);
    return 0; /* The VM is turned off. */
}
