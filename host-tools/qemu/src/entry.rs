//! A plugin's entry point, and what it is told of the machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ffi::{PluginId, name_plugin};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// The first members of `qemu_info_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Info {
    target: *const c_char,
    version_min: c_int,
    version_current: c_int,
    is_system: bool,
    vcpus: c_int,
    most_vcpus: c_int,
}

/// The machine that QEMU emulates.
#[derive(Clone, Copy, Debug)]
pub struct Emulated {
    /// Its processor is AArch64, and QEMU emulates all of it, not one program.
    pub is_arm_system: bool,
    /// Number of its cores.
    pub cores: usize,
}

/// Installs a plugin with its arguments, or says why it cannot.
pub type Install = fn(PluginId, Emulated, &[&str]) -> Result<(), String>;

/// Does what QEMU expects of a plugin's entry point: 0 is success.
///
/// # Safety
///
/// The arguments are QEMU's: its own description and `count` strings that live as long as QEMU.
pub unsafe fn enter(
    name: &'static str,
    install: Install,
    (id, info): (PluginId, *const Info),
    (count, texts): (c_int, *const *const c_char),
) -> c_int {
    name_plugin(name);
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
            eprintln!("{name}: {error}");
            1
        }
    }
}

/// Makes a library a plugin of QEMU: gives it the entry point, which calls the installation.
#[macro_export]
macro_rules! plugin {
    ($name:literal, $install:path) => {
        /// The plugin's entry point.
        ///
        /// # Safety
        ///
        /// QEMU calls it once, with its own description and `count` strings.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn qemu_plugin_install(
            id: $crate::ffi::PluginId,
            info: *const $crate::entry::Info,
            count: core::ffi::c_int,
            texts: *const *const core::ffi::c_char,
        ) -> core::ffi::c_int {
            // SAFETY: the arguments are QEMU's.
            unsafe { $crate::entry::enter($name, $install, (id, info), (count, texts)) }
        }
    };
}
