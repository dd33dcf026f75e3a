//! Virtual interrupts: connects the emulated distributor with the GIC's list registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::gic;
use crate::vm::cpu::Guest;
use crate::vm::mailbox::{self, Request};
use crate::vm::partition::Vm;
use cloison_abi::irq;
use cloison_formats::addr::Ipa;
use cloison_formats::bits::ones;
use cloison_formats::channel::Trigger;
use cloison_formats::image::GicVersion;
use cloison_logic::syndrome::{Access, Width};
use cloison_logic::vgic::{self, Banked, Distributor, PhysicalGic, Shared, Vcpus, v3};
use core::ops::DerefMut;
use core::sync::atomic::Ordering::Relaxed;

/// Offset of GICD_TYPER, a constant that is read without accessing any state.
const TYPER: u16 = 4;

/// The GIC as used by `cloison_logic::vgic`, for one VM on the running core.
struct Physical(&'static Vm);

impl PhysicalGic for Physical {
    const VERSION: GicVersion = gic::VERSION;

    fn distributor(&self) -> &Distributor {
        &self.0.distributor
    }

    fn lock(&self) -> impl DerefMut<Target = Shared> {
        self.0.spis.lock()
    }

    fn done(&self) -> u32 {
        gic::done()
    }

    fn get(&self, index: usize) -> u32 {
        gic::list_register(index)
    }

    fn set(&self, index: usize, value: u32) {
        gic::set_list_register(index, value);
    }

    fn watch(&self, waiting: bool, aside: bool) {
        gic::watch(waiting, aside);
    }

    fn ended(&self) -> u32 {
        gic::ended()
    }

    fn active_priorities(&self) -> u32 {
        gic::active_priorities()
    }

    fn binary_point(&self) -> u32 {
        gic::binary_point()
    }

    fn pending(&self, group: usize) -> u32 {
        gic::pending(group)
    }

    fn deactivate(&self, irq: u32) {
        gic::deactivate(irq);
    }

    fn set_enabled(&self, irq: u32, on: bool) {
        gic::set_enabled(irq, on);
    }

    // A vCPU that the VM does not have is no target: the interrupt keeps its route.
    fn route(&self, irq: u32, vcpu: u8) {
        if let Some(&core) = self.0.spec.cores.get(usize::from(vcpu)) {
            gic::route(irq, core.0);
        }
    }

    fn configure(&self, irq: u32, trigger: vgic::Trigger) {
        gic::configure(irq, trigger);
    }
}

/// Tells the cores of these vCPUs to check their interrupts. Returns whether the running core is
/// among them.
///
/// `vm` need not be the running core's: the console's core delivers input to any VM.
fn kick(guest: Guest, vm: &Vm, vcpus: Vcpus) -> bool {
    let mut own = false;
    for vcpu in ones(vcpus.0) {
        match vm.spec.cores.get(vcpu as usize) {
            // No interrupt to itself: the caller fills its list registers.
            Some(&core) if core.index() == guest.index => own = true,
            // The physical SGI follows a DSB (`gic::send`), so that the other core sees the state
            // that `vgic` has published.
            Some(&core) => mailbox::ask(core, Request::Interrupts),
            None => {}
        }
    }
    own
}

/// Changes the vCPU's part of the distributor, and tells the vCPUs that `change` returns to check
/// their interrupts.
///
/// What `change` returns never holds this vCPU itself: `fill` and its like have looked already.
fn update(guest: Guest, change: impl FnOnce(&mut Banked, &Physical) -> Vcpus) {
    let vcpus = change(&mut guest.virq.borrow_mut(), &Physical(guest.vm));
    kick(guest, guest.vm, vcpus);
}

/// Fills the list registers with waiting interrupts.
pub fn fill(guest: Guest) {
    update(guest, Banked::fill);
}

/// Puts the virtual timer's interrupt, whose priority has been dropped, into a list register; the
/// guest's EOI deactivates it. Returns `false` if [`fill`] must do it.
#[inline(always)]
pub fn timer(guest: Guest) -> bool {
    // Without the lock of the shared interrupts: the timer is private to the vCPU.
    guest.virq.borrow_mut().inject_timer(&Physical(guest.vm))
}

/// Changes the shared interrupts of `vm`, which may be another one, and tells the vCPU that
/// `change` returns to check them.
fn update_shared(guest: Guest, vm: &Vm, change: impl FnOnce(&mut Shared) -> Vcpus) {
    // The lock is released before other cores are interrupted, and before this one fills its list
    // registers, which may take it again.
    let vcpus = change(&mut vm.spis.lock());
    if kick(guest, vm, vcpus) {
        fill(guest);
    }
}

/// Handles an interrupt of a passed-through device.
pub fn raise(guest: Guest, irq: u32) {
    let vm = guest.vm;
    update_shared(guest, vm, |spis| spis.raise(irq, &vm.distributor));
}

/// Handles a private interrupt that is passed through to the vCPU.
pub fn raise_private(guest: Guest, irq: u32) {
    update(guest, |banked, gic| {
        banked.raise(irq);
        banked.fill(gic)
    });
}

/// Handles a guest's read of its distributor.
///
/// `None` if the access is not emulated: it has a width or an offset that the distributor does not
/// allow.
pub fn read(guest: Guest, offset: u16, width: Width) -> Option<u32> {
    let gic = Physical(guest.vm);
    if offset == TYPER && width == Width::Word {
        return Some(gic.distributor().type_register());
    }
    guest.virq.borrow().read(&gic, offset, width)
}

/// Handles a guest's write to its distributor.
///
/// `None` as for [`read`]. The other vCPUs are told before the guest continues, as the hardware
/// would have signaled them.
pub fn write(guest: Guest, offset: u16, width: Width, value: u32) -> Option<()> {
    let mut virq = guest.virq.borrow_mut();
    let others = virq.write(&Physical(guest.vm), offset, width, value)?;
    kick(guest, guest.vm, others);
    Some(())
}

/// Returns the register of the distributor or a redistributor at an IPA, on a board with a GICv3.
pub fn place(guest: Guest, ipa: Ipa) -> Option<v3::Offset> {
    let map = guest.vm.spec.map;
    let vcpus = guest.vm.spec.cores.len();
    v3::Offset::new(
        ipa.0.wrapping_sub(map.gicd.0),
        ipa.0.wrapping_sub(map.gicc.0),
        vcpus,
    )
}

/// Handles a guest's access to its distributor or redistributors on a board with a GICv3. `stored`
/// is what it writes. Returns what it reads; `None` as for [`read`].
#[inline(always)]
pub fn access(guest: Guest, at: v3::Offset, access: Access, stored: Option<u64>) -> Option<u64> {
    let gic = Physical(guest.vm);
    let mut virq = guest.virq.borrow_mut();
    let Some(value) = stored else {
        return virq.read_v3(&gic, at, access.width());
    };
    let others = virq.write_v3(&gic, at, access.width(), value)?;
    kick(guest, guest.vm, others);
    Some(0)
}

/// Handles a guest's write of ICC_SGI1R.
pub fn send(guest: Guest, value: u64) {
    update(guest, |banked, gic| banked.send_v3(gic, value));
}

/// Handles a guest's write to GICC_DIR. Without EOImode it is UNPREDICTABLE (IHI 0048B, 4.4.15),
/// and ignored.
pub fn deactivate(guest: Guest, value: u32) {
    if gic::guest_splits_end() {
        update(guest, |banked, gic| banked.deactivate(gic, value));
    }
}

/// Has the line of an emulated device of `vm`, which may be another one's, follow what `is_high`
/// says. To be called after each change of that: under the lock, the last call sees all changes.
pub fn follow(guest: Guest, vm: &Vm, irq: u32, is_high: impl FnOnce() -> bool) {
    update_shared(guest, vm, |spis| {
        spis.set_line(irq, is_high(), &vm.distributor)
    });
}

/// Has the interrupt of the VM's doorbell follow the bits that wait there without the lock, if
/// possible. Returns whether it does; then [`doorbell`] has nothing to do.
#[inline(always)]
pub fn is_doorbell_followed(guest: Guest) -> bool {
    let vm = guest.vm;
    vm.bell.is_some_and(|bell| bell.trigger == Trigger::Edge)
        // No bit: taken already, or meant for a life that has ended.
        && (vm.doorbell.waiting() == 0
            || guest.virq.borrow().relist(irq::DOORBELL, &Physical(vm)))
}

/// Has the interrupt of the VM's doorbell follow the bits that wait there. To be called after each
/// change of them: under the lock, the last call sees all changes.
pub fn doorbell(guest: Guest) {
    let vm = guest.vm;
    let Some(bell) = vm.bell else { return };
    update_shared(guest, vm, |spis| {
        let waits = vm.doorbell.waiting() != 0;
        let vcpus = match bell.trigger {
            Trigger::Level => spis.set_line(irq::DOORBELL, waits, &vm.distributor),
            Trigger::Edge if waits => spis.latch(irq::DOORBELL, &vm.distributor),
            // Taken already, or meant for a life that has ended.
            Trigger::Edge => Vcpus(0),
        };
        // From now on, peers interrupt the core that lists it.
        if let Some(core) = vm.spec.cores.get(vcpus.0.trailing_zeros() as usize) {
            vm.called.store(1 << core.0, Relaxed);
        }
        vcpus
    });
}

/// Sets the level of a private line of this vCPU.
pub fn set_private_line(guest: Guest, irq: u32, high: bool) {
    update(guest, |banked, gic| {
        if banked.set_line(irq, high) {
            banked.fill(gic)
        } else {
            Vcpus(0)
        }
    });
}

/// Resets enables and list registers when a vCPU starts. SGIs that were sent to it since it was
/// turned on stay pending.
///
/// On the vCPU's own core: list registers belong to a core.
pub fn start(guest: Guest) {
    stop(guest);
    fill(guest);
}

/// Returns a vCPU's interrupts to the VM when it stops.
pub fn stop(guest: Guest) {
    // First return what the core has listed to the distributor, then empty the interface.
    update(guest, Banked::reset);
    // Also the active priorities and the guest's view of its interface: the next life finds them as
    // after power-on.
    gic::reset_virtual_interface();
}

/// Resets the interrupts of a whole VM, whose vCPUs have stopped.
///
/// Called on the core that renews the VM. The list registers of the other cores are empty: each
/// vCPU that stopped has called [`stop`].
pub fn reset_vm(vm: &'static Vm) {
    vm.spis.lock().reset(&Physical(vm));
    vm.distributor.reset();
}
