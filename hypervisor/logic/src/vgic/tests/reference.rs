//! Random guests on the emulated distributor, a fake of GICV and a reference: a GICv2 without list
//! registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

/// Steps of the random guests. `CLOISON_GIC_STEPS` sets another number.
const DEFAULT_STEPS: u32 = if cfg!(miri) { 60 } else { 200_000 };
/// The interrupts that guests use.
const IDS: [u32; 20] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    15,
    EMULATED_PPI,
    TIMER,
    UART,
    DISK,
];
const SPURIOUS: u32 = 1023;
const IDLE: u32 = 0xff;

/// GICC_CTLR.EOImode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EoiMode {
    Together,
    Split,
}

/// A GICv2 as the architecture describes it, with one state per interrupt. It has no list
/// registers. `vcpu` counts only for SGIs and PPIs: the SPIs have one target.
#[derive(Clone, Debug)]
struct Reference {
    /// SGIs: the sources. Others: bit 0 is the latch that ISPENDR sets.
    pending: [u8; 64],
    line: u64,
    active: u64,
    enabled: u64,
    priority: [u8; 64],
    active_priorities: u32,
}

impl Reference {
    const fn new() -> Self {
        let (pending, priority) = ([0; 64], [0; 64]);
        Self {
            pending,
            line: 0,
            active: 0,
            enabled: 0xffff,
            priority,
            active_priorities: 0,
        }
    }

    fn is_pending(&self, id: u32) -> bool {
        self.pending[id as usize] != 0 || self.line >> id & 1 == 1
    }

    /// Returns the interrupt that HPPIR shows.
    fn highest(&self, mask: u32) -> Option<u32> {
        let ready = |id: &u32| {
            self.enabled >> id & 1 == 1 && self.active >> id & 1 == 0 && self.is_pending(*id)
        };
        let best = IDS
            .into_iter()
            .filter(ready)
            .min_by_key(|&id| (self.priority[id as usize], id))?;
        (u32::from(self.priority[best as usize]) < mask).then_some(best)
    }

    fn running(&self) -> u32 {
        if self.active_priorities == 0 {
            IDLE
        } else {
            self.active_priorities.trailing_zeros() << 3
        }
    }

    fn acknowledge(&mut self, mask: u32, binary_point: u32) -> u32 {
        let Some(id) = self
            .highest(mask)
            .filter(|&id| u32::from(self.priority[id as usize]) < self.running())
        else {
            return SPURIOUS;
        };
        let level = u32::from(self.priority[id as usize]) >> 3 & !0 << binary_point;
        self.active_priorities |= 1 << level;
        self.active |= 1 << id;
        let sources = &mut self.pending[id as usize];
        let source = sources.trailing_zeros() & 7;
        *sources &= sources.wrapping_sub(1);
        if id < 16 { id | source << 10 } else { id }
    }

    fn end(&mut self, id: u32, mode: EoiMode) {
        self.active_priorities &= self.active_priorities.wrapping_sub(1);
        if mode == EoiMode::Together {
            self.active &= !(1 << id);
        }
    }

    fn bits(&self, group: u32, state: impl Fn(u32) -> bool) -> u32 {
        IDS.into_iter()
            .filter(|&id| id / 32 == group && state(id))
            .fold(0, |bits, id| bits | 1 << (id % 32))
    }
}

/// A vCPU of the machine under test, the reference's, and what both guests remember.
struct Guest<'a> {
    machine: &'a Machine,
    vcpu: usize,
    reference: Reference,
    mode: EoiMode,
    /// GICV_PMR.
    mask: u32,
    /// What was acknowledged and not dropped.
    stack: Vec<u32>,
    /// Whether the timer's interrupt is active in the physical GIC, by the machine's own account.
    timer_fired: bool,
}

impl<'a> Guest<'a> {
    fn new(machine: &'a Machine, vcpu: usize) -> Self {
        Self {
            machine,
            vcpu,
            reference: Reference::new(),
            mode: EoiMode::Together,
            mask: 0xf8,
            stack: Vec::new(),
            timer_fired: false,
        }
    }

    fn core(&self) -> &'a Core {
        &self.machine.cores[self.vcpu]
    }

    fn write(&self, offset: u16, value: u32) {
        self.machine.write(self.vcpu, offset, value);
    }

    /// Writes the bit of an interrupt to one of the registers that start at `offset`.
    fn write_bit(&self, offset: u16, id: u32) {
        self.write(offset + id as u16 / 32 * 4, 1 << (id % 32));
    }

    /// Returns the list register that GICV_HPPIR shows. Among equal priorities the lowest ID is
    /// taken, like a GIC-400.
    fn highest(&self) -> Option<&'a Cell<u32>> {
        let pending = |lr: &&Cell<u32>| lr.get() & (LR_PENDING | LR_ACTIVE) == LR_PENDING;
        let best = self
            .core()
            .lr
            .iter()
            .filter(pending)
            .min_by_key(|lr| (lr.get() >> 23 & 0x1f, lr.get() & LR_ID))?;
        ((best.get() >> 23 & 0x1f) << 3 < self.mask).then_some(best)
    }

    fn running(&self) -> u32 {
        let active = self.core().active_priorities.get();
        if active == 0 {
            IDLE
        } else {
            active.trailing_zeros() << 3
        }
    }

    /// Reads GICV_IAR.
    fn acknowledge(&self) -> u32 {
        let Some(lr) = self
            .highest()
            .filter(|lr| (lr.get() >> 23 & 0x1f) << 3 < self.running())
        else {
            return SPURIOUS;
        };
        let (value, priorities) = (lr.get(), &self.core().active_priorities);
        priorities.set(
            priorities.get() | 1 << (value >> 23 & 0x1f & !0 << self.core().binary_point.get()),
        );
        lr.set(value ^ LR_PENDING | LR_ACTIVE);
        self.machine.maintain(self.vcpu);
        let id = value & LR_ID;
        if id < 16 { value & 0x1fff } else { id }
    }

    /// Writes GICV_EOIR.
    fn end(&self, id: u32) {
        let core = self.core();
        let before = core.active_priorities.get();
        core.active_priorities.set(before & before.wrapping_sub(1));
        if self.mode == EoiMode::Together {
            match core
                .lr
                .iter()
                .find(|lr| lr.get() & LR_ACTIVE != 0 && lr.get() & LR_ID == id)
            {
                Some(lr) => {
                    lr.set(lr.get() & !LR_ACTIVE);
                    if lr.get() & LR_HW != 0 {
                        self.machine
                            .asked
                            .borrow_mut()
                            .push(Asked::Deactivate(lr.get() >> 10 & 0x3ff));
                    }
                }
                None if before != 0 => core.ended.set(core.ended.get() + 1),
                None => {}
            }
        }
        self.machine.maintain(self.vcpu);
    }

    /// Lets the timer fire, unless its interrupt is active in the physical GIC.
    fn fire(&mut self) {
        let deactivated = self
            .machine
            .asked
            .borrow_mut()
            .drain(..)
            .any(|asked| asked == Asked::Deactivate(TIMER));
        self.timer_fired &= !deactivated;
        let reference = &self.reference;
        let busy = reference.is_pending(TIMER) || reference.active >> TIMER & 1 == 1;
        if !self.timer_fired && !busy && reference.enabled >> TIMER & 1 == 1 {
            self.timer_fired = true;
            self.machine.timer(self.vcpu);
            self.reference.pending[TIMER as usize] = 1;
        }
    }

    /// Enables or disables an interrupt in both.
    fn enable(&mut self, id: u32, on: bool) {
        self.write_bit(if on { 0x100 } else { 0x180 }, id);
        if id < 16 {
            return;
        }
        let bit = 1u64 << id;
        self.reference.enabled = if on {
            self.reference.enabled | bit
        } else {
            self.reference.enabled & !bit
        };
    }

    /// Does a random step with both.
    fn step(&mut self, random: &mut Random, spis: bool) {
        let count = if spis { IDS.len() } else { IDS.len() - 2 };
        let id = IDS[random.below(count as u32) as usize];
        let bit = 1u64 << id;
        match random.below(20) {
            0..=5 => {
                let seen = self.acknowledge();
                let binary_point = self.core().binary_point.get();
                assert_eq!(
                    seen,
                    self.reference.acknowledge(self.mask, binary_point),
                    "IAR"
                );
                if seen != SPURIOUS {
                    self.stack.push(seen & LR_ID);
                }
            }
            6..=8 => {
                if let Some(id) = self.stack.pop() {
                    self.end(id);
                    self.reference.end(id, self.mode);
                }
            }
            // A trapped write to DIR.
            9..=10 if self.mode == EoiMode::Split => {
                self.write_bit(0x380, id);
                self.reference.active &= !bit;
            }
            9..=10 => {}
            11..=13 if id < 16 => {
                let source = random.below(self.machine.cores.len() as u32);
                self.machine.send(source as usize, self.vcpu, id);
                // A GICv3 does not tell the source, and counts none.
                self.reference.pending[id as usize] |= match self.machine.version {
                    GicVersion::V2 => 1 << source,
                    GicVersion::V3 => 1,
                };
            }
            11..=13 if id != TIMER => {
                self.write_bit(0x200, id);
                self.reference.pending[id as usize] = 1;
            }
            11..=13 => self.fire(),
            14 if id >= 16 && id != TIMER => {
                self.write_bit(0x280, id);
                self.reference.pending[id as usize] = 0;
            }
            14 if id < 16 => {
                let source = random.below(self.machine.cores.len() as u32);
                self.write(0xf10 + (id as u16 & !3), 1 << (source % 8 + id % 4 * 8));
                self.reference.pending[id as usize] &= match self.machine.version {
                    GicVersion::V2 => !(1 << source),
                    GicVersion::V3 => 0,
                };
            }
            15 if random.below(3) == 0 => {
                self.write_bit(0x380, id);
                self.reference.active &= !bit;
            }
            // Not one that it has yet to drop: an end would not say which one it means.
            15 if random.below(2) == 0 && !self.stack.contains(&id) => {
                self.write_bit(0x300, id);
                self.reference.active |= bit;
            }
            16 => {
                let on = random.below(4) != 0;
                self.enable(id, on);
            }
            17 => {
                let priority = random.below(32) << 3;
                self.machine
                    .access(self.vcpu, 0x400 + id as u16, Width::Byte, priority)
                    .unwrap();
                self.reference.priority[id as usize] = priority as u8;
            }
            18 if id == UART => {
                let high = random.below(2) == 0;
                self.machine.uart(high);
                self.reference.line = self.reference.line & !bit | if high { bit } else { 0 };
            }
            // Not back while interrupts are dropped and not deactivated: see `Aside::running`.
            18 if random.below(16) == 0
                && (self.mode == EoiMode::Together
                    || self.reference.active.count_ones() as usize == self.stack.len()) =>
            {
                self.mode = if self.mode == EoiMode::Split {
                    EoiMode::Together
                } else {
                    EoiMode::Split
                };
            }
            18 if random.below(8) == 0 => self.mask = 0x80 + random.below(16) * 8,
            // The level of a priority that is put aside is computed with the binary point of that
            // time.
            19 if self.reference.active == 0 && self.reference.active_priorities == 0 => {
                self.core()
                    .binary_point
                    .set(random.below(6).saturating_sub(2));
            }
            _ => {}
        }
    }

    /// Compares all that a guest can see.
    fn compare(&self, spis: bool) {
        let reference = &self.reference;
        assert_eq!(self.running(), reference.running(), "RPR");
        assert_eq!(
            self.highest().map(|lr| lr.get() & LR_ID),
            reference.highest(self.mask),
            "HPPIR"
        );
        for group in 0..if spis { 2 } else { 1 } {
            let active = reference.bits(group, |id| reference.active >> id & 1 == 1);
            let pending = reference.bits(group, |id| reference.is_pending(id));
            assert_eq!(
                self.machine.read(self.vcpu, 0x300 + group as u16 * 4),
                active,
                "ISACTIVER{group}"
            );
            assert_eq!(
                self.machine.read(self.vcpu, 0x200 + group as u16 * 4),
                pending,
                "ISPENDR{group}"
            );
        }
        // A GICv3 has no SPENDSGIR; ISPENDR0, above, has them.
        let words = if self.machine.version == GicVersion::V2 {
            4
        } else {
            0
        };
        for sgis in 0..words {
            let sources = u32::from_le_bytes(core::array::from_fn(|sgi| {
                reference.pending[sgis * 4 + sgi]
            }));
            assert_eq!(
                self.machine.read(self.vcpu, 0xf20 + sgis as u16 * 4),
                sources,
                "SPENDSGIR{sgis}"
            );
        }
    }
}

/// A generator of numbers that repeat (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(bound)) >> 32) as u32
    }
}

/// Runs `steps` random steps with both, in lives of at least 250 steps of each vCPU. Returns the most
/// interrupts that were active at once.
fn run(version: GicVersion, vcpus: u8, mediated_timer: bool, steps: u32, seed: u64) -> u32 {
    let mut random = Random(seed);
    let mut deepest = 0;
    let each = 1000 * u32::from(vcpus.div_ceil(4));
    for life in 0..steps.div_ceil(each) {
        let machine = Machine::of(version, vcpus, mediated_timer);
        machine.write(0, 0x000, 1);
        let mut guests: Vec<_> = (0..usize::from(vcpus))
            .map(|vcpu| Guest::new(&machine, vcpu))
            .collect();
        for step in 0..steps.min(each) {
            let vcpu = random.below(u32::from(vcpus)) as usize;
            let guest = &mut guests[vcpu];
            let before = random.0;
            let stepped = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| {
                // The SPIs' target is vCPU 0.
                guest.step(&mut random, vcpu == 0);
                guest.compare(vcpu == 0);
            }));
            if let Err(panic) = stepped {
                std::eprintln!(
                    "life {life}, step {step}, vCPU {vcpu}, seed {before:#x}, mediated \
                     {mediated_timer}, {version:?}"
                );
                std::panic::resume_unwind(panic);
            }
            deepest = deepest.max(guest.reference.active.count_ones());
        }
    }
    deepest
}

#[test]
fn active_interrupts_are_those_of_a_gic_without_list_registers() {
    let steps = std::env::var("CLOISON_GIC_STEPS").map_or(DEFAULT_STEPS, |steps| {
        steps.parse().expect("a number of steps")
    });
    use GicVersion::{V2, V3};
    for (version, vcpus, mediated_timer) in [
        (V2, 1, false),
        (V2, 1, true),
        (V2, 2, true),
        (V2, 4, false),
        (V3, 1, true),
        (V3, 4, false),
        (V3, 16, true),
    ] {
        let deepest = run(
            version,
            vcpus,
            mediated_timer,
            steps / 4,
            0x9e37_79b9_7f4a_7c15 + u64::from(vcpus),
        );
        assert!(
            cfg!(miri) || deepest > 2 * LIST_REGISTERS as u32,
            "not nested: {deepest}"
        );
    }
}

#[test]
fn more_levels_than_list_registers_preempt_each_other_and_end_in_reverse() {
    let machine = Machine::with(1, false);
    machine.write(0, 0x000, 1);
    let mut guest = Guest::new(&machine, 0);
    for id in 0..16 {
        machine
            .access(0, 0x400 + id, Width::Byte, 0xf0 - u32::from(id) * 8)
            .unwrap();
    }
    for id in 0..16 {
        machine.write(0, 0xf00, 2 << 24 | id);
        assert_eq!(guest.acknowledge(), id);
        assert_eq!(guest.running(), 0xf0 - id * 8);
    }
    // The timer is as urgent as it gets.
    machine.write(0, 0x100, 1 << TIMER);
    guest.fire();
    assert!(!machine.timer(0));
    assert_eq!(guest.acknowledge(), TIMER);
    assert_eq!(machine.read(0, 0x300), SGIS | 1 << TIMER);
    guest.end(TIMER);
    for id in (0..16).rev() {
        guest.end(id);
        assert_eq!(machine.read(0, 0x300) & SGIS, (1 << id) - 1);
    }
    assert_eq!(machine.cores[0].watched.get(), (false, false));
}

#[test]
fn a_free_list_register_is_for_the_most_urgent_that_waits() {
    let machine = Machine::with(1, false);
    machine.write(0, 0x000, 1);
    let guest = Guest::new(&machine, 0);
    let send = |sgi: u32| machine.write(0, 0xf00, 2 << 24 | sgi);
    for sgi in 0..16 {
        machine
            .access(0, 0x400 + sgi, Width::Byte, u32::from(sgi) * 8)
            .unwrap();
    }
    let first = LIST_REGISTERS as u32 + 1;
    (0..first).for_each(send);
    assert_eq!(guest.acknowledge(), 0);
    guest.end(0);
    // One list register is free and one interrupt waits, which is more urgent than this.
    send(9);
    let seen: Vec<u32> = core::iter::from_fn(|| {
        let seen = guest.acknowledge();
        guest.end(seen);
        Some(seen).filter(|&seen| seen != SPURIOUS)
    })
    .collect();
    assert_eq!(seen, (1..first).chain([9]).collect::<Vec<_>>());
}

#[test]
fn a_physical_interrupt_that_was_put_aside_is_deactivated_when_the_guest_ends_it() {
    for mediated_timer in [false, true] {
        let machine = Machine::with(1, mediated_timer);
        machine.write(0, 0x000, 1);
        machine.write(0, 0x100, 1 << TIMER);
        machine.write(0, 0x418, 0xf000_0000);
        let guest = Guest::new(&machine, 0);
        machine.timer(0);
        assert_eq!(guest.acknowledge(), TIMER);
        for id in 0..LIST_REGISTERS as u32 {
            machine
                .access(0, 0x400 + id as u16, Width::Byte, 0x80 - id * 8)
                .unwrap();
            machine.write(0, 0xf00, 2 << 24 | id);
            assert_eq!(guest.acknowledge(), id);
        }
        assert!(
            machine.listed(0).iter().all(|lr| lr & LR_ID != TIMER),
            "it had to make room"
        );
        machine.asked.borrow_mut().clear();
        (0..LIST_REGISTERS as u32)
            .rev()
            .for_each(|id| guest.end(id));
        assert_eq!(*machine.asked.borrow(), []);
        guest.end(TIMER);
        assert_eq!(*machine.asked.borrow(), [Asked::Deactivate(TIMER)]);
    }
}

#[test]
fn a_write_to_isactiver_holds_an_interrupt_back() {
    let machine = Machine::new(2);
    machine.write(0, 0x304, 1 << (UART - 32));
    assert_eq!(machine.read(0, 0x304), 1 << (UART - 32));
    machine.uart(true);
    assert_eq!(machine.acknowledge(0), None);
    machine.write(0, 0x384, 1 << (UART - 32));
    assert_eq!(
        (machine.read(0, 0x304), machine.acknowledge(0)),
        (0, Some((UART, 0)))
    );
    // Not the VM's.
    machine.write(0, 0x308, u32::MAX);
    machine.write(0, 0x300, u32::MAX);
    assert_eq!(
        (machine.read(0, 0x308), machine.read(0, 0x300)),
        (0, SGIS | 1 << TIMER | 1 << EMULATED_PPI)
    );
    assert_eq!(machine.read(1, 0x300), 0);
    // A vCPU that stops leaves none behind.
    let _ = machine.cores[0].banked.borrow_mut().reset(&machine.view(0));
    assert_eq!(machine.read(0, 0x300), 0);
}
