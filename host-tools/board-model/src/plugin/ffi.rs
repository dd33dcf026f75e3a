//! QEMU's plugin API, version 4, as far as it is used; every function is looked up by name.
//!
//! No package ships the API's header, and linking would make the tests of the safe modules need a QEMU.

use libc::{c_char, c_int, c_uint, c_void, size_t};
use std::ffi::CStr;

/// Identifies the plugin to QEMU.
pub type PluginId = u64;
/// What QEMU hands back to a callback.
pub type UserData = *mut c_void;
/// At each vCPU's start.
pub type VcpuCallback = extern "C" fn(PluginId, c_uint);
/// When a block is translated.
pub type TranslateCallback = extern "C" fn(PluginId, *mut c_void);
/// When a block or an instruction is executed.
pub type ExecuteCallback = extern "C" fn(c_uint, UserData);
/// At a load or store: vCPU, what kind, virtual address.
pub type MemoryCallback = extern "C" fn(c_uint, u32, u64, UserData);
/// When the plugin's callbacks are all gone.
pub type ResetCallback = extern "C" fn(PluginId);
/// When QEMU ends.
pub type ExitCallback = extern "C" fn(PluginId, UserData);

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

/// `GByteArray` of GLib.
#[repr(C)]
pub struct ByteArray {
    /// Bytes.
    pub data: *mut u8,
    /// How many.
    pub len: c_uint,
}

/// `GArray` of GLib.
#[repr(C)]
pub struct Array {
    /// Elements.
    pub data: *mut c_char,
    /// How many.
    pub len: c_uint,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub struct RegisterDescriptor {
    /// For `read_register`.
    pub handle: *mut c_void,
    /// Name.
    pub name: *const c_char,
    /// The GDB feature that it belongs to.
    pub feature: *const c_char,
}

/// A function or variable of QEMU, by name.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: dlsym only reads the name, which ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Declares a table of functions that QEMU must have.
macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($(#[$doc:meta])* $field:ident = $name:literal: fn($($argument:ty),*) $(-> $result:ty)?;)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy)]
        pub struct $table {
            $($(#[$doc])* pub $field: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }
        impl $table {
            /// Finds all functions, or names the first one that is missing.
            pub fn find() -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let found = $crate::plugin::ffi::symbol($name).ok_or($name.to_str().unwrap_or_default())?;
                        // SAFETY: QEMU's function of this name has this signature (QEMU 10.0, plugin API 4).
                        unsafe { std::mem::transmute::<*mut libc::c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found) }
                    },)*
                })
            }
        }
    };
}
pub(super) use functions;

functions! {
    /// The plugin API.
    Api {
        /// A callback at each vCPU's start.
        on_vcpu = c"qemu_plugin_register_vcpu_init_cb": fn(PluginId, VcpuCallback);
        /// A callback at each translation.
        on_translate = c"qemu_plugin_register_vcpu_tb_trans_cb": fn(PluginId, TranslateCallback);
        /// A callback at the end.
        on_exit = c"qemu_plugin_register_atexit_cb": fn(PluginId, ExitCallback, UserData);
        /// A callback before a block.
        on_block = c"qemu_plugin_register_vcpu_tb_exec_cb": fn(*mut c_void, ExecuteCallback, c_int, UserData);
        /// A callback before an instruction.
        on_instruction = c"qemu_plugin_register_vcpu_insn_exec_cb": fn(*mut c_void, ExecuteCallback, c_int, UserData);
        /// A callback at an instruction's loads or stores.
        on_memory = c"qemu_plugin_register_vcpu_mem_cb": fn(*mut c_void, MemoryCallback, c_int, c_int, UserData);
        /// Instructions in a block.
        instructions = c"qemu_plugin_tb_n_insns": fn(*const c_void) -> size_t;
        /// One of them.
        instruction = c"qemu_plugin_tb_get_insn": fn(*const c_void, size_t) -> *mut c_void;
        /// Its address.
        address = c"qemu_plugin_insn_vaddr": fn(*const c_void) -> u64;
        /// Its bytes.
        bytes = c"qemu_plugin_insn_data": fn(*const c_void, *mut c_void, size_t) -> size_t;
        /// The physical side of an access.
        physical = c"qemu_plugin_get_hwaddr": fn(u32, u64) -> *mut c_void;
        /// Its address.
        physical_address = c"qemu_plugin_hwaddr_phys_addr": fn(*const c_void) -> u64;
        /// Whether it is a device.
        is_device = c"qemu_plugin_hwaddr_is_io": fn(*const c_void) -> bool;
        /// Log2 of an access's bytes.
        size_shift = c"qemu_plugin_mem_size_shift": fn(u32) -> c_uint;
        /// The registers of the vCPU that runs.
        registers = c"qemu_plugin_get_registers": fn() -> *mut Array;
        /// Reads one.
        read_register = c"qemu_plugin_read_register": fn(*mut c_void, *mut ByteArray) -> c_int;
        /// Removes all callbacks and translations, then calls back.
        reset = c"qemu_plugin_reset": fn(PluginId, ResetCallback);
        /// GLib: a new byte array.
        byte_array = c"g_byte_array_new": fn() -> *mut ByteArray;
        /// GLib: its size.
        set_size = c"g_byte_array_set_size": fn(*mut ByteArray, c_uint) -> *mut ByteArray;
    }
}
