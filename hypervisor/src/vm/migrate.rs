//! Migration: changes the frame or the cacheability of a page under a running VM, which notices
//! only the time.
//!
//! Break before make: the page is unmapped for all vCPUs (descriptor invalid, TLBs cleared),
//! written back, copied, written back again, and given its new frame. A vCPU that accesses it
//! meanwhile faults into EL2 and waits there (`traps`). Only one core at a time does this for a VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::machine::stage2::{Cacheability, Mapping};
use crate::machine::sysreg;
use crate::vm::cpu::{Cpu, Guest, Visit};
use crate::vm::partition::{self, Away, Memory, Pages, Vm};
use crate::vm::{interrupts, logger, telemetry};
use alloc::vec::Vec;
use cloison_abi::reply::{Colors, PageState, PrivatePool};
use cloison_abi::{Call, CallError, lease, list};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::image::{self, Backing};
use cloison_formats::telemetry::{MigrationOutcome, MigrationRecord, Record};
use cloison_formats::units::Nanos;
use cloison_logic::clock::Instant;
use cloison_logic::limit::Topic;
use cloison_logic::quota::Effort;
use core::cell::Cell;
use log::Level;
use spin::mutex::TicketMutexGuard;

/// Pages per batch: what is between two points at which interrupts, deadlines and requests to stop
/// are served. One broadcast invalidates the translations of a batch, one the instruction caches.
const BATCH: usize = 2;
/// Pieces of records that are sent after a batch, at most, where many wait.
const PIECES: u32 = 8;
/// Pages that are looked at for a batch.
///
/// A look-up is far cheaper than a move, so that a batch of pages that need no move has more of
/// them.
const CHECKED: usize = 16;
/// Entries of a list in a cache line.
const ENTRIES_PER_LINE: u64 = 8;
/// Pages per batch where only the cacheability changes.
const CHANGES: usize = 8;
/// Mark of a page that is away without a lease.
const UNLEASED: u8 = 1;
/// Mark of a page that is away until the lease ends.
const LEASED: u8 = 2;
/// How long a core waits until it tries again to end leases, where another call is changing pages.
const RETRY: Nanos = Nanos(1_000_000);

/// What a core does between batches of work for a VM.
#[derive(Clone, Copy)]
pub enum Pace {
    /// Nothing: no guest runs yet.
    AtBoot,
    /// It serves what is pending and pays.
    Visit(Visit),
    /// The same; its vCPU is off, and to start that comes first.
    Idle(Visit),
}

/// What is wrong with a list.
pub struct ListError {
    /// The error.
    pub error: CallError,
    /// The number of the entry, or `list::NO_ENTRY`.
    pub entry: u64,
}

impl From<CallError> for ListError {
    fn from(error: CallError) -> Self {
        let entry = list::NO_ENTRY;
        Self { error, entry }
    }
}

/// The number of pages that a call has moved or changed.
type Listed = Result<u64, ListError>;

/// Who works on the pages of which VM.
///
/// Pages belong to the VM, not to a core: the core that received the request does the work, for any
/// page.
#[derive(Clone, Copy)]
pub struct Work {
    /// The core.
    pub cpu: &'static Cpu,
    /// The VM, whose core it is.
    pub vm: &'static Vm,
    /// What the core does between batches.
    pub pace: Pace,
}

impl Work {
    /// Returns the work before any guest runs.
    pub fn at_boot(cpu: &'static Cpu, vm: &'static Vm) -> Self {
        let pace = Pace::AtBoot;
        Self { cpu, vm, pace }
    }

    /// Returns the work of a vCPU's core, or of one that carries out an order.
    pub fn new(visit: Visit) -> Self {
        Self {
            pace: Pace::Visit(visit),
            ..Self::at_boot(visit.cpu, visit.vm)
        }
    }

    /// Pauses between batches, after the work `done`. Returns whether to continue, which a vCPU
    /// that has to stop does not.
    pub fn pause(&self, done: Effort) -> bool {
        match self.pace {
            Pace::AtBoot => true,
            Pace::Visit(visit) => interrupts::pause(visit, done, || false),
            Pace::Idle(visit) => {
                interrupts::pause(visit, done, || self.vm.power.is_wanted(visit.vcpu))
            }
        }
    }

    /// Returns what has been changed of the VM's pages, unless another call is changing them.
    ///
    /// `try_lock`: the holder pauses between batches, possibly until its budget is replenished. A
    /// second caller gets an error instead of waiting so long, and may try again. Locks are taken
    /// in this order: the pages, the lease or the memory of all VMs.
    fn pages(&self) -> Result<TicketMutexGuard<'static, Pages>, CallError> {
        self.vm.pages.try_lock().ok_or(CallError::Busy)
    }

    /// Moves up to [`BATCH`] pages of RAM: to their frames in the other pool, or home. Logs each.
    fn exchange(&self, pages: &[Away], outcome: MigrationOutcome) {
        let Self { cpu, vm, .. } = self;
        if pages.is_empty() {
            return;
        }
        let _off = vm.keep_off();
        // Restored and rolled back pages go home.
        let goes = outcome == MigrationOutcome::Moved;
        let to = |page: &Away| if goes { page.frame } else { page.home };
        // From the first change of a table to the last barrier: what a record reports.
        let began = timer::now();
        // All become `Some`: `place` and `come_back` pass pages of RAM that are mapped, and the
        // lock of the pages keeps any other core from unmapping them. So the pairs of `changes`
        // match by position.
        let mut unmapped = [None; BATCH];
        for (page, unmapped) in pages.iter().zip(&mut unmapped) {
            *unmapped = vm.stage2.unmap(page.ipa);
        }
        let changes = || pages.iter().zip(unmapped.iter().flatten());
        // Break: after this no core has the old translation, and no store to the old frame is in
        // flight (the broadcast ends with a DSB).
        sysreg::tlbi_ipas(pages.iter().map(|page| page.ipa));
        for (page, unmapped) in changes() {
            // SAFETY: the page has just been unmapped, and the other frame is a free one of the
            // VM's pool, or its own.
            unsafe { cpu.windows.copy(unmapped.before.frame, to(page)) };
        }
        // The pages may contain instructions.
        // Once for the batch, because it reaches all cores.
        sysreg::invalidate_instruction_caches();
        for (page, unmapped) in changes() {
            let before = unmapped.before;
            // The board model is told of frames: the new one is no longer cached, and the old one
            // may be.
            if before.cacheability == Cacheability::NonCacheable {
                sysreg::tell_cacheable(to(page), false);
                sysreg::tell_cacheable(before.frame, true);
            }
            // The mark in the descriptor makes a second move of the same page a look-up.
            let mark = if goes { page.mark } else { 0 };
            unmapped.remap(Mapping {
                frame: to(page),
                mark,
                ..before
            });
        }
        // The pages of a batch share its broadcasts: each is reported with an equal part.
        let took = Nanos(cpu.clock.nanos(timer::now().since(began)).0 / pages.len() as u64);
        for (page, unmapped) in changes() {
            self.log(page.ipa, unmapped.before.frame, to(page), took, outcome);
        }
    }

    /// Logs what happened to one page. `from` equals `to` where a page did not move because the
    /// pool was full.
    fn log(&self, ipa: Ipa, from: PhysAddr, to: PhysAddr, took: Nanos, outcome: MigrationOutcome) {
        let record = MigrationRecord {
            vm: self.vm.id,
            ipa,
            from,
            to,
            took,
            outcome,
        };
        telemetry::record(self.cpu, Record::Migration(record));
    }

    /// Takes a frame for a page of RAM, unless it has moved there already. The pages are locked: it
    /// is not moving.
    fn place(&self, away: &mut Vec<Away>, ipa: Ipa, mark: u8) -> Result<(), CallError> {
        let home = self.vm.stage2.mapping(ipa).ok_or(CallError::Invalid)?;
        if home.mark != 0 {
            // A page that is away without a lease stays, for any call. One that is away with the
            // lease would move back at its end, so a call without the lease is refused.
            return if [mark, UNLEASED].contains(&home.mark) {
                Ok(())
            } else {
                Err(CallError::Taken)
            };
        }
        // The list was given its capacity at boot: EL2 allocates nothing while guests run.
        if away.len() == away.capacity() {
            return Err(CallError::PoolFull);
        }
        // The pools are shared with other VMs; the lock is held for one frame.
        let mut memory = partition::memory().lock();
        let Memory { frames, pools, .. } = &mut *memory;
        let pool = &mut pools[target(self.vm)?];
        let frame = pool.allocate(frames).map_err(|_| CallError::PoolFull)?;
        away.push(Away {
            ipa,
            home: home.frame,
            frame,
            mark,
        });
        Ok(())
    }

    /// Moves the pages `of` something back home, from the last one on, but none of the first
    /// `count`. Returns how many.
    fn come_back(
        &self,
        away: &mut Vec<Away>,
        count: usize,
        why: MigrationOutcome,
        of: impl Fn(&Away) -> bool,
    ) -> u64 {
        let mut moved = 0;
        // From the end: a rollback undoes the moves in reverse order.
        let mut at = away.len();
        while at > count {
            // Those of a batch are put at the end.
            let mut first = away.len();
            let top = at;
            for page in (at.saturating_sub(CHECKED).max(count)..at).rev() {
                at = page;
                if of(&away[page]) {
                    // What is swapped to `page` was looked at before, since the search goes down.
                    first -= 1;
                    away.swap(page, first);
                }
                if away.len() - first == BATCH {
                    break;
                }
            }
            // Empty if none of the pages looked at is meant: then the batch costs its look-ups.
            let pages = &away[first..];
            self.exchange(pages, why);
            let batch = pages.len() as u64;
            // The frames are free only now: `exchange` has mapped the pages elsewhere, and its
            // barrier has made all walks find that.
            for page in away.drain(first..).rev() {
                let mut memory = partition::memory().lock();
                let Memory { frames, pools, .. } = &mut *memory;
                let freed = target(self.vm).map(|pool| pools[pool].free(page.frame, frames));
                if let Ok(Err(error)) = freed {
                    // The frame stays taken: it is lost, but has never two owners.
                    log::error!("VM {}: frame not taken back: {error:?}", self.vm.spec.name);
                }
            }
            moved += batch;
            if !self.rest(
                Effort::PAGE
                    .times(batch)
                    .and(Effort::LOOKUP.times((top - at) as u64)),
            ) {
                break;
            }
        }
        moved
    }

    /// Pauses after a batch. Its records wait, unless more of them could be lost.
    fn rest(&self, batch: Effort) -> bool {
        // `drain` sends a piece, and returns whether nothing is left.
        let many_wait =
            |_: &u32| self.cpu.ring.borrow().is_filling() && !telemetry::drain(self.cpu);
        self.pause(batch)
            && (0..PIECES)
                .take_while(many_wait)
                .all(|_| self.pause(Effort::NONE))
    }

    /// Moves pages, all or none. Those that have already moved stay. Returns how many moved.
    fn move_all(
        &self,
        away: &mut Vec<Away>,
        mut ipas: impl ExactSizeIterator<Item = Ipa>,
        mark: u8,
    ) -> Listed {
        let before = away.len();
        let wanted = ipas.len();
        while ipas.len() > 0 {
            let first = away.len();
            let left = ipas.len();
            // The first page that cannot move ends its batch. The pages before it move all the
            // same, and come back with those of earlier batches.
            let mut wrong = None;
            for ipa in ipas.by_ref().take(CHECKED) {
                wrong = self.place(away, ipa, mark).err().map(|error| (ipa, error));
                if wrong.is_some() || away.len() - first == BATCH {
                    break;
                }
            }
            self.exchange(&away[first..], MigrationOutcome::Moved);
            let moved = Effort::PAGE.times((away.len() - first) as u64);
            if !self.rest(moved.and(Effort::LOOKUP.times((left - ipas.len()) as u64))) {
                // A vCPU that has to stop leaves the rest to the core that stops it.
                return Err(CallError::Busy.into());
            }
            // All or none: what this call has moved comes back, the last page first.
            let Some((ipa, error)) = wrong else { continue };
            let moved = self.come_back(away, before, MigrationOutcome::RolledBack, |_| true);
            if error == CallError::PoolFull {
                let page = self.vm.stage2.mapping(ipa);
                let at = page.map_or(PhysAddr(0), |page| page.frame);
                self.log(ipa, at, at, Nanos(0), MigrationOutcome::PoolFull);
                // On the console once, not for each page: the log has the pages.
                let full = format_args!(
                    ": pool full after {moved} of {wanted} pages; all {moved} are back where they \
                     were"
                );
                logger::about(self.vm, Level::Warn, Topic::Act, full);
            }
            // The entry that the iterator provided last.
            let entry = (wanted - ipas.len() - 1) as u64;
            return Err(ListError { error, entry });
        }
        Ok((away.len() - before) as u64)
    }

    /// Moves the `k` most important pages of the profile, all or none. Pages that have already
    /// moved stay.
    pub fn top(&self, k: u64) -> Result<u64, CallError> {
        let mut pages = self.pages()?;
        let profile = self.vm.spec.profile.as_ref().ok_or(CallError::Absent)?;
        // More pages than the profile has, or none, are an error.
        let top = profile
            .pages
            .get(..k as usize)
            .filter(|top| !top.is_empty());
        let ipas = top.ok_or(CallError::Invalid)?.iter().copied();
        self.move_all(&mut pages.away, ipas, UNLEASED)
            .map_err(|wrong| wrong.error)
    }

    /// Moves one page, identified by its IPA.
    pub fn one(&self, ipa: Ipa) -> Result<(), CallError> {
        target(self.vm)?;
        // Checked before the lock is taken: configuration only, which never changes.
        if !can_move(self.vm, ipa) {
            return Err(CallError::Invalid);
        }
        let mut pages = self.pages()?;
        match self.move_all(&mut pages.away, core::iter::once(ipa), UNLEASED) {
            // It is away already. A list ignores that; a call for one page reports it.
            Ok(0) => Err(CallError::Invalid),
            done => done.map(drop).map_err(|wrong| wrong.error),
        }
    }

    /// Moves every page back home, the last one first.
    pub fn restore_all(&self) -> Result<u64, CallError> {
        let mut pages = self.pages()?;
        Ok(self.come_back(&mut pages.away, 0, MigrationOutcome::Restored, |_| true))
    }

    /// Copies a list of pages, whose entries may have the bits `flags`, from the VM's memory.
    fn read_list(
        &self,
        entries: &mut Vec<u64>,
        at: u64,
        count: u64,
        flags: u64,
    ) -> Result<(), ListError> {
        // Within one page, because a window shows one frame. The frame is that of now; the lock of
        // the pages keeps it from moving.
        let within = at % PAGE_SIZE;
        let is_whole = at.is_multiple_of(8)
            && (1..=list::LONGEST).contains(&count)
            && within + count * 8 <= PAGE_SIZE;
        let Some(page) = self.vm.stage2.mapping(Ipa(at)).filter(|_| is_whole) else {
            return Err(CallError::List.into());
        };
        // Copied once, before anything is checked: the guest may change the list meanwhile, and
        // each entry is used several times.
        self.cpu.windows.read(page.frame, within, count, entries);
        self.pause(Effort::LINE.times(count.div_ceil(ENTRIES_PER_LINE)));
        let mut above = None;
        for (entry, &word) in (0..).zip(entries.iter()) {
            let ipa = Ipa(word & !flags);
            let is_page = if flags == 0 {
                can_move(self.vm, ipa)
            } else {
                ipa.is_page_aligned() && self.vm.has_ram(ipa)
            };
            // Ascending, so that no page occurs twice, and the list can be searched.
            if !is_page || above.is_some_and(|above| ipa <= above) {
                let error = CallError::Invalid;
                return Err(ListError { error, entry });
            }
            above = Some(ipa);
            if entry % CHECKED as u64 == 0 {
                self.pause(Effort::STEP.times(CHECKED as u64));
            }
        }
        Ok(())
    }

    /// Makes a call with a list of pages. Returns how many it moved or changed.
    pub fn listed(&self, call: Call, [at, count, number]: [u64; 3]) -> Listed {
        let mut pages = self.pages()?;
        let Pages {
            away,
            list,
            uncached,
        } = &mut *pages;
        let caches = call == Call::CachePages;
        if caches || number != 0 {
            // The lease is checked once, here. If it runs out meanwhile, its end waits for the lock
            // of the pages, and undoes this call too.
            let lease = self.vm.lease.lock();
            lease.check(number, timer::now())?;
        }
        let mark = if number == 0 { UNLEASED } else { LEASED };
        self.read_list(list, at, count, if caches { list::CACHED } else { 0 })?;
        if caches {
            let wanted = |&entry: &u64| {
                (
                    Ipa(entry & !list::CACHED),
                    Cacheability::ALL[(entry & list::CACHED) as usize],
                )
            };
            return Ok(self.change(uncached, list.iter().map(wanted)));
        }
        target(self.vm)?;
        if call == Call::MovePages {
            return self.move_all(away, list.iter().copied().map(Ipa), mark);
        }
        // The list ascends, as `read_list` has checked.
        let belongs = |page: &Away| page.mark == mark && list.binary_search(&page.ipa.0).is_ok();
        Ok(self.come_back(away, 0, MigrationOutcome::Restored, belongs))
    }

    /// Takes a lease (0), renews one, or ends it. Returns its number.
    pub fn lease(&self, number: u64, nanos: u64) -> Result<u64, CallError> {
        // No number and no time: there is neither a lease to take nor one to end.
        if nanos > lease::LONGEST_NANOS || number | nanos == 0 {
            return Err(CallError::Invalid);
        }
        // A lease that has run out does not keep a new one from being taken.
        if number == 0 && !self.end_due() {
            return Err(CallError::Busy);
        }
        let lease = &self.vm.lease;
        let now = timer::now();
        // Zero nanoseconds end the lease: it is due at once.
        let until = now + self.cpu.clock.ticks(Nanos(nanos));
        let number = match number {
            0 => lease.lock().take(until)?,
            _ => lease.lock().renew(number, now, until).map(|()| number)?,
        };
        // Where this vCPU cannot wait, the deadline ends it.
        while nanos == 0 && !self.end_due() && self.pause(Effort::NONE) {}
        self.wake_for_lease(lease.lock().until);
        Ok(number)
    }

    /// Sets the core's deadline for the end of the lease.
    fn wake_for_lease(&self, at: Option<Instant>) {
        self.cpu.deadlines.lease.set(at);
        self.cpu.deadlines.program();
    }

    /// Ends the lease if it has run out. Returns whether that is done, which it is not while
    /// another call changes pages, and where the vCPU has to stop.
    fn end_due(&self) -> bool {
        let Ok(mut pages) = self.pages() else {
            return false;
        };
        if !self.vm.lease.lock().is_due(timer::now()) {
            return true;
        }
        // Pages first, then the lease: as long as it is not ended, no other program can take one.
        self.undo(&mut pages, false);
        // A core that has to stop leaves the rest to the one that stops it, or to its next try.
        let is_done = self.pause(Effort::NONE);
        if is_done {
            self.vm.lease.lock().end();
        }
        is_done
    }

    /// Makes all pages of the VM cacheable, as at its first start, and has the lease's pages move
    /// back, or `all`.
    fn undo(&self, pages: &mut Pages, all: bool) {
        let Pages { away, uncached, .. } = pages;
        // Pages that moved without the lease stay, unless all are to go home.
        self.come_back(away, 0, MigrationOutcome::Restored, |page| {
            all || page.mark == LEASED
        });
        let all = self.vm.spec.regions.iter().flat_map(|region| {
            let pages = 0..region.pages.into();
            pages.map(|page| (region.ipa.page(page), Cacheability::WriteBack))
        });
        // Ends with the last page that is not cacheable: most VMs have none.
        self.change(uncached, all.take_while(|_| uncached.get() > 0));
    }

    /// Ends the lease if it has run out, at the core's deadline for that; tries again later where
    /// that cannot be now.
    pub fn on_lease_deadline(&self) {
        let next = if self.end_due() {
            self.vm.lease.lock().until
        } else {
            Some(timer::now() + self.cpu.clock.ticks(RETRY))
        };
        self.wake_for_lease(next);
    }

    /// Sets the cacheability of pages of RAM, from the one at `ipa` on, to `wanted`.
    pub fn set_cacheability(
        &self,
        at: Ipa,
        pages: u64,
        wanted: Cacheability,
    ) -> Result<(), CallError> {
        if !at.is_page_aligned() || pages == 0 || !self.vm.is_all_ram(at, pages) {
            return Err(CallError::Invalid);
        }
        // The lock, not only the count: no other call moves or changes these pages.
        let one_at_a_time = self.pages()?;
        if self.vm.lease.lock().until.is_some() {
            return Err(CallError::Taken);
        }
        self.change(
            &one_at_a_time.uncached,
            (0..pages).map(|page| (at.page(page), wanted)),
        );
        Ok(())
    }

    /// Sets the cacheability of pages of RAM; counts those that are `uncached`. Returns how many
    /// changed.
    ///
    /// Break before make, as in a migration: two vCPUs never see one page with different
    /// attributes. No line may stay in a cache in either direction: a dirty one would overwrite
    /// what was stored past it, and a clean one (from EL2's window, which is cached) would hide
    /// it.
    fn change(
        &self,
        uncached: &Cell<u64>,
        mut pages: impl Iterator<Item = (Ipa, Cacheability)>,
    ) -> u64 {
        let stage2 = &self.vm.stage2;
        let mut all = 0;
        loop {
            // On the stack: EL2 allocates nothing while guests run.
            let batch: heapless::Vec<_, CHANGES> = pages.by_ref().take(CHANGES).collect();
            let unmap = |&(ipa, wanted): &(Ipa, Cacheability)| {
                let page = stage2.mapping(ipa)?;
                // A page that is so already costs a look-up, and no broadcast.
                (page.cacheability != wanted).then_some(())?;
                Some((ipa, wanted, stage2.unmap(ipa)?))
            };
            let off = self.vm.keep_off();
            let changes: heapless::Vec<_, CHANGES> = batch.iter().filter_map(unmap).collect();
            if !changes.is_empty() {
                sysreg::tlbi_ipas(changes.iter().map(|(ipa, ..)| *ipa));
            }
            for &(_, cacheability, unmapped) in &changes {
                let before = unmapped.before;
                let is_cached = cacheability == Cacheability::WriteBack;
                // EL2's window is cacheable in either case: no line of the frame may be left.
                // Between break and make: no vCPU can bring a line back before the new attribute
                // holds.
                self.cpu.windows.flush(before.frame);
                sysreg::tell_cacheable(before.frame, is_cached);
                unmapped.remap(Mapping {
                    cacheability,
                    ..before
                });
                uncached.set(if is_cached {
                    uncached.get() - 1
                } else {
                    uncached.get() + 1
                });
            }
            drop(off);
            all += changes.len() as u64;
            let done = Effort::PAGE
                .times(changes.len() as u64)
                .and(Effort::LOOKUP.times(batch.len() as u64));
            // A core that has to stop leaves whole batches: each page has either attribute, and
            // `uncached` counts them, so that the reset of the VM finds what is left.
            if batch.is_empty() || !self.pause(done) {
                return all;
            }
        }
    }

    /// The VM's life ends, and its lease with it. Where another life follows, which finds its
    /// frames where the first one did, all pages move back.
    pub fn reset(&self, restarts: bool) {
        loop {
            // Its other vCPUs are off, but a core of theirs may be ending the lease.
            if let Ok(mut pages) = self.pages() {
                self.undo(&mut pages, restarts);
                // A call with the old lease's number fails from here on.
                return self.vm.lease.lock().end();
            }
            self.pause(Effort::NONE);
        }
    }

    /// Moves the profiled pages at the deadline; the guest keeps running on its other vCPUs.
    #[inline(never)]
    pub fn on_deadline(&self) {
        let Some(profile) = &self.vm.spec.profile else {
            return;
        };
        let about = |level, what| logger::about(self.vm, level, Topic::Act, what);
        match self.top(u64::from(profile.top)) {
            Ok(moved) => about(
                Level::Info,
                format_args!(": {moved} pages moved to its PVT pool"),
            ),
            Err(error) => about(Level::Warn, format_args!(": pages not moved: {error}")),
        }
    }
}

/// Returns the number of the pool to which a VM's pages can move.
///
/// An index into the pools of [`Memory`], in the order of the configuration.
fn target(vm: &Vm) -> Result<usize, CallError> {
    vm.spec.target.map(usize::from).ok_or(CallError::Absent)
}

/// Returns whether a page is one that can move.
///
/// Contiguous memory and devices stay where they are.
fn can_move(vm: &Vm, ipa: Ipa) -> bool {
    let in_pool =
        |region: &image::Region| region.contains(ipa) && matches!(region.backing, Backing::Pool(_));
    ipa.is_page_aligned() && vm.spec.regions.iter().any(in_pool)
}

/// Returns the pool to which the VM's pages can move.
pub fn private_pool(vm: &Vm) -> Result<PrivatePool, CallError> {
    let memory = partition::memory().lock();
    let pool = &memory.pools[target(vm)?];
    let colors = pool.spec.colors;
    // Without a limit, all frames of its colors, also those that other SH pools use.
    let frames: u32 = colors.iter().map(|color| memory.frames.total(color)).sum();
    let pages = pool.spec.limit.unwrap_or(frames).into();
    Ok(PrivatePool {
        colors: Colors(colors.0),
        pages,
        taken: pool.taken.into(),
    })
}

/// Returns the state of a page of RAM.
pub fn page_state(vm: &Vm, ipa: Ipa) -> Result<PageState, CallError> {
    if !vm.has_ram(ipa) {
        return Err(CallError::Invalid);
    }
    // The lock is held while pages move, so no page is moving now.
    let _none_moves = vm.pages.try_lock().ok_or(CallError::Busy)?;
    let page = vm.stage2.mapping(ipa).ok_or(CallError::Invalid)?;
    let place = partition::memory().lock().frames.locate(page.frame);
    let cached = page.cacheability == Cacheability::WriteBack;
    Ok(PageState {
        color: place.map_or(0, |(color, _)| color.0),
        private: page.mark != 0,
        cached,
    })
}

/// Sets the deadline at which the VM's profiled pages move.
pub fn arm(guest: Guest) {
    let Some(profile) = guest
        .vm
        .spec
        .profile
        .as_ref()
        .filter(|profile| profile.top > 0)
    else {
        return;
    };
    if let Some(after) = profile.after {
        // Counted from the VM's start.
        // Each boot of vCPU 0 sets it again, so each life of the VM has one move.
        let at = timer::now() + guest.clock.ticks(after);
        guest.deadlines.migration.set(Some(at));
        guest.deadlines.program();
    }
}
