//! What a guest may find changed after a visit to EL2: the results of its call or access, or an
//! exception as the architecture takes it to EL1 (SMCCC, DEN 0028; Arm ARM DDI 0487, D1.3 and
//! D24.2.37 "ESR_ELx"; docs/architecture.md, "Trust").
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};

/// A guest's registers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The address of the next instruction: ELR_EL2.
    pub pc: u64,
    /// PSTATE: SPSR_EL2.
    pub pstate: u64,
    /// SP_EL0 and SP_EL1.
    pub sp: [u64; 2],
    /// ELR_EL1 and SPSR_EL1: where an exception to EL1 came from.
    pub from: [u64; 2],
    /// VBAR_EL1.
    pub vectors: u64,
    /// Other registers of EL1, which only the guest changes, in an order of the observer's.
    pub others: Vec<u64>,
}

/// Why a guest left for EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A synchronous exception, with ESR_EL2.
    Synchronous(u64),
    /// An interrupt.
    Interrupt,
    /// An SError.
    SError,
}

/// What may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Allowed {
    /// General registers, a bit each.
    general: u32,
    /// How many of the general registers may change, if not those above alone: the instruction is
    /// not in the syndrome.
    any: u32,
    /// The guest may continue at the next instruction.
    next: bool,
    /// It may continue where it was.
    again: bool,
    /// It may take an exception.
    exception: bool,
}

/// Exception classes: ESR_EL2.EC.
mod class {
    pub const WAIT: u64 = 0x01;
    pub const HVC: u64 = 0x16;
    pub const SMC: u64 = 0x17;
    pub const SYSTEM: u64 = 0x18;
    pub const INSTRUCTION_ABORT: u64 = 0x20;
    pub const DATA_ABORT: u64 = 0x24;
}

/// Returns the exception class in a syndrome.
pub const fn exception_class(esr: u64) -> u64 {
    esr >> 26 & 63
}

/// Returns whether a syndrome is of HVC or SMC, from AArch64.
pub const fn is_call(esr: u64) -> bool {
    matches!(exception_class(esr), class::HVC | class::SMC)
}

/// Returns whether a syndrome is of a data abort from EL1 or EL0.
pub const fn is_data_abort(esr: u64) -> bool {
    exception_class(esr) == class::DATA_ABORT
}

/// The results of a call: x0 to x3.
const RESULTS: u32 = 0b1111;

/// Returns the bit of a general register; register 31 is the zero register, which never changes.
const fn bit(register: u64) -> u32 {
    if register < 31 { 1 << register } else { 0 }
}

/// Returns what may change after a visit for this cause. What EL2 did in the visit is not looked
/// at: the rules hold for any hypervisor that emulates the same devices.
const fn allowed(cause: Cause) -> Allowed {
    const NOTHING: Allowed = Allowed {
        general: 0,
        any: 0,
        next: false,
        again: false,
        exception: false,
    };
    let esr = match cause {
        Cause::Interrupt => {
            return Allowed {
                again: true,
                ..NOTHING
            };
        }
        // The VM is killed: the guest does not continue at all.
        Cause::SError => return NOTHING,
        Cause::Synchronous(esr) => esr,
    };
    match exception_class(esr) {
        // Its return address is after it already.
        class::HVC => Allowed {
            general: RESULTS,
            again: true,
            ..NOTHING
        },
        class::SMC => Allowed {
            general: RESULTS,
            next: true,
            ..NOTHING
        },
        class::WAIT => Allowed {
            next: true,
            again: true,
            ..NOTHING
        },
        // Bit 0: it reads. Rt, bits 9 to 5.
        class::SYSTEM => Allowed {
            general: if esr & 1 == 1 { bit(esr >> 5 & 31) } else { 0 },
            next: true,
            again: false,
            exception: true,
            ..NOTHING
        },
        // ISV, bit 24; SRT, bits 20 to 16; WnR, bit 6. Without a valid syndrome: a pair and its
        // base.
        class::DATA_ABORT => {
            let is_valid = esr >> 24 & 1 == 1;
            let is_read = esr >> 6 & 1 == 0;
            Allowed {
                general: if is_valid && is_read {
                    bit(esr >> 16 & 31)
                } else {
                    0
                },
                any: if is_valid { 0 } else { 3 },
                next: true,
                again: true,
                exception: true,
            }
        }
        class::INSTRUCTION_ABORT => Allowed {
            again: true,
            exception: true,
            ..NOTHING
        },
        _ => Allowed {
            exception: true,
            ..NOTHING
        },
    }
}

/// Returns whether a guest continues in its vector for a synchronous exception, as if that had been
/// taken to EL1.
fn is_exception(before: &Registers, after: &Registers) -> bool {
    // SPSR.M: EL1 with its own stack pointer, EL1 with EL0's, or EL0.
    let offset = match before.pstate & 15 {
        0b0101 => 0x200,
        0b0100 => 0,
        0b0000 => 0x400,
        _ => return false,
    };
    // D, A, I and F masked, and EL1h.
    let masked = after.pstate & 0x3cf == 0x3c5;
    // NZCV stay; SS and IL are clear.
    let kept = before.pstate >> 28 == after.pstate >> 28;
    let flags = kept && after.pstate >> 20 & 3 == 0;
    after.pc == before.vectors.wrapping_add(offset)
        && masked
        && flags
        && after.from == [before.pc, before.pstate]
}

/// Checks what a guest finds after a visit, in which its vCPU was not started again.
///
/// # Errors
///
/// A register changed that may not, or the guest continues elsewhere.
pub fn check(cause: Cause, before: &Registers, after: &Registers) -> Checked {
    let allowed = allowed(cause);
    let exception = allowed.exception && is_exception(before, after);
    // Bit 21 is SS, which software step changes: it is not compared.
    let in_place = after.pstate & !(1 << 21) == before.pstate & !(1 << 21);
    let next = allowed.next && after.pc == before.pc.wrapping_add(4);
    let again = allowed.again && after.pc == before.pc;
    if !exception && !(in_place && (next || again)) {
        return Err(Difference::new(
            Rule::Return,
            format!("{cause:x?}"),
            format!(
                "pc {:#x} or what the cause allows, pstate {:#x}",
                before.pc, before.pstate
            ),
            format!("pc {:#x}, pstate {:#x}", after.pc, after.pstate),
        ));
    }
    // A guest that takes an exception gets no result of its access.
    let results = if exception { 0 } else { allowed.general };
    // Of a pair whose second access aborts, the first register may be loaded: it is UNKNOWN then.
    let mut others = match allowed.any {
        0 => 0,
        _ if exception => 1,
        any => any,
    };
    for (number, (old, new)) in before.x.iter().zip(&after.x).enumerate() {
        if old == new || results >> number & 1 == 1 {
            continue;
        }
        if others == 0 {
            return Err(changed(cause, &format!("x{number}"), *old, *new));
        }
        others -= 1;
    }
    if !exception && next {
        check_load(cause, after)?;
    }
    for level in 0..2 {
        let (old, new) = (before.sp[level], after.sp[level]);
        // The base of an access with write-back.
        if old != new && others == 0 {
            return Err(changed(cause, &format!("SP_EL{level}"), old, new));
        }
    }
    if !exception && before.from != after.from {
        return Err(changed(cause, "ELR_EL1", before.from[0], after.from[0]));
    }
    if before.vectors != after.vectors {
        return Err(changed(cause, "VBAR_EL1", before.vectors, after.vectors));
    }
    let pairs = before.others.iter().zip(&after.others).enumerate();
    for (number, (old, new)) in pairs {
        if old != new {
            return Err(changed(
                cause,
                &format!("register {number} of EL1"),
                *old,
                *new,
            ));
        }
    }
    Ok(())
}

/// Checks what a load that EL2 has carried out left in its register (Arm ARM, ISS encoding for an
/// exception from a Data Abort): its bytes, extended by zeros or by their sign to the register.
fn check_load(cause: Cause, after: &Registers) -> Checked {
    let Cause::Synchronous(esr) = cause else {
        return Ok(());
    };
    let is_load =
        exception_class(esr) == class::DATA_ABORT && esr >> 24 & 1 == 1 && esr >> 6 & 1 == 0;
    // SRT.
    let register = after.x.get((esr >> 16 & 31) as usize);
    let (true, Some(&value)) = (is_load, register) else {
        return Ok(());
    };
    // SAS: 1, 2, 4 or 8 bytes. SSE: the sign is extended. SF: to 64 bits.
    let unused = 64 - (8 << (esr >> 22 & 3));
    let is_signed = esr >> 21 & 1 == 1;
    let expected = match (is_signed, esr >> 15 & 1) {
        (false, _) => value << unused >> unused,
        (true, 0) => ((value << unused) as i64 >> unused) as u64 & 0xffff_ffff,
        (true, _) => ((value << unused) as i64 >> unused) as u64,
    };
    if value == expected {
        return Ok(());
    }
    let place = format!("a loaded register after {cause:x?}");
    Err(Difference::of_register(
        Rule::Loaded,
        &place,
        expected,
        value,
    ))
}

/// Returns the difference of a register that may not have changed.
fn changed(cause: Cause, name: &str, old: u64, new: u64) -> Difference {
    let place = format!("{name} after {cause:x?}");
    Difference::of_register(Rule::Registers, &place, old, new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn guest() -> Registers {
        Registers {
            x: std::array::from_fn(|at| at as u64 * 3),
            pc: 0x4000_0100,
            pstate: 0x6000_0005,
            sp: [1, 2],
            from: [3, 4],
            vectors: 0x4000_0800,
            others: vec![5, 6],
        }
    }

    fn rule(cause: Cause, after: &Registers) -> Option<Rule> {
        check(cause, &guest(), after).err().map(|it| it.rule)
    }

    fn esr(class: u64, iss: u64) -> Cause {
        Cause::Synchronous(class << 26 | 1 << 25 | iss)
    }

    fn next() -> Registers {
        Registers {
            pc: guest().pc + 4,
            ..guest()
        }
    }

    proptest! {
        #[test]
        fn only_results_change(number in 0usize..31, value: u64) {
            let mut after = guest();
            after.x[number] = value;
            let is_same = value == guest().x[number];
            let is_result = is_same || number < 4;
            prop_assert_eq!(rule(esr(class::HVC, 0), &after), (!is_result).then_some(Rule::Registers));
            prop_assert_eq!(rule(Cause::Interrupt, &after), (!is_same).then_some(Rule::Registers));
            after.pc += 4;
            // mrs x7
            let is_result = is_same || number == 7;
            prop_assert_eq!(rule(esr(class::SYSTEM, 7 << 5 | 1), &after), (!is_result).then_some(Rule::Registers));
            prop_assert_eq!(rule(esr(class::SYSTEM, 7 << 5), &after), (!is_same).then_some(Rule::Registers));
            let is_result = is_same || number == 9;
            // Of 8 bytes.
            let load = 3 << 22 | 1 << 24 | 9 << 16;
            prop_assert_eq!(rule(esr(class::DATA_ABORT, load), &after), (!is_result).then_some(Rule::Registers));
            let store = load | 1 << 6;
            prop_assert_eq!(rule(esr(class::DATA_ABORT, store), &after), (!is_same).then_some(Rule::Registers));
        }
    }

    #[test]
    fn a_guest_continues_where_the_cause_says() {
        assert_eq!(rule(Cause::Interrupt, &guest()), None);
        assert_eq!(rule(Cause::Interrupt, &next()), Some(Rule::Return));
        assert_eq!(rule(esr(class::HVC, 0), &next()), Some(Rule::Return));
        assert_eq!(rule(esr(class::SMC, 0), &next()), None);
        assert_eq!(rule(esr(class::SMC, 0), &guest()), Some(Rule::Return));
        assert_eq!(rule(Cause::SError, &guest()), Some(Rule::Return));
        let mut after = guest();
        after.pstate = 0x6000_0000;
        assert_eq!(rule(Cause::Interrupt, &after), Some(Rule::Return));
    }

    #[test]
    fn an_exception_is_as_the_architecture_takes_it() {
        let good = Registers {
            pc: guest().vectors + 0x200,
            pstate: 0x6000_03c5,
            from: [guest().pc, guest().pstate],
            ..guest()
        };
        let abort = esr(class::DATA_ABORT, 0);
        assert_eq!(rule(abort, &good), None);
        assert_eq!(rule(Cause::Interrupt, &good), Some(Rule::Return));
        for wrong in [
            Registers {
                pc: good.pc + 0x80,
                ..good.clone()
            },
            Registers {
                pstate: 0x6000_0005,
                ..good.clone()
            },
            Registers {
                pstate: 0x6000_03c9,
                ..good.clone()
            },
            Registers {
                from: [0, guest().pstate],
                ..good.clone()
            },
        ] {
            assert_eq!(rule(abort, &wrong), Some(Rule::Return));
        }
        let described = esr(class::DATA_ABORT, 1 << 24);
        assert_eq!(rule(described, &good), None);
        let mut leaks = good;
        leaks.x[2] = 99;
        assert_eq!(rule(described, &leaks), Some(Rule::Registers));
        // The first register of a pair.
        assert_eq!(rule(abort, &leaks), None);
        leaks.x[3] = 99;
        assert_eq!(rule(abort, &leaks), Some(Rule::Registers));
    }

    #[test]
    fn a_load_is_as_wide_as_its_instruction_says() {
        let load = |size: u64, sign: u64, wide: u64, value: u64| {
            let mut after = next();
            after.x[9] = value;
            let iss = 1 << 24 | size << 22 | sign << 21 | 9 << 16 | wide << 15;
            rule(esr(class::DATA_ABORT, iss), &after)
        };
        for (size, most) in [(0, 0xff), (1, 0xffff), (2, 0xffff_ffff)] {
            assert_eq!(load(size, 0, 0, most), None);
            assert_eq!(load(size, 0, 0, most + 1), Some(Rule::Loaded));
        }
        assert_eq!(load(3, 0, 1, u64::MAX), None);
        assert_eq!(load(0, 1, 0, 0xffff_ff80), None);
        assert_eq!(load(0, 1, 1, 0xffff_ff80), Some(Rule::Loaded));
        assert_eq!(load(0, 1, 1, 0xffff_ffff_ffff_ff80), None);
        assert_eq!(load(0, 1, 0, 0x80), Some(Rule::Loaded));
    }

    #[test]
    fn other_registers_are_the_guests() {
        for wrong in [
            Registers {
                sp: [1, 3],
                ..guest()
            },
            Registers {
                from: [4, 4],
                ..guest()
            },
            Registers {
                vectors: 0,
                ..guest()
            },
            Registers {
                others: vec![5, 7],
                ..guest()
            },
        ] {
            assert_eq!(rule(Cause::Interrupt, &wrong), Some(Rule::Registers));
        }
    }
}
