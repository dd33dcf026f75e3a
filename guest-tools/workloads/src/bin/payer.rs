//! Payer: repeats one call, so that a test can compare the hypervisor's work for it with its
//! charge.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::abi::event::EventId;
use cloison_guest::abi::reply::Change;
use cloison_guest::abi::{Call, CallError, doorbell, map};
use cloison_guest::psci;
use cloison_guest::ram::Ram;
use cloison_guest::{args, call, entry, model, println, timer};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use spin::Once;

entry!(main);

/// Bytes and words of a page, and where the list and the pages that it names are.
const PAGE: u64 = 4096;
const WORDS: usize = 512;
const LIST: u64 = map::RAM + (2 << 20);
const PAGES: u64 = map::RAM + (4 << 20);
/// Microseconds in which the telemetry's line takes a full ring of records.
const RING_DRAINS: u64 = 40_000;
/// Pages that change their cacheability at a time.
const CHANGED: u64 = 8;

type Outcome = Result<(), CallError>;

/// A kind of call: its name, its preparation before the measurement, and the call itself.
struct Kind {
    name: &'static str,
    prepare: fn() -> Outcome,
    make: fn() -> Outcome,
}

const fn kind(name: &'static str, make: fn() -> Outcome) -> Kind {
    Kind {
        name,
        prepare: || Ok(()),
        make,
    }
}

const fn prepared(name: &'static str, prepare: fn() -> Outcome, make: fn() -> Outcome) -> Kind {
    Kind {
        name,
        prepare,
        make,
    }
}

/// Every call, and those that can be made to do little or much in each of these ways.
const KINDS: &[Kind] = &[
    kind("nothing", || Ok(())),
    kind("identify", || call::identify().map(drop)),
    kind("affinity_info", || {
        psci::affinity_info(0)
            .map(drop)
            .map_err(|_| CallError::Absent)
    }),
    kind("time", || call::time().map(drop)),
    kind("region", || call::counter(Call::Region, [0, 0]).map(drop)),
    kind("page_state", || call::page_state(PAGES).map(drop)),
    kind("private_pool", || call::private_pool().map(drop)),
    prepared(
        "hem_read",
        || call::segment_begin(1, 2, 3),
        || call::hem_read(0).map(drop),
    ),
    kind("counters", || call::counters().map(drop)),
    kind("counter_event_set", || {
        call::counter_event_set(0, EventId::INST_RETIRED)
    }),
    kind("counter_read", || call::counter_read(0).map(drop)),
    kind("counter_set", || call::counter_set(0, 0)),
    kind("counter_enable", || call::counter_enable(1)),
    kind("counter_inhibit", || call::counter_inhibit(0)),
    kind("counter_masks", || call::counter_masks(1).map(drop)),
    kind("quota_read", || call::quota_read(0).map(drop)),
    kind("quota_terms", || call::quota_terms(0).map(drop)),
    kind("quota_set", || call::quota_set(0, args()[2])),
    kind("vm_read", || call::vm_read(1).map(drop)),
    kind("vm_order_done_already", || call::vm_order(1, Change::Start)),
    kind("vm_order_restart", restart_other),
    kind("budget_read", || call::budget_read(1, 0).map(drop)),
    kind("budget_set", || call::budget_set(1, 0, 1000)),
    kind("doorbell_ring", ring),
    kind("doorbell_ring_refused", || {
        match call::doorbell_ring(0, 0, 0) {
            Err(CallError::Denied) => Ok(()),
            _ => Err(CallError::Invalid),
        }
    }),
    kind("doorbell_take", || {
        call::doorbell_take(doorbell::ALL).map(drop)
    }),
    kind("peer", || call::peer(1).map(drop)),
    kind("channel", || call::channel(0).map(drop)),
    kind("link", || call::counter(Call::Link, [0, 0]).map(drop)),
    kind("link_traffic", || {
        call::counter(Call::LinkTraffic, [0, 1]).map(drop)
    }),
    kind("lease", || {
        call::lease(0, 1_000_000_000)
            .and_then(|number| call::lease(number, 0))
            .map(drop)
    }),
    kind("migrate_restore", || {
        call::migrate(64).and_then(|_| call::restore()).map(drop)
    }),
    prepared(
        "migrate_moved_already",
        || call::migrate(64).map(drop),
        || call::migrate(64).map(drop),
    ),
    kind("restore_nothing", || call::restore().map(drop)),
    kind("migrate_page", || {
        call::migrate_page(map::RAM + (1 << 20))
            .and_then(|()| call::restore())
            .map(drop)
    }),
    prepared("move_return", whole_list, || {
        made(call::listed(Call::MovePages, LIST, 64, 0))?;
        made(call::listed(Call::ReturnPages, LIST, 64, 0))
    }),
    prepared("move_moved_already", moved_list, || {
        made(call::listed(Call::MovePages, LIST, 512, 0))
    }),
    prepared(
        "move_last_entry_wrong",
        || whole_list().map(|()| set_entry(511, 1)),
        || refused(call::listed(Call::MovePages, LIST, 512, 0)),
    ),
    prepared(
        "move_first_entry_wrong",
        || whole_list().map(|()| set_entry(0, 1)),
        || refused(call::listed(Call::MovePages, LIST, 512, 0)),
    ),
    kind("move_no_list", || {
        refused(call::listed(Call::MovePages, LIST + 1, 512, 0))
    }),
    prepared("return_nothing", whole_list, || {
        made(call::listed(Call::ReturnPages, LIST, 512, 0))
    }),
    prepared("return_one_entry", whole_list, || {
        made(call::listed(Call::ReturnPages, LIST, 1, 0))
    }),
    prepared(
        "return_another",
        || moved_list().map(|()| set_entry(0, map::RAM)),
        || made(call::listed(Call::ReturnPages, LIST, 1, 0)),
    ),
    prepared(
        "cache_pages_as_they_are",
        || whole_list().and_then(|()| take_lease()),
        || {
            made(call::listed(
                Call::CachePages,
                LIST,
                512,
                LEASE.load(Relaxed),
            ))
        },
    ),
    kind("set_cacheability_as_it_is", || {
        call::set_cacheable(PAGES, 512, true)
    }),
    kind("set_cacheability", || {
        call::set_cacheable(PAGES, CHANGED, false)?;
        call::set_cacheable(PAGES, CHANGED, true)
    }),
    kind("unknown", || {
        match call::counter(Call::CounterSet, [99, 0]) {
            Err(_) => Ok(()),
            Ok(_) => Err(CallError::Invalid),
        }
    }),
    // The last two log a record each time.
    kind("segment", || {
        call::segment_begin(1, 2, 3)
            .and_then(|()| call::segment_end())
            .map(drop)
    }),
    prepared(
        "counter_record",
        || call::counter_enable(1),
        || call::counter_record(1, 2, 3),
    ),
];

fn made(result: Result<u64, (CallError, u64)>) -> Outcome {
    result.map(drop).map_err(|(error, _)| error)
}

fn refused(result: Result<u64, (CallError, u64)>) -> Outcome {
    if result.is_err() {
        Ok(())
    } else {
        Err(CallError::Invalid)
    }
}

/// Orders the other VM to restart, as soon as an earlier order has been carried out.
fn restart_other() -> Outcome {
    match call::vm_order(1, Change::Restart) {
        Err(CallError::Busy) => Ok(()),
        other => other,
    }
}

/// Sets a bit of the other VM's doorbell, and calls that are too often count too.
fn ring() -> Outcome {
    match call::doorbell_ring(1, 0, 0) {
        Err(CallError::TooOften) => Ok(()),
        other => other,
    }
}

fn list() -> &'static [AtomicU64] {
    static LIST_PAGE: Once<&'static [AtomicU64]> = Once::new();
    LIST_PAGE.call_once(|| Ram::behind_image().take_at(LIST, PAGE))
}

fn set_entry(index: usize, value: u64) {
    list()[index].store(value, Relaxed);
}

/// Fills the list with pages, eight apart from each other, so that no two descriptors share a line.
fn fill_list(first: u64) {
    for (index, entry) in (0..WORDS as u64).zip(list()) {
        entry.store(first + index * 8 * PAGE, Relaxed);
    }
}

fn whole_list() -> Outcome {
    fill_list(PAGES);
    Ok(())
}

/// Moves all pages of the list, and as many others.
fn moved_list() -> Outcome {
    for first in [PAGES + PAGE, PAGES] {
        fill_list(first);
        made(call::listed(Call::MovePages, LIST, WORDS as u64, 0))?;
    }
    Ok(())
}

/// The lease that is held, or 0.
static LEASE: AtomicU64 = AtomicU64::new(0);

fn take_lease() -> Outcome {
    LEASE.store(call::lease(0, 3_600_000_000_000)?, Relaxed);
    Ok(())
}

/// Undoes what a kind may have left.
fn undo() -> Outcome {
    let _ = call::segment_end();
    let lease = LEASE.swap(0, Relaxed);
    if lease != 0 {
        call::lease(lease, 0)?;
    }
    call::restore().map(drop)
}

/// Returns the nanoseconds since reset.
fn nanos() -> u64 {
    (u128::from(timer::now()) * 1_000_000_000 / u128::from(timer::frequency())) as u64
}

fn wait(micros: u64) {
    let end = timer::now() + timer::micros(micros);
    while timer::now() < end {
        core::hint::spin_loop();
    }
}

fn main() {
    let [first, micros, _, count] = args();
    println!("payer: kinds={}", KINDS.len());
    for Kind {
        name,
        prepare,
        make,
    } in KINDS.iter().skip(first as usize).take(count as usize)
    {
        let prepared = prepare();
        let (mut calls, mut failed) = (0u64, u64::from(prepared.is_err()));
        model::begin_region();
        let began = nanos();
        let end = timer::now() + timer::micros(micros);
        while timer::now() < end {
            failed += u64::from(make().is_err());
            calls += 1;
        }
        let ended = nanos();
        model::end_region();
        failed += u64::from(undo().is_err());
        println!("payer: {name} calls={calls} failed={failed} began={began} ended={ended}");
    }
    // The hypervisor's ring may be full: what it logs when the VM ends needs room.
    wait(RING_DRAINS);
}
