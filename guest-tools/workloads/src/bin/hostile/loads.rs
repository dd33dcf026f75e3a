//! Loads from emulated devices: every width and extension gives what the hardware's registers would
//! give.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::phase::Phase;
use cloison_guest::abi::map;
use cloison_guest::mmio::{GICD, UART};
use cloison_guest::{global_asm, probe};

/// A load instruction: its name, how many bytes it reads, whether it extends the sign, and the bits
/// of its register.
struct Load {
    name: &'static str,
    bytes: u32,
    signed: bool,
    register: u32,
}

const fn load(name: &'static str, bytes: u32, signed: bool, register: u32) -> Load {
    Load {
        name,
        bytes,
        signed,
        register,
    }
}

// Two instructions for each of `LOADS`, in its order. x1 is the address. What was in x0 before must
// not shine through.
global_asm!(
    r#"
    .section .text.loads, "ax"
    .balign 4
cloison_hostile_loads:
    .irp insn, "ldrb w0", "ldrsb w0", "ldrsb x0", "ldrh w0", "ldrsh w0", "ldrsh x0", "ldr w0", "ldrsw x0"
    \insn, [x1]
    ret
    .endr
    "#
);

unsafe extern "C" {
    static cloison_hostile_loads: [[u32; 2]; LOADS.len()];
}

const LOADS: [Load; 8] = [
    load("ldrb w", 1, false, 32),
    load("ldrsb w", 1, true, 32),
    load("ldrsb x", 1, true, 64),
    load("ldrh w", 2, false, 32),
    load("ldrsh w", 2, true, 32),
    load("ldrsh x", 2, true, 64),
    load("ldr w", 4, false, 32),
    load("ldrsw x", 4, true, 64),
];

impl Load {
    /// What the register holds after the load, by the bytes at its address (Arm ARM DDI 0487, C6.2:
    /// LDRB to LDRSW).
    fn expected(&self, bytes: u32) -> u64 {
        let unused = 32 - 8 * self.bytes;
        match (self.signed, self.register) {
            (false, _) => u64::from(bytes << unused >> unused),
            (true, 32) => u64::from(((bytes << unused) as i32 >> unused) as u32),
            (true, _) => i64::from((bytes << unused) as i32 >> unused) as u64,
        }
    }
}

/// Loads from every offset of every emulated device. The bytes are those of the device's words; of
/// the services page, which is accessed by double words only, a load of less gets zeros.
pub fn every_load() -> u64 {
    let mut phase = Phase::new("loads");
    // Registers with the upper bit of every width set.
    let before: [u32; 8] = core::array::from_fn(|word| GICD.read(0x400 + 4 * word as u64));
    (0..8).for_each(|word| GICD.write(0x400 + 4 * word, u32::MAX));
    let control = UART.read(0x30);
    UART.write(0x30, control | 0x8000);
    for (device, base, negatives) in [
        ("GICD", map::GICD, 5),
        ("UART", map::UART, 4),
        ("services", map::SERVICES, 0),
    ] {
        let mut negative = [0u32; LOADS.len()];
        for at in (base..base + 0x1000).step_by(4) {
            let word = if base == map::SERVICES {
                Ok(0)
            } else {
                // SAFETY: a device of this VM that nothing else uses now; no load changes what a
                // later one finds.
                unsafe { probe::access(probe::Op::LoadWord, at, 0) }
            };
            for lane in 0..4u32 {
                for (index, load) in LOADS
                    .iter()
                    .enumerate()
                    .filter(|(_, load)| lane.is_multiple_of(load.bytes))
                {
                    let code = (&raw const cloison_hostile_loads).addr() + 8 * index;
                    let (name, address) = (load.name, at + u64::from(lane));
                    // SAFETY: as above, by two instructions that change nothing but x0.
                    let found = unsafe { probe::jump(code as u64, u64::MAX, address) };
                    let expected = word.map(|word| load.expected(word as u32 >> (8 * lane)));
                    phase.must_hold(
                        matches!((found, expected), (Ok(found), Ok(expected)) if found == expected),
                        format_args!(
                            "{name} from {device} {:#x} gave {found:x?}, not {expected:x?}",
                            address - base
                        ),
                    );
                    negative[index] +=
                        u32::from(load.signed && found.is_ok_and(|value| value >> 31 & 1 == 1));
                }
            }
        }
        // Else nothing could have gone wrong. The UART has no register of 32 bits.
        let seen = negative.iter().filter(|&&count| count > 0).count();
        phase.must_hold(
            seen == negatives,
            format_args!("{device}: {seen} kinds of loads met a set sign bit"),
        );
    }
    (0..8).for_each(|word| GICD.write(0x400 + 4 * word, before[word as usize]));
    UART.write(0x30, control);
    phase.finish()
}
