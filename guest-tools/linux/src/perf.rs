//! A counter of perf_event_open(2) that the program reads by `mrs`, where the kernel lets it
//! (`/proc/sys/kernel/perf_user_access`).

use crate::process::system_call;
use core::arch::asm;
use core::ptr::{null_mut, read_volatile};

const PERF_EVENT_OPEN: u64 = 241;
const MMAP: u64 = 222;
const READ: u64 = 63;
/// PROT_READ, MAP_SHARED.
const READABLE: u64 = 1;
const SHARED: u64 = 1;

/// `struct perf_event_attr` up to its first length (PERF_ATTR_SIZE_VER0), and `config1` behind it.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
}

/// `exclude_kernel` and `exclude_hv`.
const USER_ALONE: u64 = 1 << 5 | 1 << 6;
/// In `config1` of the Armv8 PMU's events: to be read by the program itself.
const BY_MYSELF: u64 = 1 << 1;
/// Where `index`, `capabilities` and `pmc_width` are in `struct perf_event_mmap_page`.
const INDEX: usize = 12;
const CAPABILITIES: usize = 40;
const WIDTH: usize = 48;
/// `cap_user_rdpmc` in `capabilities`.
const READABLE_BY_USER: u64 = 1 << 2;
/// The index of the cycle counter: its number and one.
const CYCLES: u32 = 32;

/// What is counted (`PERF_TYPE_HARDWARE`).
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// `PERF_COUNT_HW_CPU_CYCLES`
    Cycles = 0,
    /// `PERF_COUNT_HW_INSTRUCTIONS`
    Instructions = 1,
}

/// A counter of this program's own execution.
#[derive(Debug)]
pub struct Counter {
    descriptor: u64,
    page: *const u8,
}

impl Counter {
    /// Starts counting at EL0.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn start(event: Event) -> Result<Self, i64> {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            config: event as u64,
            flags: USER_ALONE,
            config1: BY_MYSELF,
            ..Attributes::default()
        };
        let pointer = &raw const attributes as u64;
        // SAFETY: perf_event_open(2) reads the attributes. This process, on any CPU, no group, no flags.
        let descriptor = unsafe { system_call(PERF_EVENT_OPEN, [pointer, 0, u64::MAX, u64::MAX, 0, 0]) };
        if descriptor < 0 {
            return Err(-descriptor);
        }
        let descriptor = descriptor as u64;
        let anywhere = null_mut::<u8>() as u64;
        // SAFETY: mmap(2) finds memory that nothing else uses.
        let page = unsafe { system_call(MMAP, [anywhere, 4096, READABLE, SHARED, descriptor, 0]) };
        if page < 0 { Err(-page) } else { Ok(Self { descriptor, page: page as *const u8 }) }
    }

    /// Whether the kernel says that the program may read the counter.
    pub fn is_readable(&self) -> bool {
        // SAFETY: the page has 4096 bytes and stays mapped; the kernel changes it at any time.
        let capabilities = unsafe { read_volatile(self.page.add(CAPABILITIES).cast::<u64>()) };
        capabilities & READABLE_BY_USER != 0 && self.index() != 0
    }

    /// The counter's number and one; 0 while it is none that the program may read.
    pub fn index(&self) -> u32 {
        // SAFETY: as above.
        unsafe { read_volatile(self.page.add(INDEX).cast::<u32>()) }
    }

    /// How many bits of the counter count.
    pub fn width(&self) -> u16 {
        // SAFETY: as above.
        unsafe { read_volatile(self.page.add(WIDTH).cast::<u16>()) }
    }

    /// The count, by the kernel.
    ///
    /// # Errors
    /// The kernel's error number.
    pub fn by_kernel(&self) -> Result<u64, i64> {
        let mut count = 0u64;
        // SAFETY: read(2) writes 8 bytes to `count`.
        let read = unsafe { system_call(READ, [self.descriptor, &raw mut count as u64, 8, 0, 0, 0]) };
        if read < 0 { Err(-read) } else { Ok(count) }
    }
}

/// Reads a counter by `mrs`; `None` for a number that the Cortex-A53 does not have. Where the kernel does not allow it, it
/// ends the program (SIGILL).
pub fn read(index: u32) -> Option<u64> {
    macro_rules! read {
        ($register:literal) => {{
            let value: u64;
            // SAFETY: it reads a counter, and nothing else.
            unsafe { asm!(concat!("isb\nmrs {}, ", $register), out(reg) value, options(nomem, nostack)) };
            value
        }};
    }
    Some(match index {
        1 => read!("pmevcntr0_el0"),
        2 => read!("pmevcntr1_el0"),
        3 => read!("pmevcntr2_el0"),
        4 => read!("pmevcntr3_el0"),
        5 => read!("pmevcntr4_el0"),
        6 => read!("pmevcntr5_el0"),
        CYCLES => read!("pmccntr_el0"),
        _ => return None,
    })
}

/// Executes `2 * turns` instructions, and one or two more; at least one turn.
pub fn work(turns: u64) {
    // SAFETY: a loop over a register.
    unsafe {
        asm!("2: subs {turns}, {turns}, #1", "b.ne 2b", turns = inout(reg) turns.max(1) => _, options(nomem, nostack));
    }
}
