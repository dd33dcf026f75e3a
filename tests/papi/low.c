/* PAPI's low-level functions in C: sets, names, overflow by interrupt flag, results in memory; with the prefix. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "epapi.h"
#include "known.h"

static uint64_t results[4 + 2 * 4];
static int handled;

static void handler(int set, void *address, long long vector, void *context)
{
    (void)set;
    (void)address;
    (void)context;
    handled += vector == 1;
}

int main(void)
{
    int set = PAPI_NULL, code = 0, state = 0, number = 4, listed[4];
    long long values[4] = {0}, sums[4] = {0};
    char name[PAPI_MAX_STR_LEN];

    say("early", ePAPI_create_eventset(&set));
    say("init", ePAPI_library_init(PAPI_VER_CURRENT) == PAPI_VER_CURRENT);
    say("create", ePAPI_create_eventset(&set));
    say("by_name", ePAPI_event_name_to_code("arm_ac53::INST_RETIRED", &code));
    say("native", code == (PAPI_NATIVE_MASK | 0x08));
    say("name", ePAPI_event_code_to_name(PAPI_TOT_CYC, name) == 0 && name[0] == 'P' && name[12] == 0);
    say("add", ePAPI_add_event(set, code));
    say("add_named", ePAPI_add_named_event(set, "PAPI_TOT_CYC"));
    say("list", ePAPI_list_events(set, listed, &number));
    say("listed", number == 2 && listed[0] == code && listed[1] == PAPI_TOT_CYC);
    say("results", ePAPI_set_results(results, sizeof results));
    say("start", ePAPI_start(set));
    say("again", ePAPI_start(set));
    ePAPI_reset(set);
    INSTRUCTIONS(1000);
    ePAPI_read(set, values);
    say("instructions", values[0]);
    ePAPI_reset(set);
    INSTRUCTIONS(1000);
    ePAPI_accum(set, sums);
    INSTRUCTIONS(500);
    ePAPI_accum(set, sums);
    say("sum", sums[0]);
    say("in_memory", results[3] == 2 && results[4] == (uint32_t)code);
    ePAPI_state(set, &state);
    say("state", state);
    say("stop", ePAPI_stop(set, 0));
    say("stopped", ePAPI_stop(set, values));
    say("text", ePAPI_strerror(PAPI_ENOTRUN)[0]);

    /* The program polls; with interrupts, its handler calls ePAPI_interrupt. */
    say("overflow", ePAPI_overflow(set, code, 100000, 0, handler));
    ePAPI_start(set);
    for (int round = 0; round < 100; round++) {
        INSTRUCTIONS(5000);
        ePAPI_interrupt(0, 0);
    }
    ePAPI_stop(set, values);
    say("handled", handled);
    say("cleanup", ePAPI_cleanup_eventset(set));
    say("destroy", ePAPI_destroy_eventset(&set));
    say("gone", set);
    return 0;
}
