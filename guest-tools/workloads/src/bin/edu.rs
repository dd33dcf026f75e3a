//! Edu: drives QEMU's PCIe device `edu`, whose DMA engine goes wherever its guest says.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::{irq, map};
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::mmio::Device;
use cloison_guest::ram::Ram;
use cloison_guest::{arg, cpu, entry, exceptions, println, psci, timer};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

entry!(main);

/// IPA of the configuration space of PCIe bus 0.
const ECAM: u64 = 0x3f00_0000;
/// IPA and bus address of the device's registers, in the window of the host bridge.
const BAR: u64 = 0x1000_0000;
/// Bytes of the configuration space of a slot.
const SLOT: u64 = 0x8000;
/// Vendor and device.
const EDU: u32 = 0x11e8_1234;
/// Memory that the device may be given: after the image, and not in it.
const MEMORY: u64 = map::RAM + 0x80_0000;
/// First address after the VM's RAM.
const END: u64 = map::RAM + 0x100_0000;
/// Bytes that a transfer moves.
const LENGTH: u64 = 64;
/// Words of one.
const WORDS: usize = (LENGTH / 8) as usize;
/// What the device writes. A test looks for it in the memory of others.
const MARK: u64 = u64::from_le_bytes(*b"edu-mark");
/// Time that a transfer takes, in microseconds: 100 ms, and some.
const TRANSFER: u64 = 101_000;

#[allow(unsafe_code)]
// SAFETY: registers of configuration; what is written there lets the device do DMA as `DEVICE` says.
const CONFIGURATION: Device = unsafe { Device::passed_through(ECAM) };
#[allow(unsafe_code)]
// SAFETY: the device writes to `MEMORY`, which is words that nobody takes for anything else, and to
// addresses outside of the VM's RAM.
const DEVICE: Device = unsafe { Device::passed_through(BAR) };

/// Registers of the device (QEMU, docs/specs/edu.rst).
mod register {
    pub const SOURCE: u64 = 0x80;
    pub const DESTINATION: u64 = 0x88;
    pub const COUNT: u64 = 0x90;
    pub const COMMAND: u64 = 0x98;
    /// COMMAND: it runs.
    pub const RUN: u32 = 1;
    /// COMMAND: from the device to memory.
    pub const TO_MEMORY: u32 = 2;
    /// Address of the device's own buffer.
    pub const BUFFER: u64 = 0x4_0000;
}

fn handler(interrupt: Interrupt) {
    if interrupt.id() == irq::VTIMER && timer::now() >= timer::deadline() {
        timer::disarm();
    }
}

/// Sleeps until this much time has passed.
fn sleep(micros: u64) {
    let deadline = timer::now() + timer::micros(micros);
    timer::arm(deadline);
    cpu::wait_until(|| timer::now() >= deadline);
    timer::disarm();
}

/// Finds the device and gives it an address. Returns whether it is there.
fn begin() -> bool {
    let slots = (1..8).map(|slot| slot * SLOT);
    let Some(slot) = slots
        .into_iter()
        .find(|slot| CONFIGURATION.read(*slot) == EDU)
    else {
        println!("edu: there is no such device");
        return false;
    };
    let command = CONFIGURATION.read(slot + 4) & 0xffff;
    CONFIGURATION.write(slot + 0x10, BAR as u32);
    // It has its memory, and may access others (PCI 3.0, 6.2.2).
    CONFIGURATION.write(slot + 4, 6);
    println!(
        "edu: found id={:#010x} command={command:#x}",
        DEVICE.read(0)
    );
    true
}

/// Has the device transfer something between a part of its buffer and an address, in 100 ms.
fn start(direction: u32, part: u64, address: u64) {
    let own = register::BUFFER + part * LENGTH;
    let (source, destination) = if direction == register::TO_MEMORY {
        (own, address)
    } else {
        (address, own)
    };
    DEVICE.write_double(register::SOURCE, source);
    DEVICE.write_double(register::DESTINATION, destination);
    DEVICE.write_double(register::COUNT, LENGTH);
    DEVICE.write(register::COMMAND, register::RUN | direction);
}

/// Transfers and waits. Returns whether it has ended in time.
fn transfer(direction: u32, part: u64, address: u64) -> bool {
    start(direction, part, address);
    sleep(TRANSFER);
    DEVICE.read(register::COMMAND) & register::RUN == 0
}

/// An address outside of the VM's RAM: of other memory at its physical address, of devices, or any.
fn elsewhere(random: &mut Random) -> u64 {
    let address = match random.below(8) {
        0..3 => END + random.below((1 << 31) - END),
        3 => random.below(map::RAM),
        4 => map::GICC + random.below(0x2000),
        5 => random.below(1 << 40),
        6 => random.bits(),
        _ => (1 << 31) + random.below(1 << 31),
    };
    // What the device makes of it: `dma_mask`.
    let masked = address & ((1 << 40) - 1) & !7;
    if (map::RAM - LENGTH..END).contains(&masked) {
        END + masked % 0x1000_0000
    } else {
        masked
    }
}

/// Sends the device to addresses outside of the VM, and back to its own.
fn attack(rounds: u64, seed: u64) {
    let memory = Ram::behind_image().take_at(MEMORY, 4096);
    let part = |number: usize| &memory[number * WORDS..][..WORDS];
    let at = |number: u64| MEMORY + number * LENGTH;
    let is = |number, value| part(number).iter().all(|word| word.load(SeqCst) == value);
    let fill = |number, value| {
        let words: &[AtomicU64] = part(number);
        words.iter().for_each(|word| word.store(value, SeqCst));
    };
    // Part 0 of the memory and of the device's buffer: what it writes. Part 1: what it has read.
    fill(0, MARK);
    let mut random = Random::new(seed);
    let (mut late, mut wrong, mut leaked) = (0u64, 0u64, 0u64);
    let mut run = |direction, part, address| late += u64::from(!transfer(direction, part, address));
    run(0, 0, at(0));
    for round in 0..rounds {
        // The device works: what it has written is there.
        if round % 64 == 0 {
            fill(2, 0);
            run(register::TO_MEMORY, 0, at(2));
            wrong += u64::from(!is(2, MARK));
        }
        let address = elsewhere(&mut random);
        if round % 4 > 0 {
            run(register::TO_MEMORY, 0, address);
            continue;
        }
        // A read gives nothing but what was there, or zeros.
        fill(1, !MARK);
        run(0, 1, at(1));
        run(0, 1, address);
        run(register::TO_MEMORY, 1, at(1));
        leaked += u64::from(!is(1, !MARK) && !is(1, 0));
    }
    fill(2, 0);
    run(register::TO_MEMORY, 0, at(2));
    wrong += u64::from(!is(2, MARK));
    println!("edu: done rounds={rounds} late={late} wrong={wrong} leaked={leaked}");
}

/// Begins a transfer to its own memory and ends its life, by a reset or for good.
fn leave(resets: bool) {
    let memory = Ram::behind_image().take_at(MEMORY, 4096);
    if memory[0].load(SeqCst) == MARK {
        // Without a word to the device: what it does now is left from the former life.
        memory.iter().for_each(|word| word.store(0, SeqCst));
        sleep(3 * TRANSFER);
        let words = memory.iter().filter(|word| word.load(SeqCst) != 0).count();
        println!("edu: the next life found words={words}");
        return;
    }
    if !begin() {
        return;
    }
    memory.iter().for_each(|word| word.store(MARK, SeqCst));
    transfer(0, 0, MEMORY);
    if !resets {
        memory.iter().for_each(|word| word.store(0, SeqCst));
    }
    println!("edu: leaving");
    start(register::TO_MEMORY, 0, MEMORY + 2 * LENGTH);
    if resets {
        psci::system_reset();
    }
}

fn main() {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    match arg(0, 1) {
        1 if begin() => attack(arg(1, 100), arg(2, 1)),
        1 => {}
        2 => leave(true),
        3 => leave(false),
        what => println!("edu: there is no {what}"),
    }
}
