//! Counts instructions only, without caches or clock. For runs under `-icount`, which use QEMU's own clock.
//!
//! By instruction, not by block: QEMU leaves a block at an access to a device, and the rest starts again as another one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{self, Api, ByteArray, PluginId, RegisterDescriptor, UserData, Word};
use crate::statistics::{self, Instructions};
use libc::{c_uint, c_void};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// State of the callbacks.
struct Counter {
    api: Api,
    file: PathBuf,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();
/// Score board of the counts: a word for each exception level.
static COUNTS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Handle of CPSR.
static CPSR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Buffer for the register's value.
static BYTES: AtomicPtr<ByteArray> = AtomicPtr::new(std::ptr::null_mut());

/// Starts counting; the counts are written to `file` at the end.
pub fn install(id: PluginId, api: Api, file: PathBuf) -> Result<(), String> {
    if COUNTER.set(Counter { api, file }).is_err() {
        return Err("loaded twice".into());
    }
    // SAFETY: no other argument is needed than a size.
    COUNTS.store(unsafe { (api.score_board)(4 * size_of::<u64>()) }, Relaxed);
    // SAFETY: the ID is ours, and the callbacks have the API's signatures.
    unsafe {
        (api.on_vcpu)(id, on_vcpu);
        (api.on_translate)(id, on_translate);
        (api.on_exit)(id, on_exit, std::ptr::null_mut());
    }
    Ok(())
}

fn api() -> &'static Api {
    match COUNTER.get() {
        Some(counter) => &counter.api,
        None => unreachable!("QEMU calls back after the plugin was loaded"),
    }
}

extern "C" fn on_vcpu(_id: PluginId, index: c_uint) {
    if index != 0 {
        return;
    }
    let api = api();
    // SAFETY: on a vCPU's thread; the list and its descriptors are as declared, and names end with a zero.
    unsafe {
        BYTES.store((api.byte_array)(), Relaxed);
        let list = (api.registers)();
        let descriptors = std::slice::from_raw_parts((*list).data.cast::<RegisterDescriptor>(), (*list).len as usize);
        let cpsr = descriptors.iter().find(|one| !one.name.is_null() && CStr::from_ptr(one.name) == c"cpsr");
        let Some(cpsr) = cpsr else { ffi::fail("this QEMU's CPU has no cpsr") };
        CPSR.store(cpsr.handle, Relaxed);
    }
}

/// Returns the exception level of the running vCPU: CPSR.M\[3:2\].
fn level() -> usize {
    let (handle, bytes) = (CPSR.load(Relaxed), BYTES.load(Relaxed));
    // SAFETY: the handle came from QEMU; the array is ours.
    unsafe { ffi::read_register(api(), handle, bytes) as usize >> 2 & 3 }
}

/// Returns the count of an exception level.
fn counted(level: usize) -> Word {
    Word { board: COUNTS.load(Relaxed), offset: level * size_of::<u64>() }
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    let api = api();
    // SAFETY: the block is QEMU's and valid during this callback; indices are below the number of instructions. QEMU has
    // separate translations for each level.
    unsafe {
        let word = counted(level());
        for at in 0..(api.instructions)(block) {
            (api.add_at_instruction)((api.instruction)(block, at), ffi::ADD, word, 1);
        }
    }
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    // SAFETY: the vCPUs have stopped.
    let report = Instructions { instructions: std::array::from_fn(|level| unsafe { (api().sum)(counted(level)) }) };
    let Some(Counter { file, .. }) = COUNTER.get() else { return };
    if let Err(error) = statistics::write(&report, file) {
        eprintln!("board-model: cannot write {}: {error}", file.display());
    }
}
