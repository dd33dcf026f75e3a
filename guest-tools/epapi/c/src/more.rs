//! Overflow, turns, time and results in memory.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(non_snake_case)]

use crate::cores::{Handler, is_initialized, position, with};
use crate::low::call;
use cloison_epapi::set::EVENTS;
use cloison_epapi::{Counters, Error};
use core::ffi::{c_int, c_longlong, c_void};
use core::sync::atomic::AtomicU64;

/// `PAPI_OVERFLOW_FORCE_SW`: the library has no timer for it.
const FORCE_SOFTWARE: c_int = 0x40;

/// `PAPI_overflow`: a handler is called after each `threshold` events; 0: no longer.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_overflow(
    set: c_int,
    event: c_int,
    threshold: c_int,
    flags: c_int,
    handler: Option<Handler>,
) -> c_int {
    with(|core| {
        let state = core.library.state(set)?;
        let is_first = state & cloison_epapi::set::state::PAPI_OVERFLOWING == 0;
        if flags & FORCE_SOFTWARE != 0 {
            return Err(Error::NotSupported);
        }
        core.library.num_events(set)?;
        if is_first && handler.is_none() && threshold > 0 {
            return Err(Error::Invalid);
        }
        core.library.overflow(set, event, threshold)?;
        let slot = core
            .handlers
            .get_mut(position(set))
            .ok_or(Error::NoEventSet)?;
        if threshold > 0 {
            *slot = handler.or(*slot);
        }
        Ok(0)
    })
    .unwrap_or_else(Error::code)
}

/// Handles the PMU's interrupt. The program's interrupt handler calls it; `context` is passed to
/// the handlers of overflow. Returns how many events have reached their threshold.
///
/// # Safety
///
/// The handlers that the program has registered may be called now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_interrupt(address: *mut c_void, context: *mut c_void) -> c_int {
    let due = with(|core| {
        let Some(overflow) = core.library.interrupt()? else {
            return Ok(None);
        };
        let handler = core.handlers.get(position(overflow.set)).copied().flatten();
        Ok(Some((overflow, handler)))
    });
    match due {
        Err(error) => error.code(),
        Ok(None) => 0,
        Ok(Some((overflow, handler))) => {
            if let Some(handler) = handler {
                // SAFETY: the program has registered it, and says that it may be called now. The
                // library is not in use.
                unsafe {
                    handler(
                        overflow.set,
                        address,
                        overflow.events as c_longlong,
                        context,
                    )
                };
            }
            overflow.events.count_ones() as c_int
        }
    }
}

/// `PAPI_get_overflow_event_index`: the positions in a set of the events that an overflow vector
/// has.
///
/// # Safety
/// The pointers are null or valid, `array` for as many as `number` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_get_overflow_event_index(
    set: c_int,
    vector: c_longlong,
    array: *mut c_int,
    number: *mut c_int,
) -> c_int {
    call(|library| {
        library.num_events(set)?;
        if array.is_null() || number.is_null() || vector == 0 {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        let room = usize::try_from(unsafe { number.read() }).map_err(|_| Error::Invalid)?;
        let mut found = 0;
        for at in (0..EVENTS).filter(|at| vector >> at & 1 != 0).take(room) {
            // SAFETY: less than `room`, for which the program's pointer is valid.
            unsafe { array.add(found).write(at as c_int) };
            found += 1;
        }
        // SAFETY: not null, and the program promises the rest.
        unsafe { number.write(found as c_int) };
        Ok(0)
    })
}

/// `PAPI_multiplex_init`: there is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_multiplex_init() -> c_int {
    if is_initialized() {
        0
    } else {
        Error::NotInitialized.code()
    }
}

/// Gives the next events of a multiplexed set their turn: for the handler of a timer.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_multiplex_tick() -> c_int {
    call(|library| library.multiplex_tick().map(|()| 0))
}

/// `PAPI_is_initialized`: 1, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_is_initialized() -> c_int {
    is_initialized().into()
}

/// `PAPI_num_hwctrs`: the number of counters.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_num_hwctrs() -> c_int {
    call(|library| library.num_hwctrs())
}

/// `PAPI_get_real_nsec`: nanoseconds by the clock that all cores share.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_get_real_nsec() -> c_longlong {
    with(|core| {
        let frequency = u128::from(core.library.machine()?.frequency.max(1));
        let ticks = u128::from(core.library.counters().ticks());
        Ok((ticks * 1_000_000_000 / frequency) as c_longlong)
    })
    .unwrap_or_else(|error| error.code().into())
}

/// `PAPI_get_real_usec`: microseconds by the clock that all cores share.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_get_real_usec() -> c_longlong {
    match ePAPI_get_real_nsec() {
        nanoseconds @ 0.. => nanoseconds / 1000,
        error => error,
    }
}

/// Sets where the calling core's results are written from now on (docs/papi.md); a null pointer:
/// nowhere.
///
/// # Safety
/// The pointer is null or valid for so many bytes as long as the program runs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_set_results(words: *mut u64, bytes: usize) -> c_int {
    call(|library| {
        if !words.is_aligned() || bytes > isize::MAX as usize {
            return Err(Error::Invalid);
        }
        let words: &'static [AtomicU64] = if words.is_null() {
            &[]
        } else {
            // SAFETY: not null and aligned, and the program promises the rest. Others may read and
            // write atomically.
            unsafe { core::slice::from_raw_parts(words.cast(), bytes / size_of::<u64>()) }
        };
        library.set_results(words);
        Ok(0)
    })
}
