//! Cacheability check: two vCPUs continuously write and check pages while those pages become
//! cacheable and non-cacheable.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_benchmarks::random::Random;
use cloison_guest::abi::{Call, CallError, lease, list, map};
use cloison_guest::ram::{LINE_WORDS, PAGE, Ram};
use cloison_guest::{arg, args, call, cpu, entry, println, psci, segment, smp};
use cloison_workloads::stamps::{PAGE_WORDS, Stamps};
use cloison_workloads::{PROFILED, SURVIVOR, id};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use spin::Once;

entry!(main);

/// The value at [`SURVIVOR`] after this VM has restarted itself.
const RESTARTED: u64 = 0x6361_6368_6561_626c;
/// How often the lease is taken and ended.
const MANY: u64 = 1_000;
/// A migration is part of every so many rounds.
const MIGRATES_EVERY: u64 = 4;

static PAGES: AtomicU64 = AtomicU64::new(0);
/// The pages of vCPU 1.
static SECOND_HALF: Once<&'static [AtomicU64]> = Once::new();
static STOP: AtomicBool = AtomicBool::new(false);
static SECOND_DONE: AtomicBool = AtomicBool::new(false);

/// Wrong words, and calls with an unexpected result.
static ERRORS: AtomicU64 = AtomicU64::new(0);
/// Calls that changed pages; calls rejected because another was in progress; pages that migrated.
static CHANGES: AtomicU64 = AtomicU64::new(0);
static BUSY: AtomicU64 = AtomicU64::new(0);
static MOVED: AtomicU64 = AtomicU64::new(0);

/// Records the outcome of a call, and adds its count to `counter`.
fn note(result: Result<u64, CallError>, counter: &AtomicU64) {
    match result {
        Ok(count) => counter.fetch_add(count, SeqCst),
        Err(CallError::Busy) => BUSY.fetch_add(1, SeqCst),
        Err(_) => ERRORS.fetch_add(1, SeqCst),
    };
}

fn pass(stamps: &mut Stamps) {
    ERRORS.fetch_add(stamps.pass(cpu::give_way), SeqCst);
}

/// Makes random pages, whichever vCPU writes them, cacheable or non-cacheable.
fn change_some(random: &mut Random) {
    let pages = PAGES.load(SeqCst);
    let first = random.below(pages);
    let count = 1 + random.below(pages - first);
    let is_cacheable = random.below(2) == 0;
    note(
        call::set_cacheable(PROFILED + first * PAGE, count, is_cacheable).map(|()| 1),
        &CHANGES,
    );
}

fn second() {
    let Some(words) = SECOND_HALF.get() else {
        return;
    };
    let mut half = Stamps::new(words);
    let mut random = Random::new(args()[2] + 1);
    while !STOP.load(SeqCst) {
        pass(&mut half);
        change_some(&mut random);
    }
    pass(&mut half);
    SECOND_DONE.store(true, SeqCst);
}

/// Makes calls that must be rejected, and checks the error codes.
#[allow(unsafe_code)]
fn refusals() {
    let arguments = [
        [PROFILED + 1, 1, 0],
        [PROFILED, 0, 0],
        [PROFILED, 1, 2],
        [PROFILED, 1, 1 << 32],
        // After the end of the RAM.
        [PROFILED, 1 << 27, 0],
        [PROFILED, u64::MAX, 0],
        [map::RAM - PAGE, 2, 0],
        // Devices: mapped, emulated, and nonexistent.
        [map::GICC, 1, 0],
        [map::UART, 1, 0],
        [u64::MAX - PAGE + 1, 1, 0],
    ];
    for [ipa, pages, cacheable] in arguments {
        // SAFETY: the call starts no code on a vCPU.
        let [x0, ..] = unsafe {
            call::hvc(
                Call::SetCacheability as u32,
                [ipa, pages, cacheable, 0, 0, 0],
            )
        };
        if CallError::try_from(x0 as i64) != Ok(CallError::Invalid) {
            ERRORS.fetch_add(1, SeqCst);
            println!("cacheability-check: {ipa:#x}, {pages}, {cacheable} gave {x0:#x}");
        }
    }
}

/// Counts an error, and says what was wrong, unless `holds`.
fn expect(holds: bool, what: &str) {
    if !holds {
        ERRORS.fetch_add(1, SeqCst);
        println!("cacheability-check: {what}");
    }
}

/// A list of pages in this VM's memory.
struct List {
    words: &'static [AtomicU64],
}

impl List {
    fn at(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    fn call(&self, made: Call, entries: &[u64], lease: u64) -> Result<u64, (CallError, u64)> {
        self.words
            .iter()
            .zip(entries)
            .for_each(|(word, entry)| word.store(*entry, SeqCst));
        call::listed(made, self.at(), entries.len() as u64, lease)
    }
}

/// Makes calls with lists that must be rejected as a whole, or because of one entry, and change
/// nothing.
fn wrong_lists(list: &List, lease: u64) {
    let page = |number: u64| PROFILED + number * PAGE;
    let at = list.at();
    let nowhere = [
        (at + 4, 1),
        (at, 0),
        (at, list::LONGEST + 1),
        (at, u64::MAX),
        (at + 8, list::LONGEST),
        (at + PAGE - 8, 2),
        (map::RAM - PAGE, 1),
        (map::UART, 1),
        (map::GICC, 1),
        (u64::MAX - 7, 1),
    ];
    list.words
        .iter()
        .for_each(|word| word.store(page(0), SeqCst));
    for (at, count) in nowhere {
        for made in [Call::MovePages, Call::ReturnPages, Call::CachePages] {
            let given = call::listed(made, at, count, lease);
            expect(
                given == Err((CallError::List, list::NO_ENTRY)),
                "a list that is nowhere",
            );
        }
    }
    let entries: [(&[u64], u64); 6] = [
        (&[page(0) | 2], 0),
        (&[page(0), page(0)], 1),
        (&[page(1), page(2), page(1)], 2),
        (&[map::UART, page(0)], 0),
        (&[page(0), !(PAGE - 1)], 1),
        (&[map::RAM - PAGE], 0),
    ];
    for (entries, wrong) in entries {
        for made in [Call::MovePages, Call::ReturnPages, Call::CachePages] {
            let given = list.call(made, entries, lease);
            expect(
                given == Err((CallError::Invalid, wrong)),
                "an entry that is wrong",
            );
        }
    }
    expect(
        list.call(Call::MovePages, &[page(0) | list::CACHED], lease)
            == Err((CallError::Invalid, 0)),
        "a flag",
    );
    let state = call::page_state(page(0)).map(|state| (state.private, state.cached));
    expect(
        state == Ok((false, true)),
        "a refused call has changed a page",
    );
}

/// Moves and changes pages by lists, with a lease and without one, until it runs out.
fn lists(list: &List, pages: u64) {
    const HOUR: u64 = lease::LONGEST_NANOS;
    const SOON: u64 = 2_000_000;
    const LATE: u64 = 1_000_000_000;
    let entries: &mut [u64; 64] = &mut core::array::from_fn(|page| PROFILED + page as u64 * PAGE);
    let entries = &mut entries[..pages.min(64) as usize];
    let pages = entries.len() as u64;
    let states = |wanted: (bool, bool)| {
        let is = |page| {
            call::page_state(PROFILED + page * PAGE).map(|state| (state.private, state.cached))
        };
        (0..pages).all(|page| is(page) == Ok(wanted))
    };
    for (number, nanos) in [(0, 0), (0, HOUR + 1), (0, u64::MAX)] {
        expect(
            call::lease(number, nanos) == Err(CallError::Invalid),
            "a lease of no or too long time",
        );
    }
    expect(
        call::lease(1 << 40, 1) == Err(CallError::Expired),
        "a lease that never was",
    );
    expect(
        list.call(Call::CachePages, entries, 0) == Err((CallError::Expired, list::NO_ENTRY)),
        "no lease",
    );
    let mut last = 0;
    for round in 0..MANY {
        let taken = call::lease(0, HOUR);
        expect(
            taken.is_ok_and(|number| number > last),
            "a lease is not taken, or has an earlier one's number",
        );
        last = taken.unwrap_or(last);
        if round == 0 {
            expect(
                call::lease(0, HOUR) == Err(CallError::Taken),
                "two programs have the lease",
            );
            expect(
                call::set_cacheable(PROFILED, 1, false) == Err(CallError::Taken),
                "the lease is no one's",
            );
            wrong_lists(list, last);
        }
        expect(
            call::lease(last, HOUR) == Ok(last),
            "a lease is not renewed",
        );
        expect(call::lease(last, 0) == Ok(last), "a lease is not ended");
        expect(
            call::lease(last, HOUR) == Err(CallError::Expired),
            "a lease is renewed that has ended",
        );
    }
    // Without the lease, its pages stay; with it, they come back when it ends.
    let half = pages as usize / 2;
    expect(
        list.call(Call::MovePages, &entries[..half], 0) == Ok(half as u64),
        "half of the pages do not move",
    );
    let lease = call::lease(0, HOUR).unwrap_or(0);
    expect(
        list.call(Call::MovePages, entries, lease) == Ok(pages - half as u64),
        "the other half does not",
    );
    expect(
        list.call(Call::CachePages, entries, lease) == Ok(pages),
        "pages do not change",
    );
    expect(
        list.call(Call::ReturnPages, entries, 0) == Ok(half as u64),
        "pages do not return",
    );
    // The list is the guest's own page, and becomes what it names.
    let own = [list.at()];
    expect(
        list.call(Call::CachePages, &own, lease) == Ok(1),
        "the list itself does not change",
    );
    expect(
        list.call(Call::MovePages, &own, lease) == Ok(1),
        "the list itself does not move",
    );
    expect(
        call::lease(lease, SOON) == Ok(lease),
        "a lease is not shortened",
    );
    // A busy host may hold up the core that brings them back.
    let until = call::time().unwrap_or(0) + LATE;
    let is_over =
        || states((false, true)) && call::private_pool().is_ok_and(|pool| pool.taken == 0);
    while !is_over() && call::time().is_ok_and(|now| now < until) {
        cpu::give_way();
    }
    expect(
        states((false, true)),
        "a lease has run out, and its pages are not as they were",
    );
    expect(
        call::private_pool().is_ok_and(|pool| pool.taken == 0),
        "a lease has run out, and keeps frames",
    );
    expect(
        call::lease(lease, HOUR) == Err(CallError::Expired),
        "a lease is renewed that has run out",
    );
    println!("cacheability-check: lists done");
}

/// Reads one word of each line twice, each time as a segment; before the second pass, the caches
/// hold all they may.
fn measure(what: &str, sub_experiment: u32, words: &[AtomicU64]) {
    let read = || {
        words
            .chunks_exact(LINE_WORDS)
            .map(|line| line[0].load(SeqCst))
            .fold(0, u64::wrapping_add)
    };
    let mut sums = [0; 2];
    let [_, measured] = [0, 1].map(|run| {
        segment::measure(id::CACHEABILITY_CHECK, sub_experiment, run, || {
            sums[run as usize] = read()
        })
    });
    ERRORS.fetch_add(u64::from(sums[0] != sums[1]), SeqCst);
    println!("cacheability-check: {what} {measured}");
}

fn main() {
    let pages = arg(0, 64);
    let rounds = arg(1, 100);
    let mut ram = Ram::behind_image();
    let buffer = ram.take_at(PROFILED, pages * PAGE);
    let list = List {
        words: ram.take_at(PROFILED + pages * PAGE, PAGE),
    };
    let restarted = &ram.take_at(SURVIVOR, 8)[0];
    if restarted.swap(0, SeqCst) == RESTARTED {
        let kept = u64::from(call::lease(0, 1).is_err());
        let wrong = Stamps::of_an_earlier_life(buffer).pass(|| ()) + kept;
        println!("cacheability-check: restarted wrong={wrong}");
        return;
    }
    println!("cacheability-check: pages={pages} at={PROFILED:#x} rounds={rounds}");
    if call::set_cacheable(PROFILED, 1, true) == Err(CallError::Denied) {
        println!("cacheability-check: denied");
        return;
    }
    refusals();
    lists(&list, pages);

    PAGES.store(pages, SeqCst);
    let (first_half, second_half) = buffer.split_at(pages as usize / 2 * PAGE_WORDS);
    SECOND_HALF.call_once(|| second_half);
    if let Err(error) = smp::start(1, second) {
        println!("cacheability-check: vCPU 1: {error}");
        return;
    }
    let mut half = Stamps::new(first_half);
    let mut random = Random::new(args()[2]);
    for round in 0..rounds {
        change_some(&mut random);
        pass(&mut half);
        if round % MIGRATES_EVERY == 0 {
            note(call::migrate(pages), &MOVED);
            pass(&mut half);
            note(call::restore(), &MOVED);
        }
    }
    pass(&mut half);
    STOP.store(true, SeqCst);
    while !SECOND_DONE.load(SeqCst) {
        cpu::give_way();
    }

    let cache = |cacheable| {
        note(
            call::set_cacheable(PROFILED, pages, cacheable).map(|()| 1),
            &CHANGES,
        )
    };
    // The last return of the pages may have been refused because of vCPU 1's call.
    note(call::restore(), &MOVED);
    cache(true);
    measure("cached", 0, buffer);
    cache(false);
    measure("uncached", 1, buffer);
    note(call::migrate(pages), &MOVED);
    measure("away", 2, buffer);
    note(call::restore(), &MOVED);
    measure("back", 3, buffer);
    cache(true);
    measure("again", 4, buffer);
    let [changes, busy, moved, errors] =
        [&CHANGES, &BUSY, &MOVED, &ERRORS].map(|counter| counter.load(SeqCst));
    println!(
        "cacheability-check: rounds={rounds} errors={errors} changes={changes} busy={busy} \
         moved={moved}"
    );

    // After the restart, the program must find what it now stores past the caches, from frames
    // other than the pages' own.
    let left = call::migrate(pages).and_then(|_| call::set_cacheable(PROFILED, pages, false));
    let left = left.and_then(|()| call::lease(0, lease::LONGEST_NANOS).map(drop));
    Stamps::new(buffer);
    restarted.store(RESTARTED, SeqCst);
    println!("cacheability-check: restarts, its pages away and not cached: {left:?}");
    cpu::mask_interrupts();
    psci::system_reset()
}
