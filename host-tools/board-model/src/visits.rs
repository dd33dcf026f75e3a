//! Visits to EL2: the number of instructions that a core executes there between two points at which
//! it serves pending interrupts.
//!
//! A visit begins when a guest's core enters EL2 and ends with its ERET. Within it, a core serves
//! pending interrupts when it acknowledges one, or waits for one: both end one *stretch* of
//! instructions, and begin another. The longest stretch of each cause is kept, with its addresses.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::statistics::{Stretch, Visits};
use cloison_abi::{Call, irq, map, psci};

/// Largest distance in instructions between two ISBs at the same address that belong to one loop
/// that waits.
const LOOP: u64 = 16;
/// Interrupt numbers of a core, as the Base System Architecture assigns them: a board may have
/// other ones for the PMU.
const PMU: [u32; 1] = [23];
const MAINTENANCE: u32 = 25;
const EL2_TIMER: u32 = 26;
const SPURIOUS: u32 = 1020;

/// The state at the entry of a guest's core into EL2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    /// Address of the vector.
    pub vector: u64,
    /// ESR_EL2.
    pub esr: u64,
    /// ELR_EL2: where the guest was.
    pub elr: u64,
    /// HPFAR_EL2: where an abort was.
    pub hpfar: u64,
    /// The guest's X0: the number of the function that it calls.
    pub x0: u64,
}

/// Returns what a guest's synchronous exception is about, as two parts of a name. Devices are told by
/// their addresses in the map `cloison`: in another one, their visits count as `abort`.
fn exception(entry: Entry) -> [&'static str; 2] {
    let name = match entry.esr >> 26 & 0x3f {
        0x01 => "wait",
        0x16 | 0x17 => return function(entry.x0 as u32),
        0x18 => "sysreg",
        0x20 => "abort",
        0x24 => match (entry.hpfar & 0xf_ffff_ffff_fff0) << 8 {
            map::GICD => "gicd",
            page if page & !0x1fff == map::GICC => "gicc",
            map::UART => "uart",
            map::SERVICES => "services_page",
            _ => "abort",
        },
        _ => "other",
    };
    [name, ""]
}

fn function(number: u32) -> [&'static str; 2] {
    if let Some(call) = Call::from_id(number) {
        return ["hypercall_", call.into()];
    }
    let name = match number {
        psci::SYSTEM_OFF => "end",
        psci::SYSTEM_RESET => "restart",
        psci::CPU_OFF => "psci_cpu_off",
        0x8400_0000..=0x8400_001f | 0xc400_0000..=0xc400_001f => "psci",
        _ => "hypercall_unknown",
    };
    [name, ""]
}

/// Returns what an interrupt is about. `overflows` are the interrupts of the performance monitors.
fn interrupt(number: u32, overflows: &[u32]) -> &'static str {
    match number & 0x3ff {
        0..16 => "irq_sgi",
        irq::VTIMER => "irq_timer",
        EL2_TIMER => "irq_deadline",
        number if overflows.contains(&number) => "irq_overflow",
        MAINTENANCE => "irq_maintenance",
        SPURIOUS.. => "irq_spurious",
        _ => "irq_device",
    }
}

/// The state of a core.
#[derive(Clone, Debug, Default)]
struct Core {
    /// In a guest, so that the next instruction at EL2 is an entry.
    in_guest: bool,
    /// The running stretch.
    stretch: Option<Stretch>,
    /// Its purpose.
    cause: String,
    /// The cause is named by the first interrupt that the core acknowledges.
    is_interrupt: bool,
    /// The last ISB in the stretch, and the number of instructions before it.
    barrier: Option<(u64, u64)>,
}

/// Follows all cores.
#[derive(Debug, Default)]
pub struct Follower {
    cores: Vec<Core>,
    visits: Visits,
    /// Interrupts of the performance monitors.
    overflows: Vec<u32>,
    /// Addresses of functions that name what a visit is for.
    marks: Vec<(u64, String)>,
}

impl Follower {
    /// Starts following `cores` cores, all of them in the hypervisor's start. `overflows` are the
    /// interrupts of their performance monitors if these are shared ones; if there are none,
    /// each core has the private one that the Base System Architecture assigns.
    pub fn new(cores: usize, mut overflows: Vec<u32>, marks: Vec<(u64, String)>) -> Self {
        if overflows.is_empty() {
            overflows.extend(PMU);
        }
        Self {
            cores: vec![Core::default(); cores],
            visits: Visits::default(),
            overflows,
            marks,
        }
    }

    /// Returns whether the core's next instruction at EL2 is an entry from a guest.
    pub fn is_in_guest(&self, core: usize) -> bool {
        self.cores[core].in_guest
    }

    /// Returns whether the function at this address names the purpose of a visit.
    pub fn is_mark(&self, address: u64) -> bool {
        self.marks.iter().any(|(mark, _)| *mark == address)
    }

    /// Begins a visit.
    pub fn enter(&mut self, core: usize, entry: Entry) {
        let core = &mut self.cores[core];
        core.in_guest = false;
        core.is_interrupt = false;
        core.cause.clear();
        core.cause.extend(match entry.vector & 0x780 {
            0x400 => exception(entry),
            0x480 | 0x500 => {
                core.is_interrupt = true;
                ["irq", ""]
            }
            0x580 => ["serror", ""],
            _ => ["aarch32", ""],
        });
        let Entry {
            vector, elr, x0, ..
        } = entry;
        // An interrupt leaves the register as it was.
        let esr = if core.is_interrupt { 0 } else { entry.esr };
        core.barrier = None;
        core.stretch = Some(Stretch {
            instructions: 0,
            waiting: 0,
            esr,
            elr,
            x0,
            from: vector,
            to: vector,
        });
    }

    /// Counts an instruction at EL2.
    pub fn execute(&mut self, core: usize, address: u64) {
        let core = &mut self.cores[core];
        if let Some(stretch) = &mut core.stretch {
            stretch.instructions += 1;
            stretch.to = address;
        }
    }

    /// Names the purpose of the visit, if the function at this address does.
    pub fn mark(&mut self, core: usize, address: u64) {
        let core = &mut self.cores[core];
        if let Some((_, cause)) = self.marks.iter().find(|(mark, _)| *mark == address) {
            core.cause.clone_from(cause);
            core.is_interrupt = false;
        }
    }

    /// Handles an ISB: a loop that waits for another core, or for a device, has one.
    pub fn barrier(&mut self, core: usize, address: u64) {
        let core = &mut self.cores[core];
        if let Some(stretch) = &mut core.stretch {
            if let Some((last, at)) = core.barrier
                && last == address
                && stretch.instructions - at <= LOOP
            {
                stretch.waiting += stretch.instructions - at;
            }
            core.barrier = Some((address, stretch.instructions));
        }
    }

    /// Handles the acknowledgment of an interrupt: one stretch ends, and another begins.
    pub fn acknowledge(&mut self, core: usize, address: u64, acknowledged: u32) {
        if self.cores[core].stretch.is_none() && self.cores[core].cause.is_empty() {
            // Before the first guest.
            return;
        }
        if self.cores[core].stretch.is_none() {
            self.cores[core].is_interrupt = true;
        }
        if self.cores[core].is_interrupt {
            self.cores[core].is_interrupt = false;
            interrupt(acknowledged, &self.overflows).clone_into(&mut self.cores[core].cause);
        }
        let next = self.end(core);
        self.cores[core].stretch = Some(Stretch {
            from: address,
            to: address,
            ..next
        });
    }

    /// Handles a WFI at EL2: any interrupt wakes it.
    pub fn wait(&mut self, core: usize) {
        self.end(core);
    }

    /// Handles the ERET to a guest.
    pub fn leave(&mut self, core: usize) {
        self.end(core);
        self.cores[core].in_guest = true;
    }

    /// Ends the running stretch. Returns the one that may follow.
    fn end(&mut self, core: usize) -> Stretch {
        let core = &mut self.cores[core];
        core.barrier = None;
        let Some(stretch) = core.stretch.take() else {
            return Stretch::default();
        };
        let next = Stretch {
            instructions: 0,
            waiting: 0,
            ..stretch
        };
        let longest = self.visits.longest.entry(core.cause.clone()).or_default();
        self.visits.stretches += 1;
        if stretch.instructions > longest.instructions {
            *longest = stretch;
        }
        next
    }

    /// Returns the longest stretches so far.
    pub const fn visits(&self) -> &Visits {
        &self.visits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: u64 = 0x40_0000_1000;

    fn entry(vector: u64, class: u64) -> Entry {
        Entry {
            vector: VECTORS + vector,
            esr: class << 26,
            elr: 0x4000_1234,
            ..Entry::default()
        }
    }

    fn run(follower: &mut Follower, instructions: u64) {
        (0..instructions).for_each(|at| follower.execute(0, VECTORS + 0x1000 + 4 * at));
    }

    fn follower() -> Follower {
        let mut follower = Follower::new(1, vec![], vec![(0x77, "migration".into())]);
        // What runs before the first guest is no visit.
        run(&mut follower, 1000);
        follower.acknowledge(0, 0x99, 3);
        run(&mut follower, 1000);
        follower.leave(0);
        assert!(follower.visits().longest.is_empty() && follower.is_in_guest(0));
        follower
    }

    fn longest(follower: &Follower) -> Vec<(&str, u64)> {
        follower
            .visits()
            .longest
            .iter()
            .map(|(cause, stretch)| (cause.as_str(), stretch.instructions))
            .collect()
    }

    #[test]
    fn the_longest_visit_of_a_cause_is_kept_with_its_place() {
        let mut follower = follower();
        for (class, instructions) in [(0x18, 10), (0x18, 30), (0x18, 20), (0x01, 5)] {
            follower.enter(0, entry(0x400, class));
            assert!(!follower.is_in_guest(0));
            run(&mut follower, instructions);
            follower.leave(0);
        }
        assert_eq!(longest(&follower), [("sysreg", 30), ("wait", 5)]);
        let stretch = &follower.visits().longest["sysreg"];
        assert_eq!(
            (stretch.elr, stretch.from, stretch.to),
            (0x4000_1234, VECTORS + 0x400, VECTORS + 0x1000 + 4 * 29)
        );
    }

    #[test]
    fn exceptions_are_told_apart() {
        let hypercall = |x0| Entry {
            x0,
            ..entry(0x400, 0x16)
        };
        let abort = |hpfar| Entry {
            hpfar,
            ..entry(0x400, 0x24)
        };
        for (entry, cause) in [
            (hypercall(0xc600_0003), "hypercall_migrate"),
            (hypercall(0xffff_ffff_c600_0009), "hypercall_time"),
            (hypercall(0xc600_0055), "hypercall_unknown"),
            (hypercall(0xc400_0003), "psci"),
            (hypercall(0x8400_0009), "restart"),
            (abort(map::GICD >> 8), "gicd"),
            (abort((map::GICC + 0x1000) >> 8), "gicc"),
            (abort(map::UART >> 8 | 0xf), "uart"),
            (abort(0x9000_0000 >> 8), "abort"),
            (entry(0x400, 0x20), "abort"),
            (entry(0x580, 0), "serror"),
            (entry(0x600, 0), "aarch32"),
        ] {
            let mut follower = follower();
            follower.enter(0, entry);
            run(&mut follower, 1);
            follower.leave(0);
            assert_eq!(longest(&follower), [(cause, 1)], "{entry:x?}");
        }
    }

    #[test]
    fn an_interrupt_names_its_visit_and_an_acknowledgment_divides_one() {
        let mut follower = follower();
        follower.enter(0, entry(0x480, 0));
        run(&mut follower, 20);
        follower.acknowledge(0, 0x99, irq::VTIMER);
        run(&mut follower, 15);
        follower.leave(0);
        assert_eq!(longest(&follower), [("irq_timer", 20)]);
        // In the middle of a call: it is still the call's.
        follower.enter(
            0,
            Entry {
                x0: 0xc600_0004,
                ..entry(0x400, 0x16)
            },
        );
        run(&mut follower, 40);
        follower.acknowledge(0, 0x99, 1023);
        run(&mut follower, 50);
        follower.acknowledge(0, 0x99, EL2_TIMER);
        run(&mut follower, 45);
        follower.leave(0);
        assert_eq!(
            longest(&follower),
            [("hypercall_restore", 50), ("irq_timer", 20)]
        );
    }

    #[test]
    fn time_in_wfi_is_nobodys_and_what_follows_is_the_interrupts() {
        let mut follower = follower();
        follower.enter(
            0,
            Entry {
                x0: 0x8400_0002,
                ..entry(0x400, 0x16)
            },
        );
        run(&mut follower, 7);
        follower.wait(0);
        run(&mut follower, 100);
        follower.acknowledge(0, 0x99, 2 | 1 << 10);
        run(&mut follower, 9);
        follower.wait(0);
        assert_eq!(longest(&follower), [("irq_sgi", 9), ("psci_cpu_off", 7)]);
    }

    #[test]
    fn a_function_may_name_the_visit() {
        let mut follower = follower();
        follower.enter(0, entry(0x480, 0));
        follower.acknowledge(0, 0x99, EL2_TIMER);
        run(&mut follower, 4);
        follower.mark(0, 0x78);
        follower.mark(0, 0x77);
        run(&mut follower, 4);
        follower.leave(0);
        assert_eq!(longest(&follower), [("irq_deadline", 0), ("migration", 8)]);
    }

    #[test]
    fn loops_with_a_barrier_are_waiting() {
        let mut follower = follower();
        follower.enter(0, entry(0x400, 0x18));
        for _ in 0..10 {
            run(&mut follower, 5);
            follower.barrier(0, 0x100);
        }
        run(&mut follower, 5);
        // Another barrier, and the same one much later.
        follower.barrier(0, 0x200);
        run(&mut follower, 100);
        follower.barrier(0, 0x200);
        follower.leave(0);
        let stretch = &follower.visits().longest["sysreg"];
        assert_eq!((stretch.instructions, stretch.waiting), (155, 45));
    }

    #[test]
    fn overflows_are_those_of_the_board() {
        assert_eq!(interrupt(23, &PMU), "irq_overflow");
        let zcu102 = [175, 176, 177, 178];
        assert_eq!(
            [23, 177].map(|number| interrupt(number, &zcu102)),
            ["irq_device", "irq_overflow"]
        );
        assert_eq!(Follower::new(1, vec![], vec![]).overflows, PMU);
    }
}
