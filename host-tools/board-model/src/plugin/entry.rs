//! The plugin's entry point.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::PluginId;
use super::install::{Emulated, install};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// The first members of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    version_min: c_int,
    version_current: c_int,
    is_system: bool,
    vcpus: c_int,
    most_vcpus: c_int,
}

/// The plugin's entry point.
///
/// # Safety
///
/// QEMU calls it once, with its own description and `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    texts: *const *const c_char,
) -> c_int {
    let text = |at: usize| {
        // SAFETY: as QEMU promises: `count` zero-terminated strings that live as long as QEMU.
        unsafe { CStr::from_ptr(*texts.add(at)) }.to_str()
    };
    let texts: Result<Vec<&str>, _> = (0..usize::try_from(count).unwrap_or(0)).map(text).collect();
    // SAFETY: QEMU passes a pointer to its description, which lives until this function returns,
    // and its target as a zero-terminated string.
    let emulated = unsafe {
        let info = &*info;
        Emulated {
            is_arm_system: CStr::from_ptr(info.target) == c"aarch64" && info.is_system,
            cores: usize::try_from(info.most_vcpus.max(info.vcpus)).unwrap_or(0),
        }
    };
    let installed = texts
        .map_err(|error| error.to_string())
        .and_then(|texts| install(id, emulated, &texts));
    match installed {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("board-model: {error}");
            1
        }
    }
}
