//! The low-level functions: event sets.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(non_snake_case)]

use crate::cores::{Way, position, set_initialized, with};
use crate::pointers::{codes, name, store, values};
use crate::shim::{counting, stopped};
use cloison_epapi::library::each;
use cloison_epapi::preset::PAPI_NULL;
use cloison_epapi::{Error, Library, PAPI_VER_CURRENT};
use core::ffi::{c_char, c_int, c_longlong};

counting! {
    ePAPI_start = start(set: c_int): "`PAPI_start`: starts counting from zero.";
    ePAPI_stop = stop(set: c_int, values: *mut c_longlong): "`PAPI_stop`: stops counting; values may be null.";
    ePAPI_read = read(set: c_int, values: *mut c_longlong): "`PAPI_read`: reads the counts.";
    ePAPI_accum = accum(set: c_int, values: *mut c_longlong):
        "`PAPI_accum`: adds the counts to values, and sets them to zero.";
    ePAPI_reset = reset(set: c_int): "`PAPI_reset`: sets the counts to zero.";
}

/// `ePAPI_start`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn start(set: c_int) -> c_int {
    stopped(|library| library.start_frozen(set).map(|()| 0))
}

/// `ePAPI_stop`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn stop(set: c_int, into: *mut c_longlong) -> c_int {
    stopped(|library| {
        let number = library.num_events(set)?;
        // SAFETY: the program's promise about the pointer of `ePAPI_stop`: room for the set's
        // events.
        let values = unsafe { values(into, number as c_int) };
        library.stop_frozen(set, values).map(|()| 0)
    })
}

/// `ePAPI_read`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn read(set: c_int, into: *mut c_longlong) -> c_int {
    stopped(|library| {
        let number = library.num_events(set)?;
        // SAFETY: the program's promise about the pointer of `ePAPI_read`: room for the set's
        // events.
        let values = unsafe { values(into, number as c_int) };
        library.read_frozen(set, values).map(|()| 0)
    })
}

/// `ePAPI_accum`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn accum(set: c_int, into: *mut c_longlong) -> c_int {
    stopped(|library| {
        let number = library.num_events(set)?;
        // SAFETY: the program's promise about the pointer of `ePAPI_accum`: room for the set's
        // events.
        let values = unsafe { values(into, number as c_int) };
        library.accum_frozen(set, values).map(|()| 0)
    })
}

/// `ePAPI_reset`, after the counters were stopped.
///
/// # Safety
/// As of that function.
unsafe extern "C" fn reset(set: c_int) -> c_int {
    stopped(|library| library.reset_frozen(set).map(|()| 0))
}

/// Calls `f` with the calling core's library. Returns the result of `f`, or PAPI's code for its
/// error.
pub(crate) fn call(f: impl FnOnce(&mut Library<Way>) -> Result<c_int, Error>) -> c_int {
    with(|core| f(&mut core.library)).unwrap_or_else(Error::code)
}

fn done(result: Result<(), Error>) -> Result<c_int, Error> {
    result.map(|()| 0)
}

/// `PAPI_library_init`: looks for counters. Afterwards all cores may count.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_library_init(version: c_int) -> c_int {
    if version != PAPI_VER_CURRENT {
        return Error::Invalid.code();
    }
    let result = call(|library| library.library_init());
    if result >= 0 {
        set_initialized(true);
    }
    result
}

/// `PAPI_create_eventset`: makes an event set.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_create_eventset(set: *mut c_int) -> c_int {
    call(|library| {
        library.machine()?;
        if set.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        unsafe { set.write(library.create_eventset(set.read())?) };
        Ok(0)
    })
}

/// `PAPI_destroy_eventset`: removes an empty event set.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_destroy_eventset(set: *mut c_int) -> c_int {
    call(|library| {
        if set.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        unsafe {
            library.destroy_eventset(set.read())?;
            set.write(PAPI_NULL);
        }
        Ok(0)
    })
}

/// `PAPI_cleanup_eventset`: removes all events of a set.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_cleanup_eventset(set: c_int) -> c_int {
    with(|core| {
        core.library.cleanup_eventset(set)?;
        core.handlers
            .get_mut(position(set))
            .into_iter()
            .for_each(|handler| *handler = None);
        Ok(0)
    })
    .unwrap_or_else(Error::code)
}

/// `PAPI_assign_eventset_component`: binds a set to component 0, the CPU.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_assign_eventset_component(set: c_int, component: c_int) -> c_int {
    call(|library| done(library.assign_eventset_component(set, component)))
}

/// `PAPI_add_event`: adds an event to a set.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_add_event(set: c_int, event: c_int) -> c_int {
    call(|library| done(library.add_event(set, event)))
}

/// `PAPI_add_events`: adds events to a set.
///
/// # Safety
/// The pointer is null or valid for so many events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_add_events(
    set: c_int,
    events: *const c_int,
    number: c_int,
) -> c_int {
    call(|library| {
        // SAFETY: the program's promise about the pointer.
        let codes = unsafe { codes(events, number) }?;
        each(codes, |code| library.add_event(set, code)).map(|number| number as c_int)
    })
}

/// `PAPI_add_named_event`: adds an event by its name.
///
/// # Safety
/// The pointer is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_add_named_event(set: c_int, event: *const c_char) -> c_int {
    // SAFETY: the program's promise about the pointer.
    call(|library| done(library.add_named_event(set, unsafe { name(event) }?)))
}

/// `PAPI_remove_event`: removes an event from a set.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_remove_event(set: c_int, event: c_int) -> c_int {
    call(|library| done(library.remove_event(set, event)))
}

/// `PAPI_remove_events`: removes events from a set.
///
/// # Safety
/// The pointer is null or valid for so many events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_remove_events(
    set: c_int,
    events: *const c_int,
    number: c_int,
) -> c_int {
    call(|library| {
        // SAFETY: the program's promise about the pointer.
        let codes = unsafe { codes(events, number) }?;
        each(codes, |code| library.remove_event(set, code)).map(|number| number as c_int)
    })
}

/// `PAPI_remove_named_event`: removes an event by its name.
///
/// # Safety
/// The pointer is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_remove_named_event(set: c_int, event: *const c_char) -> c_int {
    // SAFETY: the program's promise about the pointer.
    call(|library| done(library.remove_named_event(set, unsafe { name(event) }?)))
}

/// `PAPI_num_events`: the number of a set's events.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_num_events(set: c_int) -> c_int {
    call(|library| library.num_events(set).map(|number| number as c_int))
}

/// `PAPI_list_events`: a set's events. With a null pointer or room for none, their number.
///
/// # Safety
///
/// The pointers are null or valid, `events` for as many as `number` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_list_events(
    set: c_int,
    events: *mut c_int,
    number: *mut c_int,
) -> c_int {
    call(|library| {
        if number.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        let room = usize::try_from(unsafe { number.read() }).map_err(|_| Error::Invalid)?;
        if events.is_null() && room > 0 {
            return Err(Error::Invalid);
        }
        let found = library.list_events(set)?;
        let listed = if room == 0 {
            found.len()
        } else {
            found.len().min(room)
        };
        for (at, code) in found.iter().take(room).enumerate() {
            // SAFETY: less than `room`, for which the program's pointer is valid.
            unsafe { events.add(at).write(*code) };
        }
        // SAFETY: not null, and the program promises the rest.
        unsafe { store(number, listed as c_int) }?;
        Ok(0)
    })
}

/// `PAPI_state`: the state of a set.
///
/// # Safety
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_state(set: c_int, state: *mut c_int) -> c_int {
    call(|library| {
        if state.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        done(unsafe { store(state, library.state(set)?) })
    })
}

/// `PAPI_set_multiplex`: a set's events take turns on the counters.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_set_multiplex(set: c_int) -> c_int {
    call(|library| done(library.set_multiplex(set)))
}
