//! The functions as C calls them: null pointers, absurd numbers, several cores at once, handlers
//! that call back.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg(not(target_arch = "aarch64"))]

use cloison_epapi::preset::{PAPI_NATIVE_MASK, PAPI_NULL, PAPI_TOT_CYC, PAPI_TOT_INS};
use cloison_epapi::{Error, EventId, PAPI_VER_CURRENT};
use core::ffi::{c_int, c_longlong, c_void};
use core::ptr::{null, null_mut};
use epapi::cores::{CORES, simulation};
use epapi::{events::*, high::*, low::*, more::*};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

const INVALID: c_int = Error::Invalid as c_int;

/// Runs `f` as a core that no other test is.
fn on_core(number: usize, f: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            simulation::CORE.set(number);
            f();
        });
    });
}

fn run(cycles: u64, instructions: u64) {
    simulation::pmu(|pmu| pmu.run(cycles, &[(EventId::INST_RETIRED, instructions)]))
        .expect("the core has a library");
}

/// Initializes the library, and returns a set with cycles and instructions.
fn set() -> c_int {
    assert_eq!(ePAPI_library_init(PAPI_VER_CURRENT), PAPI_VER_CURRENT);
    let mut set = PAPI_NULL;
    // SAFETY: the pointers are those of two variables.
    unsafe {
        assert_eq!(ePAPI_create_eventset(&mut set), 0);
        assert_eq!(
            ePAPI_add_events(set, [PAPI_TOT_CYC, PAPI_TOT_INS].as_ptr(), 2),
            0
        );
    }
    set
}

#[test]
fn null_pointers_are_invalid_arguments() {
    on_core(0, || {
        let set = set();
        // SAFETY: null pointers are what these functions have to refuse; the others are those of
        // variables.
        unsafe {
            assert_eq!(ePAPI_start_counters(null(), 1), INVALID);
            assert_eq!(ePAPI_start_counters([PAPI_TOT_INS].as_ptr(), 1), 0);
            assert_eq!(ePAPI_read_counters(null_mut(), 1), INVALID);
            assert_eq!(ePAPI_accum_counters(null_mut(), 1), INVALID);
            assert_eq!(ePAPI_stop_counters(null_mut(), 1), INVALID);
            assert_eq!(ePAPI_stop_counters(&mut 0, 1), 0);
            assert_eq!(ePAPI_ipc(null_mut(), &mut 0.0, &mut 0, &mut 0.0), INVALID);
            assert_eq!(
                ePAPI_epc(0, &mut 0.0, &mut 0.0, &mut 0, null_mut(), &mut 0, &mut 0.0),
                INVALID
            );
            assert_eq!(ePAPI_create_eventset(null_mut()), INVALID);
            assert_eq!(ePAPI_destroy_eventset(null_mut()), INVALID);
            assert_eq!(ePAPI_add_events(set, null(), 3), INVALID);
            assert_eq!(ePAPI_remove_events(set, null(), 3), INVALID);
            assert_eq!(ePAPI_add_named_event(set, null()), INVALID);
            assert_eq!(ePAPI_remove_named_event(set, null()), INVALID);
            assert_eq!(ePAPI_list_events(set, null_mut(), null_mut()), INVALID);
            assert_eq!(ePAPI_list_events(set, null_mut(), &mut 1), INVALID);
            assert_eq!(ePAPI_state(set, null_mut()), INVALID);
            assert_eq!(ePAPI_read(set, null_mut()), INVALID);
            assert_eq!(ePAPI_accum(set, null_mut()), INVALID);
            assert_eq!(ePAPI_event_name_to_code(null(), &mut 0), INVALID);
            assert_eq!(
                ePAPI_event_name_to_code(c"PAPI_TOT_INS".as_ptr(), null_mut()),
                INVALID
            );
            assert_eq!(ePAPI_event_code_to_name(PAPI_TOT_INS, null_mut()), INVALID);
            assert_eq!(ePAPI_query_named_event(null()), INVALID);
            assert_eq!(ePAPI_event_info(PAPI_TOT_INS, null_mut()), INVALID);
            assert_eq!(ePAPI_event_verdict(PAPI_TOT_INS, null()), INVALID);
            assert_eq!(
                ePAPI_get_overflow_event_index(set, 1, null_mut(), &mut 1),
                INVALID
            );
            assert_eq!(ePAPI_overflow(set, PAPI_TOT_INS, 1000, 0, None), INVALID);
            assert_eq!(ePAPI_start(set), 0);
            assert_eq!(ePAPI_stop(set, null_mut()), 0);
            assert_eq!(ePAPI_set_results(null_mut(), usize::MAX >> 1), 0);
        }
        assert!(ePAPI_strerror(-1000).is_null() && !ePAPI_strerror(-8).is_null());
    });
}

#[test]
fn absurd_numbers_are_errors_and_nothing_is_read_or_written_beyond() {
    on_core(1, || {
        let set = set();
        let mut events = [PAPI_TOT_INS, PAPI_NATIVE_MASK | 0x7777, 0, 0];
        let mut values: [c_longlong; 3] = [-7; 3];
        // SAFETY: the second event stops the reading of what claims to be two thousand million.
        unsafe {
            assert_eq!(
                ePAPI_start_counters(events.as_ptr(), c_int::MAX),
                Error::NoEvent.code()
            );
            assert_eq!(ePAPI_start_counters(events.as_ptr(), -1), INVALID);
            assert_eq!(ePAPI_remove_events(set, events.as_ptr(), c_int::MAX), 1);
            assert_eq!(ePAPI_add_events(set, events.as_ptr(), c_int::MAX), 1);
            // Two events, whatever the program says that there is room for.
            events = [-7; 4];
            let mut number = c_int::MAX;
            assert_eq!(ePAPI_list_events(set, events.as_mut_ptr(), &mut number), 0);
            assert_eq!((number, events[2]), (2, -7));
            assert_eq!(ePAPI_list_events(set, null_mut(), &mut -5), INVALID);
            assert_eq!(ePAPI_start(set), 0);
            assert_eq!(ePAPI_read(set, values.as_mut_ptr()), 0);
            assert_eq!(ePAPI_stop(set, null_mut()), 0);
            assert_eq!(values[2], -7);
            assert_eq!(
                ePAPI_start_counters([PAPI_TOT_CYC, PAPI_TOT_INS].as_ptr(), 2),
                0
            );
            assert_eq!(
                ePAPI_read_counters(values.as_mut_ptr(), c_int::MIN),
                INVALID
            );
            assert_eq!(ePAPI_accum_counters(values.as_mut_ptr(), c_int::MAX), 0);
            assert_eq!(ePAPI_stop_counters(values.as_mut_ptr(), c_int::MAX), 0);
            assert_eq!(values[2], -7);
            let endless = [b'A'; 1024];
            assert_eq!(
                ePAPI_query_named_event(endless.as_ptr().cast()),
                Error::NoEvent.code()
            );
            assert_eq!(
                ePAPI_query_named_event(c"\xff\xfe".as_ptr()),
                Error::NoEvent.code()
            );
            assert_eq!(
                ePAPI_set_results(events.as_mut_ptr().cast::<u8>().add(1).cast(), 64),
                INVALID
            );
        }
        for bad in [c_int::MIN, -1, 63, c_int::MAX] {
            assert_eq!(ePAPI_add_event(bad, PAPI_TOT_INS), Error::NoEventSet.code());
            assert_eq!(ePAPI_num_events(bad), Error::NoEventSet.code());
            assert_eq!(ePAPI_cleanup_eventset(bad), Error::NoEventSet.code());
        }
        assert_eq!(ePAPI_library_init(5 << 24), INVALID);
    });
}

#[test]
fn cores_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for core in 2..6 {
            scope.spawn(move || {
                simulation::CORE.set(core);
                let set = set();
                for round in 1..500 {
                    let mut values: [c_longlong; 2] = [0; 2];
                    // SAFETY: the pointer is that of a variable with room for both events.
                    unsafe {
                        assert_eq!(ePAPI_start(set), 0);
                        run(round * core as u64, round);
                        assert_eq!(ePAPI_stop(set, values.as_mut_ptr()), 0);
                    }
                    assert_eq!(values, [round as i64 * core as i64, round as i64]);
                }
                // Another core's set is none of this core's.
                assert_eq!(ePAPI_num_events(set ^ 64), Error::NoEventSet.code());
            });
        }
    });
    on_core(CORES, || {
        assert_eq!(ePAPI_library_init(PAPI_VER_CURRENT), Error::System.code())
    });
}

static CALLS: AtomicI32 = AtomicI32::new(0);

/// # Safety
/// It may be called at any time.
unsafe extern "C" fn handler(
    set: c_int,
    address: *mut c_void,
    vector: c_longlong,
    context: *mut c_void,
) {
    assert_eq!(
        (vector, address as usize, context as usize),
        (2, 0x1234, 0x5678)
    );
    let mut values: [c_longlong; 2] = [0; 2];
    // SAFETY: the pointer is that of a variable with room for both events.
    assert_eq!(unsafe { ePAPI_read(set, values.as_mut_ptr()) }, 0);
    assert!(values[1] >= 1000);
    CALLS.fetch_add(1, Relaxed);
}

#[test]
fn a_handler_may_call_the_library() {
    on_core(6, || {
        let set = set();
        let interrupt = || {
            // SAFETY: the handler may be called at any time.
            unsafe { ePAPI_interrupt(0x1234 as *mut c_void, 0x5678 as *mut c_void) }
        };
        assert_eq!(ePAPI_overflow(set, PAPI_TOT_INS, 1000, 0, Some(handler)), 0);
        assert_eq!(
            ePAPI_overflow(set, PAPI_TOT_INS, 1000, 0x40, Some(handler)),
            Error::NotSupported.code()
        );
        // SAFETY: it has no pointer.
        unsafe { assert_eq!(ePAPI_start(set), 0) };
        assert_eq!(interrupt(), 0);
        for _ in 0..3 {
            run(1, 1001);
            assert_eq!(interrupt(), 1);
        }
        assert_eq!(CALLS.load(Relaxed), 3);
        let mut at = [9; 4];
        let mut number = 4;
        // SAFETY: the pointers are those of variables, the first with room for four.
        unsafe {
            assert_eq!(
                ePAPI_get_overflow_event_index(set, 2, at.as_mut_ptr(), &mut number),
                0
            )
        };
        assert_eq!((number, at), (1, [1, 9, 9, 9]));
    });
}

#[test]
fn what_is_known_about_an_event_reaches_c() {
    on_core(7, || {
        set();
        let mut code = 0;
        // SAFETY: all bytes of the structure may be zero.
        let mut info: EventInfo = unsafe { core::mem::zeroed() };
        // SAFETY: the pointers are those of variables.
        unsafe {
            assert_eq!(
                ePAPI_event_name_to_code(c"PAPI_L1_DCH".as_ptr(), &mut code),
                0
            );
            assert_eq!(ePAPI_event_info(code, &mut info), 0);
            assert_eq!(ePAPI_event_verdict(code, c"virt-icount".as_ptr()), 6);
        }
        assert_eq!(
            (info.derived, info.closeness, info.runs, info.count),
            (1, 0, 1, 2)
        );
        assert_eq!(
            (info.code[..2].to_vec(), info.sign[..2].to_vec()),
            (vec![0x4000_0004, 0x4000_0003], vec![1, -1])
        );
        let name: Vec<u8> = info
            .symbol
            .iter()
            .map(|byte| *byte as u8)
            .take_while(|byte| *byte != 0)
            .collect();
        assert_eq!(name, b"PAPI_L1_DCH");
    });
}
