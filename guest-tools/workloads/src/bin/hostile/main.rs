//! Hostile: tries everything that a guest must not be able to do, and counts what succeeds.
//!
//! Each attempt is *refused* (a fault or an error code), *ignored* (it had no effect that the guest
//! could notice, and needs none), or *leaked*: it read, changed or reached something that the VM
//! does not own.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

#[allow(unsafe_code)]
mod calls;
#[allow(unsafe_code)]
mod gic;
#[allow(unsafe_code)]
mod loads;
#[allow(unsafe_code)]
mod memory;
mod phase;
#[allow(unsafe_code)]
mod registers;

use cloison_benchmarks::random::Random;
use cloison_guest::abi::map;
use cloison_guest::probe::{self, Op};
use cloison_guest::{arg, args, asm, entry, println, psci};
use phase::Own;

entry!(main);

/// The seed of the garbage.
const GARBAGE: u64 = 1;

#[allow(unsafe_code)]
fn main() {
    let seed = args()[0];
    let count = arg(1, 10_000);
    let [ram_mib, vcpus] = [args()[3] & 0xffff_ffff, args()[3] >> 32].map(|value| value.max(1));
    let ram_mib = if args()[3] & 0xffff_ffff == 0 {
        16
    } else {
        ram_mib
    };
    let own = Own {
        ram_end: map::RAM + (ram_mib << 20),
        vcpus,
    };
    let mut random = Random::new(seed);
    println!("hostile: seed={seed} calls={count} ram={ram_mib} MiB vcpus={vcpus}");

    // First come the phases that a VM survives even if it is killed for a forbidden access.
    let leaked = calls::hypercalls(own, &mut random, count)
        + calls::firmware(own, &mut random, count / 4)
        + calls::power(own, &mut random)
        + gic::waits()
        + registers::counters(&mut random)
        + registers::wild(&mut random)
        + calls::services_page(own, &mut random, count / 4)
        + loads::every_load()
        + gic::distributor(own, &mut random)
        + gic::interface(&mut random)
        + memory::sweep(own, &mut random)
        + memory::accesses(own, &mut random);
    println!("hostile: done leaked={leaked}");

    match args()[2] {
        0 => psci::system_off(),
        1 => {
            println!("hostile: last act: jump to unmapped memory");
            // SAFETY: nothing is mapped there. The fault is unexpected, so the runtime's panic ends
            // the VM if the hypervisor does not.
            unsafe { asm!("br {}", in(reg) own.ram_end + 0x10_0000, options(noreturn)) }
        }
        2 => {
            println!("hostile: last act: garbage for vectors");
            garbage()
        }
        _ => {
            println!("hostile: last act: stores to foreign memory");
            loop {
                let address = memory::foreign(own, &mut random);
                // SAFETY: not this VM's memory; the access faults.
                let _ = unsafe { probe::access(Op::StoreDouble, address, random.bits()) };
            }
        }
    }
}

/// Overwrites the exception vectors and jumps to the garbage; the vCPU never recovers.
///
/// The garbage is the same at each call. QEMU's counted clock stops while a vector's first
/// instruction is one that the core does not know, and then no VM's time would pass.
#[allow(unsafe_code)]
fn garbage() -> ! {
    let mut random = Random::new(GARBAGE);
    let vectors: u64;
    // SAFETY: reads a register without side effects.
    unsafe { asm!("mrs {}, vbar_el1", out(reg) vectors) };
    for word in 0..256 {
        // SAFETY: the vectors' 2 KiB, which no exception uses before this loop ends, because no
        // access in it faults.
        unsafe {
            core::ptr::with_exposed_provenance_mut::<u64>((vectors + word * 8) as usize)
                .write_volatile(random.bits())
        };
    }
    // SAFETY: this program is over; what runs from here on is garbage by design and harms only this
    // VM. The vectors are cleaned to the point of unification line by line, so that the garbage
    // is what runs.
    unsafe {
        asm!(
            "2: dc cvau, x9",
            "add x9, x9, #64",
            "cmp x9, x10",
            "b.lo 2b",
            "dsb ish",
            "ic iallu",
            "dsb ish",
            "isb",
            "br x11",
            in("x9") vectors,
            in("x10") vectors + 2048,
            in("x11") vectors,
            options(noreturn),
        )
    }
}
