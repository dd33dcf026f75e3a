//! The high-level functions, as PAPI 5.7 had them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Case, Code, Papi, cases, done, holds, new, running};
use cloison_epapi::preset::*;
use cloison_epapi::{Error, EventId, Library, Simulated};

const EVENTS: [i32; 2] = [PAPI_TOT_CYC, PAPI_TOT_INS];

fn started() -> Papi {
    let mut papi = new();
    papi.start_counters(&EVENTS).expect("both can be counted");
    papi
}

fn values(papi: &mut Papi) -> [i64; 2] {
    papi.counters().run(100, &[(EventId::INST_RETIRED, 70)]);
    let mut values = [0; 2];
    papi.read_counters(&mut values).expect("it runs");
    values
}

const SEVEN: [i32; 7] = [
    PAPI_L1_DCA,
    PAPI_L1_DCM,
    PAPI_L1_ICA,
    PAPI_L1_ICM,
    PAPI_L2_TCA,
    PAPI_L2_TCM,
    PAPI_TOT_INS,
];

pub const HIGH: &[Case] = cases! {
    num_counters "not initialized: initializes; 6 event counters and the cycle counter" => 7; new().num_counters().code();
    num_counters "the machine has no counters" => Error::NoCounters.code(), "`PAPI_ESYS`, or the number 0";
        Library::new(Simulated::unknown(), 0).num_counters().code();
    start_counters "not initialized: initializes and starts" => 0; new().start_counters(&EVENTS).code();
    start_counters "no events" => Error::Invalid.code(); new().start_counters(&[]).code();
    start_counters "counters run already" => Error::Invalid.code(), "same; its page says `PAPI_EISRUN`";
        started().start_counters(&EVENTS).code();
    start_counters "an event set runs" => Error::IsRunning.code(); running().0.start_counters(&EVENTS).code();
    start_counters "the CPU does not count the preset" => Error::NoEvent.code();
        new().start_counters(&[PAPI_TOT_CYC, PAPI_L3_TCM]).code();
    start_counters "no such preset" => Error::Invalid.code();
        new().start_counters(&[PAPI_PRESET_MASK | 0x3fff]).code();
    start_counters "no such native event" => Error::NoEvent.code();
        new().start_counters(&[PAPI_NATIVE_MASK | 0x3fff]).code();
    start_counters "neither a preset nor a native event" => Error::Invalid.code(); new().start_counters(&[7]).code();
    start_counters "an event twice" => Error::Conflict.code(); new().start_counters(&[PAPI_TOT_CYC; 2]).code();
    start_counters "more events than counters" => Error::Conflict.code(); new().start_counters(&SEVEN).code();
    start_counters "after a call that failed" => 0; {
        let mut papi = new();
        papi.start_counters(&SEVEN).expect_err("one too many");
        papi.start_counters(&EVENTS).code()
    };
    read_counters "reads, and sets to zero" => 0; {
        let mut papi = started();
        holds(values(&mut papi) == [100, 70] && values(&mut papi) == [100, 70])
    };
    read_counters "not started" => Error::Invalid.code(); new().read_counters(&mut [0; 2]).code();
    read_counters "array too short" => Error::Invalid.code(); started().read_counters(&mut [0]).code();
    read_counters "array longer than needed" => 0; started().read_counters(&mut [0; 9]).code();
    read_counters "a rate runs" => Error::Invalid.code(); {
        let mut papi = new();
        papi.ipc().expect("it starts");
        papi.read_counters(&mut [0; 2]).code()
    };
    accum_counters "adds, and sets to zero" => 0; {
        let mut papi = started();
        let mut sums = values(&mut papi);
        papi.counters().run(5, &[(EventId::INST_RETIRED, 3)]);
        papi.accum_counters(&mut sums).expect("it runs");
        holds(sums == [105, 73] && values(&mut papi) == [100, 70])
    };
    accum_counters "not started" => Error::Invalid.code(); new().accum_counters(&mut [0; 2]).code();
    accum_counters "array too short" => Error::Invalid.code(); started().accum_counters(&mut [0]).code();
    stop_counters "stops and reads" => 0; {
        let mut papi = started();
        papi.counters().run(100, &[(EventId::INST_RETIRED, 70)]);
        let mut values = [0; 2];
        papi.stop_counters(Some(&mut values)).expect("it runs");
        holds(values == [100, 70] && papi.counters().enabled().is_empty())
    };
    stop_counters "not started" => Error::NotRunning.code(); new().stop_counters(Some(&mut [0; 2])).code();
    stop_counters "twice" => Error::NotRunning.code(); {
        let mut papi = started();
        papi.stop_counters(Some(&mut [0; 2])).expect("it runs");
        papi.stop_counters(Some(&mut [0; 2])).code()
    };
    stop_counters "array too short" => Error::Invalid.code(); started().stop_counters(Some(&mut [0])).code();
    stop_counters "null pointer" => Error::Invalid.code(); started().stop_counters(None).code();
    stop_counters "null pointer, while a rate runs" => 0; {
        let mut papi = new();
        papi.ipc().expect("it starts");
        papi.stop_counters(None).code()
    };
    ipc "first call: zeros; second call: instructions per cycle" => 0; {
        let mut papi = new();
        let first = papi.ipc().expect("it starts");
        papi.counters().run(100, &[(EventId::INST_RETIRED, 50)]);
        let second = papi.ipc().expect("it runs");
        papi.counters().run(100, &[(EventId::INST_RETIRED, 25)]);
        let third = papi.ipc().expect("it runs");
        holds((first.events, first.per_cycle) == (0, 0.0)
            && (second.events, second.per_cycle) == (50, 0.5)
            && (third.events, third.per_cycle) == (75, 0.25))
    };
    ipc "counters were started by another function" => Error::Invalid.code(); done(started().ipc());
    ipc "an event set runs" => Error::IsRunning.code(); done(running().0.ipc());
    epc "event 0 is `PAPI_TOT_INS`" => 0; {
        let mut papi = new();
        papi.epc(0).expect("it starts");
        papi.counters().run(100, &[(EventId::INST_RETIRED, 50)]);
        let rate = papi.epc(0).expect("it runs");
        holds((rate.events, rate.cycles, rate.per_cycle) == (50, 100, 0.5))
    };
    epc "a derived event" => 0; {
        let mut papi = new();
        papi.epc(PAPI_L1_DCH).expect("it starts");
        papi.counters().run(100, &[(EventId(0x04), 50), (EventId(0x03), 10)]);
        let rate = papi.epc(PAPI_L1_DCH).expect("it runs");
        holds((rate.events, rate.per_cycle) == (40, 0.4))
    };
    epc "the CPU does not count the event" => Error::NoEvent.code(); done(new().epc(PAPI_FP_OPS));
    epc "counters were started by another function" => Error::Invalid.code(); done(started().epc(0));
};
