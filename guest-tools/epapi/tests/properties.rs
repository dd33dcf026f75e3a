//! Properties of event sets and counters, against plain models.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use cloison_epapi::preset::*;
use cloison_epapi::region::{HEAD, MAGIC};
use cloison_epapi::{CounterIndex, CounterSet, Error, EventId, Library, Simulated};
use cloison_events::assign::assign;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Native events that the tests let occur.
const NUMBERS: [u16; 7] = [0x01, 0x03, 0x04, 0x08, 0x14, 0x16, 0x17];
/// Events of one or several of those.
const CODES: [i32; 9] = [
    PAPI_TOT_CYC,
    PAPI_TOT_INS,
    PAPI_L1_DCH,
    PAPI_L1_TCH,
    PAPI_L1_DCM,
    PAPI_L2_TCM,
    PAPI_L2_TCH,
    PAPI_L1_ICA,
    PAPI_NATIVE_MASK | 0x16,
];

#[derive(Clone, Debug)]
enum Step {
    Add(usize),
    Remove(usize),
    Start,
    Stop,
    Read,
    Accum,
    Reset,
    Cleanup,
    Run(u64, Vec<u64>),
}

fn step() -> impl Strategy<Value = Step> {
    let event = 0..CODES.len();
    prop_oneof![
        3 => event.clone().prop_map(Step::Add),
        1 => event.prop_map(Step::Remove),
        3 => Just(Step::Start),
        1 => Just(Step::Stop),
        2 => Just(Step::Read),
        2 => Just(Step::Accum),
        1 => Just(Step::Reset),
        1 => Just(Step::Cleanup),
        4 => (0..1_u64 << 31, vec(0..1_u64 << 31, NUMBERS.len())).prop_map(|(cycles, counts)| Step::Run(cycles, counts)),
    ]
}

/// What a set is in plain words: events, and how often each native event occurred since the last
/// zero.
#[derive(Default)]
struct Plain {
    events: Vec<i32>,
    is_running: bool,
    cycles: i64,
    counts: BTreeMap<u16, i64>,
    stopped: Vec<i64>,
}

impl Plain {
    fn value(&self, code: i32) -> i64 {
        let of = |number: u16| self.counts.get(&number).copied().unwrap_or(0);
        match code {
            PAPI_TOT_CYC => self.cycles,
            PAPI_TOT_INS => of(0x08),
            PAPI_L1_DCH => of(0x04) - of(0x03),
            PAPI_L1_TCH => of(0x14) + of(0x04) - of(0x01) - of(0x03),
            PAPI_L1_DCM => of(0x03),
            PAPI_L2_TCM => of(0x17),
            PAPI_L2_TCH => of(0x16) - of(0x17),
            PAPI_L1_ICA => of(0x14),
            _ => of(0x16),
        }
    }

    fn values(&self) -> Vec<i64> {
        if self.is_running {
            self.events.iter().map(|code| self.value(*code)).collect()
        } else {
            self.stopped.clone()
        }
    }

    fn zero(&mut self) {
        (self.cycles, self.counts) = (0, BTreeMap::new());
        self.stopped = vec![0; self.events.len()];
    }
}

fn apply(
    papi: &mut Library<Simulated>,
    set: i32,
    plain: &mut Plain,
    step: &Step,
) -> Result<(), TestCaseError> {
    let mut values = [0; 16];
    match step {
        Step::Add(at) => {
            let added = papi.add_event(set, CODES[*at]);
            prop_assert!(!(plain.is_running && added.is_ok()));
            if added.is_ok() {
                plain.events.push(CODES[*at]);
                plain.stopped.push(0);
            }
        }
        Step::Remove(at) => {
            let position = plain.events.iter().position(|code| *code == CODES[*at]);
            let removed = papi.remove_event(set, CODES[*at]);
            prop_assert_eq!(removed.is_ok(), position.is_some() && !plain.is_running);
            if let (Ok(()), Some(position)) = (removed, position) {
                plain.events.remove(position);
                plain.stopped.remove(position);
            }
        }
        Step::Start => {
            let started = papi.start(set);
            prop_assert_eq!(
                started.is_ok(),
                !plain.is_running && !plain.events.is_empty()
            );
            if started.is_ok() {
                plain.zero();
                plain.is_running = true;
            }
        }
        Step::Stop => {
            let stopped = papi.stop(set, Some(&mut values));
            prop_assert_eq!(stopped.is_ok(), plain.is_running);
            if stopped.is_ok() {
                plain.stopped = plain.values();
                plain.is_running = false;
                prop_assert_eq!(&values[..plain.events.len()], &plain.stopped[..]);
                prop_assert!(papi.counters().enabled().is_empty());
            }
        }
        Step::Read | Step::Accum | Step::Reset => {
            let expected = plain.values();
            let done = match step {
                Step::Read => papi.read(set, &mut values),
                Step::Accum => papi.accum(set, &mut values),
                _ => papi.reset(set),
            };
            if done.is_ok() {
                if !matches!(step, Step::Reset) {
                    prop_assert_eq!(&values[..expected.len()], &expected[..]);
                }
                if !matches!(step, Step::Read) {
                    plain.zero();
                }
            } else {
                prop_assert_eq!(done, Err(Error::NoComponent));
                prop_assert!(plain.events.is_empty());
            }
        }
        Step::Cleanup => {
            prop_assert_eq!(papi.cleanup_eventset(set).is_ok(), !plain.is_running);
            if !plain.is_running {
                *plain = Plain::default();
            }
        }
        Step::Run(cycles, counts) => {
            let occurred: Vec<(EventId, u64)> = NUMBERS
                .map(EventId)
                .into_iter()
                .zip(counts.iter().copied())
                .collect();
            papi.counters().run(*cycles, &occurred);
            if plain.is_running {
                plain.cycles += *cycles as i64;
                occurred.iter().for_each(|(number, count)| {
                    *plain.counts.entry(number.0).or_default() += *count as i64
                });
            }
            // Between two reads a counter of 32 bits may come round once: keep the set up to date.
            if plain.is_running {
                papi.read(set, &mut values).expect("it runs");
            }
        }
    }
    Ok(())
}

proptest! {
    /// Whatever is called in whatever order, the counts are those of a plain model, also beyond 32
    /// bits.
    #[test]
    fn any_order_of_calls_counts_what_a_plain_model_counts(steps in vec(step(), 1..60)) {
        let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
        papi.library_init().expect("there are counters");
        let set = papi.create_eventset(PAPI_NULL).expect("there is room");
        let mut plain = Plain::default();
        for step in &steps {
            apply(&mut papi, set, &mut plain, step)?;
            prop_assert_eq!(papi.list_events(set), Ok(&plain.events[..]));
        }
    }

    /// An assignment is found exactly if there is one, and each event gets a counter that may count
    /// it.
    #[test]
    fn an_assignment_is_found_if_there_is_one(allowed in vec(0_u32..32, 0..6)) {
        fn exists(allowed: &[u32], taken: u32) -> bool {
            allowed.split_first().is_none_or(|(first, rest)| {
                (0..5).any(|counter| {
                    first & !taken & 1 << counter != 0 && exists(rest, taken | 1 << counter)
                })
            })
        }
        let able: Vec<_> = allowed.iter().copied().map(CounterSet::from_bits).collect();
        let mut counters = [CounterIndex::CYCLES; 8];
        let found = assign(&able, &mut counters);
        prop_assert_eq!(found, exists(&allowed, 0));
        if found {
            let mut taken = CounterSet::EMPTY;
            for (able, counter) in able.iter().zip(counters) {
                prop_assert!(able.contains(counter) && !taken.contains(counter));
                taken = taken | counter.into();
            }
        }
    }

    /// At steady rates, multiplexed counts are near what all counters together would have counted.
    #[test]
    fn multiplexed_counts_are_scaled(
        rates in vec(1_u64..1000, NUMBERS.len()),
        rounds in 20_u64..200,
    ) {
        let mut papi = Library::new(Simulated::new("cortex-a53", 2), 0);
        papi.library_init().expect("there are counters");
        let set = papi.create_eventset(PAPI_NULL).expect("there is room");
        papi.assign_eventset_component(set, 0).expect("it has none");
        papi.set_multiplex(set).expect("it is stopped");
        let codes = NUMBERS.map(|number| PAPI_NATIVE_MASK | i32::from(number));
        papi.add_events(set, &codes).expect("they take turns");
        papi.start(set).expect("nothing else runs");
        let occurring: Vec<(EventId, u64)> = NUMBERS
            .map(EventId)
            .into_iter()
            .zip(rates.iter().copied())
            .collect();
        // Four groups of two: each has had the same number of turns.
        for _ in 0..4 * rounds {
            papi.counters().run(1000, &occurring);
            papi.multiplex_tick().expect("it runs");
        }
        let mut values = [0; NUMBERS.len()];
        papi.stop(set, Some(&mut values)).expect("it runs");
        for (value, rate) in values.into_iter().zip(rates) {
            prop_assert_eq!(value as u64, rate * 4 * rounds);
        }
    }

    /// A handler is due once each `threshold` events, and the counts stay exact.
    #[test]
    fn thresholds_interrupt_and_do_not_disturb(
        threshold in 100_i32..10_000,
        parts in vec(1_u64..50, 1..200),
    ) {
        let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
        papi.library_init().expect("there are counters");
        let set = papi.create_eventset(PAPI_NULL).expect("there is room");
        papi.add_events(set, &[PAPI_TOT_INS, PAPI_TOT_CYC])
            .expect("both can be counted");
        papi.overflow(set, PAPI_TOT_INS, threshold)
            .expect("it is there");
        papi.start(set).expect("nothing else runs");
        let (mut since, mut total) = (0, 0);
        for part in parts {
            papi.counters().run(1, &[(EventId::INST_RETIRED, part)]);
            (since, total) = (since + part, total + part);
            let pending = papi.counters().interrupts();
            prop_assert_eq!(pending, since >= threshold as u64);
            if pending {
                let overflow = papi
                    .interrupt()
                    .expect("it runs")
                    .expect("its interrupt is pending");
                prop_assert_eq!((overflow.set, overflow.events), (set, 1));
                prop_assert!(!papi.counters().interrupts());
                since = 0;
            }
        }
        let mut values = [0; 2];
        papi.stop(set, Some(&mut values)).expect("it runs");
        prop_assert_eq!(values[0] as u64, total);
    }

    /// No code, name or number makes a call panic.
    #[test]
    fn absurd_arguments_are_errors(code: i32, set: i32, threshold: i32, name in ".{0,20}") {
        let mut papi = Library::new(Simulated::new("cortex-a72", 6), 3 << 8);
        for _ in 0..2 {
            let known = papi.create_eventset(PAPI_NULL).unwrap_or(set);
            let _ = (
                papi.add_event(known, code),
                papi.overflow(known, code, threshold),
                papi.start(known),
            );
            let _ = (
                papi.add_event(set, code),
                papi.remove_event(set, code),
                papi.start(set),
                papi.read(set, &mut []),
            );
            let _ = (
                papi.event_code_to_name(code),
                papi.event_info(code),
                papi.query_event(code),
                papi.epc(code),
            );
            let _ = (
                papi.add_named_event(set, &name),
                papi.state(set),
                papi.stop(set, Some(&mut [])),
                papi.reset(set),
            );
            papi.library_init().expect("there are counters");
        }
    }
}

#[test]
fn what_others_count_goes_on() {
    let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
    papi.library_init().expect("there are counters");
    let set = papi.create_eventset(PAPI_NULL).expect("there is room");
    papi.add_event(set, PAPI_TOT_INS)
        .expect("it can be counted");
    let other = CounterIndex::new(5).expect("there are 32");
    papi.counters().start_another(other, EventId(0x04));
    papi.start(set).expect("nothing else runs");
    assert_eq!(papi.counters().enabled().to_string(), "0,5");
    papi.stop(set, None).expect("it runs");
    assert_eq!(papi.counters().enabled(), other.into());
}

#[test]
fn results_are_where_the_program_wants_them() {
    let words: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; HEAD + 2]));
    let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
    papi.set_results(words);
    papi.start_counters(&[PAPI_TOT_CYC, PAPI_TOT_INS])
        .expect("both can be counted");
    papi.counters().run(5, &[]);
    papi.stop_counters(Some(&mut [0; 2])).expect("they run");
    let found: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
    // There is room for one of the two events.
    assert_eq!(found, [MAGIC, 2, 8, 1, u64::from(PAPI_TOT_CYC as u32), 5]);
}

#[test]
fn without_counters_nothing_is_counted() {
    let mut papi = Library::new(Simulated::unknown(), 0);
    assert_eq!(papi.library_init(), Err(Error::NoCounters));
    assert_eq!(papi.create_eventset(PAPI_NULL), Err(Error::NotInitialized));
    assert_eq!(papi.start_counters(&[PAPI_TOT_CYC]), Err(Error::NoCounters));
}

#[test]
fn a_counter_of_32_bits_may_come_round_once_between_two_reads() {
    let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
    papi.start_counters(&[PAPI_TOT_INS])
        .expect("it can be counted");
    let mut values = [0];
    for more in [5, u64::from(u32::MAX), (1 << 32) + 7, 3] {
        papi.counters().run(1, &[(EventId::INST_RETIRED, more)]);
        papi.read_counters(&mut values).expect("it runs");
        assert_eq!(values, [more as i64]);
    }
}
