//! A guest's UART: its accesses, its output in lines of text, and its input.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, timer};
use crate::vm::cpu::{Cpu, Guest, Line};
use crate::vm::partition::Vm;
use crate::vm::{guest_registers, virq};
use cloison_formats::image;
use cloison_logic::console::{LineBuffer, Part};
use cloison_logic::messages::Position;
use cloison_logic::vuart::Uart;

/// Returns a VM's UART and line as they are when it starts.
pub fn fresh(spec: &image::Vm) -> (Uart, LineBuffer) {
    (Uart::new(spec.map.uart.kind), LineBuffer::default())
}

/// Handles a guest's read of its UART.
pub fn read(guest: Guest, offset: u16) -> u32 {
    access(guest, guest.vm, |device, _| device.read(offset))
}

/// Handles a guest's write to its UART. Returns what to wait for before the guest continues: a line
/// that is to be printed.
pub fn write(guest: Guest, offset: u16, value: u32) -> Option<Position> {
    let vm = guest.vm;
    access(guest, vm, |device, line| {
        // `None` of a write that sends no byte: a control register, for example.
        let part = line.push(device.write(offset, value)?);
        if line.is_waiting() != (guest.line.get() != Line::Whole) {
            watch_line(&guest, line.is_waiting());
        }
        part.map(|part| part.queue(&vm.spec.name, console::lines(vm.id)))
    })
}

/// Accesses the UART, and reports the level of its line if that has changed: under the UART's lock,
/// so that two cores cannot report it in the wrong order.
fn access<T>(guest: Guest, vm: &Vm, with: impl FnOnce(&mut Uart, &mut LineBuffer) -> T) -> T {
    // The order of locks: the UART, then the SPIs (`virq::follow`).
    let mut uart = vm.uart.lock();
    let (device, line) = &mut *uart;
    let before = device.line_level();
    let result = with(device, line);
    let high = device.line_level();
    if before != high {
        virq::follow(guest, vm, vm.spec.map.uart.irq.0, || high);
    }
    result
}

/// Makes the core watch for a guest that leaves a line unfinished (a prompt), or stop watching.
/// Such a guest either waits for an interrupt (then WFI traps, once) or takes its timer ticks, so
/// EL2 needs no timer for this.
fn watch_line(cpu: &Cpu, on: bool) {
    cpu.line.set(if on { Line::Begun } else { Line::Whole });
    guest_registers::set_wait_trap(on);
}

/// Prints the line that the guest has left unfinished.
pub fn print_unfinished_line(guest: Guest) {
    if guest.line.get() != Line::Whole {
        watch_line(&guest, false);
        print_rest(guest.vm, LineBuffer::pause);
        guest.send_by(timer::now() + guest.output_delay);
        guest.deadlines.program();
    }
}

/// Handles a tick of the guest's timer while a line is unfinished.
#[cold]
#[inline(never)]
pub fn tick_in_line(guest: Guest) {
    // The second tick in the same line: a guest that is about to write more had a whole tick for
    // it.
    if guest.line.replace(Line::Left) == Line::Left {
        print_unfinished_line(guest);
    }
}

/// Prints what `rest` takes of the guest's unfinished line. Returns what to wait for, if there is
/// anything.
///
/// Any core may call it: the lock orders it with the guest's writes.
pub fn print_rest(vm: &Vm, rest: fn(&mut LineBuffer) -> Option<Part>) -> Option<Position> {
    let mut uart = vm.uart.lock();
    rest(&mut uart.1).map(|part| part.queue(&vm.spec.name, console::lines(vm.id)))
}

/// Passes a byte of console input to the guest.
///
/// `guest` is the console's core, which may be another VM's.
pub fn deliver(guest: Guest, vm: &Vm, byte: u8) {
    // A guest that does not read loses input, as on a real UART whose FIFO overruns.
    let _ = access(guest, vm, |device, _| device.push_rx(byte));
}
