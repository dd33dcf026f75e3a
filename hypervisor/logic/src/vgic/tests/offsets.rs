//! Every offset of the distributor with every width: what a read returns and what a write changes,
//! by the register map of Arm IHI 0048B.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::syndrome::Access;

/// The vCPU that accesses, of [`VCPUS`].
const VCPU: usize = 1;
const VCPUS: u32 = 2;
/// Size of the distributor's register map (4.1.2).
const SIZE: u32 = 0x1000;
/// Registers that differ between the distance of two offsets; Miri tries fewer.
const STEP: usize = if cfg!(miri) { 0x47 } else { 1 };
const WIDTHS: [Width; 4] = [Width::Byte, Width::Half, Width::Word, Width::Double];

/// The state that the register map shows after a reset and one write (4.3), for a VM with SGIs, two
/// PPIs and two SPIs, without any interrupt that is taken.
#[derive(Clone)]
struct Map {
    /// Groups of 32 interrupts: 8, or with [`FAR`] 32.
    groups: u32,
    enable: bool,
    enabled: [u32; 32],
    pending: [u32; 32],
    active: [u32; 32],
    priorities: [u8; 1024],
    targets: [u8; 1024],
    edges: [bool; 1024],
    /// Sources of each SGI that is pending (4.3.16).
    sources: [u8; 16],
}

/// Returns whether the VM has an interrupt.
pub(super) fn is_owned(groups: u32, irq: u32) -> bool {
    irq < 16 || irq < groups * 32 && [EMULATED_PPI, TIMER, UART, DISK, FAR].contains(&irq)
}

/// Returns those of a register's 32 interrupts that the VM has.
pub(super) fn owned(groups: u32, group: usize) -> u32 {
    (0..32)
        .filter(|bit| is_owned(groups, group as u32 * 32 + bit))
        .fold(0, |mask, bit| mask | 1 << bit)
}

impl Map {
    fn new(groups: u32) -> Self {
        let mut enabled = [0; 32];
        // Whether SGIs can be disabled is the implementation's choice (4.3.5): never, here.
        enabled[0] = 0xffff;
        let mut targets = [0; 1024];
        for irq in [UART, DISK, FAR] {
            targets[irq as usize] = u8::from(irq < groups * 32);
        }
        Self {
            groups,
            enable: false,
            enabled,
            pending: [0; 32],
            active: [0; 32],
            priorities: [0; 1024],
            targets,
            edges: [false; 1024],
            sources: [0; 16],
        }
    }

    /// Returns whether the registers at an offset are of interrupts beyond the last group, and
    /// reserved: there is one bit for each interrupt, one byte, or two bits.
    fn is_beyond(&self, offset: u32) -> bool {
        match offset {
            0x100..0x400 => (offset & 0x7f) / 4 >= self.groups,
            0x400..0xc00 => (offset & 0x3ff) / 32 >= self.groups,
            0xc00..0xd00 => (offset & 0xff) / 8 >= self.groups,
            _ => false,
        }
    }

    /// Returns a register, by the table of the register map.
    fn word(&self, offset: u32) -> u32 {
        if self.is_beyond(offset) {
            return 0;
        }
        let n = |first: u32| ((offset - first) / 4) as usize;
        let four = |bytes: &[u8], first: u32| {
            let at = (offset - first) as usize;
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        match offset {
            // GICD_CTLR, GICD_TYPER (4.3.2: groups of 32, two CPUs), GICD_IIDR (a GIC-400's).
            0x000 => self.enable.into(),
            0x004 => (self.groups - 1) | (VCPUS - 1) << 5,
            0x008 => 0x0200_143b,
            0x100..0x180 => self.enabled[n(0x100)],
            0x180..0x200 => self.enabled[n(0x180)],
            0x200..0x280 => self.pending_of(n(0x200)),
            0x280..0x300 => self.pending_of(n(0x280)),
            0x300..0x380 => self.active[n(0x300)],
            0x380..0x400 => self.active[n(0x380)],
            0x400..0x800 => four(&self.priorities, 0x400),
            // SGIs and PPIs target the CPU that reads (4.3.12).
            0x800..0x820 => 0x0101_0101 << VCPU,
            0x820..0xc00 => four(&self.targets, 0x800),
            // SGIs are edge-triggered, and the PPIs here are level-sensitive (4.3.13).
            0xc00 => 0xaaaa_aaaa,
            0xc08..0xd00 => (0..16).fold(0, |word, field| {
                let edge = self.edges[n(0xc00) * 16 + field];
                word | u32::from(edge) << (field * 2 + 1)
            }),
            0xf10..0xf20 => four(&self.sources, 0xf10),
            0xf20..0xf30 => four(&self.sources, 0xf20),
            // The identification registers of a GIC-400.
            0xfd0 => 0x04,
            0xfe0 => 0x90,
            0xfe4 => 0xb4,
            0xfe8 => 0x2b,
            0xff0 => 0x0d,
            0xff4 => 0xf0,
            0xff8 => 0x05,
            0xffc => 0xb1,
            // Reserved, secure only, or write-only: RAZ.
            _ => 0,
        }
    }

    fn pending_of(&self, group: usize) -> u32 {
        let sgis = (0..16)
            .filter(|&sgi| self.sources[sgi] != 0)
            .fold(0, |bits, sgi| bits | 1 << sgi);
        self.pending[group] | if group == 0 { sgis } else { 0 }
    }

    /// Writes the bytes of a register for which `lanes` is set.
    fn write(&mut self, offset: u32, lanes: u32, value: u32) {
        if self.is_beyond(offset) {
            return;
        }
        let groups = self.groups;
        let value = value & lanes;
        let n = |first: u32| ((offset - first) / 4) as usize;
        // Pending SGIs are set by other registers (4.3.7).
        let but_sgis = |group| owned(groups, group) & if group == 0 { !0xffff } else { !0 };
        match offset {
            0x000 if lanes & 1 == 1 => self.enable = value & 1 == 1,
            0x100..0x180 => self.enabled[n(0x100)] |= value & owned(groups, n(0x100)),
            0x180..0x200 => self.enabled[n(0x180)] &= !(value & but_sgis(n(0x180))),
            0x200..0x280 => self.pending[n(0x200)] |= value & but_sgis(n(0x200)),
            0x280..0x300 => self.pending[n(0x280)] &= !value,
            0x300..0x380 => self.active[n(0x300)] |= value & owned(groups, n(0x300)),
            0x380..0x400 => self.active[n(0x380)] &= !value,
            0x400..0x800 | 0x820..0xc00 | 0xf10..0xf30 => {
                for byte in (0..4).filter(|byte| lanes >> (byte * 8) & 0xff != 0) {
                    self.write_byte(offset + byte, (value >> (byte * 8)) as u8);
                }
            }
            0xc08..0xd00 => {
                for field in (0..16).filter(|field| lanes >> (field * 2 + 1) & 1 == 1) {
                    let irq = n(0xc00) * 16 + field;
                    if is_owned(groups, irq as u32) {
                        self.edges[irq] = value >> (field * 2 + 1) & 1 == 1;
                    }
                }
            }
            // GICD_SGIR (4.3.15): to a list, to the others, to the sender.
            0xf00 => {
                let to_self = match value >> 24 & 3 {
                    0 => value >> (16 + VCPU) & 1 == 1,
                    filter => filter == 2,
                };
                if to_self {
                    self.sources[(value & 0xf) as usize] |= 1 << VCPU;
                }
            }
            _ => {}
        }
    }

    fn write_byte(&mut self, offset: u32, value: u8) {
        let exist = (1_u8 << VCPUS) - 1;
        match offset {
            // Five bits of priority (4.3.11), also of foreign interrupts, for which it means nothing.
            0x400..0x800 => {
                self.priorities[(offset - 0x400) as usize] = value & 0xf8;
            }
            0x820..0xc00 if is_owned(self.groups, offset - 0x800) => {
                self.targets[(offset - 0x800) as usize] = value & exist;
            }
            0xf10..0xf20 => self.sources[(offset - 0xf10) as usize] &= !value,
            0xf20..0xf30 => self.sources[(offset - 0xf20) as usize] |= value & exist,
            _ => {}
        }
    }
}

/// Returns the bits of a register that an access covers. `None` for an access that is no part of
/// one register: those of 64 bits, those that are not aligned, and those beyond the map. Then the
/// guest takes an external abort.
fn lanes(offset: u32, width: Width) -> Option<u32> {
    let bytes = width.bytes() as u32;
    let fits = bytes <= 4 && offset.is_multiple_of(bytes) && offset < SIZE;
    fits.then(|| (u64::MAX >> (64 - bytes * 8)) as u32 * (1 << (offset % 4 * 8)))
}

/// Creates a VM with so many groups of interrupts.
fn machine(groups: u32) -> Machine {
    let others: &[u32] = if groups == 32 { &[FAR] } else { &[] };
    Machine::has(GicVersion::V2, VCPUS as u8, false, others)
}

/// Compares the whole map.
fn compare(machine: &Machine, map: &Map, what: core::fmt::Arguments) {
    for offset in (0..SIZE).step_by(4 * STEP) {
        let found = machine.read(VCPU, offset as u16);
        let expected = map.word(offset);
        assert_eq!(found, expected, "{offset:#05x} after {what}");
    }
}

#[test]
fn every_offset_is_read_with_every_width_and_sign() {
    [8, 32].into_iter().for_each(each_is_read);
}

fn each_is_read(groups: u32) {
    let machine = machine(groups);
    let mut map = Map::new(groups);
    for offset in (0..SIZE).step_by(4).filter(|&offset| offset != 0) {
        // Clearing registers would undo what others set; all ones to GICD_SGIR sends nothing.
        if ![3, 5, 7].contains(&(offset >> 7)) && !(0xf10..0xf20).contains(&offset) {
            machine.write(VCPU, offset as u16, u32::MAX);
            map.write(offset, u32::MAX, u32::MAX);
        }
    }
    compare(&machine, &map, format_args!("all ones"));
    let mut count = 0;
    for offset in (0..=u32::from(u16::MAX)).step_by(STEP) {
        for width in WIDTHS {
            let value = machine.read_as(VCPU, offset as u16, width);
            let expected = lanes(offset, width)
                .map(|lanes| (map.word(offset & !3) & lanes) >> (offset % 4 * 8));
            assert_eq!(value, expected, "{offset:#x}, {width:?}");
            let Some(value) = value else { continue };
            // As LDRB, LDRSB, LDRH, … extend it (C6.2, "LDRSB": SignExtend(data, regsize)).
            let signed = match width {
                Width::Byte => i64::from(value as i8),
                Width::Half => i64::from(value as i16),
                _ => i64::from(value as i32),
            };
            for (sign, wide) in [(false, false), (false, true), (true, false), (true, true)] {
                let loaded = Access::new(0, width, sign, wide).loaded(value.into());
                let expected = match (sign, wide) {
                    (false, _) => u64::from(value),
                    (true, true) => signed as u64,
                    (true, false) => u64::from(signed as u32),
                };
                assert_eq!(loaded, expected, "{offset:#x}, {width:?}, {sign}, {wide}");
                count += 1;
            }
        }
    }
    std::println!("{count} loads");
}

#[test]
fn every_offset_is_written_with_every_width() {
    [8, 32].into_iter().for_each(each_is_written);
}

fn each_is_written(groups: u32) {
    let mut count = 0;
    for offset in (0..=SIZE + 8).step_by(STEP) {
        for width in WIDTHS {
            // All bits, none, and each other one. In a word to GICD_SGIR: to the others, to the
            // list, to the sender.
            for value in [u32::MAX, 0, 0xaaaa_aaaa, 0x5555_5555] {
                let (machine, mut map) = (machine(groups), Map::new(groups));
                let done = machine.access(VCPU, offset as u16, width, value);
                let part_of_sgir = (0xf00..0xf04).contains(&offset) && width != Width::Word;
                let lanes = lanes(offset, width).filter(|_| !part_of_sgir);
                let what = format_args!("{value:#x} to {offset:#x}, {width:?}");
                assert_eq!(done.is_some(), lanes.is_some(), "{what}");
                if let Some(lanes) = lanes {
                    map.write(offset & !3, lanes, value << (offset % 4 * 8));
                }
                compare(&machine, &map, what);
                count += 1;
            }
        }
    }
    std::println!("{count} stores");
}
