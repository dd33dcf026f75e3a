//! What the plugin API does not offer: QEMU's own functions and its accelerator's table, looked up
//! by name.
//!
//! Debian builds QEMU with modules, so the program exports its symbols. Each is needed for a
//! reason:
//! - `current_cpu`: with one thread for all vCPUs, the index that QEMU passes to callbacks is that
//!   of the first one.
//! - `cpu_exit`: makes a core that is ahead yield. Blocking it in a callback would stop all others
//!   too.
//! - `cpu_get_phys_page_attrs_debug`: cache maintenance and DC ZVA cause no memory callback, and a
//!   block's address is virtual.
//! - `cpu_physical_memory_rw`: a walk of translation tables reads physical addresses; version 4 of
//!   the API reads virtual ones only.
//! - the class `tcg-accel-ops`: guest time. The API's time control only works without TCG, so the
//!   two functions of the class are replaced. They follow `handle_interrupt`, which is how they are
//!   found.
//! - `qemu_clock_get_ns`, `cpus_set_virtual_clock`: after that, show whether QEMU's clock is the
//!   model's. Where it is not, the class has another layout, and the run ends.
//! - `qemu_clock_*`, `async_run_on_cpu`: guest time advances from timer to timer; each timer runs
//!   when its time has come, between two blocks and with QEMU's lock held.
//! - `bql_*`, `all_cpu_threads_idle`: when all cores wait, somebody must advance time.
//! - `aarch64_cpu_gdb_write_register`: returns modelled counts to a guest that reads an event
//!   counter; the plugin API only reads registers.
//! - `qdev_get_gpio_out_connector`, `qemu_set_irq`: the interrupt line of a CPU's performance
//!   monitors; where QEMU leaves it unwired and the board does not, `object_resolve_path_type` and
//!   `qdev_get_gpio_in` find the GIC's input.
//! - `rr_kick_vcpu_thread`: shows whether there is one thread for all vCPUs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::ffi::{KNOWN_QEMU, functions, symbol};
use libc::{c_char, c_int, c_void};

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
        /// Translates an address as the debugger does.
        page = c"cpu_get_phys_page_attrs_debug": fn(*mut c_void, u64, *mut u64) -> u64;
        /// Copies from or to physical memory.
        memory = c"cpu_physical_memory_rw": fn(u64, *mut c_void, u64, bool);
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
        /// Sets a register as the debugger does.
        set_register = c"aarch64_cpu_gdb_write_register": fn(*mut c_void, *mut u8, c_int) -> c_int;
        /// Reads a clock.
        read_clock = c"qemu_clock_get_ns": fn(c_int) -> i64;
        /// Sets guest time by the accelerator's function.
        set_clock = c"cpus_set_virtual_clock": fn(i64);
        /// Returns a class by its name.
        class = c"object_class_by_name": fn(*const c_char) -> *mut *mut c_void;
    }
}

/// Number of the class's entries that are searched.
const CLASS_WORDS: usize = 64;

/// QEMU's internals that were found.
pub struct Internals {
    f: Functions,
}

impl Internals {
    /// Finds all internals, or returns the name of a missing one.
    pub fn find() -> Result<Self, &'static str> {
        for (name, text) in [
            (c"current_cpu", "current_cpu"),
            (c"tcg_handle_interrupt", "tcg_handle_interrupt"),
            (c"rr_kick_vcpu_thread", "rr_kick_vcpu_thread"),
        ] {
            symbol(name).ok_or(text)?;
        }
        Functions::find().map(|f| Self { f })
    }

    /// Returns the address of this thread's `current_cpu`.
    pub fn current_cpu_slot() -> *const *mut c_void {
        symbol(c"current_cpu").map_or(std::ptr::null(), |slot| slot.cast_const().cast())
    }

    /// Returns the CPU that this thread runs, or null.
    pub fn current_cpu() -> *mut c_void {
        thread_local! {
            static SLOT: *const *mut c_void = Internals::current_cpu_slot();
        }
        // SAFETY: `find` checked that the variable exists; it is this thread's own.
        SLOT.with(|slot| unsafe { slot.read() })
    }

    /// Returns the CPU with this index.
    pub fn cpu(&self, index: u32) -> *mut c_void {
        // SAFETY: the function only looks the index up in a list; called while a vCPU starts.
        unsafe { (self.f.cpu)(index as c_int) }
    }

    /// Ends a CPU's turn after its current block.
    ///
    /// # Safety
    /// `cpu` must be a CPU of this QEMU.
    pub unsafe fn exit(&self, cpu: *mut c_void) {
        // SAFETY: as the caller promises; the function only sets flags.
        unsafe { (self.f.exit)(cpu) }
    }

    /// Translates a virtual address by the CPU's current page tables.
    ///
    /// # Safety
    /// `cpu` must be the CPU that runs on this thread.
    pub unsafe fn translate(&self, cpu: *mut c_void, address: u64) -> Option<u64> {
        let mut attributes = 0u64;
        // SAFETY: as the caller promises; MemTxAttrs is 8 bytes in QEMU 10 and is only written.
        let page = unsafe { (self.f.page)(cpu, address & !0xfff, &raw mut attributes) };
        (page != u64::MAX).then_some(page & !0xfff | address & 0xfff)
    }

    /// Reads physical memory, as the devices of the machine see it.
    pub fn read_memory(&self, physical: u64, bytes: &mut [u8]) {
        // SAFETY: the function writes as many bytes as it is told; the last argument says that it
        // reads the memory.
        unsafe {
            (self.f.memory)(
                physical,
                bytes.as_mut_ptr().cast(),
                bytes.len() as u64,
                false,
            )
        }
    }

    /// Sets a general register.
    ///
    /// # Safety
    /// `cpu` must be the CPU that runs on this thread, in a callback that may write registers;
    /// `number` must be below 31.
    pub unsafe fn set_register(&self, cpu: *mut c_void, number: u8, value: u64) {
        let mut bytes = value.to_le_bytes();
        // SAFETY: as the caller promises; 8 bytes are read.
        unsafe { (self.f.set_register)(cpu, bytes.as_mut_ptr(), c_int::from(number)) };
    }

    /// Queues work for a CPU's thread, to be done between two blocks.
    ///
    /// # Safety
    /// `cpu` must be a CPU of this QEMU.
    pub unsafe fn work(&self, cpu: *mut c_void, work: Work, data: u64) {
        // SAFETY: as the caller promises; run_on_cpu_data is a union of 8 bytes, passed as a word.
        unsafe { (self.f.work)(cpu, work, data) }
    }

    /// Runs `what` with QEMU's lock held.
    pub fn locked<T>(&self, what: impl FnOnce() -> T) -> T {
        // SAFETY: called from a thread that does not have the lock; file and line are for its
        // profiler.
        unsafe { (self.f.lock)(c"board-model".as_ptr(), 0) };
        let result = what();
        // SAFETY: this thread took the lock above, and nothing between gives it back.
        unsafe { (self.f.unlock)() };
        result
    }

    /// Returns the interrupt line of a CPU's performance monitors: QEMU's own, else the GIC's input
    /// of `spi` (its GIC ID), else null.
    ///
    /// # Safety
    /// `cpu` must be a CPU of this QEMU, whose machine is complete, and the thread must not hold
    /// QEMU's lock.
    pub unsafe fn pmu_line(&self, cpu: *mut c_void, spi: Option<u32>) -> *mut c_void {
        self.locked(|| {
            // SAFETY: a CPU is a device, as the caller promises.
            let own = unsafe { (self.f.wire)(cpu, c"pmu-interrupt".as_ptr(), 0) };
            let Some(spi) = spi.filter(|_| own.is_null()) else {
                return own;
            };
            // SAFETY: looks up names; the whole machine is searched for the type.
            let gic =
                unsafe { (self.f.object)(c"".as_ptr(), c"arm_gic".as_ptr(), std::ptr::null_mut()) };
            if gic.is_null() {
                return gic;
            }
            // SAFETY: a GIC is a device; its first inputs are the SPIs, and the board file's check
            // bounds their number.
            unsafe { (self.f.input)(gic, spi as c_int - 32) }
        })
    }

    /// Sets an interrupt line.
    ///
    /// # Safety
    /// `line` must be null, which QEMU ignores, or a line of this QEMU, and the thread must not
    /// hold QEMU's lock.
    pub unsafe fn set_interrupt(&self, line: *mut c_void, level: bool) {
        // SAFETY: as the caller promises.
        self.locked(|| unsafe { (self.f.set_interrupt)(line, c_int::from(level)) });
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

    /// Returns the guest time that QEMU would have without the model.
    pub fn own_clock(&self) -> i64 {
        // SAFETY: reads under a sequence lock.
        unsafe { (self.f.own_clock)() }
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
        let help = KNOWN_QEMU;
        // SAFETY: looks a name up in a table.
        let class = unsafe { (self.f.class)(c"tcg-accel-ops".as_ptr()) };
        if class.is_null() {
            return Err("QEMU runs without TCG: start it with -accel tcg,thread=single".into());
        }
        let has = |name| symbol(name).unwrap_or_default();
        let (handle, round_robin) = (has(c"tcg_handle_interrupt"), has(c"rr_kick_vcpu_thread"));
        // SAFETY: the class is larger than what is read of it: QEMU 10.0's AccelOpsClass has 12
        // words of ObjectClass and about 20 functions. Reading stops at `handle_interrupt`.
        let word = |at: usize| unsafe { class.add(at).read() };
        let at = (0..CLASS_WORDS)
            .take_while(|&at| at < 32)
            .find(|&at| word(at) == handle);
        let at = at.ok_or_else(|| {
            format!(
                "no handle_interrupt in the accelerator's class: start QEMU without -icount; \
                 {help}"
            )
        })?;
        if !(0..at).any(|at| word(at) == round_robin) {
            return Err(
                "QEMU has a thread for each vCPU: start it with -accel tcg,thread=single".into(),
            );
        }
        if !word(at + 1).is_null() || !word(at + 2).is_null() {
            return Err(format!(
                "QEMU's clock has another owner: start it without -icount; {help}"
            ));
        }
        // SAFETY: the two words after `handle_interrupt` are get_virtual_clock and
        // set_virtual_clock, both null without -icount, as checked above; QEMU reads them
        // at each use. The first vCPU has not started to run.
        unsafe {
            class.add(at + 2).write(set as *mut c_void);
            class.add(at + 1).write(get as *mut c_void);
        }
        // SAFETY: the first function reads the clock, the second one only calls the accelerator's
        // function.
        let (read, set) = (
            || unsafe { (self.f.read_clock)(VIRTUAL) },
            |time| unsafe { (self.f.set_clock)(time) },
        );
        match is_hooked(&read, &set) {
            (true, true) => Ok(()),
            (read, set) => Err(format!(
                "guest time is not the model's (QEMU reads the model's: {read}, sets it: {set}): \
                 {help}"
            )),
        }
    }
}
