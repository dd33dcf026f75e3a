//! Assembly that guests at EL1 and the hello image at EL2 have in common, as macros: each returns the
//! text for a `global_asm!`.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![forbid(unsafe_code)]

/// Returns exception vectors: 16 of 128 bytes. Each saves all registers as a [`Frame`], passes it and
/// its number to the function `{handler}`, and returns to where that says.
///
/// The table has this name and is in section `.text.vectors`; the level is `"el1"` or `"el2"`.
#[macro_export]
macro_rules! vectors {
    ($name:literal, $level:literal) => {
        concat!(
            r#"
    .section .text.vectors, "ax"
    .balign 2048
    .global "#,
            $name,
            r#"
"#,
            $name,
            r#":
    .set    vector, 0
    .rept   16
    .balign 128
    sub     sp, sp, #288
    stp     x0, x1, [sp]
    stp     x2, x3, [sp, #16]
    mov     x1, #vector
    b       1f
    .set    vector, vector + 1
    .endr
    .balign 128
1:  stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x2, elr"#,
            "_",
            $level,
            r#"
    stp     x30, x2, [sp, #240]
    mrs     x2, spsr"#,
            "_",
            $level,
            r#"
    mrs     x3, esr"#,
            "_",
            $level,
            r#"
    stp     x2, x3, [sp, #256]
    mrs     x2, far"#,
            "_",
            $level,
            r#"
    str     x2, [sp, #272]
    mov     x0, sp
    bl      {handler}
    ldp     x30, x2, [sp, #240]
    msr     elr"#,
            "_",
            $level,
            r#", x2
    ldr     x2, [sp, #256]
    msr     spsr"#,
            "_",
            $level,
            r#", x2
    ldp     x28, x29, [sp, #224]
    ldp     x26, x27, [sp, #208]
    ldp     x24, x25, [sp, #192]
    ldp     x22, x23, [sp, #176]
    ldp     x20, x21, [sp, #160]
    ldp     x18, x19, [sp, #144]
    ldp     x16, x17, [sp, #128]
    ldp     x14, x15, [sp, #112]
    ldp     x12, x13, [sp, #96]
    ldp     x10, x11, [sp, #80]
    ldp     x8, x9, [sp, #64]
    ldp     x6, x7, [sp, #48]
    ldp     x4, x5, [sp, #32]
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp], #288
    eret
    "#
        )
    };
}

/// Registers at an exception, as stored by the vectors.
#[derive(Debug)]
#[repr(C)]
pub struct Frame {
    /// x0 to x30.
    pub x: [u64; 31],
    /// Where the exception was taken: ELR.
    pub elr: u64,
    /// The state before: SPSR.
    pub spsr: u64,
    /// Why: ESR.
    pub esr: u64,
    /// The address that an abort is about: FAR.
    pub far: u64,
}

/// Returns a routine that loads 8 bytes of each line of a buffer: its address in x0, the number of
/// lines in x1. 3 instructions a line, and one.
#[macro_export]
macro_rules! load_lines {
    ($name:literal) => {
        $crate::stream!($name, "    ldr     x2, [x0], #64\n")
    };
}

/// Returns a routine that stores 8 bytes to each line of a buffer, otherwise as [`load_lines`].
#[macro_export]
macro_rules! store_lines {
    ($name:literal) => {
        $crate::stream!($name, "    str     xzr, [x0], #64\n")
    };
}

/// Returns a routine that executes an instruction for each line of a buffer.
#[doc(hidden)]
#[macro_export]
macro_rules! stream {
    ($name:literal, $instruction:literal) => {
        concat!(
            "    .balign 64\n    .global ",
            $name,
            "\n",
            $name,
            ":\n",
            $instruction,
            "    subs    x1, x1, #1\n    b.ne    ",
            $name,
            "\n    ret\n\n",
        )
    };
}

/// Returns a routine that branches, as often as x0 says: 7 instructions a turn, and 3.
#[macro_export]
macro_rules! branches {
    ($name:literal) => {
        concat!(
            "    .balign 64\n    .global ",
            $name,
            "\n",
            $name,
            ":\n",
            r#"    mov     x9, x30
1:  b       2f
    nop
2:  tbz     x0, #63, 3f
    nop
3:  cbz     x0, 4f
4:  bl      5f
    subs    x0, x0, #1
    b.ne    1b
    mov     x30, x9
    ret
5:  ret

"#
        )
    };
}
