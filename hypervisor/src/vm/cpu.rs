//! The state that each physical core owns.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::pmu;
use crate::devices::timer::{self, Deadlines};
use crate::machine::layout;
use crate::machine::mmu::Windows;
use crate::machine::registers::{MPIDR_EL1, Readable, TPIDR_EL2, Writeable};
use crate::vm::partition::Vm;
use alloc::boxed::Box;
use cloison_formats::telemetry::ExitReason;
use cloison_formats::units::Nanos;
use cloison_logic::clock::{Clock, Instant, Ticks};
use cloison_logic::quota::{Enforcement, Quotas};
use cloison_logic::ring::Ring;
use cloison_logic::segment::Segment;
use cloison_logic::vgic::Banked;
use cloison_logic::vpmu::Vpmu;
use core::cell::{Cell, RefCell};

/// One core's own state. Only that core holds a reference to it. EL2 runs with interrupts masked, so there is no second
/// thread of execution on a core: a `RefCell` that is borrowed twice is a bug, not a race.
#[repr(C)]
pub struct Cpu {
    /// Stack for exceptions of EL2 itself; the vectors read it at offset 0.
    emergency_stack: u64,
    /// Top of the core's stack; `enter` and `abandon_stack` read it at offset 8.
    stack_top: u64,
    /// Core number.
    pub index: usize,
    /// vCPU number in `vm`.
    pub vcpu: usize,
    /// The VM that owns the core; cores without a VM stay parked.
    pub vm: Option<&'static Vm>,
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
    /// The vCPU's part of the emulated distributor; `None` on cores without a VM.
    pub virq: RefCell<Option<Banked>>,
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
    /// Entries from the guest since the vCPU started, by reason.
    pub exits: Cell<[u64; ExitReason::ALL.len()]>,
}

impl Cpu {
    /// Counts an entry from the guest.
    pub fn count_exit(&self, reason: ExitReason) {
        let count = &self.exits.as_array_of_cells()[reason as usize];
        count.set(count.get() + 1);
    }

    /// Has the core send records and messages soon. The caller programs the EL2 timer.
    pub fn send_soon(&self, now: Instant) {
        if self.deadlines.output.get().is_none() {
            self.deadlines.output.set(Some(now + self.output_delay));
        }
    }
}

/// How long records and messages wait before the core that wrote them sends them.
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
    let (own, vcpu) = vm.map_or((&[][..], 0), |(vm, vcpu)| (&vm.spec.quotas[..], vcpu));
    let quotas = Quotas::assign(own, vcpu, pmu::counters(), enforcement, clock);
    let free = pmu::counters().saturating_sub(quotas.reserved());
    let segments = vm
        .filter(|(vm, _)| vm.spec.has_counters())
        .map_or(0, |(vm, _)| vm.spec.segment_counters() as u32);
    let emergency = Box::leak(Box::new([0u128; EMERGENCY_STACK / 16]))
        .as_mut_ptr_range()
        .end as u64;
    let cpu = Box::leak(Box::new(Cpu {
        emergency_stack: emergency,
        stack_top: layout::STACKS + 4096 + layout::STACK_SIZE + index as u64 * layout::STACK_STRIDE,
        index,
        vcpu,
        vm: vm.map(|(vm, _)| vm),
        leave: Cell::new(false),
        throttled: Cell::new(false),
        line: Cell::new(Line::Whole),
        // SAFETY: each core has its own number.
        windows: unsafe { Windows::new(windows, index) },
        clock,
        output_delay: clock.ticks(OUTPUT_DELAY),
        deadlines: Deadlines::default(),
        virq: RefCell::new(None),
        pmu_irq: irq,
        vpmu: RefCell::new(Vpmu::new(free.saturating_sub(segments))),
        quotas: RefCell::new(quotas),
        segment: RefCell::new(Segment::default()),
        ring: RefCell::default(),
        printed: Cell::new(false),
        exits: Default::default(),
    }));
    TPIDR_EL2.set(&raw const *cpu as u64);
}

/// Returns the running core's state.
pub fn this() -> &'static Cpu {
    let pointer = TPIDR_EL2.get() as *const Cpu;
    // SAFETY: `init` set the register to this core's leaked `Cpu` before the core ran any code that gets here, and no
    // guest can write TPIDR_EL2.
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
