//! The library of the calling core.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_epapi::library::SETS;
use cloison_epapi::{Error, Library};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_longlong, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// The most cores: those whose `MPIDR_EL1.Aff0` is less.
pub const CORES: usize = 8;
/// Event sets of one core have numbers from the core's times this.
const NUMBERS: usize = 64;

/// What counts: the PMU's registers, or else the hypervisor's calls.
#[cfg(target_arch = "aarch64")]
pub type Way = cloison_epapi::Available;
/// What counts on other machines: nothing but what a test says.
#[cfg(not(target_arch = "aarch64"))]
pub type Way = cloison_epapi::Simulated;

/// A function of the program that is called when an event has reached its threshold: event set, address, events as bits, and
/// what the program's interrupt handler was given.
pub type Handler = unsafe extern "C" fn(c_int, *mut c_void, c_longlong, *mut c_void);

/// What a core has.
pub struct Core {
    /// Its library.
    pub library: Library<Way>,
    /// Handlers, by event set.
    pub handlers: [Option<Handler>; SETS],
}

struct Slot {
    is_taken: AtomicBool,
    /// Its core is made. Only read and written by who has taken the slot.
    is_made: AtomicBool,
    core: UnsafeCell<MaybeUninit<Core>>,
}

// SAFETY: `with` gives access to the cell to one caller at a time, who has set `is_taken`.
unsafe impl Sync for Slot {}

/// Nothing but zeros, so that it takes no room in a program's file.
static SLOTS: [Slot; CORES] = [const {
    Slot {
        is_taken: AtomicBool::new(false),
        is_made: AtomicBool::new(false),
        core: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; CORES];

/// `PAPI_library_init` was called, or a high-level function, on some core.
static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Returns whether the library was initialized.
pub fn is_initialized() -> bool {
    IS_INITIALIZED.load(Ordering::Acquire)
}

/// Says that the library is initialized, or no longer.
pub fn set_initialized(to: bool) {
    IS_INITIALIZED.store(to, Ordering::Release);
}

/// Calls `f` with what the calling core has, interrupts masked.
///
/// # Errors
/// [`Error::System`] on a core beyond [`CORES`], and [`Error::CountersLost`] from an exception handler that interrupted
/// another call on this core.
pub fn with<T>(f: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
    let masked = machine::mask();
    let number = machine::number();
    let result = match SLOTS.get(number) {
        None => Err(Error::System),
        Some(slot) if slot.is_taken.swap(true, Ordering::Acquire) => Err(Error::CountersLost),
        Some(slot) => {
            // SAFETY: `is_taken` was false and is true now, so nobody else has a reference to what is in the cell.
            let core = unsafe { &mut *slot.core.get() };
            let is_new = !slot.is_made.swap(true, Ordering::Relaxed);
            if is_new {
                machine::make(core);
            }
            // SAFETY: `is_made` says that it was written, now or earlier.
            let core = unsafe { core.assume_init_mut() };
            if is_new {
                core.library.number_from((number * NUMBERS) as i32);
            }
            if is_initialized() && core.library.machine().is_err() {
                // What fails here fails in `f`, too.
                let _ = core.library.library_init();
            }
            let result = f(core);
            slot.is_taken.store(false, Ordering::Release);
            result
        }
    };
    machine::restore(masked);
    result
}

/// Returns whether the counters of this way are not stopped by the first instructions of the functions that count.
pub fn has_to_freeze(way: &Way) -> bool {
    machine::has_to_freeze(way)
}

/// Returns the position of an event set among those of its core.
pub fn position(set: c_int) -> usize {
    set as usize % NUMBERS
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use super::{Core, Library, MaybeUninit, SETS, Way};

    pub fn has_to_freeze(way: &Way) -> bool {
        way.is_called()
    }

    static NEW: Core = Core { library: Library::new(cloison_epapi::Available::new(), 0), handlers: [None; SETS] };

    /// Makes a core in its place: on a stack there may be no room for it.
    pub fn make(core: &mut MaybeUninit<Core>) {
        // SAFETY: both are valid for one `Core`, are apart, and a copy of its bytes is another one: nothing in it is owned.
        unsafe { core.as_mut_ptr().copy_from_nonoverlapping(&raw const NEW, 1) };
    }

    /// The number of the calling core.
    pub fn number() -> usize {
        let mpidr: u64;
        // SAFETY: reading an identification has no effect on memory.
        unsafe { core::arch::asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
        mpidr as usize & 0xff
    }

    /// Masks IRQ and FIQ. Returns the mask before.
    pub fn mask() -> u64 {
        let before: u64;
        // SAFETY: interrupts may be masked at any time; `restore` undoes it.
        unsafe {
            core::arch::asm!("mrs {}, daif", "msr daifset, #3", out(reg) before, options(nostack, preserves_flags))
        };
        before
    }

    /// Restores what `mask` has returned.
    pub fn restore(before: u64) {
        // SAFETY: the interrupts that were unmasked before `mask` are unmasked again, after all that was done in between.
        unsafe { core::arch::asm!("msr daif, {}", in(reg) before, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod machine {
    use super::{Core, Library, MaybeUninit, SETS, Way};

    pub fn make(core: &mut MaybeUninit<Core>) {
        core.write(Core { library: Library::new(Way::new("cortex-a53", 6), 0), handlers: [None; SETS] });
    }

    pub fn number() -> usize {
        super::simulation::CORE.get()
    }

    pub fn mask() -> u64 {
        0
    }

    pub fn restore(_: u64) {}

    pub fn has_to_freeze(_: &Way) -> bool {
        false
    }
}

/// For tests on other machines: threads are cores.
#[cfg(not(target_arch = "aarch64"))]
pub mod simulation {
    use super::{Way, with};
    use cloison_epapi::Error;
    use std::cell::Cell;

    std::thread_local! {
        /// The number of the core that this thread is.
        pub static CORE: Cell<usize> = const { Cell::new(0) };
    }

    /// Calls `f` with the calling core's simulated PMU.
    ///
    /// # Errors
    /// As [`with`].
    pub fn pmu<T>(f: impl FnOnce(&mut Way) -> T) -> Result<T, Error> {
        with(|core| Ok(f(core.library.counters())))
    }
}
