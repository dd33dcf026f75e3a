//! Exception syndromes: the reason why a core entered EL2, decoded once, and the syndrome that EL2
//! gives the guest's EL1 instead.
//!
//! All encodings are those of ESR_EL2 (Arm ARM DDI 0487, D24.2.40) and ESR_EL1 (D24.2.39); each
//! function names the part that it follows. Bits 63 to 32 of a syndrome (ISS2) say nothing that EL2
//! needs, and are not looked at.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::Ipa;

/// Width of an access to memory, as ISS.SAS encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Half,
    /// 32 bits.
    Word,
    /// 64 bits.
    Double,
}

impl Width {
    /// From the two bits of ISS.SAS.
    pub const fn from_sas(sas: u64) -> Self {
        match sas & 3 {
            0 => Self::Byte,
            1 => Self::Half,
            2 => Self::Word,
            _ => Self::Double,
        }
    }

    /// Returns the number of bytes.
    pub const fn bytes(self) -> u64 {
        1 << self as u32
    }

    const fn bits(self) -> u32 {
        8 << self as u32
    }
}

/// The load or store that a data abort interrupted, where the syndrome describes it (ISS.ISV).
/// Keeps the syndrome and takes its fields when asked, as does [`DataAbort`]: to unpack them all
/// would cost each exit of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u64);

impl Access {
    /// Describes the load or store of a register as a syndrome would.
    pub const fn new(register: u64, width: Width, sign_extend: bool, wide: bool) -> Self {
        Self(
            (width as u64) << 22
                | (sign_extend as u64) << 21
                | register << 16
                | (wide as u64) << 15,
        )
    }

    /// Returns the general register that is loaded or stored (ISS.SRT); 31 is the zero register.
    pub const fn register(self) -> u8 {
        field(self.0, 16, 5)
    }

    /// Returns how much of it (ISS.SAS).
    pub const fn width(self) -> Width {
        Width::from_sas(self.0 >> 22)
    }

    /// Returns whether the load extends the sign (ISS.SSE): LDRSB, LDRSH, LDRSW.
    pub const fn sign_extend(self) -> bool {
        field(self.0, 21, 1) == 1
    }

    /// Returns whether the register is X and not W (ISS.SF); matters where the sign is extended.
    pub const fn wide(self) -> bool {
        field(self.0, 15, 1) == 1
    }

    /// Returns what the register holds after a load that found `value` in the device, in its lowest
    /// bits.
    pub const fn loaded(self, value: u64) -> u64 {
        if !self.sign_extend() {
            return self.stored(value);
        }
        let unused = 64 - self.width().bits();
        let extended = ((value << unused) as i64 >> unused) as u64;
        if self.wide() {
            extended
        } else {
            extended & 0xffff_ffff
        }
    }

    /// Returns what a store of a register with this `value` sends to the device. The rest of the
    /// register is not part of the access: a device must not see it.
    pub const fn stored(self, value: u64) -> u64 {
        let unused = 64 - self.width().bits();
        value << unused >> unused
    }
}

/// Why stage 2 refused an access (ISS.DFSC or IFSC), without the level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No translation: all that EL2 treats by itself.
    Translation,
    /// Any other status code: permission, access flag, address size, external aborts, …
    Other,
}

/// A data abort ("ISS encoding for an exception from a Data Abort").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAbort(u64);

impl DataAbort {
    /// Returns the syndrome of a data abort at this load or store, as if the processor had
    /// described it.
    pub const fn syndrome(access: Access, is_write: bool) -> u64 {
        const TRANSLATION: u64 = 0x07;
        (DATA_ABORT_LOWER as u64) << 26 | 1 << 24 | access.0 | (is_write as u64) << 6 | TRANSLATION
    }

    /// Returns the load or store, if the syndrome describes it: not for pairs, writeback,
    /// exclusives, cache maintenance.
    pub const fn access(self) -> Option<Access> {
        if field(self.0, 24, 1) == 1 {
            Some(Access(self.0))
        } else {
            None
        }
    }

    /// Returns whether it was a store, or cache maintenance (ISS.WnR).
    pub const fn is_write(self) -> bool {
        field(self.0, 6, 1) == 1
    }

    /// Returns whether it was an access to the guest's own tables, on behalf of one by the
    /// instruction (ISS.S1PTW).
    pub const fn is_walk(self) -> bool {
        field(self.0, 7, 1) == 1
    }

    /// Returns why stage 2 refused it.
    pub const fn fault(self) -> Fault {
        fault(self.0)
    }
}

/// The name of a system register or instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// 2 bits: 2 for debug registers, 3 for others, 1 for instructions.
    pub op0: u8,
    /// 3 bits.
    pub op1: u8,
    /// 4 bits.
    pub crn: u8,
    /// 4 bits.
    pub crm: u8,
    /// 3 bits.
    pub op2: u8,
}

impl Encoding {
    /// In the order in which assembly writes them: `S<op0>_<op1>_<CRn>_<CRm>_<op2>`.
    pub const fn new(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Self {
        Self {
            op0,
            op1,
            crn,
            crm,
            op2,
        }
    }
}

/// A trapped MSR, MRS or SYS ("ISS encoding for an exception from MSR, MRS, or System instruction
/// execution in AArch64 state").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemAccess {
    /// What it names.
    pub encoding: Encoding,
    /// The general register; 31 is the zero register.
    pub register: u8,
    /// An MRS.
    pub is_read: bool,
}

/// A trapped MRS of a feature register: op0 = 3, op1 = 0, CRn = 0, CRm below 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureRead {
    /// CRm.
    pub crm: u8,
    /// op2.
    pub op2: u8,
    /// The general register; 31 is the zero register.
    pub register: u8,
}

/// Why a guest entered EL2 by a synchronous exception. The vectors tell [`HVC64`] from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// WFI or WFE.
    Wait,
    /// SMC from AArch64.
    Smc,
    /// MRS of a feature register from AArch64.
    Feature(FeatureRead),
    /// Any other MSR, MRS or SYS from AArch64.
    SystemRegister(SystemAccess),
    /// An instruction fetch that stage 2 refused.
    InstructionAbort(Fault),
    /// A load or store that stage 2 refused.
    DataAbort(DataAbort),
    /// Any other class (ESR_EL2.EC).
    Other,
}

// Exception classes (ESR_ELx.EC).
const WFX: u8 = 0x01;
/// ESR_ELx.EC: HVC in AArch64.
pub const HVC64: u8 = 0x16;
/// SMC in AArch64 (HCR_EL2.TSC).
const SMC64: u8 = 0x17;
/// MSR, MRS or a system instruction in AArch64.
const MSR_MRS: u8 = 0x18;
/// An instruction abort from a lower exception level.
const INSTRUCTION_ABORT_LOWER: u8 = 0x20;
/// The same, from the level that takes it: EL1, where it is injected.
const INSTRUCTION_ABORT_SAME: u8 = 0x21;
/// A data abort from a lower exception level.
const DATA_ABORT_LOWER: u8 = 0x24;
/// The same, from the level that takes it.
const DATA_ABORT_SAME: u8 = 0x25;

/// The bits of the syndrome that tell an MRS of a feature register from other accesses, and their
/// values: op0, op1, CRn, the highest bit of CRm, and the direction. op0 is in bits \[21:20\], op1
/// in \[16:14\], CRn in \[13:10\], CRm in \[4:1\], and the direction in bit 0.
const FEATURE_BITS: u64 = 0b11 << 20 | 0b111 << 14 | 0xf << 10 | 1 << 4 | 1;
const FEATURE: u64 = 0b11 << 20 | 1;

/// The field of `bits` bits from bit `lowest` on.
const fn field(syndrome: u64, lowest: u32, bits: u32) -> u8 {
    (syndrome >> lowest & ((1 << bits) - 1)) as u8
}

/// Returns the exception class of a syndrome: six bits, whatever ISS2 holds.
pub const fn class(syndrome: u64) -> u8 {
    field(syndrome, 26, 6)
}

impl Trap {
    /// Decodes ESR_EL2 after an exception from a guest.
    pub const fn decode(esr: u64) -> Self {
        match class(esr) {
            WFX => Self::Wait,
            SMC64 => Self::Smc,
            MSR_MRS if esr & FEATURE_BITS == FEATURE => Self::Feature(FeatureRead {
                crm: field(esr, 1, 3),
                op2: field(esr, 17, 3),
                register: field(esr, 5, 5),
            }),
            MSR_MRS => Self::SystemRegister(SystemAccess {
                encoding: Encoding {
                    op0: field(esr, 20, 2),
                    op1: field(esr, 14, 3),
                    crn: field(esr, 10, 4),
                    crm: field(esr, 1, 4),
                    op2: field(esr, 17, 3),
                },
                register: field(esr, 5, 5),
                is_read: field(esr, 0, 1) == 1,
            }),
            INSTRUCTION_ABORT_LOWER => Self::InstructionAbort(fault(esr)),
            // The classes of the same exception level (0x21, 0x25) are EL2's own faults, which take
            // another vector.
            DATA_ABORT_LOWER => Self::DataAbort(DataAbort(esr)),
            _ => Self::Other,
        }
    }
}

/// The fault status code of an abort ("DFSC", "IFSC"): a code per level. 0b0001LL is a translation
/// fault at level LL.
const fn fault(esr: u64) -> Fault {
    match field(esr, 0, 6) {
        0x04..=0x07 => Fault::Translation,
        _ => Fault::Other,
    }
}

/// Returns the IPA that a stage-2 fault was about: the page from HPFAR_EL2.FIPA, the offset in it
/// from FAR_EL2. FIPA, from bit 4 on, is the IPA from bit 12 on. The offset is the same in virtual
/// address and IPA, because no granule of stage 1 is smaller than 4 KiB.
pub const fn fault_ipa(hpfar: u64, far: u64) -> Ipa {
    Ipa((hpfar >> 4 << 12) | (far & 0xfff))
}

/// A guest's attempt to access memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It fetches an instruction.
    Fetch,
    /// It loads.
    Read,
    /// It stores.
    Write,
}

/// Length of EL1's exception vectors (Arm ARM DDI 0487, D1.3.1).
pub const VECTORS: u64 = 0x800;

/// Which of EL1's vectors a synchronous exception takes: where it came from (Arm ARM DDI 0487,
/// D1.3.1, vector offsets).
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub enum Vector {
    /// EL1 with SP_EL0.
    CurrentSp0 = 0x000,
    /// EL1 with SP_EL1.
    CurrentSpx = 0x200,
    /// EL0 in AArch64 state.
    Lower = 0x400,
}

impl Vector {
    /// By SPSR_EL2.M\[3:0\]: the mode that the exception interrupted. 0b0000 is EL0t, 0b0100 EL1t,
    /// and 0b0101 EL1h.
    pub const fn from_mode(mode: u64) -> Self {
        match mode {
            0x0 => Self::Lower,
            0x4 => Self::CurrentSp0,
            _ => Self::CurrentSpx,
        }
    }
}

/// A syndrome for ESR_EL1. Every one of them says that the instruction has 32 bits (IL).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u64);

impl Syndrome {
    /// An instruction that does not exist ("ISS encoding for exceptions with an unknown reason").
    pub const UNDEFINED: Self = Self::new(0, 0);

    const fn new(class: u8, iss: u64) -> Self {
        Self((class as u64) << 26 | 1 << 25 | iss)
    }

    /// A synchronous external abort (DFSC 0x10), not on a table walk.
    pub const fn external_abort(attempt: Attempt, vector: Vector) -> Self {
        let class = match (attempt, vector) {
            (Attempt::Fetch, Vector::Lower) => INSTRUCTION_ABORT_LOWER,
            (Attempt::Fetch, _) => INSTRUCTION_ABORT_SAME,
            (_, Vector::Lower) => DATA_ABORT_LOWER,
            (_, _) => DATA_ABORT_SAME,
        };
        let is_write = matches!(attempt, Attempt::Write) as u64;
        Self::new(class, is_write << 6 | 0x10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Miri tries some of the values; that is slow enough.
    const STEP: usize = if cfg!(miri) { 4099 } else { 1 };
    /// What ISS2 may hold on a newer core.
    const ISS2: [u64; 3] = [0, 0x1f << 32, u64::MAX << 32];

    const fn esr(class: u8, iss: u64) -> u64 {
        Syndrome::new(class, iss).0
    }

    #[test]
    fn every_class_is_told_apart_whatever_iss2_holds() {
        for ec in 0..64u8 {
            for iss2 in ISS2 {
                let trap = Trap::decode(esr(ec, 0) | iss2);
                let expected = match ec {
                    0b000001 => matches!(trap, Trap::Wait),
                    0b010111 => matches!(trap, Trap::Smc),
                    0b011000 => matches!(trap, Trap::SystemRegister(_) | Trap::Feature(_)),
                    0b100000 => matches!(trap, Trap::InstructionAbort(_)),
                    0b100100 => matches!(trap, Trap::DataAbort(_)),
                    _ => trap == Trap::Other,
                };
                assert!(expected, "{ec:#08b}, {iss2:#x}: {trap:?}");
                assert_eq!(class(esr(ec, 0) | iss2), ec);
            }
        }
    }

    /// The fault status codes of stage 2, from the table of DFSC; the rest are others.
    fn expected_fault(code: u8) -> Fault {
        if code >> 2 == 0b0001 {
            Fault::Translation
        } else {
            Fault::Other
        }
    }

    #[test]
    fn every_data_abort_is_decoded() {
        // All fields that count, each with all its values, set up bit by bit.
        for n in (0..1u64 << 17).step_by(STEP) {
            let bits = |lowest: u32, count: u32| n >> lowest & ((1 << count) - 1);
            let (isv, sas, sse, srt, sf, wnr, dfsc) = (
                bits(0, 1),
                bits(1, 2),
                bits(3, 1),
                bits(4, 5),
                bits(9, 1),
                bits(10, 1),
                bits(11, 6),
            );
            let iss = isv << 24 | sas << 22 | sse << 21 | srt << 16 | sf << 15 | wnr << 6 | dfsc;
            // What does not count: acquire, FnV, EA, CM, S1PTW, and ISS2.
            for rest in [0, 1 << 14 | 1 << 10 | 1 << 9 | 1 << 8 | 1 << 7 | 0x1f << 32] {
                let Trap::DataAbort(abort) = Trap::decode(esr(0x24, iss) | rest) else {
                    panic!("{iss:#x}")
                };
                let width = [Width::Byte, Width::Half, Width::Word, Width::Double][sas as usize];
                assert_eq!(abort.access().is_some(), isv == 1, "{iss:#x}");
                if let Some(access) = abort.access() {
                    let found = (
                        access.register(),
                        access.width(),
                        access.sign_extend(),
                        access.wide(),
                    );
                    assert_eq!(found, (srt as u8, width, sse == 1, sf == 1), "{iss:#x}");
                }
                assert_eq!(
                    (abort.is_write(), abort.fault()),
                    (wnr == 1, expected_fault(dfsc as u8)),
                    "{iss:#x}"
                );
            }
        }
    }

    #[test]
    fn every_instruction_abort_is_decoded() {
        for code in 0..64 {
            let trap = Trap::decode(esr(0x20, code | 1 << 9));
            assert_eq!(trap, Trap::InstructionAbort(expected_fault(code as u8)));
        }
    }

    #[test]
    fn every_system_register_is_decoded() {
        for n in (0..1u64 << 22).step_by(STEP) {
            let bits = |lowest: u32, count: u32| n >> lowest & ((1 << count) - 1);
            let (op0, op1, crn, crm, op2) =
                (bits(0, 2), bits(2, 3), bits(5, 4), bits(9, 4), bits(13, 3));
            let (rt, read) = (bits(16, 5), bits(21, 1));
            let iss = op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | rt << 5 | crm << 1 | read;
            let (crm, op2, register, is_read) = (crm as u8, op2 as u8, rt as u8, read == 1);
            let expected = if (op0, op1, crn, is_read) == (3, 0, 0, true) && crm < 8 {
                Trap::Feature(FeatureRead { crm, op2, register })
            } else {
                let encoding = Encoding::new(op0 as u8, op1 as u8, crn as u8, crm, op2);
                Trap::SystemRegister(SystemAccess {
                    encoding,
                    register,
                    is_read,
                })
            };
            assert_eq!(Trap::decode(esr(0x18, iss)), expected, "{iss:#x}");
        }
        // `mrs x3, id_aa64pfr0_el1`, as a Cortex-A53 reports it.
        assert_eq!(
            Trap::decode(0x6230_0069),
            Trap::Feature(FeatureRead {
                crm: 4,
                op2: 0,
                register: 3
            })
        );
    }

    /// Bits `high` down to `low` of a syndrome, as the Arm ARM writes them.
    const fn bits(esr: u32, high: u32, low: u32) -> u8 {
        (esr << (31 - high) >> (31 - high + low)) as u8
    }

    /// Compares a syndrome's decoding with the Arm ARM (DDI 0487, D24.2.40: EC is bits 31 to 26, and
    /// the encodings of ISS are those of its subsections). IL, bit 25, tells nothing here.
    fn check(esr: u32) {
        let trap = Trap::decode(esr.into());
        let is_right = match (bits(esr, 31, 26), trap) {
            (0b000001, Trap::Wait) | (0b010111, Trap::Smc) => true,
            (0b011000, Trap::Feature(read)) => {
                let names_one = bits(esr, 21, 20) == 3 && bits(esr, 16, 10) == 0;
                let (crm, op2) = (bits(esr, 4, 1), bits(esr, 19, 17));
                let register = bits(esr, 9, 5);
                names_one
                    && bits(esr, 0, 0) == 1
                    && crm < 8
                    && read == FeatureRead { crm, op2, register }
            }
            (0b011000, Trap::SystemRegister(access)) => {
                let encoding = Encoding {
                    op0: bits(esr, 21, 20),
                    op1: bits(esr, 16, 14),
                    crn: bits(esr, 13, 10),
                    crm: bits(esr, 4, 1),
                    op2: bits(esr, 19, 17),
                };
                let is_read = bits(esr, 0, 0) == 1;
                let is_feature = (encoding.op0, encoding.op1, encoding.crn) == (3, 0, 0)
                    && encoding.crm < 8
                    && is_read;
                let register = bits(esr, 9, 5);
                !is_feature
                    && (access.encoding, access.register, access.is_read)
                        == (encoding, register, is_read)
            }
            (0b100000, Trap::InstructionAbort(fault)) => fault == expected_fault(bits(esr, 5, 0)),
            (0b100100, Trap::DataAbort(abort)) => {
                let described = abort.access().map(|access| {
                    (
                        access.width().bytes(),
                        access.sign_extend(),
                        access.register(),
                        access.wide(),
                    )
                });
                let expected = (bits(esr, 24, 24) == 1).then(|| {
                    (
                        1 << bits(esr, 23, 22),
                        bits(esr, 21, 21) == 1,
                        bits(esr, 20, 16),
                        bits(esr, 15, 15) == 1,
                    )
                });
                described == expected
                    && abort.is_write() == (bits(esr, 6, 6) == 1)
                    && abort.is_walk() == (bits(esr, 7, 7) == 1)
                    && abort.fault() == expected_fault(bits(esr, 5, 0))
            }
            (ec, Trap::Other) => ![1, 0x17, 0x18, 0x20, 0x24].contains(&ec),
            _ => false,
        };
        assert!(is_right, "{esr:#010x}: {trap:?}");
    }

    /// System registers and data aborts whatever IL and ISS hold, and each class with each pair of
    /// bits of ISS: what no field covers changes nothing.
    #[test]
    fn every_syndrome_with_fields_is_decoded() {
        let mut count = 0_u64;
        for class in [0x18_u32, 0x24] {
            for low in (0..1_u32 << 26).step_by(STEP) {
                check(class << 26 | low);
                count += 1;
            }
        }
        for class in 0..64_u32 {
            for (one, other) in (0..26).flat_map(|one| (0..26).map(move |other| (one, other))) {
                check(class << 26 | 1 << one | 1 << other);
                check(class << 26 | !(1 << one | 1 << other) & 0x03ff_ffff);
                count += 2;
            }
        }
        std::println!("{count} syndromes");
    }

    #[test]
    #[ignore = "on demand: all 2^32 take a minute"]
    fn all_syndromes_are_decoded() {
        let quarters = [0, 1, 2, 3].map(|quarter: u32| {
            std::thread::spawn(move || {
                (quarter << 30..=quarter << 30 | 0x3fff_ffff).for_each(check)
            })
        });
        for quarter in quarters {
            quarter.join().expect("all are decoded");
        }
        std::println!("{} syndromes", 1_u64 << 32);
    }

    #[test]
    fn loads_extend_as_the_instructions_do() {
        use Width::{Byte, Double, Half, Word};
        let access = |width: Width, sign_extend: bool, wide: bool| {
            Access((width as u64) << 22 | u64::from(sign_extend) << 21 | u64::from(wide) << 15)
        };
        let found = 0xfedc_ba98_8765_83f1;
        let table = [
            ("ldrb w", access(Byte, false, false), 0xf1),
            ("ldrsb w", access(Byte, true, false), 0xffff_fff1),
            ("ldrsb x", access(Byte, true, true), 0xffff_ffff_ffff_fff1),
            ("ldrh w", access(Half, false, false), 0x83f1),
            ("ldrsh w", access(Half, true, false), 0xffff_83f1),
            ("ldrsh x", access(Half, true, true), 0xffff_ffff_ffff_83f1),
            ("ldr w", access(Word, false, false), 0x8765_83f1),
            ("ldrsw x", access(Word, true, true), 0xffff_ffff_8765_83f1),
            ("ldr x", access(Double, false, true), found),
        ];
        for (instruction, access, expected) in table {
            assert_eq!(access.loaded(found), expected, "{instruction}");
            // With the sign bit clear, a signed load is an unsigned one.
            let positive = 0x0123_4567_0123_0142;
            let plain = Access(access.0 & !(1 << 21));
            assert_eq!(
                access.loaded(positive),
                plain.loaded(positive),
                "{instruction}"
            );
        }
        let stored: Vec<u64> = [Byte, Half, Word, Double]
            .map(|w| access(w, false, false).stored(found))
            .into();
        assert_eq!(stored, [0xf1, 0x83f1, 0x8765_83f1, found]);
    }

    #[test]
    fn the_fault_address_is_the_page_and_the_offset() {
        // HPFAR_EL2.NS (bit 63) is no part of the address.
        assert_eq!(
            fault_ipa(0x8000_0000_0008_0010, 0xffff_0000_1234_5abc),
            Ipa(0x0800_1abc)
        );
        assert_eq!(fault_ipa(0xfff_ffff_fff0, 0), Ipa(0xf_ffff_ffff_f000));
    }

    #[test]
    fn what_a_guest_is_told_is_what_hardware_would_tell_it() {
        use Attempt::{Fetch, Read, Write};
        let table = [
            (Fetch, 0x0, 0x8200_0010),
            (Fetch, 0x4, 0x8600_0010),
            (Fetch, 0x5, 0x8600_0010),
            (Read, 0x0, 0x9200_0010),
            (Read, 0x5, 0x9600_0010),
            (Write, 0x0, 0x9200_0050),
            (Write, 0x4, 0x9600_0050),
        ];
        for (attempt, mode, expected) in table {
            let told = Syndrome::external_abort(attempt, Vector::from_mode(mode));
            assert_eq!(told, Syndrome(expected), "{attempt:?} in mode {mode:#x}");
        }
        assert_eq!(Syndrome::UNDEFINED, Syndrome(0x0200_0000));
        assert_eq!(
            [0x0, 0x4, 0x5].map(|mode| Vector::from_mode(mode) as u64),
            [0x400, 0x000, 0x200]
        );
    }
}
