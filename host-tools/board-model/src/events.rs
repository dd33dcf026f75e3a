//! The events that a core's performance monitors count, with the Cortex-A53's meaning.
// SPDX-License-Identifier: MIT OR Apache-2.0

use serde::{Deserialize, Serialize};

/// Raw counts of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Executed instructions. Those of a running block are counted at its start, and taken back if
    /// it is left.
    pub instructions: u64,
    /// Load instructions, whatever they load.
    pub loads: u64,
    /// Store instructions, and DC ZVA. A store-exclusive that fails is not counted.
    pub stores: u64,
    /// Their accesses: one for each 16 bytes that an instruction loads or stores.
    #[serde(default)]
    pub accesses: u64,
    /// Accesses to devices, which bypass the caches.
    pub device: u64,
    /// Those of them that are stores.
    pub device_stores: u64,
    /// Accesses to pages that stage 2 makes non-cacheable.
    pub noncacheable: u64,
    /// Additional parts of accesses: one for each line boundary that is crossed.
    pub crossings: u64,
    /// Instruction cache lookups: one for each line that execution reaches.
    pub fetches: u64,
    /// Lines brought into the L1 instruction cache, by prefetching too.
    pub l1i_refills: u64,
    /// Lines brought into the L1 data cache because an access missed.
    pub l1d_refills: u64,
    /// Lines that a prefetcher brought into the L1 data cache.
    #[serde(default)]
    pub prefetches: u64,
    /// Lines that a core wrote as a whole past its L1.
    #[serde(default)]
    pub streamed: u64,
    /// Lines that came from another core's L1 data cache.
    #[serde(default)]
    pub snoops: u64,
    /// Translations of instructions that their micro TLB did not have.
    #[serde(default)]
    pub l1i_tlb_refills: u64,
    /// Translations of loads and stores that their micro TLB did not have.
    #[serde(default)]
    pub l1d_tlb_refills: u64,
    /// Those that the main TLB did not have either.
    #[serde(default)]
    pub walks: u64,
    /// Descriptors that were read for them.
    #[serde(default)]
    pub walk_reads: u64,
    /// Lines of tables brought into the L1 data cache.
    #[serde(default)]
    pub walk_refills: u64,
    /// Dirty lines written from L1 to L2.
    pub l1d_writebacks: u64,
    /// Lines that an L1 data cache gave to the L2: the dirty ones and, if the L2 takes data on
    /// eviction, the clean ones.
    #[serde(default)]
    pub l1d_victims: u64,
    /// Lines that an L1 requested from the L2.
    pub l2_fills: u64,
    /// Lines brought from memory because they were not in the L2.
    pub l2_refills: u64,
    /// Lines that came from L1 as a whole and were not in the L2.
    pub l2_allocations: u64,
    /// Dirty lines written from L2 to memory.
    pub l2_writebacks: u64,
    /// 16-byte beats from memory on the bus: those of filled lines, and one for each load from a
    /// non-cacheable page.
    pub bus_reads: u64,
    /// 16-byte beats to memory on the bus: those of written lines, and one for each store to a
    /// non-cacheable page.
    pub bus_writes: u64,
}

/// Applies an operation to each count.
macro_rules! each {
    ($one:ident, $other:ident, $operator:ident) => {
        Self {
            instructions: $one.instructions.$operator($other.instructions),
            accesses: $one.accesses.$operator($other.accesses),
            loads: $one.loads.$operator($other.loads),
            stores: $one.stores.$operator($other.stores),
            device: $one.device.$operator($other.device),
            device_stores: $one.device_stores.$operator($other.device_stores),
            noncacheable: $one.noncacheable.$operator($other.noncacheable),
            crossings: $one.crossings.$operator($other.crossings),
            fetches: $one.fetches.$operator($other.fetches),
            l1i_refills: $one.l1i_refills.$operator($other.l1i_refills),
            l1d_refills: $one.l1d_refills.$operator($other.l1d_refills),
            prefetches: $one.prefetches.$operator($other.prefetches),
            snoops: $one.snoops.$operator($other.snoops),
            streamed: $one.streamed.$operator($other.streamed),
            l1i_tlb_refills: $one.l1i_tlb_refills.$operator($other.l1i_tlb_refills),
            l1d_tlb_refills: $one.l1d_tlb_refills.$operator($other.l1d_tlb_refills),
            walks: $one.walks.$operator($other.walks),
            walk_reads: $one.walk_reads.$operator($other.walk_reads),
            walk_refills: $one.walk_refills.$operator($other.walk_refills),
            l1d_victims: $one.l1d_victims.$operator($other.l1d_victims),
            l1d_writebacks: $one.l1d_writebacks.$operator($other.l1d_writebacks),
            l2_fills: $one.l2_fills.$operator($other.l2_fills),
            l2_refills: $one.l2_refills.$operator($other.l2_refills),
            l2_allocations: $one.l2_allocations.$operator($other.l2_allocations),
            l2_writebacks: $one.l2_writebacks.$operator($other.l2_writebacks),
            bus_reads: $one.bus_reads.$operator($other.bus_reads),
            bus_writes: $one.bus_writes.$operator($other.bus_writes),
        }
    };
}

impl Counts {
    /// Returns the counts since `before`, modulo 2^64: less than zero if instructions were taken
    /// back.
    pub const fn since(&self, before: &Self) -> Self {
        each!(self, before, wrapping_sub)
    }
    /// Returns the sum of both.
    pub const fn and(&self, more: &Self) -> Self {
        each!(self, more, wrapping_add)
    }
}

macro_rules! events {
    ($($number:literal $name:ident $meaning:literal;)*) => {
        /// An event of the Cortex-A53 that is modelled.
        #[allow(non_camel_case_types, reason = "the architecture's names")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $(#[doc = $meaning] $name = $number,)*
        }
        impl Event {
            /// All modelled events, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Returns the architecture's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
            /// Returns the event with this number, if it is modelled.
            pub const fn from_number(number: u64) -> Option<Self> {
                match number { $($number => Some(Self::$name),)* _ => None }
            }
        }
    };
}

events! {
    0x01 L1I_CACHE_REFILL "Lines brought into the L1 instruction cache";
    0x02 L1I_TLB_REFILL "Translations of instructions that the micro TLB did not have";
    0x03 L1D_CACHE_REFILL "Lines brought into the L1 data cache because an access missed";
    0x04 L1D_CACHE "Accesses to the L1 data cache of up to 16 bytes; one that crosses a line is two";
    0x05 L1D_TLB_REFILL "Translations of loads and stores that the micro TLB did not have";
    0x06 LD_RETIRED "Load instructions";
    0x07 ST_RETIRED "Store instructions";
    0x08 INST_RETIRED "Instructions";
    0x11 CPU_CYCLES "Cycles of the core's clock";
    0x13 MEM_ACCESS "Data accesses of the core, to devices and non-cacheable memory too";
    0x14 L1I_CACHE "Lines of instructions that execution reached";
    0x15 L1D_CACHE_WB "Dirty lines written back from the L1 data cache";
    0x16 L2D_CACHE "Accesses to the L2: lines that an L1 asked for, and lines that an L1 data cache or a core gave to it";
    0x17 L2D_CACHE_REFILL "Lines that were not in the L2, for data and for instructions";
    0x18 L2D_CACHE_WB "Dirty lines written back from the L2";
    0x19 BUS_ACCESS "16-byte beats to and from memory, and accesses to devices";
    0x60 BUS_ACCESS_LD "16-byte beats from memory, and loads from devices";
    0x61 BUS_ACCESS_ST "16-byte beats to memory, and stores to devices";
    0xc2 PREFETCH_LINEFILL "Lines that the prefetcher brought into the L1 data cache";
}

impl Event {
    /// Returns the event's count.
    pub const fn count(self, counts: &Counts, cycles: u64) -> u64 {
        let cached = counts.accesses + counts.crossings - counts.device - counts.noncacheable;
        match self {
            Self::L1I_CACHE_REFILL => counts.l1i_refills,
            Self::L1D_CACHE_REFILL => counts.l1d_refills,
            Self::L1I_TLB_REFILL => counts.l1i_tlb_refills,
            Self::L1D_TLB_REFILL => counts.l1d_tlb_refills,
            Self::L1D_CACHE => cached,
            Self::LD_RETIRED => counts.loads,
            Self::ST_RETIRED => counts.stores,
            Self::INST_RETIRED => counts.instructions,
            Self::CPU_CYCLES => cycles,
            Self::MEM_ACCESS => cached + counts.device + counts.noncacheable,
            Self::L1I_CACHE => counts.fetches,
            Self::L1D_CACHE_WB => counts.l1d_writebacks,
            Self::L2D_CACHE => counts.l2_fills + counts.l1d_victims + counts.streamed,
            Self::L2D_CACHE_REFILL => counts.l2_refills,
            Self::L2D_CACHE_WB => counts.l2_writebacks,
            Self::BUS_ACCESS => counts.bus_reads + counts.bus_writes + counts.device,
            Self::BUS_ACCESS_LD => counts.bus_reads + counts.device - counts.device_stores,
            Self::BUS_ACCESS_ST => counts.bus_writes + counts.device_stores,
            Self::PREFETCH_LINEFILL => counts.prefetches,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_belong_together() {
        for event in Event::ALL {
            assert_eq!(Event::from_number(*event as u64), Some(*event));
        }
        assert_eq!(
            Event::from_number(0x17).map(Event::name),
            Some("L2D_CACHE_REFILL")
        );
        assert_eq!(Event::from_number(0x09), None);
    }

    #[test]
    fn an_access_to_a_device_is_one_on_the_bus() {
        let counts = Counts {
            bus_reads: 4,
            bus_writes: 8,
            device: 3,
            device_stores: 1,
            accesses: 3,
            ..Counts::default()
        };
        let of = |event: Event| event.count(&counts, 0);
        assert_eq!(
            [
                Event::BUS_ACCESS,
                Event::BUS_ACCESS_LD,
                Event::BUS_ACCESS_ST
            ]
            .map(of),
            [15, 6, 9]
        );
    }
}
