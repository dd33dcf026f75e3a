//! Counts its own instructions and cycles, and reads the counters itself at EL0 by `mrs`, without
//! the kernel. With an argument, it reads a counter even if the kernel does not allow it.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]

use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_TYPE_HARDWARE, perf_event_attr,
    perf_event_mmap_page,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::process::ExitCode;

/// Iterations of the loop that is counted, of two instructions each.
const TURNS: u64 = 1_000_000;
/// In `config1` of the Armv8 PMU's events: the program itself reads the counter
/// (`drivers/perf/arm_pmuv3.c`, `rdpmc`).
const BY_MYSELF: u64 = 1 << 1;
/// The index of the cycle counter: its number plus one.
const CYCLES: u32 = 32;

fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        println!(
            "count-self: counter 0 reads {}",
            read(1).unwrap_or_default()
        );
        return ExitCode::SUCCESS;
    }
    let mut done = ExitCode::SUCCESS;
    for (name, event) in [
        ("instructions", PERF_COUNT_HW_INSTRUCTIONS),
        ("cycles", PERF_COUNT_HW_CPU_CYCLES),
    ] {
        match count(u64::from(event)) {
            Ok(Some(text)) => println!("count-self: {name} {text}"),
            Ok(None) => {
                println!("count-self: {name}: not for programs");
                done = ExitCode::FAILURE;
            }
            Err(error) => {
                println!("count-self: {name}: {error}");
                done = ExitCode::FAILURE;
            }
        }
    }
    done
}

/// Counts one event at EL0 over the loop, by `mrs` and by the kernel. Returns `None` if the kernel
/// does not allow `mrs`.
fn count(event: u64) -> io::Result<Option<String>> {
    let mut counter = Counter::start(event)?;
    if !counter.is_readable() {
        return Ok(None);
    }
    let (index, width) = (counter.index(), u32::from(counter.width()));
    let (kernel, before) = (counter.by_kernel()?, read(index));
    work(TURNS);
    let (after, kernel_after) = (read(index), counter.by_kernel()?);
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(None);
    };
    let counted = after.wrapping_sub(before) << (64 - width) >> (64 - width);
    let expected = 2 * TURNS;
    Ok(Some(format!(
        "index={index} width={width} expected={expected} mrs={counted} kernel={}",
        kernel_after - kernel
    )))
}

/// A counter of this program's own execution, at EL0 only.
struct Counter {
    file: File,
    page: *const perf_event_mmap_page,
}

#[allow(unsafe_code)]
impl Counter {
    fn start(event: u64) -> io::Result<Self> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_HARDWARE,
            config: event,
            ..Default::default()
        };
        attributes.size = size_of::<perf_event_attr>() as u32;
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        attributes.__bindgen_anon_3.config1 = BY_MYSELF;
        // SAFETY: the call only reads the attributes. This process, on any CPU, no group, no flags.
        let descriptor =
            unsafe { perf_event_open_sys::perf_event_open(&mut attributes, 0, -1, -1, 0) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        let file = unsafe { File::from_raw_fd(descriptor) };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let page = unsafe {
            mmap(
                std::ptr::null_mut(),
                4096,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
        Ok(Self {
            file,
            page: page.cast(),
        })
    }

    /// Returns whether the kernel allows the program to read the counter.
    fn is_readable(&self) -> bool {
        // SAFETY: the page stays mapped; the kernel may change it at any time.
        let capabilities =
            unsafe { (&raw const (*self.page).__bindgen_anon_1.capabilities).read_volatile() };
        // `cap_user_rdpmc`
        capabilities & 1 << 2 != 0 && self.index() != 0
    }

    /// Returns the counter's number plus one, or 0 while the program may not read it.
    fn index(&self) -> u32 {
        // SAFETY: the page is mapped while `self` lives; the kernel may change it at any time.
        unsafe { (&raw const (*self.page).index).read_volatile() }
    }

    /// Returns the counter's width in bits.
    fn width(&self) -> u16 {
        // SAFETY: the page is mapped while `self` lives; the kernel may change it at any time.
        unsafe { (&raw const (*self.page).pmc_width).read_volatile() }
    }

    /// Returns the count according to the kernel.
    fn by_kernel(&mut self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Reads a counter by `mrs`; returns `None` for a number that the Cortex-A53 does not have. If the
/// kernel does not allow the access, it kills the program (SIGILL).
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
fn read(index: u32) -> Option<u64> {
    macro_rules! read {
        ($register:literal) => {{
            let value: u64;
            // SAFETY: it only reads a counter.
            unsafe {
                std::arch::asm!(concat!("isb\n\
                    mrs {}, ", $register), out(reg) value, options(nomem, nostack));
            }
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

/// Executes `2 * turns` instructions plus one or two; at least one iteration.
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
fn work(turns: u64) {
    // SAFETY: a loop over a register.
    unsafe {
        std::arch::asm!("2: subs {turns}, {turns}, #1", "b.ne 2b", turns = inout(reg) turns.max(1) => _, options(nomem, nostack));
    }
}

/// Other machines do not have these registers.
#[cfg(not(target_arch = "aarch64"))]
fn read(_index: u32) -> Option<u64> {
    let _ = CYCLES;
    None
}

/// Other machines do not have this loop.
#[cfg(not(target_arch = "aarch64"))]
fn work(_turns: u64) {}
