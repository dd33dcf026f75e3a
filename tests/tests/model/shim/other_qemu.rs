//! A preloaded library that shows the plugin a QEMU whose internals differ from those it knows.
//!
//! The environment variable `OTHER_QEMU` chooses how: `layout`: the accelerator's class has one
//! more function before the clock's, as QEMU 10.1 has; `registers`: registers cannot be read in
//! callbacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{CStr, c_char, c_int, c_void};

const NEXT: *mut c_void = -1isize as *mut c_void;

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Class = unsafe extern "C" fn(*const c_char) -> *mut *mut c_void;

fn real() -> Find {
    // SAFETY: glibc has this function in this version; its signature is dlsym's.
    unsafe { std::mem::transmute(dlvsym(NEXT, c"dlsym".as_ptr(), c"GLIBC_2.34".as_ptr())) }
}

/// Words of a class that are copied.
const WORDS: usize = 64;

unsafe extern "C" fn class(name: *const c_char) -> *mut *mut c_void {
    // SAFETY: QEMU's own functions, with their signatures; the class is longer than what is copied
    // up to its end.
    unsafe {
        let find = real();
        let own: Class = std::mem::transmute(find(std::ptr::null_mut(), c"object_class_by_name".as_ptr()));
        let found = own(name);
        if found.is_null() || CStr::from_ptr(name) != c"tcg-accel-ops" {
            return found;
        }
        let handle = find(std::ptr::null_mut(), c"tcg_handle_interrupt".as_ptr());
        let mut words: Vec<*mut c_void> = Vec::with_capacity(WORDS);
        let mut at = 0;
        while words.len() < 32 {
            let word = found.add(at).read();
            words.push(word);
            at += 1;
            if word == handle {
                break;
            }
        }
        // get_vcpu_stats, get_virtual_clock, set_virtual_clock.
        words.extend([std::ptr::null_mut(); 3]);
        words.leak().as_mut_ptr()
    }
}

extern "C" fn no_register(_handle: *mut c_void, _bytes: *mut c_void) -> c_int {
    -1
}

/// The dynamic linker's function, with one answer changed.
///
/// # Safety
/// As dlsym.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let how = std::env::var("OTHER_QEMU").unwrap_or_default();
    // SAFETY: the caller passes a name that ends with a zero.
    let wanted = unsafe { CStr::from_ptr(name) };
    if how == "layout" && wanted == c"object_class_by_name" {
        return class as *mut c_void;
    }
    if how == "registers" && wanted == c"qemu_plugin_read_register" {
        return no_register as *mut c_void;
    }
    // SAFETY: as the caller promises.
    unsafe { real()(handle, name) }
}
