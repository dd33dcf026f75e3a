//! Mmio: accesses to emulated devices that the syndrome does not describe, compared with ordinary
//! ones.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use cloison_guest::abi::map;
use cloison_guest::exceptions::Fault;
use cloison_guest::{arg, args, asm, entry, println, probe, smp};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

entry!(main);

/// Registers before and after an instruction, as the assembly lays them out.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Registers {
    /// x2 and x3.
    data: [u64; 2],
    /// x1.
    base: u64,
    /// The exception that ended the stay at EL0.
    class: u64,
}

/// The instructions.
#[allow(unsafe_code)]
mod assembly {
    use super::{DOUBLES, FORMS, REFUSED};
    use cloison_guest::global_asm;

    // For each form, its instruction in three settings, 128 bytes apart: as the program runs; with
    // the MMU off; at EL0 with the MMU off. x0 is the address of `Registers`, x1 that of the
    // access. Memory is only accessed with the MMU on.
    global_asm!(
        r#"
    .section .text.forms, "ax"
    .arch_extension fp
    .arch_extension simd
    .macro  form insn:vararg
    .balign 128
    ldp     x2, x3, [x0]
    \insn
    stp     x2, x3, [x0]
    str     x1, [x0, #16]
    ret
    .balign 128
    ldp     x2, x3, [x0]
    mrs     x9, sctlr_el1
    bic     x10, x9, #1
    msr     sctlr_el1, x10
    isb
    \insn
    msr     sctlr_el1, x9
    isb
    stp     x2, x3, [x0]
    str     x1, [x0, #16]
    ret
    .balign 128
    ldp     x2, x3, [x0]
    mrs     x9, sctlr_el1
    bic     x10, x9, #1
    msr     sctlr_el1, x10
    mrs     x11, vbar_el1
    adr     x12, cloison_mmio_vectors
    msr     vbar_el1, x12
    mov     x12, #0x3c0
    msr     spsr_el1, x12
    adr     x12, 1f
    msr     elr_el1, x12
    isb
    eret
1:  \insn
    svc     #0
    .endm

    .balign 128
cloison_mmio_forms:
    form    ldrb w2, [x1], #1
    form    ldrb w2, [x1, #1]!
    form    ldrsb w2, [x1], #-1
    form    ldrsb x2, [x1, #2]!
    form    ldrh w2, [x1], #2
    form    ldrh w2, [x1, #-2]!
    form    ldrsh w2, [x1], #4
    form    ldrsh x2, [x1, #4]!
    form    ldr w2, [x1], #4
    form    ldr w2, [x1, #-4]!
    form    ldr w2, [x1], #-256
    form    ldrsw x2, [x1], #255
    form    ldrsw x2, [x1, #4]!
    form    ldp w2, w3, [x1]
    form    ldp w2, w3, [x1, #-4]
    form    ldp w1, w3, [x1]
    form    ldp w3, w1, [x1, #4]
    form    ldp w2, w3, [x1], #8
    form    ldp w2, w3, [x1, #-8]!
    form    ldpsw x2, x3, [x1], #-256
    form    strb w2, [x1], #1
    form    strb w2, [x1, #-1]!
    form    strh w2, [x1], #2
    form    strh w2, [x1, #2]!
    form    str w2, [x1], #4
    form    str w2, [x1, #4]!
    form    str wzr, [x1], #-4
    form    stp w2, w3, [x1]
    form    stp w2, w3, [x1, #-8]
    form    stp w3, w2, [x1], #252
    form    stp w2, wzr, [x1, #-8]!
cloison_mmio_doubles:
    form    ldr x2, [x1], #8
    form    ldr x2, [x1, #8]!
    form    ldp x2, x3, [x1]
    form    ldp x2, x3, [x1], #16
    form    ldp x2, x3, [x1, #-8]!

    .balign 128
cloison_mmio_refused:
    .irp    insn, "str q0, [x1]", "ldr q0, [x1]", "stp q0, q1, [x1]", "ldr d0, [x1], #8", "ldxr w2, [x1]"
    \insn
    ret
    .endr
    .irp    insn, "ldr x2, [x1]", "ldr x2, [x1], #8", "str x2, [x1]", "ldp x2, x3, [x1]", "stp x2, x3, [x1]"
    \insn
    ret
    .endr
    .inst   0xb8004421                  // str w1, [x1], #4
    ret
    .inst   0xb8404421                  // ldr w1, [x1], #4
    ret
    .inst   0x29400822                  // ldp w2, w2, [x1]
    ret

    .balign 2048
cloison_mmio_vectors:
    .balign 1024
    .fill   256, 4, 0xd4200000
    msr     sctlr_el1, x9
    msr     vbar_el1, x11
    isb
    mrs     x12, esr_el1
    lsr     x12, x12, #26
    stp     x2, x3, [x0]
    stp     x1, x12, [x0, #16]
    ret
    "#
    );

    unsafe extern "C" {
        pub static cloison_mmio_forms: [[[u32; 32]; 3]; FORMS.len()];
        pub static cloison_mmio_doubles: [[[u32; 32]; 3]; DOUBLES.len()];
        pub static cloison_mmio_refused: [[u32; 2]; REFUSED];
    }
}
use assembly::{cloison_mmio_doubles, cloison_mmio_forms, cloison_mmio_refused};

const REFUSED: usize = 13;

/// An instruction as ordinary accesses.
struct Form {
    name: &'static str,
    kind: Kind,
    bytes: u64,
    /// Added to the base for the address.
    offset: i64,
    /// Added to the base by write-back.
    change: i64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Load,
    /// Extends the sign to this many bits.
    LoadSigned(u32),
    /// Of x2, and then of x3, in pairs.
    LoadPair,
    LoadPairSigned,
    /// A pair of the base, which is the register at this place of the pair, and x3.
    LoadBase(usize),
    /// The register: 2, 3, or 31 for zero.
    Store(u8),
    StorePair(u8, u8),
}

const fn form(name: &'static str, kind: Kind, bytes: u64, offset: i64, change: i64) -> Form {
    Form {
        name,
        kind,
        bytes,
        offset,
        change,
    }
}

/// In the order of the assembly.
const FORMS: [Form; 31] = {
    use Kind::*;
    [
        form("ldrb post", Load, 1, 0, 1),
        form("ldrb pre", Load, 1, 1, 1),
        form("ldrsb w post", LoadSigned(32), 1, 0, -1),
        form("ldrsb x pre", LoadSigned(64), 1, 2, 2),
        form("ldrh post", Load, 2, 0, 2),
        form("ldrh pre", Load, 2, -2, -2),
        form("ldrsh w post", LoadSigned(32), 2, 0, 4),
        form("ldrsh x pre", LoadSigned(64), 2, 4, 4),
        form("ldr w post", Load, 4, 0, 4),
        form("ldr w pre", Load, 4, -4, -4),
        form("ldr w post far", Load, 4, 0, -256),
        form("ldrsw post far", LoadSigned(64), 4, 0, 255),
        form("ldrsw pre", LoadSigned(64), 4, 4, 4),
        form("ldp w", LoadPair, 4, 0, 0),
        form("ldp w offset", LoadPair, 4, -4, 0),
        form("ldp w to base", LoadBase(0), 4, 0, 0),
        form("ldp w to base offset", LoadBase(1), 4, 4, 0),
        form("ldp w post", LoadPair, 4, 0, 8),
        form("ldp w pre", LoadPair, 4, -8, -8),
        form("ldpsw post", LoadPairSigned, 4, 0, -256),
        form("strb post", Store(2), 1, 0, 1),
        form("strb pre", Store(2), 1, -1, -1),
        form("strh post", Store(2), 2, 0, 2),
        form("strh pre", Store(2), 2, 2, 2),
        form("str w post", Store(2), 4, 0, 4),
        form("str w pre", Store(2), 4, 4, 4),
        form("str wzr post", Store(31), 4, 0, -4),
        form("stp w", StorePair(2, 3), 4, 0, 0),
        form("stp w offset", StorePair(2, 3), 4, -8, 0),
        form("stp w post", StorePair(3, 2), 4, 0, 252),
        form("stp w pre", StorePair(2, 31), 4, -8, -8),
    ]
};

/// Those of 64 bits, for the services page.
const DOUBLES: [Form; 5] = {
    use Kind::*;
    [
        form("ldr x post", Load, 8, 0, 8),
        form("ldr x pre", Load, 8, 8, 8),
        form("ldp x", LoadPair, 8, 0, 0),
        form("ldp x post", LoadPair, 8, 0, 16),
        form("ldp x pre", LoadPair, 8, -8, -8),
    ]
};

/// Loads by an instruction that the syndrome describes.
#[allow(unsafe_code)]
fn load(address: u64, bytes: u64) -> u64 {
    let op = [
        probe::Op::LoadByte,
        probe::Op::LoadHalf,
        probe::Op::LoadWord,
        probe::Op::LoadDouble,
    ];
    // SAFETY: a device of this VM; reading what is compared here has no side effect.
    let loaded = unsafe { probe::access(op[bytes.trailing_zeros() as usize], address, 0) };
    loaded.unwrap_or_else(|fault| panic!("{bytes} bytes at {address:#x}: {fault}"))
}

/// Stores by an instruction that the syndrome describes.
#[allow(unsafe_code)]
fn store(address: u64, bytes: u64, value: u64) {
    let op = [
        probe::Op::StoreByte,
        probe::Op::StoreHalf,
        probe::Op::StoreWord,
    ];
    // SAFETY: a device of this VM whose registers nothing else uses.
    let stored = unsafe { probe::access(op[bytes.trailing_zeros() as usize], address, value) };
    stored.unwrap_or_else(|fault| panic!("{bytes} bytes at {address:#x}: {fault}"));
}

impl Form {
    /// Does what the instruction does, by ordinary accesses.
    fn expected(&self, before: Registers) -> Registers {
        let mut after = Registers {
            base: before.base.wrapping_add_signed(self.change),
            ..before
        };
        let first = before.base.wrapping_add_signed(self.offset);
        let second = first + self.bytes;
        let extend = |value: u64, bits: u32| {
            let unused = 64 - 8 * self.bytes as u32;
            ((value << unused) as i64 >> unused) as u64 & u64::MAX >> (64 - bits)
        };
        let stored = |register: u8| {
            if register == 31 {
                0
            } else {
                before.data[usize::from(register - 2)]
            }
        };
        match self.kind {
            Kind::Load => after.data[0] = load(first, self.bytes),
            Kind::LoadSigned(bits) => after.data[0] = extend(load(first, self.bytes), bits),
            Kind::LoadPair => after.data = [first, second].map(|address| load(address, self.bytes)),
            Kind::LoadPairSigned => {
                after.data = [first, second].map(|address| extend(load(address, self.bytes), 64));
            }
            Kind::LoadBase(place) => {
                let loaded = [first, second].map(|address| load(address, self.bytes));
                after.base = loaded[place];
                after.data[1] = loaded[1 - place];
            }
            Kind::Store(register) => store(first, self.bytes, stored(register)),
            Kind::StorePair(low, high) => {
                store(first, self.bytes, stored(low));
                store(second, self.bytes, stored(high));
            }
        }
        after
    }

    fn stores(&self) -> bool {
        matches!(self.kind, Kind::Store(_) | Kind::StorePair(..))
    }
}

/// Executes code that is given registers. Returns them afterwards, or the fault.
#[allow(unsafe_code)]
fn execute(code: *const u32, mut registers: Registers) -> Result<Registers, Fault> {
    let at = (&raw mut registers).expose_provenance() as u64;
    // SAFETY: the code accesses a device of this VM and `registers`, and changes nothing else that
    // it does not restore.
    unsafe { probe::jump(code.addr() as u64, at, registers.base) }.map(|_| registers)
}

/// Registers whose bytes all survive as priorities, and have both signs.
const DATA: [u64; 2] = [0x8890_98a0_28b0_b8c0, 0x48d0_d8e0_e8f0_7808];

/// Compares forms at a place of a device with ordinary accesses, in each setting. Returns the
/// numbers of those that were compared, and of those that differ.
fn compare(
    device: &str,
    forms: &[Form],
    code: *const [[u32; 32]; 3],
    base: u64,
    words: core::ops::Range<u64>,
) -> [u64; 2] {
    let (mut compared, mut wrong) = (0, 0);
    let reset = || {
        words
            .clone()
            .step_by(4)
            .for_each(|address| store(address, 4, 0x1810_f880))
    };
    let shown = || -> [u64; 6] {
        let mut shown = [0; 6];
        words
            .clone()
            .step_by(4)
            .zip(&mut shown)
            .for_each(|(address, shown)| *shown = load(address, 4));
        shown
    };
    for (index, form) in forms.iter().enumerate() {
        for setting in 0..3 {
            let before = Registers {
                data: DATA,
                base,
                class: 0,
            };
            reset();
            let (mut expected, devices) = (form.expected(before), shown());
            expected.class = if setting == 2 { 0x15 } else { 0 };
            reset();
            let found = execute(
                code.wrapping_add(index)
                    .cast::<u32>()
                    .wrapping_add(32 * setting),
                before,
            );
            let found_devices = shown();
            compared += 1;
            if found != Ok(expected) || found_devices != devices {
                wrong += 1;
                println!(
                    "mmio: {} in setting {setting} on {device}: {found:x?}, not {expected:x?}",
                    form.name
                );
                println!("mmio: it left {found_devices:x?}, not {devices:x?}");
            }
        }
    }
    [compared, wrong]
}

/// Executes an instruction that is refused, `times` times. Returns how often it was not, with the
/// right syndrome.
fn refuse(index: usize, address: u64, times: u64) -> u64 {
    let code = (&raw const cloison_mmio_refused)
        .cast::<u32>()
        .wrapping_add(2 * index);
    let is_store = matches!(index, 0 | 2 | 7 | 9 | 10);
    let fault = Fault {
        esr: if is_store { 0x9600_0050 } else { 0x9600_0010 },
        far: address,
    };
    let mut wrong = 0;
    for _ in 0..times {
        let found = refused(code, address);
        if found != Err(fault) {
            wrong += 1;
        }
    }
    if wrong > 0 {
        println!(
            "mmio: refused form {index}: {wrong} of {times} differ, the last one {:x?}",
            refused(code, address)
        );
    }
    wrong
}

#[allow(unsafe_code)]
fn refused(code: *const u32, address: u64) -> Result<u64, Fault> {
    // SAFETY: one access to a device of this VM, and a return.
    unsafe { probe::jump(code.addr() as u64, 0, address) }
}

/// An instruction that the other vCPU keeps changing.
static CODE: [AtomicU32; 2] = [AtomicU32::new(STRB_BY_1), AtomicU32::new(RET)];
const STRB_BY_1: u32 = 0x3800_1422;
const STRB_BY_2: u32 = 0x3800_2422;
const LDRB_BY_4: u32 = 0x3840_4422;
const STR_Q: u32 = 0x3d80_0020;
const RET: u32 = 0xd65f_03c0;
const CHANGING: [u32; 4] = [STRB_BY_1, STRB_BY_2, LDRB_BY_4, STR_Q];

#[allow(unsafe_code)]
fn change() {
    loop {
        for word in CHANGING {
            CODE[0].store(word, Relaxed);
            // SAFETY: makes the word visible to fetches of all vCPUs.
            unsafe {
                asm!("dc cvau, {0}", "dsb ish", "ic ivau, {0}", "dsb ish", "isb", in(reg) CODE.as_ptr())
            };
            // An emulator translates the code again after each change.
            (0..5_000).for_each(|_| core::hint::spin_loop());
        }
    }
}

/// Where the changing instruction accesses the distributor. The widest version needs 16 bytes: a
/// device takes no other alignment (Arm ARM, "Alignment of data accesses").
const RACED: u64 = map::GICD + 0x410;

/// Executes an instruction that changes all the time. Returns how often it was carried out, was
/// refused, and did what none of its versions does.
#[allow(unsafe_code)]
fn race(times: u64) -> [u64; 3] {
    let [mut done, mut refused, mut wrong] = [0; 3];
    for _ in 0..times {
        store(RACED, 4, 0);
        // SAFETY: the instruction accesses the distributor and changes x1 and x2, which nothing
        // uses afterwards.
        let found = unsafe { probe::jump((&raw const CODE).addr() as u64, 0, RACED) };
        // A byte at most is stored, and none if the access was refused.
        match (found, load(RACED, 4)) {
            (Ok(_), 0..0x100) => done += 1,
            (Err(fault), 0) if fault.is_external_abort() && fault.far == RACED => refused += 1,
            _ => wrong += 1,
        }
    }
    [done, refused, wrong]
}

/// A place among the priorities of SGIs, with eight bytes before it and after it.
const BASE: u64 = map::GICD + 0x408;

#[allow(unsafe_code)]
fn main() {
    let times = arg(0, 10_000);
    // SAFETY: lets this vCPU use SIMD registers, which the program does not.
    unsafe { asm!("msr cpacr_el1, {}", "isb", in(reg) 3u64 << 20) };
    if args()[1] != 0 {
        refuse(0, map::GICD + 0x400, 1);
    }
    let forms = (&raw const cloison_mmio_forms).cast();
    let none = map::GICD + 0x400..map::GICD + 0x400;
    let mut total = [0; 2];
    for [compared, wrong] in [
        compare(
            "GICD",
            &FORMS,
            forms,
            BASE,
            map::GICD + 0x400..map::GICD + 0x418,
        ),
        // The UART's identification, which no store changes, and its baud rate, with words alone.
        compare("UART", &FORMS, forms, map::UART + 0xfe8, none.clone()),
        compare(
            "UART",
            &FORMS[22..25],
            forms.wrapping_add(22),
            map::UART + 0x28,
            map::UART + 0x24..map::UART + 0x30,
        ),
        compare(
            "UART",
            &FORMS[25..],
            forms.wrapping_add(25),
            map::UART + 0x2c,
            map::UART + 0x24..map::UART + 0x34,
        ),
        compare(
            "services",
            &DOUBLES,
            (&raw const cloison_mmio_doubles).cast(),
            map::SERVICES + 8,
            none,
        ),
    ] {
        total = [total[0] + compared, total[1] + wrong];
    }
    println!(
        "mmio: compared={} wrong={} stores={}",
        total[0],
        total[1],
        FORMS.iter().filter(|form| form.stores()).count()
    );

    let mut wrong = 0;
    for index in 0..REFUSED {
        wrong += refuse(
            index,
            map::GICD + 0x400,
            if index == 0 { times } else { 16 },
        );
    }
    // A pair that leaves its page.
    wrong += refuse(8, map::SERVICES + 0xff8, 16);
    println!(
        "mmio: refused={} wrong={wrong}",
        times + 16 * REFUSED as u64
    );

    if smp::start(1, change).is_ok() {
        let [done, refused, wrong] = race(times / 10);
        println!(
            "mmio: raced={} done={done} refused={refused} wrong={wrong}",
            done + refused
        );
    }
    println!("mmio: done");
}
