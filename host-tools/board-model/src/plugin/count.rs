//! Counts instructions only, without caches or clock. For runs under `-icount`, which use QEMU's own clock.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{self, Api, ByteArray, PluginId, RegisterDescriptor, UserData};
use crate::statistics::{self, Instructions};
use libc::{c_uint, c_void};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};

/// State of the callbacks.
struct Counter {
    api: Api,
    file: PathBuf,
}

static COUNTER: OnceLock<Counter> = OnceLock::new();
/// Counts by exception level. Under `-icount` all vCPUs share one thread; elsewhere an increment may be lost, so they
/// are atomic.
static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
/// Handle of CPSR.
static CPSR: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// Buffer for the register's value.
static BYTES: AtomicPtr<ByteArray> = AtomicPtr::new(std::ptr::null_mut());

/// Starts counting; the counts are written to `file` at the end.
pub fn install(id: PluginId, api: Api, file: PathBuf) -> Result<(), String> {
    if COUNTER.set(Counter { api, file }).is_err() {
        return Err("loaded twice".into());
    }
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
        CPSR.store(cpsr.map_or(std::ptr::null_mut(), |one| one.handle), Relaxed);
    }
}

/// Returns the exception level of the running vCPU: CPSR.M\[3:2\].
fn level() -> usize {
    let (api, handle, bytes) = (api(), CPSR.load(Relaxed), BYTES.load(Relaxed));
    if handle.is_null() {
        return 0;
    }
    // SAFETY: the handle came from QEMU; the array is ours, and emptied before it is filled.
    unsafe {
        (api.set_size)(bytes, 0);
        (api.read_register)(handle, bytes);
        if (*bytes).len == 0 { 0 } else { usize::from(*(*bytes).data >> 2 & 3) }
    }
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    let api = api();
    // SAFETY: the block is QEMU's and valid during this callback. The callback's data is a number, not a pointer; QEMU
    // has separate translations for each level.
    unsafe {
        let count = (api.instructions)(block);
        let data = std::ptr::without_provenance_mut(count << 2 | level());
        (api.on_block)(block, on_block, ffi::NO_REGISTERS, data);
    }
}

extern "C" fn on_block(_vcpu: c_uint, data: UserData) {
    let data = data.addr();
    COUNTS[data & 3].fetch_add((data >> 2) as u64, Relaxed);
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    let report = Instructions { instructions: std::array::from_fn(|level| COUNTS[level].load(Relaxed)) };
    let Some(Counter { file, .. }) = COUNTER.get() else { return };
    if let Err(error) = statistics::write(&report, file) {
        eprintln!("board-model: cannot write {}: {error}", file.display());
    }
}
