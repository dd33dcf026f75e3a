//! Migration: changes the frame or the cacheability of a page under a running VM, which notices only the time.
//!
//! Break before make: the page is unmapped for all vCPUs (descriptor invalid, TLBs cleared), written back, copied,
//! written back again, and given its new frame. A vCPU that accesses it meanwhile faults into EL2 and waits there
//! (`traps`). Only one core at a time does this for a VM.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::timer;
use crate::machine::stage2::{Cacheability, Page};
use crate::machine::sysreg;
use crate::vm::cpu::Cpu;
use crate::vm::partition::{self, Memory, Vm};
use crate::vm::{quota, telemetry};
use cloison_abi::reply::{Colors, PageState, PrivatePool};
use cloison_abi::{CallError, services};
use cloison_formats::addr::{Ipa, PhysAddr};
use cloison_formats::color::color_of;
use cloison_formats::image::{self, Backing};
use cloison_formats::telemetry::{MigrationOutcome, MigrationRecord, Record};
use cloison_formats::units::Nanos;
use cloison_logic::migrate::{Away, AwayList, Migration};

/// Moves a page to `to`. Returns its previous frame, or `None` if it is not a page of RAM.
fn exchange(cpu: &Cpu, vm: &Vm, ipa: Ipa, to: PhysAddr) -> Option<(PhysAddr, Nanos)> {
    let began = timer::now();
    let (from, cacheability) = vm.stage2.unmap(ipa)?;
    // SAFETY: `from` has just been unmapped, and `to` is a free frame of the VM's pool, or its page's own one.
    unsafe { cpu.windows.copy(from, to) };
    // The page may contain instructions.
    sysreg::invalidate_instruction_caches();
    if cacheability == Cacheability::NonCacheable {
        sysreg::tell_cacheable(to, false);
        sysreg::tell_cacheable(from, true);
    }
    vm.stage2.remap(ipa, to, cacheability);
    quota::charge(cpu, 1);
    Some((from, cpu.clock.nanos(timer::now().since(began))))
}

fn log(cpu: &Cpu, vm: &Vm, ipa: Ipa, from: PhysAddr, to: PhysAddr, took: Nanos, outcome: MigrationOutcome) {
    telemetry::record(cpu, Record::Migration(MigrationRecord { vm: vm.id, ipa, from, to, took, outcome }));
}

/// Takes a frame of the VM's PVT pool and moves the page there.
fn go(cpu: &Cpu, vm: &Vm, away: &mut AwayList, ipa: Ipa) -> Result<(), CallError> {
    let profile = vm.spec.profile.as_ref().ok_or(CallError::Absent)?;
    let frame = {
        let mut memory = partition::memory().lock();
        let Memory { frames, pools, .. } = &mut *memory;
        if !away.has_room() {
            return Err(CallError::PoolFull);
        }
        pools[usize::from(profile.pool)].allocate(frames).map_err(|_| CallError::PoolFull)?
    };
    match exchange(cpu, vm, ipa, frame) {
        Some((home, took)) => {
            away.push(Away { ipa, home, frame });
            log(cpu, vm, ipa, home, frame, took, MigrationOutcome::Moved);
            Ok(())
        }
        None => {
            give_back(vm, frame);
            Err(CallError::Invalid)
        }
    }
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

/// Moves the most recently moved page back home.
fn come_back(cpu: &Cpu, vm: &Vm, away: &mut AwayList, outcome: MigrationOutcome) -> bool {
    let Some(page) = away.pop() else { return false };
    if let Some((from, took)) = exchange(cpu, vm, page.ipa, page.home) {
        log(cpu, vm, page.ipa, from, page.home, took, outcome);
    }
    give_back(vm, page.frame);
    true
}

/// Moves the `k` most important pages of the profile, all or none. Pages that have already moved count as moved.
pub fn top(cpu: &Cpu, vm: &Vm, k: u64) -> Result<u64, CallError> {
    let Some(mut migration) = vm.migration.try_lock() else { return Err(CallError::Busy) };
    let Migration { ranking, away } = &mut *migration;
    if ranking.is_empty() {
        return Err(CallError::Absent);
    }
    if k == 0 || k > ranking.len() as u64 {
        return Err(CallError::Invalid);
    }
    let before = away.len();
    for &ipa in ranking.iter().take(k as usize) {
        if away.contains(ipa) {
            continue;
        }
        if let Err(error) = go(cpu, vm, away, ipa) {
            let at = match vm.stage2.page(ipa) {
                Page::Mapped(frame) => frame,
                _ => PhysAddr(0),
            };
            let moved = away.len() - before;
            while away.len() > before {
                come_back(cpu, vm, away, MigrationOutcome::RolledBack);
            }
            log(cpu, vm, ipa, at, at, Nanos(0), MigrationOutcome::PoolFull);
            log::warn!(
                "VM {}: PVT pool full after {moved} of {k} pages; all {moved} are back where they were",
                vm.spec.name
            );
            telemetry::pump(cpu, || true);
            return Err(error);
        }
    }
    let moved = (away.len() - before) as u64;
    telemetry::pump(cpu, || true);
    Ok(moved)
}

/// Moves one page, identified by its IPA.
pub fn one(cpu: &Cpu, vm: &Vm, ipa: Ipa) -> Result<(), CallError> {
    let in_pool = |region: &image::Region| region.contains(ipa) && matches!(region.backing, Backing::Pool(_));
    if !ipa.is_page_aligned() || !vm.spec.regions.iter().any(in_pool) {
        return Err(CallError::Invalid);
    }
    let Some(mut migration) = vm.migration.try_lock() else { return Err(CallError::Busy) };
    if migration.away.contains(ipa) {
        return Err(CallError::Invalid);
    }
    go(cpu, vm, &mut migration.away, ipa)
}

/// Moves every page back home, the last one first.
pub fn restore_all(cpu: &Cpu, vm: &Vm) -> Result<u64, CallError> {
    let Some(mut migration) = vm.migration.try_lock() else { return Err(CallError::Busy) };
    let mut moved = 0;
    while come_back(cpu, vm, &mut migration.away, MigrationOutcome::Restored) {
        moved += 1;
    }
    telemetry::pump(cpu, || true);
    Ok(moved)
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
    let Some(migration) = vm.migration.try_lock() else { return Err(CallError::Busy) };
    let Page::Mapped(frame) = vm.stage2.page(ipa) else { return Err(CallError::Invalid) };
    let private = migration.away.contains(ipa.page_base());
    let cached = vm.stage2.cacheability(ipa) == Some(Cacheability::WriteBack);
    let color = color_of(frame, partition::memory().lock().frames.colors());
    Ok(PageState { color: color.0, private, cached })
}

/// Sets the cacheability of pages of RAM, from the one at `ipa` on, to `wanted`.
pub fn set_cacheability(cpu: &Cpu, vm: &Vm, ipa: Ipa, pages: u64, wanted: Cacheability) -> Result<(), CallError> {
    if !ipa.is_page_aligned() || pages == 0 || !(0..pages).all(|page| vm.has_ram(ipa.page(page))) {
        return Err(CallError::Invalid);
    }
    let Some(_one_at_a_time) = vm.migration.try_lock() else { return Err(CallError::Busy) };
    for page in 0..pages {
        change_cacheability(cpu, vm, ipa.page(page), wanted);
    }
    Ok(())
}

/// Break before make, as in a migration: two vCPUs never see one page with different attributes. No line may stay in a
/// cache in either direction: a dirty one would overwrite what was stored past it, and a clean one (from EL2's window,
/// which is cached) would hide it.
fn change_cacheability(cpu: &Cpu, vm: &Vm, ipa: Ipa, wanted: Cacheability) {
    if vm.stage2.cacheability(ipa) == Some(wanted) {
        return;
    }
    let Some((frame, _)) = vm.stage2.unmap(ipa) else { return };
    cpu.windows.flush(frame);
    sysreg::tell_cacheable(frame, wanted == Cacheability::WriteBack);
    vm.stage2.remap(ipa, frame, wanted);
    quota::charge(cpu, 1);
}

/// Makes all pages of a VM whose vCPUs have stopped cacheable, as at its first start.
pub fn restore_cacheability(cpu: &Cpu, vm: &Vm) {
    if vm.spec.services & services::PROFILE != 0 {
        for region in &vm.spec.regions {
            for page in 0..u64::from(region.pages) {
                change_cacheability(cpu, vm, region.ipa.page(page), Cacheability::WriteBack);
            }
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
pub fn on_deadline(cpu: &Cpu) {
    let Some(vm) = cpu.vm else { return };
    let Some(profile) = &vm.spec.profile else { return };
    match top(cpu, vm, u64::from(profile.top)) {
        Ok(moved) => log::info!("VM {}: {moved} pages moved to its PVT pool", vm.spec.name),
        Err(error) => log::warn!("VM {}: pages not moved: {error:?}", vm.spec.name),
    }
}
