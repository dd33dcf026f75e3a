//! A GICv3's registers on the fake of the hardware: every offset, by the register maps of Arm IHI
//! 0069H; and a GICv2's offsets of them, so that other tests hold for both.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::offsets::{is_owned, owned};
use super::*;
use crate::vgic::v3::Offset;

/// The vCPU that accesses, of [`VCPUS`].
const VCPU: usize = 1;
const VCPUS: usize = 2;
/// Bytes of a frame.
const FRAME: u32 = 0x1_0000;
/// Distance between the registers that are tried. Miri, several hundred times slower, tries fewer.
const STEP: usize = if cfg!(miri) { 0x404 } else { 4 };

/// Returns a place in a frame: 0 is the distributor; each vCPU has two more.
fn place(frame: usize, offset: u32) -> Offset {
    let at = u64::from(FRAME) * frame as u64 + u64::from(offset);
    let (distributor, redistributor) = match frame {
        0 => (at, u64::MAX),
        _ => (u64::MAX, at - u64::from(FRAME)),
    };
    Offset::new(distributor, redistributor, 16).expect("a frame")
}

/// Returns where a GICv3 has what is at an offset of a GICv2, for this vCPU.
fn moved(vcpu: usize, offset: u16) -> Offset {
    let private = match offset {
        0x080..0x400 => offset & 0x7f < 4,
        0x400..0x420 | 0xc00..0xc08 => true,
        _ => false,
    };
    place(if private { 2 * vcpu + 2 } else { 0 }, offset.into())
}

/// Writes as a guest of version 3 what one of version 2 writes at this offset.
pub fn write(
    machine: &Machine,
    vcpu: usize,
    banked: &mut Banked,
    offset: u16,
    width: Width,
    value: u32,
) -> Option<Vcpus> {
    let view = View::<true>(machine, &machine.cores[vcpu]);
    let value = u64::from(value);
    match offset {
        // EnableGrp1 is bit 1 of GICD_CTLR.
        0x000 => banked.write_v3(&view, place(0, 0), width, value << 1),
        // GICD_SGIR, and GICD_CPENDSGIR for one SGI.
        0xf00 => {
            let targets = match value >> 24 & 3 {
                0 => value >> 16 & 0xff,
                1 => 1 << 40,
                _ => 1 << vcpu,
            };
            Some(banked.send_v3(&view, targets | (value & 0xf) << 24))
        }
        0xf10..0xf20 => {
            let sgi = u64::from(offset - 0xf10) + u64::from(value.trailing_zeros()) / 8;
            banked.write_v3(&view, place(2 * vcpu + 2, 0x280), width, 1 << sgi)
        }
        _ => banked.write_v3(&view, moved(vcpu, offset), width, value),
    }
}

/// Writes ICC_SGI1R as this vCPU.
pub fn send(machine: &Machine, vcpu: usize, value: u64) {
    let core = &machine.cores[vcpu];
    let view = View::<true>(machine, core);
    let others = core.banked.borrow_mut().send_v3(&view, value);
    assert_eq!(others.0 >> vcpu & 1, 0, "its own it lists itself");
    machine.kick(others);
}

/// Reads as a guest of version 3 what one of version 2 reads at this offset.
pub fn read(
    machine: &Machine,
    vcpu: usize,
    banked: &Banked,
    offset: u16,
    width: Width,
) -> Option<u32> {
    let view = View::<true>(machine, &machine.cores[vcpu]);
    let value = banked.read_v3(&view, moved(vcpu, offset), width)?;
    Some(value as u32)
}

/// What the register maps show after a reset and writes, for a VM with SGIs, two PPIs and two SPIs,
/// without any interrupt that is taken.
#[derive(Clone, Debug, PartialEq)]
struct Map {
    /// Groups of 32 interrupts: 8, or with [`FAR`] 32.
    groups: u32,
    enable: bool,
    enabled: [u32; 32],
    pending: [u32; 32],
    active: [u32; 32],
    priorities: [u8; 1024],
    /// The vCPU to which an SPI goes.
    routes: [u8; 1024],
    edges: [bool; 1024],
}

impl Map {
    fn new(groups: u32) -> Self {
        let mut enabled = [0; 32];
        // Whether SGIs can be disabled is the implementation's choice (12.11.22): never, here.
        enabled[0] = SGIS;
        Self {
            groups,
            enable: false,
            enabled,
            pending: [0; 32],
            active: [0; 32],
            priorities: [0; 1024],
            routes: [0; 1024],
            edges: [false; 1024],
        }
    }

    /// Returns whether a frame has the registers of interrupt `irq`, at the offsets of both maps
    /// (12.8, 12.10).
    const fn has(groups: u32, frame: usize, irq: usize) -> bool {
        frame == if irq < 32 { 2 * VCPU + 2 } else { 0 } && irq < groups as usize * 32
    }

    /// Returns a register of 32 bits.
    fn word(&self, frame: usize, offset: u32) -> u32 {
        let n = |first: u32| ((offset - first) / 4) as usize;
        let groups = self.groups;
        let has = |irq| Self::has(groups, frame, irq);
        match offset {
            // GICD_CTLR: DS, ARE, EnableGrp1. GICD_TYPER: ten bits of INTID, No1N, groups of 32.
            0x000 if frame == 0 => 0x50 | u32::from(self.enable) << 1,
            0x004 if frame == 0 => (groups - 1) | 9 << 19 | 1 << 25,
            // GICD_IIDR, GICR_IIDR: a GIC-400's, as of version 2.
            0x008 if frame == 0 => 0x0200_143b,
            0x004 if frame % 2 == 1 => 0x0200_143b,
            // GICR_TYPER: number, Last, affinity.
            0x008 if frame % 2 == 1 => {
                let vcpu = frame / 2;
                (vcpu << 8 | usize::from(vcpu + 1 == VCPUS) << 4) as u32
            }
            0x00c if frame % 2 == 1 => frame as u32 / 2,
            0x084..0x100 if frame == 0 && n(0x080) < groups as usize => !0,
            0x080 if frame > 0 && frame.is_multiple_of(2) => !0,
            0x100..0x180 if has(n(0x100) * 32) => self.enabled[n(0x100)],
            0x180..0x200 if has(n(0x180) * 32) => self.enabled[n(0x180)],
            0x200..0x280 if has(n(0x200) * 32) => self.pending[n(0x200)],
            0x280..0x300 if has(n(0x280) * 32) => self.pending[n(0x280)],
            0x300..0x380 if has(n(0x300) * 32) => self.active[n(0x300)],
            0x380..0x400 if has(n(0x380) * 32) => self.active[n(0x380)],
            0x400..0x800 if has(n(0x400) * 4) => {
                let at = n(0x400) * 4;
                u32::from_le_bytes(core::array::from_fn(|byte| self.priorities[at + byte]))
            }
            // SGIs are edge-triggered, and the PPIs here are level-sensitive.
            0xc00 if has(0) => 0xaaaa_aaaa,
            0xc08..0xd00 if has(n(0xc00) * 16) => (0..16).fold(0, |word, field| {
                let edge = self.edges[n(0xc00) * 16 + field];
                word | u32::from(edge) << (field * 2 + 1)
            }),
            // GICD_IROUTER: Aff0; the upper word has Aff3.
            0x6100..0x7fe0 if frame == 0 && offset.is_multiple_of(8) => {
                self.routes[(offset as usize - 0x6000) / 8].into()
            }
            0xffe8 => 0x3b,
            _ => 0,
        }
    }

    /// Writes those bytes of a register of 32 bits for which `lanes` is set.
    fn write(&mut self, frame: usize, offset: u32, lanes: u32, value: u32) {
        let value = value & lanes;
        let n = |first: u32| ((offset - first) / 4) as usize;
        let groups = self.groups;
        let has = |irq| Self::has(groups, frame, irq);
        let but_sgis = |group| if group == 0 { !SGIS } else { !0 };
        match offset {
            0x000 if frame == 0 && lanes & 2 != 0 => self.enable = value & 2 != 0,
            0x100..0x180 if has(n(0x100) * 32) => {
                self.enabled[n(0x100)] |= value & owned(groups, n(0x100));
            }
            0x180..0x200 if has(n(0x180) * 32) => {
                self.enabled[n(0x180)] &= !(value & but_sgis(n(0x180)));
            }
            // Also SGIs (12.11.24).
            0x200..0x280 if has(n(0x200) * 32) => {
                self.pending[n(0x200)] |= value & owned(groups, n(0x200));
            }
            0x280..0x300 if has(n(0x280) * 32) => self.pending[n(0x280)] &= !value,
            0x300..0x380 if has(n(0x300) * 32) => {
                self.active[n(0x300)] |= value & owned(groups, n(0x300))
            }
            0x380..0x400 if has(n(0x380) * 32) => self.active[n(0x380)] &= !value,
            0x400..0x800 if has(n(0x400) * 4) => {
                for byte in (0..4).filter(|byte| lanes >> (byte * 8) & 0xff != 0) {
                    self.priorities[n(0x400) * 4 + byte] = (value >> (byte * 8)) as u8 & 0xf8;
                }
            }
            0xc08..0xd00 if has(n(0xc00) * 16) => {
                for field in (0..16).filter(|field| lanes >> (field * 2 + 1) & 1 == 1) {
                    let irq = n(0xc00) * 16 + field;
                    if is_owned(groups, irq as u32) {
                        self.edges[irq] = value >> (field * 2 + 1) & 1 == 1;
                    }
                }
            }
            0x6100..0x7fe0 if frame == 0 && offset.is_multiple_of(8) => {
                let irq = (offset as usize - 0x6000) / 8;
                // A route to a vCPU that does not exist is ignored.
                if is_owned(groups, irq as u32) && value & !(1 << 31) < VCPUS as u32 {
                    self.routes[irq] = value as u8;
                }
            }
            _ => {}
        }
    }
}

/// Returns the bits of a register that an access covers. `None`: the guest takes an external abort.
fn lanes(frame: usize, offset: u32, width: Width) -> Option<u64> {
    let bytes = width.bytes() as u32;
    let is_wide = frame == 0 && (0x6100..0x7fe0).contains(&offset) || frame % 2 == 1 && offset == 8;
    let fits = offset.is_multiple_of(bytes) && (bytes <= 4 || is_wide);
    fits.then(|| u64::MAX >> (64 - bytes * 8))
}

fn machine(groups: u32) -> Machine {
    let others: &[u32] = if groups == 32 { &[FAR] } else { &[] };
    Machine::has(GicVersion::V3, VCPUS as u8, false, others)
}

fn load(machine: &Machine, frame: usize, offset: u32, width: Width) -> Option<u64> {
    let view = View::<true>(machine, &machine.cores[VCPU]);
    let banked = machine.cores[VCPU].banked.borrow();
    banked.read_v3(&view, place(frame, offset), width)
}

fn store(machine: &Machine, frame: usize, offset: u32, width: Width, value: u64) -> Option<()> {
    let view = View::<true>(machine, &machine.cores[VCPU]);
    let mut banked = machine.cores[VCPU].banked.borrow_mut();
    let others = banked.write_v3(&view, place(frame, offset), width, value)?;
    drop(banked);
    machine.kick(others);
    Some(())
}

/// Iterates over the offsets of frames where a register can be, by words.
fn words() -> impl Iterator<Item = (usize, u32)> {
    let offsets = (0..0x1010)
        .chain(0x60f0..0x6810)
        .chain(0x7fc0..0x8010)
        .chain(0xffd0..FRAME);
    let offsets = offsets.step_by(STEP).map(|offset| offset & !3);
    (0..=2 * VCPUS).flat_map(move |frame| offsets.clone().map(move |offset| (frame, offset)))
}

/// Compares all registers.
fn compare(machine: &Machine, map: &Map, what: core::fmt::Arguments) {
    for (frame, offset) in words() {
        let found = load(machine, frame, offset, Width::Word);
        let expected = Some(map.word(frame, offset).into());
        assert_eq!(found, expected, "frame {frame}, {offset:#x}, after {what}");
    }
}

#[test]
fn every_register_of_a_gicv3_is_read_with_every_width() {
    [8, 32].into_iter().for_each(each_is_read);
}

fn each_is_read(groups: u32) {
    let (machine, mut map) = (machine(groups), Map::new(groups));
    for (frame, offset) in words() {
        // Clearing registers would undo what others set; a route to all ones is ignored.
        if offset != 0 && ![3, 5, 7].contains(&(offset >> 7)) {
            store(&machine, frame, offset, Width::Word, u32::MAX.into()).unwrap();
            map.write(frame, offset, u32::MAX, u32::MAX);
        }
    }
    compare(&machine, &map, format_args!("all ones"));
    for (frame, word) in words() {
        for (offset, width) in (word..word + 4).flat_map(|offset| {
            [Width::Byte, Width::Half, Width::Word, Width::Double].map(|width| (offset, width))
        }) {
            let whole = u64::from(map.word(frame, word));
            let upper = u64::from(map.word(frame, (word + 4) % FRAME)) << 32;
            let expected = lanes(frame, offset, width)
                .map(|lanes| (whole | upper) >> (offset % 4 * 8) & lanes);
            let found = load(&machine, frame, offset, width);
            assert_eq!(found, expected, "frame {frame}, {offset:#x}, {width:?}");
        }
    }
}

#[test]
fn every_register_of_a_gicv3_is_written_with_every_width() {
    [8, 32].into_iter().for_each(each_is_written);
}

fn each_is_written(groups: u32) {
    for (frame, word) in words() {
        let (machine, mut map) = (machine(groups), Map::new(groups));
        for (offset, width) in (word..word + 4).flat_map(|offset| {
            [Width::Byte, Width::Half, Width::Word, Width::Double].map(|width| (offset, width))
        }) {
            for value in [u64::MAX, 0, 0xaaaa_aaaa_aaaa_aaaa, 1] {
                let stored = store(&machine, frame, offset, width, value);
                let lanes = lanes(frame, offset, width);
                let what = format_args!("{value:#x} to frame {frame}, {offset:#x}, {width:?}");
                assert_eq!(stored.is_some(), lanes.is_some(), "{what}");
                let Some(lanes) = lanes else { continue };
                let shift = offset % 4 * 8;
                // A route to another cluster is none that exists.
                if width == Width::Double && value >> 32 != 0 {
                    continue;
                }
                map.write(
                    frame,
                    word,
                    (lanes << shift) as u32,
                    ((value & lanes) << shift) as u32,
                );
            }
        }
        compare(
            &machine,
            &map,
            format_args!("writes to frame {frame}, {word:#x}"),
        );
    }
}

#[test]
fn an_sgi_reaches_those_that_icc_sgi1r_names() {
    let machine = Machine::of(GicVersion::V3, 4, false);
    machine.write(0, 0x000, 1);
    let send = |vcpu, value| send(&machine, vcpu, value);
    let seen = || core::array::from_fn::<_, 4, _>(|vcpu| machine.drain(vcpu));
    let once = |id| std::vec![(id, 0)];
    // A list; one with itself; a vCPU that does not exist; all others.
    send(1, 5 << 24 | 0b1001);
    assert_eq!(seen(), [once(5), Vec::new(), Vec::new(), once(5)]);
    send(1, 6 << 24 | 0b0010);
    assert_eq!(seen(), [Vec::new(), once(6), Vec::new(), Vec::new()]);
    send(1, 7 << 24 | 0xfff0);
    assert_eq!(seen(), [const { Vec::new() }; 4]);
    send(1, 8 << 24 | 1 << 40);
    assert_eq!(seen(), [once(8), Vec::new(), once(8), once(8)]);
    // Other affinities: Aff1, Aff2, Aff3 and RS.
    for elsewhere in [1 << 16, 1 << 32, 1 << 48, 1 << 44] {
        send(1, 9 << 24 | 0b1111 | elsewhere);
        assert_eq!(seen(), [const { Vec::new() }; 4], "{elsewhere:#x}");
    }
    // Two senders of one SGI are one interrupt: it has no source.
    send(1, 3 << 24 | 1);
    send(2, 3 << 24 | 1);
    assert_eq!(seen(), [once(3), Vec::new(), Vec::new(), Vec::new()]);
}

#[test]
fn each_of_sixteen_vcpus_is_reached_by_sgis_and_routes() {
    let machine = Machine::of(GicVersion::V3, 16, false);
    machine.write(0, 0x000, 1);
    machine.write(0, 0x104, 1 << (UART - 32) | 1 << (DISK - 32));
    let seen = |id| {
        let seen: Vec<_> = (0..16).map(|vcpu| machine.drain(vcpu)).collect();
        let is_right = |taken: &Vec<_>| taken.is_empty() || *taken == [(id, 0)];
        assert!(seen.iter().all(is_right), "{seen:?}");
        (0..16)
            .filter(|&vcpu| !seen[vcpu].is_empty())
            .fold(0u16, |mask, vcpu| mask | 1 << vcpu)
    };
    for sender in [0, 7, 8, 15] {
        for target in 0..16 {
            machine.send(sender, target, 4);
            assert_eq!(seen(4), 1 << target, "from {sender}");
        }
        send(&machine, sender, 4 << 24 | 0xa5c3);
        assert_eq!(seen(4), 0xa5c3);
        send(&machine, sender, 4 << 24 | 1 << 40);
        assert_eq!(seen(4), !(1 << sender));
    }
    let router = |irq: u32| place(0, 0x6000 + irq * 8);
    let route = |irq, vcpu| {
        let view = View::<true>(&machine, &machine.cores[0]);
        let mut banked = machine.cores[0].banked.borrow_mut();
        let others = banked.write_v3(&view, router(irq), Width::Double, vcpu);
        drop(banked);
        machine.kick(others.expect("a register"));
        let banked = machine.cores[0].banked.borrow();
        banked.read_v3(&view, router(irq), Width::Double)
    };
    for vcpu in 0..16 {
        assert_eq!(route(UART, vcpu), Some(vcpu));
        machine.uart(true);
        let taken = machine.acknowledge(vcpu as usize);
        assert_eq!(taken, Some((UART, 0)));
        machine.uart(false);
        machine.end(vcpu as usize, UART);
        assert_eq!(seen(UART), 0);
        machine.asked.borrow_mut().clear();
        assert_eq!(route(DISK, vcpu), Some(vcpu));
        let asked = machine.asked.borrow();
        assert_eq!(*asked, [Asked::Route(DISK, vcpu as u8)]);
    }
    // A vCPU that does not exist, and one of another cluster, leave it where it is.
    for nobody in [16, 1 << 8, 1 << 31 | 16, 1 << 32] {
        assert_eq!(route(UART, nobody), Some(15));
    }
    // GICR_TYPER: the last one has the last frame.
    let typer = |vcpu: usize| {
        let view = View::<true>(&machine, &machine.cores[0]);
        let banked = machine.cores[0].banked.borrow();
        banked.read_v3(&view, place(2 * vcpu + 1, 8), Width::Double)
    };
    assert_eq!(typer(14), Some(14 << 32 | 14 << 8));
    assert_eq!(typer(15), Some(15 << 32 | 15 << 8 | 1 << 4));
}

#[test]
fn the_last_interrupt_of_all_is_taken_put_aside_and_ended() {
    for version in [GicVersion::V2, GicVersion::V3] {
        let others: Vec<u32> = (FAR - 4..=FAR).collect();
        let machine = Machine::has(version, 2, false, &others);
        machine.write(0, 0x000, 1);
        machine.write(0, 0x17c, u32::MAX);
        assert_eq!(machine.read(0, 0x17c), 0x0f80_0000);
        // One more than there are list registers, each more urgent than the one before.
        for (irq, priority) in (FAR - 4..=FAR).zip([0x80, 0x60, 0x40, 0x20, 0]) {
            machine
                .access(0, 0x400 + irq as u16, Width::Byte, priority)
                .unwrap();
            machine.write(0, 0x27c, 1 << (irq % 32));
            assert_eq!(machine.acknowledge(0), Some((irq, 0)), "{version:?}");
        }
        assert_eq!(machine.read(0, 0x37c), 0x0f80_0000, "all active");
        for irq in (FAR - 4..=FAR).rev() {
            machine.end(0, irq);
        }
        assert_eq!(machine.read(0, 0x37c), 0);
        let set = |irq| {
            let mut shared = machine.shared.borrow_mut();
            let kicks = shared.latch(irq, &machine.distributor);
            drop(shared);
            machine.kick(kicks);
            machine.drain(0)
        };
        assert_eq!(set(FAR), [(FAR, 0)]);
        // None of the VM's: in its last group, and beyond.
        assert_eq!((set(FAR - 5), set(1020), set(u32::MAX)), Default::default());
    }
}
