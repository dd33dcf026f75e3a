//! How QEMU is told of the plugin's own callbacks: with their plugin's number as first argument
//! before version 7 of the plugin API, with data of the plugin's as last argument since.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ffi::{PluginId, UserData, functions};
use crate::version;
use libc::{c_uint, c_void};
use std::sync::OnceLock;

/// What the plugin does when QEMU calls it back, except while guest code runs.
#[derive(Clone, Copy, Debug)]
pub struct Callbacks {
    /// At the start of a vCPU, on its thread.
    pub starts: fn(c_uint),
    /// When a block is translated.
    pub translates: fn(*mut c_void),
    /// When all translations are gone, and no callback is registered any more.
    pub forgets: fn(),
    /// When QEMU ends.
    pub ends: fn(),
}

/// The plugin's callbacks, set before QEMU knows of any.
static OURS: OnceLock<Callbacks> = OnceLock::new();

fn ours() -> &'static Callbacks {
    match OURS.get() {
        Some(callbacks) => callbacks,
        None => unreachable!("QEMU is told of callbacks after they are set"),
    }
}

/// Sets the plugin's callbacks. Returns whether they had not been set.
pub fn set(callbacks: Callbacks) -> bool {
    OURS.set(callbacks).is_ok()
}

/// A QEMU's way to take callbacks.
pub trait Registration: Send + Sync {
    /// Registers the callback for the start of a vCPU.
    fn register_start(&self, id: PluginId);
    /// Registers the callbacks for translations and for the end.
    fn register(&self, id: PluginId);
    /// Removes all callbacks and translations when no vCPU executes, and then calls back.
    fn forget(&self, id: PluginId);
}

/// Returns the running QEMU's way.
///
/// # Errors
///
/// The name of a function that QEMU lacks.
pub fn registration() -> Result<Box<dyn Registration>, &'static str> {
    Ok(if version::passes_data() {
        Box::new(ByData::find()?)
    } else {
        Box::new(ByNumber::find()?)
    })
}

functions! {
    /// The plugin API before version 7.
    ByNumber {
        /// Registers a callback at each vCPU's start.
        on_start = c"qemu_plugin_register_vcpu_init_cb": fn(PluginId, extern "C" fn(PluginId, c_uint));
        /// Registers a callback at each translation.
        on_translate = c"qemu_plugin_register_vcpu_tb_trans_cb": fn(PluginId, extern "C" fn(PluginId, *mut c_void));
        /// Registers a callback at the end.
        on_exit = c"qemu_plugin_register_atexit_cb": fn(PluginId, extern "C" fn(PluginId, UserData), UserData);
        /// Removes all callbacks and translations, then calls back.
        reset = c"qemu_plugin_reset": fn(PluginId, extern "C" fn(PluginId));
    }
}

impl Registration for ByNumber {
    fn register_start(&self, id: PluginId) {
        extern "C" fn start(_id: PluginId, core: c_uint) {
            (ours().starts)(core);
        }
        // SAFETY: the ID is ours, and the callback has the API's signature.
        unsafe { (self.on_start)(id, start) };
    }
    fn register(&self, id: PluginId) {
        extern "C" fn translate(_id: PluginId, block: *mut c_void) {
            (ours().translates)(block);
        }
        extern "C" fn end(_id: PluginId, _data: UserData) {
            (ours().ends)();
        }
        // SAFETY: the ID is ours, and the callbacks have the API's signatures.
        unsafe {
            (self.on_translate)(id, translate);
            (self.on_exit)(id, end, std::ptr::null_mut());
        }
    }
    fn forget(&self, id: PluginId) {
        extern "C" fn forgotten(_id: PluginId) {
            (ours().forgets)();
        }
        // SAFETY: the ID is ours, and the callback has the API's signature.
        unsafe { (self.reset)(id, forgotten) };
    }
}

functions! {
    /// The plugin API since version 7.
    ByData {
        /// Registers a callback at each vCPU's start.
        on_start = c"qemu_plugin_register_vcpu_init_cb": fn(PluginId, extern "C" fn(c_uint, UserData), UserData);
        /// Registers a callback at each translation.
        on_translate = c"qemu_plugin_register_vcpu_tb_trans_cb": fn(PluginId, extern "C" fn(*mut c_void, UserData), UserData);
        /// Registers a callback at the end.
        on_exit = c"qemu_plugin_register_atexit_cb": fn(PluginId, extern "C" fn(UserData), UserData);
        /// Removes all callbacks and translations, then calls back.
        reset = c"qemu_plugin_reset": fn(PluginId, extern "C" fn(UserData), UserData);
    }
}

impl Registration for ByData {
    fn register_start(&self, id: PluginId) {
        extern "C" fn start(core: c_uint, _data: UserData) {
            (ours().starts)(core);
        }
        // SAFETY: the ID is ours, and the callback has the API's signature.
        unsafe { (self.on_start)(id, start, std::ptr::null_mut()) };
    }
    fn register(&self, id: PluginId) {
        extern "C" fn translate(block: *mut c_void, _data: UserData) {
            (ours().translates)(block);
        }
        extern "C" fn end(_data: UserData) {
            (ours().ends)();
        }
        // SAFETY: the ID is ours, and the callbacks have the API's signatures.
        unsafe {
            (self.on_translate)(id, translate, std::ptr::null_mut());
            (self.on_exit)(id, end, std::ptr::null_mut());
        }
    }
    fn forget(&self, id: PluginId) {
        extern "C" fn forgotten(_data: UserData) {
            (ours().forgets)();
        }
        // SAFETY: the ID is ours, and the callback has the API's signature.
        unsafe { (self.reset)(id, forgotten, std::ptr::null_mut()) };
    }
}
