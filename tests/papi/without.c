/* Every function that counts, in a VM without a PMU: PAPI's error codes, and no fault. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "epapi.h"
#include "known.h"

int main(void)
{
    int events[2] = {PAPI_TOT_CYC, PAPI_TOT_INS}, set = PAPI_NULL, state;
    long long values[2];
    float number;

    say("start_counters", ePAPI_start_counters(events, 2));
    say("read_counters", ePAPI_read_counters(values, 2));
    say("accum_counters", ePAPI_accum_counters(values, 2));
    say("stop_counters", ePAPI_stop_counters(values, 2));
    say("ipc", ePAPI_ipc(&number, &number, values, &number));
    say("epc", ePAPI_epc(0, &number, &number, values, values, values, &number));
    say("num_counters", ePAPI_num_counters());
    say("library_init", ePAPI_library_init(PAPI_VER_CURRENT));
    say("create_eventset", ePAPI_create_eventset(&set));
    say("start", ePAPI_start(0));
    say("read", ePAPI_read(0, values));
    say("accum", ePAPI_accum(0, values));
    say("stop", ePAPI_stop(0, values));
    say("reset", ePAPI_reset(0));
    say("state", ePAPI_state(0, &state));
    say("interrupt", ePAPI_interrupt(0, 0));
    say("tick", ePAPI_multiplex_tick());
    return 0;
}
