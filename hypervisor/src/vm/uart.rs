//! The UART that a guest sees: its accesses, its output in lines of text, and its input.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, timer};
use crate::vm::cpu::{Cpu, Line};
use crate::vm::partition::Vm;
use crate::vm::{guest_registers, virq};
use cloison_logic::console::{LineBuffer, Part};
use cloison_logic::messages::Position;

/// Handles a guest's read of its UART.
pub fn read(cpu: &Cpu, vm: &Vm, offset: u16) -> u32 {
    let mut uart = vm.uart.lock();
    let before = uart.0.line_level();
    let value = uart.0.read(offset);
    report(cpu, vm, before, uart.0.line_level());
    value
}

/// Handles a guest's write to its UART. Returns what to wait for before the guest continues: a line that is to be printed.
pub fn write(cpu: &Cpu, vm: &Vm, offset: u16, value: u32) -> Option<Position> {
    let mut uart = vm.uart.lock();
    let (device, line) = &mut *uart;
    let before = device.line_level();
    let mut position = None;
    if let Some(byte) = device.write(offset, value) {
        position = line
            .push(byte)
            .map(|part| console::queue(vm.id, &vm.spec.name, &part));
        if line.is_waiting() != (cpu.line.get() != Line::Whole) {
            watch_line(cpu, line.is_waiting());
        }
    }
    report(cpu, vm, before, device.line_level());
    position
}

/// Reports the level of the UART's line if it has changed. Called under the UART's lock, so that two cores cannot report it
/// in the wrong order.
fn report(cpu: &Cpu, vm: &Vm, before: bool, high: bool) {
    if before != high {
        virq::set_line(cpu, vm, cloison_abi::irq::UART, high);
    }
}

/// Makes the core watch for a guest that leaves a line unfinished (a prompt), or stop watching. Such a guest either
/// waits for an interrupt (then WFI traps, once) or takes its timer ticks, so EL2 needs no timer for this.
fn watch_line(cpu: &Cpu, on: bool) {
    cpu.line.set(if on { Line::Begun } else { Line::Whole });
    guest_registers::trap_waits(on);
}

/// Prints the line that the guest has left unfinished.
pub fn print_unfinished_line(cpu: &Cpu, vm: &Vm) {
    if cpu.line.get() != Line::Whole {
        watch_line(cpu, false);
        print_rest(vm, LineBuffer::pause);
        cpu.send_soon(timer::now());
        cpu.deadlines.program();
    }
}

/// Handles a tick of the guest's timer while a line is unfinished.
#[cold]
#[inline(never)]
pub fn tick_in_line(cpu: &Cpu) {
    match (cpu.line.get(), cpu.vm) {
        (Line::Left, Some(vm)) => print_unfinished_line(cpu, vm),
        _ => cpu.line.set(Line::Left),
    }
}

/// Prints what `rest` takes of the guest's unfinished line. Returns what to wait for, if there is anything.
pub fn print_rest(vm: &Vm, rest: fn(&mut LineBuffer) -> Option<Part>) -> Option<Position> {
    let mut uart = vm.uart.lock();
    rest(&mut uart.1).map(|part| console::queue(vm.id, &vm.spec.name, &part))
}

/// Passes a byte of console input to the guest.
pub fn deliver(cpu: &Cpu, vm: &Vm, byte: u8) {
    let mut uart = vm.uart.lock();
    let before = uart.0.line_level();
    // A guest that does not read loses input, as on a real UART whose FIFO overruns.
    let _ = uart.0.push_rx(byte);
    report(cpu, vm, before, uart.0.line_level());
}
