//! Rtc: drives a passed-through clock by its interrupts, or tries to reach one that it does not
//! own.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_benchmarks::checksum::fnv1a;
use cloison_benchmarks::random::Random;
use cloison_guest::abi::irq;
use cloison_guest::gic::{self, Interrupt};
use cloison_guest::mmio::{Device, GICD};
use cloison_guest::probe::{self, Op};
use cloison_guest::ram::Ram;
use cloison_guest::{arg, args, cpu, entry, exceptions, println, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use spin::Once;

entry!(main);

/// IPA of the device's registers, in a VM that has the device.
const DEVICE: u64 = 0x0a00_0000;
/// IPA of the buffer in physically contiguous memory, in a VM that has it.
const BUFFER: u64 = 0x5000_0000;
/// Physical addresses of the two devices. A guest finds nothing there, whether it has the device or
/// not.
const PHYSICAL: [u64; 2] = [0x0901_0000, 0xff11_0000];

// SAFETY: neither of the two devices does DMA.
#[allow(unsafe_code)]
const REGISTERS: Device = unsafe { Device::passed_through(DEVICE) };

/// Microseconds after which an awaited interrupt is considered lost.
const PATIENCE: u64 = 3_000_000;

/// The device at `DEVICE`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Arm PrimeCell real-time clock (PL031): an alarm at a given second.
    Pl031,
    /// The first counter of a Cadence triple timer counter: an interrupt at the end of an interval.
    Ttc,
}

/// PL031 (Arm DDI 0224).
mod pl031 {
    pub const DATA: u64 = 0x00;
    pub const MATCH: u64 = 0x04;
    pub const MASK: u64 = 0x10;
    pub const RAW_STATUS: u64 = 0x14;
    pub const MASKED_STATUS: u64 = 0x18;
    pub const CLEAR: u64 = 0x1c;
    /// Four registers with one byte each, of `PeriphID`; then as many of `PCellID`.
    pub const PERIPHERAL_ID: u64 = 0xfe0;
    pub const CELL_ID: u64 = 0xff0;
}

/// The Zynq UltraScale+'s triple timer counter (AMD UG1087, module TTC); offsets are those of its
/// first counter.
mod ttc {
    pub const CLOCK_CONTROL: u64 = 0x00;
    pub const COUNTER_CONTROL: u64 = 0x0c;
    pub const INTERVAL: u64 = 0x24;
    /// Cleared by reading.
    pub const INTERRUPTS: u64 = 0x54;
    pub const INTERRUPT_ENABLE: u64 = 0x60;

    /// The input clock divided by 2^4.
    pub const PRESCALE_16: u32 = 3 << 1 | 1;
    pub const DISABLE: u32 = 1;
    pub const INTERVAL_MODE: u32 = 1 << 1;
    pub const RESET_COUNT: u32 = 1 << 4;
    pub const INTERVAL_INTERRUPT: u32 = 1;
    /// COUNTER_CONTROL after reset: counter and waveform output disabled.
    pub const AFTER_RESET: u32 = 0x21;
    /// The last count of an interval: about a millisecond, whether the input clock is 100 MHz (the
    /// board) or 133 MHz (QEMU). With QEMU's 133 MHz it is exactly 960 us: under -icount, where
    /// time does not advance meanwhile, its model (10.0) looks for the end of an interval over
    /// and over if it falls between two nanoseconds.
    pub const LAST_COUNT: u32 = 60 * 133 - 1;
}

impl Kind {
    const ALL: [Self; 2] = [Self::Pl031, Self::Ttc];

    /// Returns the GIC interrupt number, on the board that has the device.
    const fn interrupt(self) -> u32 {
        match self {
            Self::Pl031 => 34,
            Self::Ttc => 68,
        }
    }

    /// Returns the time, in microseconds, within which an armed device has raised its interrupt.
    const fn due(self) -> u64 {
        match self {
            Self::Pl031 => 1_100_000,
            Self::Ttc => 2_000,
        }
    }

    /// Returns the device's identification, and whether it is the expected one.
    fn identify(self) -> (u32, bool) {
        match self {
            Self::Pl031 => {
                let bytes = |offset| {
                    (0..4).fold(0, |id, byte| {
                        id | (REGISTERS.read(offset + byte * 4) & 0xff) << (byte * 8)
                    })
                };
                let id = bytes(pl031::PERIPHERAL_ID);
                // Part 0x031 by designer 0x41; bits from 20 on are the revision.
                (
                    id,
                    id & 0xf_ffff == 0x4_1031 && bytes(pl031::CELL_ID) == 0xb105_f00d,
                )
            }
            // It has no identification register. Instead, check that all three counters are in
            // their reset state and that a register keeps its value.
            Self::Ttc => {
                let controls =
                    [0, 4, 8].map(|counter| REGISTERS.read(ttc::COUNTER_CONTROL + counter));
                REGISTERS.write(ttc::INTERVAL, ttc::LAST_COUNT);
                let keeps = REGISTERS.read(ttc::INTERVAL) == ttc::LAST_COUNT;
                (controls[0], controls == [ttc::AFTER_RESET; 3] && keeps)
            }
        }
    }

    /// Makes it raise one interrupt.
    fn arm(self) {
        match self {
            Self::Pl031 => {
                REGISTERS.write(pl031::MASK, 1);
                REGISTERS.write(pl031::MATCH, REGISTERS.read(pl031::DATA).wrapping_add(1));
            }
            Self::Ttc => {
                REGISTERS.write(ttc::CLOCK_CONTROL, ttc::PRESCALE_16);
                REGISTERS.write(ttc::INTERVAL, ttc::LAST_COUNT);
                REGISTERS.write(ttc::INTERRUPT_ENABLE, ttc::INTERVAL_INTERRUPT);
                REGISTERS.write(ttc::COUNTER_CONTROL, ttc::INTERVAL_MODE | ttc::RESET_COUNT);
            }
        }
    }

    /// Lowers its interrupt line. Returns whether the device was raising it.
    fn quieten(self) -> bool {
        match self {
            Self::Pl031 => {
                let raised = REGISTERS.read(pl031::MASKED_STATUS) == 1;
                REGISTERS.write(pl031::CLEAR, 1);
                raised && REGISTERS.read(pl031::RAW_STATUS) == 0
            }
            Self::Ttc => {
                REGISTERS.write(ttc::COUNTER_CONTROL, ttc::DISABLE);
                let raised = REGISTERS.read(ttc::INTERRUPTS) & ttc::INTERVAL_INTERRUPT != 0;
                raised && REGISTERS.read(ttc::INTERRUPTS) == 0
            }
        }
    }
}

/// The device that this VM owns, if any.
static OWN: Once<Kind> = Once::new();
/// Interrupts taken while the device raised them.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// Interrupts taken while the device did not raise them.
static SPURIOUS: AtomicU64 = AtomicU64::new(0);
/// Interrupts that no device of this VM can raise.
static FOREIGN: AtomicU64 = AtomicU64::new(0);

fn handler(interrupt: Interrupt) {
    let counter = match (interrupt.id(), OWN.get()) {
        (irq::VTIMER, _) => {
            // A late interrupt, from a wait that is over, must not end the next wait.
            if timer::now() >= timer::deadline() {
                timer::disarm();
            }
            return;
        }
        (id, Some(kind)) if id == kind.interrupt() => {
            if kind.quieten() {
                &TAKEN
            } else {
                &SPURIOUS
            }
        }
        _ => &FOREIGN,
    };
    counter.fetch_add(1, Relaxed);
}

/// Sleeps until `done`, at most `micros` microseconds. Returns whether it was done.
fn wait(micros: u64, done: impl Fn() -> bool) -> bool {
    let deadline = timer::now() + timer::micros(micros);
    timer::arm(deadline);
    cpu::wait_until(|| done() || timer::now() >= deadline);
    timer::disarm();
    done()
}

/// Takes `rounds` interrupts of the device. Every second one is raised while it is disabled in the
/// distributor, and must still be pending when it is enabled.
fn drive(kind: Kind, rounds: u64, bytes: u64) {
    let mut random = Random::new(0x72_7463);
    let buffer = if bytes == 0 {
        &[]
    } else {
        Ram::behind_image().take_at(BUFFER, bytes)
    };
    buffer
        .iter()
        .for_each(|word| word.store(random.bits(), Relaxed));
    let sum = || fnv1a(buffer.iter().map(|word| word.load(Relaxed)));
    let checksum = sum();

    let (id, known) = kind.identify();
    if !known {
        println!("rtc: no such device: id={id:#010x}");
        return;
    }
    println!("rtc: driving id={id:#010x} buffer={} B", buffer.len() * 8);
    OWN.call_once(|| kind);
    let interrupt = kind.interrupt();
    // Level-sensitive: the upper of its two bits is 0.
    let (register, bit) = (
        0xc00 + u64::from(interrupt / 16 * 4),
        2 << (interrupt % 16 * 2),
    );
    GICD.write(register, GICD.read(register) & !bit);
    gic::enable(interrupt);

    // Raised lines that the distributor does not show, or shows although they are low.
    let is_pending = |id: u32| GICD.read(0x200 + u64::from(id / 32 * 4)) >> (id % 32) & 1 == 1;
    gic::disable(irq::VTIMER);
    timer::arm(timer::now());
    let mut hidden = u64::from(!is_pending(irq::VTIMER));
    timer::disarm();
    hidden += u64::from(is_pending(irq::VTIMER));
    gic::enable(irq::VTIMER);

    let (mut armed, mut early, mut corrupt) = (0, 0, 0u64);
    while armed < rounds {
        let held_back = armed % 2 == 1;
        if held_back {
            gic::disable(interrupt);
        }
        kind.arm();
        armed += 1;
        // Time during which a core with a quota is held.
        corrupt += u64::from(sum() != checksum);
        if held_back {
            early += u64::from(wait(kind.due(), || TAKEN.load(Relaxed) >= armed));
            // An emulator's device may raise its line late.
            hidden += u64::from(!wait(PATIENCE, || is_pending(interrupt)));
            gic::enable(interrupt);
        }
        if !wait(PATIENCE, || TAKEN.load(Relaxed) >= armed) {
            println!("rtc: interrupt {armed} did not come");
            break;
        }
    }
    // Wait to see whether there is one interrupt too many.
    wait(kind.due(), || false);
    println!(
        "rtc: interrupts={} expected={rounds} id={id:#010x} early={early} spurious={} foreign={} \
         corrupt={corrupt} hidden={hidden}",
        TAKEN.load(Relaxed),
        SPURIOUS.load(Relaxed),
        FOREIGN.load(Relaxed),
    );
}

/// Owns neither device nor buffer, and tries to reach all of them, round after round.
#[allow(unsafe_code)]
fn intrude(rounds: u64, micros: u64) {
    let mut random = Random::new(0x696e_7472);
    let (mut attempts, mut refused) = (0u64, 0u64);
    let mut count = |is_refused: bool| {
        attempts += 1;
        refused += u64::from(is_refused);
    };
    println!("rtc: intruding rounds={rounds}");
    for _ in 0..rounds {
        for base in [DEVICE, BUFFER].into_iter().chain(PHYSICAL) {
            for op in [
                Op::LoadWord,
                Op::StoreWord,
                Op::LoadByte,
                Op::StoreByte,
                Op::LoadDouble,
                Op::StoreDouble,
            ] {
                // The relevant registers are the first ones.
                let address = base + (random.below(0x80) & !7);
                // SAFETY: none of this program's memory is there; the access faults.
                let result = unsafe { probe::access(op, address, random.bits()) };
                count(result.is_err_and(|fault| fault.is_external_abort()));
            }
        }
        for id in Kind::ALL.map(Kind::interrupt) {
            // Set and clear registers of enabled, pending and active state.
            for bank in [0x100, 0x180, 0x200, 0x280, 0x300, 0x380] {
                let register = bank + u64::from(id / 32 * 4);
                GICD.write(register, 1 << (id % 32));
                count(GICD.read(register) & 1 << (id % 32) == 0);
            }
            // Targets and, for all interrupts of the word, the trigger type.
            let register = 0x800 + u64::from(id);
            GICD.write_byte(register, 0xff);
            count(GICD.read(register & !3) >> (id % 4 * 8) & 0xff == 0);
            let register = 0xc00 + u64::from(id / 16 * 4);
            GICD.write(register, u32::MAX);
            count(GICD.read(register) >> (id % 16 * 2) & 2 == 0);
        }
        wait(micros, || false);
    }
    let leaked = attempts - refused;
    println!(
        "rtc: intruder attempts={attempts} refused={refused} leaked={leaked} foreign={}",
        FOREIGN.load(Relaxed)
    );
}

fn main() {
    exceptions::on_interrupt(handler);
    gic::init_distributor();
    gic::init_cpu();
    gic::enable(irq::VTIMER);
    cpu::unmask_interrupts();
    match arg(0, 1) {
        1 => drive(Kind::Pl031, arg(1, 10), args()[2]),
        2 => drive(Kind::Ttc, arg(1, 10), args()[2]),
        3 => intrude(arg(1, 100), arg(2, 10_000)),
        kind => println!("rtc: there is no kind {kind}"),
    }
}
