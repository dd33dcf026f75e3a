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
use crate::vm::partition::{self, Away, Memory, Vm};
use crate::vm::telemetry;
use alloc::vec::Vec;
use cloison_abi::reply::{Colors, PageState, PrivatePool};
use cloison_abi::{CallError, services};
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::color::color_of;
use cloison_formats::image::{self, Backing};
use cloison_formats::telemetry::{MigrationOutcome, MigrationRecord, Record};
use cloison_formats::units::Nanos;

/// Pages per batch: what is between two points at which interrupts, deadlines and requests to stop are served. One
/// broadcast invalidates the translations of a batch, one the instruction caches.
const BATCH: usize = 2;
/// Pieces in which the records of a batch are sent.
const PIECES: u32 = 8;
/// Pages of a ranking that are looked at for a batch.
const CHECKED: usize = 16;
/// Pages per batch where only the cacheability changes.
const CHANGES: u64 = 8;

/// Called between batches with the number of pages done; returns whether to continue, which a vCPU that has to stop does
/// not.
pub type Pause<'a> = &'a dyn Fn(u64) -> bool;

/// What a call that only succeeds or fails returns.
type Outcome = Result<(), CallError>;

/// Moves up to [`BATCH`] pages of RAM to other frames. Returns the time per page.
fn exchange(cpu: &Cpu, vm: &Vm, pages: &[Away], to: impl Fn(&Away) -> PhysAddr) -> Nanos {
    let began = timer::now();
    let mut before = [None; BATCH];
    pages.iter().zip(&mut before).for_each(|(page, before)| *before = vm.stage2.unmap(page.ipa));
    sysreg::tlbi_ipas(pages.iter().map(|page| page.ipa));
    for (page, from) in pages.iter().zip(before.iter().flatten()) {
        // SAFETY: the page has just been unmapped, and the other frame is a free one of the VM's pool, or the page's own.
        unsafe { cpu.windows.copy(from.frame, to(page)) };
    }
    // The pages may contain instructions.
    sysreg::invalidate_instruction_caches();
    for (page, &before) in pages.iter().zip(before.iter().flatten()) {
        if before.cacheability == Cacheability::NonCacheable {
            sysreg::tell_cacheable(to(page), false);
            sysreg::tell_cacheable(before.frame, true);
        }
        vm.stage2.remap(page.ipa, Mapping { frame: to(page), private: to(page) == page.frame, ..before });
    }
    Nanos(cpu.clock.nanos(timer::now().since(began)).0 / pages.len().max(1) as u64)
}

fn log(cpu: &Cpu, vm: &Vm, ipa: Ipa, from: PhysAddr, to: PhysAddr, took: Nanos, outcome: MigrationOutcome) {
    telemetry::record(cpu, Record::Migration(MigrationRecord { vm: vm.id, ipa, from, to, took, outcome }));
}

/// Takes a frame of the VM's PVT pool for a page of RAM. The migration lock is held: the page is not moving.
fn place(vm: &Vm, away: &Vec<Away>, ipa: Ipa) -> Result<Away, CallError> {
    let profile = vm.spec.profile.as_ref().ok_or(CallError::Absent)?;
    let Page::Mapped(home) = vm.stage2.page(ipa) else { return Err(CallError::Invalid) };
    if away.len() == away.capacity() {
        return Err(CallError::PoolFull);
    }
    let mut memory = partition::memory().lock();
    let Memory { frames, pools, .. } = &mut *memory;
    let frame = pools[usize::from(profile.pool)].allocate(frames).map_err(|_| CallError::PoolFull)?;
    Ok(Away { ipa, home, frame })
}

/// Moves a batch of pages to the VM's PVT pool, but for those that have already moved, of which it passes a few. Returns
/// how many it moved.
///
/// # Errors
/// The page that cannot move, and why; those before it have moved.
fn go(cpu: &Cpu, vm: &Vm, away: &mut Vec<Away>, ipas: impl Iterator<Item = Ipa>) -> Result<u64, (Ipa, CallError)> {
    let first = away.len();
    let mut result = Ok(());
    for ipa in ipas.take(CHECKED) {
        if vm.stage2.is_private(ipa) {
            continue;
        }
        match place(vm, away, ipa) {
            Ok(page) => away.push(page),
            Err(error) => result = Err((ipa, error)),
        }
        if result.is_err() || away.len() - first == BATCH {
            break;
        }
    }
    let pages = &away[first..];
    if !pages.is_empty() {
        let took = exchange(cpu, vm, pages, |page| page.frame);
        for page in pages {
            log(cpu, vm, page.ipa, page.home, page.frame, took, MigrationOutcome::Moved);
        }
    }
    result.map(|()| pages.len() as u64)
}

fn give_back(vm: &Vm, frame: PhysAddr) {
    if let Some(profile) = &vm.spec.profile {
        let mut memory = partition::memory().lock();
        let Memory { frames, pools, .. } = &mut *memory;
        if let Err(error) = pools[usize::from(profile.pool)].free(frame, frames) {
            log::error!("VM {}: frame not taken back: {error:?}", vm.spec.name);
        }
    }
}

/// Moves all pages back home but the first `count`, the last one first. Returns how many.
fn come_back(cpu: &Cpu, vm: &Vm, away: &mut Vec<Away>, count: usize, why: MigrationOutcome, pause: Pause) -> u64 {
    let mut moved = 0;
    while away.len() > count {
        let first = away.len().saturating_sub(BATCH).max(count);
        let pages = &away[first..];
        let (took, batch) = (exchange(cpu, vm, pages, |page| page.home), pages.len() as u64);
        for page in pages.iter().rev() {
            log(cpu, vm, page.ipa, page.frame, page.home, took, why);
            give_back(vm, page.frame);
        }
        away.truncate(first);
        moved += batch;
        if !rest(cpu, batch, pause) {
            break;
        }
    }
    moved
}

/// Pauses after a batch, and sends its records as far as the FIFO accepts them.
fn rest(cpu: &Cpu, batch: u64, pause: Pause) -> bool {
    let mut pieces = 0..PIECES;
    while pause(batch * u64::from(pieces.start == 0)) {
        if pieces.next().is_none() || telemetry::drain(cpu) {
            return true;
        }
        cpu.deadlines.program();
    }
    false
}

/// Moves the `k` most important pages of the profile, all or none. Pages that have already moved count as moved.
pub fn top(cpu: &Cpu, vm: &Vm, k: u64, pause: Pause) -> Result<u64, CallError> {
    let Some(mut away) = vm.away.try_lock() else { return Err(CallError::Busy) };
    let ranking = &vm.spec.profile.as_ref().ok_or(CallError::Absent)?.pages;
    if k == 0 || k > ranking.len() as u64 {
        return Err(CallError::Invalid);
    }
    let before = away.len();
    let mut ipas = ranking.iter().take(k as usize).copied();
    loop {
        let first = away.len();
        match go(cpu, vm, &mut away, &mut ipas) {
            Ok(0) if ipas.len() == 0 => return Ok((away.len() - before) as u64),
            // A vCPU that has to stop leaves the rest to whoever stops it.
            Ok(moved) if !rest(cpu, moved, pause) => return Err(CallError::Busy),
            Ok(_) => {}
            Err((ipa, error)) => {
                pause((away.len() - first) as u64);
                let at = if let Page::Mapped(frame) = vm.stage2.page(ipa) { frame } else { PhysAddr(0) };
                let moved = come_back(cpu, vm, &mut away, before, MigrationOutcome::RolledBack, pause);
                log(cpu, vm, ipa, at, at, Nanos(0), MigrationOutcome::PoolFull);
                log::warn!(
                    "VM {}: PVT pool full after {moved} of {k} pages; all {moved} are back where they were",
                    vm.spec.name
                );
                return Err(error);
            }
        }
    }
}

/// Moves one page, identified by its IPA.
pub fn one(cpu: &Cpu, vm: &Vm, ipa: Ipa, pause: Pause) -> Outcome {
    let in_pool = |region: &image::Region| region.contains(ipa) && matches!(region.backing, Backing::Pool(_));
    if !ipa.is_page_aligned() || !vm.spec.regions.iter().any(in_pool) {
        return Err(CallError::Invalid);
    }
    let Some(mut away) = vm.away.try_lock() else { return Err(CallError::Busy) };
    let moved = go(cpu, vm, &mut away, core::iter::once(ipa)).map_err(|(_, error)| error)?;
    pause(moved);
    if moved == 0 { Err(CallError::Invalid) } else { Ok(()) }
}

/// Moves every page back home, the last one first.
pub fn restore_all(cpu: &Cpu, vm: &Vm, pause: Pause) -> Result<u64, CallError> {
    let Some(mut away) = vm.away.try_lock() else { return Err(CallError::Busy) };
    Ok(come_back(cpu, vm, &mut away, 0, MigrationOutcome::Restored, pause))
}

/// Returns the PVT pool of the VM's profile.
pub fn private_pool(vm: &Vm) -> Result<PrivatePool, CallError> {
    let profile = vm.spec.profile.as_ref().ok_or(CallError::Absent)?;
    let memory = partition::memory().lock();
    let pool = &memory.pools[usize::from(profile.pool)];
    let colors = pool.spec().colors;
    let frames: u32 = colors.iter().map(|color| memory.frames.total(color)).sum();
    let pages = pool.spec().limit.unwrap_or(frames).into();
    Ok(PrivatePool { colors: Colors(colors.0), pages, taken: pool.taken().into() })
}

/// Returns the state of a page of RAM.
pub fn page_state(vm: &Vm, ipa: Ipa) -> Result<PageState, CallError> {
    if !vm.has_ram(ipa) {
        return Err(CallError::Invalid);
    }
    // The lock is held while pages move, so no page is moving now.
    let Some(_none_moves) = vm.away.try_lock() else { return Err(CallError::Busy) };
    let Page::Mapped(frame) = vm.stage2.page(ipa) else { return Err(CallError::Invalid) };
    let private = vm.stage2.is_private(ipa);
    let cached = vm.stage2.cacheability(ipa) == Some(Cacheability::WriteBack);
    let color = color_of(frame, partition::memory().lock().frames.colors());
    Ok(PageState { color: color.0, private, cached })
}

/// Sets the cacheability of pages of RAM, from the one at `ipa` on, to `wanted`.
pub fn set_cacheability(cpu: &Cpu, vm: &Vm, at: Ipa, pages: u64, wanted: Cacheability, pause: Pause) -> Outcome {
    if !at.is_page_aligned() || pages == 0 || !vm.is_all_ram(at, pages) {
        return Err(CallError::Invalid);
    }
    let Some(_one_at_a_time) = vm.away.try_lock() else { return Err(CallError::Busy) };
    change_cacheability(cpu, vm, at, pages, wanted, pause);
    Ok(())
}

/// Break before make, as in a migration: two vCPUs never see one page with different attributes. No line may stay in a
/// cache in either direction: a dirty one would overwrite what was stored past it, and a clean one (from EL2's window,
/// which is cached) would hide it.
fn change_cacheability(cpu: &Cpu, vm: &Vm, ipa: Ipa, pages: u64, wanted: Cacheability, pause: Pause) {
    for first in (0..pages).step_by(CHANGES as usize) {
        let ipas = || (first..pages.min(first + CHANGES)).map(|page| ipa.page(page));
        let mut frames = [None; CHANGES as usize];
        for (ipa, frame) in ipas().zip(&mut frames) {
            if vm.stage2.cacheability(ipa).is_some_and(|now| now != wanted) {
                *frame = vm.stage2.unmap(ipa);
            }
        }
        let changed = frames.iter().flatten().count() as u64;
        if changed > 0 {
            sysreg::tlbi_ipas(ipas());
        }
        for (ipa, frame) in ipas().zip(frames) {
            let Some(before) = frame else { continue };
            cpu.windows.flush(before.frame);
            sysreg::tell_cacheable(before.frame, wanted == Cacheability::WriteBack);
            vm.stage2.remap(ipa, Mapping { cacheability: wanted, ..before });
        }
        if !pause(changed) {
            break;
        }
    }
}

/// Makes all pages of a VM whose vCPUs have stopped cacheable, as at its first start.
pub fn restore_cacheability(cpu: &Cpu, vm: &Vm, pause: Pause) {
    if vm.spec.services & services::PROFILE != 0 {
        for region in &vm.spec.regions {
            change_cacheability(cpu, vm, region.ipa, region.pages.into(), Cacheability::WriteBack, pause);
        }
    }
}

/// Sets the deadline at which the VM's profiled pages move.
pub fn arm(cpu: &Cpu, vm: &Vm) {
    let Some(profile) = vm.spec.profile.as_ref().filter(|profile| profile.top > 0) else { return };
    if let Some(after) = profile.after {
        cpu.deadlines.migration.set(Some(timer::now() + cpu.clock.ticks(after)));
        cpu.deadlines.program();
    }
}

/// Moves the pages at the deadline; the guest keeps running on its other vCPUs.
#[inline(never)]
pub fn on_deadline(cpu: &Cpu, pause: Pause) {
    let Some(vm) = cpu.vm else { return };
    let Some(profile) = &vm.spec.profile else { return };
    match top(cpu, vm, u64::from(profile.top), pause) {
        Ok(moved) => log::info!("VM {}: {moved} pages moved to its PVT pool", vm.spec.name),
        Err(error) => log::warn!("VM {}: pages not moved: {error:?}", vm.spec.name),
    }
}
