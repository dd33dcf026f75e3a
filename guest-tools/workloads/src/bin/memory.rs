//! Memory: streams, chains of loads and random reads, each as published benchmarks do; or a survey
//! of them.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::ram::{LINE, Ram};
use cloison_guest::{arg, args, entry, println, segment, timer};
use cloison_workloads::{PROFILED, chain, id};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// Bytes from one load of a chain to the next one, as in lmbench's `lat_mem_rd` by default.
const STRIDE: u64 = 128;
/// Loads per iteration of the chain's loop, so that counting costs little.
const UNROLL: u64 = 8;
/// The number of argument 0 that asks for a survey.
const SURVEY: u64 = 5;
/// Accesses of each measurement of a survey, at least: the calls around it take less than a
/// thousandth of it.
const SURVEYED: u64 = 1 << 18;
/// The smallest buffer of a survey: a page.
const SMALLEST: u64 = 4 << 10;

/// The routines in assembly, so that no compiler decides how wide an access is.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // `stream_read(start, end)`, `stream_write(start, end)`, `stream_copy(start, end, to)`: a line
    // in each iteration, 16 bytes in each access, as memcpy and memset of C libraries for this
    // architecture. `write_words(start, end)`: 4 bytes of each 32, as lmbench's `bw_mem wr`.
    // `follow(address, turns)`: 8 dependent loads in each iteration.
    // `read_at_random(start, mask, loads)`: each load's address depends on what the one before it
    // loaded, which is 0; a xorshift generator (Marsaglia, 2003) makes the rest of it.
    global_asm!(
        r#"
    .section .text.memory, "ax"
    .balign 64
    .global stream_read
stream_read:
    ldp     x2, x3, [x0]
    ldp     x2, x3, [x0, #16]
    ldp     x2, x3, [x0, #32]
    ldp     x2, x3, [x0, #48]
    add     x0, x0, #64
    cmp     x0, x1
    b.ne    stream_read
    ret
    .balign 64
    .global stream_write
stream_write:
    stp     xzr, xzr, [x0]
    stp     xzr, xzr, [x0, #16]
    stp     xzr, xzr, [x0, #32]
    stp     xzr, xzr, [x0, #48]
    add     x0, x0, #64
    cmp     x0, x1
    b.ne    stream_write
    ret
    .balign 64
    .global write_words
write_words:
    str     wzr, [x0]
    str     wzr, [x0, #32]
    add     x0, x0, #64
    cmp     x0, x1
    b.ne    write_words
    ret
    .balign 64
    .global stream_copy
stream_copy:
    ldp     x3, x4, [x0]
    ldp     x5, x6, [x0, #16]
    ldp     x7, x8, [x0, #32]
    ldp     x9, x10, [x0, #48]
    stp     x3, x4, [x2]
    stp     x5, x6, [x2, #16]
    stp     x7, x8, [x2, #32]
    stp     x9, x10, [x2, #48]
    add     x0, x0, #64
    add     x2, x2, #64
    cmp     x0, x1
    b.ne    stream_copy
    ret
    .balign 64
    .global follow
follow:
    .rept   8
    ldr     x0, [x0]
    .endr
    subs    x1, x1, #1
    b.ne    follow
    ret
    .balign 64
    .global read_at_random
read_at_random:
    mov     x3, #0x9e37
1:  eor     x3, x3, x3, lsl #13
    eor     x3, x3, x3, lsr #7
    eor     x3, x3, x3, lsl #17
    and     x4, x3, x1
    ldrb    w5, [x0, x4]
    orr     x3, x3, x5
    subs    x2, x2, #1
    b.ne    1b
    ret
    "#
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn stream_read(start: u64, end: u64);
    fn stream_write(start: u64, end: u64);
    fn write_words(start: u64, end: u64);
    fn stream_copy(start: u64, end: u64, to: u64);
    fn follow(address: u64, turns: u64) -> u64;
    fn read_at_random(start: u64, mask: u64, loads: u64);
}

/// The operation on the buffer, by argument 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Copy,
    Stride,
    Random,
    /// A chain of loads that reaches each line in random order; in surveys only, as `latency` does
    /// the same.
    Chase,
    Words,
    /// A chain of loads that reaches each line in the order of reversed numbers.
    Reversed,
}

impl Operation {
    const fn from_number(number: u64) -> Option<Self> {
        Some(match number {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Copy,
            3 => Self::Stride,
            4 => Self::Random,
            6 => Self::Words,
            7 => Self::Reversed,
            _ => return None,
        })
    }

    /// Returns the accesses of a pass, of which each reaches another line, or for random reads may.
    fn accesses(self, bytes: u64) -> u64 {
        if self == Self::Stride {
            bytes / STRIDE
        } else {
            bytes / LINE
        }
    }
}

/// Formats the name by which `cloison model points` finds a survey's lines.
impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Copy => "Copy",
            Self::Stride => "Stride",
            Self::Random => "Random",
            Self::Chase => "Chase",
            Self::Words => "Words",
            Self::Reversed => "Reversed",
        })
    }
}

fn main() {
    if args()[0] == SURVEY {
        survey(arg(1, 8 << 20));
        return;
    }
    let Some(operation) = Operation::from_number(args()[0]) else {
        println!("memory: operations are 0 to 7, not {}", args()[0]);
        return;
    };
    let least = STRIDE * UNROLL;
    let bytes = match operation {
        Operation::Random | Operation::Reversed => arg(1, 8 << 20).next_power_of_two().max(least),
        _ => arg(1, 8 << 20).next_multiple_of(least),
    };
    let passes = arg(2, 1);
    let runs = args()[3];
    let mut ram = Ram::behind_image();
    let buffer = ram.take_at(PROFILED, bytes);
    let other = if operation == Operation::Copy {
        Some(ram.take(bytes))
    } else {
        None
    };
    let [from, to] = [Some(buffer), other].map(|buffer| buffer.map_or(0, address));
    let accesses = operation.accesses(bytes) * passes;
    println!(
        "memory: {operation} buffer={bytes} B passes={passes} accesses={accesses} runs={runs}"
    );
    prepare(operation, buffer);
    let mut run = 0;
    while runs == 0 || run < runs {
        if runs == 0 {
            perform(operation, from, to, bytes, passes);
        } else {
            let measured = segment::measure(id::MEMORY, 0, run as u32, || {
                perform(operation, from, to, bytes, passes)
            });
            println!("memory: run={run} {measured}");
        }
        run += 1;
    }
}

/// Measures chains in random order and of equal strides over buffers of a page up to `largest`
/// bytes, each four times as large as the one before, and streams over the largest. Prints a line
/// for each, for `cloison model points`.
fn survey(largest: u64) {
    let largest = largest.next_power_of_two().max(SMALLEST);
    let mut ram = Ram::behind_image();
    let (buffer, other) = (ram.take_at(PROFILED, largest), ram.take(largest));
    let hz = timer::frequency();
    println!("survey: begins largest={largest} hz={hz}");
    let mut number = 0;
    let mut take = |operation: Operation, bytes: u64| {
        let buffer = &buffer[..(bytes / 8) as usize];
        let passes = SURVEYED.div_ceil(operation.accesses(bytes));
        prepare(operation, buffer);
        let run = || perform(operation, address(buffer), address(other), bytes, passes);
        // The first run fills the caches.
        run();
        let measured = segment::measure(id::MEMORY, 0, number, run);
        number += 1;
        let accesses = operation.accesses(bytes) * passes;
        println!("survey: {operation} bytes={bytes} accesses={accesses} {measured}");
    };
    for operation in [Operation::Chase, Operation::Stride] {
        let mut bytes = SMALLEST;
        while bytes < largest {
            take(operation, bytes);
            bytes = (bytes * 4).min(largest);
        }
        take(operation, largest);
    }
    for operation in [Operation::Read, Operation::Write, Operation::Copy] {
        take(operation, largest);
    }
    println!("survey: complete measurements={number}");
}

fn address(buffer: &[AtomicU64]) -> u64 {
    buffer.as_ptr().expose_provenance() as u64
}

/// Writes each word of the buffer: 0, or for a chain the address of the load before it, and at last
/// that of the last one.
fn prepare(operation: Operation, buffer: &[AtomicU64]) {
    for word in buffer {
        word.store(0, Relaxed);
    }
    if operation == Operation::Chase {
        chain::link(buffer, 0);
    } else if operation == Operation::Reversed {
        chain::link_reversed(buffer);
    } else if operation == Operation::Stride {
        let words = (STRIDE / 8) as usize;
        let last = address(buffer) + (buffer.len() as u64 * 8) - STRIDE;
        for (index, link) in buffer.chunks_exact(words).enumerate() {
            let before = address(buffer) + (index as u64) * STRIDE;
            link[0].store(if index == 0 { last } else { before - STRIDE }, Relaxed);
        }
    }
}

#[allow(unsafe_code)]
fn perform(operation: Operation, from: u64, to: u64, bytes: u64, passes: u64) {
    let end = from + bytes;
    // SAFETY: `from` and `to` are buffers of `bytes` bytes of atomic words, a multiple of 1024,
    // which nothing else borrows as anything else; random reads stay below a power of two of
    // them; a chain's links are addresses in the buffer.
    unsafe {
        match operation {
            Operation::Stride | Operation::Chase | Operation::Reversed => {
                follow(from, passes * operation.accesses(bytes) / UNROLL);
            }
            Operation::Random => {
                read_at_random(from, bytes - 1, passes * operation.accesses(bytes))
            }
            Operation::Read => (0..passes).for_each(|_| stream_read(from, end)),
            Operation::Words => (0..passes).for_each(|_| write_words(from, end)),
            Operation::Write => (0..passes).for_each(|_| stream_write(from, end)),
            Operation::Copy => (0..passes).for_each(|_| stream_copy(from, end, to)),
        }
    }
}
