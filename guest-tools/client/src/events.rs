//! Names of events: those of the CPU's table, of PAPI, and of Linux's perf.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_epapi::cpu::{CPUS, Cpu};
use cloison_epapi::{Error, EventId, query, terms};

/// What perf's own names of events are on Arm's CPUs (Linux, drivers/perf/arm_pmuv3.c,
/// `armv8_pmuv3_perf_map` and `armv8_pmuv3_perf_cache_map`).
const PERF: &[(&str, &str)] = &[
    ("cycles", "CPU_CYCLES"),
    ("cpu-cycles", "CPU_CYCLES"),
    ("instructions", "INST_RETIRED"),
    ("cache-references", "L1D_CACHE"),
    ("cache-misses", "L1D_CACHE_REFILL"),
    ("branch-misses", "BR_MIS_PRED"),
    ("bus-cycles", "BUS_CYCLES"),
    ("L1-dcache-loads", "L1D_CACHE"),
    ("L1-dcache-load-misses", "L1D_CACHE_REFILL"),
    ("L1-icache-loads", "L1I_CACHE"),
    ("L1-icache-load-misses", "L1I_CACHE_REFILL"),
    ("dTLB-load-misses", "L1D_TLB_REFILL"),
    ("iTLB-load-misses", "L1I_TLB_REFILL"),
    ("branch-loads", "BR_PRED"),
    ("branch-load-misses", "BR_MIS_PRED"),
];

/// Returns the name that an event has on every CPU that knows it, or its number as `0x00c9` if only
/// one's manual has a name.
pub fn name(event: EventId) -> String {
    let known = |cpu: &'static Cpu| cpu.native(event).map(|native| native.name);
    let mut names = CPUS.iter().filter_map(known);
    match names.next() {
        Some(name) if event < SPECIFIC && names.all(|other| other == name) => name.to_owned(),
        _ => format!("{:#06x}", event.0),
    }
}

/// From this number on, events are each CPU's own (Arm ARM, D13.12).
const SPECIFIC: EventId = EventId(0xc0);

/// Returns an event's name, or its number as `0x00c9` if the CPU's table has none.
pub fn name_on(cpu: Option<&Cpu>, event: EventId) -> String {
    let known = cpu.and_then(|cpu| cpu.native(event));
    known.map_or_else(
        || format!("{:#06x}", event.0),
        |known| known.name.to_owned(),
    )
}

/// Returns the code of an event of a CPU: a name of its table, of PAPI or of perf, in any case, or
/// a number, `r17` or `0x17`.
///
/// # Errors
/// [`Error::NoEvent`] if there is no such event.
pub fn code(cpu: &Cpu, text: &str) -> Result<i32, Error> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix('r'));
    if let Some(number) = digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
        return cpu
            .native(EventId(number))
            .map(|event| terms::native_code(event.id))
            .ok_or(Error::NoEvent);
    }
    let perf = PERF
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(text));
    query::code_of(cpu, perf.map_or(text, |(_, event)| event))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_epapi::preset::PAPI_NATIVE_MASK;

    #[test]
    fn events_have_names_and_numbers() {
        let cpu = CPUS.iter().find(|cpu| cpu.name == "cortex-a53");
        assert_eq!(
            (
                name_on(cpu, EventId(0x17)),
                name_on(cpu, EventId(0xfff)),
                name_on(None, EventId(0x17))
            ),
            (
                "L2D_CACHE_REFILL".to_owned(),
                "0x0fff".to_owned(),
                "0x0017".to_owned()
            )
        );
        let cpu = cpu.expect("a table");
        for text in [
            "L2D_CACHE_REFILL",
            "l2d_cache_refill",
            "arm_ac53::L2D_CACHE_REFILL",
            "r17",
            "0x17",
            "0x0017",
        ] {
            assert_eq!(code(cpu, text), Ok(PAPI_NATIVE_MASK | 0x17), "{text}");
        }
        assert_eq!(
            code(cpu, "PAPI_TOT_INS"),
            Ok(cloison_epapi::preset::PAPI_TOT_INS)
        );
        for text in [
            "",
            "r",
            "r1f2",
            "0x",
            "nonsense",
            "arm_ac72::INST_RETIRED",
            "ref-cycles",
        ] {
            assert_eq!(code(cpu, text), Err(Error::NoEvent), "{text}");
        }
    }

    /// What perf names is in every table; the Cortex-A72 counts the same events.
    #[test]
    fn every_name_of_perf_is_an_event_of_every_cpu() {
        for cpu in CPUS {
            for (name, event) in PERF {
                assert!(code(cpu, name).is_ok(), "{} has no {event}", cpu.name);
            }
        }
    }
}
