//! The version of the plugin API that the plugin uses, chosen by the version of the running QEMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ffi::symbol;
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The version of the plugin API without data for a plugin's own callbacks. QEMU 10.0 to 11.0 take
/// it.
const BY_NUMBER: c_int = 4;
/// The version with such data, the only one that QEMU 11.1 takes.
const BY_DATA: c_int = 7;

/// The version of the plugin API that the plugin uses. QEMU reads it when it has loaded the plugin,
/// before it calls the entry point.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: AtomicI32 = AtomicI32::new(BY_NUMBER);

/// Run by the dynamic linker, before QEMU reads the version.
#[used]
#[unsafe(link_section = ".init_array")]
static CHOOSE_VERSION: extern "C" fn() = choose_version;

/// `VersionTriple` of QEMU's QAPI schema.
#[repr(C)]
struct Triple {
    major: i64,
    minor: i64,
}

/// The first member of `VersionInfo` of QEMU's QAPI schema.
#[repr(C)]
struct Version {
    qemu: *const Triple,
}

extern "C" fn choose_version() {
    let Some(query) = symbol(c"qmp_query_version") else {
        return;
    };
    // SAFETY: the function that QMP's `query-version` calls: it sets no error, and returns a new
    // `VersionInfo`, which is read once.
    let number = unsafe {
        let query: extern "C" fn(*mut *mut c_void) -> *const Version = std::mem::transmute(query);
        let version = query(std::ptr::null_mut());
        ((*(*version).qemu).major, (*(*version).qemu).minor)
    };
    if number >= (11, 1) {
        qemu_plugin_version.store(BY_DATA, Relaxed);
    }
}

/// Whether QEMU passes data to the plugin's own callbacks.
pub fn passes_data() -> bool {
    qemu_plugin_version.load(Relaxed) == BY_DATA
}
