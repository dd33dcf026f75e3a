//! Counts instructions only, without caches or clock. For runs under `-icount`, which use QEMU's
//! own clock.
//!
//! Not by block: QEMU leaves a block at an access to a device, and the rest starts again as another
//! block. And not by the plugin API's inline additions: where cores share a thread, QEMU 10.0
//! computes their address in the constant that holds the core's number, which the guest's code uses
//! too (`gen_cpu_index`, accel/tcg/plugin-gen.c).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{self, Api, ByteArray, PluginId, RegisterDescriptor, UserData};
use crate::decode;
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
/// Counts by exception level. Under `-icount` all vCPUs share one thread.
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
    // SAFETY: on a vCPU's thread; the list and its descriptors are as declared, and names end with
    // a zero.
    unsafe {
        BYTES.store((api.byte_array)(), Relaxed);
        let list = (api.registers)();
        let descriptors = std::slice::from_raw_parts(
            (*list).data.cast::<RegisterDescriptor>(),
            (*list).len as usize,
        );
        let cpsr = descriptors
            .iter()
            .find(|one| !one.name.is_null() && CStr::from_ptr(one.name) == c"cpsr");
        let Some(cpsr) = cpsr else {
            ffi::fail("this QEMU's CPU has no cpsr")
        };
        CPSR.store(cpsr.handle, Relaxed);
    }
}

/// Returns the exception level of the running vCPU: CPSR.M\[3:2\].
fn level() -> usize {
    let (handle, bytes) = (CPSR.load(Relaxed), BYTES.load(Relaxed));
    // SAFETY: the handle came from QEMU; the array is ours.
    unsafe { ffi::read_register(api(), handle, bytes) as usize >> 2 & 3 }
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    let api = api();
    // SAFETY: the block is QEMU's and valid during this callback; indices are below the number of
    // instructions. The callback's data is a number, not a pointer. QEMU has separate
    // translations for each level.
    unsafe {
        let (level, all) = (level(), (api.instructions)(block));
        let mut first = 0;
        for at in 0..all {
            let mut word = [0; 4];
            (api.bytes)(
                (api.instruction)(block, at),
                word.as_mut_ptr().cast(),
                word.len(),
            );
            // What is counted before an instruction is executed for certain up to the next one at
            // which a block can end.
            if at + 1 == all || decode::may_leave_block(u32::from_le_bytes(word)) {
                let data = std::ptr::without_provenance_mut((at + 1 - first) << 2 | level);
                (api.on_instruction)(
                    (api.instruction)(block, first),
                    on_instructions,
                    ffi::NO_REGISTERS,
                    data,
                );
                first = at + 1;
            }
        }
    }
}

extern "C" fn on_instructions(_vcpu: c_uint, data: UserData) {
    let data = data.addr();
    COUNTS[data & 3].fetch_add((data >> 2) as u64, Relaxed);
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    let report = Instructions {
        instructions: std::array::from_fn(|level| COUNTS[level].load(Relaxed)),
    };
    let Some(Counter { file, .. }) = COUNTER.get() else {
        return;
    };
    if let Err(error) = statistics::write(&report, file) {
        eprintln!("board-model: cannot write {}: {error}", file.display());
    }
}
