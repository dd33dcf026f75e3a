//! The CPU: its name, coherency, last-level cache, counter of time, and firmware.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::{barrier, cpu_controls, take_pending};
use crate::machine::registers::{
    CCSIDR_EL1, CLIDR_EL1, CNTFRQ_EL0, CSSELR_EL1, MIDR_EL1, Readable, Writeable,
};
use crate::machine::time;
use crate::power;
use crate::report::{Report, address};
use alloc::format;
use alloc::string::{String, ToString};
use cloison_abi::{eemi, psci};
use cloison_formats::color::CacheGeometry;
use cloison_hello::claims::{Claims, Firmware, Place};
use cloison_hello::line::Verdict;

/// CPUECTLR_EL1.SMPEN: the core takes part in coherency.
const SMPEN: u64 = 1 << 6;
/// MIDR_EL1.Implementer of Arm Limited.
const ARM: u64 = 0x41;
/// Part numbers of the Cortex-A53, A57 and A72, which have these registers.
const WITH_CONTROLS: [u64; 3] = [0xd03, 0xd07, 0xd08];
/// The frequencies of the system counter that the hypervisor takes, in hertz.
const FREQUENCIES: core::ops::RangeInclusive<u64> = 1_000_000..=4_000_000_000;

/// Returns this core's MIDR_EL1 without variant and revision.
pub fn model() -> u64 {
    let fields = MIDR_EL1::Variant.val(0xf) + MIDR_EL1::Revision.val(0xf);
    MIDR_EL1.get() & !fields.value & 0xffff_ffff
}

/// Checks the CPU.
pub fn check(report: &mut Report, claims: &Claims) {
    report.compare("level", 2, Some(2), "CurrentEL");
    let known = claims.cpus.iter().find(|cpu| cpu.midr == model());
    let name = known.map_or_else(|| address(model()), |cpu| cpu.name.clone());
    let remark = format!("MIDR_EL1 {:#x}", MIDR_EL1.get());
    report.compare("cpu", &claims.cpu, Some(name), remark);
    coherency(report);
    let error = take_pending();
    let found = error.map_or_else(|| "none".into(), |fault| address(fault.syndrome));
    report.compare(
        "serror",
        "none",
        Some(found),
        "an SError that the firmware left",
    );
    cache(report, claims);
    time(report);
    firmware(report, claims);
    eemi(report, claims);
}

/// Checks that the firmware has turned on coherency. An emulator has no such registers, and shows 0.
fn coherency(report: &mut Report) {
    let (implementer, part) = (
        MIDR_EL1.read(MIDR_EL1::Implementer),
        MIDR_EL1.read(MIDR_EL1::PartNum),
    );
    if implementer != ARM || !WITH_CONTROLS.contains(&part) {
        return report.untested("coherency", "on", "no register of this CPU shows it");
    }
    match cpu_controls() {
        Ok([0, 0]) => report.untested("coherency", "on", "an emulator has no CPUECTLR_EL1.SMPEN"),
        Ok([_, controls]) => {
            let found = if controls & SMPEN == 0 { "off" } else { "on" };
            report.compare("coherency", "on", Some(found), "CPUECTLR_EL1.SMPEN");
        }
        Err(_) => report.untested("coherency", "on", "CPUECTLR_EL1 cannot be read"),
    }
}

/// Checks the geometry of the last-level cache, as the hypervisor does.
fn cache(report: &mut Report, claims: &Claims) {
    use CLIDR_EL1::{Ctype1, Ctype2, Ctype3, Ctype4, Ctype5, Ctype6, Ctype7};
    let kinds =
        [Ctype1, Ctype2, Ctype3, Ctype4, Ctype5, Ctype6, Ctype7].map(|kind| CLIDR_EL1.read(kind));
    let level = CacheGeometry::last_level(kinds);
    CSSELR_EL1.write(CSSELR_EL1::Level.val(level));
    barrier();
    let found = CacheGeometry::from_ccsidr(
        CCSIDR_EL1.read(CCSIDR_EL1::LineSize),
        CCSIDR_EL1.read(CCSIDR_EL1::AssociativityWithoutCCIDX),
        CCSIDR_EL1.read(CCSIDR_EL1::NumSetsWithoutCCIDX),
    );
    let llc = claims.board.llc;
    let remark = format!("CCSIDR_EL1 of level {}", level + 1);
    report.compare("cache.size", llc.size, Some(found.size), &remark);
    report.compare("cache.ways", llc.ways, Some(found.ways), &remark);
    report.compare("cache.line", llc.line, Some(found.line), &remark);
    let colors = |cache: CacheGeometry| {
        cache
            .colors()
            .map_or_else(|_| "none".into(), |n| n.to_string())
    };
    let (expected, found): (String, String) = (colors(llc), colors(found));
    report.compare(
        "colors",
        expected,
        Some(found),
        "they follow from the cache",
    );
}

/// Checks the system counter.
fn time(report: &mut Report) {
    let hz = CNTFRQ_EL0.get();
    let expected = format!("{}..{}", FREQUENCIES.start(), FREQUENCIES.end());
    let verdict = if FREQUENCIES.contains(&hz) {
        Verdict::Right
    } else {
        Verdict::Wrong
    };
    report.line(
        "timer.frequency",
        expected,
        hz,
        verdict,
        "CNTFRQ_EL0; what Cloison takes",
    );
    let start = time::now();
    let advances = time::wait_until(10, || time::now() > start);
    let found = if advances { "yes" } else { "no" };
    report.compare("timer.advances", "yes", Some(found), "CNTPCT_EL0");
}

/// Checks PSCI, where the board file relies on it.
fn firmware(report: &mut Report, claims: &Claims) {
    let board = &claims.board;
    if board.spin_table.is_some() && board.power_off.is_some() {
        return report.untested(
            "psci",
            "-",
            "the file does not need it, and a call may hang",
        );
    }
    let remark = "PSCI_VERSION";
    match power::call(psci::VERSION, 0, 0, 0) {
        Ok(version) if version > 0 => {
            let found = format!("{}.{}", version >> 16 & 0x7fff, version & 0xffff);
            report.line("psci", "yes", found, Verdict::Right, remark);
        }
        Ok(code) => report.line("psci", "yes", code, Verdict::Wrong, remark),
        Err(_) => report.line(
            "psci",
            "yes",
            "-",
            Verdict::Wrong,
            "SMC is undefined: no EL3",
        ),
    }
}

/// Checks that the firmware answers calls of EEMI, where the board file says so.
fn eemi(report: &mut Report, claims: &Claims) {
    if claims.firmware == Firmware::None {
        return;
    }
    let (key, remark) = ("firmware.eemi", "GET_API_VERSION");
    match power::call(eemi::CALLS | eemi::GET_API_VERSION, 0, 0, 0) {
        // The lower half is the state, the upper one the version (UG1200).
        Ok(answer) if answer >= 0 && answer as u32 == 0 => {
            let version = answer >> 32;
            let remark = format!("{remark}: {}.{}", version >> 16, version & 0xffff);
            report.compare(key, true, Some(true), remark);
        }
        _ if claims.place == Place::Emulator => {
            report.untested(key, true, "QEMU has no firmware of the board");
        }
        _ => report.compare(key, true, Some(false), remark),
    }
}
