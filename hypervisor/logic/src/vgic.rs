//! The emulated GICv2 distributor of a VM, and the contents of its list registers.
//!
//! The guest's CPU interface is the hardware's GICV, so acknowledging and ending an interrupt causes no exit. This
//! module keeps the state that the guest reads and writes in GICD (Arm IHI 0048B, chapter 4.3), and fills the list
//! registers (5.3.9). The state has three parts, so that frequent paths need no lock:
//!
//! | type | one per | accessed by |
//! | --- | --- | --- |
//! | [`Banked`] | vCPU | only the core that runs the vCPU: enables and priorities of SGIs and PPIs, list registers |
//! | [`Distributor`] | VM | every core, by atomics: pending SGIs, the flag that SPIs wait, GICD_CTLR |
//! | [`Shared`] | VM | every core, under the hypervisor's lock: SPIs |
//!
//! ```text
//! trapped read    value = banked.read(&gic, offset, width)?
//! trapped write   kick(banked.write(&gic, offset, width, value)?)
//! PPI 27 taken    if !banked.inject_timer(&gic) { kick(banked.fill(&gic)) }
//! physical SPI    kick(gic.lock().raise(irq, &distributor))
//! UART line       kick(gic.lock().set_line(irq, uart.line_level(), &distributor))
//! maintenance interrupt, or kicked by another core:  kick(banked.fill(&gic))
//! ```
//!
//! `gic` is the EL2 image's [`PhysicalGic`]: the calling core's GICH and GICC, the GICD, and the VM's two shared parts.
//! `kick(set)` sends a physical SGI to the cores of these vCPUs (after a DSB) and calls `fill` where the set holds the
//! calling vCPU; what `read` and `write` return never does. Nothing else synchronizes with the list registers: `fill`
//! looks at GICH_ELRSR0 and GICH_EISR0 itself, and GICH need not be saved while one vCPU owns its core. The lock is
//! taken only for SPI registers and GICD_CTLR writes, and by `fill` only while an SPI waits for this vCPU or a list
//! register needs an eye on its end. Priority drop and deactivation are split in the hypervisor's GICC (EOImodeNS = 1):
//! an interrupt with HW = 1 in its list register is deactivated by the guest. Physical enables follow the guest's.
//!
//! Choices: all interrupts are Group 0, which a guest enables with GICV_CTLR bit 0 (IGROUPR is RAZ/WI, as without
//! Security Extensions). SGIs are always enabled, as in the GIC-400. An SPI with several targets goes to the lowest
//! one. ISACTIVER writes are ignored; pending and active bits of an SPI in *another* vCPU's list register read as 0.
//! Interrupts that the VM does not own, and reserved offsets, are RAZ/WI.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::syndrome::Width;
use cloison_formats::bits::ones;
use cloison_formats::limits::{LIST_REGISTERS, MAX_VCPUS};
use core::ops::DerefMut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Exclusive upper bound of interrupt IDs (GICD_TYPER.ITLinesNumber reports it).
pub const MAX_IRQ: u32 = 256;
/// The EL1 virtual timer's PPI.
pub const TIMER: u32 = 27;

const GROUPS: usize = (MAX_IRQ / 32) as usize;
const SGIS: u32 = 0xffff;
/// One SGI of four sources in [`Mail`].
const SOURCES: u64 = 0x0001_0001_0001_0001;

// Fields of GICH_LRn. The upper five bits of an eight-bit priority are the register's bits [27:23].
const LR_ID: u32 = 0x3ff;
const LR_PHYSICAL_SHIFT: u32 = 10;
const LR_EOI: u32 = 1 << 19;
const LR_PRIORITY_SHIFT: u32 = 20;
const LR_PENDING: u32 = 1 << 28;
const LR_ACTIVE: u32 = 2 << 28;
const LR_HW: u32 = 1 << 31;
/// In our copy only (reserved in the register): the pending state came from a write to ISPENDR, not from a line.
const COPY_LATCHED: u32 = 1 << 20;

/// What makes a shared interrupt pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// A high line.
    Level,
    /// A line that rises.
    Edge,
}

/// What this module needs of the EL2 image on the calling core; a fake in the tests.
pub trait PhysicalGic {
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
    /// Turns the underflow maintenance interrupt (GICH_HCR.UIE) on or off.
    fn underflow(&self, on: bool);
    /// Returns the pending state of the 32 physical interrupts from `32 * group` on (GICD_ISPENDR).
    fn pending(&self, group: usize) -> u32;
    /// Deactivates a physical interrupt (GICC_DIR).
    fn deactivate(&self, irq: u32);
    /// Enables or disables a physical interrupt of this VM (GICD_ISENABLER, GICD_ICENABLER).
    fn enable(&self, irq: u32, on: bool);
    /// Routes a physical SPI to the core of a vCPU (GICD_ITARGETSR).
    fn route(&self, irq: u32, vcpu: u8);
    /// Makes a physical SPI edge-triggered or level-sensitive (GICD_ICFGR; its word is shared with other VMs' SPIs).
    fn configure(&self, irq: u32, trigger: Trigger);
}

/// A set of vCPUs of one VM, as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Vcpus(pub u8);

/// An access that is not emulated: beyond the distributor's 4 KiB, 64 bits wide, GICD_SGIR not written as a word, or not
/// at a multiple of its width. The guest takes an external abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

impl Width {
    /// Returns the position of an access in its 32-bit register: shift and mask.
    #[inline(always)]
    const fn lane(self, offset: u16) -> Result<(u32, u32), Refused> {
        let (low, mask) = match self {
            Self::Word => (3, u32::MAX),
            Self::Half => (1, 0xffff),
            Self::Byte => (0, 0xff),
            Self::Double => return Err(Refused),
        };
        match offset {
            0..0x1000 if offset & low == 0 => Ok(((offset & 3) as u32 * 8, mask)),
            _ => Err(Refused),
        }
    }
}

/// The state that a register with one bit per interrupt sets, clears and shows.
#[derive(Clone, Copy, PartialEq, Eq)]
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
    Config(usize),
    /// Whether it sets (or clears), and which four SGIs.
    SgiPending(bool, usize),
    Identification(usize),
    Reserved,
}

#[inline(always)]
fn decode(offset: u16) -> Register {
    let (near, far) = (
        usize::from(offset & 0x7f) >> 2,
        usize::from(offset & 0x3ff) >> 2,
    );
    match offset >> 7 {
        0 if near == 0 => Register::Control,
        0 if near == 1 => Register::Type,
        0 if near == 2 => Register::Implementer,
        row @ 2..4 if near < GROUPS => Register::Bits(State::Enabled, row & 1 == 0, near),
        row @ 4..6 if near < GROUPS => Register::Bits(State::Pending, row & 1 == 0, near),
        row @ 6..8 if near < GROUPS => Register::Bits(State::Active, row & 1 == 0, near),
        8..16 if far < GROUPS * 8 => Register::Priority(far),
        16..24 if far < GROUPS * 8 => Register::Targets(far),
        24 if near < GROUPS * 2 => Register::Config(near),
        30 if (4..12).contains(&near) => Register::SgiPending(near >= 8, near & 3),
        31 if near >= 20 => Register::Identification(near - 20),
        _ => Register::Reserved,
    }
}

/// PIDR4-7, PIDR0-3, CIDR0-3, and GICD_IIDR, of a GIC-400.
const IDENTIFICATION: [u8; 12] = [0x04, 0, 0, 0, 0x90, 0xb4, 0x2b, 0, 0x0d, 0xf0, 0x05, 0xb1];
const IMPLEMENTER: u32 = 0x0200_143b;

/// Returns the bytes of a register with one byte per interrupt, for a bit mask of its four interrupts.
const fn byte_mask(bits: u32) -> u32 {
    ((bits & 0xf).wrapping_mul(0x0020_4081) & 0x0101_0101) * 0xff
}

/// Returns the byte of `irq` in registers with four interrupts each. `N` is a power of two: the bounds check is a mask.
fn byte<const N: usize>(words: &[u32; N], irq: u32) -> u32 {
    words[(irq >> 2) as usize % N] >> ((irq & 3) * 8) & 0xff
}

/// Sets or clears the bits of `mask`.
const fn assign(word: &mut u32, mask: u32, on: bool) {
    *word = if on { *word | mask } else { *word & !mask };
}

/// What other cores leave for a vCPU. Has its own cache line, so that cores do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Mail {
    /// Pending SGIs: word `source / 4`, bit `source % 4 * 16 + sgi`.
    sgis: [AtomicU64; 2],
    /// SPIs wait, or may have to leave a list register. Written under the lock of [`Shared`].
    spis: AtomicBool,
}

impl Mail {
    fn post(&self, sgi: u32, source: u32) {
        self.sgis[source as usize >> 2 & 1]
            .fetch_or(1 << ((source & 3) * 16 + sgi), Ordering::Release);
    }
    fn clear(&self, sgi: u32, source: u32) {
        self.sgis[source as usize >> 2 & 1]
            .fetch_and(!(1 << ((source & 3) * 16 + sgi)), Ordering::AcqRel);
    }
    /// Returns the mask of the SGIs that are pending from any source.
    fn pending(&self) -> u32 {
        let any = self.sgis[0].load(Ordering::Acquire) | self.sgis[1].load(Ordering::Acquire);
        let any = any | any >> 32;
        (any | any >> 16) as u32 & SGIS
    }
    /// Returns the sources from which `sgi` is pending.
    fn sources(&self, sgi: u32) -> u32 {
        let [low, high] = [0, 1].map(|word: usize| {
            let bits = self.sgis[word].load(Ordering::Acquire) >> sgi & SOURCES;
            (bits | bits >> 15 | bits >> 30 | bits >> 45) as u32 & 0xf
        });
        low | high << 4
    }
    /// Removes all SGIs.
    fn empty(&self) {
        self.sgis
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// The part of a VM's distributor that needs no lock.
#[derive(Debug)]
pub struct Distributor {
    vcpus: u8,
    forward: AtomicBool,
    mail: [Mail; MAX_VCPUS],
}

impl Distributor {
    /// Creates it for a VM with this many vCPUs (1 to 8).
    pub fn new(vcpus: u8) -> Self {
        let vcpus = vcpus.clamp(1, MAX_VCPUS as u8);
        Self {
            vcpus,
            forward: AtomicBool::new(false),
            mail: Default::default(),
        }
    }
    /// Returns GICD_TYPER: the number of interrupts and vCPUs.
    pub fn type_register(&self) -> u32 {
        (GROUPS as u32 - 1) | (u32::from(self.vcpus) - 1) << 5
    }
    /// Resets to the state after power-on. No vCPU of the VM may run.
    pub fn reset(&self) {
        self.forward.store(false, Ordering::Relaxed);
        for mail in &self.mail {
            mail.empty();
            mail.spis.store(false, Ordering::Relaxed);
        }
    }
    const fn all(&self) -> u8 {
        u8::MAX >> (8 - self.vcpus)
    }
    fn mail(&self, vcpu: u8) -> &Mail {
        &self.mail[usize::from(vcpu) % MAX_VCPUS]
    }
    fn forwards(&self) -> bool {
        self.forward.load(Ordering::Relaxed)
    }
}

/// The state of 32 interrupts. `owned` limits all other masks.
#[derive(Clone, Debug, Default)]
struct Group {
    owned: u32,
    physical: u32,
    /// Physical interrupts that the hypervisor deactivates after the guest has ended them.
    mediated: u32,
    enabled: u32,
    /// Emulated interrupts: the level of the line. Physical ones: taken by the hypervisor, but not in a list register
    /// yet.
    line: u32,
    latched: u32,
    /// In a list register.
    placed: u32,
    priority: [u32; 8],
}

impl Group {
    /// Returns those that could go into a list register; `sgis` are pending elsewhere.
    const fn waiting(&self, sgis: u32) -> u32 {
        (self.line | self.latched | sgis) & self.enabled & !self.placed
    }
    /// Returns an interrupt's rank in the GIC's order: by priority, then by ID.
    fn rank(&self, irq: u32) -> u32 {
        byte(&self.priority, irq) << 10 | irq
    }
    /// Takes the pending state of an interrupt. Returns its list register's fields without ID and priority.
    fn take(&mut self, irq: u32) -> u32 {
        let bit = 1 << (irq & 31);
        self.placed |= bit;
        if self.latched & bit != 0 {
            self.latched &= !bit;
            LR_EOI | COPY_LATCHED
        } else if self.physical & bit != 0 {
            self.line &= !bit;
            if self.mediated & bit != 0 {
                LR_EOI
            } else {
                LR_HW | irq << LR_PHYSICAL_SHIFT
            }
        } else {
            LR_EOI
        }
    }
    /// Restores an interrupt's pending state from before [`Group::take`]; a line keeps its level anyway.
    const fn put_back(&mut self, copy: u32) {
        let bit = 1 << (copy & 31);
        if copy & COPY_LATCHED != 0 {
            self.latched |= bit;
        } else if copy & LR_HW != 0 || self.mediated & bit != 0 {
            self.line |= bit;
        }
    }
    /// Returns whether a list register's interrupt is active in the physical GIC until the hypervisor deactivates it.
    const fn is_mediated(&self, copy: u32) -> bool {
        copy & COPY_LATCHED == 0 && self.mediated >> (copy & 31) & 1 == 1
    }
    /// Writes a register with one bit per interrupt (except active bits, which are in the list registers).
    fn write(&mut self, state: State, set: bool, bits: u32, first: u32, gic: &impl PhysicalGic) {
        match state {
            State::Enabled => {
                assign(&mut self.enabled, bits, set);
                ones(bits & self.physical).for_each(|bit| gic.enable(first + bit, set));
            }
            State::Pending => assign(&mut self.latched, bits, set),
            State::Active => {}
        }
    }
    fn prioritize(&mut self, n: usize, lanes: u32, value: u32) {
        let (word, mask) = (
            &mut self.priority[n & 7],
            byte_mask(self.owned >> ((n & 7) * 4)) & lanes,
        );
        *word = *word & !mask | value & mask & 0xf8f8_f8f8;
    }
}

/// A VM's SPIs.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Groups of 32 interrupts; the first one stays empty.
    groups: [Group; GROUPS],
    config: [u32; GROUPS * 2],
    targets: [u32; GROUPS * 8],
    /// The vCPU whose list register contains an SPI.
    holder: [u8; MAX_IRQ as usize],
    all: u8,
}

impl Shared {
    /// Creates the state for a VM with this many vCPUs (1 to 8), without any SPI.
    pub fn new(vcpus: u8) -> Self {
        Self {
            groups: Default::default(),
            config: [0; GROUPS * 2],
            targets: [0; GROUPS * 8],
            holder: [0; MAX_IRQ as usize],
            all: Distributor::new(vcpus).all(),
        }
    }
    /// Gives the VM an SPI, emulated or passed through. IDs that are not SPIs are ignored.
    pub fn own(&mut self, irq: u32, physical: bool) {
        if (32..MAX_IRQ).contains(&irq) {
            let group = self.group(irq);
            group.owned |= 1 << (irq & 31);
            group.physical |= u32::from(physical) << (irq & 31);
            self.targets[irq as usize >> 2] |= 1 << ((irq & 3) * 8);
        }
    }
    /// Resets to the state after power-on with the same SPIs; disables and deactivates the physical ones. To be called
    /// after every [`Banked::reset`], before a vCPU runs.
    pub fn reset(&mut self, gic: &impl PhysicalGic) {
        (self.config, self.targets) = ([0; GROUPS * 2], [0; GROUPS * 8]);
        for n in 0..GROUPS {
            let Group {
                owned, physical, ..
            } = core::mem::take(&mut self.groups[n]);
            let first = n as u32 * 32;
            ones(owned).for_each(|bit| self.own(first + bit, physical >> bit & 1 == 1));
            for bit in ones(physical) {
                gic.enable(first + bit, false);
                gic.deactivate(first + bit);
            }
        }
    }
    fn group(&mut self, irq: u32) -> &mut Group {
        &mut self.groups[(irq >> 5) as usize % GROUPS]
    }

    /// Sets the line of an emulated SPI. Returns the vCPU that must check its interrupts.
    pub fn set_line(&mut self, irq: u32, high: bool, distributor: &Distributor) -> Vcpus {
        let (group, bit) = (self.group(irq), 1 << (irq & 31));
        if irq >= MAX_IRQ
            || group.owned & !group.physical & bit == 0
            || (group.line & bit != 0) == high
        {
            return Vcpus(0);
        }
        assign(&mut group.line, bit, high);
        Vcpus(self.notify(irq, distributor))
    }
    /// Records a physical SPI that was taken (acknowledged and dropped, not deactivated). Returns the vCPU that must
    /// check.
    pub fn raise(&mut self, irq: u32, distributor: &Distributor) -> Vcpus {
        let (group, bit) = (self.group(irq), 1 << (irq & 31));
        if irq >= MAX_IRQ || group.physical & bit == 0 {
            return Vcpus(0);
        }
        group.line |= bit;
        Vcpus(self.notify(irq, distributor))
    }
    /// Tells the vCPU that has `irq` in a list register, or is its target, to check it.
    fn notify(&mut self, irq: u32, distributor: &Distributor) -> u8 {
        let (group, bit) = (self.group(irq), 1 << (irq & 31));
        let vcpu = if group.placed & bit != 0 {
            Some(self.holder[irq as usize % MAX_IRQ as usize])
        } else if group.waiting(0) & bit != 0 {
            self.target(irq)
        } else {
            None
        };
        let Some(vcpu) = vcpu else { return 0 };
        distributor.mail(vcpu).spis.store(true, Ordering::Release);
        1 << (vcpu & 7)
    }
    /// Returns the target vCPU of an SPI.
    fn target(&self, irq: u32) -> Option<u8> {
        let targets = byte(&self.targets, irq);
        (targets != 0).then(|| targets.trailing_zeros() as u8)
    }
    /// Returns the [`Group::rank`] of the most urgent SPI that waits for `vcpu`.
    fn best(&self, vcpu: u8) -> Option<u32> {
        let ranks = (32..)
            .step_by(32)
            .zip(&self.groups[1..])
            .flat_map(|(first, group)| {
                let ours = ones(group.waiting(0))
                    .filter(move |bit| self.target(first + bit) == Some(vcpu));
                ours.map(move |bit| group.rank(first + bit))
            });
        ranks.min()
    }

    fn write(&mut self, register: Register, lanes: u32, value: u32, gic: &impl PhysicalGic) -> u8 {
        let (first, bits) = match register {
            Register::Control if lanes & 1 == 1 => {
                let distributor = gic.distributor();
                distributor.forward.store(value & 1 == 1, Ordering::Relaxed);
                distributor
                    .mail
                    .iter()
                    .for_each(|mail| mail.spis.store(true, Ordering::Release));
                return self.all;
            }
            Register::Bits(state, set, n) => {
                let bits = value & self.groups[n].owned;
                if set && matches!(state, State::Enabled) {
                    // The guest may never have written ITARGETSR: the hardware is set to what it reads there.
                    for irq in ones(bits & self.groups[n].physical).map(|bit| n as u32 * 32 + bit) {
                        self.target(irq)
                            .into_iter()
                            .for_each(|vcpu| gic.route(irq, vcpu));
                    }
                }
                self.groups[n].write(state, set, bits, n as u32 * 32, gic);
                (n as u32 * 32, bits)
            }
            Register::Priority(n) => {
                self.groups[n >> 3].prioritize(n, lanes, value);
                return 0;
            }
            Register::Targets(n) => {
                let (group, shift) = (&self.groups[n >> 3], (n * 4) & 31);
                let (owned, physical) = (group.owned >> shift & 0xf, group.physical >> shift & 0xf);
                let mask = byte_mask(owned) & lanes;
                self.targets[n] =
                    self.targets[n] & !mask | value & mask & (u32::from(self.all) * 0x0101_0101);
                for irq in ones(physical).map(|bit| n as u32 * 4 + bit) {
                    self.target(irq)
                        .into_iter()
                        .for_each(|vcpu| gic.route(irq, vcpu));
                }
                (n as u32 * 4, owned)
            }
            Register::Config(n) => {
                let (group, shift) = (&self.groups[n >> 1], (n * 16) & 31);
                for bit in
                    ones(group.owned >> shift & 0xffff).filter(|bit| lanes >> (bit * 2) & 2 != 0)
                {
                    let edge = value >> (bit * 2) & 2 != 0;
                    assign(&mut self.config[n], 2 << (bit * 2), edge);
                    if group.physical >> shift >> bit & 1 == 1 {
                        gic.configure(
                            n as u32 * 16 + bit,
                            if edge { Trigger::Edge } else { Trigger::Level },
                        );
                    }
                }
                return 0;
            }
            _ => return 0,
        };
        ones(bits).fold(0, |kick, bit| {
            kick | self.notify(first + bit, gic.distributor())
        })
    }
}

/// One vCPU's private interrupts and list registers.
#[derive(Clone, Debug)]
pub struct Banked {
    vcpu: u8,
    group: Group,
    /// What was last written to each list register; 0 if it was seen empty.
    lr: [u32; LIST_REGISTERS],
    /// List registers with an SPI or an EOI maintenance interrupt: [`Banked::fill`] must see them end.
    held: u32,
    /// The timer's list register value while it is enabled, otherwise 0.
    timer: u32,
    underflow: bool,
}

impl Banked {
    /// Creates the state of `vcpu` with the SGIs, the timer and these emulated and other physical PPIs (masks of bits 16 to
    /// 31). Where they are `mediated`, the list registers of physical ones have HW = 0 and the hypervisor deactivates the
    /// physical interrupt after the guest has ended it: for a GIC that samples the line again then, but not after a
    /// deactivation by HW = 1.
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
            vcpu: vcpu % MAX_VCPUS as u8,
            group,
            lr: [0; LIST_REGISTERS],
            held: 0,
            timer: 0,
            underflow: false,
        }
    }
    /// Resets to the state after power-on, on the vCPU's core, when it starts or stops. SPIs that it has not
    /// acknowledged go to other vCPUs, and the timer's physical PPI is off until the guest enables it. SGIs stay
    /// pending, as in a real distributor: one may have been sent before the vCPU's core got here.
    pub fn reset(&mut self, gic: &impl PhysicalGic) -> Vcpus {
        let mut shared = gic.lock();
        let mut kick = self.collect(Some(&mut shared), gic, true).1;
        for n in 0..GROUPS {
            kick |= self.clear_active(n, u32::MAX, Some(&mut shared), gic);
        }
        gic.underflow(false);
        for irq in ones(self.group.physical) {
            gic.enable(irq, false);
            gic.deactivate(irq);
        }
        *self = Self::new(
            self.vcpu,
            self.group.owned,
            self.group.physical,
            self.group.mediated != 0,
        );
        self.others(kick)
    }

    /// Handles a trapped read of GICD.
    pub fn read(&self, gic: &impl PhysicalGic, offset: u16, width: Width) -> Result<u32, Refused> {
        let (shift, mask) = width.lane(offset)?;
        let mail = || gic.distributor().mail(self.vcpu);
        let word = match decode(offset) {
            Register::Control => u32::from(gic.distributor().forwards()),
            Register::Type => gic.distributor().type_register(),
            Register::Implementer => IMPLEMENTER,
            Register::Bits(State::Enabled, _, 0) => self.group.enabled,
            Register::Bits(State::Enabled, _, n) => gic.lock().groups[n].enabled,
            Register::Bits(State::Pending, _, n) => return Ok(self.pending(n, gic) >> shift & mask),
            Register::Bits(State::Active, _, n) => self.listed(n, LR_ACTIVE, gic),
            Register::Priority(n @ 0..8) => self.group.priority[n],
            Register::Priority(n) => gic.lock().groups[n >> 3].priority[n & 7],
            Register::Targets(0..8) => 0x0101_0101 << self.vcpu,
            Register::Targets(n) => gic.lock().targets[n],
            Register::Config(0) => 0xaaaa_aaaa,
            Register::Config(1) => 0,
            Register::Config(n) => gic.lock().config[n],
            Register::SgiPending(_, n) => self.sgi_sources(n as u32, mail(), gic),
            Register::Identification(n) => IDENTIFICATION.get(n).map_or(0, |&byte| u32::from(byte)),
            Register::Reserved => 0,
        };
        Ok(word >> shift & mask)
    }
    /// Returns the interrupts of group `n` that are pending.
    #[inline(never)]
    fn pending(&self, n: usize, gic: &impl PhysicalGic) -> u32 {
        let (waiting, physical) = if n == 0 {
            let sgis = gic.distributor().mail(self.vcpu).pending();
            (
                self.group.line | self.group.latched | sgis,
                self.group.physical,
            )
        } else {
            let group = &gic.lock().groups[n];
            (group.line | group.latched, group.physical)
        };
        // While the guest has a physical interrupt disabled, EL2 does not take it: only the GIC knows its line.
        let raised = if physical == 0 {
            0
        } else {
            gic.pending(n) & physical
        };
        waiting | raised | self.listed(n, LR_PENDING, gic)
    }
    /// Returns the interrupts of group `n` that are in `state` in a list register of this vCPU.
    fn listed(&self, n: usize, state: u32, gic: &impl PhysicalGic) -> u32 {
        let ours = self
            .lr
            .iter()
            .enumerate()
            .filter(|&(_, &copy)| copy != 0 && (copy & LR_ID) as usize >> 5 == n);
        ours.filter(|&(index, _)| gic.get(index) & state != 0)
            .fold(0, |bits, (_, &copy)| bits | 1 << (copy & 31))
    }
    /// Returns a byte of pending sources for each of four SGIs.
    #[inline(never)]
    fn sgi_sources(&self, n: u32, mail: &Mail, gic: &impl PhysicalGic) -> u32 {
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
    pub fn write(
        &mut self,
        gic: &impl PhysicalGic,
        offset: u16,
        width: Width,
        value: u32,
    ) -> Result<Vcpus, Refused> {
        let (shift, mask) = width.lane(offset)?;
        match offset {
            0xf00 if width == Width::Word => Ok(self.send(gic, value)),
            0xf00..0xf04 => Err(Refused),
            _ => Ok(self.write_slowly(gic, decode(offset), mask << shift, (value & mask) << shift)),
        }
    }
    /// Handles all registers but SGIR: takes back what the guest has not acknowledged, writes, and lists again in the
    /// new state.
    #[inline(never)]
    fn write_slowly(
        &mut self,
        gic: &impl PhysicalGic,
        register: Register,
        lanes: u32,
        value: u32,
    ) -> Vcpus {
        let private = matches!(
            register,
            Register::Bits(_, _, 0) | Register::Priority(0..8) | Register::SgiPending(..)
        );
        let mut guard = (!private).then(|| gic.lock());
        let mut shared = guard.as_deref_mut();
        let mut kick = self.collect(shared.as_deref_mut(), gic, true).1;
        if let Register::Bits(State::Active, false, n) = register {
            kick |= self.clear_active(n, value, shared.as_deref_mut(), gic);
        }
        match shared.as_deref_mut() {
            Some(shared) => kick |= shared.write(register, lanes, value, gic),
            None => self.write_private(register, lanes, value, gic),
        }
        kick |= self.refill(shared, gic, true);
        self.others(kick)
    }
    fn write_private(
        &mut self,
        register: Register,
        lanes: u32,
        value: u32,
        gic: &impl PhysicalGic,
    ) {
        match register {
            Register::Bits(state, set, _) => {
                self.group
                    .write(state, set, value & self.group.owned & !SGIS, 0, gic);
            }
            Register::Priority(n) => self.group.prioritize(n, lanes, value),
            Register::SgiPending(set, n) => {
                let mail = gic.distributor().mail(self.vcpu);
                for bit in ones(value & (u32::from(gic.distributor().all()) * 0x0101_0101)) {
                    let (sgi, source) = (n as u32 * 4 + bit / 8, bit % 8);
                    if set {
                        mail.post(sgi, source)
                    } else {
                        mail.clear(sgi, source)
                    }
                }
            }
            _ => {}
        }
        let mediated = self.group.mediated >> TIMER & 1 == 1;
        let kind = if mediated {
            LR_EOI
        } else {
            LR_HW | TIMER << LR_PHYSICAL_SHIFT
        };
        let fields = kind | TIMER | LR_PENDING;
        let enabled = self.group.enabled >> TIMER & 1 == 1;
        self.timer = if enabled {
            fields | byte(&self.group.priority, TIMER) << LR_PRIORITY_SHIFT
        } else {
            0
        };
    }
    const fn others(&self, vcpus: u8) -> Vcpus {
        Vcpus(vcpus & !(1 << self.vcpu))
    }

    /// Handles GICD_SGIR: sends a software-generated interrupt.
    fn send(&mut self, gic: &impl PhysicalGic, value: u32) -> Vcpus {
        let (own, distributor) = (1u8 << self.vcpu, gic.distributor());
        let (sgi, source) = (value & 0xf, u32::from(self.vcpu));
        let filtered = match value >> 24 & 3 {
            0 => (value >> 16) as u8,
            1 => !own,
            2 => own,
            _ => 0,
        };
        let targets = filtered & distributor.all();
        if targets == own && distributor.mail(self.vcpu).pending() >> sgi & 1 == 0 {
            let fields = LR_PENDING | source << LR_PHYSICAL_SHIFT | sgi;
            let copy = fields | byte(&self.group.priority, sgi) << LR_PRIORITY_SHIFT;
            let done = gic.done();
            let elsewhere =
                |(index, other): (usize, &u32)| done >> index & 1 == 1 || other & LR_ID != sgi;
            if self.lr.iter().enumerate().all(elsewhere) && self.list_now(copy, done, gic) {
                return Vcpus(0);
            }
        }
        ones(targets).for_each(|target| distributor.mail(target as u8).post(sgi, source));
        let kick = if targets & own != 0 {
            self.fill(gic).0
        } else {
            0
        };
        self.others(targets | kick)
    }

    /// Sets the line of an emulated PPI of this vCPU. Returns whether it has changed; then call [`Banked::fill`].
    pub fn set_line(&mut self, irq: u32, high: bool) -> bool {
        let bit =
            1u32.checked_shl(irq).unwrap_or(0) & self.group.owned & !(SGIS | self.group.physical);
        let before = self.group.line;
        assign(&mut self.group.line, bit, high);
        self.group.line != before
    }

    /// Records that a physical PPI other than the timer's was taken (acknowledged and dropped, not deactivated); then call
    /// [`Banked::fill`].
    pub fn raise(&mut self, irq: u32) {
        self.group.line |= 1 << (irq & 31);
    }

    /// Records that the virtual timer's physical interrupt was taken (acknowledged and dropped, not deactivated).
    /// Returns `false` if it could not go directly into a list register; then call [`Banked::fill`].
    pub fn inject_timer(&mut self, gic: &impl PhysicalGic) -> bool {
        // It fired, so the guest has ended it and no list register contains it, unless software made it pending; then
        // `held` is not 0.
        let listed = self.timer != 0 && self.list_now(self.timer, gic.done(), gic);
        if !listed {
            self.group.line |= 1 << TIMER;
        }
        listed
    }
    /// Writes a free list register if nothing requires a closer look. The caller knows that the interrupt is in none.
    fn list_now(&mut self, value: u32, done: u32, gic: &impl PhysicalGic) -> bool {
        let free = done & ((1 << LIST_REGISTERS) - 1);
        if self.held != 0 || free == 0 || !gic.distributor().forwards() {
            return false;
        }
        let index = free.trailing_zeros() as usize % LIST_REGISTERS;
        gic.set(index, value);
        self.lr[index] = value;
        self.held |= u32::from(value & LR_EOI != 0) << index;
        true
    }

    /// Puts pending interrupts into list registers by priority. If more wait than fit, the underflow interrupt is
    /// raised when the guest has ended all but one. Returns the other vCPUs that must check.
    pub fn fill(&mut self, gic: &impl PhysicalGic) -> Vcpus {
        let mail = gic.distributor().mail(self.vcpu);
        let held = self.held != 0;
        if mail.spis.load(Ordering::Acquire)
            || held && self.lr.iter().any(|copy| copy & LR_ID >= 32)
        {
            let kick = self.refill(Some(&mut *gic.lock()), gic, true);
            return self.others(kick);
        }
        // Without an SPI, the lock that all vCPUs of the VM share is not needed.
        if held
            || self.underflow
            || (self.group.line | self.group.latched | mail.pending()) & self.group.enabled != 0
        {
            self.refill(None, gic, held);
        }
        Vcpus(0)
    }
    fn refill(
        &mut self,
        mut shared: Option<&mut Shared>,
        gic: &impl PhysicalGic,
        withdraw: bool,
    ) -> u8 {
        let (free, mut kick) = self.collect(shared.as_deref_mut(), gic, withdraw);
        let mut more = self.place(shared.as_deref_mut(), gic, free);
        if more && !withdraw && free != (1 << LIST_REGISTERS) - 1 {
            // A waiting interrupt may be more urgent than a listed one.
            let (free, again) = self.collect(shared.as_deref_mut(), gic, true);
            kick |= again;
            more = self.place(shared, gic, free);
        }
        if more != self.underflow {
            self.underflow = more;
            gic.underflow(more);
        }
        kick
    }

    /// Empties list registers that the guest has finished and, with `withdraw`, those that it has not acknowledged;
    /// without `shared`, not those that contain SPIs. Returns the free ones, and the vCPUs that must check.
    fn collect(
        &mut self,
        mut shared: Option<&mut Shared>,
        gic: &impl PhysicalGic,
        withdraw: bool,
    ) -> (u32, u8) {
        let mail = gic.distributor().mail(self.vcpu);
        let (done, sgis) = (gic.done(), mail.pending());
        let (mut free, mut kick) = (0, 0);
        self.group.placed = 0;
        for index in 0..LIST_REGISTERS {
            let (copy, irq, slot) = (self.lr[index], self.lr[index] & LR_ID, 1 << index);
            if copy == 0 {
                free |= slot;
                continue;
            }
            if irq >= 32 && shared.is_none() {
                continue;
            }
            // Pending again: merges with the listed one if that is not acknowledged yet, otherwise it must follow
            // later.
            let again = irq < 16 && sgis >> irq & 1 == 1;
            if done & slot != 0 {
                if copy & LR_EOI != 0 {
                    gic.set(index, 0);
                }
                if irq < 32 && self.group.is_mediated(copy) {
                    gic.deactivate(irq);
                }
            } else if (withdraw || again) && gic.get(index) & (LR_PENDING | LR_ACTIVE) == LR_PENDING
            {
                gic.set(index, 0);
                match shared.as_deref_mut() {
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
                self.group.placed |= 1u32.checked_shl(irq).unwrap_or(0);
                continue;
            }
            free |= slot;
            kick |= self.vacate(index, shared.as_deref_mut(), gic);
        }
        (free, kick)
    }
    /// Records that a list register is empty.
    fn vacate(&mut self, index: usize, shared: Option<&mut Shared>, gic: &impl PhysicalGic) -> u8 {
        let irq = self.lr[index] & LR_ID;
        self.lr[index] = 0;
        self.held &= !(1 << index);
        match shared {
            Some(shared) if irq >= 32 => {
                shared.group(irq).placed &= !(1 << (irq & 31));
                shared.notify(irq, gic.distributor())
            }
            _ => 0,
        }
    }
    /// Deactivates those of `bits` in group `n` that are active in this vCPU's list registers.
    fn clear_active(
        &mut self,
        n: usize,
        bits: u32,
        mut shared: Option<&mut Shared>,
        gic: &impl PhysicalGic,
    ) -> u8 {
        let active = self.listed(n, LR_ACTIVE, gic) & bits;
        let mut kick = 0;
        for index in 0..LIST_REGISTERS {
            let (copy, irq) = (self.lr[index], self.lr[index] & LR_ID);
            if copy != 0 && irq as usize >> 5 == n && active >> (irq & 31) & 1 == 1 {
                if copy & LR_HW != 0 || irq < 32 && self.group.is_mediated(copy) {
                    gic.deactivate(irq);
                }
                gic.set(index, 0);
                kick |= self.vacate(index, shared.as_deref_mut(), gic);
            }
        }
        kick
    }

    /// Fills the free list registers. Returns whether more interrupts wait.
    fn place(
        &mut self,
        mut shared: Option<&mut Shared>,
        gic: &impl PhysicalGic,
        mut free: u32,
    ) -> bool {
        let mail = gic.distributor().mail(self.vcpu);
        // Only the holder of the lock can see the SPIs and clear the flag.
        let unseen = if shared.is_some() {
            mail.spis.store(false, Ordering::Relaxed);
            false
        } else {
            mail.spis.load(Ordering::Relaxed)
        };
        if !gic.distributor().forwards() {
            return unseen;
        }
        loop {
            let waiting = ones(self.group.waiting(mail.pending()));
            let private = waiting.map(|irq| self.group.rank(irq)).min();
            let spi = shared.as_deref().and_then(|shared| shared.best(self.vcpu));
            let Some(best) = private.into_iter().chain(spi).min() else {
                return unseen;
            };
            if free == 0 {
                if spi.is_some() {
                    mail.spis.store(true, Ordering::Relaxed);
                }
                return true;
            }
            let (index, irq) = (
                free.trailing_zeros() as usize % LIST_REGISTERS,
                best & LR_ID,
            );
            let fields = match shared.as_deref_mut() {
                Some(shared) if irq >= 32 => {
                    shared.holder[irq as usize % MAX_IRQ as usize] = self.vcpu;
                    shared.group(irq).take(irq)
                }
                _ if irq < 16 => self.take_sgi(irq, mail),
                _ => self.group.take(irq),
            };
            let copy = fields | irq | LR_PENDING | best >> 10 << LR_PRIORITY_SHIFT;
            gic.set(index, copy & !COPY_LATCHED);
            self.lr[index] = copy;
            self.held |= u32::from(irq >= 32 || copy & LR_EOI != 0) << index;
            free &= free - 1;
        }
    }
    /// Takes an SGI from one of its sources; the next source's must follow after the guest has ended this one.
    fn take_sgi(&mut self, sgi: u32, mail: &Mail) -> u32 {
        let sources = mail.sources(sgi);
        let source = sources.trailing_zeros() & 7;
        mail.clear(sgi, source);
        self.group.placed |= 1 << sgi;
        source << LR_PHYSICAL_SHIFT
            | if sources & sources.wrapping_sub(1) != 0 {
                LR_EOI
            } else {
                0
            }
    }
}

#[cfg(test)]
mod tests;
