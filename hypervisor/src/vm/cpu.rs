//! The state that each physical core owns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu;
use crate::devices::timer::{self, Deadlines};
use crate::machine::layout;
use crate::machine::mmu::Windows;
use crate::machine::registers::{MPIDR_EL1, Readable, TPIDR_EL2, Writeable};
use crate::vm::partition::{self, Vm};
use alloc::boxed::Box;
use cloison_formats::telemetry::ExitReason;
use cloison_formats::units::Nanos;
use cloison_logic::clock::{Clock, Instant, Ticks};
use cloison_logic::quota::{Effort, Enforcement, Quotas};
use cloison_logic::ring::Ring;
use cloison_logic::segment::Segment;
use cloison_logic::vgic::Banked;
use cloison_logic::vpmu::Vpmu;
use core::cell::{Cell, RefCell};
use core::ops::Deref;

/// One core's own state. Only that core holds a reference to it. EL2 runs with interrupts masked,
/// so there is no second thread of execution on a core: a `RefCell` that is borrowed twice is a
/// bug, not a race.
#[repr(C)]
pub struct Cpu {
    /// Stack for exceptions of EL2 itself; the vectors read it at offset 0.
    emergency_stack: u64,
    /// Top of the core's stack; `machine::handover` reads it at offset 8.
    stack_top: u64,
    /// Core number.
    pub index: usize,
    /// vCPU number in `vm`.
    pub vcpu: usize,
    /// The VM that owns the core; cores without a VM stay parked.
    pub vm: Option<&'static Vm>,
    /// All VMs.
    pub vms: &'static [Vm],
    /// Set when the vCPU must stop; checked before the next return to the guest.
    pub leave: Cell<bool>,
    /// Set while a budget is spent.
    pub throttled: Cell<bool>,
    /// State of the guest's current line of output.
    pub line: Cell<Line>,
    /// Windows onto guest pages.
    pub windows: Windows,
    /// The system counter's frequency.
    pub clock: Clock,
    /// How long records and messages wait, converted once: every end of a traced period needs it.
    pub output_delay: Ticks,
    /// When EL2 needs this core next.
    pub deadlines: Deadlines,
    /// Work for which a deadline has passed. A handler only notes it; the core does it where it
    /// may wait.
    pub due: Cell<Due>,
    /// Work for the VM that no budget has paid yet: less than a page's.
    pub owed: Cell<Effort>,
    /// The vCPU's part of the emulated distributor.
    pub virq: RefCell<Banked>,
    /// The core's quotas.
    pub quotas: RefCell<Quotas>,
    /// The interrupt of the core's PMU, if the board wires it.
    pub pmu_irq: Option<u32>,
    /// The vCPU's own counters.
    pub vpmu: RefCell<Vpmu>,
    /// The observation segment.
    pub segment: RefCell<Segment>,
    /// Records that wait for the telemetry UART.
    pub ring: RefCell<Ring>,
    /// Whether what the core sent last was text.
    pub printed: Cell<bool>,
    /// Faults that the vCPU has taken in a row at one address.
    pub faults: Cell<u32>,
    /// Entries from the guest since the vCPU started, by reason.
    pub exits: Cell<[u64; ExitReason::ALL.len()]>,
}

impl Cpu {
    /// Counts an entry from the guest.
    pub fn count_exit(&self, reason: ExitReason) {
        let count = &self.exits.as_array_of_cells()[reason as usize];
        count.set(count.get() + 1);
    }

    /// Notes work that has become due.
    pub fn add_due(&self, kind: Due) {
        self.due.set(Due(self.due.get().0 | kind.0));
    }

    /// Has the core send records and messages at `at`, at the latest. The caller programs the EL2
    /// timer.
    pub fn send_by(&self, at: Instant) {
        if self.deadlines.output.get().is_none_or(|set| at < set) {
            self.deadlines.output.set(Some(at));
        }
    }
}

/// Kinds of work for a VM that have become due on its core, a bit each.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Due(u8);

impl Due {
    /// The VM's lease may have run out.
    pub const LEASE: Self = Self(1);
    /// The VM's profiled pages are to move.
    pub const MIGRATION: Self = Self(1 << 1);
    /// A peer has room again for what waits on the VM's links.
    pub const LINKS: Self = Self(1 << 2);

    /// Returns whether a kind is among them.
    pub const fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    /// Returns them without a kind.
    pub const fn without(self, kind: Self) -> Self {
        Self(self.0 & !kind.0)
    }
}

/// A core, and the VM that owns it.
#[derive(Clone, Copy)]
pub struct Guest {
    /// The core.
    pub cpu: &'static Cpu,
    /// The VM.
    pub vm: &'static Vm,
}

impl Deref for Guest {
    type Target = Cpu;

    fn deref(&self) -> &Cpu {
        self.cpu
    }
}

/// A core's stay at EL2, from its entry to its return, and the permission to wait in it.
///
/// What may wait (for a budget, a UART, another core) takes a `Visit`. What handles an interrupt
/// takes a [`Guest`] and cannot make a `Visit`: it does not wait, and leaves work that may to
/// [`Due`]. Waits run handlers, so at most one wait is on the stack of a core at any time, whatever
/// interrupts arrive and however long a budget holds the core.
#[derive(Clone, Copy)]
pub struct Visit(Guest);

impl Visit {
    /// Begins a visit, on a core that a VM owns. To be called once by each entry from a guest, and
    /// by the loop of a parked core: nothing of this core waits (the rule `visits` of `cargo xtask
    /// lint` names the places).
    pub fn begin() -> Self {
        let cpu = this();
        let vm = cpu.vm.expect("only a VM's core enters a guest");
        Self(Guest { cpu, vm })
    }
}

impl Deref for Visit {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        &self.0
    }
}

/// How long records and messages wait before the core that wrote them sends them, and pieces of
/// output for the next one.
const OUTPUT_DELAY: Nanos = Nanos(50_000);
/// Bytes of the stack for fatal exceptions.
const EMERGENCY_STACK: usize = 4096;

/// Creates this core's state, which [`this`] returns from now on.
pub fn init(
    index: usize,
    windows: u64,
    vm: Option<(&'static Vm, usize)>,
    enforcement: Enforcement,
    irq: Option<u32>,
) {
    let clock = timer::clock();
    let (vm, vcpu) = vm.unzip();
    let vcpu = vcpu.unwrap_or(0);
    let own = vm.map_or(&[][..], |vm| &vm.spec.quotas);
    let quotas = Quotas::assign(own, vcpu, pmu::counters(), enforcement, clock);
    // Quotas from the top, the guest from the bottom, segments in between.
    let free = pmu::counters().saturating_sub(quotas.reserved());
    let virq = vm.map(|vm| vm.private_interrupts(vcpu));
    let segments = match vm {
        Some(vm) if vm.spec.has_counters() => vm.spec.segment_counters() as u32,
        _ => 0,
    };
    // Apart from the core's stack: an exception because that has overflowed needs another one.
    // `u128` aligns it to 16 bytes.
    let emergency = Box::leak(Box::new([0u128; EMERGENCY_STACK / 16]))
        .as_mut_ptr_range()
        .end as u64;
    let cpu = Box::leak(Box::new(Cpu {
        emergency_stack: emergency,
        stack_top: layout::stack(index).end,
        index,
        vcpu,
        vm,
        vms: partition::all(),
        leave: Cell::new(false),
        throttled: Cell::new(false),
        line: Cell::new(Line::Whole),
        // SAFETY: each core has its own number.
        windows: unsafe { Windows::new(windows, index) },
        clock,
        output_delay: clock.ticks(OUTPUT_DELAY),
        deadlines: Deadlines::default(),
        due: Cell::default(),
        owed: Cell::default(),
        virq: RefCell::new(virq.unwrap_or_default()),
        pmu_irq: irq,
        vpmu: RefCell::new(Vpmu::new(free.saturating_sub(segments))),
        quotas: RefCell::new(quotas),
        segment: RefCell::new(Segment::default()),
        ring: RefCell::default(),
        printed: Cell::new(false),
        faults: Cell::new(0),
        exits: Default::default(),
    }));
    // The only reference to it: from here on, `this` finds it, and the vectors the emergency stack.
    TPIDR_EL2.set(&raw const *cpu as u64);
}

/// Returns the running core's state.
pub fn this() -> &'static Cpu {
    let pointer = TPIDR_EL2.get() as *const Cpu;
    // SAFETY: `init` set the register to this core's leaked `Cpu` before the core ran any code that
    // gets here, and no guest can write TPIDR_EL2.
    unsafe { &*pointer }
}

/// Returns the running core's number, even before its state exists.
pub fn current_index() -> usize {
    if TPIDR_EL2.get() == 0 {
        // Sufficient for a message: affinity 0 is the core's number on boards with one cluster.
        return MPIDR_EL1.read(MPIDR_EL1::Aff0) as usize;
    }
    this().index
}

/// State of the last line that a core's guest has written to its UART.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// The line is complete.
    Whole,
    /// The line is unfinished and may continue at any moment.
    Begun,
    /// The line is unfinished, and was so at the last tick of the guest's timer.
    Left,
}
