//! Matrix copy: a loop whose event counts are known in advance (HEM reliability, figure 7).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::ram::Ram;
use cloison_guest::{arg, entry, println, segment};
use cloison_workloads::id;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// Maximum number of integers in each array: 2 MiB.
const INTS: u64 = 512 * 1024;
/// Bytes of an array; the code below contains offsets derived from it.
const ARRAY: u64 = INTS * 4;
/// Offset of the arrays in the stack frame of the paper's program.
const FRAME_OFFSET: u64 = 0x18;

/// The routines in assembly.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // `matrix_copy(frame, last)`: the paper's instructions, one by one, with x9 as its frame
    // pointer and w10 as the constant of its comparison. In the stack frame, to[] is at 0x18,
    // from[] 2 MiB after it, and the index another 2 MiB later. One iteration has 21
    // instructions, of which 5 are loads and 2 are stores; a call has 21 n + 11.
    global_asm!(
        r#"
    .section .text.matrix_copy, "ax"
    .balign 64
    .global matrix_copy
matrix_copy:
    mov     x9, x0
    mov     w10, w1
    add     x0, x9, #0x400, lsl #12
    str     wzr, [x0, #24]
    b       2f
1:  add     x0, x9, #0x400, lsl #12
    ldrsw   x0, [x0, #24]
    lsl     x0, x0, #2
    add     x1, x9, #0x200, lsl #12
    add     x1, x1, #0x18
    ldr     w2, [x1, x0]
    add     x0, x9, #0x400, lsl #12
    ldrsw   x0, [x0, #24]
    lsl     x0, x0, #2
    add     x1, x9, #0x18
    str     w2, [x1, x0]
    add     x0, x9, #0x400, lsl #12
    ldr     w0, [x0, #24]
    add     w0, w0, #0x1
    add     x1, x9, #0x400, lsl #12
    str     w0, [x1, #24]
2:  add     x0, x9, #0x400, lsl #12
    ldr     w1, [x0, #24]
    mov     w0, w10
    cmp     w1, w0
    b.ls    1b
    ret
    "#
    );
}

#[allow(unsafe_code)]
unsafe extern "C" {
    fn matrix_copy(frame: u64, last: u32);
}

#[allow(unsafe_code)]
fn main() {
    let ints = arg(0, INTS);
    let runs = arg(1, 1);
    if ints > INTS {
        println!("matrix-copy: at most {INTS} ints, not {ints}");
        return;
    }
    let memory = Ram::behind_image().take(2 * ARRAY + 64);
    let (to, from) = memory.split_at((ARRAY / 8) as usize);
    let words = ints.div_ceil(2) as usize;
    let from = &from[..words];
    println!("matrix-copy: ints={ints} runs={runs}");
    for run in 0..runs {
        for (index, (from, to)) in from.iter().zip(to).enumerate() {
            from.store(
                (index as u64 + run).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                Relaxed,
            );
            to.store(0, Relaxed);
        }
        let frame = memory.as_ptr().expose_provenance() as u64 - FRAME_OFFSET;
        let measured = segment::measure(id::MATRIX_COPY, 0, run as u32, || {
            // SAFETY: the arrays and the index after them are in `memory`, whose words are atomic;
            // `ints` is at least 1 and at most the length of an array.
            unsafe { matrix_copy(frame, (ints - 1) as u32) }
        });
        let verdict = if same(from, to, ints) { "ok" } else { "WRONG" };
        println!("matrix-copy: run={run} ints={ints} {measured} {verdict}");
    }
}

/// Returns whether the first `ints` integers of both arrays are equal.
fn same(from: &[AtomicU64], to: &[AtomicU64], ints: u64) -> bool {
    (0..ints as usize).all(|index| {
        let int = |array: &[AtomicU64]| (array[index / 2].load(Relaxed) >> (index % 2 * 32)) as u32;
        int(from) == int(to)
    })
}
