//! Doorbells: how the VMs of a channel call each other, and learn of each other's lives.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{gic, timer};
use crate::vm::cpu::{Guest, Visit};
use crate::vm::partition::{Vm, all, system};
use crate::vm::{telemetry, virq};
use cloison_abi::reply::{Channel, Taken};
use cloison_abi::{CallError, doorbell};
use cloison_formats::bits::ones;
use cloison_formats::channel::{Member, Rights};
use cloison_formats::telemetry::Record;
use core::sync::atomic::Ordering::Relaxed;

/// Sets a bit of a peer's doorbell. The caller has checked that `peer` is one.
pub fn ring(guest: Guest, peer: &Vm, bit: u64, life: u64) -> Result<(), CallError> {
    if bit >= doorbell::BITS {
        return Err(CallError::Invalid);
    }
    let Vm {
        bell, pace, rings, ..
    } = guest.vm;
    // Only what interrupts the peer counts: a bit that is set already costs the peer nothing.
    let may_pass = || {
        let passes = bell.is_some_and(|bell| pace.passes(bell.room, timer::now(), bell.interval));
        if !passes {
            rings.refused.fetch_add(1, Relaxed);
        }
        passes
    };
    if peer.doorbell.ring(1 << bit, life, may_pass)? {
        rings.passed.fetch_add(1, Relaxed);
        call(peer);
    }
    Ok(())
}

/// Takes bits of the VM's own doorbell.
pub fn take(guest: Guest, mask: u64) -> Taken {
    let taken = guest.vm.doorbell.take(mask);
    if taken.bits != 0 && !virq::is_doorbell_followed(guest) {
        virq::doorbell(guest);
    }
    taken
}

/// The VM's life begins.
pub fn open(guest: Guest) {
    if guest.vm.doorbell.open() {
        tell_peers(guest);
    }
}

/// The VM's life has ended: no vCPU of it runs. What peers have sent it is gone, and what they send
/// is refused until the next one.
pub fn close(visit: Visit) {
    let vm = visit.vm;
    if vm.doorbell.close() {
        tell_peers(*visit);
    }
    log(visit, vm);
}

/// Logs how a VM has called its peers, at its end.
pub fn log(visit: Visit, vm: &Vm) {
    if vm.bell.is_some() {
        let record = Record::Doorbells {
            vm: vm.id,
            passed: vm.rings.passed.load(Relaxed),
            refused: vm.rings.refused.load(Relaxed),
        };
        telemetry::record(&visit, record);
    }
}

/// Tells a core of a peer that a bit of its doorbell is new. The peer's distributor is its own
/// cores' alone.
fn call(peer: &Vm) {
    gic::send(gic::CALL, peer.called.load(Relaxed));
}

/// Sets the bit for this VM in the doorbells of those with which it has a channel.
fn tell_peers(guest: Guest) {
    let bit = 1 << (doorbell::PEERS + u32::from(guest.vm.id.0));
    for peer in ones(guest.vm.peers).filter_map(|peer| all().get(peer as usize)) {
        // One that does not run asks for its peers' lives when it starts.
        if peer.doorbell.ring(bit, 0, || true) == Ok(true) {
            call(peer);
        }
    }
}

/// Returns the `index`-th channel of a VM.
pub fn channel(vm: &Vm, index: u64) -> Result<Channel, CallError> {
    let mut channels = system().channels_of(vm.id);
    let (channel, member) = channels.nth(index as usize).ok_or(CallError::Absent)?;
    let mask = |vms, other: &Member| vms | 1 << other.vm.0;
    let vms: u32 = channel.members.iter().fold(0, mask);
    let is_seen = member.rights != Rights::None;
    Ok(Channel {
        ipa: if is_seen { member.ipa.0 } else { 0 },
        pages: channel.pages,
        flags: member.rights as u32 | vms << 8,
    })
}
