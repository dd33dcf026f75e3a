//! The start and the end of a program, system calls, and text on its standard output.

use core::arch::{asm, global_asm};
use core::fmt;

// A program starts with its arguments on its stack: their number, then a pointer to each.
global_asm!(
    ".globl _start",
    "_start:",
    "mov x29, xzr",
    "mov x30, xzr",
    "ldr x0, [sp]",
    "bl cloison_main",
    "mov w8, #93", // exit
    "svc #0",
);

/// System calls of AArch64 (`include/uapi/asm-generic/unistd.h`).
mod call {
    pub const WRITE: u64 = 64;
    pub const EXIT: u64 = 93;
}

/// Makes a system call.
///
/// # Safety
/// The call, with these arguments, must not touch memory that the program uses otherwise.
pub(crate) unsafe fn system_call(number: u64, args: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel keeps all registers but x0; what the call does to memory is the caller's.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") args[0] => result,
            in("x1") args[1], in("x2") args[2], in("x3") args[3], in("x4") args[4], in("x5") args[5],
            options(nostack),
        );
    }
    result
}

/// The standard output.
pub struct Output;

impl fmt::Write for Output {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: write(2) reads these bytes and touches nothing.
        let written = unsafe { system_call(call::WRITE, [1, text.as_ptr() as u64, text.len() as u64, 0, 0, 0]) };
        if written == text.len() as i64 { Ok(()) } else { Err(fmt::Error) }
    }
}

/// Prints a line. A standard output that is gone is no concern of a program that ends anyway.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::process::Output, $($text)*);
    }};
}

/// Ends the program.
pub fn exit(status: u8) -> ! {
    loop {
        // SAFETY: exit(2) does not come back.
        unsafe { system_call(call::EXIT, [status.into(), 0, 0, 0, 0, 0]) };
    }
}

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    say!("{info}");
    exit(101)
}
