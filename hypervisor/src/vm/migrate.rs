//! Migration: changes the frame or the cacheability of a page under a running VM, which notices only the time.
//!
//! Break before make: the page is unmapped for all vCPUs (descriptor invalid, TLBs cleared), written back, copied,
//! written back again, and given its new frame. A vCPU that accesses it meanwhile faults into EL2 and waits there
//! (`traps`). Only one core at a time does this for a VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::machine::stage2::{Cacheability, Mapping, Page};
use crate::machine::sysreg;
use crate::vm::cpu::Cpu;
use crate::vm::partition::{self, Away, Memory, Pages, Vm};
use crate::vm::telemetry;
use alloc::vec::Vec;
use cloison_abi::reply::{Colors, PageState, PrivatePool};
use cloison_abi::{Call, CallError, lease, list};
use cloison_formats::addr::{Ipa, PAGE_SIZE, PhysAddr};
use cloison_formats::color::color_of;
use cloison_formats::image::{self, Backing};
use cloison_formats::telemetry::{MigrationOutcome, MigrationRecord, Record};
use cloison_formats::units::Nanos;
use core::cell::Cell;

/// Pages per batch: what is between two points at which interrupts, deadlines and requests to stop are served. One
/// broadcast invalidates the translations of a batch, one the instruction caches.
const BATCH: usize = 2;
/// Pieces in which the records of a batch are sent.
const PIECES: u32 = 8;
/// Pages that are looked at for a batch.
const CHECKED: usize = 16;
/// Pages per batch where only the cacheability changes.
const CHANGES: usize = 8;
/// Mark of a page that is away without a lease.
const UNLEASED: u8 = 1;
/// Mark of a page that is away until the lease ends.
const LEASED: u8 = 2;
/// How long a core waits until it tries again to end leases, where another call is changing pages.
const RETRY: Nanos = Nanos(1_000_000);

/// Called between batches with the number of pages done; returns whether to continue, which a vCPU that has to stop does
/// not.
pub type Pause<'a> = &'a dyn Fn(u64) -> bool;

/// The number of pages that a call has moved or changed, or the entry of its list that is wrong.
type Listed = Result<u64, (CallError, u64)>;

/// Who works on the pages of which VM.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The core.
    pub cpu: &'a Cpu,
    /// The VM, whose core it is.
    pub vm: &'a Vm,
    /// What it does between batches.
    pub pause: Pause<'a>,
}

impl Work<'_> {
    /// Moves up to [`BATCH`] pages of RAM: to their frames in the other pool, or home. Logs each.
    fn exchange(&self, pages: &[Away], outcome: MigrationOutcome) {
        let Self { cpu, vm, .. } = self;
        if pages.is_empty() {
            return;
        }
        let goes = outcome == MigrationOutcome::Moved;
        let to = |page: &Away| if goes { page.frame } else { page.home };
        let began = timer::now();
        let mut before = [None; BATCH];
        pages
            .iter()
            .zip(&mut before)
            .for_each(|(page, before)| *before = vm.stage2.unmap(page.ipa));
        sysreg::tlbi_ipas(pages.iter().map(|page| page.ipa));
        for (page, from) in pages.iter().zip(before.iter().flatten()) {
            // SAFETY: the page has just been unmapped, and the other frame is a free one of the VM's pool, or its own.
            unsafe { cpu.windows.copy(from.frame, to(page)) };
        }
        // The pages may contain instructions.
        sysreg::invalidate_instruction_caches();
        for (page, &before) in pages.iter().zip(before.iter().flatten()) {
            if before.cacheability == Cacheability::NonCacheable {
                sysreg::tell_cacheable(to(page), false);
                sysreg::tell_cacheable(before.frame, true);
            }
            let mark = if goes { page.mark } else { 0 };
            vm.stage2.remap(
                page.ipa,
                Mapping {
                    frame: to(page),
                    mark,
                    ..before
                },
            );
        }
        let took = Nanos(cpu.clock.nanos(timer::now().since(began)).0 / pages.len() as u64);
        for (page, before) in pages.iter().zip(before.iter().flatten()) {
            self.log(page.ipa, before.frame, to(page), took, outcome);
        }
    }

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

    /// Takes a frame for a page of RAM, unless it has moved there already. The pages are locked: it is not moving.
    fn place(&self, away: &mut Vec<Away>, ipa: Ipa, mark: u8) -> Result<(), CallError> {
        let Page::Mapped(home) = self.vm.stage2.page(ipa) else {
            return Err(CallError::Invalid);
        };
        if home.mark != 0 {
            return if [mark, UNLEASED].contains(&home.mark) {
                Ok(())
            } else {
                Err(CallError::Taken)
            };
        }
        if away.len() == away.capacity() {
            return Err(CallError::PoolFull);
        }
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

    /// Moves the pages `of` something back home, the last one first, but none of the first `count`. Returns how
    /// many.
    fn come_back(
        &self,
        away: &mut Vec<Away>,
        count: usize,
        why: MigrationOutcome,
        of: impl Fn(&Away) -> bool,
    ) -> u64 {
        let (mut moved, mut at) = (0, away.len());
        while at > count {
            // Those of a batch are put at the end.
            let mut first = away.len();
            for page in (at.saturating_sub(CHECKED).max(count)..at).rev() {
                at = page;
                if of(&away[page]) {
                    first -= 1;
                    away.swap(page, first);
                }
                if away.len() - first == BATCH {
                    break;
                }
            }
            let pages = &mut away[first..];
            pages.reverse();
            self.exchange(pages, why);
            let batch = pages.len() as u64;
            for page in away.drain(first..) {
                let mut memory = partition::memory().lock();
                let Memory { frames, pools, .. } = &mut *memory;
                let freed = target(self.vm).map(|pool| pools[pool].free(page.frame, frames));
                if let Ok(Err(error)) = freed {
                    log::error!("VM {}: frame not taken back: {error:?}", self.vm.spec.name);
                }
            }
            moved += batch;
            if !self.rest(batch) {
                break;
            }
        }
        moved
    }

    /// Pauses after a batch, and sends its records as far as the FIFO accepts them.
    fn rest(&self, batch: u64) -> bool {
        let mut pieces = 0..PIECES;
        while (self.pause)(batch * u64::from(pieces.start == 0)) {
            if pieces.next().is_none() || telemetry::drain(self.cpu) {
                return true;
            }
            self.cpu.deadlines.program();
        }
        false
    }

    /// Moves pages, all or none. Those that have already moved stay. Returns how many moved.
    fn move_all(
        &self,
        away: &mut Vec<Away>,
        mut ipas: impl ExactSizeIterator<Item = Ipa>,
        mark: u8,
    ) -> Listed {
        let (before, wanted) = (away.len(), ipas.len());
        while ipas.len() > 0 {
            let first = away.len();
            let mut wrong = None;
            for ipa in ipas.by_ref().take(CHECKED) {
                wrong = self.place(away, ipa, mark).err().map(|error| (ipa, error));
                if wrong.is_some() || away.len() - first == BATCH {
                    break;
                }
            }
            self.exchange(&away[first..], MigrationOutcome::Moved);
            if !self.rest((away.len() - first) as u64) {
                // A vCPU that has to stop leaves the rest to whoever stops it.
                return Err((CallError::Busy, list::NO_ENTRY));
            }
            let Some((ipa, error)) = wrong else { continue };
            let moved = self.come_back(away, before, MigrationOutcome::RolledBack, |_| true);
            if error == CallError::PoolFull {
                let at = if let Page::Mapped(page) = self.vm.stage2.page(ipa) {
                    page.frame
                } else {
                    PhysAddr(0)
                };
                self.log(ipa, at, at, Nanos(0), MigrationOutcome::PoolFull);
                let name = &self.vm.spec.name;
                log::warn!(
                    "VM {name}: pool full after {moved} of {wanted} pages; all {moved} are back where they were"
                );
            }
            return Err((error, (wanted - ipas.len() - 1) as u64));
        }
        Ok((away.len() - before) as u64)
    }

    /// Moves the `k` most important pages of the profile, all or none. Pages that have already moved stay.
    pub fn top(&self, k: u64) -> Result<u64, CallError> {
        let Some(mut pages) = self.vm.pages.try_lock() else {
            return Err(CallError::Busy);
        };
        let ranking = &self
            .vm
            .spec
            .profile
            .as_ref()
            .ok_or(CallError::Absent)?
            .pages;
        if k == 0 || k > ranking.len() as u64 {
            return Err(CallError::Invalid);
        }
        let ipas = ranking.iter().take(k as usize).copied();
        self.move_all(&mut pages.away, ipas, UNLEASED)
            .map_err(|(error, _)| error)
    }

    /// Moves one page, identified by its IPA.
    pub fn one(&self, ipa: Ipa) -> Result<(), CallError> {
        target(self.vm)?;
        if !can_move(self.vm, ipa) {
            return Err(CallError::Invalid);
        }
        let Some(mut pages) = self.vm.pages.try_lock() else {
            return Err(CallError::Busy);
        };
        match self.move_all(&mut pages.away, core::iter::once(ipa), UNLEASED) {
            Ok(0) => Err(CallError::Invalid),
            done => done.map(drop).map_err(|(error, _)| error),
        }
    }

    /// Moves every page back home, the last one first.
    pub fn restore_all(&self) -> Result<u64, CallError> {
        let Some(mut pages) = self.vm.pages.try_lock() else {
            return Err(CallError::Busy);
        };
        Ok(self.come_back(&mut pages.away, 0, MigrationOutcome::Restored, |_| true))
    }

    /// Copies a list of pages, whose entries may have the bits `flags`, from the VM's memory.
    fn read_list(
        &self,
        entries: &mut Vec<u64>,
        at: u64,
        count: u64,
        flags: u64,
    ) -> Result<(), (CallError, u64)> {
        let within = at % PAGE_SIZE;
        let is_whole = at.is_multiple_of(8)
            && (1..=list::LONGEST).contains(&count)
            && within + count * 8 <= PAGE_SIZE;
        match self.vm.stage2.page(Ipa(at)) {
            Page::Mapped(page) if is_whole => {
                self.cpu.windows.read(page.frame, within, count, entries)
            }
            _ => return Err((CallError::List, list::NO_ENTRY)),
        }
        let mut above = None;
        for (index, &entry) in (0..).zip(entries.iter()) {
            let ipa = Ipa(entry & !flags);
            let is_page = if flags == 0 {
                can_move(self.vm, ipa)
            } else {
                ipa.is_page_aligned() && self.vm.has_ram(ipa)
            };
            if !is_page || above.is_some_and(|above| ipa <= above) {
                return Err((CallError::Invalid, index));
            }
            above = Some(ipa);
            if index % CHECKED as u64 == 0 {
                (self.pause)(0);
            }
        }
        Ok(())
    }

    /// Makes a call with a list of pages. Returns how many it moved or changed.
    pub fn listed(&self, call: Call, [at, count, number]: [u64; 3]) -> Listed {
        let whole = |error| (error, list::NO_ENTRY);
        let Some(mut pages) = self.vm.pages.try_lock() else {
            return Err(whole(CallError::Busy));
        };
        let Pages {
            away,
            list,
            uncached,
        } = &mut *pages;
        let (caches, now) = (call == Call::CachePages, timer::now());
        if caches || number != 0 {
            self.vm.lease.lock().check(number, now).map_err(whole)?;
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
        target(self.vm).map_err(whole)?;
        if call == Call::MovePages {
            return self.move_all(away, list.iter().copied().map(Ipa), mark);
        }
        let belongs = |page: &Away| page.mark == mark && list.binary_search(&page.ipa.0).is_ok();
        Ok(self.come_back(away, 0, MigrationOutcome::Restored, belongs))
    }

    /// Takes a lease (0), renews one, or ends it. Returns its number.
    pub fn lease(&self, number: u64, nanos: u64) -> Result<u64, CallError> {
        if nanos > lease::LONGEST_NANOS || number | nanos == 0 {
            return Err(CallError::Invalid);
        }
        if number == 0 && !self.end_due() {
            return Err(CallError::Busy);
        }
        let (cpu, lease, now) = (self.cpu, &self.vm.lease, timer::now());
        let until = now + cpu.clock.ticks(Nanos(nanos));
        let number = match number {
            0 => lease.lock().take(until)?,
            _ => lease.lock().renew(number, now, until).map(|()| number)?,
        };
        // Where this vCPU cannot wait, the deadline ends it.
        while nanos == 0 && !self.end_due() && (self.pause)(0) {}
        cpu.deadlines.lease.set(lease.lock().until());
        cpu.deadlines.program();
        Ok(number)
    }

    /// Ends the lease if it has run out. Returns whether that is done, which it is not while another call changes pages, and
    /// where the vCPU has to stop.
    fn end_due(&self) -> bool {
        let Some(mut pages) = self.vm.pages.try_lock() else {
            return false;
        };
        let now = timer::now();
        let is_due = self
            .vm
            .lease
            .lock()
            .until()
            .is_some_and(|until| until <= now);
        if is_due {
            self.undo(&mut pages, false);
        }
        (self.pause)(0)
    }

    /// Ends the lease: makes all pages of the VM cacheable, as at its first start, and has its pages move back, or `all`.
    fn undo(&self, pages: &mut Pages, all: bool) {
        let Pages { away, uncached, .. } = pages;
        self.come_back(away, 0, MigrationOutcome::Restored, |page| {
            all || page.mark == LEASED
        });
        let regions = self.vm.spec.regions.iter();
        let pages =
            regions.flat_map(|region| (0..region.pages.into()).map(|page| region.ipa.page(page)));
        let some = pages
            .take_while(|_| uncached.get() > 0)
            .map(|ipa| (ipa, Cacheability::WriteBack));
        self.change(uncached, some);
        // A vCPU that has to stop leaves the rest to whoever stops it.
        self.vm.lease.lock().end();
    }

    /// Ends the lease if it has run out, at the core's deadline for that.
    #[inline(never)]
    pub fn on_lease_deadline(&self) {
        let deadlines = &self.cpu.deadlines;
        deadlines
            .lease
            .set(Some(timer::now() + self.cpu.clock.ticks(RETRY)));
        if (self.pause)(0) && self.end_due() {
            deadlines.lease.set(self.vm.lease.lock().until());
        }
        deadlines.program();
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
        let Some(one_at_a_time) = self.vm.pages.try_lock() else {
            return Err(CallError::Busy);
        };
        if self.vm.lease.lock().until().is_some() {
            return Err(CallError::Taken);
        }
        self.change(
            &one_at_a_time.uncached,
            (0..pages).map(|page| (at.page(page), wanted)),
        );
        Ok(())
    }

    /// Sets the cacheability of pages of RAM; counts those that are `uncached`. Returns how many changed.
    ///
    /// Break before make, as in a migration: two vCPUs never see one page with different attributes. No line may stay in a
    /// cache in either direction: a dirty one would overwrite what was stored past it, and a clean one (from EL2's window,
    /// which is cached) would hide it.
    fn change(
        &self,
        uncached: &Cell<u64>,
        mut pages: impl Iterator<Item = (Ipa, Cacheability)>,
    ) -> u64 {
        let (stage2, mut all) = (&self.vm.stage2, 0);
        loop {
            let batch: heapless::Vec<_, CHANGES> = pages.by_ref().take(CHANGES).collect();
            let unmap = |&(ipa, wanted): &(Ipa, Cacheability)| match stage2.page(ipa) {
                Page::Mapped(page) if page.cacheability != wanted => {
                    Some((ipa, wanted, stage2.unmap(ipa)?))
                }
                _ => None,
            };
            let changes: heapless::Vec<_, CHANGES> = batch.iter().filter_map(unmap).collect();
            if !changes.is_empty() {
                sysreg::tlbi_ipas(changes.iter().map(|(ipa, ..)| *ipa));
            }
            for &(ipa, cacheability, before) in &changes {
                let is_cached = cacheability == Cacheability::WriteBack;
                self.cpu.windows.flush(before.frame);
                sysreg::tell_cacheable(before.frame, is_cached);
                stage2.remap(
                    ipa,
                    Mapping {
                        cacheability,
                        ..before
                    },
                );
                uncached.set(if is_cached {
                    uncached.get() - 1
                } else {
                    uncached.get() + 1
                });
            }
            all += changes.len() as u64;
            if batch.is_empty() || !(self.pause)(changes.len() as u64) {
                return all;
            }
        }
    }

    /// The VM's life ends, and its lease with it. Where another life follows, which finds its memory as the first one did,
    /// all pages move back.
    pub fn reset(&self, restarts: bool) {
        loop {
            // Its other vCPUs are off, but a core of theirs may be ending the lease.
            if let Some(mut pages) = self.vm.pages.try_lock() {
                return self.undo(&mut pages, restarts);
            }
            (self.pause)(0);
        }
    }

    /// Moves the profiled pages at the deadline; the guest keeps running on its other vCPUs.
    #[inline(never)]
    pub fn on_deadline(&self) {
        let Some(profile) = &self.vm.spec.profile else {
            return;
        };
        match self.top(u64::from(profile.top)) {
            Ok(moved) => log::info!(
                "VM {}: {moved} pages moved to its PVT pool",
                self.vm.spec.name
            ),
            Err(error) => log::warn!("VM {}: pages not moved: {error:?}", self.vm.spec.name),
        }
    }
}

/// Returns the number of the pool to which a VM's pages can move.
fn target(vm: &Vm) -> Result<usize, CallError> {
    vm.spec.target.map(usize::from).ok_or(CallError::Absent)
}

/// Returns whether a page is one that can move.
fn can_move(vm: &Vm, ipa: Ipa) -> bool {
    let in_pool =
        |region: &image::Region| region.contains(ipa) && matches!(region.backing, Backing::Pool(_));
    ipa.is_page_aligned() && vm.spec.regions.iter().any(in_pool)
}

/// Returns the pool to which the VM's pages can move.
pub fn private_pool(vm: &Vm) -> Result<PrivatePool, CallError> {
    let memory = partition::memory().lock();
    let pool = &memory.pools[target(vm)?];
    let colors = pool.spec().colors;
    let frames: u32 = colors.iter().map(|color| memory.frames.total(color)).sum();
    let pages = pool.spec().limit.unwrap_or(frames).into();
    Ok(PrivatePool {
        colors: Colors(colors.0),
        pages,
        taken: pool.taken().into(),
    })
}

/// Returns the state of a page of RAM.
pub fn page_state(vm: &Vm, ipa: Ipa) -> Result<PageState, CallError> {
    if !vm.has_ram(ipa) {
        return Err(CallError::Invalid);
    }
    // The lock is held while pages move, so no page is moving now.
    let Some(_none_moves) = vm.pages.try_lock() else {
        return Err(CallError::Busy);
    };
    let Page::Mapped(page) = vm.stage2.page(ipa) else {
        return Err(CallError::Invalid);
    };
    let color = color_of(page.frame, partition::memory().lock().frames.colors());
    let cached = page.cacheability == Cacheability::WriteBack;
    Ok(PageState {
        color: color.0,
        private: page.mark != 0,
        cached,
    })
}

/// Sets the deadline at which the VM's profiled pages move.
pub fn arm(cpu: &Cpu, vm: &Vm) {
    let Some(profile) = vm.spec.profile.as_ref().filter(|profile| profile.top > 0) else {
        return;
    };
    if let Some(after) = profile.after {
        cpu.deadlines
            .migration
            .set(Some(timer::now() + cpu.clock.ticks(after)));
        cpu.deadlines.program();
    }
}
