//! What a plugin does while guest code runs: QEMU's callbacks as methods of one value, which the
//! vCPUs' thread has to itself.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::callbacks::{self, Callbacks};
use crate::ffi::{self, MemoryValue, UserData, fail};
use crate::guest::{Qemu, Start, qemu};
use crate::parts::{Part, parts};

use libc::{c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};
use std::thread::{self, ThreadId};

/// What is done at QEMU's callbacks. Data are what the listener has asked for with a callback.
pub trait Listener: Sized + 'static {
    /// Returns where the listener is kept.
    fn home() -> &'static Home<Self>;
    /// Runs at the start of a vCPU.
    fn starts(&mut self, start: &Start);
    /// Runs when a block is translated, and may ask for callbacks.
    fn translates(&mut self, block: &NewBlock<'_, Self>);
    /// Runs before a block.
    fn block(&mut self, _data: usize) {}
    /// Runs before an instruction.
    fn instruction(&mut self, _data: usize) {}
    /// Runs after a load or a store.
    fn memory(&mut self, _access: &MemoryAccess<'_>, _data: usize) {}
    /// Runs when all translations are gone: no callback with their data comes any more.
    fn forgets(&mut self) {}
    /// Runs at QEMU's end.
    fn ends(&mut self);
}

/// The one listener of a kind.
///
/// All vCPUs share one thread (`-accel tcg,thread=single`, or `-icount`), and all callbacks run on
/// it, one at a time; the last one runs when the vCPUs have stopped.
#[derive(Debug)]
pub struct Home<L> {
    listener: AtomicPtr<L>,
    is_busy: AtomicBool,
    thread: OnceLock<ThreadId>,
}

impl<L> Home<L> {
    /// Returns one without a listener.
    pub const fn empty() -> Self {
        Self {
            listener: AtomicPtr::new(null_mut()),
            is_busy: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    /// Lends the listener to a callback.
    #[inline]
    fn with<R>(&self, what: impl FnOnce(&mut L) -> R) -> R {
        if self.is_busy.load(Relaxed) {
            fail("QEMU calls back within a callback");
        }
        self.is_busy.store(true, Relaxed);
        // SAFETY: `listen` set it before the first callback, and it is never freed. No other borrow
        // is alive: all callbacks are on one thread, as `starts` has checked, and the flag shows
        // that none is under way there.
        let result = what(unsafe { &mut *self.listener.load(Relaxed) });
        self.is_busy.store(false, Relaxed);
        result
    }
}

/// Makes QEMU call a listener back.
///
/// # Errors
///
/// If another one was set.
pub fn listen<L: Listener>(qemu: &Qemu, listener: L) -> Result<(), String> {
    let ours = Callbacks {
        starts: start::<L>,
        translates: |block| L::home().with(|listener| listener.translates(&NewBlock::of(block))),
        forgets: || {
            L::home().with(Listener::forgets);
            qemu_again();
        },
        ends: || {
            // A callback that failed ends QEMU too.
            if !L::home().is_busy.load(Relaxed) {
                L::home().with(Listener::ends);
            }
        },
    };
    if !callbacks::set(ours) {
        return Err("loaded twice".into());
    }
    L::home()
        .listener
        .store(Box::into_raw(Box::new(listener)), Relaxed);
    qemu.registration.register_start(qemu.id);
    qemu.registration.register(qemu.id);
    Ok(())
}

fn qemu_again() {
    let qemu = qemu();
    qemu.registration.register(qemu.id);
}

fn start<L: Listener>(core: c_uint) {
    let home = L::home();
    let here = thread::current().id();
    if *home.thread.get_or_init(|| here) != here {
        fail(
            "QEMU has a thread for each vCPU: start it with -accel tcg,thread=single, or with \
             -icount",
        );
    }
    home.with(|listener| listener.starts(&Start::of(core as usize)));
}

extern "C" fn on_block<L: Listener>(_vcpu: c_uint, data: UserData) {
    L::home().with(|listener| listener.block(data.addr()));
}

extern "C" fn on_instruction<L: Listener>(_vcpu: c_uint, data: UserData) {
    L::home().with(|listener| listener.instruction(data.addr()));
}

extern "C" fn on_memory<L: Listener>(_vcpu: c_uint, info: u32, address: u64, data: UserData) {
    let access = MemoryAccess {
        address,
        info,
        callback: PhantomData,
    };
    L::home().with(|listener| listener.memory(&access, data.addr()));
}

/// What a callback does with the CPU's registers.
#[derive(Clone, Copy, Debug)]
pub enum Registers {
    /// Nothing.
    Unused,
    /// Reads them.
    Read,
    /// Reads and writes them.
    Written,
}

impl Registers {
    const fn flag(self) -> c_int {
        match self {
            Self::Unused => ffi::NO_REGISTERS,
            Self::Read => ffi::READS_REGISTERS,
            Self::Written => ffi::WRITES_REGISTERS,
        }
    }
}

/// Accesses to memory.
#[derive(Clone, Copy, Debug)]
pub enum Accesses {
    /// Loads.
    Loads,
    /// Stores.
    Stores,
}

/// A block that QEMU translates.
#[derive(Debug)]
pub struct NewBlock<'a, L> {
    block: *mut c_void,
    /// Number of its instructions.
    pub instructions: usize,
    callback: PhantomData<&'a ()>,
    listener: PhantomData<fn(&mut L)>,
}

impl<L: Listener> NewBlock<'_, L> {
    fn of(block: *mut c_void) -> Self {
        // SAFETY: QEMU passed the block to the callback that is under way, and the lifetime keeps
        // this within it.
        let instructions = unsafe { (qemu().api.instructions)(block) };
        Self {
            block,
            instructions,
            callback: PhantomData,
            listener: PhantomData,
        }
    }

    fn instruction(&self, at: usize) -> *mut c_void {
        assert!(at < self.instructions, "an instruction of the block");
        // SAFETY: QEMU's block, in its callback; it has this instruction.
        unsafe { (qemu().api.instruction)(self.block, at) }
    }

    /// Returns an instruction's virtual address.
    pub fn address(&self, at: usize) -> u64 {
        // SAFETY: QEMU's instruction, in the callback of its block.
        unsafe { (qemu().api.address)(self.instruction(at)) }
    }

    /// Returns an instruction's code.
    pub fn word(&self, at: usize) -> u32 {
        let mut word = [0u8; 4];
        // SAFETY: QEMU's instruction, in the callback of its block; at most 4 bytes are copied.
        unsafe { (qemu().api.bytes)(self.instruction(at), word.as_mut_ptr().cast(), word.len()) };
        u32::from_le_bytes(word)
    }

    /// Returns the parts of the block that execute as a whole.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        parts(self.instructions, |at| self.word(at))
    }

    /// Asks for a callback before the block.
    pub fn on_block(&self, registers: Registers, data: usize) {
        let data = std::ptr::without_provenance_mut(data);
        // SAFETY: QEMU's block, in its callback; data is a number.
        unsafe { (qemu().api.on_block)(self.block, on_block::<L>, registers.flag(), data) };
    }

    /// Asks for a callback before an instruction.
    pub fn on_instruction(&self, at: usize, registers: Registers, data: usize) {
        let (on, data) = (on_instruction::<L>, std::ptr::without_provenance_mut(data));
        // SAFETY: QEMU's instruction, in the callback of its block; data is a number.
        unsafe { (qemu().api.on_instruction)(self.instruction(at), on, registers.flag(), data) };
    }

    /// Asks for a callback after an instruction's loads or stores.
    pub fn on_memory(&self, at: usize, which: Accesses, data: usize) {
        let kind = match which {
            Accesses::Loads => ffi::LOADS,
            Accesses::Stores => ffi::STORES,
        };
        let (on, data) = (on_memory::<L>, std::ptr::without_provenance_mut(data));
        // SAFETY: QEMU's instruction, in the callback of its block; data is a number.
        unsafe {
            (qemu().api.on_memory)(self.instruction(at), on, ffi::NO_REGISTERS, kind, data);
        }
    }
}

/// Where an access goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// To memory, at this physical address.
    Memory(u64),
    /// To a device, at this physical address.
    Device(u64),
}

/// A load or store that has executed.
#[derive(Debug)]
pub struct MemoryAccess<'a> {
    /// Its virtual address.
    pub address: u64,
    info: u32,
    callback: PhantomData<&'a ()>,
}

impl MemoryAccess<'_> {
    /// Returns where `address` is, one of the bytes that were accessed: QEMU has just used both
    /// pages of an access across the end of one.
    #[inline]
    pub fn place(&self, address: u64) -> Option<Place> {
        let api = &qemu().api;
        // SAFETY: in the access's callback, as the lifetime shows; the answer is read at once.
        unsafe {
            let found = (api.physical)(self.info, address);
            if found.is_null() {
                return None;
            }
            let physical = (api.physical_address)(found);
            Some(if (api.is_device)(found) {
                Place::Device(physical)
            } else {
                Place::Memory(physical)
            })
        }
    }

    /// Returns how many bytes were accessed.
    #[inline]
    pub fn bytes(&self) -> u64 {
        // SAFETY: a pure function of the word that QEMU passed.
        1 << unsafe { (qemu().api.size_shift)(self.info) }
    }

    /// Returns the lower 64 bits of the value that was loaded or stored.
    pub fn value(&self) -> u64 {
        // SAFETY: in the access's callback, as the lifetime shows.
        let MemoryValue { low, .. } = unsafe { (qemu().api.memory_value)(self.info) };
        low
    }
}
