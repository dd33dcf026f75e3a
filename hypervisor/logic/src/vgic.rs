//! The emulated GICv2 distributor of a VM, and the contents of its list registers.
//!
//! The guest's CPU interface is the hardware's GICV, so acknowledging and ending an interrupt
//! causes no exit. This module keeps the state that the guest reads and writes in GICD (Arm IHI
//! 0048B, chapter 4.3), and fills the list registers (5.3.9). The state has three parts, so that
//! frequent paths need no lock:
//!
//! | type | one per | accessed by |
//! | --- | --- | --- |
//! | [`Banked`] | vCPU | only the vCPU's core: state of SGIs and PPIs, list registers |
//! | [`Distributor`] | VM | every core, by atomics: pending SGIs, waiting SPIs, GICD_CTLR |
//! | [`Shared`] | VM | every core, under the hypervisor's lock: SPIs |
//!
//! ```text
//! trapped read    value = banked.read(&gic, offset, width)?
//! trapped write   kick(banked.write(&gic, offset, width, value)?)
//! PPI 27 taken    if !banked.inject_timer(&gic) { kick(banked.fill(&gic)) }
//! physical SPI    kick(gic.lock().raise(irq, &distributor))
//! UART line       kick(gic.lock().set_line(irq, uart.line_level(), &distributor))
//! doorbell        if !banked.relist(irq, &gic) { kick(gic.lock().latch(irq, &distributor)) }
//! maintenance interrupt, or kicked by another core:  kick(banked.fill(&gic))
//! trapped DIR     kick(banked.deactivate(&gic, value))
//! ```
//!
//! `gic` is the EL2 image's [`PhysicalGic`]: the calling core's GICH and GICC, the GICD, and the
//! VM's two shared parts. `kick(set)` sends a physical SGI to the cores of these vCPUs (after a
//! DSB) and calls `fill` where the set holds the calling vCPU; what `read` and `write` return never
//! does. Nothing else synchronizes with the list registers: `fill` looks at GICH_ELRSR0 and
//! GICH_EISR0 itself, and GICH need not be saved while one vCPU owns its core. The lock is
//! taken only for SPI registers and GICD_CTLR writes, and by `fill` only while an SPI waits for
//! this vCPU or a list register needs an eye on its end. Priority drop and deactivation are split
//! in the hypervisor's GICC (EOImodeNS = 1): an interrupt with HW = 1 in its list register is
//! deactivated by the guest. Physical enables follow the guest's.
//!
//! Choices: all interrupts are Group 0, which a guest enables with GICV_CTLR bit 0 (IGROUPR is
//! RAZ/WI, as without Security Extensions). SGIs are always enabled, as in the GIC-400. An SPI with
//! several targets goes to the lowest one. Pending and active bits of an SPI in *another* vCPU's
//! list register, or put aside there, read as 0 (docs/guests.md has all differences). Interrupts
//! that the VM does not own, and reserved offsets, are RAZ/WI.
//!
//! A list register contains a pending or an active interrupt. While more wait than fit, at least
//! one pending is listed, and no other that waits is more urgent: `Banked::put_aside` makes room,
//! and `Aside` has the active ones that left.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::{AtomicBool, AtomicU64};
use crate::syndrome::Width;
use alloc::vec::Vec;
use cloison_formats::bits::{assign, ones};
use cloison_formats::image::GicVersion;
use cloison_formats::limits::{LIST_REGISTERS, MAX_IRQ, MAX_VCPUS};
use core::mem::take;
use core::ops::DerefMut;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The EL1 virtual timer's PPI.
pub const TIMER: u32 = 27;

/// Registers of one bit for each interrupt that there can be.
const GROUPS: usize = MAX_IRQ.div_ceil(32) as usize;
/// How many of them each VM has.
const LEAST_GROUPS: usize = 8;
// IDs 0 to 15 are SGIs, 16 to 31 PPIs, and 32 to 1019 SPIs (Arm IHI 0048B, 2.2.1).
const SGIS: u32 = 0xffff;
/// One SGI of four sources in [`Mail`].
const SOURCES: u64 = 0x0001_0001_0001_0001;

// Fields of GICH_LRn. The upper five bits of an eight-bit priority are the register's bits [27:23].
// With HW = 0, bits [12:10] hold the source of an SGI, and bit 19 asks for a maintenance interrupt
// at the end (EOI); with HW = 1, bits [19:10] hold the physical ID (Arm IHI 0048B, 5.3.9).
const LR_ID: u32 = 0x3ff;
const LR_PHYSICAL_SHIFT: u32 = 10;
const LR_EOI: u32 = 1 << 19;
const LR_PRIORITY_SHIFT: u32 = 20;
const LR_LEVEL_SHIFT: u32 = 23;
/// States. An interrupt that is active and pending is taken again after its end.
const LR_PENDING: u32 = 1 << 28;
const LR_ACTIVE: u32 = 2 << 28;
/// The interrupt is a physical one.
const LR_HW: u32 = 1 << 31;
/// In our copy only (reserved in the register): the pending state came from a write to ISPENDR, not
/// from a line.
const COPY_LATCHED: u32 = 1 << 20;

// Bits of [`Banked::held`]: one per list register whose end must be seen, and one for interrupts that
// were put aside; the same again for SPIs, also for those that stay without that.
const HELD_ASIDE: u32 = 1 << 15;
/// More wait than fit: what is new may be less urgent than they are, although a list register is
/// free.
const HELD_WAITING: u32 = 1 << 14;
const HELD_SPI: u32 = 0x1_0001;
const HELD_SPIS: u32 = 0xffff_0000;
const HELD_ENDS: u32 = 0xffff;

/// The condition that makes a shared interrupt pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A high line.
    Level,
    /// A line that rises.
    Edge,
}

/// The EL2 image on the calling core, as this module uses it; a fake in the tests.
pub trait PhysicalGic {
    /// What the board has, and the guest sees.
    const VERSION: GicVersion;
    /// Returns the part of the VM's state that needs no lock.
    fn distributor(&self) -> &Distributor;
    /// Locks the VM's SPIs and returns them.
    fn lock(&self) -> impl DerefMut<Target = Shared>;
    /// Returns the list registers that the guest has finished: GICH_ELRSR0 | GICH_EISR0.
    fn done(&self) -> u32;
    /// Reads GICH_LRn.
    fn get(&self, index: usize) -> u32;
    /// Writes GICH_LRn.
    fn set(&self, index: usize, value: u32);
    /// Sets which maintenance interrupts are raised besides those of list registers, and
    /// GICH_HCR.EOICount to 0: while no list register is pending (NPIE), and while EOICount is
    /// not 0 (LRENPIE).
    fn watch(&self, waiting: bool, aside: bool);
    /// Returns how often the guest has ended an interrupt that is in no list register
    /// (GICH_HCR.EOICount).
    fn ended(&self) -> u32;
    /// Returns the priorities that are active: one bit each (GICH_APR).
    fn active_priorities(&self) -> u32;
    /// Returns the lowest bit of a five-bit priority that decides about preemption
    /// (GICH_VMCR.VMBP).
    fn binary_point(&self) -> u32;
    /// Returns the pending state of the 32 physical interrupts from `32 * group` on (GICD_ISPENDR).
    fn pending(&self, group: usize) -> u32;
    /// Deactivates a physical interrupt (GICC_DIR).
    fn deactivate(&self, irq: u32);
    /// Enables or disables a physical interrupt of this VM (GICD_ISENABLER, GICD_ICENABLER).
    fn set_enabled(&self, irq: u32, on: bool);
    /// Routes a physical SPI to the core of a vCPU (GICD_ITARGETSR).
    fn route(&self, irq: u32, vcpu: u8);
    /// Makes a physical SPI edge-triggered or level-sensitive (GICD_ICFGR; its word is shared with
    /// other VMs' SPIs).
    fn configure(&self, irq: u32, trigger: Trigger);
}

/// A set of vCPUs of one VM, as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Vcpus(pub u16);

impl Width {
    /// Returns the position of an access in its 32-bit register: shift and mask. `None` for an
    /// access that is not emulated: beyond the distributor's 4 KiB, 64 bits wide, or not at a
    /// multiple of its width.
    #[inline(always)]
    const fn lane(self, offset: u16) -> Option<(u32, u32)> {
        let (low, mask) = match self {
            Self::Word => (3, u32::MAX),
            Self::Half => (1, 0xffff),
            Self::Byte => (0, 0xff),
            Self::Double => return None,
        };
        match offset {
            0..0x1000 if offset & low == 0 => Some(((offset & 3) as u32 * 8, mask)),
            _ => None,
        }
    }
}

/// The state that a register with one bit per interrupt sets, clears and shows.
///
/// GICD_ISENABLER and ICENABLER, ISPENDR and ICPENDR, ISACTIVER and ICACTIVER.
#[derive(Clone, Copy)]
enum State {
    Enabled,
    Pending,
    Active,
}

/// The register at an offset; the number is its index among registers of its kind.
#[derive(Clone, Copy)]
enum Register {
    Control,
    Type,
    Implementer,
    /// Whether it sets (or clears), and which group of 32.
    Bits(State, bool, usize),
    Priority(usize),
    Targets(usize),
    /// GICD_IROUTER of an SPI.
    Route(u32),
    Config(usize),
    /// Whether it sets (or clears), and which four SGIs.
    SgiPending(bool, usize),
    Identification(usize),
    Reserved,
}

/// Decodes an offset by the distributor's register map (Arm IHI 0048B, 4.1.2). A register with one
/// bit per interrupt has 128 bytes, and pairs of them set (first) and clear. With two bits it has 256
/// bytes, with one byte 1 KiB.
///
/// `offset` is below 4 KiB: [`Width::lane`] has refused the others. Those of interrupts beyond the
/// `groups` of 32 that the VM has are reserved.
#[inline(always)]
fn decode(offset: u16, groups: u8) -> Register {
    let groups = usize::from(groups);
    let near = usize::from(offset & 0x7f) >> 2;
    let pairs = usize::from(offset & 0xff) >> 2;
    let far = usize::from(offset & 0x3ff) >> 2;
    match offset >> 7 {
        0 if near == 0 => Register::Control,
        0 if near == 1 => Register::Type,
        0 if near == 2 => Register::Implementer,
        row @ 2..4 if near < groups => Register::Bits(State::Enabled, row & 1 == 0, near),
        row @ 4..6 if near < groups => Register::Bits(State::Pending, row & 1 == 0, near),
        row @ 6..8 if near < groups => Register::Bits(State::Active, row & 1 == 0, near),
        8..16 if far < groups * 8 => Register::Priority(far),
        16..24 if far < groups * 8 => Register::Targets(far),
        24..26 if pairs < groups * 2 => Register::Config(pairs),
        // GICD_CPENDSGIR is at 0xf10, GICD_SPENDSGIR at 0xf20 (4.3.16, 4.3.17).
        30 if (4..12).contains(&near) => Register::SgiPending(near >= 8, near & 3),
        31 if near >= 20 => Register::Identification(near - 20),
        _ => Register::Reserved,
    }
}

/// PIDR4-7, PIDR0-3, CIDR0-3, and GICD_IIDR, of a GIC-400.
const IDENTIFICATION: [u8; 12] = [0x04, 0, 0, 0, 0x90, 0xb4, 0x2b, 0, 0x0d, 0xf0, 0x05, 0xb1];
const IMPLEMENTER: u32 = 0x0200_143b;

/// Returns the bit of an interrupt in registers with one bit per interrupt.
const fn bit_of(irq: u32) -> u32 {
    1 << (irq & 31)
}

/// Returns the byte of `irq` in registers with four interrupts each. `N` is a power of two: the
/// bounds check is a mask.
fn byte<const N: usize>(words: &[u32; N], irq: u32) -> u32 {
    words[(irq >> 2) as usize % N] >> ((irq & 3) * 8) & 0xff
}

/// Interrupts from other cores for a vCPU. The vCPU's mail has its own cache line, so that cores do
/// not slow each other down.
///
/// Other cores only set bits (`fetch_or`, Release), and the vCPU's core clears them after it has
/// read them (Acquire): no SGI is lost, and the state before the SGI is visible with it
/// (`an_sgi_sent_to_a_vcpu_that_is_still_starting_is_not_lost`).
#[derive(Debug, Default)]
#[repr(align(64))]
struct Mail {
    /// Pending SGIs: word `source / 4`, bit `source % 4 * 16 + sgi`.
    sgis: [AtomicU64; 2],
    /// SPIs wait, or may have to leave a list register. Written under the lock of [`Shared`].
    spis: AtomicBool,
}

impl Mail {
    /// Makes an SGI pending. Any core may call it; the vCPU need not be on.
    fn post(&self, sgi: u32, source: u32) {
        self.sgis[source as usize >> 2 & 1].fetch_or(1 << ((source & 3) * 16 + sgi), Release);
    }

    /// Takes an SGI of one source. Only the vCPU's own core calls it.
    fn clear(&self, sgi: u32, source: u32) {
        self.sgis[source as usize >> 2 & 1].fetch_and(!(1 << ((source & 3) * 16 + sgi)), AcqRel);
    }

    /// Returns the mask of the SGIs that are pending from any source. The four 16-bit lanes of each
    /// word, one per source, are folded into one.
    fn pending(&self) -> u32 {
        let any = self.sgis[0].load(Acquire) | self.sgis[1].load(Acquire);
        let any = any | any >> 32;
        (any | any >> 16) as u32 & SGIS
    }

    /// Returns the sources from which `sgi` is pending.
    fn sources(&self, sgi: u32) -> u32 {
        let [low, high] = self.sgis.each_ref().map(|word| {
            // One bit per 16-bit lane is left; the shifts move lane `k`'s bit to position `k`.
            let bits = word.load(Acquire) >> sgi & SOURCES;
            (bits | bits >> 15 | bits >> 30 | bits >> 45) as u32 & 0xf
        });
        low | high << 4
    }
}

/// The part of a VM's distributor that needs no lock.
#[derive(Debug)]
pub struct Distributor {
    /// The number of vCPUs, 1 to 16; of a GICv2 at most 8.
    vcpus: u8,
    /// The groups of 32 interrupts that it has.
    groups: u8,
    // GICD_CTLR.Enable: without it, no interrupt is forwarded to a CPU interface (4.3.1).
    forward: AtomicBool,
    mail: [Mail; MAX_VCPUS],
}

impl Distributor {
    /// Creates it for a VM with this many vCPUs (1 to 16; of a GICv2 at most 8) and these SPIs.
    pub fn new(vcpus: u8, spis: &Shared) -> Self {
        Self {
            vcpus,
            groups: spis.banks.len() as u8,
            forward: AtomicBool::new(false),
            mail: Default::default(),
        }
    }

    /// Returns GICD_TYPER: the number of interrupts and vCPUs. ITLinesNumber is the number of
    /// groups of 32 less one, CPUNumber in bits \[7:5\] the number of vCPUs less one (4.3.2).
    pub fn type_register(&self) -> u32 {
        (u32::from(self.groups) - 1) | (u32::from(self.vcpus) - 1) << 5
    }

    /// Resets to the state after power-on. No vCPU of the VM may run.
    pub fn reset(&self) {
        self.forward.store(false, Relaxed);
        for mail in &self.mail {
            for word in &mail.sgis {
                word.store(0, Relaxed);
            }
            mail.spis.store(false, Relaxed);
        }
    }

    /// Returns a bit for each vCPU of the VM.
    const fn all(&self) -> u16 {
        u16::MAX >> (MAX_VCPUS as u8 - self.vcpus)
    }

    /// Returns a vCPU's mail. The remainder keeps the index in bounds without a panic.
    fn mail(&self, vcpu: u8) -> &Mail {
        &self.mail[usize::from(vcpu) % MAX_VCPUS]
    }
}

/// The state of 32 interrupts. `owned` limits all other masks.
///
/// An interrupt is pending while its `line` is high or it is `latched` by a write to GICD_ISPENDR
/// (4.3.7). It either waits here, or is in one list register or put aside (`placed`), so that no
/// interrupt is signaled twice. Reference:
/// `active_interrupts_are_those_of_a_gic_without_list_registers`.
#[derive(Debug, Default)]
struct Group {
    /// Interrupts that the VM has: the others read as zero and ignore writes.
    owned: u32,
    /// Those of `owned` that a device or the CPU raises; the others are emulated.
    physical: u32,
    /// Physical interrupts that the hypervisor deactivates after the guest has ended them.
    mediated: u32,
    /// GICD_ISENABLER. The physical enables follow those of `physical`.
    enabled: u32,
    /// Emulated interrupts: the level of the line. Physical ones: taken by the hypervisor, but not
    /// in a list register yet.
    line: u32,
    /// Pending by a write to GICD_ISPENDR, until taken or cleared.
    latched: u32,
    /// In a list register.
    placed: u32,
    /// GICD_IPRIORITYR: four interrupts in each word, of which the upper five bits of a byte count.
    priority: [u32; 8],
}

impl Group {
    /// Returns those that could go into a list register; `sgis` are pending elsewhere.
    const fn waiting(&self, sgis: u32) -> u32 {
        // A disabled interrupt becomes pending all the same; it is only not forwarded (4.3.6).
        (self.line | self.latched | sgis) & self.enabled & !self.placed
    }

    /// Returns an interrupt's rank in the GIC's order: by priority, then by ID.
    ///
    /// The smaller, the more urgent. The ID is in bits 9 to 0, as in a list register.
    fn rank(&self, irq: u32) -> u32 {
        byte(&self.priority, irq) << 10 | irq
    }

    /// Returns a list register's fields that are the same for all pending interrupts.
    fn entry(&self, irq: u32) -> u32 {
        LR_PENDING | byte(&self.priority, irq) << LR_PRIORITY_SHIFT | irq
    }

    /// Returns the list register's fields that say who is told when the guest ends an interrupt:
    /// the physical GIC or the hypervisor.
    const fn ending(&self, irq: u32) -> u32 {
        if self.physical & !self.mediated & bit_of(irq) != 0 {
            LR_HW | irq << LR_PHYSICAL_SHIFT
        } else {
            LR_EOI
        }
    }

    /// Takes the pending state of an interrupt. Returns its list register's fields without ID and
    /// priority.
    const fn take(&mut self, irq: u32) -> u32 {
        let bit = bit_of(irq);
        self.placed |= bit;
        // A latched one first: the line keeps its level, so that it is pending again afterwards.
        if self.latched & bit != 0 {
            self.latched &= !bit;
            // The end of an SPI whose line is low matters only if it comes again meanwhile: then
            // `collect` asks for it. Otherwise it keeps its list register.
            return if irq >= 32 && self.line & bit == 0 {
                COPY_LATCHED
            } else {
                LR_EOI | COPY_LATCHED
            };
        }
        self.line &= !(self.physical & bit);
        self.ending(irq)
    }

    /// Restores an interrupt's pending state from before [`Group::take`]; a line keeps its level
    /// anyway.
    ///
    /// The caller has emptied the list register, and clears `placed`.
    const fn put_back(&mut self, copy: u32) {
        let bit = bit_of(copy);
        if copy & COPY_LATCHED != 0 {
            self.latched |= bit;
        } else {
            self.line |= self.physical & bit;
        }
    }

    /// Returns whether a list register's interrupt is active in the physical GIC until the
    /// hypervisor deactivates it.
    const fn is_mediated(&self, copy: u32) -> bool {
        copy & COPY_LATCHED == 0 && self.mediated & bit_of(copy) != 0
    }

    /// Writes a register with one bit per interrupt (except active bits, which are in the list
    /// registers).
    fn write(&mut self, state: State, set: bool, bits: u32, first: u32, gic: &impl PhysicalGic) {
        match state {
            State::Enabled => {
                assign(&mut self.enabled, bits, set);
                ones(bits & self.physical).for_each(|bit| gic.set_enabled(first + bit, set));
            }
            State::Pending => assign(&mut self.latched, bits, set),
            // Handled before, by `make_active` and `clear_active`, which know the list registers.
            State::Active => {}
        }
    }

    /// Writes GICD_IPRIORITYR number `n`. `lanes` are the bytes that the access covers.
    fn prioritize(&mut self, n: usize, lanes: u32, value: u32) {
        let word = &mut self.priority[n & 7];
        // Five bits of priority, as list registers have; the others are RAZ/WI (4.3.11). Also of
        // interrupts that the VM does not own: FreeRTOS counts the bits in that of SPI 32.
        *word = *word & !lanes | value & lanes & 0xf8f8_f8f8;
    }
}

/// What raises an SPI.
#[derive(PartialEq)]
pub enum Source {
    /// A device that the hypervisor emulates.
    Emulated,
    /// A device that is passed through.
    Physical,
}

/// The state of 32 SPIs.
#[derive(Debug, Default)]
struct Bank {
    group: Group,
    /// GICD_ICFGR: two bits for each interrupt.
    config: [u32; 2],
    /// GICD_ITARGETSR or GICD_IROUTER: the vCPUs to which each interrupt goes.
    targets: [Vcpus; 32],
    /// The vCPU whose list register contains an interrupt.
    holder: [u8; 32],
}

impl Bank {
    /// Returns the target vCPU of an SPI. Of several targets the lowest one: a GICv2 lets exactly
    /// one of them handle the interrupt, but does not say which one (the 1-N model of Arm IHI
    /// 0048B).
    fn target(&self, irq: u32) -> Option<u8> {
        let Vcpus(targets) = self.targets[irq as usize % 32];
        (targets != 0).then(|| targets.trailing_zeros() as u8)
    }
}

/// A VM's SPIs.
#[derive(Debug)]
pub struct Shared {
    /// By 32 interrupts, up to the last one that the VM has; the first bank stays empty.
    banks: Vec<Bank>,
    /// A bit for each bank with an SPI of the VM.
    owned: u32,
    /// The vCPUs that must check their interrupts before the lock is released.
    kick: u16,
}

impl Shared {
    /// Creates the state of a VM without any SPI.
    pub fn empty() -> Self {
        let banks = (0..LEAST_GROUPS).map(|_| Bank::default()).collect();
        Self {
            banks,
            owned: 0,
            kick: 0,
        }
    }

    /// Gives the VM an SPI, at boot. IDs that are not SPIs are ignored. Its
    /// target is vCPU 0 until the guest writes GICD_ITARGETSR.
    pub fn own(&mut self, irq: u32, source: Source) {
        if (32..MAX_IRQ).contains(&irq) {
            let number = (irq >> 5) as usize;
            if self.banks.len() <= number {
                self.banks.resize_with(number + 1, Bank::default);
            }
            self.owned |= 1 << number;
            let bank = &mut self.banks[number];
            bank.group.owned |= bit_of(irq);
            assign(
                &mut bank.group.physical,
                bit_of(irq),
                source == Source::Physical,
            );
            bank.targets[irq as usize % 32] = Vcpus(1);
        }
    }

    /// Resets to the state after power-on with the same SPIs; disables and deactivates the physical
    /// ones. To be called after every [`Banked::reset`], before a vCPU runs.
    pub fn reset(&mut self, gic: &impl PhysicalGic) {
        for n in 0..self.banks.len() {
            let Bank { group, .. } = take(&mut self.banks[n]);
            let first = n as u32 * 32;
            for bit in ones(group.owned) {
                self.own(first + bit, Source::Emulated);
            }
            self.banks[n].group.physical = group.physical;
            // A physical interrupt that stayed active would never be signaled to the next life.
            switch_off(group.physical, first, gic);
        }
    }

    /// Returns the state of an SPI that the VM has, and of those beside it.
    fn bank(&mut self, irq: u32) -> &mut Bank {
        &mut self.banks[(irq >> 5) as usize]
    }

    /// Returns the same without what a GICv3 and a GICv2 have different.
    fn group(&mut self, irq: u32) -> &mut Group {
        &mut self.bank(irq).group
    }

    /// Returns the group of an interrupt that the VM may not have.
    fn known(&mut self, irq: u32) -> Option<&mut Group> {
        let bank = self.banks.get_mut((irq >> 5) as usize)?;
        Some(&mut bank.group)
    }

    /// Sets the line of an emulated SPI. Returns the vCPU that must check its interrupts.
    pub fn set_line(&mut self, irq: u32, high: bool, distributor: &Distributor) -> Vcpus {
        let bit = bit_of(irq);
        // The line of a physical interrupt is that of its device; only `raise` reports it.
        if let Some(group) = self.known(irq)
            && group.owned & !group.physical & bit != 0
            && (group.line & bit != 0) != high
        {
            assign(&mut group.line, bit, high);
            self.notify(irq, distributor);
        }
        self.kicks()
    }

    /// Makes an emulated SPI pending, as a line that rises does. Returns the vCPU that must check
    /// its interrupts.
    pub fn latch(&mut self, irq: u32, distributor: &Distributor) -> Vcpus {
        let bit = bit_of(irq);
        if let Some(group) = self.known(irq)
            && group.owned & !group.physical & bit != 0
        {
            group.latched |= bit;
            self.notify(irq, distributor);
        }
        self.kicks()
    }

    /// Records a physical SPI that was taken (acknowledged and dropped, not deactivated). Returns
    /// the vCPU that must check.
    pub fn raise(&mut self, irq: u32, distributor: &Distributor) -> Vcpus {
        let bit = bit_of(irq);
        if let Some(group) = self.known(irq)
            && group.physical & bit != 0
        {
            // Until it is placed: the hypervisor has acknowledged it, and the physical GIC will not
            // signal it again before its deactivation.
            group.line |= bit;
            self.notify(irq, distributor);
        }
        self.kicks()
    }

    /// Returns the vCPUs that must check their interrupts.
    fn kicks(&mut self) -> Vcpus {
        Vcpus(take(&mut self.kick))
    }

    /// Tells the vCPU that has `irq` in a list register, or is its target, to check it.
    fn notify(&mut self, irq: u32, distributor: &Distributor) {
        let bank = self.bank(irq);
        let bit = bit_of(irq);
        let vcpu = if bank.group.placed & bit != 0 {
            Some(bank.holder[irq as usize % 32])
        } else if bank.group.waiting(0) & bit != 0 {
            bank.target(irq)
        } else {
            None
        };
        if let Some(vcpu) = vcpu {
            distributor.mail(vcpu).spis.store(true, Release);
            self.kick |= 1 << (vcpu & 0xf);
        }
    }

    /// Routes the physical SPIs of a bit mask to their targets; bit 0 is `first`.
    fn route(&mut self, bits: u32, first: u32, gic: &impl PhysicalGic) {
        for irq in ones(bits).map(|bit| first + bit) {
            if let Some(vcpu) = self.bank(irq).target(irq) {
                gic.route(irq, vcpu);
            }
        }
    }

    /// Returns the [`Group::rank`] of the most urgent SPI that waits for `vcpu`.
    ///
    /// Looks at each SPI that waits: the VM's own.
    fn best(&self, vcpu: u8) -> Option<u32> {
        let ranks = ones(self.owned).flat_map(|number| {
            let bank = &self.banks[number as usize];
            let ours =
                ones(bank.group.waiting(0)).filter(move |&bit| bank.target(bit) == Some(vcpu));
            ours.map(move |bit| bank.group.rank(number << 5 | bit))
        });
        ranks.min()
    }

    /// Writes a register of SPIs, or GICD_CTLR. `lanes` are the bits that the access covers. The
    /// vCPUs that have to look again are in `kick` afterwards.
    fn write(&mut self, register: Register, lanes: u32, value: u32, gic: &impl PhysicalGic) {
        let distributor = gic.distributor();
        let (first, bits) = match register {
            Register::Control if lanes & 1 == 1 => {
                distributor.forward.store(value & 1 == 1, Relaxed);
                for mail in &distributor.mail {
                    mail.spis.store(true, Release);
                }
                // GICD_CTLR counts for all vCPUs: each must list or withdraw its interrupts.
                self.kick = distributor.all();
                return;
            }
            Register::Bits(state, set, n) => {
                let first = n as u32 * 32;
                // Zeros change nothing in a register that sets or clears (4.3.5 to 4.3.8).
                let bits = value & self.banks[n].group.owned;
                if set && matches!(state, State::Enabled) {
                    // The guest may never have written ITARGETSR: the hardware is set to what it
                    // reads there.
                    self.route(bits & self.banks[n].group.physical, first, gic);
                }
                self.banks[n].group.write(state, set, bits, first, gic);
                (first, bits)
            }
            Register::Priority(n) => {
                let first = n as u32 * 4;
                let group = self.group(first);
                group.prioritize(n, lanes, value);
                // Their list registers have the former one.
                (first, group.placed >> (first & 31) & 0xf)
            }
            Register::Targets(n) => {
                let first = n as u32 * 4;
                let bank = self.bank(first);
                let owned = bank.group.owned >> (first & 31) & 0xf;
                let physical = bank.group.physical >> (first & 31) & 0xf;
                for lane in ones(owned).filter(|lane| lanes >> (lane * 8) & 1 == 1) {
                    // Bits of CPU interfaces that do not exist are RAZ/WI (4.3.12).
                    let targets = (value >> (lane * 8)) as u16 & 0xff & distributor.all();
                    bank.targets[(first + lane) as usize % 32] = Vcpus(targets);
                }
                self.route(physical, first, gic);
                (first, owned)
            }
            Register::Route(irq) => {
                let (first, bit) = (irq & !31, bit_of(irq));
                let bank = self.bank(irq);
                let (owned, physical) = (bank.group.owned & bit, bank.group.physical & bit);
                if owned != 0 {
                    bank.targets[irq as usize % 32] = Vcpus(1 << value);
                }
                self.route(physical, first, gic);
                (first, owned)
            }
            Register::Config(n) => {
                let first = n as u32 * 16;
                let bank = self.bank(first);
                for bit in ones(bank.group.owned >> (first & 31) & 0xffff) {
                    // Only the upper bit of the two is writable: 1 is edge-triggered (4.3.13).
                    let field = 2 << (bit * 2);
                    if lanes & field == 0 {
                        continue;
                    }
                    let edge = value & field != 0;
                    assign(&mut bank.config[n & 1], field, edge);
                    if bank.group.physical & bit_of(first + bit) != 0 {
                        let trigger = if edge { Trigger::Edge } else { Trigger::Level };
                        gic.configure(first + bit, trigger);
                    }
                }
                return;
            }
            _ => return,
        };
        for bit in ones(bits) {
            self.notify(first + bit, distributor);
        }
    }
}

/// Disables and deactivates the physical interrupts of a bit mask; bit 0 is `first`.
fn switch_off(bits: u32, first: u32, gic: &impl PhysicalGic) {
    for irq in ones(bits).map(|bit| first + bit) {
        gic.set_enabled(irq, false);
        gic.deactivate(irq);
    }
}

/// The VM's SPIs, where their lock is held.
type Locked<'a> = Option<&'a mut Shared>;

/// One vCPU's private interrupts and list registers.
#[derive(Debug, Default)]
pub struct Banked {
    vcpu: u8,
    /// SGIs and PPIs, interrupts 0 to 31. SGIs from other vCPUs are in the vCPU's [`Mail`].
    group: Group,
    /// The value last written to each list register; 0 if it was empty afterwards.
    lr: [u32; LIST_REGISTERS],
    /// Interrupts whose end [`Banked::fill`] must see: list registers with an SPI or an EOI
    /// maintenance interrupt, and [`Aside`].
    held: u32,
    /// Active interrupts without a list register.
    aside: Aside,
    /// The timer's list register value while it is enabled, otherwise 0.
    timer: u32,
    /// The copy of the list register that the last SPI has kept which came by an edge.
    edge: u32,
    /// Whether a maintenance interrupt was requested because interrupts wait; `None` if the
    /// register must be written again.
    watched: Option<bool>,
}

/// Active interrupts of a vCPU that are in no list register: they had to make room, or the guest
/// made them active with ISACTIVER. They stay here until they are deactivated: with EOImode 0, by
/// the EOI that GICH_HCR.EOICount counts; with EOImode 1, by a trapped write to DIR.
#[derive(Debug, Default)]
struct Aside {
    /// A bit for each interrupt that is put aside.
    active: [u32; GROUPS],
    /// Active in the physical GIC too, until the hypervisor deactivates them.
    physical: [u32; GROUPS],
    /// Priorities of those that were not dropped yet when last seen. With EOImode 0, all that are
    /// active differ in them.
    running: u32,
    /// The interrupt of each bit of `running`.
    at: [u16; 32],
    /// A bit for each word of `active` that is not 0.
    groups: u32,
}

impl Banked {
    /// Creates the state of `vcpu` with the SGIs, the timer and these emulated and other physical
    /// PPIs (masks of bits 16 to 31). Where they are `mediated`, the list registers of physical
    /// ones have HW = 0 and the hypervisor deactivates the physical interrupt after the guest
    /// has ended it: for a GIC that samples the line again then, but not after a deactivation
    /// by HW = 1.
    pub fn new(vcpu: u8, emulated: u32, physical: u32, mediated: bool) -> Self {
        let physical = 1 << TIMER | physical;
        let mediated = if mediated { physical } else { 0 };
        let group = Group {
            owned: emulated | physical | SGIS,
            physical,
            mediated,
            enabled: SGIS,
            ..Group::default()
        };
        Self {
            vcpu,
            group,
            watched: Some(false),
            ..Self::default()
        }
    }

    /// Resets to the state after power-on, on the vCPU's core, when it starts or stops. SPIs that
    /// it has not acknowledged go to other vCPUs, and the timer's physical PPI is off until the
    /// guest enables it. SGIs stay pending, as in a real distributor: one may have been sent
    /// before the vCPU's core got here.
    pub fn reset(&mut self, gic: &impl PhysicalGic) -> Vcpus {
        let mut guard = gic.lock();
        let shared: &mut Locked = &mut Some(&mut guard);
        // First what is pending, then what is active: afterwards all list registers are empty.
        self.collect(shared, gic, true);
        for n in 0..gic.distributor().groups.into() {
            self.clear_active(n, u32::MAX, shared, gic);
        }
        gic.watch(false, false);
        switch_off(self.group.physical, 0, gic);
        *self = Self::new(
            self.vcpu,
            self.group.owned,
            self.group.physical,
            self.group.mediated != 0,
        );
        self.others(guard.kicks())
    }

    /// Handles a trapped read of GICD. `None`: it is not emulated, and the guest takes an external
    /// abort.
    pub fn read(&self, gic: &impl PhysicalGic, offset: u16, width: Width) -> Option<u32> {
        let (shift, mask) = width.lane(offset)?;
        let register = decode(offset, gic.distributor().groups);
        Some(self.word(gic, register) >> shift & mask)
    }

    /// Returns what a register reads.
    #[inline(always)]
    fn word(&self, gic: &impl PhysicalGic, register: Register) -> u32 {
        match register {
            Register::Control => u32::from(gic.distributor().forward.load(Relaxed)),
            Register::Type => gic.distributor().type_register(),
            Register::Implementer => IMPLEMENTER,
            Register::Bits(State::Enabled, _, 0) => self.group.enabled,
            Register::Bits(State::Enabled, _, n) => gic.lock().banks[n].group.enabled,
            Register::Bits(State::Pending, _, n) => self.pending(n, gic),
            Register::Bits(State::Active, _, n) => {
                self.listed(n, LR_ACTIVE, gic) | self.aside.active[n]
            }
            Register::Priority(n @ 0..8) => self.group.priority[n],
            Register::Priority(n) => gic.lock().banks[n >> 3].group.priority[n & 7],
            // SGIs and PPIs target the vCPU that reads (4.3.12).
            Register::Targets(0..8) => 0x0101_0101 << self.vcpu,
            Register::Targets(n) => {
                let shared = gic.lock();
                let targets = &shared.banks[n >> 3].targets;
                let bytes = targets[(n & 7) * 4..][..4].iter().rev();
                bytes.fold(0, |word, &Vcpus(targets)| word << 8 | u32::from(targets))
            }
            // SGIs are edge-triggered (4.3.13). The VM's PPIs are level-sensitive.
            Register::Config(0) => 0xaaaa_aaaa,
            Register::Config(1) => 0,
            Register::Config(n) => gic.lock().banks[n >> 1].config[n & 1],
            Register::SgiPending(_, n) => self.sgi_sources(n as u32, gic),
            Register::Identification(n) => IDENTIFICATION[n].into(),
            Register::Route(_) | Register::Reserved => 0,
        }
    }

    /// Returns the interrupts of group `n` that are pending.
    #[inline(never)]
    fn pending(&self, n: usize, gic: &impl PhysicalGic) -> u32 {
        let of = |group: &Group| (group.line | group.latched, group.physical);
        let (waiting, physical) = if n == 0 {
            let (waiting, physical) = of(&self.group);
            let sgis = gic.distributor().mail(self.vcpu).pending();
            (waiting | sgis, physical)
        } else {
            of(&gic.lock().banks[n].group)
        };
        // While the guest has a physical interrupt disabled, EL2 does not take it: only the GIC
        // knows its line.
        let raised = if physical == 0 {
            0
        } else {
            gic.pending(n) & physical
        };
        waiting | raised | self.listed(n, LR_PENDING, gic)
    }

    /// Returns the interrupts of group `n` that are in `state` in a list register of this vCPU.
    fn listed(&self, n: usize, state: u32, gic: &impl PhysicalGic) -> u32 {
        let mut bits = 0;
        for (index, &copy) in self.lr.iter().enumerate() {
            // Only the hardware knows whether the guest has acknowledged it since it was written.
            let is_ours = copy != 0 && (copy & LR_ID) as usize >> 5 == n;
            if is_ours && gic.get(index) & state != 0 {
                bits |= bit_of(copy);
            }
        }
        bits
    }

    /// Returns a byte of pending sources for each of four SGIs.
    #[inline(never)]
    fn sgi_sources(&self, n: u32, gic: &impl PhysicalGic) -> u32 {
        let mail = gic.distributor().mail(self.vcpu);
        let mut word = match mail.pending() >> (n * 4) & 0xf {
            0 => 0,
            _ => (0..4).fold(0, |word, lane| {
                word | mail.sources(n * 4 + lane) << (lane * 8)
            }),
        };
        for (index, &copy) in self.lr.iter().enumerate() {
            if copy != 0 && (copy & LR_ID) >> 2 == n && gic.get(index) & LR_PENDING != 0 {
                word |= 1 << ((copy >> LR_PHYSICAL_SHIFT & 7) + (copy & 3) * 8);
            }
        }
        word
    }

    /// Handles a trapped write to GICD. Returns the other vCPUs that must check their interrupts.
    /// `None`: it is not emulated, as a part of GICD_SGIR is not, and the guest takes an external
    /// abort.
    pub fn write(
        &mut self,
        gic: &impl PhysicalGic,
        offset: u16,
        width: Width,
        value: u32,
    ) -> Option<Vcpus> {
        let (shift, mask) = width.lane(offset)?;
        match offset {
            // GICD_SGIR is frequent and needs no lock.
            0xf00 if width == Width::Word => {
                let own = 1u16 << self.vcpu;
                // TargetListFilter: the list, all others, only the sender, reserved (4.3.15).
                let targets = match value >> 24 & 3 {
                    0 => (value >> 16) as u16 & 0xff,
                    1 => !own,
                    2 => own,
                    _ => 0,
                };
                Some(self.send(gic, Vcpus(targets), value & 0xf, self.vcpu.into()))
            }
            0xf00..0xf04 => None,
            _ => {
                let value = (value & mask) << shift;
                let register = decode(offset, gic.distributor().groups);
                Some(self.write_slowly(gic, register, mask << shift, value))
            }
        }
    }

    /// Handles all registers but SGIR: takes back what the guest has not acknowledged, writes, and
    /// lists again in the new state.
    #[inline(never)]
    fn write_slowly(
        &mut self,
        gic: &impl PhysicalGic,
        register: Register,
        lanes: u32,
        value: u32,
    ) -> Vcpus {
        // These registers have only interrupts 0 to 31: the lock of the SPIs is not needed for
        // them.
        let private = matches!(
            register,
            Register::Bits(_, _, 0) | Register::Priority(0..8) | Register::SgiPending(..)
        );
        let mut guard = (!private || self.needs_lock(gic)).then(|| gic.lock());
        let shared = &mut guard.as_deref_mut();
        self.collect(shared, gic, true);
        match (register, &mut *shared) {
            (Register::Bits(State::Active, true, n), shared) => self.make_active(n, value, shared),
            (Register::Bits(State::Active, false, n), shared) => {
                self.clear_active(n, value, shared, gic);
            }
            (_, Some(shared)) if !private => shared.write(register, lanes, value, gic),
            _ => self.write_private(register, lanes, value, gic),
        }
        self.refill(shared, gic, true);
        guard.map_or(Vcpus(0), |mut shared| self.others(shared.kicks()))
    }

    /// Writes a register of SGIs and PPIs. The timer's list register value is computed again,
    /// because its enable or priority may have changed.
    fn write_private<G: PhysicalGic>(
        &mut self,
        register: Register,
        lanes: u32,
        value: u32,
        gic: &G,
    ) {
        match register {
            Register::Bits(state, set, _) => {
                if let GicVersion::V3 = G::VERSION {
                    self.post_own(gic, state, set, value);
                }
                self.group
                    // SGIs are always enabled, and pending only by GICD_SPENDSGIR (4.3.5, 4.3.7).
                    .write(state, set, value & self.group.owned & !SGIS, 0, gic);
            }
            Register::Priority(n) => self.group.prioritize(n, lanes, value),
            Register::SgiPending(set, n) => {
                let mail = gic.distributor().mail(self.vcpu);
                for bit in ones(value & (u32::from(gic.distributor().all()) * 0x0101_0101)) {
                    let sgi = n as u32 * 4 + bit / 8;
                    let source = bit % 8;
                    if set {
                        mail.post(sgi, source)
                    } else {
                        mail.clear(sgi, source)
                    }
                }
            }
            _ => {}
        }
        self.timer = if self.group.enabled & bit_of(TIMER) != 0 {
            self.group.ending(TIMER) | self.group.entry(TIMER)
        } else {
            0
        };
    }

    /// Handles a trapped write to GICC_DIR while EOImode is 1. Returns the other vCPUs that must
    /// check.
    pub fn deactivate(&mut self, gic: &impl PhysicalGic, value: u32) -> Vcpus {
        let n = (value & LR_ID) as usize >> 5;
        if n < gic.distributor().groups.into() {
            let register = Register::Bits(State::Active, false, n);
            self.write_slowly(gic, register, 0, bit_of(value))
        } else {
            Vcpus(0)
        }
    }

    /// Returns the set without this vCPU, which looks at its interrupts itself.
    const fn others(&self, vcpus: Vcpus) -> Vcpus {
        Vcpus(vcpus.0 & !(1 << self.vcpu))
    }

    /// Sends a software-generated interrupt to those of these vCPUs that the VM has.
    #[inline(always)]
    fn send(&mut self, gic: &impl PhysicalGic, vcpus: Vcpus, sgi: u32, source: u32) -> Vcpus {
        let distributor = gic.distributor();
        let own = 1u16 << self.vcpu;
        let targets = vcpus.0 & distributor.all();
        // An SGI to the sender alone, as Linux sends for work on the same core: straight into a
        // list register, if it is in none.
        if targets == own && distributor.mail(self.vcpu).pending() >> sgi & 1 == 0 {
            let copy = self.group.entry(sgi) | source << LR_PHYSICAL_SHIFT;
            let done = gic.done();
            let elsewhere =
                |(index, other): (usize, &u32)| done >> index & 1 == 1 || other & LR_ID != sgi;
            if self.lr.iter().enumerate().all(elsewhere) && self.list_now(copy, done, gic) {
                return Vcpus(0);
            }
        }
        // All targets before `fill`: this vCPU's own SGI is among what it may list.
        ones(targets).for_each(|target| distributor.mail(target as u8).post(sgi, source));
        let kick = if targets & own != 0 {
            self.fill(gic).0
        } else {
            0
        };
        self.others(Vcpus(targets | kick))
    }

    /// Sets the line of an emulated PPI of this vCPU. Returns whether it has changed; then call
    /// [`Banked::fill`].
    pub fn set_line(&mut self, irq: u32, high: bool) -> bool {
        let bit = 1u32.unbounded_shl(irq) & self.group.owned & !(SGIS | self.group.physical);
        let before = self.group.line;
        assign(&mut self.group.line, bit, high);
        self.group.line != before
    }

    /// Records that a physical PPI other than the timer's was taken (acknowledged and dropped, not
    /// deactivated); then call [`Banked::fill`].
    pub fn raise(&mut self, irq: u32) {
        self.group.line |= bit_of(irq);
    }

    /// Records that the virtual timer's physical interrupt was taken (acknowledged and dropped, not
    /// deactivated). Returns `false` if it could not go directly into a list register; then call
    /// [`Banked::fill`].
    pub fn inject_timer(&mut self, gic: &impl PhysicalGic) -> bool {
        // It fired, so the guest has ended it and no list register contains it, unless software
        // made it pending; then `held` is not 0.
        let listed = self.timer != 0 && self.list_now(self.timer, gic.done(), gic);
        if !listed {
            self.group.line |= bit_of(TIMER);
        }
        listed
    }

    /// Writes a free list register if nothing requires a closer look. The caller knows that the
    /// interrupt is in none. `HELD_ENDS` are 0 only if no listed interrupt has an end to be seen and
    /// none waits: so no more urgent one is passed over
    /// (`neither_a_tick_nor_an_sgi_takes_the_vms_lock`).
    fn list_now(&mut self, value: u32, done: u32, gic: &impl PhysicalGic) -> bool {
        let free = done & ((1 << LIST_REGISTERS) - 1) & !(self.held >> 16);
        if self.held & HELD_ENDS != 0 || free == 0 || !gic.distributor().forward.load(Relaxed) {
            return false;
        }
        let index = free.trailing_zeros() as usize % LIST_REGISTERS;
        gic.set(index, value);
        self.lr[index] = value;
        self.held |= u32::from(value & LR_EOI != 0) << index;
        true
    }

    /// Makes an SPI pending again by an edge, in the list register that has kept it since the last one.
    /// Returns `false` if none has, or if it is active there: then [`Shared::latch`] does it. Takes no
    /// lock: the SPI is as this vCPU saw it last, and it looks again after each change by another one.
    #[inline(always)]
    pub fn relist(&self, irq: u32, gic: &impl PhysicalGic) -> bool {
        if self.edge & LR_ID != irq || self.held & HELD_WAITING != 0 {
            return false;
        }
        // Not there if it was collected, or if its end has to be seen.
        let Some(index) = self.lr.iter().position(|&copy| copy == self.edge) else {
            return false;
        };
        let state = gic.get(index) & (LR_PENDING | LR_ACTIVE);
        if state == 0 {
            gic.set(index, self.edge & !COPY_LATCHED);
            return true;
        }
        // One that the guest has not taken yet stands for both.
        state == LR_PENDING
    }

    /// Puts pending interrupts into list registers by priority. If more wait than fit, a
    /// maintenance interrupt is raised when the guest has acknowledged those that are listed.
    /// Returns the other vCPUs that must check.
    pub fn fill(&mut self, gic: &impl PhysicalGic) -> Vcpus {
        let mail = gic.distributor().mail(self.vcpu);
        let held = self.held != 0;
        if self.needs_lock(gic) {
            let mut shared = gic.lock();
            self.refill(&mut Some(&mut shared), gic, true);
            return self.others(shared.kicks());
        }
        // Without an SPI, the lock that all vCPUs of the VM share is not needed.
        if held || (self.group.line | self.group.latched | mail.pending()) & self.group.enabled != 0
        {
            self.refill(&mut None, gic, held);
        }
        Vcpus(0)
    }

    /// Returns whether an SPI waits for this vCPU, is in a list register, or was put aside.
    fn needs_lock(&self, gic: &impl PhysicalGic) -> bool {
        gic.distributor().mail(self.vcpu).spis.load(Acquire) || self.held & HELD_SPIS != 0
    }

    /// Empties list registers and fills them again. With `withdraw`, also those that the guest has
    /// not acknowledged are placed by urgency again. Requests the maintenance interrupt if more
    /// wait than fit.
    fn refill(&mut self, shared: &mut Locked, gic: &impl PhysicalGic, withdraw: bool) {
        let free = self.collect(shared, gic, withdraw);
        let mut more = self.place(shared, gic, free);
        if more && !withdraw && free != (1 << LIST_REGISTERS) - 1 {
            // A waiting interrupt may be more urgent than a listed one.
            let free = self.collect(shared, gic, true);
            more = self.place(shared, gic, free);
        }
        if self.watched != Some(more) {
            self.watched = Some(more);
            assign(&mut self.held, HELD_WAITING, more);
            gic.watch(more, self.held & HELD_ASIDE != 0);
        }
    }

    /// Empties list registers that the guest has finished and, with `withdraw`, those that it has
    /// not acknowledged; without `shared`, not those that contain SPIs. Returns the free ones.
    fn collect(&mut self, shared: &mut Locked, gic: &impl PhysicalGic, withdraw: bool) -> u32 {
        let mail = gic.distributor().mail(self.vcpu);
        let done = gic.done();
        let sgis = mail.pending();
        let mut free = 0;
        if self.held & HELD_ASIDE != 0 {
            self.end_counted(shared, gic);
        }
        // Computed again from what is listed: an SGI or PPI that has left is then no longer placed.
        self.group.placed = self.aside.active[0];
        for index in 0..LIST_REGISTERS {
            let copy = self.lr[index];
            let irq = copy & LR_ID;
            let slot = 1 << index;
            if copy == 0 {
                free |= slot;
                continue;
            }
            // Its state is in `Shared`, which is not locked here: it stays listed.
            if irq >= 32 && shared.is_none() {
                continue;
            }
            // Pending again: merges with the listed one if that is not acknowledged yet, otherwise
            // it must follow later.
            let again = match shared {
                Some(shared) if irq >= 32 => {
                    let group = shared.group(irq);
                    (group.line | group.latched) & bit_of(irq) != 0
                }
                _ => irq < 16 && sgis >> irq & 1 == 1,
            };
            if done & slot != 0 {
                // GICH_EISR shows it, and keeps the maintenance interrupt high, until the list
                // register is written.
                if copy & LR_EOI != 0 {
                    gic.set(index, 0);
                }
                if irq < 32 && self.group.is_mediated(copy) {
                    gic.deactivate(irq);
                }
            } else if (withdraw || again) && gic.get(index) & (LR_PENDING | LR_ACTIVE) == LR_PENDING
            {
                gic.set(index, 0);
                match shared {
                    Some(shared) if irq >= 32 => shared.group(irq).put_back(copy),
                    _ if irq < 16 => mail.post(irq, copy >> LR_PHYSICAL_SHIFT & 7),
                    _ => self.group.put_back(copy),
                }
            } else {
                if again && copy & LR_EOI == 0 {
                    gic.set(index, gic.get(index) | LR_EOI);
                    self.lr[index] |= LR_EOI;
                    self.held |= slot;
                }
                self.group.placed |= 1u32.unbounded_shl(irq);
                continue;
            }
            free |= slot;
            self.vacate(index, shared, gic);
        }
        free
    }

    /// Records that a list register is empty.
    fn vacate(&mut self, index: usize, shared: &mut Locked, gic: &impl PhysicalGic) {
        let irq = self.lr[index] & LR_ID;
        self.lr[index] = 0;
        self.held &= !(HELD_SPI << index);
        release(irq, shared, gic);
    }

    /// Deactivates those of `bits` in group `n` that are active on this vCPU.
    fn clear_active(&mut self, n: usize, bits: u32, shared: &mut Locked, gic: &impl PhysicalGic) {
        self.end_aside(n, bits, shared, gic);
        for index in 0..LIST_REGISTERS {
            let copy = self.lr[index];
            let irq = copy & LR_ID;
            // Interrupts of other groups, and those that the guest did not name, stay active.
            let is_meant = copy != 0 && irq as usize >> 5 == n && bits & bit_of(irq) != 0;
            if is_meant && gic.get(index) & LR_ACTIVE != 0 {
                if self.is_physically_active(copy) {
                    gic.deactivate(irq);
                }
                gic.set(index, 0);
                self.vacate(index, shared, gic);
            }
        }
    }

    /// Returns whether the interrupt of an active list register is active in the physical GIC too.
    const fn is_physically_active(&self, copy: u32) -> bool {
        copy & LR_HW != 0 || copy & LR_ID < 32 && self.group.is_mediated(copy)
    }

    /// Makes room for an interrupt that waits: puts an active one aside. Returns its list register,
    /// or `None` while the guest still has one to acknowledge, which is at least as urgent as those
    /// that wait. A dropped one goes first, since no end of it is counted; then the least urgent
    /// one, whose end is the farthest away.
    #[inline(never)]
    fn put_aside(&mut self, gic: &impl PhysicalGic) -> Option<u32> {
        let active_priorities = gic.active_priorities();
        let mut last = None;
        for index in 0..LIST_REGISTERS {
            let value = gic.get(index);
            // The guest takes this one first; then a maintenance interrupt asks again.
            if value & LR_PENDING != 0 {
                return None;
            }
            // The list register of an SPI may be finished, but not collected without the lock.
            if value & LR_ACTIVE != 0 {
                // GICH_APR has one bit per group priority: the bits of a priority that VMBP lets
                // decide about preemption.
                let level = value >> LR_LEVEL_SHIFT & 0x1f & !0 << gic.binary_point();
                last = last.max(Some((active_priorities >> level & 1 == 0, level, index)));
            }
        }
        // The guest ends interrupts that it has not dropped in the order of their priorities, the
        // least urgent one last.
        let (dropped, level, index) = last?;
        let copy = self.lr[index];
        let irq = copy & LR_ID;
        let n = (irq >> 5) as usize % GROUPS;
        let physical = self.is_physically_active(copy);
        self.aside.active[n] |= bit_of(irq);
        assign(&mut self.aside.physical[n], bit_of(irq), physical);
        if !dropped {
            self.aside.running |= 1 << level;
            self.aside.at[level as usize] = irq as u16;
        }
        gic.set(index, 0);
        self.vacate(index, &mut None, gic);
        self.hold_aside(n);
        Some(1 << index)
    }

    /// Makes those of `bits` in group `n` active that are in no list register. They are not
    /// signaled meanwhile.
    #[inline(never)]
    fn make_active(&mut self, n: usize, bits: u32, shared: &mut Locked) {
        let (group, holder) = match shared {
            Some(shared) if n != 0 => {
                let Bank { group, holder, .. } = &mut shared.banks[n];
                (group, Some(holder))
            }
            _ => (&mut self.group, None),
        };
        // One that is in a list register is pending there, or active already.
        let made = bits & group.owned & !group.placed;
        group.placed |= made;
        if let Some(holder) = holder {
            ones(made).for_each(|bit| holder[bit as usize % 32] = self.vcpu);
        }
        self.aside.active[n] |= made;
        self.aside.physical[n] &= !made;
        self.hold_aside(n);
    }

    /// Deactivates the interrupts that were put aside and that the guest has ended. With EOImode 0
    /// the hardware counts them, and their priorities tell which ones they are. With EOImode 1
    /// the guest drops some without ending them; after a change to 0 it ended the least urgent
    /// ones, because every end is seen at once.
    #[inline(never)]
    fn end_counted(&mut self, shared: &mut Locked, gic: &impl PhysicalGic) {
        let active = gic.active_priorities();
        // A priority that has gone from GICH_APR was dropped: by an end (EOImode 0), or by a drop
        // alone (EOImode 1).
        let mut dropped = self.aside.running & !active;
        self.aside.running &= active;
        // EOICount counts an end only if it cleared a bit of GICH_APR and no list register has the
        // interrupt (5.3.1).
        for _ in 0..gic.ended() {
            // The highest number is the least urgent priority.
            let Some(level) = dropped.checked_ilog2() else {
                break;
            };
            dropped ^= 1 << level;
            let irq = u32::from(self.aside.at[level as usize]);
            let n = irq as usize >> 5;
            self.end_aside(n, bit_of(irq), shared, gic);
        }
        self.hold_aside(0);
    }

    /// Deactivates those of `bits` in group `n` that were put aside.
    fn end_aside(&mut self, n: usize, bits: u32, shared: &mut Locked, gic: &impl PhysicalGic) {
        let ended = self.aside.active[n] & bits;
        if ended == 0 {
            return;
        }
        self.aside.active[n] &= !ended;
        let first = n as u32 * 32;
        for bit in ones(self.aside.physical[n] & ended) {
            gic.deactivate(first + bit);
        }
        if n == 0 {
            self.group.placed &= !ended;
        }
        self.hold_aside(n);
        for bit in ones(ended) {
            release(first + bit, shared, gic);
        }
    }

    /// Notes whether anything is put aside, after a change of group `n`. The maintenance interrupts
    /// are set again, which clears EOICount.
    fn hold_aside(&mut self, n: usize) {
        let aside = &mut self.aside;
        assign(&mut aside.groups, 1 << n, aside.active[n] != 0);
        assign(&mut self.held, HELD_ASIDE, aside.groups != 0);
        assign(&mut self.held, HELD_ASIDE << 16, aside.groups & !1 != 0);
        self.watched = None;
    }

    /// Fills the free list registers. Returns whether more interrupts wait.
    fn place(&mut self, shared: &mut Locked, gic: &impl PhysicalGic, mut free: u32) -> bool {
        let mail = gic.distributor().mail(self.vcpu);
        // Only the holder of the lock can see the SPIs and clear the flag.
        if shared.is_some() {
            mail.spis.store(false, Relaxed);
        }
        let unseen = mail.spis.load(Relaxed);
        if !gic.distributor().forward.load(Relaxed) {
            return unseen;
        }
        loop {
            let waiting = ones(self.group.waiting(mail.pending()));
            let private = waiting.map(|irq| self.group.rank(irq)).min();
            // Without the lock, no SPI is placed; `unseen` says that one may wait.
            let spi = shared.as_deref().and_then(|shared| shared.best(self.vcpu));
            // Lists the most urgent first, as the invariant in the module's head requires
            // (`a_free_list_register_is_for_the_most_urgent_that_waits`).
            let Some(best) = private.into_iter().chain(spi).min() else {
                return unseen;
            };
            if free == 0 {
                let Some(slot) = self.put_aside(gic) else {
                    if spi.is_some() {
                        mail.spis.store(true, Relaxed);
                    }
                    return true;
                };
                free = slot;
            }
            let index = free.trailing_zeros() as usize % LIST_REGISTERS;
            let irq = best & LR_ID;
            let fields = match shared {
                Some(shared) if irq >= 32 => {
                    let bank = shared.bank(irq);
                    bank.holder[irq as usize % 32] = self.vcpu;
                    bank.group.take(irq)
                }
                _ if irq < 16 => self.take_sgi(irq, mail),
                _ => self.group.take(irq),
            };
            let copy = fields | irq | LR_PENDING | best >> 10 << LR_PRIORITY_SHIFT;
            gic.set(index, copy & !COPY_LATCHED);
            self.lr[index] = copy;
            let hold = if copy & (LR_EOI | COPY_LATCHED) == COPY_LATCHED {
                self.edge = copy;
                HELD_SPI & HELD_SPIS
            } else if irq >= 32 {
                HELD_SPI
            } else {
                u32::from(copy & LR_EOI != 0)
            };
            self.held |= hold << index;
            // Clears the lowest set bit.
            free &= free - 1;
        }
    }

    /// Takes an SGI from one of its sources; the next source's must follow after the guest has
    /// ended this one.
    fn take_sgi(&mut self, sgi: u32, mail: &Mail) -> u32 {
        let sources = mail.sources(sgi);
        let source = sources.trailing_zeros() & 7;
        mail.clear(sgi, source);
        self.group.placed |= 1 << sgi;
        let more = if sources & sources.wrapping_sub(1) != 0 {
            LR_EOI
        } else {
            0
        };
        source << LR_PHYSICAL_SHIFT | more
    }
}

/// Records that an SPI is no longer in a list register or put aside, and tells the vCPU that must
/// check it.
fn release(irq: u32, shared: &mut Locked, gic: &impl PhysicalGic) {
    if let Some(shared) = shared
        && irq >= 32
    {
        shared.group(irq).placed &= !bit_of(irq);
        shared.notify(irq, gic.distributor());
    }
}

pub mod v3;

#[cfg(test)]
mod tests;
