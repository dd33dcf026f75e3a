//! Echo: prints each line of input, which arrives by interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::gic::{self, Interrupt};
use cloison_guest::{cpu, device_map, entry, exceptions, println, uart};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

entry!(main);

/// Maximum length of a line, in bytes.
const LINE: usize = 200;

/// Input between the interrupt handler and `main`, both on the same vCPU.
static RING: [AtomicU8; 256] = [const { AtomicU8::new(0) }; 256];
static WRITTEN: AtomicUsize = AtomicUsize::new(0);
static READ: AtomicUsize = AtomicUsize::new(0);
/// Bytes that arrived while the ring was full.
static LOST: AtomicUsize = AtomicUsize::new(0);

fn handler(interrupt: Interrupt) {
    if interrupt.id() != device_map::uart_irq() {
        return;
    }
    while let Some(byte) = uart::input() {
        let written = WRITTEN.load(Relaxed);
        if written - READ.load(Relaxed) == RING.len() {
            LOST.fetch_add(1, Relaxed);
        } else {
            RING[written % RING.len()].store(byte, Relaxed);
            WRITTEN.store(written + 1, Relaxed);
        }
    }
}

fn next() -> u8 {
    cpu::wait_until(|| WRITTEN.load(Relaxed) > READ.load(Relaxed));
    let read = READ.load(Relaxed);
    let byte = RING[read % RING.len()].load(Relaxed);
    READ.store(read + 1, Relaxed);
    byte
}

fn main() {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(device_map::uart_irq());
    uart::enable_input_interrupt();
    cpu::unmask_interrupts();
    println!("echo: ready");
    let (mut line, mut len) = ([0; LINE], 0);
    loop {
        match next() {
            b'\r' | b'\n' => {
                let text = core::str::from_utf8(&line[..len]).unwrap_or("(not UTF-8)");
                if len != 0 {
                    println!("echo: {text}");
                }
                if text == "quit" {
                    break;
                }
                len = 0;
            }
            byte if len < LINE => {
                line[len] = byte;
                len += 1;
            }
            _ => {}
        }
    }
    println!("echo: done lost={}", LOST.load(Relaxed));
}
