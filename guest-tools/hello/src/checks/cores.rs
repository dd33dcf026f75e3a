//! The cores: each is started, and answers with its MPIDR, its counters and its overflow interrupt.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::interrupt::Gic;
use crate::checks::{cpu, pmu};
use crate::machine::access::{clean, write64};
use crate::machine::loaded::{CORES, STARTING, secondary_entry};
use crate::machine::registers::affinity;
use crate::machine::time;
use crate::power;
use crate::report::{Report, address};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cloison_abi::psci;
use cloison_hello::claims::Claims;
use cloison_hello::line::Verdict;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Milliseconds within which a core answers.
const ANSWER_MS: u64 = 1000;
/// Affinities that are tried where a core does not start: clusters, and cores of each.
const CLUSTERS: u64 = 4;
const CORES_OF_CLUSTER: u64 = 8;
/// What AFFINITY_INFO returns of a core that is off.
const OFF: i64 = 1;

/// What a core says of itself.
#[repr(C, align(64))]
struct Answer {
    /// 0 until the rest is there.
    is_there: AtomicU64,
    affinity: AtomicU64,
    /// MIDR_EL1 without variant and revision.
    model: AtomicU64,
    counters: AtomicU64,
    /// Its overflow interrupt plus one, 0 if there is none.
    interrupt: AtomicU64,
}

static ANSWERS: [Answer; CORES] = [const {
    Answer {
        is_there: AtomicU64::new(0),
        affinity: AtomicU64::new(0),
        model: AtomicU64::new(0),
        counters: AtomicU64::new(0),
        interrupt: AtomicU64::new(0),
    }
}; CORES];

/// Answers for this core.
pub fn answer(core: usize, gic: &Gic) {
    pmu::init();
    let answer = &ANSWERS[core % CORES];
    answer.affinity.store(affinity(), Relaxed);
    answer.model.store(cpu::model(), Relaxed);
    answer.counters.store(pmu::counters().into(), Relaxed);
    let interrupt = pmu::overflow_interrupt(gic).map_or(0, |irq| u64::from(irq) + 1);
    answer.interrupt.store(interrupt, Relaxed);
    // Cleaned on both sides: the firmware may have left this core incoherent.
    clean(answer);
    answer.is_there.store(1, Relaxed);
    clean(answer);
}

/// Starts the core `core` of the board file, which has this affinity. Returns its answer.
///
/// # Errors
///
/// Why it does not answer.
fn start(claims: &Claims, core: usize, affinity: u64) -> Result<&'static Answer, String> {
    STARTING.store(core as u64, Relaxed);
    clean(&STARTING);
    let entry = secondary_entry();
    if let Some(words) = &claims.board.spin_table {
        let word = words.get(core).map_or(0, |word| word.0);
        write64(word, entry).map_err(|_| format!("nothing answers at {word:#x}, its word"))?;
        aarch64_cpu::asm::sev();
    } else {
        match power::call(psci::CPU_ON_64, affinity, entry, core as u64) {
            Ok(psci::SUCCESS) => (),
            Ok(code) => return Err(format!("CPU_ON says {code}")),
            Err(_) => return Err("SMC is undefined".into()),
        }
    }
    let answer = &ANSWERS[core % CORES];
    let has_answered = time::wait_until(ANSWER_MS, || {
        clean(answer);
        answer.is_there.load(Relaxed) != 0
    });
    has_answered
        .then_some(answer)
        .ok_or_else(|| "it was started, and does not come up".into())
}

/// Returns the affinities of cores that the board file does not have: this one's, and those that are
/// off, by PSCI.
fn others(claims: &Claims) -> Vec<u64> {
    let is_new = |affinity: &u64| !claims.board.cores.contains(affinity);
    let mut found: Vec<u64> = [affinity()].into_iter().filter(is_new).collect();
    if claims.board.spin_table.is_some() {
        return found;
    }
    let all = (0..CLUSTERS)
        .flat_map(|cluster| (0..CORES_OF_CLUSTER).map(move |core| cluster << 8 | core));
    let is_off = |other: &u64| power::call(psci::AFFINITY_INFO_64, *other, 0, 0) == Ok(OFF);
    found.extend(all.filter(is_new).filter(is_off));
    found
}

/// Returns the number of this core in the board file, or 0.
pub fn own_number(claims: &Claims) -> usize {
    let own = affinity();
    let number = claims.board.cores.iter().position(|core| *core == own);
    number.unwrap_or(0)
}

/// Starts and checks the other cores.
pub fn check(report: &mut Report, claims: &Claims) {
    let mut others = others(claims).into_iter();
    for (core, &claimed) in claims.board.cores.iter().enumerate() {
        let key = format!("cores[{core}]");
        if claimed == affinity() {
            report.compare(key, address(claimed), Some(address(claimed)), "this core");
            continue;
        }
        match start(claims, core, claimed) {
            Ok(answer) => {
                let found = answer.affinity.load(Relaxed);
                report.compare(key, address(claimed), Some(address(found)), "it answers");
                check_answer(report, claims, core, answer);
            }
            Err(why) => {
                let found = others.next();
                let remark = match found {
                    Some(_) => format!("{why}; there is this one, which is not listed"),
                    None => why,
                };
                report.compare(key, address(claimed), found.map(address), remark);
            }
        }
    }
    let (own_one, more): (Vec<u64>, Vec<u64>) = others.partition(|core| *core == affinity());
    if !own_one.is_empty() {
        let remark = "the first core is not listed";
        report.line("cores", "-", address(affinity()), Verdict::Wrong, remark);
    }
    let more: Vec<String> = more.into_iter().map(address).collect();
    if !more.is_empty() {
        report.note(
            "cores.more",
            more.join(","),
            "cores that the file does not list",
        );
    }
}

/// Checks that a core is like the first one.
fn check_answer(report: &mut Report, claims: &Claims, core: usize, answer: &Answer) {
    let model = answer.model.load(Relaxed);
    if model != cpu::model() {
        let key = format!("cores[{core}].cpu");
        report.compare(
            key,
            address(cpu::model()),
            Some(address(model)),
            "another CPU",
        );
    }
    let counters = answer.counters.load(Relaxed);
    if counters != u64::from(pmu::counters()) {
        let key = format!("cores[{core}].counters");
        report.compare(
            key,
            pmu::counters(),
            Some(counters),
            "PMCR_EL0.N; the first core's",
        );
    }
    let interrupt = answer.interrupt.load(Relaxed).checked_sub(1);
    pmu::interrupt(report, claims, core, interrupt.map(|irq| irq as u32));
}
