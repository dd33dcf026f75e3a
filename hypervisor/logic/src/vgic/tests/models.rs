//! The emulated distributor under loom: cores send, raise, retarget, withdraw and take interrupts of
//! one VM at the same time. Beside each model is one with a bug that the search must find.
//!
//! A core is a thread, with list registers that only it sees. Its interrupt from other cores is a
//! flag that it takes, as late as it likes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{UART, bit_of};
use crate::power::Requests;
use crate::power::tests::models::{check, requests};
use crate::syndrome::Width;
use crate::vgic::*;
use crate::vuart::Pl011;
use cloison_abi::pl011::offset;
use core::cell::{Cell, RefCell};
use loom::sync::atomic::{AtomicBool, AtomicU32};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::vec::Vec;

/// The SGI that cores send.
const SGI: u32 = 5;
/// The request to look for interrupts.
const INTERRUPTS: u32 = 1;
/// Offsets of GICD_CTLR, of the GICD_ITARGETSR of the UART's interrupt, and of GICD_SGIR.
const CONTROL: u16 = 0;
const TARGETS: u16 = 0x800 + (UART as u16 & !3);
const SEND: u16 = 0xf00;

/// A VM with up to three vCPUs.
struct Vm {
    distributor: Distributor,
    spis: Mutex<Shared>,
    /// What other cores ask each core, and its interrupt.
    requests: [Requests; 3],
    interrupts: [AtomicBool; 3],
    /// What a guest writes to its memory before it sends an SGI.
    written: [AtomicU32; 3],
}

impl Vm {
    /// Creates a VM whose distributor is on, and whose UART's interrupt is enabled, for vCPU 0.
    fn new(vcpus: u8) -> Arc<Self> {
        let mut spis = Shared::empty();
        spis.own(UART, Source::Emulated);
        spis.group(UART).enabled = bit_of(UART);
        let distributor = Distributor::new(vcpus, &spis);
        distributor.forward.store(true, Relaxed);
        Arc::new(Self {
            distributor,
            spis: Mutex::new(spis),
            requests: core::array::from_fn(|_| requests()),
            interrupts: core::array::from_fn(|_| AtomicBool::new(false)),
            written: core::array::from_fn(|_| AtomicU32::new(0)),
        })
    }

    /// Makes the UART's interrupt pending by software, without a word to any vCPU.
    fn latch(&self) {
        self.locked().group(UART).latched = bit_of(UART);
        self.distributor.mail(0).spis.store(true, Release);
    }

    fn locked(&self) -> impl DerefMut<Target = Shared> {
        self.spis.lock().expect("no thread panics with it")
    }

    /// Asks the cores of these vCPUs to look, as the mailbox does.
    fn kick(&self, vcpus: Vcpus) {
        for vcpu in ones(vcpus.0).map(|vcpu| vcpu as usize) {
            self.requests[vcpu].post(INTERRUPTS);
            self.interrupts[vcpu].swap(true, Relaxed);
        }
    }
}

/// A core of the VM.
struct Cpu {
    vm: Arc<Vm>,
    number: u8,
    banked: RefCell<Banked>,
    lr: [Cell<u32>; LIST_REGISTERS],
    /// What its guest has taken: IDs, and sources of SGIs.
    taken: RefCell<Vec<(u32, u32)>>,
}

impl PhysicalGic for Cpu {
    const VERSION: crate::vgic::GicVersion = crate::vgic::GicVersion::V2;

    fn distributor(&self) -> &Distributor {
        &self.vm.distributor
    }

    fn lock(&self) -> impl DerefMut<Target = Shared> {
        self.vm.locked()
    }

    fn done(&self) -> u32 {
        let is_done = |n: &usize| self.lr[*n].get() & (LR_PENDING | LR_ACTIVE) == 0;
        (0..LIST_REGISTERS)
            .filter(is_done)
            .fold(0, |mask, n| mask | 1 << n)
    }

    fn get(&self, index: usize) -> u32 {
        self.lr[index].get()
    }

    fn set(&self, index: usize, value: u32) {
        self.lr[index].set(value);
    }

    fn watch(&self, _: bool, _: bool) {}

    fn ended(&self) -> u32 {
        0
    }

    fn active_priorities(&self) -> u32 {
        0
    }

    fn binary_point(&self) -> u32 {
        0
    }

    fn pending(&self, _: usize) -> u32 {
        0
    }

    fn deactivate(&self, _: u32) {}

    fn set_enabled(&self, _: u32, _: bool) {}

    fn route(&self, _: u32, _: u8) {}

    fn configure(&self, _: u32, _: Trigger) {}
}

impl Cpu {
    fn new(vm: &Arc<Vm>, number: u8) -> Self {
        Self {
            vm: vm.clone(),
            number,
            banked: RefCell::new(Banked::new(number, 0, 0, false)),
            lr: Default::default(),
            taken: RefCell::default(),
        }
    }

    /// Changes the vCPU's part, and tells the vCPUs that this returns, as `vm::virq::update` does.
    fn update(&self, change: impl FnOnce(&mut Banked, &Self) -> Vcpus) {
        let vcpus = change(&mut self.banked.borrow_mut(), self);
        self.vm.kick(vcpus);
    }

    fn fill(&self) {
        self.update(Banked::fill);
    }

    /// A guest's write to a register of its distributor.
    fn write(&self, offset: u16, value: u32) {
        self.update(|banked, gic| {
            banked
                .write(gic, offset, Width::Word, value)
                .expect("a register")
        });
    }

    /// Takes its interrupt from other cores, if it has come.
    fn serve(&self) {
        if self.vm.interrupts[usize::from(self.number)].swap(false, Relaxed)
            && self.vm.requests[usize::from(self.number)].take() & INTERRUPTS != 0
        {
            self.fill();
        }
    }

    /// Returns whether a list register signals an interrupt.
    fn is_signaled(&self) -> bool {
        self.lr.iter().any(|lr| lr.get() & LR_PENDING != 0)
    }

    /// The guest takes and ends all that is signaled. `handle` is its handler.
    fn take_all(&self, handle: impl Fn(u32, u32)) {
        for lr in &self.lr {
            let value = lr.get();
            if value & LR_PENDING == 0 {
                continue;
            }
            lr.set(value ^ LR_PENDING | LR_ACTIVE);
            let id = value & LR_ID;
            let source = if id < 16 { value >> 10 & 7 } else { 0 };
            self.taken.borrow_mut().push((id, source));
            handle(id, source);
            lr.set(lr.get() & !LR_ACTIVE);
        }
        // The maintenance interrupt at an end that was asked for.
        if self.lr.iter().any(|lr| {
            let value = lr.get();
            value & LR_EOI != 0 && value & (LR_PENDING | LR_ACTIVE) == 0
        }) {
            self.fill();
        }
    }
}

/// Two vCPUs write to memory and send the same SGI to a third one: it takes one of each, and sees
/// what was written before.
fn every_sgi_arrives(send: fn(&Cpu)) {
    let vm = Vm::new(3);
    let senders = [1, 2].map(|number| {
        let vm = vm.clone();
        thread::spawn(move || {
            vm.written[usize::from(number)].store(1, Relaxed);
            send(&Cpu::new(&vm, number));
        })
    });
    let cpu = Cpu::new(&vm, 0);
    let step = || {
        cpu.serve();
        cpu.take_all(|_, source| {
            let written = vm.written[source as usize].load(Relaxed);
            assert_eq!(written, 1, "the SGI came before what was written");
        });
    };
    step();
    senders
        .into_iter()
        .for_each(|sender| sender.join().expect("no assertions"));
    (0..3).for_each(|_| step());
    let mut taken = cpu.taken.take();
    taken.sort_unstable();
    assert_eq!(taken, [(SGI, 1), (SGI, 2)], "an SGI was lost");
}

#[test]
fn loom_every_sgi_arrives() {
    check("SGIs", || {
        every_sgi_arrives(|cpu| cpu.write(SEND, 1 << 16 | SGI));
    });
}

#[test]
#[should_panic(expected = "an SGI was lost")]
fn loom_finds_an_sgi_that_overwrites_another() {
    check("planted: read the pending SGIs, then store them", || {
        every_sgi_arrives(|cpu| {
            let word = &cpu.vm.distributor.mail(0).sgis[0];
            let bit = 1 << (u32::from(cpu.number) * 16 + SGI);
            word.store(word.load(Acquire) | bit, Release);
            cpu.vm.kick(Vcpus(1));
        });
    });
}

#[test]
#[should_panic(expected = "the SGI came before what was written")]
fn loom_finds_an_sgi_that_overtakes_what_was_written() {
    check("planted: an SGI without release", || {
        every_sgi_arrives(|cpu| {
            let word = &cpu.vm.distributor.mail(0).sgis[0];
            word.fetch_or(1 << (u32::from(cpu.number) * 16 + SGI), Relaxed);
            cpu.vm.kick(Vcpus(1));
        });
    });
}

/// A device's line rises on one core while the target looks for interrupts for another reason: its
/// guest takes the interrupt.
fn a_line_that_rises_is_served(raise: fn(&Cpu)) {
    let vm = Vm::new(2);
    let device = {
        let vm = vm.clone();
        thread::spawn(move || raise(&Cpu::new(&vm, 1)))
    };
    let cpu = Cpu::new(&vm, 0);
    let step = || {
        cpu.serve();
        cpu.take_all(|id, _| _ = vm.locked().set_line(id, false, &vm.distributor));
    };
    // Its own SGI: it looks without being asked.
    cpu.write(SEND, 2 << 24 | SGI);
    cpu.fill();
    step();
    device.join().expect("no assertions");
    (0..3).for_each(|_| step());
    let taken = cpu.taken.take();
    let count = |irq| taken.iter().filter(|(id, _)| *id == irq).count();
    assert_eq!((count(UART), count(SGI)), (1, 1), "an interrupt was lost");
}

#[test]
fn loom_a_line_that_rises_is_served() {
    check("lines", || {
        a_line_that_rises_is_served(|cpu| {
            let vcpus = cpu.vm.locked().set_line(UART, true, &cpu.vm.distributor);
            cpu.vm.kick(vcpus);
        });
    });
}

#[test]
#[should_panic(expected = "an interrupt was lost")]
fn loom_finds_a_vcpu_that_is_told_too_early() {
    check("planted: tell it, then raise the line", || {
        a_line_that_rises_is_served(|cpu| {
            cpu.vm.distributor.mail(0).spis.store(true, Release);
            cpu.vm.kick(Vcpus(1));
            cpu.vm.locked().group(UART).line |= bit_of(UART);
        });
    });
}

/// Has two vCPUs serve what they were told until nothing is left. Returns how many interrupts both have
/// taken.
fn taken_by_both(one: &Cpu, other: &Cpu) -> usize {
    for _ in 0..3 {
        for cpu in [one, other] {
            cpu.serve();
            cpu.take_all(|_, _| ());
        }
    }
    one.taken.take().len() + other.taken.take().len()
}

/// An interrupt that one vCPU may take any moment gets another target: it is taken once.
fn a_retargeted_interrupt_is_taken_once(retarget: fn(&Cpu)) {
    let vm = Vm::new(2);
    let cpu = Cpu::new(&vm, 0);
    vm.latch();
    cpu.fill();
    assert!(cpu.is_signaled());
    let other = {
        let vm = vm.clone();
        thread::spawn(move || {
            let cpu = Cpu::new(&vm, 1);
            retarget(&cpu);
            cpu.serve();
            cpu.take_all(|_, _| ());
            cpu
        })
    };
    cpu.serve();
    cpu.take_all(|_, _| ());
    let other = other.join().expect("no assertions");
    let times = taken_by_both(&cpu, &other);
    assert_eq!(times, 1, "an interrupt was not taken once");
}

#[test]
fn loom_a_retargeted_interrupt_is_taken_once() {
    check("targets", || {
        a_retargeted_interrupt_is_taken_once(|cpu| cpu.write(TARGETS, 2 << (UART % 4 * 8)));
    });
}

#[test]
#[should_panic(expected = "an interrupt was not taken once")]
fn loom_finds_an_interrupt_that_two_vcpus_take() {
    check("planted: the new target need not wait", || {
        a_retargeted_interrupt_is_taken_once(|cpu| {
            cpu.write(TARGETS, 2 << (UART % 4 * 8));
            {
                let mut spis = cpu.vm.locked();
                let group = spis.group(UART);
                if group.placed & bit_of(UART) != 0 {
                    group.placed &= !bit_of(UART);
                    group.latched |= bit_of(UART);
                    spis.notify(UART, &cpu.vm.distributor);
                }
            }
            cpu.fill();
        });
    });
}

/// An edge arrives at a vCPU whose list register has kept the interrupt, while it gets another target:
/// it is taken once more.
fn an_edge_is_taken_once(tell: fn(&Vm, Vcpus)) {
    let vm = Vm::new(2);
    let cpu = Cpu::new(&vm, 0);
    vm.latch();
    cpu.fill();
    cpu.take_all(|_, _| ());
    let other = {
        let vm = vm.clone();
        thread::spawn(move || {
            let cpu = Cpu::new(&vm, 1);
            cpu.write(TARGETS, 2 << (UART % 4 * 8));
            cpu.serve();
            cpu.take_all(|_, _| ());
            cpu
        })
    };
    cpu.serve();
    // As `vm::doorbell` does.
    let relisted = cpu.banked.borrow().relist(UART, &cpu);
    if !relisted {
        let vcpus = vm.locked().latch(UART, &vm.distributor);
        tell(&vm, vcpus);
    }
    cpu.take_all(|_, _| ());
    let other = other.join().expect("no assertions");
    let times = taken_by_both(&cpu, &other);
    assert_eq!(times, 2, "an edge was not taken once");
}

#[test]
fn loom_an_edge_that_comes_again_is_taken_once() {
    check("edges", || {
        an_edge_is_taken_once(|vm, vcpus| vm.kick(vcpus))
    });
}

#[test]
#[should_panic(expected = "an edge was not taken once")]
fn loom_finds_an_edge_of_which_only_its_former_vcpu_is_told() {
    check("planted: tell the vCPU that has had it", || {
        an_edge_is_taken_once(|vm, _| vm.kick(Vcpus(1)));
    });
}

/// A vCPU turns the distributor off while another one lists an interrupt: once both have looked,
/// none is signaled. When it is on again, the interrupt is there.
fn nothing_is_signaled_while_off(turn_off: fn(&Cpu)) {
    let vm = Vm::new(2);
    let cpu = Cpu::new(&vm, 0);
    vm.latch();
    let other = {
        let vm = vm.clone();
        thread::spawn(move || {
            let cpu = Cpu::new(&vm, 1);
            turn_off(&cpu);
            cpu
        })
    };
    cpu.fill();
    cpu.serve();
    let other = other.join().expect("no assertions");
    cpu.serve();
    assert!(!cpu.is_signaled(), "signaled though the distributor is off");
    other.write(CONTROL, 1);
    cpu.serve();
    assert!(cpu.is_signaled(), "lost while the distributor was off");
}

#[test]
fn loom_nothing_is_signaled_while_the_distributor_is_off() {
    check("off", || {
        nothing_is_signaled_while_off(|cpu| cpu.write(CONTROL, 0))
    });
}

#[test]
#[should_panic(expected = "signaled though the distributor is off")]
fn loom_finds_a_distributor_that_tells_before_it_is_off() {
    check("planted: tell the others, then turn it off", || {
        nothing_is_signaled_while_off(|cpu| {
            cpu.vm.distributor.mail(0).spis.store(true, Release);
            cpu.vm.kick(Vcpus(1));
            cpu.vm.distributor.forward.store(false, Relaxed);
        });
    });
}

/// A vCPU stops and starts again while its interrupts come: the next life takes them.
fn a_restarted_vcpu_loses_none(start: fn(&Cpu)) {
    let vm = Vm::new(2);
    let other = {
        let vm = vm.clone();
        thread::spawn(move || {
            let cpu = Cpu::new(&vm, 1);
            cpu.write(SEND, 1 << 16 | SGI);
            let vcpus = vm.locked().set_line(UART, true, &vm.distributor);
            vm.kick(vcpus);
        })
    };
    let cpu = Cpu::new(&vm, 0);
    cpu.serve();
    // As `vm::virq::stop` does.
    cpu.update(Banked::reset);
    cpu.lr.iter().for_each(|lr| lr.set(0));
    cpu.serve();
    start(&cpu);
    other.join().expect("no assertions");
    let lower = |id: u32, _| _ = vm.locked().set_line(id, false, &vm.distributor);
    for _ in 0..3 {
        cpu.serve();
        cpu.take_all(lower);
    }
    let mut taken = cpu.taken.take();
    taken.sort_unstable();
    assert_eq!(taken, [(SGI, 1), (UART, 0)], "an interrupt was lost");
}

#[test]
fn loom_a_restarted_vcpu_loses_no_interrupt() {
    check("restarts", || {
        a_restarted_vcpu_loses_none(|cpu| {
            // As `vm::virq::start` does.
            cpu.update(Banked::reset);
            cpu.lr.iter().for_each(|lr| lr.set(0));
            cpu.fill();
        });
    });
}

#[test]
#[should_panic(expected = "an interrupt was lost")]
fn loom_finds_a_vcpu_that_starts_without_a_look() {
    check("planted: reset, then wait to be asked", || {
        a_restarted_vcpu_loses_none(|cpu| {
            cpu.update(Banked::reset);
            cpu.lr.iter().for_each(|lr| lr.set(0));
        });
    });
}

/// A UART of the VM, with its receive interrupt enabled, as others find it.
struct Device {
    vm: Arc<Vm>,
    uart: Mutex<Pl011>,
}

/// How the level of the UART's line is reported after an access.
type Report = fn(&Device, &mut dyn FnMut(&mut Pl011));

/// The console's core types two bytes while the guest reads one on another core: afterwards the
/// distributor knows the level of the line.
fn the_level_of_the_line_is_known(access: Report) {
    let mut uart = Pl011::default();
    uart.write(offset::IMSC, 1 << 4);
    let vm = Vm::new(1);
    let uart = Mutex::new(uart);
    let device = Arc::new(Device { vm, uart });
    let console = {
        let device = device.clone();
        thread::spawn(move || {
            for byte in *b"ab" {
                access(&device, &mut |uart| {
                    uart.push_rx(byte).expect("room");
                });
            }
        })
    };
    for _ in 0..2 {
        access(&device, &mut |uart| _ = uart.read(offset::DR));
    }
    console.join().expect("no assertions");
    let high = device
        .uart
        .lock()
        .expect("no thread panics with it")
        .line_level();
    let known = device.vm.locked().group(UART).line & bit_of(UART) != 0;
    assert_eq!(high, known, "a stale level");
}

fn report(device: &Device, high: bool) {
    let vcpus = device
        .vm
        .locked()
        .set_line(UART, high, &device.vm.distributor);
    device.vm.kick(vcpus);
}

#[test]
fn loom_the_level_of_a_line_is_known() {
    // As `vm::uart::access` does.
    check("level", || {
        the_level_of_the_line_is_known(|device, with| {
            let mut uart = device.uart.lock().expect("no thread panics with it");
            let before = uart.line_level();
            with(&mut uart);
            let high = uart.line_level();
            if before != high {
                report(device, high);
            }
        });
    });
}

#[test]
#[should_panic(expected = "a stale level")]
fn loom_finds_a_level_that_is_reported_too_late() {
    check("planted: unlock, then report", || {
        the_level_of_the_line_is_known(|device, with| {
            let mut uart = device.uart.lock().expect("no thread panics with it");
            let before = uart.line_level();
            with(&mut uart);
            let high = uart.line_level();
            drop(uart);
            if before != high {
                report(device, high);
            }
        });
    });
}
