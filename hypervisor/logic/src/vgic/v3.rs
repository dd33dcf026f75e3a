//! The registers of a GICv3 (Arm IHI 0069H) over the state that a GICv2 has: the distributor without
//! private interrupts, the redistributors, ICC_SGI1R, and the form of list registers.
//!
//! One Security state (GICD_CTLR.DS = 1), affinity routing always on, all interrupts in Group 1
//! (IGROUPR is RAO/WI). An SGI has no source: all are posted as vCPU 0's. A vCPU reaches the private
//! interrupts of one redistributor, that with its number; others are RAZ/WI.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{
    Banked, Distributor, LR_ID, LR_LEVEL_SHIFT, LR_PHYSICAL_SHIFT, PhysicalGic, Register, SGIS,
    State, Vcpus, decode,
};
use crate::syndrome::Width;
use cloison_formats::bits::ones;
use cloison_formats::limits::MAX_IRQ;

/// GICD_CTLR.ARE and DS, which are fixed; EnableGrp1 is bit 1 (12.9.4).
const CONTROL: u32 = 1 << 4 | 1 << 6;
/// GICD_TYPER: no 1-of-N model, ten bits of INTID (12.9.38); the number of groups of 32, less one.
const TYPE: u32 = 1 << 25 | 9 << 19;
/// GICD_PIDR2 and GICR_PIDR2 of a GICv3, at the end of each frame (12.9.32).
const PIDR2: u32 = 0x3b;
/// Offset of GICD_PIDR2 in a frame of 64 KiB.
const PIDR2_AT: u32 = 0xffe8;

/// A place in the distributor or a redistributor: its frame of 64 KiB, and the offset there. Frame 0
/// is the distributor; each vCPU has two more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset(u32);

impl Offset {
    /// Returns the place of an address, by its distances from the distributor and from the first
    /// redistributor of a VM with so many vCPUs.
    #[inline(always)]
    pub const fn new(distributor: u64, redistributor: u64, vcpus: usize) -> Option<Self> {
        if distributor < 1 << 16 {
            return Some(Self(distributor as u32));
        }
        if redistributor < (vcpus as u64) << 17 {
            return Some(Self(redistributor as u32 + (1 << 16)));
        }
        None
    }
}

/// What is at a place.
enum Place {
    /// A register of 32 bits that a GICv2 has too.
    Common(Register),
    /// GICD_CTLR.
    Control,
    /// A constant; one of 64 bits, in two words.
    Constant(u64),
    /// GICD_IROUTER of an SPI.
    Router(u32),
}

/// Returns a list register's 64 bits for the 32 of a GICv2's: ID, physical ID or the request for a
/// maintenance interrupt, priority, Group 1, HW, and state (12.4.8).
pub const fn to_hardware(value: u32) -> u64 {
    (value & LR_ID) as u64
        | (value as u64 >> LR_PHYSICAL_SHIFT & 0x3ff) << 32
        | (value as u64 >> LR_LEVEL_SHIFT & 0x1f) << 51
        | 1 << 60
        | (value as u64 >> 31) << 61
        | (value as u64 >> 28 & 3) << 62
}

/// Returns the 32 bits of a GICv2's list register for the 64 of `ICH_LR<n>_EL2`.
pub const fn from_hardware(value: u64) -> u32 {
    (value as u32 & LR_ID)
        | ((value >> 32 & 0x3ff) as u32) << LR_PHYSICAL_SHIFT
        | ((value >> 51 & 0x1f) as u32) << LR_LEVEL_SHIFT
        | ((value >> 61 & 1) as u32) << 31
        | ((value >> 62) as u32) << 28
}

/// Returns the lowest bit of a five-bit priority that decides about preemption in Group 1, for
/// ICH_VMCR_EL2 (12.4.10): by VBPR1, or with VCBPR by VBPR0, whose smallest value is one less.
pub const fn binary_point(vmcr: u64) -> u32 {
    let point = if vmcr & 1 << 4 != 0 {
        (vmcr >> 21 & 7) as u32 + 1
    } else {
        (vmcr >> 18 & 7) as u32
    };
    point.saturating_sub(3)
}

/// Returns ICC_SGI1R_EL1 for cores of affinity 0.0.0 and an SGI (12.2.18).
pub fn sgi(targets: u16, id: u32) -> u64 {
    u64::from(targets) | u64::from(id) << 24
}

/// Returns the maintenance interrupts in ICH_HCR_EL2: NPIE and LRENPIE (12.4.7).
pub fn watched(waiting: bool, aside: bool) -> u64 {
    u64::from(waiting) << 3 | u64::from(aside) << 2
}

/// Returns EOICount of ICH_HCR_EL2.
pub const fn ended(control: u64) -> u32 {
    (control >> 27) as u32 & 0x1f
}

/// Returns VEOIM of ICH_VMCR_EL2: the guest ends interrupts in two steps.
pub const fn splits_end(vmcr: u64) -> bool {
    vmcr & 1 << 9 != 0
}

impl Banked {
    /// Finds what is at a place.
    #[inline(always)]
    fn find(&self, distributor: &Distributor, Offset(at): Offset) -> Place {
        let groups = u32::from(distributor.groups);
        let (frame, offset) = (at >> 16, at & 0xffff);
        let is_shared = frame == 0;
        if offset < 0x1000 && (is_shared || frame == 2 * u32::from(self.vcpu) + 2) {
            let register = decode(offset as u16, distributor.groups);
            let is_here = match register {
                Register::Bits(_, _, group) => (group > 0) == is_shared,
                Register::Priority(word) => (word >= 8) == is_shared,
                Register::Config(word) => (word >= 2) == is_shared,
                Register::Implementer => is_shared,
                _ => false,
            };
            if is_here {
                return Place::Common(register);
            }
        }
        match (frame, offset) {
            (0, 0) => Place::Control,
            (0, 4) => Place::Constant((TYPE | (groups - 1)).into()),
            // GICD_IGROUPR.
            (0, 0x84..0x100) if (offset & 0x7f) >> 2 < groups => Place::Constant(u32::MAX.into()),
            (0, 0x6100..ROUTERS_END) if (offset - 0x6000) >> 8 < groups => {
                Place::Router((offset - 0x6000) >> 3)
            }
            // GICR_IIDR and GICR_TYPER: affinity, number, and whether it is the last one (12.11.38).
            (_, 4) if frame & 1 == 1 => Place::Common(Register::Implementer),
            (_, 8 | 12) if frame & 1 == 1 => {
                let vcpu = u64::from(frame >> 1);
                let last = u64::from(vcpu + 1 == u64::from(distributor.vcpus));
                let typer = vcpu << 32 | vcpu << 8 | last << 4;
                Place::Constant(if offset == 8 { typer } else { typer >> 32 })
            }
            (2.., 0x80) if frame & 1 == 0 => Place::Constant(u32::MAX.into()),
            (_, PIDR2_AT) => Place::Constant(PIDR2.into()),
            _ => Place::Constant(0),
        }
    }

    /// Handles a trapped read of GICD or GICR. `None`: it is not emulated, and the guest takes an
    /// external abort.
    #[inline(always)]
    pub fn read_v3(&self, gic: &impl PhysicalGic, at: Offset, width: Width) -> Option<u64> {
        let (shift, mask) = lane(at, width)?;
        let word = match self.find(gic.distributor(), at.word(width)) {
            Place::Common(register) => self.word(gic, register).into(),
            Place::Control => u64::from(self.word(gic, Register::Control) << 1 | CONTROL),
            Place::Constant(value) => value,
            Place::Router(irq) if at.0 & 4 == 0 => {
                // A foreign interrupt has no target.
                gic.lock().bank(irq).target(irq).unwrap_or_default().into()
            }
            Place::Router(_) => 0,
        };
        Some(word >> shift & mask)
    }

    /// Handles a trapped write to GICD or GICR. Returns the other vCPUs that must check their
    /// interrupts. `None` as for a read.
    pub fn write_v3(
        &mut self,
        gic: &impl PhysicalGic,
        at: Offset,
        width: Width,
        value: u64,
    ) -> Option<Vcpus> {
        let (shift, mask) = lane(at, width)?;
        let value = (value & mask) << shift;
        let (lanes, word) = ((mask << shift) as u32, value as u32);
        let distributor = gic.distributor();
        Some(match self.find(distributor, at.word(width)) {
            Place::Common(register) => self.write_slowly(gic, register, lanes, word),
            Place::Control => self.write_slowly(gic, Register::Control, lanes >> 1, word >> 1),
            // Affinity levels 1 to 3 are 0; a write that names no vCPU is ignored.
            Place::Router(irq)
                if at.0 & 4 == 0 && value & !(1 << 31) < distributor.vcpus.into() =>
            {
                self.write_slowly(gic, Register::Route(irq), lanes, word & 0xf)
            }
            _ => Vcpus(0),
        })
    }

    /// Handles a write of ICC_SGI1R_EL1 (12.2.18): all other vCPUs, or a list of 16 at affinity
    /// 0.0.0.
    pub fn send_v3(&mut self, gic: &impl PhysicalGic, value: u64) -> Vcpus {
        let targets = if value & 1 << 40 != 0 {
            !(1 << self.vcpu)
        } else if value & 0x00ff_f0ff_00ff_0000 == 0 {
            value as u16
        } else {
            return Vcpus(0);
        };
        self.send(gic, Vcpus(targets), (value >> 24) as u32 & 0xf, 0)
    }

    /// Makes those of the SGIs pending on this vCPU that a write to GICR_ISPENDR0 names, or no
    /// longer.
    pub(super) fn post_own(&self, gic: &impl PhysicalGic, state: State, set: bool, bits: u32) {
        let mail = gic.distributor().mail(self.vcpu);
        if let State::Pending = state {
            for sgi in ones(bits & SGIS) {
                if set {
                    mail.post(sgi, 0);
                } else {
                    mail.clear(sgi, 0);
                }
            }
        }
    }
}

/// End of GICD_IROUTER.
const ROUTERS_END: u32 = 0x6000 + MAX_IRQ * 8;

impl Offset {
    /// Returns the place of the register that an access of this width is a part of.
    const fn word(self, width: Width) -> Self {
        match width {
            Width::Double => self,
            _ => Self(self.0 & !3),
        }
    }
}

/// Returns the position of an access in its register: shift and mask. Only GICD_IROUTER and
/// GICR_TYPER have 64 bits.
#[inline(always)]
const fn lane(Offset(at): Offset, width: Width) -> Option<(u32, u64)> {
    let offset = at & 0xffff;
    match width {
        Width::Double => {
            let is_router = at >> 16 == 0 && offset >= 0x6100 && offset < ROUTERS_END;
            let is_type = at >> 16 & 1 == 1 && offset == 8;
            if offset & 7 == 0 && (is_router || is_type) {
                Some((0, u64::MAX))
            } else {
                None
            }
        }
        Width::Word if at & 3 == 0 => Some((0, 0xffff_ffff)),
        Width::Half if at & 1 == 0 => Some(((at & 3) * 8, 0xffff)),
        Width::Byte => Some(((at & 3) * 8, 0xff)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vgic::{LR_ACTIVE, LR_EOI, LR_HW, LR_PENDING};

    #[test]
    fn a_list_register_keeps_what_both_versions_have() {
        for state in [0, LR_PENDING, LR_ACTIVE, LR_PENDING | LR_ACTIVE] {
            for (id, end) in [
                (3, 0),
                (27, LR_HW | 27 << 10),
                (40, LR_EOI),
                (255, LR_HW | 255 << 10),
            ] {
                for priority in 0..32 {
                    let value = state | end | priority << LR_LEVEL_SHIFT | id;
                    let hardware = to_hardware(value);
                    assert_eq!(from_hardware(hardware), value, "{value:#x}");
                    // ICH_LR<n>_EL2: state, HW, Group 1, priority, ID (12.4.8).
                    assert_eq!(hardware >> 62, u64::from(state >> 28));
                    assert_eq!(hardware >> 60 & 3, u64::from(end >> 31) << 1 | 1);
                    assert_eq!(hardware >> 48 & 0xff, u64::from(priority) << 3);
                    assert_eq!(hardware & 0xffff_ffff, u64::from(id));
                    // EOI is bit 41 without HW; with it, the physical ID is in bits 44 to 32.
                    let physical = if end & LR_HW != 0 {
                        id.into()
                    } else {
                        u64::from(end) << 32 >> 42
                    };
                    assert_eq!(hardware >> 32 & 0x1fff, physical, "{value:#x}");
                }
            }
        }
        assert_eq!(to_hardware(LR_EOI) >> 41 & 1, 1);
    }

    #[test]
    fn the_binary_point_is_that_of_group_1() {
        let of =
            |common: u64, zero: u64, one: u64| binary_point(common << 4 | zero << 21 | one << 18);
        assert_eq!(
            (of(0, 7, 3), of(0, 2, 7), of(1, 2, 7), of(1, 7, 3)),
            (0, 4, 0, 5)
        );
        assert_eq!(of(0, 0, 0), 0);
    }

    #[test]
    fn a_place_is_in_the_distributor_or_a_vcpus_redistributor() {
        let at = |address: u64| Offset::new(address, address.wrapping_sub(0xa_0000), 2);
        assert_eq!(at(0), Some(Offset(0)));
        assert_eq!(at(0xffff), Some(Offset(0xffff)));
        assert_eq!((at(0x1_0000), at(0x9_ffff)), (None, None));
        assert_eq!(at(0xa_0000), Some(Offset(0x1_0000)));
        assert_eq!(at(0xd_ffff), Some(Offset(0x4_ffff)));
        assert_eq!(at(0xe_0000), None);
    }

    #[test]
    fn only_routers_and_types_have_64_bits() {
        for at in 0..5 << 16 {
            let is_wide = (0x6100..0x7fe0).contains(&at) || at & 0x1_ffff == 0x1_0008;
            let expected = is_wide && at % 8 == 0;
            assert_eq!(
                lane(Offset(at), Width::Double).is_some(),
                expected,
                "{at:#x}"
            );
            assert_eq!(
                lane(Offset(at), Width::Word).is_some(),
                at % 4 == 0,
                "{at:#x}"
            );
            assert_eq!(
                lane(Offset(at), Width::Half).is_some(),
                at % 2 == 0,
                "{at:#x}"
            );
            assert_eq!(
                lane(Offset(at), Width::Byte),
                Some((at % 4 * 8, 0xff)),
                "{at:#x}"
            );
        }
    }
}
