//! Makes programs: by a grammar of what the hypervisor offers, and by changes of programs that
//! reached something new.
// SPDX-License-Identifier: MIT OR Apache-2.0

pub mod links;
mod mutation;

use cloison_abi::{Call, list, map, psci};
use cloison_puppet::words::NAMES;
use cloison_puppet::{FREE_BYTES, FREE_RAM, LAST, LEASE, LONGEST, Op};
use fastrand::Rng;

/// Bytes in a page.
const PAGE: u64 = 4096;
/// RAM that programs write, with the pages of the profile.
const DATA: u64 = FREE_RAM + 2 * PAGE;
/// Where programs write lists of pages: after the profile's.
const LISTS: u64 = FREE_RAM + 72 * PAGE;
/// The end of RAM.
const END: u64 = FREE_RAM + FREE_BYTES;
/// Where the image begins.
const START: u64 = map::RAM;
/// RAM that may not be executed.
const NO_CODE: u64 = 0x4040_0000;
/// RAM far above that, of as many bytes.
const HIGH: u64 = 0x20_0000_0000;
/// Pages of each.
const NO_CODE_PAGES: u64 = 16;
/// Bytes of a redistributor of a GICv3: two frames (IHI 0069, 12.10).
const REDISTRIBUTOR: u64 = 0x2_0000;
/// The devices of the links, a page each, in each VM that has them.
const LINK: u64 = 0x0b00_0000;
/// The memory of the channel, in each VM that has it.
const CHANNEL: u64 = 0x6000_0000;
/// Addresses that matter: the ends of regions, devices, and what is none of both.
const PLACES: [u64; 25] = [
    0,
    map::RAM,
    DATA,
    LISTS,
    END - PAGE,
    END - 8,
    END,
    map::RAM + (4 << 20),
    0x4080_0000,
    NO_CODE,
    0x4081_0000,
    HIGH,
    HIGH + NO_CODE_PAGES * PAGE,
    map::GICD,
    map::GICC,
    map::DEACTIVATE,
    map::UART,
    map::SERVICES,
    LINK,
    CHANNEL,
    0x0a00_0000,
    0x0901_0000,
    0x0803_0000,
    0x7f_ffff_f000,
    0x80_0000_0000,
];
/// Numbers that matter.
const NUMBERS: [u64; 24] = [
    0,
    1,
    2,
    3,
    4,
    5,
    6,
    7,
    8,
    31,
    32,
    33,
    34,
    63,
    64,
    511,
    512,
    513,
    1 << 16,
    1 << 31,
    u32::MAX as u64,
    1 << 32,
    1 << 63,
    u64::MAX,
];

/// Makes programs.
#[derive(Clone, Debug)]
pub struct Generator {
    random: Rng,
    loads: Vec<u32>,
    stores: Vec<u32>,
    systems: Vec<u32>,
    /// Writes of registers that a vCPU's next life must not find.
    states: Vec<u32>,
    /// Function identifiers of the hypervisor's calls, with some that do not exist.
    calls: std::ops::Range<u32>,
    /// The first redistributor of a GICv3; `None` for a GICv2.
    redistributors: Option<u64>,
}

/// Registers of EL1 and EL0 that a program may write.
const STATES: [&str; 18] = [
    "amair_el1",
    "csselr_el1",
    "tpidr_el0",
    "tpidrro_el0",
    "tpidr_el1",
    "contextidr_el1",
    "esr_el1",
    "far_el1",
    "par_el1",
    "cntkctl_el1",
    "sp_el0",
    "elr_el1",
    "spsr_el1",
    "mdscr_el1",
    "fpcr",
    "fpsr",
    "pmuserenr_el0",
    "cntv_cval_el0",
];

/// The first function identifier of the hypervisor's calls.
const FIRST_CALL: u32 = Call::Identify as u32;

/// Returns the function identifiers of the hypervisor's calls.
fn calls() -> impl Iterator<Item = u32> {
    (FIRST_CALL..FIRST_CALL + 256).filter(|id| Call::from_id(*id).is_some())
}

/// Returns the code of a named instruction.
fn named(name: &str) -> u32 {
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map_or(0xd503_201f, |(_, word)| *word)
}

/// Returns whether the hypervisor may refuse an access to memory: nothing is there, or a device is,
/// and it is not accessed by whole registers, as compilers do. Loads and stores are by x1;
/// maintenance of the cache and the translation of addresses are by any register (Arm ARM, C4.1.66
/// and C4.1.89).
pub fn is_refused(op: Op) -> bool {
    let Op::Execute { word, x } = op else {
        return false;
    };
    let is_access = word & 0x0a00_0000 == 0x0800_0000;
    let is_plain = word & 0x3f00_0000 == 0x3900_0000;
    let is_maintenance = word & 0xfff8_f000 == 0xd508_7000;
    let address = match is_maintenance {
        true => x.get(word as usize & 31).copied().unwrap_or(0),
        false => x[1],
    };
    let is_in = |first: u64, bytes: u64| (first..first + bytes - 8).contains(&address);
    let is_ram = is_in(FREE_RAM, FREE_BYTES)
        || [NO_CODE, HIGH]
            .iter()
            .any(|&first| is_in(first, NO_CODE_PAGES * PAGE));
    let bytes = 1 << (word >> 30);
    let is_device = [map::GICD, map::GICC, map::UART, LINK]
        .iter()
        .any(|&page| bytes == 4 && is_in(page, PAGE))
        || bytes == 8 && is_in(map::SERVICES, PAGE);
    let is_whole = is_device && is_plain && address.is_multiple_of(bytes);
    (is_access || is_maintenance) && !is_ram && !is_whole
}

impl Generator {
    /// Returns one whose programs depend on the seed and on where the guests have a GICv3's
    /// redistributors.
    pub fn new(seed: u64, redistributors: Option<u64>) -> Self {
        let of = |starts: &[&str]| {
            NAMES
                .iter()
                .filter(|(name, _)| starts.iter().any(|start| name.starts_with(start)))
                .map(|(_, word)| *word)
                .collect::<Vec<_>>()
        };
        Self {
            random: Rng::with_seed(seed),
            loads: of(&["ld", "prfm"]),
            stores: of(&["st", "dc.zva"]),
            systems: of(&[
                "mrs", "msr", "tlbi", "dc.", "ic.", "at.", "dsb", "dmb", "isb",
            ]),
            states: STATES
                .iter()
                .map(|name| named(&format!("msr.{name}.x0")))
                .collect(),
            calls: FIRST_CALL..calls().max().map_or(FIRST_CALL, |last| last + 3),
            redistributors,
        }
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.random.u64(..bound.max(1))
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.random.usize(..all.len())]
    }

    /// Returns an operand.
    fn value(&mut self) -> u64 {
        match self.below(12) {
            0..4 => self.pick(&NUMBERS),
            4 | 5 => self.below(8),
            6 => self.address(),
            7 => 1 << self.below(64),
            8 => self.below(1 << 12),
            9 => self.pick(&[LAST, 1, 2]),
            10 => self.below(1 << 32),
            _ => self.random.u64(..),
        }
    }

    /// Returns an address, mostly of something.
    fn address(&mut self) -> u64 {
        let place = self.pick(&PLACES);
        match self.below(8) {
            0..3 => place,
            3 => place.wrapping_add(self.below(64) * PAGE),
            4 => place.wrapping_add(self.below(PAGE)),
            5 => self.page(),
            6 => self.page() + self.below(PAGE),
            _ => place.wrapping_sub(8),
        }
    }

    /// Returns the address of a page of the VM's RAM.
    fn page(&mut self) -> u64 {
        match self.below(64) {
            // A page of code that moves is translated again by QEMU, so that is rare.
            0 | 1 => map::RAM + self.below((END - map::RAM) / PAGE + 6) * PAGE,
            2 => map::RAM + self.below(20) * PAGE,
            3..12 => NO_CODE + self.below(NO_CODE_PAGES + 1) * PAGE,
            _ => FREE_RAM + self.below(66) * PAGE,
        }
    }

    fn call(&mut self, function: u32, arguments: [u64; 3]) -> Op {
        let word = match self.below(64) {
            0..4 => named("smc"),
            // The puppet must write and QEMU translate what was never executed: that is rare.
            4 => named("hvc") | (self.below(1 << 16) as u32) << 5,
            _ => named("hvc"),
        };
        let high = match self.below(32) {
            0 => self.random.u64(..) << 32,
            _ => 0,
        };
        let [x1, x2, x3] = arguments;
        Op::Execute {
            word,
            x: [high | u64::from(function), x1, x2, x3],
        }
    }

    fn access(&mut self, stores: bool, address: u64, value: u64) -> Op {
        let word = if stores {
            self.random.choice(&self.stores).copied()
        } else {
            self.random.choice(&self.loads).copied()
        };
        let word = word.unwrap_or(0xd503_201f);
        Op::Execute {
            word: self.other_register(word),
            x: [value, address, value >> 1, 0],
        }
    }

    /// Returns an instruction with another register in bits 4 to 0 now and then: the zero register,
    /// or one of those that the puppet does not need.
    fn other_register(&mut self, word: u32) -> u32 {
        match self.below(8) {
            0 => word | 31,
            1 => word & !31 | self.random.u32(..4),
            _ => word,
        }
    }

    /// Appends operations of one kind.
    fn append(&mut self, ops: &mut Vec<Op>) {
        match self.below(200) {
            0..34 => self.own_call(ops),
            34..40 => self.link(ops),
            40..50 => self.power(ops),
            50..86 => self.distributor(ops),
            86..90 => self.manage(ops),
            90..110 => self.interface(ops),
            110..124 => self.uart(ops),
            124..136 => self.services_page(ops),
            136..172 => self.system(ops),
            172..184 => self.memory(ops),
            184..188 => self.lists(ops),
            188..192 => self.waits(ops),
            192..196 => self.manage(ops),
            196 => self.state(ops),
            197 => ops.push(Op::Delay(self.below(2000))),
            _ => self.leases(ops),
        }
    }

    fn own_call(&mut self, ops: &mut Vec<Op>) {
        let function = match self.below(64) {
            // Cheap calls, between which the others happen.
            8..32 => 0xc600_0000 + self.pick(&[0x00, 0x09, 0x0b, 0x0d, 0x06, 0x0e, 0x0f, 0x13]),
            0 => self.random.u32(..),
            1 => 0x8400_0000 | self.random.u32(..32),
            2 => 0xc600_0000 | self.random.u32(..0x1_0000),
            _ => self.random.u32(self.calls.clone()),
        };
        let arguments = self.arguments(function);
        let op = self.call(function, arguments);
        // The same again and again: what each costs adds up.
        let times = match self.below(48) {
            0 | 1 => self.random.usize(8..32),
            2 => self.random.usize(64..LONGEST),
            _ => 1,
        };
        ops.extend(std::iter::repeat_n(op, times));
    }

    /// Returns the arguments of a call: what it wants, most of the time.
    fn arguments(&mut self, function: u32) -> [u64; 3] {
        let small = self.below(8);
        if self.below(4) == 0 {
            return [self.value(), self.value(), self.value()];
        }
        match function & 0xff {
            0x01 => [small, self.below(3), self.below(3)],
            0x03 => [self.below(7) * self.below(11), 0, 0],
            0x05 | 0x0d => [self.page(), 0, 0],
            0x06 | 0x0b | 0x0e => [self.below(3), 0, 0],
            0x07 => [self.below(3), self.budget(), 0],
            0x08 => [self.below(7), 0, 0],
            0x0a => {
                let pages = if self.below(16) == 0 { 320 } else { 8 };
                [self.page(), self.below(pages), self.below(3)]
            }
            0x0f => [self.below(5), 0, 0],
            0x11 => [self.below(4), self.below(3), 0],
            0x12 => [self.below(4), self.below(3), self.budget()],
            0x14..=0x19 => [
                self.pick(&[0, 1, 2, 3, 4, 5, 6, 31]),
                self.pick(&[0x11, 0x08, 0x19, 0x1_0000, u64::MAX, 1 << 31, 3 << 30]),
                0,
            ],
            0x1a => [self.below(256), 0, 0],
            0x1b => [small, 1, 2],
            0x1f => [self.pick(&[0, LEASE]), self.below(300_000), 0],
            0x20 => [self.below(4), self.below(34), self.below(4) * self.below(2)],
            0x22..=0x25 => [self.below(4), self.below(3), 0],
            _ => [self.value(), self.value(), self.value()],
        }
    }

    /// Returns a budget; most of them let a guest run.
    fn budget(&mut self) -> u64 {
        match self.below(16) {
            0 => self.below(2000),
            _ => 10_000 + self.below(60_000),
        }
    }

    fn power(&mut self, ops: &mut Vec<Op>) {
        if self.below(3) == 0 {
            ops.push(Op::Start(self.below(3)));
            return;
        }
        let function = match self.below(8) {
            0 => 0x8400_0000 + self.random.u32(..0x20),
            1 => 0xc400_0000 + self.random.u32(..0x20),
            2 => 0x8000_0000 + self.random.u32(..4),
            3 | 4 => psci::CPU_ON_64,
            _ => {
                let all = psci::ALL;
                // Ends of VMs cost the most time, so they are rare.
                match self.pick(&all) {
                    psci::SYSTEM_OFF | psci::SYSTEM_RESET if self.below(12) > 0 => {
                        psci::AFFINITY_INFO_64
                    }
                    psci::CPU_OFF if self.below(3) > 0 => psci::CPU_ON_32,
                    function => function,
                }
            }
        };
        let entry = match self.below(12) {
            0 => self.value(),
            1 => self.address(),
            2 => self.page(),
            3 => START,
            _ => START + 2,
        };
        let arguments = match function {
            psci::FEATURES => [u64::from(self.pick(&psci::ALL)), 0, 0],
            _ => [self.below(4), entry, self.value()],
        };
        let op = self.call(function, arguments);
        ops.push(op);
    }

    fn distributor(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..=self.below(5) {
            let offset = match self.below(6) {
                0 => self.below(0x1000),
                1 => self.pick(&[0, 4, 8, 0xf00, 0xf10, 0xf20, 0xfe8, 0xffc]),
                2 => {
                    self.pick(&[0x80, 0x100, 0x180, 0x200, 0x280, 0x300, 0x380]) + self.below(4) * 4
                }
                3 => self.pick(&[0x400, 0x800]) + self.below(36),
                4 => 0xc00 + self.below(4) * 4,
                _ => self.below(0x400) * 4,
            };
            let value = match self.below(4) {
                0 => self.below(4) << 24 | self.below(256) << 16 | self.below(16),
                1 => u64::from(u32::MAX),
                _ => self.value(),
            };
            let at = self.in_the_gic(offset);
            let op = match self.below(8) {
                0..3 => self.access(false, at, value),
                3 => self.access(true, at, value),
                4 => Op::Execute {
                    word: named("ldr.w0.x1"),
                    x: [0, at & !3, 0, 0],
                },
                _ => Op::Execute {
                    word: named("str.w0.x1"),
                    x: [value, at & !3, 0, 0],
                },
            };
            ops.push(op);
        }
    }

    /// Returns the address of a register: of the distributor, whose offsets a GICv3's redistributors
    /// repeat in their second frame (IHI 0069, 12.11), or of what only they have.
    fn in_the_gic(&mut self, offset: u64) -> u64 {
        let Some(redistributors) = self.redistributors else {
            return map::GICD + offset;
        };
        let frame = redistributors + self.below(5) * REDISTRIBUTOR;
        match self.below(8) {
            0..3 => map::GICD + offset,
            3 => map::GICD + self.pick(&[0x6000, 0x6100, 0x7fd8, 0xffe8]) + self.below(64) * 4,
            4 => frame + self.pick(&[0x00, 0x04, 0x08, 0x0c, 0x14, 0xffe8, 0x70, 0x78]),
            5 => frame + self.below(REDISTRIBUTOR),
            _ => frame + REDISTRIBUTOR / 2 + offset,
        }
    }

    /// Accesses the CPU interface of a GICv3, whose system registers may trap.
    fn interface_registers(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..=self.below(6) {
            let (name, value) = match self.below(16) {
                0..3 => ("mrs.x0.icc_iar1_el1", 0),
                3..6 => ("msr.icc_eoir1_el1.x0", LAST),
                6 => ("msr.icc_dir_el1.x0", LAST),
                7 => ("msr.icc_pmr_el1.x0", self.below(256)),
                8 => ("msr.icc_ctlr_el1.x0", self.value()),
                9..12 => (
                    "msr.icc_sgi1r_el1.x0",
                    self.below(16) << 24 | self.below(16),
                ),
                12 => ("msr.icc_sgi1r_el1.x0", self.value()),
                13 => ("msr.icc_igrpen1_el1.x0", self.below(2)),
                14 => ("msr.icc_eoir1_el1.x0", self.below(1024)),
                _ => ("mrs.x0.icc_hppir1_el1", 0),
            };
            ops.push(Op::Execute {
                word: named(name),
                x: [value, 0, 0, 0],
            });
        }
        // The interface works again.
        for (name, value) in [
            ("msr.icc_ctlr_el1.x0", 0),
            ("msr.icc_pmr_el1.x0", 0xff),
            ("msr.icc_igrpen1_el1.x0", 1),
        ] {
            ops.push(Op::Execute {
                word: named(name),
                x: [value, 0, 0, 0],
            });
        }
    }

    fn interface(&mut self, ops: &mut Vec<Op>) {
        if self.redistributors.is_some() {
            return self.interface_registers(ops);
        }
        for _ in 0..=self.below(6) {
            let (offset, value) = match self.below(8) {
                0 => (0x10, self.below(1024)),
                1 => (0x1000, self.below(1024)),
                2 => (0x04, self.below(256)),
                3 => (0x00, self.below(1024)),
                4 => (0x1000 + self.below(0x1000), self.value()),
                5 => (self.below(0x100) * 4, self.value()),
                _ => (0x10, LAST),
            };
            // An acknowledgment leaves its number in x0 only.
            let op = match self.below(4) {
                0 => Op::Execute {
                    word: named("ldr.w0.x1"),
                    x: [0, map::GICC + 0x0c, 0, 0],
                },
                1 => {
                    let stores = self.random.bool();
                    self.access(stores, map::GICC + offset, value)
                }
                _ => Op::Execute {
                    word: named("str.w0.x1"),
                    x: [value, map::GICC + offset, 0, 0],
                },
            };
            ops.push(op);
        }
        // The interface works again.
        for (offset, value) in [(0x04, 0xff), (0x00, 1)] {
            ops.push(Op::Execute {
                word: named("str.w0.x1"),
                x: [value, map::GICC + offset, 0, 0],
            });
        }
    }

    fn uart(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..=self.below(5) {
            let offset = match self.below(4) {
                0 => self.below(0x1000),
                1 => 0,
                _ => self.pick(&[
                    0x00, 0x04, 0x18, 0x24, 0x28, 0x2c, 0x30, 0x34, 0x38, 0x3c, 0x40, 0x44, 0x48,
                    0xfe0,
                ]),
            };
            let value = match self.below(3) {
                0 => self.pick(&[10, 13, 65, 27, 20]),
                _ => self.value(),
            };
            let stores = self.random.bool();
            let op = self.access(stores, map::UART + offset, value);
            ops.push(op);
        }
    }

    fn services_page(&mut self, ops: &mut Vec<Op>) {
        let register = |offset: u64, value: u64| Op::Execute {
            word: named("str.x0.x1"),
            x: [value, map::SERVICES + offset, 0, 0],
        };
        if self.below(3) == 0 {
            let (stores, offset) = (self.random.bool(), self.below(0x100) & !7);
            let value = self.value();
            let op = self.access(stores, map::SERVICES + offset, value);
            ops.push(op);
            return;
        }
        let function = self.random.u32(self.calls.clone());
        let arguments = self.arguments(function);
        for (offset, value) in [0x40, 0x48, 0x50].into_iter().zip(arguments) {
            if self.below(8) > 0 {
                ops.push(register(offset, value));
            }
        }
        let first = self.pick(&[0x58, 0x40, 0x48, 0x50]);
        ops.push(register(0x58, function.into()));
        for offset in [first, 0x58] {
            ops.push(Op::Execute {
                word: named("ldr.x0.x1"),
                x: [0, map::SERVICES + offset, 0, 0],
            });
        }
    }

    fn system(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..=self.below(4) {
            let word = match self.below(20) {
                // Any encoding: MRS or MSR, op0 from 1 to 3, x0. Rare, as above.
                0 => {
                    0xd500_0000
                        | self.random.u32(..2) << 21
                        | self.random.u32(1..4) << 19
                        | self.random.u32(..1 << 14) << 5
                }
                // The PMU's.
                1..4 => {
                    0xd51b_0000
                        | self.random.u32(..2) << 21
                        | self.pick(&[
                            0x9c00, 0x9d00, 0x9e00, 0xe800, 0xe900, 0xea00, 0xeb00, 0xec00, 0xed00,
                            0xee00, 0xef00,
                        ])
                        | self.random.u32(..8) << 5
                }
                _ => self
                    .random
                    .choice(&self.systems)
                    .copied()
                    .unwrap_or(0xd503_201f),
            };
            let (value, address) = (self.value(), self.address());
            ops.push(Op::Execute {
                word: if word >> 21 & 1 == 1 {
                    self.other_register(word)
                } else {
                    word
                },
                x: [value, address, 0, 0],
            });
        }
    }

    /// Registers that the vCPU's next life must not find, and sometimes that life.
    fn state(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..4 + self.below(8) {
            let word = self.random.choice(&self.states).copied();
            ops.push(Op::Execute {
                word: word.unwrap_or(0xd503_201f),
                x: [self.random.u64(..), 0, 0, 0],
            });
        }
        if self.below(4) == 0 {
            let function = self.pick(&[psci::CPU_OFF, psci::SYSTEM_RESET]);
            let op = self.call(function, [0; 3]);
            ops.push(op);
        }
    }

    fn memory(&mut self, ops: &mut Vec<Op>) {
        for _ in 0..=self.below(3) {
            let (stores, address, value) = (self.random.bool(), self.address(), self.value());
            let op = self.access(stores, address, value);
            ops.push(op);
        }
    }

    /// A list of pages, and calls with it.
    fn lists(&mut self, ops: &mut Vec<Op>) {
        let at = LISTS + self.below(2) * PAGE + self.pick(&[0, 0, 8, 0xfe0, 4]);
        let flag = self.below(2) * list::CACHED;
        // A page that moves takes as long as several exits.
        let count = match self.below(64) {
            0 => 512,
            1..4 => self.below(70),
            _ => 1 + self.below(6),
        };
        let first = match self.below(4) {
            0 => NO_CODE + self.below(8) * PAGE,
            _ => FREE_RAM + self.below(60) * PAGE,
        };
        ops.push(Op::List {
            at,
            first: first | flag,
            count,
            step: self.pick(&[1, 1, 1, 2, 0, u64::MAX]),
        });
        if self.below(3) == 0 {
            let value = self.value();
            ops.push(Op::Execute {
                word: named("str.x0.x1"),
                x: [value, at + 8 * self.below(count), 0, 0],
            });
        }
        for _ in 0..=self.below(3) {
            let function = 0xc600_001c + self.random.u32(..3);
            let count = self.pick(&[count, count, count, 0, 512, 513, u64::MAX]);
            let lease = self.pick(&[0, 0, LEASE, LEASE, 1]);
            let op = self.call(function, [at, count, lease]);
            ops.push(op);
        }
    }

    fn waits(&mut self, ops: &mut Vec<Op>) {
        let word = named(self.pick(&["wfi", "wfe", "sev", "yield", "wfi"]));
        if self.random.bool() {
            ops.push(Op::Execute {
                word: named(self.pick(&["msr.daifclr.2", "msr.daifset.2"])),
                x: [0; 4],
            });
        }
        if self.random.bool() {
            let value = self.pick(&[0, 1, 1000, 100_000, u64::MAX, 1 << 31]);
            ops.push(Op::Execute {
                word: named("msr.cntv_tval_el0.x0"),
                x: [value, 0, 0, 0],
            });
            ops.push(Op::Execute {
                word: named("msr.cntv_ctl_el0.x0"),
                x: [self.below(4), 0, 0, 0],
            });
        }
        ops.push(Op::Execute { word, x: [0; 4] });
    }

    /// Orders to other VMs: most start them.
    fn manage(&mut self, ops: &mut Vec<Op>) {
        let vm = self.pick(&[0, 1, 1, 1, 2, 2, 2, 3]);
        let order = |change: u64| (0xc600_0010, [vm, change, 0]);
        let read = (0xc600_000f, [vm, 0, 0]);
        let calls = match self.below(24) {
            // Stops it, and starts it again once it has stopped.
            0 => vec![order(0), read, order(1), read],
            1 => vec![order(2), read],
            2 => vec![order(3), read],
            _ => vec![read, order(1), read],
        };
        for (function, arguments) in calls {
            let op = self.call(function, arguments);
            ops.push(op);
            if self.below(3) == 0 {
                ops.push(Op::Delay(self.below(4000)));
            }
        }
    }

    /// A lease, what is done with it, and what is tried at its end.
    fn leases(&mut self, ops: &mut Vec<Op>) {
        let nanos = self.pick(&[1, 1000, 20_000, 200_000, 0, 3_600_000_000_000, u64::MAX]);
        let op = self.call(0xc600_001f, [0, nanos, 0]);
        ops.push(op);
        for _ in 0..=self.below(2) {
            self.lists(ops);
        }
        for _ in 0..self.below(4) {
            ops.push(Op::Delay(self.below(3000)));
            let nanos = self.pick(&[0, 1000, 50_000, 50_000]);
            let op = self.call(0xc600_001f, [LEASE, nanos, 0]);
            ops.push(op);
        }
    }

    /// Returns what is typed on the console: nothing most of the time.
    pub fn typed(&mut self) -> Vec<u8> {
        const CTRL_T: u8 = 20;
        match self.below(32) {
            0 => vec![CTRL_T, self.pick(b"n123?sxra\x14")],
            1 => (0..self.below(20)).map(|_| self.random.u8(..)).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns a new program.
    pub fn program(&mut self) -> Vec<Op> {
        let mut ops = Vec::new();
        let length = 24 + self.random.usize(..LONGEST - 24);
        while ops.len() < length {
            self.append(&mut ops);
        }
        ops.truncate(LONGEST);
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_depend_on_the_seed_only_and_fit() {
        let (mut one, mut same, mut other) = (
            Generator::new(1, None),
            Generator::new(1, None),
            Generator::new(2, None),
        );
        let mut differ = false;
        for _ in 0..200 {
            let (mut a, mut b) = (one.program(), same.program());
            one.mutate(&mut a, &b);
            let copy = b.clone();
            same.mutate(&mut b, &copy);
            assert_eq!(a, b);
            assert!(a.len() <= LONGEST);
            differ |= a != other.program();
        }
        assert!(differ);
    }

    #[test]
    fn most_of_what_is_made_is_executed() {
        for redistributors in [None, Some(0x080a_0000)] {
            let mut generator = Generator::new(7, redistributors);
            let (mut all, mut harmless) = (0, 0);
            for _ in 0..500 {
                for op in generator.program() {
                    if let Op::Execute { word, x } = op {
                        all += 1;
                        harmless += u32::from(cloison_puppet::is_harmless(word, x));
                    }
                }
            }
            assert!(harmless * 100 > all * 90, "{harmless} of {all}");
        }
    }

    #[test]
    fn accesses_to_nothing_and_unusual_ones_to_devices_may_be_refused() {
        let may_be = |name: &str, address: u64| {
            is_refused(Op::Execute {
                word: named(name),
                x: [0, address, 0, 0],
            })
        };
        assert!(!may_be("str.w0.x1", map::GICD) && may_be("str.w0.x1", map::GICD + 2));
        assert!(may_be("ldr.x0.x1", map::UART) && !may_be("ldr.x0.x1", map::SERVICES));
        assert!(may_be("dc.zva.x1", map::GICD) && !may_be("dc.zva.x1", DATA));
        assert!(may_be("st1.v0.16b.x1", LINK) && !may_be("st1.v0.16b.x1", HIGH));
        assert!(may_be("ldr.x0.x1", END) && !may_be("ldr.x0.x1", END - 16));
        assert!(!may_be("hvc", 0) && !may_be("msr.tpidr_el0.x0", 0));
    }

    #[test]
    fn the_grammar_uses_names_that_exist() {
        for name in [
            "hvc",
            "smc",
            "ldr.w0.x1",
            "ldr.x0.x1",
            "str.w0.x1",
            "str.x0.x1",
            "wfi",
            "wfe",
            "sev",
            "yield",
            "msr.daifclr.2",
            "msr.daifset.2",
            "msr.cntv_tval_el0.x0",
            "msr.cntv_ctl_el0.x0",
            "mrs.x0.icc_iar1_el1",
            "mrs.x0.icc_hppir1_el1",
            "msr.icc_eoir1_el1.x0",
            "msr.icc_dir_el1.x0",
            "msr.icc_pmr_el1.x0",
            "msr.icc_ctlr_el1.x0",
            "msr.icc_sgi1r_el1.x0",
            "msr.icc_igrpen1_el1.x0",
        ] {
            assert_ne!(named(name), 0xd503_201f, "{name}");
        }
    }
}
