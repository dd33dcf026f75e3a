//! Hypercalls, firmware calls and PSCI calls that are malformed, or that concern cores and memory
//! of others.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::phase::{Own, Phase};
use cloison_benchmarks::random::Random;
use cloison_guest::abi::{Call, SMCCC_VERSION, map, page, psci, services};
use cloison_guest::call;
use cloison_guest::exceptions::Fault;
use cloison_guest::global_asm;
use cloison_guest::probe::{self, Op};

// `hostile_hvc(registers)`, `hostile_smc(registers)`: load x0 to x17 from the array, make the call,
// and store them back. Called by `probe::jump`, which preserves all registers for us.
global_asm!(
    r#"
    .macro  call name, insn
\name:
    mov     x20, x0
    mov     x21, x30
    ldp     x0, x1, [x20]
    ldp     x2, x3, [x20, #16]
    ldp     x4, x5, [x20, #32]
    ldp     x6, x7, [x20, #48]
    ldp     x8, x9, [x20, #64]
    ldp     x10, x11, [x20, #80]
    ldp     x12, x13, [x20, #96]
    ldp     x14, x15, [x20, #112]
    ldp     x16, x17, [x20, #128]
    \insn   #0
    stp     x0, x1, [x20]
    stp     x2, x3, [x20, #16]
    stp     x4, x5, [x20, #32]
    stp     x6, x7, [x20, #48]
    stp     x8, x9, [x20, #64]
    stp     x10, x11, [x20, #80]
    stp     x12, x13, [x20, #96]
    stp     x14, x15, [x20, #112]
    stp     x16, x17, [x20, #128]
    ret     x21
    .endm
    .section .text.hostile_calls, "ax"
    .balign 4
    call    hostile_hvc, hvc
    call    hostile_smc, smc
    "#
);

unsafe extern "C" {
    fn hostile_hvc(registers: *mut [u64; 18]) -> u64;
    fn hostile_smc(registers: *mut [u64; 18]) -> u64;
}

#[derive(Clone, Copy)]
enum Conduit {
    Hvc,
    Smc,
}

/// Returns whether the function would end or stop this program if it were obeyed.
fn ends_us(function: u32) -> bool {
    use psci::*;
    matches!(
        function,
        SYSTEM_OFF | SYSTEM_RESET | CPU_OFF | CPU_SUSPEND_32 | CPU_SUSPEND_64
    )
}

/// Makes a call with `x0` to `x6` as given and noise in the other registers. Returns the registers
/// afterwards, or the fault.
fn invoke(conduit: Conduit, registers: &mut [u64; 18]) -> Result<(), Fault> {
    let code = match conduit {
        Conduit::Hvc => hostile_hvc as *const () as u64,
        Conduit::Smc => hostile_smc as *const () as u64,
    };
    let array = (&raw mut *registers).expose_provenance() as u64;
    // SAFETY: the code writes the array and preserves the stack pointer. No call starts code in
    // this VM: see `random_call` and `power`.
    unsafe { probe::jump(code, array, 0) }.map(|_| ())
}

/// Returns whether `x0` is an error; 32-bit functions may leave the upper half zero.
fn is_error(x0: u64) -> bool {
    (x0 as i64) < 0 || x0 >> 32 == 0 && (x0 as i32) < 0
}

/// Returns whether this VM may make the call.
fn is_granted(own: Own, services: u32, x: &[u64; 18]) -> bool {
    const SMCCC_FEATURES: u32 = 0x8000_0001;
    const VENDOR_UID: u32 = 0x8600_ff01;
    const VENDOR_REVISION: u32 = 0x8600_ff03;
    let function = x[0] as u32;
    match Call::from_id(function) {
        // No VM is named.
        Some(Call::VmOrder | Call::BudgetRead | Call::BudgetSet) => false,
        Some(call) => call.is_granted(services),
        None => match function {
            psci::VERSION | psci::FEATURES | psci::MIGRATE_INFO_TYPE => true,
            SMCCC_VERSION | SMCCC_FEATURES | VENDOR_UID | VENDOR_REVISION => true,
            // Affinity levels above 0 identify a cluster, which is the VM's own.
            psci::AFFINITY_INFO_32 => x[2] as u32 != 0 || u64::from(x[1] as u32) < own.vcpus,
            psci::AFFINITY_INFO_64 => x[2] != 0 || x[1] < own.vcpus,
            _ => false,
        },
    }
}

/// Returns whether `x1` tells which entry of a list was refused.
fn has_list(function: u64) -> bool {
    matches!(
        Call::from_id(function as u32),
        Some(Call::MovePages | Call::ReturnPages | Call::CachePages)
    )
}

/// Makes one call and checks the result.
fn attempt(phase: &mut Phase, own: Own, services: u32, conduit: Conduit, mut x: [u64; 18]) {
    let before = x;
    match invoke(conduit, &mut x) {
        Ok(()) => judge(phase, own, services, &before, &x),
        Err(_) => phase.refused += 1,
    }
}

/// Checks the registers after a call.
fn judge(phase: &mut Phase, own: Own, services: u32, before: &[u64; 18], x: &[u64; 18]) {
    if x[4..] != before[4..] {
        phase.leak(format_args!("function {:#x} changed x4-x17", before[0]));
    } else if !is_error(x[0]) {
        if is_granted(own, services, before) {
            phase.ignored += 1;
        } else {
            phase.leak(format_args!(
                "function {:#x} x1={:#x} gave {:#x}",
                before[0], before[1], x[0]
            ));
        }
    } else if (if has_list(before[0]) { 2 } else { 1 }..4).any(|n| x[n] != 0 && x[n] != before[n]) {
        phase.leak(format_args!(
            "function {:#x} refused, but x1-x3 tell {:x?}",
            before[0],
            &x[1..4]
        ));
    } else {
        phase.refused += 1;
    }
}

/// Returns an argument: noise, a boundary value, or something that looks like an address.
fn argument(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => random.bits(),
        1 => random.below(256),
        2 => u64::MAX - random.below(4),
        3 => map::RAM + random.below(1 << 30),
        4 => 1 << random.below(64),
        _ => random.bits() as u32 as u64,
    }
}

/// Returns registers for a call to `function`, or `None` if it would end this program or start
/// code.
fn random_call(own: Own, services: u32, random: &mut Random, function: u32) -> Option<[u64; 18]> {
    let mut x: [u64; 18] = core::array::from_fn(|_| argument(random));
    // Only w0 identifies the function.
    let upper = if random.below(2) == 0 {
        0
    } else {
        random.bits() << 32
    };
    x[0] = upper | u64::from(function);
    let starts =
        matches!(function, psci::CPU_ON_32 | psci::CPU_ON_64) && x[1] as u32 as u64 <= own.vcpus;
    // A budget of zero would stop this VM for good, which it is allowed to do.
    let stops = function == Call::QuotaSet as u32 && services & services::QUOTA != 0;
    (!ends_us(function) && !starts && !stops).then_some(x)
}

/// Returns the services that the hypervisor reports as granted.
fn services() -> u32 {
    call::identify().map_or(0, |identity| identity.services)
}

/// Makes random hypercalls, half of them close to existing functions.
pub fn hypercalls(own: Own, random: &mut Random, count: u64) -> u64 {
    let mut phase = Phase::new("hypercall");
    let services = services();
    let mut made = 0;
    while made < count {
        let function = match random.below(10) {
            0..4 => 0xc600_0000 | random.below(24) as u32,
            4..6 => 0xc600_0000 | random.below(1 << 16) as u32,
            6 => 0x8600_0000 | random.below(1 << 16) as u32,
            7 => [0x8400_0000, 0xc400_0000][random.below(2) as usize] | random.below(32) as u32,
            _ => random.bits() as u32,
        };
        if let Some(x) = random_call(own, services, random, function) {
            attempt(&mut phase, own, services, Conduit::Hvc, x);
            made += 1;
        }
    }
    immediates(&mut phase, random, 0xd400_0002);
    phase.finish()
}

/// Makes random calls through the services page, and accesses of every kind to its registers and
/// the gaps between them.
pub fn services_page(own: Own, random: &mut Random, count: u64) -> u64 {
    let mut phase = Phase::new("page");
    let services = services();
    let mut made = 0;
    while made < count {
        let offset = random.below(0x1000);
        let op = Op::ALL[random.below(Op::ALL.len() as u64) as usize];
        // Only 64-bit, aligned stores to the call register have an effect; those come below.
        if op.is_access() && offset & !7 != u64::from(page::CALL) {
            // SAFETY: a page of registers that Rust does not know of.
            phase.may_fail(unsafe { probe::access(op, map::SERVICES + offset, random.bits()) });
        }
        let span = if random.below(2) == 0 { 24 } else { 1 << 26 };
        let function = 0xc600_0000 | random.below(span) as u32;
        let Some(before) = random_call(own, services, random, function) else {
            continue;
        };
        let mut x = before;
        match through_the_page(&mut x) {
            Ok(()) => judge(&mut phase, own, services, &before, &x),
            Err(_) => phase.leak(format_args!("the services page does not answer")),
        }
        made += 1;
    }
    phase.finish()
}

/// Makes the call described by `x0` to `x3`.
fn through_the_page(x: &mut [u64; 18]) -> Result<(), Fault> {
    let at = |offset: u16| map::SERVICES + u64::from(offset);
    // SAFETY: a page of registers; no call that can be made there starts code.
    unsafe {
        for (&offset, &value) in page::ARGUMENTS.iter().zip(&x[1..4]) {
            probe::write(at(offset), value)?;
        }
        probe::write(at(page::CALL), x[0])?;
        x[0] = probe::read(at(page::CALL))?;
        for (&offset, slot) in page::ARGUMENTS.iter().zip(&mut x[1..4]) {
            *slot = probe::read(at(offset))?;
        }
    }
    Ok(())
}

/// Makes SMC calls, to this hypervisor and past it to the real firmware.
pub fn firmware(own: Own, random: &mut Random, count: u64) -> u64 {
    /// Owners defined by the calling convention: architecture, CPU, SiP, OEM, standard,
    /// hypervisors, Trusted OS.
    const OWNERS: [u32; 16] = [
        0x8000_0000,
        0x8100_0000,
        0xc100_0000,
        0x8200_0000,
        0xc200_0000,
        0x8300_0000,
        0xc300_0000,
        0x8400_0000,
        0xc400_0000,
        0x8500_0000,
        0xc500_0000,
        0x8700_0000,
        0xb000_0000,
        0xb200_0000,
        0xf200_0000,
        0x0200_0000,
    ];
    let mut phase = Phase::new("smc");
    let services = services();
    let listed = OWNERS
        .into_iter()
        .flat_map(|owner| (0..64).map(move |n| owner | n));
    for function in listed {
        if let Some(x) = random_call(own, services, random, function) {
            attempt(&mut phase, own, services, Conduit::Smc, x);
        }
    }
    for _ in 0..count {
        let function = random.bits() as u32;
        if let Some(x) = random_call(own, services, random, function) {
            attempt(&mut phase, own, services, Conduit::Smc, x);
        }
    }
    immediates(&mut phase, random, 0xd400_0003);
    phase.finish()
}

/// Makes a call with an immediate other than the zero that the calling convention requires, and
/// with an unassigned function.
fn immediates(phase: &mut Phase, random: &mut Random, instruction: u32) {
    const NO_FUNCTION: u64 = 0xc600_ffff;
    for _ in 0..64 {
        let immediate = random.below(1 << 16) as u32;
        // SAFETY: `hvc` or `smc`; a call changes x0 to x3 at most.
        match unsafe { probe::execute(instruction | immediate << 5, NO_FUNCTION) } {
            Ok(x0) => phase.must_hold(
                is_error(x0),
                format_args!("call with immediate {immediate:#x} gave {x0:#x}"),
            ),
            Err(_) => phase.refused += 1,
        }
    }
}

/// Makes PSCI calls about cores that this VM does not own.
pub fn power(own: Own, random: &mut Random) -> u64 {
    let mut phase = Phase::new("psci");
    let services = services();
    let entries = [0, map::RAM, own.ram_end, 0x4020_0000, u64::MAX, 1];
    for conduit in [Conduit::Hvc, Conduit::Smc] {
        for n in 0..9u64 {
            let random_target = random.bits();
            for target in [
                n,
                n << 8 | n,
                n << 16 | n,
                n << 32 | n,
                1 << 31 | n,
                1 << 24 | n,
                n.wrapping_neg(),
                random_target,
            ] {
                // The VM may wake its own sleeping vCPUs, but not vCPU 0, which runs.
                if (1..own.vcpus).contains(&(target & 0xff)) {
                    continue;
                }
                for entry in entries {
                    for function in [psci::CPU_ON_32, psci::CPU_ON_64] {
                        let mut x = [0x1357_9bdf; 18];
                        x[..4].copy_from_slice(&[function.into(), target, entry, random.bits()]);
                        attempt(&mut phase, own, services, conduit, x);
                    }
                }
                for level in [0, 1, 2, 3, 4, u64::MAX] {
                    for function in [psci::AFFINITY_INFO_32, psci::AFFINITY_INFO_64] {
                        let mut x = [0x2468_ace0; 18];
                        x[..3].copy_from_slice(&[function.into(), target, level]);
                        attempt(&mut phase, own, services, conduit, x);
                    }
                }
            }
        }
    }
    phase.finish()
}
