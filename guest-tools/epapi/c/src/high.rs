//! The high-level functions, as PAPI 5.7 had them.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(non_snake_case)]

use crate::cores::{Way, set_initialized, with};
use crate::pointers::{codes, store, values};
use crate::shim::{counting, stopped};
use cloison_epapi::high::Rate;
use cloison_epapi::{Error, Library};
use core::ffi::{c_int, c_longlong};

counting! {
    ePAPI_start_counters = start_counters(events: *const c_int, length: c_int):
        "`PAPI_start_counters`: starts counting events.";
    ePAPI_read_counters = read_counters(values: *mut c_longlong, length: c_int):
        "`PAPI_read_counters`: reads the counters, and sets them to zero.";
    ePAPI_accum_counters = accum_counters(values: *mut c_longlong, length: c_int):
        "`PAPI_accum_counters`: adds the counters to values, and sets them to zero.";
    ePAPI_stop_counters = stop_counters(values: *mut c_longlong, length: c_int):
        "`PAPI_stop_counters`: stops the counters, and reads them.";
    ePAPI_ipc = ipc(seconds: *mut f32, process: *mut f32, instructions: *mut c_longlong, per_cycle: *mut f32):
        "`PAPI_ipc`: instructions per cycle.";
    ePAPI_epc = epc(
        event: c_int, seconds: *mut f32, process: *mut f32, reference: *mut c_longlong, cycles: *mut c_longlong,
        events: *mut c_longlong, per_cycle: *mut f32
    ): "`PAPI_epc`: events per cycle.";
}

/// `PAPI_num_counters`: the number of counters.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_num_counters() -> c_int {
    initialize(|library| library.num_counters())
}

/// Calls `f`, and says that the library is initialized if it succeeds.
fn initialize(f: impl FnOnce(&mut Library<Way>) -> Result<c_int, Error>) -> c_int {
    let result = with(|core| f(&mut core.library));
    if result.is_ok() {
        set_initialized(true);
    }
    result.unwrap_or_else(Error::code)
}

fn initialized(result: Result<(), Error>) -> Result<c_int, Error> {
    result.map(|()| {
        set_initialized(true);
        0
    })
}

/// `ePAPI_start_counters`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn start_counters(events: *const c_int, length: c_int) -> c_int {
    stopped(|library| {
        // SAFETY: the program's promise about the pointer of `ePAPI_start_counters`.
        let codes = unsafe { codes(events, length) }?;
        initialized(library.start_counters_frozen(codes))
    })
}

/// `ePAPI_read_counters`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn read_counters(into: *mut c_longlong, length: c_int) -> c_int {
    stopped(|library| {
        // SAFETY: the program's promise about the pointer of `ePAPI_read_counters`.
        let values = unsafe { values(into, length) }.unwrap_or_default();
        library.read_counters_frozen(values).map(|()| 0)
    })
}

/// `ePAPI_accum_counters`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn accum_counters(into: *mut c_longlong, length: c_int) -> c_int {
    stopped(|library| {
        // SAFETY: the program's promise about the pointer of `ePAPI_accum_counters`.
        let values = unsafe { values(into, length) }.unwrap_or_default();
        library.accum_counters_frozen(values).map(|()| 0)
    })
}

/// `ePAPI_stop_counters`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn stop_counters(into: *mut c_longlong, length: c_int) -> c_int {
    stopped(|library| {
        // SAFETY: the program's promise about the pointer of `ePAPI_stop_counters`.
        let values = unsafe { values(into, length) };
        library.stop_counters_frozen(values).map(|()| 0)
    })
}

/// `ePAPI_ipc`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn ipc(
    seconds: *mut f32,
    process: *mut f32,
    instructions: *mut c_longlong,
    per_cycle: *mut f32,
) -> c_int {
    stopped(|library| {
        let is_null =
            [seconds, process, per_cycle].iter().any(|it| it.is_null()) || instructions.is_null();
        if is_null {
            return Err(Error::Invalid);
        }
        let rate: Rate = library.ipc_frozen()?;
        // SAFETY: the program's promise about the pointers of `ePAPI_ipc`.
        unsafe {
            store(seconds, rate.seconds)?;
            store(process, rate.seconds)?;
            store(instructions, rate.events)?;
            store(per_cycle, rate.per_cycle)?;
        }
        initialized(Ok(()))
    })
}

/// `ePAPI_epc`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn epc(
    event: c_int,
    seconds: *mut f32,
    process: *mut f32,
    reference: *mut c_longlong,
    cycles: *mut c_longlong,
    events: *mut c_longlong,
    per_cycle: *mut f32,
) -> c_int {
    stopped(|library| {
        let is_null = [seconds, process, per_cycle].iter().any(|it| it.is_null());
        if is_null || [reference, cycles, events].iter().any(|it| it.is_null()) {
            return Err(Error::Invalid);
        }
        let rate: Rate = library.epc_frozen(event)?;
        // SAFETY: the program's promise about the pointers of `ePAPI_epc`.
        unsafe {
            store(seconds, rate.seconds)?;
            store(process, rate.seconds)?;
            store(reference, 0)?;
            store(cycles, rate.cycles)?;
            store(events, rate.events)?;
            store(per_cycle, rate.per_cycle)?;
        }
        initialized(Ok(()))
    })
}
