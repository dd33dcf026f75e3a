//! The oracle: compares what EL2 does with `cloison-spec`, visit by visit, on the image that ships.
//!
//! What it compares comes from the machine: the tables in memory, system registers, the GIC's list
//! registers, EL2's stores and maintenance instructions, and from the configuration in the system
//! image. It uses no symbol of the hypervisor. A vCPU starts where EL2 writes SCTLR_EL1, which no
//! other visit does, as a core has one vCPU.
//!
//! Per visit it follows stores and instructions; the guest's registers and the list registers are
//! compared in the first visits, in one of [`Wanted::every`] after them, and at each start of a vCPU.
//! That a VM starts in time is compared where guest time is counted (`-icount`).
//! Its counts are those of the thread that all vCPUs share: what cores do at the same instant is out
//! of its reach.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod calls;
mod handles;
pub(crate) mod image;
mod links;
mod report;
mod tables;

use crate::instrument::{Finding, Instrument, Moment, Needs, Store};
use crate::prover::MAX_CORES;
use calls::{Calls, Open, PageAccess, Place};
use cloison_formats::addr::PhysAddr;
use cloison_formats::image::{GicVersion, System};
use cloison_spec::budget::Bucket;
use cloison_spec::interrupts::{self, ListRegister};
use cloison_spec::power::Request;
use cloison_spec::visit::{self, Cause, Registers};
use cloison_spec::{Difference, Rule, confinement, start};
use handles::Handles;
use links::Links;
use report::{First, Report, Ring, Visit};
use std::path::PathBuf;
use tables::Tables;

/// What is wanted of the oracle.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The image that QEMU loads.
    pub image: PathBuf,
    /// The file for the report.
    pub report: PathBuf,
    /// One of so many visits after the first ones has its registers compared.
    pub every: u64,
    /// Whether the run continues after a difference.
    pub goes_on: bool,
}

/// The first visits, which all have their registers compared: a fault that ends a boot may leave no
/// others.
const FIRST: u64 = 64;
/// One of so many comparisons of registers also walks the tables.
const WALKS: u64 = 1024;
/// The first vector of exceptions from a guest.
const FROM_GUEST: u16 = 0x400;
/// GICH_VTR, GICH_VMCR, GICH_APR and GICH_LR0 (IHI 0048B, 5.3).
const GICH_VTR: u64 = 0x04;
const GICH_VMCR: u64 = 0x08;
const GICH_APR: u64 = 0xf0;
const GICH_LR: u64 = 0x100;

/// MSR to HCR_EL2, MDCR_EL2 and CPTR_EL2, from x0.
const WRITTEN: [u32; 3] = [0xd51c_1100, 0xd51c_1120, 0xd51c_1140];

/// A core, since its guest last left.
#[derive(Clone, Debug, Default)]
struct Core {
    /// The VM and vCPU that it has.
    place: Option<Place>,
    /// Why it entered EL2; `None` before its first guest.
    cause: Option<Cause>,
    /// Where the guest was.
    pc: u64,
    /// The guest's registers, if they are compared.
    before: Option<Registers>,
    /// The guest's call.
    open: Option<Open>,
    /// The guest's access to the services page.
    page: Option<PageAccess>,
    /// What EL2 last wrote to HCR_EL2, MDCR_EL2 and CPTR_EL2.
    written: [u64; 3],
    /// EL2 has written SCTLR_EL1.
    starts: bool,
    /// EL2 has written a register that confines the guest.
    is_changed: bool,
    bucket: Option<Bucket>,
    /// Instructions of the guest since it entered.
    instructions: u64,
}

/// The oracle.
pub struct Oracle {
    wanted: Wanted,
    system: &'static System,
    handles: Option<Handles>,
    /// Guest time is counted. Else, what this does takes guest time, and nothing must have happened
    /// by some instant.
    counts_time: bool,
    tables: Tables,
    calls: Calls,
    links: Links,
    cores: [Core; MAX_CORES],
    ring: Ring,
    report: Report,
    finding: Option<Finding>,
    /// Rules that did not hold, where the run continues.
    seen: Vec<Rule>,
    /// Number of list registers, once it is known.
    lists: usize,
}

impl Oracle {
    /// Returns one for the image that QEMU loads.
    ///
    /// # Errors
    ///
    /// If the image cannot be read.
    pub fn new(wanted: Wanted) -> Result<Self, String> {
        let system: &'static System = Box::leak(Box::new(image::read(&wanted.image)?));
        let mut cores: [Core; MAX_CORES] = std::array::from_fn(|_| Core::default());
        for (vm, config) in system.vms.iter().enumerate() {
            for (vcpu, core) in config.cores.iter().enumerate() {
                let core = &mut cores[core.index() % MAX_CORES];
                core.place = Some((vm, vcpu));
                core.bucket = Bucket::of(system, vm, vcpu);
            }
        }
        Ok(Self {
            tables: Tables::of(system),
            calls: Calls::of(system),
            links: Links::of(system),
            report: Report::default(),
            wanted,
            system,
            handles: None,
            counts_time: false,
            cores,
            ring: Ring::default(),
            finding: None,
            seen: Vec::new(),
            lists: 0,
        })
    }

    /// Takes note of a check's result.
    fn judge(&mut self, at: &Moment<'_>, checked: Result<(), Difference>) {
        let Err(difference) = checked else { return };
        self.report.differences += 1;
        if self.wanted.goes_on && !self.seen.contains(&difference.rule) {
            self.seen.push(difference.rule);
            eprintln!("prover: {}: {difference}", difference.rule.id());
        }
        if self.report.first.is_some() {
            return;
        }
        let (time, done) = (now(at), self.report.instructions);
        self.report.first = Some(First::of(&difference, at.core, time, done, &self.ring));
        if !self.wanted.goes_on {
            self.finding = Some(Finding {
                rule: difference.rule.id().to_owned(),
                what: difference.to_string(),
                core: at.core,
            });
        }
    }

    /// Returns whether the core's virtual interface is in memory: a GICv3's is in system registers,
    /// which are not read here.
    fn reads_lists(&self) -> bool {
        self.system.board.gic.version() == GicVersion::V2
    }

    /// Reads a register of the core's virtual interface.
    fn gich(&self, at: &Moment<'_>, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        let address = self.system.board.gic.gich.0 + offset;
        at.machine.read_memory(at.cpu, address, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// Reads the list registers of the core, and GICH_HCR.
    fn lists(&mut self, at: &Moment<'_>) -> (u32, Vec<ListRegister>) {
        if self.lists == 0 {
            self.lists = (self.gich(at, GICH_VTR) & 63) as usize + 1;
        }
        let lists = (0..self.lists as u64)
            .map(|number| ListRegister(self.gich(at, GICH_LR + 4 * number)))
            .collect();
        (self.gich(at, 0), lists)
    }

    /// Follows the call or the access to the services page with which a guest has left.
    fn begin(&mut self, at: &Moment<'_>, place: Place, request: Option<Request>) {
        let time = now(at);
        if let Some(request) = request {
            let (before, rest) = self.cores.split_at_mut(at.core);
            let [own, after @ ..] = rest else { return };
            let mut opens = Vec::new();
            let mut buckets = Vec::new();
            for core in before.iter_mut().chain(after) {
                let Core {
                    place: other,
                    open,
                    bucket,
                    ..
                } = core;
                if other.is_some_and(|other| other.0 == place.0) {
                    opens.extend(open.as_mut());
                }
                buckets.extend(other.zip(bucket.as_mut()));
            }
            buckets.extend(own.place.zip(own.bucket.as_mut()));
            let (opens, buckets) = (opens.into_iter(), buckets.into_iter());
            own.open = Some(self.calls.begins(place, request, time, opens, buckets));
        }
        if let Some(access) = self.cores[at.core].page {
            let is_alone = self.system.vms[place.0].cores.len() == 1;
            let value = at.x(access.register);
            let buckets = buckets(&mut self.cores);
            self.calls
                .page_begins(place, (access, value), time, is_alone, buckets);
        }
    }

    /// Follows the end of what [`begin`](Self::begin) has followed.
    fn end(&mut self, at: &Moment<'_>, place: Place) -> Result<(), Difference> {
        let core = &mut self.cores[at.core];
        let (open, page) = (core.open.take(), core.page.take());
        let time = now(at);
        if let Some(open) = open {
            let result = (at.x(0) as i64, at.x(1));
            let buckets = buckets(&mut self.cores);
            self.calls.ends(place, open, result, time, buckets)?;
        }
        match page {
            Some(access) => {
                let is_alone = self.system.vms[place.0].cores.len() == 1;
                let value = at.x(access.register);
                self.calls.page_ends(place, access, value, is_alone)
            }
            None => Ok(()),
        }
    }

    /// Checks a core that is about to enter its guest.
    fn check_return(
        &mut self,
        at: &Moment<'_>,
        handles: &Handles,
        place: Place,
    ) -> Result<(), Difference> {
        let core = &mut self.cores[at.core];
        let starts = std::mem::take(&mut core.starts);
        let changed = std::mem::take(&mut core.is_changed);
        let (before, written, pc) = (core.before.take(), core.written, core.pc);
        let (vm, vcpu) = place;
        self.links.leaves(at, vm, &self.tables);
        self.tables.leave(at.core)?;
        if starts {
            (core.open, core.page) = (None, None);
            self.check_start(at, handles, place)?;
        } else {
            // An access that ended in the guest's vector has no result.
            if handles.is_in_place(pc) {
                self.end(at, place)?;
            }
            self.calls.power.continues(vm, vcpu, now(at))?;
        }
        if changed || starts {
            confinement::check(self.system, vm, vcpu, &handles.confinement(written))?;
        }
        let Some(before) = before else {
            return Ok(());
        };
        self.report.compared += 1;
        if self.report.compared.is_multiple_of(WALKS) {
            let root = confinement::root(handles.vttbr.read());
            self.tables.compare(at, vm, root)?;
            confinement::check(self.system, vm, vcpu, &handles.confinement(written))?;
        }
        if self.reads_lists() {
            let (control, lists) = self.lists(at);
            interrupts::check(self.system, vm, control, &lists)?;
        }
        match self.cores[at.core].cause {
            Some(cause) if !starts => visit::check(cause, &before, &handles.guest(at)),
            _ => Ok(()),
        }
    }

    /// Checks a vCPU's first instruction.
    fn check_start(
        &mut self,
        at: &Moment<'_>,
        handles: &Handles,
        (vm, vcpu): Place,
    ) -> Result<(), Difference> {
        self.report.starts += 1;
        let root = confinement::root(handles.vttbr.read());
        if self.tables.knows(vm) {
            self.tables.compare(at, vm, root)?;
        } else {
            self.tables.walk(at, vm, root)?;
        }
        let found = handles.guest(at);
        if vcpu == 0 {
            self.calls.restarts(vm);
            self.links.restarts(vm);
        }
        if let Some(bucket) = &mut self.cores[at.core].bucket {
            bucket.release();
        }
        let first = self
            .calls
            .power
            .starts(self.system, (vm, vcpu), found.pc, found.x[0])?;
        start::check(first, &found, handles.sctlr(), &handles.zeros())?;
        let (vectors, controls) = handles.vectors();
        start::check_fp(&vectors, controls)?;
        if !self.reads_lists() {
            return Ok(());
        }
        let (control, lists) = self.lists(at);
        interrupts::check(self.system, vm, control, &lists)?;
        let (vmcr, apr) = (self.gich(at, GICH_VMCR), self.gich(at, GICH_APR));
        interrupts::check_start(vmcr, apr, &lists)
    }

    /// Counts what the guest has executed against its budget.
    fn charge(&mut self, at: &Moment<'_>) -> Result<(), Difference> {
        let core = &mut self.cores[at.core];
        let events = std::mem::take(&mut core.instructions);
        self.report.instructions += events;
        match &mut core.bucket {
            Some(bucket) => bucket.add(events, now(at)),
            None => Ok(()),
        }
    }
}

/// Returns the buckets of all cores that have one, with their places.
fn buckets(cores: &mut [Core]) -> impl Iterator<Item = (Place, &mut Bucket)> {
    cores
        .iter_mut()
        .filter_map(|core| core.place.zip(core.bucket.as_mut()))
}

/// Returns guest time in nanoseconds.
fn now(at: &Moment<'_>) -> u64 {
    at.internals.clock().max(0) as u64
}

/// Returns whether a visit has its registers compared; the first visit is number 1.
const fn is_compared(visit: u64, every: u64) -> bool {
    visit <= FIRST || visit.is_multiple_of(every)
}

/// Returns whether an instruction writes SCTLR_EL1.
const fn starts_vcpu(word: u32) -> bool {
    word & !31 == 0xd518_1000
}

/// Returns whether an instruction writes a register of EL2 that may confine a guest: not those for a
/// return (ELR_EL2, SPSR_EL2), and not the hypervisor's timer.
const fn confines(word: u32) -> bool {
    let (n, m) = (word >> 12 & 15, word >> 8 & 15);
    word & 0xffff_0000 == 0xd51c_0000 && n != 4 && !(n == 14 && m == 2)
}

impl Instrument for Oracle {
    fn needs(&self) -> Needs {
        Needs {
            stores: true,
            system: true,
            guest_blocks: self.links.are_some()
                || self.cores.iter().any(|core| core.bucket.is_some()),
            ..Needs::default()
        }
    }

    fn enters(&mut self, at: &Moment<'_>, vector: u16) {
        let Some((vm, vcpu)) = self.cores[at.core].place else {
            return;
        };
        if vector < FROM_GUEST {
            return;
        }
        let Some(handles) = self.handles.take() else {
            return;
        };
        let esr = handles.esr.read();
        let cause = match vector & 0x180 {
            0 => Cause::Synchronous(esr),
            0x180 => Cause::SError,
            _ => Cause::Interrupt,
        };
        let is_call = matches!(cause, Cause::Synchronous(esr) if visit::is_call(esr));
        let call = is_call.then(|| std::array::from_fn(|number| at.x(number as u32)));
        self.ring.add(Visit {
            number: 0,
            core: at.core,
            vector,
            esr,
            pc: handles.pc(),
            call,
        });
        let request = call.map(|[function, first, second, third]| Request {
            function: function as u32,
            arguments: [first, second, third],
        });
        let fault = matches!(cause, Cause::Synchronous(esr) if visit::is_data_abort(esr))
            .then(|| handles.fault_ipa());
        let page = fault
            .and_then(|fault| PageAccess::of(esr, fault, self.system.vms[vm].map.services))
            .filter(|_| self.system.vms[vm].services_page);
        self.links.enters(at, (vm, vcpu), esr, fault);
        let is_compared = is_compared(self.ring.count, self.wanted.every);
        let core = &mut self.cores[at.core];
        core.cause = Some(cause);
        core.pc = handles.pc();
        (core.open, core.page) = (None, page);
        core.starts = false;
        core.before = is_compared.then(|| handles.guest(at));
        self.handles = Some(handles);
        self.calls.may_type(at.core);
        self.begin(at, (vm, vcpu), request);
        if self.counts_time {
            let checked = self.calls.power.check_due(now(at));
            self.judge(at, checked);
        }
    }

    fn leaves(&mut self, at: &Moment<'_>) {
        let Some(place) = self.cores[at.core].place else {
            return;
        };
        let Some(handles) = self.handles.take() else {
            return;
        };
        // A return within EL2.
        if handles.mode() >> 2 & 3 != 2 {
            let checked = self.check_return(at, &handles, place);
            self.judge(at, checked);
            let charged = self.charge(at);
            self.judge(at, charged);
        }
        self.handles = Some(handles);
    }

    fn ignores(&self, address: u64) -> bool {
        self.tables.has_own(PhysAddr(address))
    }

    fn stores(&mut self, at: &Moment<'_>, store: Store) {
        let Some((vm, _)) = self.cores[at.core].place else {
            return;
        };
        if store.is_device || !self.tables.knows(vm) {
            return;
        }
        let wired = match self.links.are_some() {
            true => self.links.store(at, vm, store, &self.tables),
            false => Ok(()),
        };
        let checked = wired.and_then(|()| self.tables.store(at, vm, store));
        self.judge(at, checked);
    }

    fn executes(&mut self, at: &Moment<'_>) {
        if self.handles.is_none() {
            match Handles::find(at.names) {
                Ok(handles) => {
                    self.handles = Some(handles);
                    self.counts_time = at.internals.counts_time();
                }
                Err(error) => cloison_qemu::ffi::fail(&error),
            }
        }
        let core = &mut self.cores[at.core];
        core.starts |= starts_vcpu(at.word);
        core.is_changed |= confines(at.word);
        if let Some(which) = WRITTEN.iter().position(|word| *word == at.word & !31) {
            core.written[which] = at.operand();
        }
        if let Some((vm, _)) = core.place {
            self.tables.executes(at, vm);
        }
    }

    fn guest_block(&mut self, at: &Moment<'_>, instructions: usize) {
        let core = &mut self.cores[at.core];
        core.instructions += instructions as u64;
        if let Some((vm, _)) = core.place {
            self.links.ran(vm);
        }
    }

    fn finding(&mut self) -> Option<Finding> {
        self.finding.take()
    }

    fn ends(&mut self) {
        self.report.visits = self.ring.count;
        self.report.entries = self.tables.changes;
        report::write(&self.report, &self.wanted.report);
        if let Some(first) = &self.report.first {
            eprintln!(
                "prover: {} ({}) does not hold: {}.\n  {}: expected {}, found {}\n  core {}, after \
                 {} visits and {} ns; {} has the last visits",
                first.rule,
                first.promise,
                first.sentence,
                first.place,
                first.expected,
                first.found,
                first.core,
                self.report.visits,
                first.time,
                self.wanted.report.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_the_first_visits_is_compared_and_then_one_of_so_many() {
        let compared: Vec<u64> = (1..=100).filter(|visit| is_compared(*visit, 10)).collect();
        assert_eq!(compared[..64], (1..=64).collect::<Vec<_>>());
        assert_eq!(compared[64..], [70, 80, 90, 100]);
    }

    #[test]
    fn instructions_that_matter_are_told_from_others() {
        assert!(starts_vcpu(0xd518_1008)); // msr sctlr_el1, x8
        assert!(!starts_vcpu(0xd51c_1008)); // msr sctlr_el2, x8
        assert!(confines(0xd51c_1108)); // msr hcr_el2, x8
        assert!(confines(0xd51c_2100)); // msr vttbr_el2, x0
        assert!(!confines(0xd51c_4020)); // msr elr_el2, x0
        assert!(!confines(0xd51c_e220)); // msr cnthp_ctl_el2, x0
        assert!(!confines(0xd518_1008));
    }
}
