//! Follows visits to EL2, without caches or clock. For runs under `-icount`, which use QEMU's own
//! clock.
//!
//! Cores take turns of a few instructions each, as if they ran in parallel. A core that waits for
//! another then executes about as many instructions as that one, not as many as fit between two
//! timers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{self, Api, ByteArray, MemoryValue, PluginId, RegisterDescriptor, UserData};
use super::internals::Internals;
use crate::clock::MAX_CORES;
use crate::statistics;
use crate::visits::{Entry, Follower};
use libc::{c_uint, c_void};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

const ERET: u32 = 0xd69f_03e0;
const WFI: u32 = 0xd503_207f;
const ISB: u32 = 0xd503_3fdf;
/// EL2 in CPSR.M\[3:2\].
const EL2: u64 = 2;

/// The plugin's arguments for following visits.
#[derive(Debug, Default)]
pub struct Wanted {
    /// The file for the longest stretches.
    pub file: PathBuf,
    /// Physical address of GICC_IAR.
    pub acknowledge: u64,
    /// Instructions in a turn.
    pub turn: u64,
    /// GIC IDs of the overflow interrupts where they are shared ones; none if each core has its
    /// private one.
    pub overflows: Vec<u32>,
    /// Addresses of functions that name the purpose of a visit.
    pub marks: Vec<(u64, String)>,
}

/// The registers that are read.
const NAMES: [&CStr; 5] = [c"cpsr", c"ESR_EL2", c"ELR_EL2", c"HPFAR_EL2", c"x0"];

/// State of the callbacks. All vCPUs share one thread under `-icount`.
struct State {
    api: Api,
    internals: Internals,
    wanted: Wanted,
    follower: Follower,
    cpus: [*mut c_void; MAX_CORES],
    /// Handles of [`NAMES`].
    registers: [*mut c_void; NAMES.len()],
    /// Buffer for a register's value.
    bytes: *mut ByteArray,
    /// The core whose turn it is, and the instructions of it.
    turn: (usize, u64),
}

static STATE: AtomicPtr<State> = AtomicPtr::new(std::ptr::null_mut());

/// Starts following; the longest stretches are written at the end.
pub fn install(id: PluginId, api: Api, cores: usize, mut wanted: Wanted) -> Result<(), String> {
    let missing =
        |name| format!("this QEMU has no `{name}`; Debian's qemu-system-arm 1:10.0 has it");
    let internals = Internals::find().map_err(missing)?;
    let follower = Follower::new(
        cores,
        std::mem::take(&mut wanted.overflows),
        std::mem::take(&mut wanted.marks),
    );
    let state = State {
        api,
        internals,
        wanted,
        follower,
        cpus: [std::ptr::null_mut(); MAX_CORES],
        registers: [std::ptr::null_mut(); NAMES.len()],
        bytes: std::ptr::null_mut(),
        turn: (0, 0),
    };
    STATE.store(Box::into_raw(Box::new(state)), Relaxed);
    // SAFETY: the ID is ours, and the callbacks have the API's signatures.
    unsafe {
        (api.on_vcpu)(id, on_vcpu);
        (api.on_translate)(id, on_translate);
        (api.on_exit)(id, on_exit, std::ptr::null_mut());
    }
    Ok(())
}

/// Returns the state.
///
/// # Safety
/// To be called on the vCPUs' thread, in a callback, and not while another borrow is alive.
unsafe fn state() -> &'static mut State {
    // SAFETY: set at load, before the first callback, and never freed; exclusive, as the caller
    // promises.
    unsafe { &mut *STATE.load(Relaxed) }
}

impl State {
    fn core(&self) -> usize {
        let cpu = Internals::current_cpu();
        self.cpus
            .iter()
            .position(|known| *known == cpu)
            .unwrap_or(0)
    }

    /// Returns the value of a register by its position in [`NAMES`].
    fn register(&self, at: usize) -> u64 {
        // SAFETY: the handle came from QEMU; the array is ours.
        unsafe { ffi::read_register(&self.api, self.registers[at], self.bytes) }
    }
}

extern "C" fn on_vcpu(_id: PluginId, index: c_uint) {
    // SAFETY: on the vCPUs' thread, before the vCPU runs; the list and its descriptors are as
    // declared, and names end with a zero.
    unsafe {
        let state = state();
        state.cpus[index as usize % MAX_CORES] = state.internals.cpu(index);
        if index != 0 {
            return;
        }
        state.bytes = (state.api.byte_array)();
        let list = (state.api.registers)();
        let descriptors = std::slice::from_raw_parts(
            (*list).data.cast::<RegisterDescriptor>(),
            (*list).len as usize,
        );
        for (name, handle) in NAMES.iter().zip(&mut state.registers) {
            match descriptors
                .iter()
                .find(|one| !one.name.is_null() && CStr::from_ptr(one.name) == *name)
            {
                Some(found) => *handle = found.handle,
                None => {
                    eprintln!(
                        "board-model: this QEMU's CPU has no {}",
                        name.to_string_lossy()
                    );
                    std::process::exit(1)
                }
            }
        }
    }
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    // SAFETY: the block is QEMU's and valid during this callback; on the vCPUs' thread, and nothing
    // below calls back. The callbacks' data are numbers, not pointers. QEMU has separate
    // translations for each level.
    unsafe {
        let state = state();
        let api = state.api;
        let count = (api.instructions)(block);
        (api.on_block)(
            block,
            on_block,
            ffi::NO_REGISTERS,
            std::ptr::without_provenance_mut(count),
        );
        if state.register(0) >> 2 & 3 != EL2 {
            return;
        }
        for at in 0..count {
            let instruction = (api.instruction)(block, at);
            let address = (api.address)(instruction);
            let mut word = [0u8; 4];
            (api.bytes)(instruction, word.as_mut_ptr().cast(), 4);
            let data = std::ptr::without_provenance_mut(address as usize);
            match u32::from_le_bytes(word) {
                // Vectors are 128 bytes apart.
                _ if address & 0x7f == 0 || state.follower.is_mark(address) => {
                    (api.on_instruction)(instruction, on_vector, ffi::READS_REGISTERS, data);
                }
                ERET => (api.on_instruction)(instruction, on_eret, ffi::NO_REGISTERS, data),
                WFI => (api.on_instruction)(instruction, on_wfi, ffi::NO_REGISTERS, data),
                ISB => (api.on_instruction)(instruction, on_isb, ffi::NO_REGISTERS, data),
                _ => (api.on_instruction)(instruction, on_instruction, ffi::NO_REGISTERS, data),
            }
            (api.on_memory)(instruction, on_load, ffi::NO_REGISTERS, ffi::LOADS, data);
        }
    }
}

extern "C" fn on_block(_vcpu: c_uint, count: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back. The CPU is one that QEMU passed.
    unsafe {
        let state = state();
        let core = state.core();
        if state.turn.0 != core {
            state.turn = (core, 0);
        }
        state.turn.1 += count.addr() as u64;
        if state.turn.1 >= state.wanted.turn {
            state.turn.1 = 0;
            state.internals.exit(state.cpus[core]);
        }
    }
}

extern "C" fn on_instruction(_vcpu: c_uint, address: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    let state = unsafe { state() };
    state.follower.execute(state.core(), address.addr() as u64);
}

extern "C" fn on_vector(_vcpu: c_uint, address: UserData) {
    let address = address.addr() as u64;
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    let state = unsafe { state() };
    let core = state.core();
    if state.follower.is_in_guest(core) {
        let [esr, elr, hpfar, x0] = [1, 2, 3, 4].map(|at| state.register(at));
        state.follower.enter(
            core,
            Entry {
                vector: address,
                esr,
                elr,
                hpfar,
                x0,
            },
        );
    }
    state.follower.mark(core, address);
    state.follower.execute(core, address);
}

extern "C" fn on_eret(_vcpu: c_uint, address: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    let state = unsafe { state() };
    let core = state.core();
    state.follower.execute(core, address.addr() as u64);
    state.follower.leave(core);
}

extern "C" fn on_wfi(_vcpu: c_uint, address: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    let state = unsafe { state() };
    let core = state.core();
    state.follower.execute(core, address.addr() as u64);
    state.follower.wait(core);
}

extern "C" fn on_isb(_vcpu: c_uint, address: UserData) {
    let address = address.addr() as u64;
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    let state = unsafe { state() };
    let core = state.core();
    state.follower.execute(core, address);
    state.follower.barrier(core, address);
}

extern "C" fn on_load(_vcpu: c_uint, info: u32, address: u64, instruction: UserData) {
    // SAFETY: on the vCPUs' thread, in a memory callback; QEMU's answer is read at once.
    unsafe {
        let state = state();
        let found = (state.api.physical)(info, address);
        if !found.is_null()
            && (state.api.is_device)(found)
            && (state.api.physical_address)(found) == state.wanted.acknowledge
        {
            let MemoryValue { low, .. } = (state.api.memory_value)(info);
            let core = state.core();
            state
                .follower
                .acknowledge(core, instruction.addr() as u64, low as u32);
        }
    }
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    // SAFETY: the vCPUs have stopped.
    let state = unsafe { state() };
    if let Err(error) = statistics::write(state.follower.visits(), &state.wanted.file) {
        eprintln!(
            "board-model: cannot write {}: {error}",
            state.wanted.file.display()
        );
    }
}
