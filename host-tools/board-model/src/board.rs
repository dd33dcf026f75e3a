//! The model's board file (`configs/models/*.toml`), validated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::banks::{BANK_BITS, BankTiming, TICKS};
use crate::cache::{Age, Ages, Cache, Policy};
use crate::cluster::{L2Limits, MOST_WRITES};
use crate::dram::OnChip;
use crate::geometry::{Geometry, GeometryError};
use crate::issue::MOST_LOADS;
use crate::prefetch::{DataPrefetch, MOST_LINES, MOST_STREAMS};
use crate::refresh::Refresh;
use crate::streaming::Streaming;
use crate::tlb::{Shape, TlbShape};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use thiserror::Error;
use toml::Spanned;

/// The shipped model of the ZCU102.
const SHIPPED: &str = include_str!("../../../configs/models/zcu102.toml");

/// One cache of the board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Size, ways and line length.
    pub geometry: Geometry,
    /// Replacement policy.
    pub policy: Policy,
    /// Seed of the pseudo-random policy.
    pub seed: u64,
    /// How old lines are that come.
    pub ages: Ages,
}

impl Level {
    /// Returns an empty cache of this kind.
    pub fn cache(&self) -> Cache {
        Cache::new(self.geometry, self.policy, self.seed).with_ages(self.ages)
    }
}

/// When a line of data is allocated in the L2. A line of instructions is allocated when it is
/// fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum L2Data {
    /// When an L1 data cache evicts it, dirty or not.
    OnEviction,
    /// When an L1 data cache asks for it; dirty lines return to it when they are evicted.
    OnMiss,
}

/// Costs in cycles of a core. Values in nanoseconds are converted by the clock, and rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// An instruction whose accesses hit L1.
    pub instruction: u64,
    /// Additional cost of an L1 miss that hits the L2.
    pub l2: u64,
    /// Additional cost of an L2 miss, when the memory is idle. If its banks are modelled: when
    /// another row is open.
    pub dram: u64,
    /// Time for which one line occupies the memory, unless its banks are modelled.
    pub dram_line: u64,
    /// A line that another core's L1 data cache has, beyond an L1 hit; 0 if these caches are not
    /// coherent.
    pub snoop: u64,
    /// An access to a device.
    pub device: u64,
    /// Number of lines that stores may wait for before the core waits too.
    pub store_linefills: usize,
    /// Cycles from a load that hits the L1 to an instruction that needs its value.
    pub load_to_use: u64,
    /// Number of lines that loads may wait for until their first use; 0 if a core waits for each
    /// at once.
    pub load_linefills: usize,
}

/// Lines that a core fetches before it needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch {
    /// Streams of data.
    pub data: DataPrefetch,
    /// Lines of instructions after the one that is reached.
    pub instructions: u64,
}

impl Prefetch {
    /// Nothing is prefetched.
    pub const NONE: Self = Self {
        data: DataPrefetch::NONE,
        instructions: 0,
    };
}

/// A validated board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Name of the board.
    pub name: String,
    /// Cycles per microsecond of guest time.
    pub clock_mhz: u64,
    /// How far a core may get ahead of the slowest one, in cycles.
    pub quantum: u64,
    /// When data is allocated in the L2.
    pub l2_data: L2Data,
    /// The limits to the L2's parallel work.
    pub l2_limits: L2Limits,
    /// L1 instruction cache of each core.
    pub l1i: Level,
    /// L1 data cache of each core.
    pub l1d: Level,
    /// The cache that all cores share.
    pub l2: Level,
    /// Costs of instructions and misses.
    pub timing: Timing,
    /// The cores' prefetchers.
    pub prefetch: Prefetch,
    /// When cores write lines without reading them.
    pub streaming: Streaming,
    /// The translation buffers of each core, unless translation costs nothing.
    pub tlb: Option<TlbShape>,
    /// Refreshes of the memory.
    pub refresh: Refresh,
    /// The memory's banks, unless only its bandwidth is modelled.
    pub banks: Option<BankTiming>,
    /// A memory on the chip, besides the DRAM.
    pub on_chip: Option<OnChip>,
}

/// How accesses to the memory wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Queues {
    /// In banks, and for the bus.
    Banks,
    /// When the bandwidth of a short time is used up.
    Bandwidth,
}

/// Errors in a board file.
#[derive(Debug, Error)]
pub enum BoardError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        error: std::io::Error,
    },
    /// The text does not have the format of a board file; the parser's message has line and column.
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    /// A value is invalid.
    #[error("line {line}: {problem}")]
    Value {
        /// Line number, starting at 1.
        line: usize,
        /// The mistake in the value.
        problem: BoardProblem,
    },
}

/// Invalid values in a board file.
#[derive(Debug, Error)]
pub enum BoardProblem {
    /// The geometry of a cache is invalid.
    #[error("[{cache}]: {error}")]
    Geometry {
        /// Table of the cache.
        cache: &'static str,
        /// The mistake in its geometry.
        error: GeometryError,
    },
    /// A size cannot be parsed.
    #[error(
        "[{cache}] size = \"{size}\": write a number of bytes, optionally with K or M, such as \
         \"32K\""
    )]
    Size {
        /// Table of the cache.
        cache: &'static str,
        /// The text found.
        size: String,
    },
    /// A tree of bits needs a power of two of ways.
    #[error("[{cache}]: replacement \"tree-plru\" needs a power of two of ways, not {ways}")]
    Tree {
        /// Table of the cache.
        cache: &'static str,
        /// Its ways.
        ways: u64,
    },
    /// The caches have lines of different sizes.
    #[error("the lines of l1i, l1d and l2 are {0}, {1} and {2} bytes: they must be equal")]
    Lines(u64, u64, u64),
    /// Banks are to be modelled, but the file does not describe them.
    #[error("memory.queues = \"banks\": the table [memory.banks] is missing")]
    NoBanks,
    /// The bits that choose a memory bank are invalid.
    #[error(
        "memory.banks.address_bits: give 1 to 6 bits of an address from 6 to 39, all different \
         and below row_bit"
    )]
    BankBits,
    /// A translation buffer's sets are not a power of two.
    #[error(
        "{field} = {entries}: with {ways} ways it needs a number of sets that is a power of two"
    )]
    Sets {
        /// Name of the field.
        field: &'static str,
        /// Entries.
        entries: u64,
        /// Ways.
        ways: u64,
    },
    /// Lines that are too long for write streaming.
    #[error("[streaming]: lines have {0} bytes: it is modelled for lines of 64 bytes or less")]
    Streaming(u64),
    /// Opening a row takes longer than a whole access.
    #[error("memory.latency_ns = {0}: it includes precharge_ns and activate_ns, which take longer")]
    Latency(f64),
    /// A value is out of range.
    #[error("{field} = {value}: must be from {from} to {to}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// The value found.
        value: f64,
        /// Smallest valid value.
        from: f64,
        /// Largest valid value.
        to: f64,
    },
}

/// Positions in a board file's text.
struct Text<'a>(&'a str);

impl Text<'_> {
    fn error<T>(&self, at: &Spanned<T>, problem: BoardProblem) -> BoardError {
        let line = 1 + self.0[..at.span().start].matches('\n').count();
        BoardError::Value { line, problem }
    }
    /// Returns a whole number that must be in a range.
    fn range<T>(
        &self,
        field: &'static str,
        at: &Spanned<T>,
        value: u64,
        from: u64,
        to: u64,
    ) -> Result<u64, BoardError> {
        if (from..=to).contains(&value) {
            return Ok(value);
        }
        let problem = BoardProblem::Range {
            field,
            value: value as f64,
            from: from as f64,
            to: to as f64,
        };
        Err(self.error(at, problem))
    }
    /// Returns a number of the file, which must be in a range.
    fn number(
        &self,
        field: &'static str,
        at: &Spanned<u64>,
        from: u64,
        to: u64,
    ) -> Result<u64, BoardError> {
        self.range(field, at, *at.get_ref(), from, to)
    }
    /// Returns a number that must be in a range from the value that it has if it is left out.
    fn number_or(
        &self,
        field: &'static str,
        at: Option<&Spanned<u64>>,
        off: u64,
        to: u64,
    ) -> Result<u64, BoardError> {
        at.map_or(Ok(off), |at| self.number(field, at, off, to))
    }
    /// Returns a time in nanoseconds, which must be in a range, in cycles. A time that is not 0
    /// takes a cycle at least.
    fn cycles(
        &self,
        field: &'static str,
        at: &Spanned<f64>,
        from: f64,
        to: f64,
        clock_mhz: u64,
    ) -> Result<u64, BoardError> {
        let ticks = self.ticks(field, at, from, to, clock_mhz)?;
        Ok(((ticks + TICKS / 2) / TICKS).max(u64::from(ticks > 0)))
    }
    /// Returns a time in nanoseconds, which must be in a range, in ticks of the memory.
    fn ticks(
        &self,
        field: &'static str,
        at: &Spanned<f64>,
        from: f64,
        to: f64,
        clock_mhz: u64,
    ) -> Result<u64, BoardError> {
        let value = *at.get_ref();
        if !(from..=to).contains(&value) {
            return Err(self.error(
                at,
                BoardProblem::Range {
                    field,
                    value,
                    from,
                    to,
                },
            ));
        }
        let ticks = (value * (clock_mhz * TICKS) as f64 / 1000.0).round() as u64;
        Ok(ticks.max(u64::from(value > 0.0)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    core: CoreFile,
    l1i: LevelFile,
    l1d: LevelFile,
    l2: L2File,
    latency: LatencyFile,
    #[serde(default)]
    prefetch: Option<PrefetchFile>,
    #[serde(default)]
    streaming: Option<StreamingFile>,
    #[serde(default)]
    tlb: Option<TlbFile>,
    memory: MemoryFile,
    #[serde(default)]
    on_chip: Option<OnChipFile>,
    /// Which values are known, for those who ask what results owe to the others: no part of the
    /// model.
    #[serde(default, rename = "sensitivity")]
    _sensitivity: Option<serde::de::IgnoredAny>,
}

impl File {
    fn timing(&self, text: &Text<'_>, clock_mhz: u64) -> Result<Timing, BoardError> {
        let range = |field, value: &_, from, to| text.number(field, value, from, to);
        let cycles = |field, value, from, to| text.cycles(field, value, from, to, clock_mhz);
        let optional =
            |field, value: &Option<_>, off, to| text.number_or(field, value.as_ref(), off, to);
        let (core, latency, memory) = (&self.core, &self.latency, &self.memory);
        Ok(Timing {
            instruction: range(
                "core.cycles_per_instruction",
                &core.cycles_per_instruction,
                1,
                100,
            )?,
            l2: range("latency.l2", &latency.l2, 1, 10_000)?,
            snoop: optional("latency.snoop", &latency.snoop, 0, 10_000)?,
            dram: cycles("memory.latency_ns", &memory.latency_ns, 1.0, 10_000.0)?,
            dram_line: cycles("memory.line_ns", &memory.line_ns, 0.1, 100.0)?,
            device: cycles("latency.device_ns", &latency.device_ns, 1.0, 10_000.0)?,
            store_linefills: range("core.store_linefills", &core.store_linefills, 1, 64)? as usize,
            load_to_use: optional("core.load_to_use", &core.load_to_use, 1, 100)?,
            load_linefills: optional(
                "core.load_linefills",
                &core.load_linefills,
                0,
                MOST_LOADS as u64,
            )? as usize,
        })
    }

    /// Checks that the caches' lines have one size, and that write streaming is modelled for it.
    fn check_lines(&self, text: &Text<'_>, board: &Board) -> Result<(), BoardError> {
        let [l1i, l1d, l2] =
            [&board.l1i, &board.l1d, &board.l2].map(|level| level.geometry.line_bytes());
        if l1i != l2 || l1d != l2 {
            let odd = if l1i == l1d {
                &self.l2.line
            } else {
                &self.l1i.line
            };
            return Err(text.error(odd, BoardProblem::Lines(l1i, l1d, l2)));
        }
        match &self.streaming {
            Some(streaming) if l1d > 64 => {
                Err(text.error(&streaming.l1_lines, BoardProblem::Streaming(l1d)))
            }
            _ => Ok(()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CoreFile {
    clock_mhz: Spanned<u64>,
    cycles_per_instruction: Spanned<u64>,
    store_linefills: Spanned<u64>,
    #[serde(default)]
    load_linefills: Option<Spanned<u64>>,
    #[serde(default)]
    load_to_use: Option<Spanned<u64>>,
    quantum: Spanned<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefetchFile {
    data_lines: Spanned<u64>,
    data_streams: Spanned<u64>,
    data_strides: Spanned<u64>,
    data_reach: Spanned<u64>,
    instruction_lines: Spanned<u64>,
}

impl PrefetchFile {
    fn check(&self, text: &Text<'_>) -> Result<Prefetch, BoardError> {
        let range = |field, value: &_, from, to| text.number(field, value, from, to);
        Ok(Prefetch {
            data: DataPrefetch {
                lines: range(
                    "prefetch.data_lines",
                    &self.data_lines,
                    0,
                    MOST_LINES as u64,
                )? as usize,
                streams: range(
                    "prefetch.data_streams",
                    &self.data_streams,
                    1,
                    MOST_STREAMS as u64,
                )? as usize,
                strides: range("prefetch.data_strides", &self.data_strides, 1, 16)?,
                reach: range("prefetch.data_reach", &self.data_reach, 1, 64)?,
            },
            instructions: range("prefetch.instruction_lines", &self.instruction_lines, 0, 8)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamingFile {
    l1_lines: Spanned<u64>,
    l2_lines: Spanned<u64>,
}

impl StreamingFile {
    fn check(&self, text: &Text<'_>) -> Result<Streaming, BoardError> {
        Ok(Streaming {
            l1: text.number("streaming.l1_lines", &self.l1_lines, 0, 100_000)?,
            l2: text.number("streaming.l2_lines", &self.l2_lines, 0, 100_000)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlbFile {
    micro_entries: Spanned<u64>,
    main_entries: Spanned<u64>,
    main_ways: Spanned<u64>,
    walk_entries: Spanned<u64>,
    walk_ways: Spanned<u64>,
    ipa_entries: Spanned<u64>,
    ipa_ways: Spanned<u64>,
    main_cycles: Spanned<u64>,
    #[serde(default)]
    stage2_blocks: bool,
}

impl TlbFile {
    fn check(&self, text: &Text<'_>) -> Result<Option<TlbShape>, BoardError> {
        let range = |field, value: &_, from, to| text.number(field, value, from, to);
        let shape = |field, entries: &Spanned<u64>, ways_field, ways: &Spanned<u64>| {
            let (number, ways) = (
                range(field, entries, 1, 16_384)?,
                range(ways_field, ways, 1, 64)?,
            );
            let sets = number / ways;
            if !number.is_multiple_of(ways) || !sets.is_power_of_two() {
                return Err(text.error(
                    entries,
                    BoardProblem::Sets {
                        field,
                        entries: number,
                        ways,
                    },
                ));
            }
            Ok(Shape {
                sets: sets as usize,
                ways: ways as usize,
            })
        };
        let micro = range("tlb.micro_entries", &self.micro_entries, 0, 64)? as usize;
        let shape = TlbShape {
            micro,
            main: shape(
                "tlb.main_entries",
                &self.main_entries,
                "tlb.main_ways",
                &self.main_ways,
            )?,
            walk: shape(
                "tlb.walk_entries",
                &self.walk_entries,
                "tlb.walk_ways",
                &self.walk_ways,
            )?,
            ipa: shape(
                "tlb.ipa_entries",
                &self.ipa_entries,
                "tlb.ipa_ways",
                &self.ipa_ways,
            )?,
            main_cycles: range("tlb.main_cycles", &self.main_cycles, 0, 1000)?,
            blocks: self.stage2_blocks,
        };
        Ok((micro > 0).then_some(shape))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelFile {
    size: Spanned<String>,
    ways: Spanned<u64>,
    line: Spanned<u64>,
    replacement: Policy,
    #[serde(default)]
    seed: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LatencyFile {
    l2: Spanned<u64>,
    #[serde(default)]
    snoop: Option<Spanned<u64>>,
    device_ns: Spanned<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    queues: Spanned<Queues>,
    banks: Option<BanksFile>,
    latency_ns: Spanned<f64>,
    line_ns: Spanned<f64>,
    refresh_interval_ns: Spanned<f64>,
    refresh_ns: Spanned<f64>,
}

impl MemoryFile {
    /// Checks the banks, and returns them if they are modelled.
    fn banks(&self, text: &Text<'_>, clock_mhz: u64) -> Result<Option<BankTiming>, BoardError> {
        let are_modelled = *self.queues.get_ref() == Queues::Banks;
        let Some(banks) = &self.banks else {
            return match are_modelled {
                true => Err(text.error(&self.queues, BoardProblem::NoBanks)),
                false => Ok(None),
            };
        };
        let timing = banks.check(text, clock_mhz)?;
        let latency = *self.latency_ns.get_ref();
        if banks.precharge_ns.get_ref() + banks.activate_ns.get_ref() > latency {
            return Err(text.error(&self.latency_ns, BoardProblem::Latency(latency)));
        }
        Ok(are_modelled.then_some(timing))
    }

    fn refresh(&self, text: &Text<'_>, clock_mhz: u64) -> Result<Refresh, BoardError> {
        let cycles = |field, value, from, to| text.cycles(field, value, from, to, clock_mhz);
        Ok(Refresh {
            interval: cycles(
                "memory.refresh_interval_ns",
                &self.refresh_interval_ns,
                1000.0,
                10_000_000.0,
            )?,
            cycles: cycles("memory.refresh_ns", &self.refresh_ns, 0.0, 999.0)?,
            phase: 0,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OnChipFile {
    start: Spanned<u64>,
    bytes: Spanned<u64>,
    latency_ns: Spanned<f64>,
    line_ns: Spanned<f64>,
}

impl OnChipFile {
    fn check(&self, text: &Text<'_>, clock_mhz: u64) -> Result<OnChip, BoardError> {
        let cycles = |field, value, from, to| text.cycles(field, value, from, to, clock_mhz);
        let start = text.number("on_chip.start", &self.start, 0, (1 << 40) - 1)?;
        let bytes = text.number("on_chip.bytes", &self.bytes, 4096, 1 << 30)?;
        Ok(OnChip {
            start,
            end: start + bytes,
            latency: cycles("on_chip.latency_ns", &self.latency_ns, 1.0, 10_000.0)?,
            line: cycles("on_chip.line_ns", &self.line_ns, 0.1, 100.0)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BanksFile {
    address_bits: Spanned<Vec<u8>>,
    row_bit: Spanned<u64>,
    burst_ns: Spanned<f64>,
    activate_ns: Spanned<f64>,
    precharge_ns: Spanned<f64>,
    row_cycle_ns: Spanned<f64>,
    four_activations_ns: Spanned<f64>,
    turnaround_ns: Spanned<f64>,
    write_batch: Spanned<u64>,
}

impl BanksFile {
    fn check(&self, text: &Text<'_>, clock_mhz: u64) -> Result<BankTiming, BoardError> {
        let ticks =
            |field, value: &Spanned<f64>, least| text.ticks(field, value, least, 1000.0, clock_mhz);
        let row_bit = text.number("memory.banks.row_bit", &self.row_bit, 7, 39)?;
        let given = self.address_bits.get_ref();
        let mut sorted = given.clone();
        sorted.sort_unstable();
        sorted.dedup();
        let in_range = given
            .iter()
            .all(|bit| (6..row_bit).contains(&u64::from(*bit)));
        if !(1..=BANK_BITS).contains(&given.len()) || sorted.len() != given.len() || !in_range {
            return Err(text.error(&self.address_bits, BoardProblem::BankBits));
        }
        let mut bits = [0; BANK_BITS];
        bits[..given.len()].copy_from_slice(given);
        let batch = text.number("memory.banks.write_batch", &self.write_batch, 1, 64)?;
        Ok(BankTiming {
            bits,
            bank_bits: given.len(),
            row_bit: row_bit as u32,
            burst: ticks("memory.banks.burst_ns", &self.burst_ns, 0.1)?,
            activate: ticks("memory.banks.activate_ns", &self.activate_ns, 0.1)?,
            precharge: ticks("memory.banks.precharge_ns", &self.precharge_ns, 0.0)?,
            row_cycle: ticks("memory.banks.row_cycle_ns", &self.row_cycle_ns, 0.1)?,
            activation: ticks(
                "memory.banks.four_activations_ns",
                &self.four_activations_ns,
                0.4,
            )?
            .div_ceil(4),
            turnaround: ticks("memory.banks.turnaround_ns", &self.turnaround_ns, 0.0)?,
            writes: batch as usize,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct L2File {
    size: Spanned<String>,
    ways: Spanned<u64>,
    line: Spanned<u64>,
    replacement: Policy,
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    allocated: Option<Age>,
    #[serde(default)]
    given_back: Option<Age>,
    data: L2Data,
    #[serde(default)]
    lookup_cycles: Option<Spanned<u64>>,
    #[serde(default)]
    line_cycles: Option<Spanned<u64>>,
    #[serde(default)]
    outstanding_writes: Option<Spanned<u64>>,
    #[serde(default)]
    writes_wait_for_memory: bool,
}

impl L2File {
    fn level(&self, text: &Text<'_>) -> Result<Level, BoardError> {
        let file = LevelFile {
            size: self.size.clone(),
            ways: self.ways.clone(),
            line: self.line.clone(),
            replacement: self.replacement,
            seed: self.seed,
        };
        let mut level = file.check(text, "l2")?;
        let ages = &mut level.ages;
        ages.allocated = self.allocated.unwrap_or(ages.allocated);
        ages.given_back = self.given_back.unwrap_or(ages.given_back);
        Ok(level)
    }

    fn limits(&self, text: &Text<'_>) -> Result<L2Limits, BoardError> {
        let optional = |field, value: &Option<_>, to| text.number_or(field, value.as_ref(), 0, to);
        Ok(L2Limits {
            lookup: optional("l2.lookup_cycles", &self.lookup_cycles, 100)?,
            line: optional("l2.line_cycles", &self.line_cycles, 100)?,
            writes: optional(
                "l2.outstanding_writes",
                &self.outstanding_writes,
                MOST_WRITES as u64,
            )? as usize,
            writes_wait: self.writes_wait_for_memory,
        })
    }
}

impl LevelFile {
    fn check(&self, text: &Text<'_>, cache: &'static str) -> Result<Level, BoardError> {
        let size = self.size.get_ref();
        let bytes = || {
            let (digits, unit) = match size.as_bytes().last()? {
                b'K' => (&size[..size.len() - 1], 1 << 10),
                b'M' => (&size[..size.len() - 1], 1 << 20),
                _ => (size.as_str(), 1),
            };
            digits
                .parse::<u64>()
                .ok()?
                .checked_mul(unit)
                .filter(|bytes| *bytes <= 1 << 30)
        };
        let no_size = || {
            text.error(
                &self.size,
                BoardProblem::Size {
                    cache,
                    size: size.clone(),
                },
            )
        };
        let geometry = Geometry::new(
            bytes().ok_or_else(no_size)?,
            *self.ways.get_ref(),
            *self.line.get_ref(),
        );
        let geometry = geometry
            .and_then(Geometry::for_all_addresses)
            .map_err(|error| {
                let at = match error {
                    GeometryError::Line(_) => self.line.span(),
                    GeometryError::Ways(_) => self.ways.span(),
                    _ => self.size.span(),
                };
                text.error(
                    &Spanned::new(at, ()),
                    BoardProblem::Geometry { cache, error },
                )
            })?;
        let ways = *self.ways.get_ref();
        if self.replacement == Policy::TreePlru && !ways.is_power_of_two() {
            return Err(text.error(&self.ways, BoardProblem::Tree { cache, ways }));
        }
        Ok(Level {
            geometry,
            policy: self.replacement,
            seed: self.seed,
            ages: Ages::USUAL,
        })
    }
}

impl Board {
    /// Reads and validates a board file.
    pub fn load(path: &Path) -> Result<Self, BoardError> {
        let text = std::fs::read_to_string(path).map_err(|error| BoardError::Read {
            path: path.to_path_buf(),
            error,
        })?;
        Self::parse(&text)
    }

    /// Returns the board without five features: its cores wait for each line, prefetch none,
    /// allocate all lines that they write, are not coherent and translate for nothing. Its L2 has
    /// no limits.
    pub const fn simple(mut self) -> Self {
        self.prefetch = Prefetch::NONE;
        self.streaming = Streaming::NONE;
        self.timing.load_linefills = 0;
        self.timing.load_to_use = 1;
        self.timing.snoop = 0;
        self.l2_limits = L2Limits::NONE;
        self.tlb = None;
        self
    }

    /// Returns whether a core may continue while a line is on its way.
    pub const fn overlaps(&self) -> bool {
        self.prefetch.data.lines > 0
            || self.prefetch.instructions > 0
            || self.timing.load_linefills > 0
    }

    /// Sets the state that varies from run to run on a board: the victims of the pseudo-random
    /// policy (`seed` is added to each cache's own), and the time to the next memory refresh when
    /// the run starts.
    pub fn reseed(&mut self, seed: u64) {
        self.refresh.phase = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.refresh.interval;
        for level in [&mut self.l1i, &mut self.l1d, &mut self.l2] {
            level.seed = level.seed.wrapping_add(seed);
        }
    }

    /// Validates the text of a board file.
    pub fn parse(text: &str) -> Result<Self, BoardError> {
        let file: File = toml::from_str(text)?;
        let text = Text(text);
        let clock_mhz = text.number("core.clock_mhz", &file.core.clock_mhz, 100, 10_000)?;
        // Values out of their ranges first, then those that contradict each other.
        let timing = file.timing(&text, clock_mhz)?;
        let board = Self {
            clock_mhz,
            banks: file.memory.banks(&text, clock_mhz)?,
            quantum: text.number("core.quantum", &file.core.quantum, 10, 100_000)?,
            l2_data: file.l2.data,
            l2_limits: file.l2.limits(&text)?,
            l1i: file.l1i.check(&text, "l1i")?,
            l1d: file.l1d.check(&text, "l1d")?,
            l2: file.l2.level(&text)?,
            timing,
            prefetch: file
                .prefetch
                .as_ref()
                .map_or(Ok(Prefetch::NONE), |prefetch| prefetch.check(&text))?,
            streaming: file
                .streaming
                .as_ref()
                .map_or(Ok(Streaming::NONE), |streaming| streaming.check(&text))?,
            tlb: file.tlb.as_ref().map_or(Ok(None), |tlb| tlb.check(&text))?,
            refresh: file.memory.refresh(&text, clock_mhz)?,
            on_chip: file
                .on_chip
                .as_ref()
                .map(|chip| chip.check(&text, clock_mhz))
                .transpose()?,
            name: file.name.clone(),
        };
        file.check_lines(&text, &board)?;
        Ok(board)
    }

    /// Returns the shipped model at 1 GHz, whose cycles are nanoseconds.
    #[cfg(test)]
    pub(crate) fn in_nanoseconds() -> Self {
        Self::parse(&SHIPPED.replacen("clock_mhz = 1500", "clock_mhz = 1000", 1))
            .expect("the shipped board file is sound")
    }

    /// Returns the shipped model of the ZCU102.
    ///
    /// # Panics
    /// Never: a test parses the same text.
    pub fn zcu102() -> Self {
        Self::parse(SHIPPED).expect("the shipped board file is sound")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(old: &str, new: &str) -> String {
        assert!(SHIPPED.contains(old), "the shipped file has no `{old}`");
        Board::parse(&SHIPPED.replacen(old, new, 1))
            .expect_err("it is refused")
            .to_string()
    }

    #[test]
    fn the_shipped_board_has_16_colors() {
        let board = Board::zcu102();
        let l2 = board.l2.geometry;
        assert_eq!(l2.sets() * l2.line_bytes() / 4096, 16);
        assert_eq!(
            (board.l1i.geometry.ways(), board.l1d.geometry.ways()),
            (2, 4)
        );
    }

    #[test]
    fn wrong_values_are_named_with_their_line() {
        let at = |text: &str| {
            1 + SHIPPED
                .lines()
                .position(|line| line.starts_with(text))
                .expect("it is there")
        };
        let lines = |expected: &[(&str, &str, usize, &str)]| {
            for (old, new, line, message) in expected {
                assert_eq!(
                    refused(old, new),
                    format!("line {line}: {message}"),
                    "{new}"
                );
            }
        };
        lines(&[
            (
                "size = \"1M\"",
                "size = \"1000K\"",
                at("size = \"1M\""),
                "[l2]: 1024000 bytes / (16 ways x 64 bytes) is not a power of two: the set is \
                 chosen by bits of the address",
            ),
            (
                "size = \"1M\"",
                "size = \"1 MiB\"",
                at("size = \"1M\""),
                "[l2] size = \"1 MiB\": write a number of bytes, optionally with K or M, such as \
                 \"32K\"",
            ),
            (
                "ways = 16",
                "ways = 128",
                at("ways = 16"),
                "[l2]: 128 ways: at most 64 are supported",
            ),
            (
                "clock_mhz = 1500",
                "clock_mhz = 12",
                at("clock_mhz"),
                "core.clock_mhz = 12: must be from 100 to 10000",
            ),
            (
                "\nlatency_ns = ",
                "\nlatency_ns = 0.5 #",
                at("latency_ns = "),
                "memory.latency_ns = 0.5: must be from 1 to 10000",
            ),
            (
                "\nlatency_ns = ",
                "\nlatency_ns = 20 #",
                at("latency_ns = "),
                "memory.latency_ns = 20: it includes precharge_ns and activate_ns, which take \
                 longer",
            ),
            (
                "address_bits = ",
                "address_bits = [14, 14] #",
                at("address_bits = "),
                "memory.banks.address_bits: give 1 to 6 bits of an address from 6 to 39, all \
                 different and below row_bit",
            ),
            (
                "write_batch = ",
                "write_batch = 0 #",
                at("write_batch = "),
                "memory.banks.write_batch = 0: must be from 1 to 64",
            ),
            (
                "line_ns = ",
                "line_ns = nan #",
                at("line_ns = "),
                "memory.line_ns = NaN: must be from 0.1 to 100",
            ),
            (
                "\nl2 = ",
                "\nl2 = 0 #",
                at("l2 = "),
                "latency.l2 = 0: must be from 1 to 10000",
            ),
            (
                "store_linefills = ",
                "store_linefills = 0 #",
                at("store_linefills = "),
                "core.store_linefills = 0: must be from 1 to 64",
            ),
            (
                "data_streams = ",
                "data_streams = 5 #",
                at("data_streams"),
                "prefetch.data_streams = 5: must be from 1 to 4",
            ),
            (
                "\nmain_entries = ",
                "\nmain_entries = 500 #",
                at("main_entries"),
                "tlb.main_entries = 500: with 4 ways it needs a number of sets that is a power of \
                 two",
            ),
            (
                "\nmicro_entries = ",
                "\nmicro_entries = 65 #",
                at("micro_entries"),
                "tlb.micro_entries = 65: must be from 0 to 64",
            ),
            (
                "line_cycles = ",
                "line_cycles = 101 #",
                at("line_cycles"),
                "l2.line_cycles = 101: must be from 0 to 100",
            ),
            (
                "load_to_use = ",
                "load_to_use = 0 #",
                at("load_to_use"),
                "core.load_to_use = 0: must be from 1 to 100",
            ),
            (
                "\nbytes = ",
                "\nbytes = 64 #",
                at("bytes = "),
                "on_chip.bytes = 64: must be from 4096 to 1073741824",
            ),
            (
                "line = 64",
                "line = 32",
                at("line = 64"),
                "the lines of l1i, l1d and l2 are 32, 64 and 64 bytes: they must be equal",
            ),
        ]);
    }

    #[test]
    fn unknown_words_are_named_with_those_that_there_are() {
        let policy = refused("replacement = \"lru\"", "replacement = \"fifo\"");
        assert!(
            policy.contains(
                "unknown variant `fifo`, expected one of `lru`, `pseudo-random`, `round-robin`, \
                 `not-recently-used`, `random-not-recently-used`, `tree-plru`"
            ),
            "{policy}"
        );
        assert!(policy.contains("line"), "{policy}");
        let tree = SHIPPED
            .replacen("size = \"1M\"\nways = 16", "size = \"768K\"\nways = 12", 1)
            .replacen("replacement = \"lru\"", "replacement = \"tree-plru\"", 1);
        let tree = Board::parse(&tree).expect_err("12 ways have no tree");
        assert!(
            tree.to_string()
                .ends_with("[l2]: replacement \"tree-plru\" needs a power of two of ways, not 12"),
            "{tree}"
        );
        let data = refused("data = \"on-eviction\"", "data = \"always\"");
        assert!(
            data.contains("unknown variant `always`, expected `on-eviction` or `on-miss`"),
            "{data}"
        );
        let field = refused("[latency]", "[latency]\nspeed = 3");
        assert!(field.contains("unknown field `speed`"), "{field}");
    }

    #[test]
    fn another_core_is_another_file() {
        let text = include_str!("../../../configs/models/bcm2711.toml");
        let board = Board::parse(text).expect("it is valid");
        assert_eq!(
            (
                board.l1i.geometry.ways(),
                board.l1d.geometry.ways(),
                board.l1i.geometry.sets()
            ),
            (3, 2, 256)
        );
        assert_eq!(
            (board.l2_data, board.banks),
            (L2Data::OnMiss, None),
            "its banks are not known"
        );
        assert_eq!(
            (board.timing.dram, board.timing.dram_line),
            (210, 17),
            "140 and 11.5 ns at 1500 MHz"
        );
        let line = 1 + text
            .lines()
            .position(|line| line.starts_with("queues"))
            .expect("it is there");
        let error = Board::parse(&text.replacen("\"bandwidth\"", "\"banks\"", 1))
            .expect_err("it describes none");
        let expected =
            format!("line {line}: memory.queues = \"banks\": the table [memory.banks] is missing");
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn the_model_without_prefetcher_and_translation_differs_in_nothing_else() {
        let without = include_str!("../../../configs/models/zcu102-no-prefetch.toml");
        let board = Board::parse(without).expect("it is valid");
        assert_eq!((board.prefetch.data.lines, board.tlb), (0, None));
        let with = without
            .replace("data_lines = 0", "data_lines = 5")
            .replace("micro_entries = 0\n", "micro_entries = 10\n");
        let with = with.replace("zcu102-model-no-prefetch", "zcu102-model");
        let tables = |text: &str| text.parse::<toml::Table>().expect("TOML");
        assert_eq!(tables(&with), tables(SHIPPED));
    }

    #[test]
    fn the_model_whose_stage_2_has_blocks_differs_in_nothing_else() {
        let blocks = include_str!("../../../configs/models/zcu102-blocks.toml");
        assert!(
            Board::parse(blocks)
                .expect("it is valid")
                .tlb
                .expect("it has TLBs")
                .blocks
        );
        let pages = blocks
            .replace("stage2_blocks = true\n", "stage2_blocks = false\n")
            .replace("zcu102-model-blocks", "zcu102-model");
        let tables = |text: &str| text.parse::<toml::Table>().expect("TOML");
        assert_eq!(tables(&pages), tables(SHIPPED));
    }

    #[test]
    fn a_board_without_the_tables_of_mechanisms_has_simple_cores() {
        let mut text: toml::Table = SHIPPED.parse().expect("TOML");
        for table in ["prefetch", "streaming", "tlb"] {
            text.remove(table).expect("it is there");
        }
        let core = text
            .get_mut("core")
            .and_then(toml::Value::as_table_mut)
            .expect("it is there");
        for field in ["load_linefills", "load_to_use"] {
            core.remove(field).expect("it is there");
        }
        let latency = text
            .get_mut("latency")
            .and_then(toml::Value::as_table_mut)
            .expect("it is there");
        latency.remove("snoop").expect("it is there");
        let l2 = text
            .get_mut("l2")
            .and_then(toml::Value::as_table_mut)
            .expect("it is there");
        for field in [
            "lookup_cycles",
            "line_cycles",
            "outstanding_writes",
            "writes_wait_for_memory",
        ] {
            l2.remove(field).expect("it is there");
        }
        assert_eq!(
            Board::parse(&text.to_string()).expect("it is valid"),
            Board::zcu102().simple()
        );
        assert!(Board::zcu102().overlaps() && !Board::zcu102().simple().overlaps());
    }

    #[test]
    fn times_are_converted_by_the_clock_and_cycles_are_not() {
        let at = |mhz| {
            let clock = format!("clock_mhz = {mhz}");
            Board::parse(&SHIPPED.replacen("clock_mhz = 1500", &clock, 1)).expect("it is valid")
        };
        let (slow, fast) = (at(1000), at(2000));
        assert_eq!(
            (fast.timing.dram, fast.timing.device),
            (2 * slow.timing.dram, 2 * slow.timing.device)
        );
        assert_eq!(fast.refresh.interval, 2 * slow.refresh.interval);
        assert_eq!(
            (fast.timing.l2, fast.timing.instruction),
            (slow.timing.l2, slow.timing.instruction)
        );
        assert_eq!(at(100).timing.dram_line, 1, "no time becomes nothing");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Board::load(Path::new("/nowhere/board.toml"))
            .expect_err("there is none")
            .to_string();
        assert!(
            error.starts_with("cannot read /nowhere/board.toml: "),
            "{error}"
        );
    }
}
