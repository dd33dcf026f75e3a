//! Names of PMU events that are the same on every CPU (Arm ARM DDI 0487, D13.12 and appendix K3).
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Numbers and names of the events that the supported CPUs have, sorted.
const NAMES: &[(u16, &str)] = &[
    (0x00, "SW_INCR"),
    (0x01, "L1I_CACHE_REFILL"),
    (0x02, "L1I_TLB_REFILL"),
    (0x03, "L1D_CACHE_REFILL"),
    (0x04, "L1D_CACHE"),
    (0x05, "L1D_TLB_REFILL"),
    (0x06, "LD_RETIRED"),
    (0x07, "ST_RETIRED"),
    (0x08, "INST_RETIRED"),
    (0x09, "EXC_TAKEN"),
    (0x0a, "EXC_RETURN"),
    (0x0b, "CID_WRITE_RETIRED"),
    (0x0c, "PC_WRITE_RETIRED"),
    (0x0d, "BR_IMMED_RETIRED"),
    (0x0e, "BR_RETURN_RETIRED"),
    (0x0f, "UNALIGNED_LDST_RETIRED"),
    (0x10, "BR_MIS_PRED"),
    (0x11, "CPU_CYCLES"),
    (0x12, "BR_PRED"),
    (0x13, "MEM_ACCESS"),
    (0x14, "L1I_CACHE"),
    (0x15, "L1D_CACHE_WB"),
    (0x16, "L2D_CACHE"),
    (0x17, "L2D_CACHE_REFILL"),
    (0x18, "L2D_CACHE_WB"),
    (0x19, "BUS_ACCESS"),
    (0x1a, "MEMORY_ERROR"),
    (0x1b, "INST_SPEC"),
    (0x1c, "TTBR_WRITE_RETIRED"),
    (0x1d, "BUS_CYCLES"),
    (0x1e, "CHAIN"),
    (0x40, "L1D_CACHE_RD"),
    (0x41, "L1D_CACHE_WR"),
    (0x42, "L1D_CACHE_REFILL_RD"),
    (0x43, "L1D_CACHE_REFILL_WR"),
    (0x46, "L1D_CACHE_WB_VICTIM"),
    (0x47, "L1D_CACHE_WB_CLEAN"),
    (0x48, "L1D_CACHE_INVAL"),
    (0x4c, "L1D_TLB_REFILL_RD"),
    (0x4d, "L1D_TLB_REFILL_WR"),
    (0x50, "L2D_CACHE_RD"),
    (0x51, "L2D_CACHE_WR"),
    (0x52, "L2D_CACHE_REFILL_RD"),
    (0x53, "L2D_CACHE_REFILL_WR"),
    (0x56, "L2D_CACHE_WB_VICTIM"),
    (0x57, "L2D_CACHE_WB_CLEAN"),
    (0x58, "L2D_CACHE_INVAL"),
    (0x60, "BUS_ACCESS_LD"),
    (0x61, "BUS_ACCESS_ST"),
    (0x62, "BUS_ACCESS_SHARED"),
    (0x63, "BUS_ACCESS_NOT_SHARED"),
    (0x64, "BUS_ACCESS_NORMAL"),
    (0x65, "BUS_ACCESS_PERIPH"),
    (0x66, "MEM_ACCESS_RD"),
    (0x67, "MEM_ACCESS_WR"),
    (0x68, "UNALIGNED_LD_SPEC"),
    (0x69, "UNALIGNED_ST_SPEC"),
    (0x6a, "UNALIGNED_LDST_SPEC"),
    (0x6c, "LDREX_SPEC"),
    (0x6d, "STREX_PASS_SPEC"),
    (0x6e, "STREX_FAIL_SPEC"),
    (0x70, "LD_SPEC"),
    (0x71, "ST_SPEC"),
    (0x72, "LDST_SPEC"),
    (0x73, "DP_SPEC"),
    (0x74, "ASE_SPEC"),
    (0x75, "VFP_SPEC"),
    (0x76, "PC_WRITE_SPEC"),
    (0x77, "CRYPTO_SPEC"),
    (0x78, "BR_IMMED_SPEC"),
    (0x79, "BR_RETURN_SPEC"),
    (0x7a, "BR_INDIRECT_SPEC"),
    (0x7c, "ISB_SPEC"),
    (0x7d, "DSB_SPEC"),
    (0x7e, "DMB_SPEC"),
    (0x81, "EXC_UNDEF"),
    (0x82, "EXC_SVC"),
    (0x83, "EXC_PABORT"),
    (0x84, "EXC_DABORT"),
    (0x86, "EXC_IRQ"),
    (0x87, "EXC_FIQ"),
    (0x88, "EXC_SMC"),
    (0x8a, "EXC_HVC"),
    (0x8b, "EXC_TRAP_PABORT"),
    (0x8c, "EXC_TRAP_DABORT"),
    (0x8d, "EXC_TRAP_OTHER"),
    (0x8e, "EXC_TRAP_IRQ"),
    (0x8f, "EXC_TRAP_FIQ"),
    (0x90, "RC_LD_SPEC"),
    (0x91, "RC_ST_SPEC"),
];

/// Returns an event's architectural name, or its number as `0x00c9` if only its CPU's manual has a name for it.
pub fn name(event: u16) -> String {
    let known = NAMES.iter().find(|(number, _)| *number == event);
    known.map_or_else(|| format!("{event:#06x}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names are those of the configurations.
    #[test]
    fn names_are_those_of_the_event_tables() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/events/arm64/common-and-microarch.json");
        let text = std::fs::read_to_string(file).expect("the events of the architecture are there");
        let mut compared = 0;
        let value = |line: &str, key: &str| {
            let value = line.trim().strip_prefix(key)?.trim_matches(|letter| "\": ,".contains(letter));
            Some(value.to_owned())
        };
        let named = text.lines().filter_map(|line| value(line, "\"EventName\""));
        let numbered = text.lines().filter_map(|line| value(line, "\"EventCode\""));
        for (number, table_name) in numbered.zip(named) {
            let number = u16::from_str_radix(number.trim_start_matches("0x"), 16).expect("a number");
            assert_eq!(name(number), table_name);
            compared += 1;
        }
        assert!(compared > 40, "{compared} events compared");
        assert_eq!((name(0xc9), name(0x3f)), ("0x00c9".to_owned(), "0x003f".to_owned()));
    }
}
