//! The low-level functions, as PAPI 7 has them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{COUNTERS, Case, Code, cases, done, empty, holds, new, ready, running, with_set};
use cloison_epapi::library::SETS;
use cloison_epapi::preset::*;
use cloison_epapi::query;
use cloison_epapi::set::state::*;
use cloison_epapi::{Error, EventId, PAPI_VER_CURRENT};

/// A number that no event set has.
const NO_SET: i32 = 99;
/// A native event of the Cortex-A53: INST_RETIRED.
const INST_RETIRED: i32 = PAPI_NATIVE_MASK | 0x08;

/// Events that fill all six counters of the Cortex-A53.
const SIX: [i32; COUNTERS as usize] = [
    PAPI_L1_DCA,
    PAPI_L1_DCM,
    PAPI_L1_ICA,
    PAPI_L1_ICM,
    PAPI_L2_TCA,
    PAPI_L2_TCM,
];

pub const LOW: &[Case] = cases! {
    library_init "the version of the header" => PAPI_VER_CURRENT; new().library_init().code();
    library_init "twice" => PAPI_VER_CURRENT; ready().library_init().code();
    create_eventset "initialized" => 0; done(ready().create_eventset(PAPI_NULL));
    create_eventset "not initialized" => Error::NotInitialized.code(); done(new().create_eventset(PAPI_NULL));
    create_eventset "the variable is not `PAPI_NULL`" => Error::Invalid.code(); done(ready().create_eventset(0));
    create_eventset "more than 8 at a time" => Error::NoMemory.code(), "as many as memory allows"; {
        let mut papi = ready();
        (0..SETS).for_each(|_| assert!(papi.create_eventset(PAPI_NULL).is_ok()));
        done(papi.create_eventset(PAPI_NULL))
    };
    destroy_eventset "empty" => 0; { let (mut papi, set) = empty(); papi.destroy_eventset(set).code() };
    destroy_eventset "with events" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.destroy_eventset(set).code()
    };
    destroy_eventset "running" => Error::IsRunning.code(); {
        let (mut papi, set) = running();
        papi.destroy_eventset(set).code()
    };
    destroy_eventset "twice" => Error::NoEventSet.code(); {
        let (mut papi, set) = empty();
        papi.destroy_eventset(set).expect("it is empty");
        papi.destroy_eventset(set).code()
    };
    cleanup_eventset "removes all events" => 0; {
        let (mut papi, set) = with_set();
        papi.cleanup_eventset(set).expect("it is stopped");
        papi.num_events(set).code()
    };
    cleanup_eventset "empty" => 0; { let (mut papi, set) = empty(); papi.cleanup_eventset(set).code() };
    cleanup_eventset "running" => Error::IsRunning.code(); {
        let (mut papi, set) = running();
        papi.cleanup_eventset(set).code()
    };
    cleanup_eventset "no such set" => Error::NoEventSet.code(); ready().cleanup_eventset(NO_SET).code();
    add_event "a preset" => 0; { let (mut papi, set) = empty(); papi.add_event(set, PAPI_TOT_INS).code() };
    add_event "a native event" => 0; { let (mut papi, set) = empty(); papi.add_event(set, INST_RETIRED).code() };
    add_event "a derived preset" => 0; { let (mut papi, set) = empty(); papi.add_event(set, PAPI_L1_TCH).code() };
    add_event "no such set" => Error::NoEventSet.code(); ready().add_event(NO_SET, PAPI_TOT_INS).code();
    add_event "not initialized" => Error::NoEventSet.code(); new().add_event(0, PAPI_TOT_INS).code();
    add_event "neither a preset nor a native event" => Error::Invalid.code(); {
        let (mut papi, set) = empty();
        papi.add_event(set, 7).code()
    };
    add_event "no such preset" => Error::Invalid.code(); {
        let (mut papi, set) = empty();
        papi.add_event(set, PAPI_PRESET_MASK | PRESETS as i32).code()
    };
    add_event "the CPU does not count the preset" => Error::NoEvent.code(); {
        let (mut papi, set) = empty();
        papi.add_event(set, PAPI_L3_TCM).code()
    };
    add_event "no such native event" => Error::NoEvent.code(); {
        let (mut papi, set) = empty();
        papi.add_event(set, PAPI_NATIVE_MASK | 0x3ff).code()
    };
    add_event "already in the set" => Error::Conflict.code(); {
        let (mut papi, set) = with_set();
        papi.add_event(set, PAPI_TOT_CYC).code()
    };
    add_event "running" => Error::IsRunning.code(); {
        let (mut papi, set) = running();
        papi.add_event(set, PAPI_L1_DCM).code()
    };
    add_event "more events than counters" => Error::Conflict.code(); {
        let (mut papi, set) = empty();
        papi.add_events(set, &SIX).expect("there are six counters");
        papi.add_event(set, PAPI_TOT_INS).code()
    };
    add_event "one more, made of events that are counted already" => 0; {
        let (mut papi, set) = empty();
        papi.add_events(set, &SIX).expect("there are six counters");
        papi.add_event(set, PAPI_L1_TCH).code()
    };
    add_event "needs more counters than there are" => Error::MultiplePasses.code(), "`PAPI_ECNFLCT` up to 7.1"; {
        let (mut papi, set) = empty();
        papi.add_event(set, PAPI_RES_STL).code()
    };
    add_event "the same, in a multiplexed set" => 0; {
        let (mut papi, set) = empty();
        papi.assign_eventset_component(set, 0).expect("it has none");
        papi.set_multiplex(set).expect("it is stopped");
        papi.add_event(set, PAPI_RES_STL).code()
    };
    add_event "the set is full" => Error::TooMany.code(), "as many as it has counters for multiplexing, 384"; {
        let (mut papi, set) = empty();
        papi.assign_eventset_component(set, 0).expect("it has none");
        papi.set_multiplex(set).expect("it is stopped");
        let one_each = (1..=0x10).filter(|number| *number != 0x0f).chain([0x12]).map(|it| PAPI_NATIVE_MASK | it);
        one_each.for_each(|code| papi.add_event(set, code).expect("there is room"));
        papi.add_event(set, PAPI_NATIVE_MASK | 0x13).code()
    };
    add_events "all" => 0; { let (mut papi, set) = empty(); papi.add_events(set, &SIX).code() };
    add_events "the first cannot be added" => Error::NoEvent.code(); {
        let (mut papi, set) = empty();
        papi.add_events(set, &[PAPI_L3_TCM, PAPI_TOT_CYC]).code()
    };
    add_events "the third cannot be added: two were" => 2; {
        let (mut papi, set) = empty();
        papi.add_events(set, &[PAPI_TOT_INS, PAPI_TOT_CYC, PAPI_L3_TCM]).code()
    };
    add_events "none" => Error::Invalid.code(); { let (mut papi, set) = empty(); papi.add_events(set, &[]).code() };
    add_named_event "a preset" => 0; {
        let (mut papi, set) = empty();
        papi.add_named_event(set, "PAPI_TOT_INS").code()
    };
    add_named_event "a native event, with its PMU" => 0; {
        let (mut papi, set) = empty();
        papi.add_named_event(set, "arm_ac53::BUS_ACCESS").code()
    };
    add_named_event "no such event" => Error::NoEvent.code(); {
        let (mut papi, set) = empty();
        papi.add_named_event(set, "PAPI_NOTHING").code()
    };
    add_named_event "not initialized" => Error::NotInitialized.code(); new().add_named_event(0, "PAPI_TOT_INS").code();
    remove_event "in the set" => 1; {
        let (mut papi, set) = with_set();
        papi.remove_event(set, PAPI_TOT_CYC).expect("it is there");
        papi.num_events(set).code()
    };
    remove_event "not in the set" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.remove_event(set, PAPI_L1_DCM).code()
    };
    remove_event "running" => Error::IsRunning.code(); {
        let (mut papi, set) = running();
        papi.remove_event(set, PAPI_TOT_CYC).code()
    };
    remove_event "no such set" => Error::NoEventSet.code(); ready().remove_event(NO_SET, PAPI_TOT_CYC).code();
    remove_event "neither a preset nor a native event" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.remove_event(set, 7).code()
    };
    remove_events "all" => 0; {
        let (mut papi, set) = with_set();
        papi.remove_events(set, &[PAPI_TOT_INS, PAPI_TOT_CYC]).code()
    };
    remove_events "the second is not in the set: one was removed" => 1; {
        let (mut papi, set) = with_set();
        papi.remove_events(set, &[PAPI_TOT_INS, PAPI_L1_DCM]).code()
    };
    remove_events "none" => Error::Invalid.code(); { let (mut papi, set) = with_set(); papi.remove_events(set, &[]).code() };
    remove_named_event "in the set" => 0; {
        let (mut papi, set) = with_set();
        papi.remove_named_event(set, "PAPI_TOT_CYC").code()
    };
    remove_named_event "no such event" => Error::NoEvent.code(); {
        let (mut papi, set) = with_set();
        papi.remove_named_event(set, "PAPI_NOTHING").code()
    };
    list_events "in the order in which they were added" => 0; {
        let (papi, set) = with_set();
        holds(papi.list_events(set) == Ok(&[PAPI_TOT_CYC, PAPI_TOT_INS]))
    };
    list_events "no such set" => Error::NoEventSet.code(); done(ready().list_events(NO_SET));
    num_events "two" => 2; { let (papi, set) = with_set(); papi.num_events(set).code() };
    num_events "no such set" => Error::NoEventSet.code(); ready().num_events(NO_SET).code();
    state "stopped" => PAPI_STOPPED; { let (papi, set) = with_set(); papi.state(set).code() };
    state "running" => PAPI_RUNNING; { let (papi, set) = running(); papi.state(set).code() };
    state "running, multiplexed" => PAPI_RUNNING | PAPI_MULTIPLEXING; {
        let (mut papi, set) = with_set();
        papi.set_multiplex(set).expect("it is stopped");
        papi.start(set).expect("nothing else runs");
        papi.state(set).code()
    };
    state "no such set" => Error::NoEventSet.code(); ready().state(NO_SET).code();
    start "stopped" => 0; { let (mut papi, set) = with_set(); papi.start(set).code() };
    start "no such set" => Error::NoEventSet.code(); ready().start(NO_SET).code();
    start "never had an event" => Error::NoComponent.code(); { let (mut papi, set) = empty(); papi.start(set).code() };
    start "its events were removed" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.remove_events(set, &[PAPI_TOT_INS, PAPI_TOT_CYC]).expect("both are there");
        papi.start(set).code()
    };
    start "twice" => Error::IsRunning.code(); { let (mut papi, set) = running(); papi.start(set).code() };
    start "another set runs" => Error::IsRunning.code(); {
        let (mut papi, _) = running();
        let other = papi.create_eventset(PAPI_NULL).expect("there is room");
        papi.add_event(other, PAPI_L1_DCM).expect("it can be counted");
        papi.start(other).code()
    };
    start "again after it was stopped: from zero" => 0; {
        let (mut papi, set) = running();
        papi.counters().run(50, &[]);
        papi.stop(set, None).expect("it runs");
        papi.start(set).expect("nothing runs");
        papi.counters().run(7, &[]);
        let mut values = [0; 2];
        papi.stop(set, Some(&mut values)).expect("it runs");
        holds(values == [7, 0])
    };
    stop "running" => 0; { let (mut papi, set) = running(); papi.stop(set, Some(&mut [0; 2])).code() };
    stop "null pointer: values are not wanted" => 0; { let (mut papi, set) = running(); papi.stop(set, None).code() };
    stop "stopped" => Error::NotRunning.code(); { let (mut papi, set) = with_set(); papi.stop(set, None).code() };
    stop "never had an event" => Error::NoComponent.code(); { let (mut papi, set) = empty(); papi.stop(set, None).code() };
    stop "no such set" => Error::NoEventSet.code(); ready().stop(NO_SET, None).code();
    read "running: counts go on" => 0; {
        let (mut papi, set) = running();
        let mut values = [0; 2];
        papi.counters().run(10, &[(EventId::INST_RETIRED, 4)]);
        papi.read(set, &mut values).expect("it runs");
        papi.counters().run(10, &[(EventId::INST_RETIRED, 4)]);
        papi.read(set, &mut values).expect("it runs");
        holds(values == [20, 8])
    };
    read "stopped: the counts when it was" => 0; {
        let (mut papi, set) = running();
        papi.counters().run(10, &[(EventId::INST_RETIRED, 4)]);
        papi.stop(set, None).expect("it runs");
        papi.counters().run(10, &[(EventId::INST_RETIRED, 4)]);
        let mut values = [0; 2];
        papi.read(set, &mut values).expect("it is there");
        holds(values == [10, 4])
    };
    read "null pointer" => Error::Invalid.code(); { let (mut papi, set) = running(); papi.read_frozen(set, None).code() };
    read "no such set" => Error::NoEventSet.code(); ready().read(NO_SET, &mut [0]).code();
    accum "adds, and sets to zero" => 0; {
        let (mut papi, set) = running();
        let mut sums = [-100, 1];
        papi.counters().run(100, &[(EventId::INST_RETIRED, 40)]);
        papi.accum(set, &mut sums).expect("it runs");
        papi.counters().run(1, &[]);
        let mut values = [0; 2];
        papi.read(set, &mut values).expect("it runs");
        holds(sums == [0, 41] && values == [1, 0])
    };
    accum "null pointer" => Error::Invalid.code(); {
        let (mut papi, set) = running();
        papi.accum_frozen(set, None).code()
    };
    accum "no such set" => Error::NoEventSet.code(); ready().accum(NO_SET, &mut [0]).code();
    reset "running" => 0; {
        let (mut papi, set) = running();
        papi.counters().run(100, &[]);
        papi.reset(set).expect("it runs");
        papi.counters().run(3, &[]);
        let mut values = [0; 2];
        papi.read(set, &mut values).expect("it runs");
        holds(values == [3, 0])
    };
    reset "stopped" => 0; {
        let (mut papi, set) = running();
        papi.counters().run(100, &[]);
        papi.stop(set, None).expect("it runs");
        papi.reset(set).expect("it is there");
        let mut values = [1; 2];
        papi.read(set, &mut values).expect("it is there");
        holds(values == [0, 0])
    };
    reset "never had an event" => Error::NoComponent.code(); { let (mut papi, set) = empty(); papi.reset(set).code() };
    reset "no such set" => Error::NoEventSet.code(); ready().reset(NO_SET).code();
    query_event "the CPU counts it" => 0; ready().query_event(PAPI_TOT_INS).code();
    query_event "the CPU does not count it" => Error::NoEvent.code(); ready().query_event(PAPI_L3_TCM).code();
    query_event "no such preset" => Error::NotPreset.code(); ready().query_event(PAPI_PRESET_MASK | 0x3fff).code();
    query_event "neither a preset nor a native event" => Error::NoEvent.code(); ready().query_event(7).code();
    query_event "not initialized" => Error::NotInitialized.code(), "undefined"; new().query_event(PAPI_TOT_INS).code();
    event_name_to_code "a preset" => PAPI_TOT_INS; ready().event_name_to_code("PAPI_TOT_INS").code();
    event_name_to_code "a native event, in other letters" => INST_RETIRED; ready().event_name_to_code("inst_retired").code();
    event_name_to_code "another CPU's PMU" => Error::NoEvent.code(); ready().event_name_to_code("arm_ac72::INST_RETIRED").code();
    event_name_to_code "no such event" => Error::NoEvent.code(); ready().event_name_to_code("").code();
    event_name_to_code "not initialized" => Error::NotInitialized.code(); new().event_name_to_code("PAPI_TOT_INS").code();
    event_code_to_name "a preset, even one that the CPU does not count" => 0;
        holds(ready().event_code_to_name(PAPI_L3_TCM) == Ok("PAPI_L3_TCM"));
    event_code_to_name "a native event" => 0; holds(ready().event_code_to_name(INST_RETIRED) == Ok("INST_RETIRED"));
    event_code_to_name "no such preset" => Error::NotPreset.code(); done(ready().event_code_to_name(PAPI_PRESET_MASK | 0x3fff));
    event_code_to_name "no such event" => Error::NoEvent.code(); done(ready().event_code_to_name(7));
    set_multiplex "stopped" => 0; { let (mut papi, set) = with_set(); papi.set_multiplex(set).code() };
    set_multiplex "running" => Error::IsRunning.code(); { let (mut papi, set) = running(); papi.set_multiplex(set).code() };
    set_multiplex "twice" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.set_multiplex(set).expect("it is stopped");
        papi.set_multiplex(set).code()
    };
    set_multiplex "has no component yet" => Error::NoComponent.code(); {
        let (mut papi, set) = empty();
        papi.set_multiplex(set).code()
    };
    overflow "an event of the set" => PAPI_STOPPED | PAPI_OVERFLOWING; {
        let (mut papi, set) = with_set();
        papi.overflow(set, PAPI_TOT_INS, 1000).expect("it is there");
        papi.state(set).code()
    };
    overflow "threshold 0: no longer" => PAPI_STOPPED; {
        let (mut papi, set) = with_set();
        papi.overflow(set, PAPI_TOT_INS, 1000).expect("it is there");
        papi.overflow(set, PAPI_TOT_INS, 0).expect("it has a threshold");
        papi.state(set).code()
    };
    overflow "threshold 0 without one before" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.overflow(set, PAPI_TOT_INS, 0).code()
    };
    overflow "threshold below 0" => Error::Invalid.code(); {
        let (mut papi, set) = with_set();
        papi.overflow(set, PAPI_TOT_INS, -1).code()
    };
    overflow "not in the set" => Error::NoEvent.code(); {
        let (mut papi, set) = with_set();
        papi.overflow(set, PAPI_L1_DCM, 1000).code()
    };
    overflow "a derived event" => Error::Invalid.code(); {
        let (mut papi, set) = empty();
        papi.add_event(set, PAPI_L1_DCH).expect("it can be counted");
        papi.overflow(set, PAPI_L1_DCH, 1000).code()
    };
    overflow "running" => Error::IsRunning.code(); {
        let (mut papi, set) = running();
        papi.overflow(set, PAPI_TOT_INS, 1000).code()
    };
    strerror "a code of PAPI's" => 0; holds(cloison_epapi::error::strerror(-8).is_some_and(|text| !text.is_empty()));
    strerror "no such code: a null pointer" => 0;
        holds(cloison_epapi::error::strerror(-99).is_none() && cloison_epapi::error::strerror(1).is_none());
    event_info "runs that an event takes" => 2; {
        let papi = ready();
        papi.event_info(PAPI_RES_STL).map_or(-1, |info| info.runs as i32)
    };
    event_verdict "on the board model" => 1; {
        let papi = ready();
        let cpu = papi.machine().expect("initialized").cpu;
        query::verdict(cpu, PAPI_TOT_INS, "virt-model").map_or_else(Error::code, |verdict| verdict as i32)
    };
    event_verdict "a machine without verdicts" => Error::Invalid.code(); {
        let papi = ready();
        done(query::verdict(papi.machine().expect("initialized").cpu, PAPI_TOT_INS, "nowhere"))
    };
};
