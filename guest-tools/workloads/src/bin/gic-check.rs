//! GIC check: takes random steps with the interrupt controller, and prints a checksum of their
//! results.
//!
//! The same image runs on a machine without Cloison, and must print the same there.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_benchmarks::random::Random;
use cloison_guest::mmio::{Device, GICC, GICD};
use cloison_guest::{arg, cpu, entry, println, timer};

entry!(main);

/// The interrupts: all SGIs, the virtual timer, and the UART's. Their priorities are all different.
const IDS: [u32; 18] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 27, 33];
const TIMER: u32 = 27;
const UART: u32 = 33;
/// No interrupt is pending.
const SPURIOUS: u32 = 1023;
/// RPR while no interrupt is active.
const IDLE: u32 = 0xff;
/// The vCPUs from which SGIs are made pending, although only the first one runs.
const SOURCES: u32 = 4;
const EOI_MODE: u32 = 1 << 9;
const ENABLE: u32 = 1;

// Registers of the distributor and of the CPU interface (IHI 0048B, 4.1).
const ISENABLER: u64 = 0x100;
const ICENABLER: u64 = 0x180;
const ISPENDR: u64 = 0x200;
const ICPENDR: u64 = 0x280;
const ISACTIVER: u64 = 0x300;
const ICACTIVER: u64 = 0x380;
const IPRIORITYR: u64 = 0x400;
const ITARGETSR: u64 = 0x800;
const SGIR: u64 = 0xf00;
const CPENDSGIR: u64 = 0xf10;
const SPENDSGIR: u64 = 0xf20;
const CTLR: u64 = 0x00;
const PMR: u64 = 0x04;
const BPR: u64 = 0x08;
const IAR: u64 = 0x0c;
const EOIR: u64 = 0x10;
const RPR: u64 = 0x14;
const HPPIR: u64 = 0x18;
const DIR: u64 = 0x1000;

/// Acknowledged interrupts whose priority is not dropped, and what is remembered besides.
struct Check {
    random: Random,
    sum: u64,
    deepest: u32,
    stack: [u32; 32],
    depth: usize,
    split: bool,
    /// Whether the timer's line is high.
    armed: bool,
    priorities: [u32; IDS.len()],
}

fn write(device: Device, offset: u64, value: u32) {
    device.write(offset, value);
    // A maintenance interrupt that follows is taken here, before the next access.
    cpu::synchronize();
}

/// Writes the bit of an interrupt to one of the registers that start at `offset`.
fn write_bit(offset: u64, id: u32) {
    write(GICD, offset + u64::from(id / 32) * 4, 1 << (id % 32));
}

impl Check {
    fn below(&mut self, bound: u32) -> u32 {
        self.random.below(u64::from(bound)) as u32
    }
    fn add(&mut self, value: u32) {
        self.sum = (self.sum ^ u64::from(value)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    fn control(&self) {
        write(
            GICC,
            CTLR,
            if self.split {
                EOI_MODE | ENABLE
            } else {
                ENABLE
            },
        );
    }

    /// Begins a life: nothing is pending or active, and every interrupt has another priority.
    fn begin(&mut self) {
        while self.depth > 0 {
            self.drop_priority();
        }
        timer::disarm();
        (self.armed, self.split) = (false, false);
        self.control();
        for offset in [ICPENDR, ICACTIVER] {
            write(GICD, offset, u32::MAX);
            write_bit(offset, UART);
        }
        for word in 0..4 {
            write(GICD, CPENDSGIR + word * 4, 0x0f0f_0f0f);
        }
        write(GICC, PMR, 0xf8);
        write(GICC, BPR, 2);
        for (index, id) in IDS.into_iter().enumerate() {
            self.priorities[index] = index as u32 * 8 + 0x10;
            GICD.write_byte(IPRIORITYR + u64::from(id), self.priorities[index] as u8);
            write_bit(ISENABLER, id);
        }
        // The timer's interrupt may have been taken before its line fell.
        while self.acknowledge() != SPURIOUS {
            self.drop_priority();
        }
    }
    fn acknowledge(&mut self) -> u32 {
        let seen = GICC.read(IAR);
        cpu::synchronize();
        if seen & SPURIOUS < 1020 {
            self.stack[self.depth % 32] = seen;
            self.depth += 1;
        }
        if seen == TIMER && self.armed {
            timer::disarm();
            self.armed = false;
        }
        seen
    }
    fn drop_priority(&mut self) {
        if self.depth > 0 {
            self.depth -= 1;
            write(GICC, EOIR, self.stack[self.depth % 32]);
        }
    }
    fn holds(&self, id: u32) -> bool {
        self.stack[..self.depth.min(32)]
            .iter()
            .any(|held| held & SPURIOUS == id)
    }

    fn step(&mut self) {
        let index = self.below(IDS.len() as u32) as usize;
        let id = IDS[index];
        match self.below(20) {
            0..=5 => {
                let seen = self.acknowledge();
                self.add(seen);
            }
            6..=8 => self.drop_priority(),
            9 | 10 if self.split => write(GICC, DIR, id),
            11..=13 if id < 16 && self.below(2) == 0 => write(GICD, SGIR, 2 << 24 | id),
            11..=13 if id < 16 => {
                let source = self.below(SOURCES);
                GICD.write_byte(SPENDSGIR + u64::from(id), 1 << source);
                cpu::synchronize();
            }
            11..=13 if id == UART => write_bit(ISPENDR, id),
            11..=13 => {
                let busy = (GICD.read(ISPENDR) | GICD.read(ISACTIVER)) >> TIMER & 1 == 1;
                if !busy {
                    self.armed = true;
                    timer::arm(0);
                }
            }
            14 if id < 16 => {
                let source = self.below(SOURCES);
                GICD.write_byte(CPENDSGIR + u64::from(id), 1 << source);
                cpu::synchronize();
            }
            14 if id == UART => write_bit(ICPENDR, id),
            15 if self.below(3) == 0 => write_bit(ICACTIVER, id),
            15 if self.below(2) == 0 && !self.holds(id) => write_bit(ISACTIVER, id),
            16 => write_bit(
                if self.below(4) == 0 {
                    ICENABLER
                } else {
                    ISENABLER
                },
                id,
            ),
            17 => {
                let other = self.below(IDS.len() as u32) as usize;
                self.priorities.swap(index, other);
                for index in [index, other] {
                    // One after the other: for a moment two are equal, but none is acknowledged
                    // then.
                    GICD.write_byte(
                        IPRIORITYR + u64::from(IDS[index]),
                        self.priorities[index] as u8,
                    );
                }
                cpu::synchronize();
            }
            // Not back to 0 while interrupts are dropped and not deactivated.
            18 if self.below(16) == 0
                && (!self.split || self.active().count_ones() as usize == self.depth) =>
            {
                self.split = !self.split;
                self.control();
            }
            18 if self.below(8) == 0 => {
                let mask = 0x40 + self.below(24) * 8;
                write(GICC, PMR, mask);
            }
            19 if GICC.read(RPR) == IDLE && self.active().count_ones() == 0 => {
                let point = 2 + self.below(6).saturating_sub(2);
                write(GICC, BPR, point);
            }
            _ => {}
        }
    }
    /// Returns the active SGIs and PPIs, and the UART's interrupt in bit 16.
    fn active(&self) -> u32 {
        GICD.read(ISACTIVER) | (GICD.read(ISACTIVER + 4) & 2) << 15
    }
    fn look(&mut self) {
        let active = self.active();
        self.deepest = self.deepest.max(active.count_ones());
        for value in [
            GICC.read(RPR),
            GICC.read(HPPIR),
            u32::from(cpu::is_interrupted()),
            active,
        ] {
            self.add(value);
        }
        self.add(GICD.read(ISPENDR));
        self.add(GICD.read(ISPENDR + 4) & 2);
        let word = self.below(4);
        self.add(GICD.read(SPENDSGIR + u64::from(word) * 4));
    }
}

fn main() {
    let (seed, lives, steps) = (arg(0, 1), arg(1, 1000), arg(2, 1000));
    let (stack, priorities) = ([0; 32], [0; IDS.len()]);
    let random = Random::new(seed);
    let mut check = Check {
        random,
        sum: 0,
        deepest: 0,
        stack,
        depth: 0,
        split: false,
        armed: false,
        priorities,
    };
    GICD.write(0, 1);
    // To this core: QEMU's SPIs have no target at reset.
    GICD.write_byte(ITARGETSR + u64::from(UART), 1);
    for life in 0..lives {
        check.begin();
        for _ in 0..steps {
            check.step();
            check.look();
        }
        if (life + 1) % (lives / 10).max(1) == 0 {
            println!(
                "gic-check: steps={} sum={:#018x} deepest={}",
                (life + 1) * steps,
                check.sum,
                check.deepest
            );
        }
    }
    println!(
        "gic-check: done steps={} sum={:#018x} deepest={}",
        lives * steps,
        check.sum,
        check.deepest
    );
}
