//! What the plugin API does not offer: QEMU's own functions and its accelerator's table, looked up
//! by name.
//!
//! Debian builds QEMU with modules, so the program exports its symbols. Each is needed for a
//! reason:
//! - `current_cpu`: with one thread for all vCPUs, the index that QEMU passes to callbacks is that
//!   of the first one.
//! - `cpu_exit`: makes a core that is ahead yield. Blocking it in a callback would stop all others
//!   too.
//! - the class `tcg-accel-ops`: guest time. The API's time control only works without TCG, so the
//!   two functions of the class are replaced. They follow `handle_interrupt`, in some versions after
//!   one other function, which is how they are found.
//! - `qemu_clock_get_ns`, `cpus_set_virtual_clock`: after that, show whether QEMU's clock is the
//!   model's. Where it is at neither place, the class has another layout, and the run ends.
//! - `qemu_clock_*`, `async_run_on_cpu`: guest time advances from timer to timer; each timer runs
//!   when its time has come, between two blocks and with QEMU's lock held.
//! - `use_icount`: whether guest time is counted.
//! - `get_ptr_rcu_reader`, `rcu_remove_force_rcu_notifier`: since QEMU 10.2, a thread that waits for
//!   RCU readers ends the running core's turn when the host lets it. Turns end soon without that.
//! - `bql_*`, `all_cpu_threads_idle`: when all cores wait, somebody must advance time.
//! - `cpu_reset_interrupt`, `arm_cpu_update_virq`, `arm_cpu_update_vfiq`: a virtual interrupt does not
//!   end a wait of EL2 (Arm ARM, D1.6.2), but QEMU ends it.
//! - `qdev_get_gpio_out_connector`, `qemu_set_irq`: the interrupt line of a CPU's performance
//!   monitors; where QEMU leaves it unwired and the board does not, `object_resolve_path_type` and
//!   `qdev_get_gpio_in` find the GIC's input.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::{Cpu, Running, SharedCpu};
use crate::ffi::{KNOWN_QEMU, functions, missing, symbol};
use libc::{c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

/// A function that runs with QEMU's lock held, between two blocks.
pub type Work = extern "C" fn(*mut c_void, u64);
/// `get_virtual_clock`.
pub type GetClock = extern "C" fn() -> i64;
/// `set_virtual_clock`.
pub type SetClock = extern "C" fn(i64);

/// Tests whether QEMU reads guest time, and whether it sets it, by the model's functions. The
/// arguments are QEMU's ways to do both.
pub type ClockTest = fn(&dyn Fn() -> i64, &dyn Fn(i64)) -> (bool, bool);

/// `QEMU_CLOCK_VIRTUAL`.
const VIRTUAL: c_int = 1;

functions! {
    /// QEMU's own functions.
    Functions {
        /// Returns the CPU with this index.
        cpu = c"qemu_get_cpu": fn(c_int) -> *mut c_void;
        /// Ends the CPU's turn.
        exit = c"cpu_exit": fn(*mut c_void);
        /// Queues work for a CPU's thread.
        work = c"async_run_on_cpu": fn(*mut c_void, Work, u64);
        /// Takes QEMU's lock.
        lock = c"bql_lock_impl": fn(*const c_char, c_int);
        /// Releases QEMU's lock.
        unlock = c"bql_unlock": fn();
        /// Sets guest time and runs the timers up to it.
        advance = c"qemu_clock_advance_virtual_time": fn(i64) -> i64;
        /// Returns the nanoseconds to the next timer, or -1.
        deadline = c"qemu_clock_deadline_ns_all": fn(c_int, c_int) -> i64;
        /// Returns guest time as QEMU would have it.
        own_clock = c"cpu_get_clock": fn() -> i64;
        /// Has the main loop compute again how long it may sleep.
        wake_main = c"qemu_notify_event": fn();
        /// Returns whether all CPUs wait.
        idle = c"all_cpu_threads_idle": fn() -> bool;
        /// Returns what a device's output is wired to.
        wire = c"qdev_get_gpio_out_connector": fn(*mut c_void, *const c_char, c_int) -> *mut c_void;
        /// Returns the only object of a type, or null.
        object = c"object_resolve_path_type": fn(*const c_char, *const c_char, *mut bool) -> *mut c_void;
        /// Returns a device's input.
        input = c"qdev_get_gpio_in": fn(*mut c_void, c_int) -> *mut c_void;
        /// Sets an interrupt line.
        set_interrupt = c"qemu_set_irq": fn(*mut c_void, c_int);
        /// Takes back requests of a CPU's interrupts.
        withdraw = c"cpu_reset_interrupt": fn(*mut c_void, c_int);
        /// Requests a CPU's virtual IRQ, or takes that back, as its input and HCR_EL2 say.
        update_virq = c"arm_cpu_update_virq": fn(*mut c_void);
        /// The same with its virtual FIQ.
        update_vfiq = c"arm_cpu_update_vfiq": fn(*mut c_void);
        /// Reads a clock.
        read_clock = c"qemu_clock_get_ns": fn(c_int) -> i64;
        /// Sets guest time by the accelerator's function.
        set_clock = c"cpus_set_virtual_clock": fn(i64);
        /// Returns this thread's `struct rcu_reader_data`.
        reader = c"get_ptr_rcu_reader": fn() -> *const *mut c_void;
        /// Removes what is called when others wait for this thread.
        remove_force = c"rcu_remove_force_rcu_notifier": fn(*mut c_void);
        /// Returns a class by its name.
        class = c"object_class_by_name": fn(*const c_char) -> *mut *mut c_void;
    }
}

/// `CPU_INTERRUPT_VIRQ` and `CPU_INTERRUPT_VFIQ`.
const VIRTUAL_INTERRUPTS: c_int = 0x40 | 0x200;

/// Number of the class's entries that are searched.
const CLASS_WORDS: usize = 32;

/// The word of `struct rcu_reader_data` with what is called when others wait for its thread: after
/// `ctr`, `waiting` with `depth`, and the two of `node`.
const FORCE_RCU: usize = 4;

/// QEMU's internals that were found.
pub struct Internals {
    f: Functions,
}

static INTERNALS: OnceLock<Internals> = OnceLock::new();

/// Returns QEMU's internals, once they are found.
#[inline]
pub fn internals() -> Option<&'static Internals> {
    INTERNALS.get()
}

/// An interrupt line of QEMU's, or none: setting that has no effect.
#[derive(Clone, Copy, Debug)]
pub struct Line(*mut c_void);

impl Internals {
    /// Finds all internals.
    ///
    /// # Errors
    ///
    /// The name of a missing one.
    pub fn find() -> Result<&'static Self, String> {
        for (name, text) in [
            (c"current_cpu", "current_cpu"),
            (c"tcg_handle_interrupt", "tcg_handle_interrupt"),
        ] {
            symbol(name).ok_or_else(|| missing(text))?;
        }
        let f = Functions::find().map_err(missing)?;
        Ok(INTERNALS.get_or_init(|| Self { f }))
    }

    /// Returns the CPU that this thread runs.
    pub fn current_cpu() -> Option<Cpu> {
        thread_local! {
            static RUNNING: Running = Running::of_this_thread();
        }
        RUNNING.with(|running| running.cpu())
    }

    /// Returns the CPU with this index, while it starts on this thread.
    pub fn cpu(&self, core: usize) -> Option<Cpu> {
        // SAFETY: the function only looks the index up in a list.
        NonNull::new(unsafe { (self.f.cpu)(c_int::try_from(core).ok()?) }).map(Cpu)
    }

    /// Keeps other threads from ending turns of this one, the vCPUs', to get on with RCU.
    pub fn keep_turns_whole(&self) {
        // SAFETY: the vCPUs' thread has added one notifier, to its own list, and removes it only
        // when it ends, which it does with QEMU.
        unsafe {
            let notifier = (self.f.reader)().add(FORCE_RCU).read();
            if !notifier.is_null() {
                (self.f.remove_force)(notifier);
            }
        }
    }

    /// Ends a CPU's turn after its current block.
    pub fn exit(&self, cpu: Cpu) {
        // SAFETY: a CPU of this QEMU; the function only sets flags.
        unsafe { (self.f.exit)(cpu.0.as_ptr()) }
    }

    /// Ends the turn of a CPU that is known, from any thread.
    pub fn end_turn(&self, cpu: &SharedCpu) {
        if let Some(cpu) = NonNull::new(cpu.0.load(Relaxed)) {
            self.exit(Cpu(cpu));
        }
    }

    /// Queues work for a CPU's thread, to be done between two blocks.
    pub fn work(&self, cpu: Cpu, work: Work, data: u64) {
        // SAFETY: a CPU of this QEMU; run_on_cpu_data is a union of 8 bytes, passed as a word.
        unsafe { (self.f.work)(cpu.0.as_ptr(), work, data) }
    }

    /// Runs `what` with QEMU's lock held.
    pub fn locked<T>(&self, what: impl FnOnce() -> T) -> T {
        // SAFETY: called from a thread that does not have the lock; file and line are for its
        // profiler.
        unsafe { (self.f.lock)(c"plugin".as_ptr(), 0) };
        let result = what();
        // SAFETY: this thread took the lock above, and nothing between gives it back.
        unsafe { (self.f.unlock)() };
        result
    }

    /// Returns the interrupt line of a CPU's performance monitors: QEMU's own, else the GIC's input
    /// of `spi` (its GIC ID), else none. For callbacks of guest code, which runs without QEMU's
    /// lock.
    pub fn pmu_line(&self, cpu: Cpu, spi: Option<u32>) -> Line {
        self.locked(|| {
            // SAFETY: a CPU is a device, and the machine is complete now that guest code runs.
            let own = unsafe { (self.f.wire)(cpu.0.as_ptr(), c"pmu-interrupt".as_ptr(), 0) };
            let Some(spi) = spi.filter(|_| own.is_null()) else {
                return Line(own);
            };
            // SAFETY: looks up names; the whole machine is searched for the type.
            let gic = unsafe { (self.f.object)(c"".as_ptr(), c"arm_gic".as_ptr(), null_mut()) };
            if gic.is_null() {
                return Line(gic);
            }
            // SAFETY: a GIC is a device; its first inputs are the SPIs, and the board file's check
            // bounds their number.
            Line(unsafe { (self.f.input)(gic, spi as c_int - 32) })
        })
    }

    /// Sets an interrupt line. For callbacks of guest code, as above.
    pub fn set_interrupt(&self, line: Line, level: bool) {
        // SAFETY: a line of this QEMU, or null, which QEMU ignores.
        self.locked(|| unsafe { (self.f.set_interrupt)(line.0, c_int::from(level)) });
    }

    /// Keeps virtual interrupts from ending a wait of EL2 on a CPU, until
    /// [`show_virtual`](Self::show_virtual). For callbacks of guest code, which runs without QEMU's
    /// lock.
    pub fn hide_virtual(&self, cpu: Cpu) {
        // SAFETY: a CPU of this QEMU; the function takes the lock that it needs.
        unsafe { (self.f.withdraw)(cpu.0.as_ptr(), VIRTUAL_INTERRUPTS) }
    }

    /// Shows a CPU its virtual interrupts again. For callbacks of guest code, as above.
    pub fn show_virtual(&self, cpu: Cpu) {
        // SAFETY: a CPU of this QEMU, which is an Arm one; the lock is held.
        self.locked(|| unsafe {
            (self.f.update_virq)(cpu.0.as_ptr());
            (self.f.update_vfiq)(cpu.0.as_ptr());
        });
    }

    /// Sets guest time and runs the timers up to it. QEMU's lock must be held.
    pub fn advance(&self, time: i64) {
        // SAFETY: called with the lock held.
        unsafe { (self.f.advance)(time) };
    }

    /// Returns the nanoseconds until the next timer of guest time.
    pub fn next_timer(&self) -> Option<i64> {
        // SAFETY: reads lists under their own locks.
        let deadline = unsafe { (self.f.deadline)(VIRTUAL, !0) };
        (deadline >= 0).then_some(deadline)
    }

    /// Has the main loop compute again for how long no timer is due.
    pub fn wake_main_loop(&self) {
        // SAFETY: only wakes the main loop, from any thread.
        unsafe { (self.f.wake_main)() }
    }

    /// Returns the guest time that QEMU would have without the model.
    pub fn own_clock(&self) -> i64 {
        // SAFETY: reads under a sequence lock.
        unsafe { (self.f.own_clock)() }
    }

    /// Returns guest time in nanoseconds. Under `-icount`, that is the time of the last access to a
    /// device or timer, or of the running CPU's turn if there was none since: QEMU refuses to count
    /// what a CPU has executed in the middle of a block.
    pub fn clock(&self) -> i64 {
        thread_local! {
            static RUNNING: *mut *mut c_void =
                symbol(c"current_cpu").map_or(null_mut(), <*mut c_void>::cast);
        }
        let running = RUNNING.with(|running| *running);
        if running.is_null() {
            return 0;
        }
        // SAFETY: this thread's own variable, restored before anything else runs on the thread;
        // without a running CPU, the clock is what was counted last. The clock has its own lock.
        unsafe {
            let cpu = running.read();
            running.write(null_mut());
            let time = (self.f.read_clock)(VIRTUAL);
            running.write(cpu);
            time
        }
    }

    /// Returns whether QEMU counts guest time by instructions (`-icount`), once a CPU executes. Else
    /// a plugin's own work takes guest time.
    pub fn counts_time(&self) -> bool {
        // SAFETY: an enumeration of C, which QEMU sets before any CPU executes.
        let mode = symbol(c"use_icount").map(|mode| unsafe { mode.cast::<c_int>().read() });
        mode.is_some_and(|mode| mode != 0)
    }

    /// Returns whether all CPUs wait. QEMU's lock must be held.
    pub fn all_idle(&self) -> bool {
        // SAFETY: called with the lock held.
        unsafe { (self.f.idle)() }
    }

    /// Replaces QEMU's clock functions. `is_hooked` then tests whether QEMU reads and sets its
    /// clock by them.
    pub fn hook_clock(
        &self,
        get: GetClock,
        set: SetClock,
        is_hooked: ClockTest,
    ) -> Result<(), String> {
        // SAFETY: looks a name up in a table.
        let class = unsafe { (self.f.class)(c"tcg-accel-ops".as_ptr()) };
        if class.is_null() {
            return Err("QEMU runs without TCG: start it with -accel tcg,thread=single".into());
        }
        let handle = symbol(c"tcg_handle_interrupt").unwrap_or_default();
        // SAFETY: the class is larger than what is read of it: AccelOpsClass has 12 words of
        // ObjectClass and about 20 functions. Reading stops two after `handle_interrupt`.
        let word = |at: usize| unsafe { class.add(at).read() };
        let at = (0..CLASS_WORDS)
            .find(|&at| word(at) == handle)
            .ok_or_else(|| {
                format!(
                    "no handle_interrupt in the accelerator's class: start QEMU without -icount; \
                     {KNOWN_QEMU}"
                )
            })?;
        let mut found = (false, false);
        // Some versions have another function between `handle_interrupt` and the clock's two.
        for place in [at + 1, at + 2] {
            let before = [word(place), word(place + 1)];
            if before.iter().any(|function| !function.is_null()) {
                continue;
            }
            let put = |functions: [*mut c_void; 2]| {
                // SAFETY: two functions of the class, null as checked above; QEMU reads them at each
                // use. The first vCPU has not started to run.
                unsafe {
                    class.add(place + 1).write(functions[1]);
                    class.add(place).write(functions[0]);
                }
            };
            put([get as *mut c_void, set as *mut c_void]);
            // SAFETY: the first function reads the clock, the second one only calls the
            // accelerator's function.
            let (read, set) = (
                || unsafe { (self.f.read_clock)(VIRTUAL) },
                |time| unsafe { (self.f.set_clock)(time) },
            );
            found = is_hooked(&read, &set);
            if found == (true, true) {
                return Ok(());
            }
            put(before);
        }
        let (read, set) = found;
        Err(format!(
            "guest time is not the model's (QEMU reads the model's: {read}, sets it: {set}): start \
             it without -icount; {KNOWN_QEMU}"
        ))
    }
}
