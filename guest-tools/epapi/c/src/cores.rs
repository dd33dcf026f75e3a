//! The library of the calling core, or of the calling thread in a process.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_epapi::library::SETS;
use cloison_epapi::{Error, Library};
use core::ffi::{c_int, c_longlong, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
pub use machine::CORES;

/// Event sets of one core have numbers from the core's times this.
const NUMBERS: usize = 64;

/// The way to count: the PMU's registers, or else the hypervisor's calls.
#[cfg(all(target_arch = "aarch64", not(target_os = "linux")))]
pub type Way = cloison_epapi::Available;
/// The way to count in a process: the kernel's counters, or else the hypervisor's calls.
#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
pub type Way = cloison_client::perf::Available;
/// The way to count on other machines: a simulated PMU that a test controls.
#[cfg(not(target_arch = "aarch64"))]
pub type Way = cloison_epapi::Simulated;

/// A function of the program that is called when an event has reached its threshold. Its arguments:
/// event set, address, events as bits, and the context that the program's interrupt handler passed.
pub type Handler = unsafe extern "C" fn(c_int, *mut c_void, c_longlong, *mut c_void);

/// A core's library and handlers.
pub struct Core {
    /// Its library.
    pub library: Library<Way>,
    /// Handlers, by event set.
    pub handlers: [Option<Handler>; SETS],
}

/// `PAPI_library_init` was called, or a high-level function, on some core.
static IS_INITIALIZED: AtomicBool = AtomicBool::new(false);

/// Returns whether the library was initialized.
pub fn is_initialized() -> bool {
    IS_INITIALIZED.load(Ordering::Acquire)
}

/// Records whether the library is initialized.
pub fn set_initialized(to: bool) {
    IS_INITIALIZED.store(to, Ordering::Release);
}

/// Calls `f` with the calling core's library, interrupts masked; in a process, with the calling
/// thread's.
///
/// # Errors
///
/// [`Error::System`] on a core beyond the eighth, and [`Error::CountersLost`] from a handler that
/// interrupted another call on this core or thread.
pub fn with<T>(f: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
    machine::with(|core| {
        if is_initialized() && core.library.machine().is_err() {
            // What fails here fails in `f`, too.
            let _ = core.library.library_init();
        }
        f(core)
    })
}

/// Returns whether this way's counters need an explicit stop: the first instructions of the
/// counting functions do not stop them.
pub fn has_to_freeze(way: &Way) -> bool {
    #[cfg(all(target_arch = "aarch64", not(target_os = "linux")))]
    return way.is_called();
    #[cfg(not(all(target_arch = "aarch64", not(target_os = "linux"))))]
    {
        let _ = way;
        cfg!(target_arch = "aarch64")
    }
}

/// Returns the position of an event set among those of its core.
pub fn position(set: c_int) -> usize {
    set as usize % NUMBERS
}

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
mod machine {
    use super::{Core, Error, Library, NUMBERS, SETS, Way};
    use std::cell::RefCell;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Threads that have used the library: no two have sets with the same numbers.
    static THREADS: AtomicU32 = AtomicU32::new(0);
    /// Numbers of sets are not negative.
    const MOST: u32 = i32::MAX as u32 / NUMBERS as u32;

    std::thread_local! {
        static CORE: RefCell<Option<Box<Core>>> = const { RefCell::new(None) };
    }

    fn make() -> Box<Core> {
        let number = THREADS.fetch_add(1, Ordering::Relaxed) % MOST;
        let library = Library::new(Way::default(), (number * NUMBERS as u32) as i32);
        Box::new(Core {
            library,
            handlers: [None; SETS],
        })
    }

    pub fn with<T>(f: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        let used = CORE.try_with(|core| match core.try_borrow_mut() {
            Ok(mut core) => f(core.get_or_insert_with(make)),
            // A signal's handler, while the thread is in another call.
            Err(_) => Err(Error::CountersLost),
        });
        // The thread is about to end.
        used.unwrap_or(Err(Error::System))
    }
}

#[cfg(not(all(target_arch = "aarch64", target_os = "linux")))]
mod machine {
    use super::{Core, Error, NUMBERS};
    use core::cell::UnsafeCell;
    use core::mem::MaybeUninit;
    use core::sync::atomic::{AtomicBool, Ordering};

    /// Maximum number of cores: those whose `MPIDR_EL1.Aff0` is less.
    pub const CORES: usize = 8;

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

    pub fn with<T>(f: impl FnOnce(&mut Core) -> Result<T, Error>) -> Result<T, Error> {
        let masked = processor::mask();
        let number = processor::number();
        let result = match SLOTS.get(number) {
            None => Err(Error::System),
            Some(slot) if slot.is_taken.swap(true, Ordering::Acquire) => Err(Error::CountersLost),
            Some(slot) => {
                // SAFETY: `is_taken` was false and is true now, so nobody else has a reference to
                // what is in the cell.
                let core = unsafe { &mut *slot.core.get() };
                let is_new = !slot.is_made.swap(true, Ordering::Relaxed);
                if is_new {
                    processor::make(core);
                }
                // SAFETY: `is_made` says that it was written, now or earlier.
                let core = unsafe { core.assume_init_mut() };
                if is_new {
                    core.library.number_from((number * NUMBERS) as i32);
                }
                let result = f(core);
                slot.is_taken.store(false, Ordering::Release);
                result
            }
        };
        processor::restore(masked);
        result
    }

    #[cfg(target_arch = "aarch64")]
    mod processor {
        use super::super::{Core, SETS};
        use cloison_epapi::Library;
        use core::mem::MaybeUninit;

        static NEW: Core = Core {
            library: Library::new(cloison_epapi::Available::new(), 0),
            handlers: [None; SETS],
        };

        /// Initializes a core in place: a stack may have no room for one.
        pub fn make(core: &mut MaybeUninit<Core>) {
            // SAFETY: both are valid for one `Core`, are apart, and a copy of its bytes is another
            // one: nothing in it is owned.
            unsafe {
                core.as_mut_ptr()
                    .copy_from_nonoverlapping(&raw const NEW, 1)
            };
        }

        /// Returns the number of the calling core.
        pub fn number() -> usize {
            let mpidr: u64;
            // SAFETY: reading an identification has no effect on memory.
            unsafe {
                core::arch::asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags))
            };
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
            // SAFETY: the interrupts that were unmasked before `mask` are unmasked again, after all
            // that was done in between.
            unsafe {
                core::arch::asm!("msr daif, {}", in(reg) before, options(nostack, preserves_flags))
            };
        }
    }

    #[cfg(not(target_arch = "aarch64"))]
    mod processor {
        use super::super::{Core, SETS, Way, simulation};
        use cloison_epapi::Library;
        use core::mem::MaybeUninit;

        pub fn make(core: &mut MaybeUninit<Core>) {
            core.write(Core {
                library: Library::new(Way::new("cortex-a53", 6), 0),
                handlers: [None; SETS],
            });
        }

        pub fn number() -> usize {
            simulation::CORE.get()
        }

        pub fn mask() -> u64 {
            0
        }

        pub fn restore(_: u64) {}
    }
}

/// Simulated cores, for tests on other machines: each thread is a core.
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
