//! GICv3 check: accesses every register of the distributor and the redistributors in random ways,
//! then checks that the VM has only its own interrupts, and that these still work.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::{irq, map};
use cloison_guest::gic::Interrupt;
use cloison_guest::probe::Op;
use cloison_guest::{arg, cpu, entry, exceptions, gic, println, timer};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

entry!(main);

/// The SGI that this vCPU sends to itself.
const SGI: u32 = 5;
/// Bytes of a frame of the distributor or a redistributor.
const FRAME: u64 = 0x1_0000;

/// Interrupts taken: one bit each.
static TAKEN: AtomicU32 = AtomicU32::new(0);

#[allow(unsafe_code)]
mod register {
    use cloison_guest::exceptions::Fault;
    use cloison_guest::probe::{self, Op};

    /// Accesses the interrupt controller, which Rust does not know of.
    pub fn access(op: Op, address: u64, value: u64) -> Result<u64, Fault> {
        // SAFETY: a device; the caller repairs its state.
        unsafe { probe::access(op, address, value) }
    }

    /// Sends SGIs by ICC_SGI1R_EL1.
    pub fn send(value: u64) -> bool {
        // SAFETY: `msr icc_sgi1r_el1, x0`: interrupts are masked.
        unsafe { probe::execute(0xd518_cba0, value) }.is_ok()
    }
}

/// Reads a register of 32 bits.
fn read(address: u64) -> u64 {
    register::access(Op::LoadWord, address, 0).unwrap_or(u64::MAX)
}

/// Writes a register of 32 bits.
fn write(address: u64, value: u64) -> bool {
    register::access(Op::StoreWord, address, value).is_ok()
}

fn handler(interrupt: Interrupt) {
    if interrupt.id() == irq::VTIMER {
        timer::disarm();
    }
    TAKEN.fetch_or(1 << (interrupt.id() % 32), SeqCst);
}

/// Accesses every word of some frames, each in a random way. Returns how many accesses were refused.
fn sweep(base: u64, len: u64, random: &mut Random) -> u64 {
    let ops = Op::OF_DEVICES;
    let mut refused = 0;
    for offset in (0..len).step_by(4) {
        let op = ops[random.below(ops.len() as u64) as usize];
        refused += u64::from(register::access(op, base + offset, random.bits()).is_err());
    }
    refused
}

/// Ends what the sweeps began.
fn restore() {
    let own = map::REDISTRIBUTORS + FRAME;
    for word in 0..32 {
        for register in [0x180, 0x280, 0x380] {
            let base = if word == 0 { own } else { map::GICD };
            write(base + register + word * 4, u64::from(u32::MAX));
        }
    }
    gic::init_distributor();
    gic::init_cpu();
    while let Some(interrupt) = gic::acknowledge() {
        gic::end(interrupt);
    }
}

fn main() {
    let (vcpus, sweeps) = (arg(0, 2), arg(1, 1));
    // The UART's, if the VM has no other SPI.
    let spi = arg(2, irq::UART.into());
    let mut random = Random::new(1);
    let mut wrong = 0;
    let mut must = |holds: bool, what: &str| {
        if !holds {
            wrong += 1;
            println!("gicv3-check: wrong: {what}");
        }
    };
    must(gic::is_v3(), "the CPU says that there is a GICv3");
    let ends = map::REDISTRIBUTORS + vcpus * 2 * FRAME;
    let mut refused = 0;
    for _ in 0..sweeps {
        refused += sweep(map::GICD, FRAME, &mut random);
        refused += sweep(map::REDISTRIBUTORS, vcpus * 2 * FRAME, &mut random);
    }
    must(
        register::access(Op::LoadWord, ends, 0).is_err() && !write(ends + 0x1_0100, 1),
        "the redistributors end after the last vCPU's",
    );
    // The interrupts of others: enabled by nobody here, whatever is written.
    for word in 1..32 {
        let mine = [irq::UART.into(), spi]
            .into_iter()
            .filter(|own| own / 32 == word)
            .fold(0, |mine, own| mine | 1 << (own % 32));
        let others = u64::from(u32::MAX) & !mine;
        for register in [0x100, 0x200, 0x300] {
            let at = map::GICD + register + word * 4;
            write(at, others);
            must(read(at) & others == 0, "an SPI that the VM does not have");
        }
    }
    let other = map::REDISTRIBUTORS + 3 * FRAME;
    write(other + 0x100, u64::from(u32::MAX));
    must(
        read(other + 0x100) == 0,
        "another vCPU's private interrupts",
    );
    // Only vCPUs that the VM has are targets.
    let router = map::GICD + 0x6000 + 8 * u64::from(irq::UART);
    write(router, 1);
    for target in [vcpus, 7, 0x100, 1 << 16] {
        write(router, target);
        must(read(router) == 1, "the target of the UART's interrupt");
    }
    // SGIs to vCPUs and clusters that the VM does not have go nowhere.
    for value in [0xfffc, 1 | 1 << 16, 1 | 1 << 32, 1 | 1 << 48, 1 | 1 << 44] {
        must(
            register::send(value | u64::from(SGI) << 24),
            "ICC_SGI1R_EL1",
        );
    }
    restore();
    must(gic::acknowledge().is_none(), "nothing is pending");
    must(
        read(map::GICD + 4) & 0x1f == (spi / 32).max(7),
        "as many interrupts as the VM needs",
    );
    exceptions::on_interrupt(handler);
    gic::enable(SGI);
    gic::enable(irq::VTIMER);
    gic::enable(spi as u32);
    cpu::unmask_interrupts();
    gic::send_sgi(1, SGI);
    timer::arm(timer::now() + timer::micros(100));
    write(map::GICD + 0x200 + spi / 32 * 4, 1 << (spi % 32));
    let all = 1 << SGI | 1 << irq::VTIMER | 1 << (spi % 32);
    cpu::wait_until(|| TAKEN.load(SeqCst) == all);
    println!("gicv3-check: done wrong={wrong} refused={refused}");
}
