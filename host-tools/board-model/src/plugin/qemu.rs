//! The QEMU that loaded the plugin.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{Api, PluginId};
use super::internals::Internals;
use std::sync::OnceLock;

/// QEMU's functions, and the callbacks that it calls.
pub struct Qemu {
    /// Functions of the plugin API.
    pub api: Api,
    /// Functions outside that API.
    pub internals: Internals,
    /// QEMU's number for this plugin.
    pub id: PluginId,
    /// Called when all translations are gone; registers the callbacks again.
    pub on_reset: extern "C" fn(PluginId),
}

/// Set when QEMU loads the plugin.
pub static QEMU: OnceLock<Qemu> = OnceLock::new();

/// Returns the QEMU that loaded the plugin. For callbacks: they run after QEMU has loaded it.
pub fn qemu() -> &'static Qemu {
    match QEMU.get() {
        Some(qemu) => qemu,
        None => unreachable!("QEMU calls back after the plugin was loaded"),
    }
}

/// Makes QEMU translate all code again.
pub fn retranslate() {
    let qemu = qemu();
    // SAFETY: QEMU resets when no vCPU executes, and then calls back.
    unsafe { (qemu.api.reset)(qemu.id, qemu.on_reset) };
}
