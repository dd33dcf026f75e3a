//! Tests of the emulated distributor and the list registers on a fake of the hardware.
// SPDX-License-Identifier: MIT OR Apache-2.0

#[cfg(loom)]
mod models;
mod offsets;
mod reference;
mod third;

use super::*;
use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::vec::Vec;

const UART: u32 = 33;
const DISK: u32 = 41;
const EMULATED_PPI: u32 = 23;
/// The last SPI that there can be, which some machines have.
const FAR: u32 = 1019;
/// Number of steps of a random guest.
const STEPS: usize = if cfg!(miri) { 40 } else { 200 };
/// Distance between the registers that a sweep reads. Miri, several hundred times slower, reads
/// fewer.
const SWEEP: usize = if cfg!(miri) { 0x44 } else { 4 };

/// What the module requested of the physical GIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Deactivate(u32),
    Enable(u32, bool),
    Route(u32, u8),
    Configure(u32, Trigger),
}

/// A VM, with each core's list registers treated as by the hardware's virtual CPU interface.
struct Machine {
    /// What the guest sees. A GICv3's registers are accessed by the offsets of a GICv2's (`third`).
    version: GicVersion,
    distributor: Distributor,
    shared: RefCell<Shared>,
    cores: Vec<Core>,
    asked: RefCell<Vec<Asked>>,
    /// Physical interrupts whose lines are high.
    raised: RefCell<Vec<u32>>,
    /// How often the SPIs were locked.
    locked: Cell<u32>,
}

/// A core's GICH registers, and what runs there.
struct Core {
    banked: RefCell<Banked>,
    lr: [Cell<u32>; LIST_REGISTERS],
    /// GICH_HCR.NPIE and LRENPIE.
    watched: Cell<(bool, bool)>,
    /// GICH_HCR.EOICount.
    ended: Cell<u32>,
    /// GICH_APR.
    active_priorities: Cell<u32>,
    /// Bits of a five-bit priority that do not decide about preemption.
    binary_point: Cell<u32>,
}

/// One core's view of its machine, of version 3 or 2.
struct View<'a, const THIRD: bool = false>(&'a Machine, &'a Core);

impl<const THIRD: bool> PhysicalGic for View<'_, THIRD> {
    const VERSION: GicVersion = if THIRD {
        GicVersion::V3
    } else {
        GicVersion::V2
    };

    fn distributor(&self) -> &Distributor {
        &self.0.distributor
    }

    fn lock(&self) -> impl DerefMut<Target = Shared> {
        self.0.locked.set(self.0.locked.get() + 1);
        self.0.shared.borrow_mut()
    }

    fn pending(&self, group: usize) -> u32 {
        let of_group = |irq: &&u32| **irq as usize / 32 == group;
        self.0
            .raised
            .borrow()
            .iter()
            .filter(of_group)
            .fold(0, |bits, irq| bits | 1 << (irq % 32))
    }

    fn done(&self) -> u32 {
        let invalid = |lr: &Cell<u32>| lr.get() & (LR_PENDING | LR_ACTIVE) == 0;
        (0..LIST_REGISTERS)
            .filter(|&n| invalid(&self.1.lr[n]))
            .fold(0, |mask, n| mask | 1 << n)
    }

    fn get(&self, index: usize) -> u32 {
        self.1.lr[index].get()
    }

    fn set(&self, index: usize, value: u32) {
        assert_eq!(value & 0x0070_0000, 0, "reserved bits");
        self.1.lr[index].set(value);
    }

    fn watch(&self, waiting: bool, aside: bool) {
        self.1.watched.set((waiting, aside));
        self.1.ended.set(0);
    }

    fn ended(&self) -> u32 {
        self.1.ended.get()
    }

    fn active_priorities(&self) -> u32 {
        self.1.active_priorities.get()
    }

    fn binary_point(&self) -> u32 {
        self.1.binary_point.get()
    }

    fn deactivate(&self, irq: u32) {
        self.0.asked.borrow_mut().push(Asked::Deactivate(irq));
    }

    fn set_enabled(&self, irq: u32, on: bool) {
        self.0.asked.borrow_mut().push(Asked::Enable(irq, on));
    }

    fn route(&self, irq: u32, vcpu: u8) {
        self.0.asked.borrow_mut().push(Asked::Route(irq, vcpu));
    }

    fn configure(&self, irq: u32, trigger: Trigger) {
        self.0
            .asked
            .borrow_mut()
            .push(Asked::Configure(irq, trigger));
    }
}

impl Machine {
    /// Creates a VM with the distributor on, and timer, UART and disk enabled.
    fn new(vcpus: u8) -> Self {
        let machine = Self::off(vcpus);
        machine.write(0, 0x000, 1);
        machine.write(0, 0x104, 1 << (UART - 32) | 1 << (DISK - 32));
        for vcpu in 0..vcpus {
            machine.write(usize::from(vcpu), 0x100, 1 << TIMER);
        }
        machine.asked.borrow_mut().clear();
        machine
    }

    fn off(vcpus: u8) -> Self {
        Self::with(vcpus, false)
    }

    fn with(vcpus: u8, mediated_timer: bool) -> Self {
        Self::of(GicVersion::V2, vcpus, mediated_timer)
    }

    fn of(version: GicVersion, vcpus: u8, mediated_timer: bool) -> Self {
        Self::has(version, vcpus, mediated_timer, &[])
    }

    /// Creates one with these emulated SPIs too.
    fn has(version: GicVersion, vcpus: u8, mediated_timer: bool, others: &[u32]) -> Self {
        let mut shared = Shared::empty();
        shared.own(UART, Source::Emulated);
        shared.own(DISK, Source::Physical);
        for &irq in others {
            shared.own(irq, Source::Emulated);
        }
        let core = |vcpu| Core {
            banked: RefCell::new(Banked::new(vcpu, 1 << EMULATED_PPI, 0, mediated_timer)),
            lr: Default::default(),
            watched: Cell::default(),
            ended: Cell::default(),
            active_priorities: Cell::default(),
            binary_point: Cell::default(),
        };
        Self {
            version,
            distributor: Distributor::new(vcpus, &shared),
            shared: RefCell::new(shared),
            cores: (0..vcpus).map(core).collect(),
            asked: RefCell::default(),
            raised: RefCell::default(),
            locked: Cell::default(),
        }
    }

    fn view(&self, vcpu: usize) -> View<'_> {
        View(self, &self.cores[vcpu])
    }

    /// Runs `fill` on these vCPUs, and on those that it returns, as EL2 does.
    fn kick(&self, vcpus: Vcpus) {
        let mut left = vcpus.0;
        while left != 0 {
            let vcpu = left.trailing_zeros() as usize;
            left &= left - 1;
            left |= self.cores[vcpu]
                .banked
                .borrow_mut()
                .fill(&self.view(vcpu))
                .0;
        }
    }

    fn access(&self, vcpu: usize, offset: u16, width: Width, value: u32) -> Option<()> {
        let mut banked = self.cores[vcpu].banked.borrow_mut();
        let kick = match self.version {
            GicVersion::V2 => banked.write(&self.view(vcpu), offset, width, value),
            GicVersion::V3 => third::write(self, vcpu, &mut banked, offset, width, value),
        }?;
        drop(banked);
        assert_eq!(kick.0 >> vcpu & 1, 0, "write looks after its own vCPU");
        self.kick(kick);
        Some(())
    }

    fn write(&self, vcpu: usize, offset: u16, value: u32) {
        self.access(vcpu, offset, Width::Word, value).unwrap();
    }

    /// Sends an SGI to one vCPU.
    fn send(&self, vcpu: usize, target: usize, sgi: u32) {
        match self.version {
            GicVersion::V2 => self.write(vcpu, 0xf00, 1 << (16 + target) | sgi),
            GicVersion::V3 => third::send(self, vcpu, u64::from(sgi) << 24 | 1 << target),
        }
    }

    fn read_as(&self, vcpu: usize, offset: u16, width: Width) -> Option<u32> {
        let banked = self.cores[vcpu].banked.borrow();
        match self.version {
            GicVersion::V2 => banked.read(&self.view(vcpu), offset, width),
            GicVersion::V3 => third::read(self, vcpu, &banked, offset, width),
        }
    }

    fn read(&self, vcpu: usize, offset: u16) -> u32 {
        self.read_as(vcpu, offset, Width::Word).unwrap()
    }

    fn uart(&self, high: bool) {
        let kick = self
            .shared
            .borrow_mut()
            .set_line(UART, high, &self.distributor);
        self.kick(kick);
    }

    /// Makes the UART's interrupt pending by an edge on a core, as a doorbell's. Returns whether that
    /// took no lock.
    fn edge(&self, vcpu: usize) -> bool {
        let relisted = self.cores[vcpu]
            .banked
            .borrow()
            .relist(UART, &self.view(vcpu));
        if !relisted {
            let kick = self.shared.borrow_mut().latch(UART, &self.distributor);
            self.kick(kick);
        }
        relisted
    }

    fn timer(&self, vcpu: usize) -> bool {
        let view = self.view(vcpu);
        let injected = self.cores[vcpu].banked.borrow_mut().inject_timer(&view);
        if !injected {
            self.kick(Vcpus(1 << vcpu));
        }
        injected
    }

    fn listed(&self, vcpu: usize) -> Vec<u32> {
        let valid = |lr: &u32| lr & (LR_PENDING | LR_ACTIVE) != 0;
        self.cores[vcpu]
            .lr
            .iter()
            .map(Cell::get)
            .filter(valid)
            .collect()
    }

    /// Reads GICV_IAR as the guest: the ID and, for an SGI, the source.
    fn acknowledge(&self, vcpu: usize) -> Option<(u32, u32)> {
        let pending = |lr: &&Cell<u32>| lr.get() & LR_PENDING != 0;
        let best = |lr: &&Cell<u32>| (lr.get() >> 23 & 0x1f, lr.get() & LR_ID);
        let lr = self.cores[vcpu]
            .lr
            .iter()
            .filter(pending)
            .min_by_key(best)?;
        lr.set(lr.get() ^ LR_PENDING | LR_ACTIVE);
        let id = lr.get() & LR_ID;
        Some((id, if id < 16 { lr.get() >> 10 & 7 } else { 0 }))
    }

    /// Deactivates an interrupt as the guest, whose priorities are not modelled here; the
    /// maintenance interrupts that follow are handled.
    fn end(&self, vcpu: usize, id: u32) {
        let active = |lr: &&Cell<u32>| lr.get() & LR_ACTIVE != 0 && lr.get() & LR_ID == id;
        match self.cores[vcpu].lr.iter().find(active) {
            Some(lr) => lr.set(lr.get() & !LR_ACTIVE),
            None => self.write(vcpu, 0x380 + id as u16 / 32 * 4, 1 << (id % 32)),
        }
        self.maintain(vcpu);
    }

    fn maintain(&self, vcpu: usize) {
        let ended = |lr: &Cell<u32>| lr.get() & (LR_PENDING | LR_ACTIVE | LR_HW | LR_EOI) == LR_EOI;
        let core = &self.cores[vcpu];
        let due = || {
            let (waiting, aside) = core.watched.get();
            let pending = core.lr.iter().any(|lr| lr.get() & LR_PENDING != 0);
            core.lr.iter().any(ended) || waiting && !pending || aside && core.ended.get() != 0
        };
        if due() {
            self.kick(Vcpus(1 << vcpu));
            assert!(!due(), "the maintenance interrupt would come again at once");
        }
    }

    /// Acknowledges and ends until nothing is left.
    fn drain(&self, vcpu: usize) -> Vec<(u32, u32)> {
        let mut seen = Vec::new();
        while let Some((id, source)) = self.acknowledge(vcpu) {
            seen.push((id, source));
            assert!(seen.len() < 1000, "does not end");
            self.end(vcpu, id);
        }
        seen
    }
}

#[test]
fn constants() {
    let machine = Machine::off(4);
    assert_eq!(machine.read(0, 0x004), 7 | 3 << 5);
    assert_eq!(
        machine.read(0, 0xfe8) >> 4,
        2,
        "architecture version of PIDR2"
    );
    assert_eq!(machine.read(2, 0x800), 0x0404_0404);
    assert_eq!(machine.read(0, 0xc00), 0xaaaa_aaaa);
    assert_eq!(machine.read(0, 0x100), SGIS);
    assert_eq!(machine.read_as(0, 0x1000, Width::Word), None);
    assert_eq!(machine.read_as(0, 0x102, Width::Word), None);
    assert_eq!(machine.read_as(0, 0x100, Width::Double), None);
    assert_eq!(machine.access(0, 0xf00, Width::Byte, 0), None);
    // With eight vCPUs, the mask of all must not overflow.
    Machine::off(8).write(0, 0xf00, 1 << 24 | 3);
}

#[test]
fn timer_goes_straight_into_a_list_register() {
    let machine = Machine::new(2);
    machine.write(1, 0x418, 0x5700_0000);
    assert!(machine.timer(1));
    assert_eq!(
        machine.listed(1),
        [LR_HW | LR_PENDING | 0x50 << 20 | TIMER << 10 | TIMER]
    );
    assert_eq!(machine.read(1, 0x200), 1 << TIMER);
    assert_eq!(machine.acknowledge(1), Some((TIMER, 0)));
    assert_eq!(
        (machine.read(1, 0x200), machine.read(1, 0x300)),
        (0, 1 << TIMER)
    );
    machine.end(1, TIMER);
    assert!(machine.timer(1));
    assert_eq!(machine.drain(1), [(TIMER, 0)]);
    assert_eq!(machine.listed(0), []);
}

#[test]
fn another_physical_ppi_waits_for_the_guest_and_follows_its_enable() {
    const DIRECT_PPI: u32 = 22;
    for mediated in [false, true] {
        let machine = Machine::new(2);
        machine.cores[0]
            .banked
            .replace(Banked::new(0, 0, 1 << DIRECT_PPI, mediated));
        let asked = || -> Vec<Asked> { machine.asked.borrow_mut().drain(..).collect() };
        let raise = || {
            machine.cores[0].banked.borrow_mut().raise(DIRECT_PPI);
            machine.kick(Vcpus(1));
        };
        raise();
        assert_eq!(machine.listed(0), [], "disabled");
        machine.write(0, 0x100, 1 << DIRECT_PPI);
        assert_eq!(asked(), [Asked::Enable(DIRECT_PPI, true)]);
        let kind = if mediated {
            LR_EOI
        } else {
            LR_HW | DIRECT_PPI << 10
        };
        for _ in 0..3 {
            assert_eq!(machine.listed(0), [kind | LR_PENDING | DIRECT_PPI]);
            assert_eq!(machine.acknowledge(0), Some((DIRECT_PPI, 0)));
            assert_eq!(asked(), []);
            machine.end(0, DIRECT_PPI);
            let deactivated = asked().contains(&Asked::Deactivate(DIRECT_PPI));
            assert_eq!(
                deactivated, mediated,
                "with HW = 1, the guest's EOI does it"
            );
            raise();
        }
        let _ = machine.cores[0].banked.borrow_mut().reset(&machine.view(0));
        let asked = asked();
        for irq in [DIRECT_PPI, TIMER] {
            assert!(
                asked.contains(&Asked::Enable(irq, false))
                    && asked.contains(&Asked::Deactivate(irq)),
                "{asked:?}"
            );
        }
        assert_eq!(machine.read(0, 0x100), SGIS, "owned, and disabled");
    }
}

#[test]
fn a_mediated_timer_is_deactivated_once_when_the_guest_has_ended_it() {
    let machine = Machine::with(2, true);
    machine.write(0, 0x000, 1);
    machine.write(1, 0x100, 1 << TIMER);
    let deactivated = || {
        machine
            .asked
            .borrow_mut()
            .drain(..)
            .filter(|&a| a == Asked::Deactivate(TIMER))
            .count()
    };
    for _ in 0..3 {
        assert!(machine.timer(1));
        assert_eq!(machine.listed(1), [LR_EOI | LR_PENDING | TIMER]);
        assert_eq!(machine.acknowledge(1), Some((TIMER, 0)));
        assert_eq!(deactivated(), 0);
        machine.end(1, TIMER);
        assert_eq!((deactivated(), machine.listed(1)), (1, Vec::new()));
    }
    // Taken back before the guest saw it: it waits, and is still active in the physical GIC.
    machine.timer(1);
    machine.write(1, 0x180, 1 << TIMER);
    assert_eq!((machine.listed(1), deactivated()), (Vec::new(), 0));
    machine.write(1, 0x100, 1 << TIMER);
    assert_eq!((machine.drain(1), deactivated()), ([(TIMER, 0)].into(), 1));
    // Made pending by software: nothing is active in the physical GIC.
    machine.write(1, 0x200, 1 << TIMER);
    assert_eq!((machine.drain(1), deactivated()), ([(TIMER, 0)].into(), 0));
    // The guest clears its active state itself.
    machine.timer(1);
    machine.acknowledge(1);
    machine.write(1, 0x380, 1 << TIMER);
    assert_eq!((machine.listed(1), deactivated()), (Vec::new(), 1));
    // Reset keeps the trigger type.
    let _ = machine.cores[1].banked.borrow_mut().reset(&machine.view(1));
    machine.write(1, 0x100, 1 << TIMER);
    machine.timer(1);
    assert_eq!(machine.listed(1), [LR_EOI | LR_PENDING | TIMER]);
}

#[test]
fn a_disabled_timer_waits() {
    let machine = Machine::new(1);
    machine.write(0, 0x180, 1 << TIMER);
    assert!(!machine.timer(0));
    assert_eq!(machine.drain(0), []);
    machine.write(0, 0x100, 1 << TIMER);
    assert_eq!(
        machine.listed(0),
        [LR_HW | LR_PENDING | TIMER << 10 | TIMER]
    );
    // Disabling takes back what is not acknowledged, and so does turning the distributor off.
    machine.write(0, 0x180, 1 << TIMER);
    assert_eq!(machine.listed(0), []);
    machine.write(0, 0x100, 1 << TIMER);
    machine.write(0, 0x000, 0);
    assert_eq!(machine.listed(0), []);
    machine.write(0, 0x000, 1);
    assert_eq!(machine.drain(0), [(TIMER, 0)]);
    let flips: Vec<_> = [false, true, false, true]
        .map(|on| Asked::Enable(TIMER, on))
        .into();
    assert_eq!(*machine.asked.borrow(), flips);
}

#[test]
fn the_timer_made_pending_by_software_does_not_double() {
    let machine = Machine::new(1);
    machine.write(0, 0x200, 1 << TIMER);
    assert_eq!(machine.acknowledge(0), Some((TIMER, 0)));
    assert!(!machine.timer(0));
    assert_eq!(machine.listed(0).len(), 1);
    machine.end(0, TIMER);
    assert_eq!(machine.drain(0), [(TIMER, 0)]);
}

#[test]
fn a_high_line_interrupts_until_it_falls() {
    let machine = Machine::new(2);
    machine.uart(true);
    assert_eq!(machine.acknowledge(0), Some((UART, 0)));
    machine.end(0, UART);
    assert_eq!(machine.acknowledge(0), Some((UART, 0)));
    machine.uart(false);
    machine.end(0, UART);
    assert_eq!(machine.acknowledge(0), None);
    // A line that falls before the guest notices leaves nothing pending.
    machine.uart(true);
    machine.uart(false);
    assert_eq!(machine.listed(0), []);
    // While disabled it is not listed, even if another SPI makes the vCPU check.
    machine.write(0, 0x184, 1 << (UART - 32));
    machine.uart(true);
    machine.write(0, 0x204, 1 << (UART - 32) | 1 << (DISK - 32));
    assert_eq!(machine.drain(0), [(DISK, 0)]);
}

#[test]
fn a_retargeted_spi_moves() {
    let machine = Machine::new(3);
    machine.uart(true);
    machine.write(1, 0x820, 0x0000_0400);
    assert_eq!(machine.listed(0), []);
    assert_eq!(machine.acknowledge(2), Some((UART, 0)));
    // While active on vCPU 2 it stays there; the next one goes to vCPU 1.
    machine.write(0, 0x820, 0x0000_0600);
    assert_eq!(machine.acknowledge(1), None);
    machine.end(2, UART);
    assert_eq!(machine.acknowledge(1), Some((UART, 0)));
    // Nonexistent targets are not stored.
    machine.write(0, 0x820, 0x0000_ff00);
    assert_eq!(machine.read(0, 0x820), 0x0000_0700);
}

#[test]
fn an_enabled_spi_goes_where_the_guest_reads_that_it_goes() {
    let machine = Machine::off(2);
    machine.write(0, 0x104, 1 << (DISK - 32));
    assert_eq!(machine.read_as(0, 0x829, Width::Byte), Some(1));
    assert_eq!(
        *machine.asked.borrow(),
        [Asked::Route(DISK, 0), Asked::Enable(DISK, true)]
    );
}

#[test]
fn a_physical_spi_is_ended_by_the_guest() {
    let machine = Machine::off(2);
    machine.write(0, 0x000, 1);
    machine.write(0, 0x828, 0x0000_0200);
    machine.write(0, 0xc08, 2 << 18);
    machine.write(0, 0x104, u32::MAX);
    let asked = [
        Asked::Route(DISK, 1),
        Asked::Configure(DISK, Trigger::Edge),
        Asked::Route(DISK, 1),
        Asked::Enable(DISK, true),
    ];
    assert_eq!(*machine.asked.borrow(), asked);
    let raise = || {
        let kick = machine
            .shared
            .borrow_mut()
            .raise(DISK, &machine.distributor);
        machine.kick(kick);
    };
    raise();
    assert_eq!(machine.listed(1), [LR_HW | LR_PENDING | DISK << 10 | DISK]);
    assert_eq!(machine.acknowledge(1), Some((DISK, 0)));
    machine.end(1, DISK);
    assert_eq!(machine.acknowledge(1), None);
    // It is raised again, now for vCPU 0, although vCPU 1 has not checked its list registers since.
    machine.write(0, 0x828, 0x0000_0100);
    raise();
    assert_eq!(machine.drain(0), [(DISK, 0)]);
    assert_eq!(machine.listed(1), []);
}

#[test]
fn clearing_the_active_state_deactivates() {
    let machine = Machine::new(1);
    assert!(machine.timer(0));
    assert_eq!(machine.acknowledge(0), Some((TIMER, 0)));
    machine.write(0, 0x380, 1 << TIMER);
    assert_eq!(machine.listed(0), []);
    assert_eq!(*machine.asked.borrow(), [Asked::Deactivate(TIMER)]);
}

#[test]
fn a_raised_line_is_pending_while_the_guest_has_it_disabled() {
    let machine = Machine::off(2);
    // Interrupts 27 and 41 are the VM's, 40 another one's.
    machine.raised.borrow_mut().extend([TIMER, DISK, 40]);
    for register in [0x200, 0x280] {
        assert_eq!(machine.read(0, register), 1 << TIMER);
        assert_eq!(machine.read(1, register + 4), 1 << (DISK - 32));
    }
    // It was enabled, taken and listed: pending until the guest acknowledges it.
    machine.raised.borrow_mut().clear();
    machine.write(0, 0x000, 1);
    machine.write(0, 0x100, 1 << TIMER);
    assert_eq!(machine.read(0, 0x200), 0);
    assert!(machine.timer(0));
    assert_eq!(machine.read(0, 0x200), 1 << TIMER);
}

#[test]
fn neither_a_tick_nor_an_sgi_takes_the_vms_lock() {
    for mediated_timer in [false, true] {
        let machine = Machine::with(4, mediated_timer);
        machine.write(0, 0x000, 1);
        for vcpu in 0..4 {
            machine.write(vcpu, 0x100, 1 << TIMER);
        }
        machine.locked.set(0);
        for vcpu in [0, 3] {
            for _ in 0..10 {
                // A tick, and its end.
                machine.timer(vcpu);
                assert_eq!(machine.acknowledge(vcpu), Some((TIMER, 0)));
                // Two vCPUs and the tick's own one send SGIs meanwhile.
                machine.write(1, 0xf00, 1 << (16 + vcpu) | 5);
                machine.write(2, 0xf00, 1 << (16 + vcpu) | 5);
                machine.write(vcpu, 0xf00, 2 << 24 | 6);
                machine.end(vcpu, TIMER);
                machine.maintain(vcpu);
                let mut seen = machine.drain(vcpu);
                seen.sort_unstable();
                assert_eq!(seen, [(5, 1), (5, 2), (6, vcpu as u32)]);
            }
        }
        assert_eq!(machine.locked.get(), 0, "mediated_timer = {mediated_timer}");
        // An SPI does take it, so the count can be trusted.
        machine.write(0, 0x104, 1 << (UART - 32));
        assert_ne!(machine.locked.get(), 0);
    }
}

#[test]
fn an_edge_that_comes_again_takes_no_lock_and_delays_no_tick() {
    let machine = Machine::new(2);
    assert!(!machine.edge(0), "in no list register yet");
    assert_eq!(machine.drain(0), [(UART, 0)]);
    machine.locked.set(0);
    for _ in 0..10 {
        // The second one merges with the first, which is not taken yet.
        assert!(machine.edge(0) && machine.edge(0));
        assert_eq!(machine.acknowledge(0), Some((UART, 0)));
        assert!(machine.timer(0));
        machine.end(0, UART);
        assert!(machine.edge(0));
        let mut seen = machine.drain(0);
        seen.sort_unstable();
        assert_eq!(seen, [(TIMER, 0), (UART, 0)]);
        assert!(machine.timer(0));
        assert_eq!(machine.drain(0), [(TIMER, 0)]);
    }
    assert_eq!(machine.locked.get(), 0);
    // While the guest has it active, it waits for its end.
    assert!(machine.edge(0));
    assert_eq!(machine.acknowledge(0), Some((UART, 0)));
    assert!(!machine.edge(0));
    assert_eq!(machine.acknowledge(0), None);
    machine.end(0, UART);
    assert_eq!(machine.drain(0), [(UART, 0)]);
    // SGIs and the timer find all list registers, also the one that is kept.
    machine.write(0, 0xf00, 2 << 24 | 1);
    machine.write(0, 0xf00, 2 << 24 | 2);
    machine.write(0, 0xf00, 2 << 24 | 3);
    machine.timer(0);
    assert_eq!(machine.listed(0).len(), LIST_REGISTERS);
    assert!(!machine.edge(0));
    assert_eq!(machine.drain(0).len(), 5);
}

#[test]
fn an_edge_follows_what_another_vcpu_has_written() {
    let machine = Machine::new(2);
    let (bit, lane) = (1 << (UART % 32), UART % 4 * 8);
    let keep = |vcpu| {
        machine.edge(vcpu);
        assert_eq!(machine.drain(vcpu), [(UART, 0)]);
        assert!(machine.edge(vcpu));
        assert_eq!(machine.drain(vcpu), [(UART, 0)]);
    };
    // Its priority.
    keep(0);
    machine.write(1, 0x400 + (UART as u16 & !3), 0x48 << lane);
    machine.edge(0);
    assert_eq!(machine.listed(0)[0] >> LR_LEVEL_SHIFT & 0x1f, 0x48 >> 3);
    machine.drain(0);
    // Its target.
    keep(0);
    machine.write(1, 0x800 + (UART as u16 & !3), 2 << lane);
    assert!(!machine.edge(0));
    assert_eq!(machine.drain(0), []);
    assert_eq!(machine.drain(1), [(UART, 0)]);
    // Whether it is enabled, and whether the distributor is on.
    keep(1);
    for (off, on) in [((0x184, bit), (0x104, bit)), ((0, 0), (0, 1))] {
        machine.write(0, off.0, off.1);
        assert!(!machine.edge(1));
        assert_eq!(machine.drain(1), []);
        machine.write(0, on.0, on.1);
        assert_eq!(machine.drain(1), [(UART, 0)]);
    }
}

#[test]
fn sgis_of_several_sources_follow_each_other() {
    let machine = Machine::new(4);
    for vcpu in [2, 1, 3] {
        machine.write(vcpu, 0xf00, 1 << 16 | 5);
    }
    assert_eq!(machine.read(0, 0xf14), 0x0000_0e00);
    assert_eq!(machine.listed(0).len(), 1);
    machine.write(0, 0xf14, 0x0000_0800);
    let mut seen = machine.drain(0);
    seen.sort_unstable();
    assert_eq!(seen, [(5, 1), (5, 2)]);
    // To all except itself; to itself; to a list with a nonexistent vCPU.
    machine.write(1, 0xf00, 1 << 24 | 7);
    machine.write(1, 0xf00, 2 << 24 | 8);
    machine.write(1, 0xf00, 0x11 << 16 | 9);
    assert_eq!(machine.drain(0), [(7, 1), (9, 1)]);
    assert_eq!(machine.drain(1), [(8, 1)]);
    assert_eq!(machine.drain(3), [(7, 1)]);
}

#[test]
fn an_emulated_ppi_follows_its_line() {
    let machine = Machine::new(1);
    machine.write(0, 0x100, 1 << EMULATED_PPI);
    let line = |high| {
        machine.cores[0]
            .banked
            .borrow_mut()
            .set_line(EMULATED_PPI, high);
        machine.kick(Vcpus(1));
    };
    line(true);
    assert_eq!(machine.acknowledge(0), Some((EMULATED_PPI, 0)));
    machine.end(0, EMULATED_PPI);
    assert_eq!(machine.listed(0).len(), 1);
    line(false);
    assert_eq!(machine.listed(0), []);
}

#[test]
fn an_sgi_sent_to_a_vcpu_that_is_still_starting_is_not_lost() {
    let machine = Machine::new(2);
    let post = machine.cores[0]
        .banked
        .borrow_mut()
        .write(&machine.view(0), 0xf00, Width::Word, 2 << 16 | 7)
        .unwrap();
    assert_eq!(post, Vcpus(2));
    let _ = machine.cores[1].banked.borrow_mut().reset(&machine.view(1));
    machine.kick(post);
    assert_eq!(machine.drain(1), [(7, 0)]);
    // Nor if a parked core had already listed it.
    machine.write(0, 0xf00, 2 << 16 | 7);
    assert_eq!(machine.listed(1).len(), 1);
    let _ = machine.cores[1].banked.borrow_mut().reset(&machine.view(1));
    machine.kick(Vcpus(2));
    assert_eq!(machine.drain(1), [(7, 0)]);
}

#[test]
fn resets_forget_and_hand_over() {
    let machine = Machine::new(2);
    machine.uart(true);
    assert!(!machine.timer(0), "an SPI is listed, so the slow way");
    machine.write(1, 0xf00, 1 << 16 | 5);
    let view = machine.view(0);
    let kick = machine.cores[0].banked.borrow_mut().reset(&view);
    assert_eq!(kick, Vcpus(0));
    assert_eq!(machine.listed(0), []);
    assert_eq!(
        *machine.asked.borrow(),
        [Asked::Enable(TIMER, false), Asked::Deactivate(TIMER)]
    );
    machine.write(1, 0x820, 0x0000_0200);
    assert_eq!(machine.acknowledge(1), Some((UART, 0)));
    let _ = machine.cores[1].banked.borrow_mut().reset(&machine.view(1));
    machine.asked.borrow_mut().clear();
    machine.shared.borrow_mut().reset(&view);
    machine.distributor.reset();
    assert_eq!(
        *machine.asked.borrow(),
        [Asked::Enable(DISK, false), Asked::Deactivate(DISK)]
    );
    let fresh = Machine::off(2);
    for offset in (0..0x1000).step_by(SWEEP) {
        assert_eq!(
            machine.read(1, offset),
            fresh.read(1, offset),
            "{offset:#x}"
        );
    }
}

/// Offsets of registers as often as offsets without one.
fn offsets() -> impl Strategy<Value = u16> {
    prop_oneof![
        any::<u16>(),
        0u16..0x1000,
        Just(0),
        (0u16..0x20).prop_map(|n| 0x100 + n * 0x20),
        0x800u16..0x840
    ]
}

fn widths() -> impl Strategy<Value = Width> {
    (0u64..4).prop_map(Width::from_sas)
}

/// Checks the invariants that no guest may break.
fn check(machine: &Machine) -> Result<(), TestCaseError> {
    let owned = [
        SGIS | 1 << TIMER | 1 << EMULATED_PPI,
        1 << (UART - 32) | 1 << (DISK - 32),
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    let shared = machine.shared.borrow();
    let banked: Vec<_> = machine
        .cores
        .iter()
        .map(|core| core.banked.borrow())
        .collect();
    let private = banked.iter().map(|banked| (owned[0], &banked.group));
    for (owned, group) in private.chain(
        owned
            .iter()
            .copied()
            .zip(shared.banks.iter().map(|bank| &bank.group))
            .skip(1),
    ) {
        prop_assert_eq!(group.owned, owned);
        prop_assert_eq!(
            (group.physical | group.enabled | group.line | group.latched | group.placed) & !owned,
            0
        );
        // Those of foreign interrupts are kept, and mean nothing.
        for priority in group.priority {
            prop_assert_eq!(priority & !0xf8f8_f8f8, 0);
        }
    }
    for irq in (32..MAX_IRQ).filter(|irq| ![UART, DISK].contains(irq)) {
        let Some(bank) = shared.banks.get(irq as usize / 32) else {
            continue;
        };
        prop_assert_eq!(bank.targets[irq as usize % 32], Vcpus(0));
        prop_assert_eq!(bank.config[irq as usize / 16 % 2] >> (irq % 16 * 2) & 3, 0);
    }
    for asked in &*machine.asked.borrow() {
        let (Asked::Deactivate(irq) | Asked::Enable(irq, _)) = *asked else {
            prop_assert!(matches!(
                asked,
                Asked::Route(DISK, _) | Asked::Configure(DISK, _)
            ));
            continue;
        };
        prop_assert!([TIMER, DISK].contains(&irq));
    }
    let mut spis = Vec::new();
    for vcpu in 0..machine.cores.len() {
        let mut ids: Vec<_> = machine.listed(vcpu).iter().map(|lr| lr & LR_ID).collect();
        for &id in &ids {
            prop_assert!(
                owned
                    .get(id as usize / 32)
                    .is_some_and(|owned| owned >> (id % 32) & 1 == 1)
            );
        }
        spis.extend(ids.iter().copied().filter(|&id| id >= 32));
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(
            ids.len(),
            machine.listed(vcpu).len(),
            "an interrupt is listed twice"
        );
    }
    spis.sort_unstable();
    let listed = spis.len();
    spis.dedup();
    prop_assert_eq!(spis.len(), listed, "an SPI is listed by two vCPUs");
    Ok(())
}

proptest! {
    #[test]
    fn no_access_reaches_a_foreign_interrupt(
        steps in prop::collection::vec(
            (0u8..8, 0usize..3, offsets(), widths(), any::<u32>()),
            0..60,
        ),
    ) {
        let machine = Machine::new(3);
        // Interrupts that are active in the physical GIC; they do not fire again before they are
        // deactivated.
        let mut fired = [false; 3];
        for (kind, vcpu, offset, width, value) in steps {
            match kind {
                0..4 => {
                    let written = machine.access(vcpu, offset, width, value).is_some();
                    let read = machine.read_as(vcpu, offset, width).is_some();
                    prop_assert!(written == read || !written && offset & !3 == 0xf00);
                }
                4 => _ = machine.acknowledge(vcpu),
                5 => machine
                    .listed(vcpu)
                    .into_iter()
                    .for_each(|lr| machine.end(vcpu, lr & LR_ID)),
                6 => machine.uart(value & 1 == 1),
                _ => {
                    let hardware = |lr: &u32| lr & LR_HW != 0 && lr & LR_ID == TIMER;
                    let waits = machine.cores[vcpu].banked.borrow().group.line >> TIMER & 1 == 1;
                    fired[vcpu] = machine.listed(vcpu).iter().any(hardware) || waits;
                    if !fired[vcpu] {
                        machine.timer(vcpu);
                    }
                }
            }
            machine.maintain(vcpu);
            check(&machine)?;
        }
    }

    #[test]
    fn bytes_halves_and_words_agree(
        offset in (0u16..0x400).prop_map(|n| n * 4),
        setup in prop::collection::vec((offsets(), any::<u32>()), 0..20),
        value: u32,
    ) {
        let machines = [Machine::new(2), Machine::new(2), Machine::new(2)];
        for machine in &machines {
            for &(offset, value) in &setup {
                let _ = machine.access(1, offset & !3, Width::Word, value);
            }
        }
        // GICD_CTLR, the registers with one byte per interrupt, and the bitmaps: all except SGIR.
        if offset & !3 != 0xf00 {
            machines[0].write(1, offset, value);
            for lane in 0..4 {
                machines[1]
                    .access(1, offset + lane, Width::Byte, value >> (lane * 8))
                    .unwrap();
            }
            for lane in [0, 2] {
                machines[2]
                    .access(1, offset + lane, Width::Half, value >> (lane * 8))
                    .unwrap();
            }
        }
        for offset in (0..0x1000).step_by(SWEEP) {
            let word = machines[0].read(1, offset);
            for machine in &machines {
                let byte = |lane: u16| {
                    machine.read_as(1, offset + lane, Width::Byte).unwrap() << (lane * 8)
                };
                prop_assert_eq!(byte(0) | byte(1) | byte(2) | byte(3), word, "{:#x}", offset);
                let half = |lane: u16| {
                    machine.read_as(1, offset + lane, Width::Half).unwrap() << (lane * 8)
                };
                prop_assert_eq!(half(0) | half(2), word, "{:#x}", offset);
            }
        }
    }

    #[test]
    fn every_sgi_is_delivered_exactly_once(
        steps in prop::collection::vec((0u8..4, 0usize..4, 0u32..16, any::<u8>()), 0..STEPS),
    ) {
        let machine = Machine::new(4);
        // The reference: what is pending for which vCPU from which source, and what is active in
        // each guest.
        let mut pending = std::collections::BTreeSet::new();
        let mut active: [Vec<u32>; 4] = Default::default();
        let mut timers = [0; 4];
        for (kind, vcpu, sgi, targets) in steps {
            match kind {
                0 | 1 => {
                    machine.write(vcpu, 0xf00, u32::from(targets) << 16 | sgi);
                    let targets = (0..4).filter(|target| targets >> target & 1 == 1);
                    pending.extend(targets.map(|target| (target, sgi, vcpu as u32)));
                }
                2 => {
                    // The virtual CPU interface preempts only for more urgent interrupts; take
                    // whatever comes.
                    match machine.acknowledge(vcpu) {
                        Some((TIMER, _)) => {
                            timers[vcpu] -= 1;
                            machine.end(vcpu, TIMER);
                        }
                        Some((id, source)) => {
                            prop_assert!(
                                pending.remove(&(vcpu, id, source)),
                                "not sent, or delivered twice"
                            );
                            active[vcpu].push(id);
                        }
                        None => {}
                    }
                    if sgi & 7 == 0 && timers[vcpu] == 0 {
                        machine.timer(vcpu);
                        timers[vcpu] += 1;
                    }
                }
                _ => {
                    if let Some(id) = active[vcpu].pop() {
                        machine.end(vcpu, id);
                    }
                }
            }
            machine.maintain(vcpu);
            check(&machine)?;
        }
        for vcpu in 0..4 {
            while let Some(id) = active[vcpu].pop() {
                machine.end(vcpu, id);
            }
            for (id, source) in machine.drain(vcpu) {
                if id == TIMER {
                    timers[vcpu] -= 1;
                } else {
                    prop_assert!(
                        pending.remove(&(vcpu, id, source)),
                        "not sent, or delivered twice"
                    );
                }
            }
        }
        prop_assert!(pending.is_empty(), "lost: {:?}", pending);
        prop_assert_eq!(timers, [0; 4]);
    }

    #[test]
    fn delivered_in_order_of_priority(
        priorities: [u8; 20],
        sgis in 0u32..0x10000,
        others in 0u8..16,
    ) {
        let machine = Machine::new(2);
        machine.write(0, 0x100, 1 << EMULATED_PPI);
        let ids: Vec<u32> = (0..16).chain([EMULATED_PPI, TIMER, UART, DISK]).collect();
        for (&id, &priority) in ids.iter().zip(&priorities) {
            machine
                .access(0, 0x400 + id as u16, Width::Byte, u32::from(priority))
                .unwrap();
        }
        machine.write(0, 0x200, u32::from(others & 1) << EMULATED_PPI);
        if others & 2 != 0 {
            machine.timer(0);
        }
        machine.uart(others & 4 != 0);
        machine.write(0, 0x204, u32::from(others >> 3) << (DISK - 32));
        // A level-sensitive line would interrupt endlessly; latch the UART's instead.
        if others & 4 != 0 {
            machine.write(0, 0x204, 1 << (UART - 32));
            machine.uart(false);
        }
        // Last, so that nothing after them lists again.
        for sgi in (0..16).filter(|sgi| sgis >> sgi & 1 == 1) {
            machine.write(1, 0xf00, 1 << 16 | sgi);
        }
        let wanted = |index: usize| {
            if index < 16 {
                sgis >> index & 1 == 1
            } else {
                others >> (index - 16) & 1 == 1
            }
        };
        let mut expected: Vec<_> = (0..20)
            .filter(|&index| wanted(index))
            .map(|index| (priorities[index] & 0xf8, ids[index]))
            .collect();
        expected.sort_unstable();
        let seen: Vec<_> = machine.drain(0).into_iter().map(|(id, _)| id).collect();
        prop_assert_eq!(
            seen,
            expected.into_iter().map(|(_, id)| id).collect::<Vec<_>>()
        );
    }
}
