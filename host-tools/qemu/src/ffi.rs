//! The used part of QEMU's plugin API that is the same from version 4 to 7; every function is
//! looked up by name.
//!
//! No package ships the API's header, and linking would make the tests of the safe modules depend
//! on QEMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::ffi::CStr;
use std::sync::OnceLock;

/// Identifies the plugin to QEMU.
pub type PluginId = u64;
/// Data that QEMU passes back to a callback.
pub type UserData = *mut c_void;
/// Called when a block or an instruction is executed.
pub type ExecuteCallback = extern "C" fn(c_uint, UserData);
/// Called at a load or store, with vCPU, kind and virtual address.
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, UserData);
/// The callback reads no registers.
pub const NO_REGISTERS: c_int = 0;
/// The callback reads registers.
pub const READS_REGISTERS: c_int = 1;
/// The callback reads and writes registers.
pub const WRITES_REGISTERS: c_int = 2;
/// Loads.
pub const LOADS: c_int = 1;
/// Stores.
pub const STORES: c_int = 2;

/// `qemu_plugin_mem_value`, for values of up to 64 bits.
#[repr(C)]
pub struct MemoryValue {
    /// log2 of its bytes.
    pub kind: c_int,
    /// The value.
    pub low: u64,
    /// Its upper half, if it has 128 bits.
    pub high: u64,
}

/// `GByteArray` of GLib.
#[repr(C)]
pub struct ByteArray {
    /// The bytes.
    pub data: *mut u8,
    /// Number of bytes.
    pub len: c_uint,
}

/// `GArray` of GLib.
#[repr(C)]
pub struct Array {
    /// The elements.
    pub data: *mut c_char,
    /// Number of elements.
    pub len: c_uint,
}

/// The first members of `qemu_plugin_reg_descriptor`: later versions of the API add to it.
#[repr(C)]
pub struct RegisterDescriptor {
    /// Handle for `read_register`.
    pub handle: *mut c_void,
    /// Name of the register.
    pub name: *const c_char,
}

/// Looks up a function or variable of QEMU by name.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym only reads the name, which ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Declares a table of functions that QEMU must export.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($(#[$doc:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }
        impl $table {
            /// Finds all functions, or returns the name of the first one missing.
            pub fn find() -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let found = $crate::ffi::symbol($name).ok_or($name.to_str().unwrap_or_default())?;
                        // SAFETY: QEMU's function of this name has this signature (QEMU 10.0 to
                        // 11.1).
                        unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;

functions! {
    /// The plugin API.
    Api {
        /// Registers a callback before a block.
        on_block = c"qemu_plugin_register_vcpu_tb_exec_cb": fn(*mut c_void, ExecuteCallback, c_int, UserData);
        /// Registers a callback before an instruction.
        on_instruction = c"qemu_plugin_register_vcpu_insn_exec_cb": fn(*mut c_void, ExecuteCallback, c_int, UserData);
        /// Registers a callback at an instruction's loads or stores.
        on_memory = c"qemu_plugin_register_vcpu_mem_cb": fn(*mut c_void, MemoryCallback, c_int, c_int, UserData);
        /// Returns the number of instructions in a block.
        instructions = c"qemu_plugin_tb_n_insns": fn(*const c_void) -> size_t;
        /// Returns one instruction of a block.
        instruction = c"qemu_plugin_tb_get_insn": fn(*const c_void, size_t) -> *mut c_void;
        /// Returns an instruction's address.
        address = c"qemu_plugin_insn_vaddr": fn(*const c_void) -> u64;
        /// Copies an instruction's bytes.
        bytes = c"qemu_plugin_insn_data": fn(*const c_void, *mut c_void, size_t) -> size_t;
        /// Returns the physical side of an access.
        physical = c"qemu_plugin_get_hwaddr": fn(u32, u64) -> *mut c_void;
        /// Returns the physical address of an access.
        physical_address = c"qemu_plugin_hwaddr_phys_addr": fn(*const c_void) -> u64;
        /// Returns whether an access is to a device.
        is_device = c"qemu_plugin_hwaddr_is_io": fn(*const c_void) -> bool;
        /// Returns the value that was loaded or stored.
        memory_value = c"qemu_plugin_mem_get_value": fn(u32) -> MemoryValue;
        /// Returns log2 of an access's bytes.
        size_shift = c"qemu_plugin_mem_size_shift": fn(u32) -> c_uint;
        /// Returns the registers of the running vCPU.
        registers = c"qemu_plugin_get_registers": fn() -> *mut Array;
        /// Reads a register.
        read_register = c"qemu_plugin_read_register": fn(*mut c_void, *mut ByteArray);
        /// GLib: returns the size of an array's elements.
        element_size = c"g_array_get_element_size": fn(*const Array) -> c_uint;
        /// GLib: creates a byte array.
        byte_array = c"g_byte_array_new": fn() -> *mut ByteArray;
        /// GLib: sets the size of a byte array.
        set_size = c"g_byte_array_set_size": fn(*mut ByteArray, c_uint) -> *mut ByteArray;
    }
}

/// The versions of QEMU for which the plugin was made.
pub const KNOWN_QEMU: &str = "the plugin knows QEMU 10.0 to 11.1, as Debian builds them";

/// Says that QEMU lacks a function.
pub fn missing(name: &str) -> String {
    format!("this QEMU has no `{name}`: {KNOWN_QEMU}")
}

/// The plugin's name, before each of its messages.
static NAME: OnceLock<&str> = OnceLock::new();

/// Names the plugin.
pub(crate) fn name_plugin(name: &'static str) {
    // The first name stays.
    let _ = NAME.set(name);
}

/// Prints an error and ends QEMU.
pub fn fail(error: &str) -> ! {
    eprintln!("{}: {error}", NAME.get().unwrap_or(&"plugin"));
    std::process::exit(1)
}
