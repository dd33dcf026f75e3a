//! Arguments from C: pointers that may be null, and lengths that may be absurd.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_epapi::Error;
use cloison_epapi::set::EVENTS;
use core::ffi::{CStr, c_char, c_int, c_longlong};

/// Bytes of a name, with its zero: `PAPI_MAX_STR_LEN`.
pub const MAX_NAME: usize = 128;

/// Returns an array of values, cut to the maximum number of events of a set.
///
/// # Safety
///
/// The pointer is null or valid for `length` values, and nothing else uses them for `'a`.
pub unsafe fn values<'a>(values: *mut c_longlong, length: c_int) -> Option<&'a mut [i64]> {
    let length = usize::try_from(length).unwrap_or(0).min(EVENTS);
    // SAFETY: not null, and the caller keeps the rest.
    (!values.is_null()).then(|| unsafe { core::slice::from_raw_parts_mut(values, length) })
}

/// Returns the codes of an array. They are read one by one, so that an absurd length is none until
/// it is reached.
///
/// # Errors
/// [`Error::Invalid`] for a null pointer or no events.
///
/// # Safety
/// The pointer is null or valid for as many codes as are taken.
pub unsafe fn codes(
    events: *const c_int,
    length: c_int,
) -> Result<impl Iterator<Item = c_int>, Error> {
    if events.is_null() || length <= 0 {
        return Err(Error::Invalid);
    }
    // SAFETY: less than `length`, and the caller keeps the rest.
    Ok((0..length as usize).map(move |at| unsafe { events.add(at).read() }))
}

/// Stores a value.
///
/// # Errors
/// [`Error::Invalid`] for a null pointer.
///
/// # Safety
/// The pointer is null or valid for writes.
pub unsafe fn store<T>(to: *mut T, value: T) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: not null, and the caller keeps the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Returns a name.
///
/// # Errors
/// [`Error::Invalid`] for a null pointer, [`Error::NoEvent`] for what is too long or not text.
///
/// # Safety
/// The pointer is null or valid up to a zero or [`MAX_NAME`] bytes.
pub unsafe fn name<'a>(name: *const c_char) -> Result<&'a str, Error> {
    if name.is_null() {
        return Err(Error::Invalid);
    }
    // SAFETY: one byte after the other up to the zero, and the caller keeps the rest.
    let length = (0..MAX_NAME)
        .find(|at| unsafe { name.add(*at).read() } == 0)
        .ok_or(Error::NoEvent)?;
    // SAFETY: these bytes were just read, and the one after them is zero.
    let bytes = unsafe { core::slice::from_raw_parts(name.cast::<u8>(), length + 1) };
    CStr::from_bytes_with_nul(bytes)
        .ok()
        .and_then(|text| text.to_str().ok())
        .ok_or(Error::NoEvent)
}

/// Writes a name and a zero.
///
/// # Errors
/// [`Error::Invalid`] for a null pointer.
///
/// # Safety
/// The pointer is null or valid for writes of [`MAX_NAME`] bytes.
pub unsafe fn store_name(to: *mut c_char, name: &str) -> Result<(), Error> {
    if to.is_null() {
        return Err(Error::Invalid);
    }
    for (at, byte) in name.bytes().take(MAX_NAME - 1).chain([0]).enumerate() {
        // SAFETY: at most `MAX_NAME` bytes, and the caller keeps the rest.
        unsafe { to.add(at).write(byte as c_char) };
    }
    Ok(())
}
