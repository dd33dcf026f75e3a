//! Console input: goes to one VM at a time, selected by a key.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::uart::Uart;
use crate::devices::{console, gic};
use crate::vm::cpu::Guest;
use crate::vm::partition::{all, system};
use crate::vm::{logger, uart};
use cloison_logic::console::{Action, InputSwitch};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;
use spin::mutex::TicketMutex;

/// What the user can type, apart from the numbers of the VMs.
const HELP: &str = "[console] Ctrl-T, then: n the next VM, s x r start, stop or restart it, ? \
                    this help, Ctrl-T a Ctrl-T";

/// The UART, and who gets its input. One core takes the interrupt, but the lock is also what makes
/// this state shared safely.
static CONSOLE_INPUT: TicketMutex<Option<(Uart, InputSwitch)>> = TicketMutex::new(None);

/// Enables console input, which goes to the first VM until switched.
pub fn init(uart: Uart) {
    *CONSOLE_INPUT.lock() = Some((uart, InputSwitch::new(all().len() as u8)));
    // One core serves the console: the first one of the first VM.
    let irq = system().board.console.irq.0;
    gic::route(irq, all()[0].spec.cores[0].0);
    gic::set_enabled(irq, true);
    uart.enable_input();
}

/// Handles the console's receive interrupt.
///
/// A handler: it does not wait. The work is bounded by the FIFO's bytes, and a line of text for
/// each.
pub fn receive(guest: Guest) {
    let mut guard = CONSOLE_INPUT.lock();
    let Some((device, switch)) = guard.as_mut() else {
        return;
    };
    // Before the bytes are taken: one that arrives meanwhile raises the interrupt again.
    device.acknowledge_input();
    while let Some(byte) = device.receive() {
        match switch.push(byte) {
            // Any VM's UART, whose lock may be taken from any core.
            Action::Deliver(vm, byte) => uart::deliver(guest, &all()[usize::from(vm)], byte),
            Action::Switched(vm) => {
                // Relaxed: the number only decides whose terminal sequences pass from the next byte
                // on.
                console::INPUT.store(vm, Relaxed);
                logger::say(
                    &guest,
                    format_args!(
                        "[console] input goes to {}",
                        all()[usize::from(vm)].spec.name
                    ),
                );
            }
            Action::Order(number, change) => {
                let vm = &all()[usize::from(number)];
                // The console is granted its orders by the configuration, as VMs are.
                let refusal = if system().console_manages >> number & 1 == 0 {
                    "not granted: `console_manages` does not name the VM"
                } else {
                    // Said before the VM's first core can say that it obeyed.
                    logger::say(&guest, format_args!("[console] {change} {}", vm.spec.name));
                    // Nobody pays for it here: the console has no budget. The VM's first core does,
                    // if it has one.
                    match vm.order(change) {
                        Ok(_) => continue,
                        Err(_) => "busy: an earlier change is not over",
                    }
                };
                logger::say(
                    &guest,
                    format_args!("[console] {change} {}: {refusal}", vm.spec.name),
                );
            }
            Action::Help => {
                // Formatted as it is written to the ring: nothing is allocated.
                let vms = fmt::from_fn(|text| {
                    let mut all = all().iter().zip(1..);
                    all.try_for_each(|(vm, number)| {
                        write!(text, ", {number} {} ({})", vm.spec.name, vm.power.life())
                    })
                });
                logger::say(&guest, format_args!("{HELP}{vms}"));
            }
            Action::None => {}
        }
    }
}
