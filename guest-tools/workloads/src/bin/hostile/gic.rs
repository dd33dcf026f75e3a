//! The interrupt controller: registers of interrupts that this VM does not own, and waits that must
//! end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::phase::{Own, Phase};
use cloison_benchmarks::random::Random;
use cloison_guest::abi::irq;
use cloison_guest::mmio::{Device, GICC, GICD};
use cloison_guest::probe::{self, Op};
use cloison_guest::{asm, cpu, gic, timer};

const TYPER: u64 = 0x004;
const IPRIORITYR: u64 = 0x400;
const ITARGETSR: u64 = 0x800;
const SGIR: u64 = 0xf00;
const DISTRIBUTOR: u64 = 0x1000;
const INTERFACE: u64 = 0x2000;

/// Registers with a field per interrupt: name, offset, bits per interrupt.
const FIELDS: [(&str, u64, u64); 8] = [
    ("IGROUPR", 0x080, 1),
    ("ISENABLER", 0x100, 1),
    ("ISPENDR", 0x200, 1),
    ("ISACTIVER", 0x300, 1),
    ("ICENABLER", 0x180, 1),
    ("ICPENDR", 0x280, 1),
    ("ITARGETSR", ITARGETSR, 8),
    ("ICFGR", 0xc00, 2),
];

/// Reads and writes every offset of the distributor at every width, then checks the state of
/// foreign interrupts.
pub fn distributor(own: Own, random: &mut Random) -> u64 {
    let mut phase = Phase::new("gicd");
    every_offset(&mut phase, GICD, DISTRIBUTOR, random);

    // Interrupts that this VM does not have read as zero, whatever is written.
    for (name, base, bits) in FIELDS {
        let per_word = 32 / bits;
        for word in 32 / per_word..1020 / per_word {
            let first = word * per_word;
            let owned = u64::from(irq::UART);
            let mine = if (first..first + per_word).contains(&owned) {
                ((1u64 << bits) - 1) << ((owned - first) * bits)
            } else {
                0
            };
            let offset = base + word * 4;
            GICD.write(offset, !(mine as u32));
            let foreign = GICD.read(offset) & !(mine as u32);
            phase.must_hold(
                foreign == 0,
                format_args!("GICD_{name}{word} kept {foreign:#x}"),
            );
        }
    }
    // Of their priorities, it reads what it has written itself.
    for offset in (IPRIORITYR + 32..IPRIORITYR + 1020).step_by(4) {
        let value = random.bits() as u32;
        GICD.write(offset, value);
        let kept = GICD.read(offset);
        phase.must_hold(
            kept == value & 0xf8f8_f8f8 || kept == 0,
            format_args!("GICD at {offset:#x} kept {kept:#x} of {value:#x}"),
        );
    }
    // Targets and SGIs beyond the VM's own vCPUs.
    let others = !((1u32 << own.vcpus) - 1) & 0xff;
    GICD.write_byte(ITARGETSR + u64::from(irq::UART), 0xff);
    let kept = GICD.read(ITARGETSR + u64::from(irq::UART / 4 * 4)) >> (irq::UART % 4 * 8) & others;
    phase.must_hold(
        kept == 0,
        format_args!("GICD_ITARGETSR accepts foreign targets {kept:#x}"),
    );
    for value in 0..16 {
        GICD.write(SGIR, others << 16 | value);
        GICD.write(SGIR, 3 << 24 | others << 16 | value);
        phase.ignored += 2;
    }
    let vcpus = u64::from(GICD.read(TYPER) >> 5 & 7) + 1;
    phase.must_hold(
        vcpus == own.vcpus,
        format_args!("GICD_TYPER says {vcpus} vCPUs"),
    );
    restore();
    phase.finish()
}

/// Accesses every offset of the CPU interface, and makes invalid acknowledgements and ends.
pub fn interface(random: &mut Random) -> u64 {
    let mut phase = Phase::new("gicc");
    every_offset(&mut phase, GICC, INTERFACE, random);
    for _ in 0..256 {
        let offset = [0x00, 0x04, 0x08, 0x10, 0x1c, 0x20, 0x24, 0xd0, 0xe0, 0x1000]
            [random.below(10) as usize];
        GICC.write(offset, random.bits() as u32);
        GICC.read([0x0c, 0x14, 0x18, 0x20, 0x28, 0xfc][random.below(6) as usize]);
        phase.ignored += 2;
    }
    restore();
    phase.finish()
}

/// All interrupts stay masked: whatever this causes is never taken, and `restore` repairs it.
fn every_offset(phase: &mut Phase, device: Device, len: u64, random: &mut Random) {
    use Op::*;
    for offset in 0..len {
        let address = device.address(offset);
        for op in [
            LoadByte,
            LoadHalf,
            LoadWord,
            LoadDouble,
            LoadPair,
            StoreByte,
            StoreHalf,
            StoreWord,
            StoreDouble,
        ] {
            // Unaligned accesses to devices never leave the vCPU, so one of them is enough.
            if !offset.is_multiple_of(4) && !matches!(op, LoadByte | StoreByte) && offset > 4 {
                continue;
            }
            // SAFETY: a device of this VM that nothing else uses at this time; its state is
            // restored afterwards.
            phase.may_fail(unsafe { probe::access(op, address, random.bits()) });
        }
    }
}

/// Restores the VM's own interrupt controller to a working state.
fn restore() {
    GICD.write(0, 0);
    for word in 0..32 {
        GICD.write(0x180 + word * 4, u32::MAX);
        GICD.write(0x280 + word * 4, u32::MAX);
        GICD.write(0x380 + word * 4, u32::MAX);
    }
    for word in 0..4 {
        GICD.write(0xf10 + word * 4, u32::MAX);
    }
    for word in 0..4 {
        GICC.write(0xd0 + word * 4, 0);
        GICC.write(0xe0 + word * 4, 0);
    }
    GICC.write(0x08, 0);
    gic::init_distributor();
    gic::init_cpu();
    for _ in 0..64 {
        let Some(interrupt) = gic::acknowledge() else {
            break;
        };
        gic::end(interrupt);
    }
}

/// Executes WFI with the timer's interrupt masked, and WFE with only the event stream to end it:
/// both must return.
pub fn waits() -> u64 {
    let mut phase = Phase::new("wait");
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    for _ in 0..32 {
        let deadline = timer::now() + timer::micros(200);
        timer::arm(deadline);
        while timer::now() < deadline {
            cpu::wait_for_interrupt();
        }
        // The interrupt is pending by now, so this WFI must not sleep at all.
        let before = timer::now();
        cpu::wait_for_interrupt();
        let slept = timer::now() - before;
        phase.must_hold(
            slept < timer::frequency(),
            format_args!("WFI slept {slept} ticks over a pending interrupt"),
        );
        timer::disarm();
        // SAFETY: enables the event stream, so that the second WFE also ends on hardware, and
        // disables it again.
        unsafe {
            asm!("msr cntkctl_el1, {}", "isb", "sevl", "wfe", "wfe", "msr cntkctl_el1, xzr", in(reg) 1u64 << 2 | 7 << 4)
        };
        phase.ignored += 1;
    }
    gic::disable(irq::VTIMER);
    phase.finish()
}
