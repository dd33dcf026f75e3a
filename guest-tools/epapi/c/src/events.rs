//! Names of events and errors, and information about an event.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![allow(non_snake_case)]

use crate::low::call;
use crate::pointers::{MAX_NAME, name, store, store_name};
use cloison_epapi::{Error, error, query};
use core::ffi::{c_char, c_int};
use core::ptr::null;

/// The most native events of a preset.
const TERMS: usize = 12;

/// Information about an event: `ePAPI_event_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventInfo {
    /// Its code.
    pub event_code: c_int,
    /// 1: it is a sum or difference of several native events.
    pub derived: c_int,
    /// How close its count is to what its name promises: 0 exact, 1 an upper bound, 2 something
    /// near.
    pub closeness: c_int,
    /// The number of runs that count it once; 0: no counter can.
    pub runs: c_int,
    /// The number of native events that it is made of.
    pub count: c_int,
    /// Their codes.
    pub code: [c_int; TERMS],
    /// For each of them, 1 if it is added, -1 if it is subtracted.
    pub sign: [c_int; TERMS],
    /// Its name.
    pub symbol: [c_char; MAX_NAME],
    /// What it counts.
    pub long_descr: [c_char; MAX_NAME],
}

/// `PAPI_strerror`: the text on a return code, or a null pointer.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_strerror(code: c_int) -> *const c_char {
    error::strerror(code).map_or(null(), |text| text.as_ptr())
}

/// `PAPI_query_event`: whether an event can be counted.
#[unsafe(no_mangle)]
pub extern "C" fn ePAPI_query_event(event: c_int) -> c_int {
    call(|library| library.query_event(event).map(|()| 0))
}

/// `PAPI_query_named_event`: whether an event can be counted, by its name.
///
/// # Safety
/// The pointer is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_query_named_event(event: *const c_char) -> c_int {
    call(|library| {
        // SAFETY: the program's promise about the pointer.
        let name = unsafe { name(event) }?;
        let code = library.event_name_to_code(name)?;
        library.query_event(code).map(|()| 0)
    })
}

/// `PAPI_event_name_to_code`: an event's code by its name.
///
/// # Safety
/// The pointers are null or valid, the first up to a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_event_name_to_code(event: *const c_char, code: *mut c_int) -> c_int {
    call(|library| {
        // SAFETY: the program's promise about the pointers.
        unsafe {
            let name = name(event)?;
            if code.is_null() {
                return Err(Error::Invalid);
            }
            store(code, library.event_name_to_code(name)?)?;
        }
        Ok(0)
    })
}

/// `PAPI_event_code_to_name`: an event's name.
///
/// # Safety
/// The pointer is null or valid for `PAPI_MAX_STR_LEN` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_event_code_to_name(event: c_int, out: *mut c_char) -> c_int {
    call(|library| {
        if out.is_null() {
            return Err(Error::Invalid);
        }
        // SAFETY: not null, and the program promises the rest.
        unsafe { store_name(out, library.event_code_to_name(event)?) }.map(|()| 0)
    })
}

/// Writes the information about an event. PAPI's own function of this kind has another structure.
///
/// # Safety
///
/// The pointer is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_event_info(event: c_int, info: *mut EventInfo) -> c_int {
    call(|library| {
        let found = library.event_info(event)?;
        let terms = found.terms.as_slice();
        let mut out = EventInfo {
            event_code: event,
            derived: found.terms.is_derived().into(),
            closeness: found.terms.closeness as c_int,
            runs: found.runs as c_int,
            count: terms.len() as c_int,
            code: [0; TERMS],
            sign: [0; TERMS],
            symbol: [0; MAX_NAME],
            long_descr: [0; MAX_NAME],
        };
        for ((term, code), sign) in terms.iter().zip(&mut out.code).zip(&mut out.sign) {
            *code = cloison_epapi::terms::native_code(term.event);
            *sign = if term.minus { -1 } else { 1 };
        }
        // SAFETY: both texts have room for a name; the program promises what there is to the
        // pointer.
        unsafe {
            store_name(out.symbol.as_mut_ptr(), found.name)?;
            store_name(out.long_descr.as_mut_ptr(), found.meaning)?;
            store(info, out)?;
        }
        Ok(0)
    })
}

/// Returns the worst verdict (`ePAPI_TRUSTED` and others) on an event's native events, on a machine
/// such as `virt-model`.
///
/// # Safety
///
/// The pointer is null or a text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ePAPI_event_verdict(event: c_int, machine: *const c_char) -> c_int {
    call(|library| {
        // SAFETY: the program's promise about the pointer.
        let machine = unsafe { name(machine) }?;
        query::verdict(library.machine()?.cpu, event, machine).map(|verdict| verdict as c_int)
    })
}
