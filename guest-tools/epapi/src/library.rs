//! The low-level functions: event sets by number, and the states in which each call is allowed.
//!
//! Functions have PAPI's names without `PAPI_`; their errors are those of PAPI, and docs/papi.md
//! lists where they differ.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::backend::{Counters, Machine};
use crate::count;
use crate::error::Error;
use crate::mode::High;
use crate::preset::PAPI_NULL;
use crate::query::{self, Info};
use crate::region;
use crate::set::state::{PAPI_MULTIPLEXING, PAPI_OVERFLOWING, PAPI_RUNNING, PAPI_STOPPED};
use crate::set::{EVENTS, EventSet};
use crate::terms;
use core::sync::atomic::AtomicU64;

/// The version of PAPI whose low-level interface this is: 7.3, as `PAPI_VERSION & 0xffff0000`.
pub const PAPI_VER_CURRENT: i32 = 7 << 24 | 3 << 16;
/// Maximum number of event sets of a program. The high-level functions have one more.
pub const SETS: usize = 8;
/// The position of the high-level functions' set.
pub(crate) const HIGH: usize = SETS;

/// PAPI for one core.
#[derive(Debug)]
pub struct Library<C> {
    pub(crate) counters: C,
    machine: Option<Machine>,
    sets: [EventSet; SETS + 1],
    used: [bool; SETS],
    running: Option<usize>,
    first: i32,
    results: &'static [AtomicU64],
    pub(crate) high: High,
}

/// Events whose threshold was reached: the argument of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The event set.
    pub set: i32,
    /// Its events, as bits by their position in the set.
    pub events: u64,
}

impl<C: Counters> Library<C> {
    /// Returns a library whose event sets have the numbers from `first` up, over a way to count.
    pub const fn new(counters: C, first: i32) -> Self {
        Self {
            counters,
            machine: None,
            sets: [EventSet::NEW; SETS + 1],
            used: [false; SETS],
            running: None,
            first,
            results: &[],
            high: High::NEW,
        }
    }

    /// Sets the number of the first event set, before there is one.
    pub fn number_from(&mut self, first: i32) {
        self.first = first;
    }

    /// Returns the way to count.
    pub fn counters(&mut self) -> &mut C {
        &mut self.counters
    }

    /// Runs `f` while no counter counts. Every function that counts, reads or changes a running set
    /// does this itself. Functions whose names end with `frozen` leave it to their caller.
    pub fn frozen<T>(&mut self, f: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        // Before the first probe it is not known whether there are counters to stop.
        if self.machine.is_some() {
            self.counters.freeze();
        }
        let result = f(self);
        if self.machine.is_some() {
            self.counters.thaw();
        }
        result
    }

    /// Looks for counters. Returns the version of PAPI's interface.
    ///
    /// # Errors
    ///
    /// [`Error::NoCounters`] if there are no counters, or none of a CPU whose events are known.
    pub fn library_init(&mut self) -> Result<i32, Error> {
        if self.machine.is_none() {
            self.machine = Some(self.counters.probe()?);
        }
        Ok(PAPI_VER_CURRENT)
    }

    /// Returns the machine.
    ///
    /// # Errors
    /// [`Error::NotInitialized`] before [`library_init`](Self::library_init).
    pub fn machine(&self) -> Result<Machine, Error> {
        self.machine.ok_or(Error::NotInitialized)
    }

    /// Returns the number of counters, the cycle counter included.
    pub fn num_hwctrs(&self) -> Result<i32, Error> {
        self.machine().map(|machine| machine.number() as i32)
    }

    fn lookup(&self, set: i32) -> Result<usize, Error> {
        let at = usize::try_from(i64::from(set) - i64::from(self.first))
            .map_err(|_| Error::NoEventSet)?;
        if self.used.get(at) == Some(&true) {
            Ok(at)
        } else {
            Err(Error::NoEventSet)
        }
    }

    /// As [`lookup`](Self::lookup), for functions that need a set that has been given an event
    /// once.
    fn bound(&self, set: i32) -> Result<usize, Error> {
        let at = self.lookup(set)?;
        if self.sets[at].is_bound {
            Ok(at)
        } else {
            Err(Error::NoComponent)
        }
    }

    pub(crate) fn set(&mut self, at: usize) -> &mut EventSet {
        &mut self.sets[at]
    }

    /// Makes an event set. `current` is the value of the caller's variable, which must be
    /// [`PAPI_NULL`].
    pub fn create_eventset(&mut self, current: i32) -> Result<i32, Error> {
        self.machine()?;
        if current != PAPI_NULL {
            return Err(Error::Invalid);
        }
        let at = self
            .used
            .iter()
            .position(|used| !used)
            .ok_or(Error::NoMemory)?;
        self.used[at] = true;
        self.sets[at].clear();
        Ok(self.first + at as i32)
    }

    /// Removes an event set without events. The caller's variable is then [`PAPI_NULL`].
    pub fn destroy_eventset(&mut self, set: i32) -> Result<(), Error> {
        let at = self.lookup(set)?;
        match &self.sets[at] {
            set if set.is(PAPI_RUNNING) => Err(Error::IsRunning),
            set if !set.events().is_empty() => Err(Error::Invalid),
            _ => {
                self.used[at] = false;
                Ok(())
            }
        }
    }

    /// Removes all events of a set.
    pub fn cleanup_eventset(&mut self, set: i32) -> Result<(), Error> {
        let at = self.lookup(set)?;
        if self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::IsRunning);
        }
        self.sets[at].clear();
        Ok(())
    }

    /// Binds a set to the only component there is, 0: the CPU.
    pub fn assign_eventset_component(&mut self, set: i32, component: i32) -> Result<(), Error> {
        let at = self.lookup(set)?;
        if component != 0 {
            return Err(Error::NoComponent);
        }
        if self.sets[at].is_bound {
            return Err(Error::Invalid);
        }
        self.sets[at].is_bound = true;
        Ok(())
    }

    /// Adds an event to a set.
    pub fn add_event(&mut self, set: i32, code: i32) -> Result<(), Error> {
        let at = self.lookup(set)?;
        self.add(at, code)
    }

    pub(crate) fn add(&mut self, at: usize, code: i32) -> Result<(), Error> {
        if !terms::is_preset(code) && !terms::is_native(code) {
            return Err(Error::Invalid);
        }
        if self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::IsRunning);
        }
        let machine = self.machine()?;
        self.sets[at].add(code, &machine, &self.counters)
    }

    /// Adds events to a set. Returns 0 if all were added, else the number of those before the first
    /// that cannot be.
    ///
    /// # Errors
    ///
    /// If the first one cannot be added.
    pub fn add_events(&mut self, set: i32, codes: &[i32]) -> Result<usize, Error> {
        each(codes.iter().copied(), |code| self.add_event(set, code))
    }

    /// Adds an event by its name.
    pub fn add_named_event(&mut self, set: i32, name: &str) -> Result<(), Error> {
        let code = self.event_name_to_code(name)?;
        self.add_event(set, code)
    }

    /// Removes an event from a set.
    pub fn remove_event(&mut self, set: i32, code: i32) -> Result<(), Error> {
        let at = self.lookup(set)?;
        if !terms::is_preset(code) && !terms::is_native(code) {
            return Err(Error::Invalid);
        }
        if self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::IsRunning);
        }
        let machine = self.machine()?;
        self.sets[at].remove(code, &machine, &self.counters)?;
        self.note_thresholds(at);
        Ok(())
    }

    /// Removes events from a set. Returns 0 if all were removed, else the number of those before
    /// the first that cannot be.
    ///
    /// # Errors
    ///
    /// If the first one cannot be removed.
    pub fn remove_events(&mut self, set: i32, codes: &[i32]) -> Result<usize, Error> {
        each(codes.iter().copied(), |code| self.remove_event(set, code))
    }

    /// Removes an event by its name.
    pub fn remove_named_event(&mut self, set: i32, name: &str) -> Result<(), Error> {
        let code = self.event_name_to_code(name)?;
        self.remove_event(set, code)
    }

    /// Returns the number of events of a set.
    pub fn num_events(&self, set: i32) -> Result<usize, Error> {
        self.list_events(set).map(<[i32]>::len)
    }

    /// Returns the events of a set, in the order in which they were added.
    pub fn list_events(&self, set: i32) -> Result<&[i32], Error> {
        self.lookup(set).map(|at| self.sets[at].events())
    }

    /// Returns the state of a set: bits of [`set::state`](crate::set::state).
    pub fn state(&self, set: i32) -> Result<i32, Error> {
        self.lookup(set).map(|at| self.sets[at].state)
    }

    /// Starts counting from zero.
    pub fn start(&mut self, set: i32) -> Result<(), Error> {
        self.frozen(|it| it.start_frozen(set))
    }

    /// [`start`](Self::start), for a caller that has frozen the counters.
    pub fn start_frozen(&mut self, set: i32) -> Result<(), Error> {
        let at = self.bound(set)?;
        self.begin(at)
    }

    pub(crate) fn begin(&mut self, at: usize) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::IsRunning);
        }
        let set = &mut self.sets[at];
        if set.events().is_empty() {
            return Err(Error::Invalid);
        }
        count::start(set, &mut self.counters)?;
        self.counters.enable(set.counters())?;
        set.state = set.state & !PAPI_STOPPED | PAPI_RUNNING;
        self.running = Some(at);
        Ok(())
    }

    /// Stops counting. `values` gets the counts.
    pub fn stop(&mut self, set: i32, values: Option<&mut [i64]>) -> Result<(), Error> {
        self.frozen(|it| it.stop_frozen(set, values))
    }

    /// [`stop`](Self::stop), for a caller that has frozen the counters.
    pub fn stop_frozen(&mut self, set: i32, values: Option<&mut [i64]>) -> Result<(), Error> {
        let at = self.bound(set)?;
        if !self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::NotRunning);
        }
        self.end(at)?;
        self.hand_out(at, values)
    }

    pub(crate) fn end(&mut self, at: usize) -> Result<(), Error> {
        self.refresh(at)?;
        let set = &mut self.sets[at];
        self.counters.disable(set.counters())?;
        set.state = set.state & !PAPI_RUNNING | PAPI_STOPPED;
        self.running = None;
        Ok(())
    }

    /// Brings a set's values up to date, if it runs.
    pub(crate) fn refresh(&mut self, at: usize) -> Result<(), Error> {
        let set = &mut self.sets[at];
        if set.is(PAPI_RUNNING) {
            count::update(set, &mut self.counters)?;
            set.evaluate();
        }
        Ok(())
    }

    /// Copies a set's values, to the memory region for results too.
    pub(crate) fn hand_out(&mut self, at: usize, values: Option<&mut [i64]>) -> Result<(), Error> {
        let set = &self.sets[at];
        let found = &set.values[..set.events().len()];
        if let Some(values) = values {
            values
                .get_mut(..found.len())
                .ok_or(Error::Invalid)?
                .copy_from_slice(found);
        }
        if !self.results.is_empty() {
            region::publish(
                self.results,
                self.first.wrapping_add(at as i32),
                set.events(),
                found,
            );
        }
        Ok(())
    }

    /// Returns the counts of a set; of a stopped set, its counts when it was stopped.
    pub fn read(&mut self, set: i32, values: &mut [i64]) -> Result<(), Error> {
        self.frozen(|it| it.read_frozen(set, Some(values)))
    }

    /// [`read`](Self::read), for a caller that has frozen the counters.
    pub fn read_frozen(&mut self, set: i32, values: Option<&mut [i64]>) -> Result<(), Error> {
        let at = self.bound(set)?;
        let values = values.ok_or(Error::Invalid)?;
        self.refresh(at)?;
        self.hand_out(at, Some(values))?;
        self.turn(at)
    }

    /// Adds the counts of a set to `values`, and sets them to zero.
    pub fn accum(&mut self, set: i32, values: &mut [i64]) -> Result<(), Error> {
        self.frozen(|it| it.accum_frozen(set, Some(values)))
    }

    /// [`accum`](Self::accum), for a caller that has frozen the counters.
    pub fn accum_frozen(&mut self, set: i32, values: Option<&mut [i64]>) -> Result<(), Error> {
        let at = self.bound(set)?;
        self.add_to(at, values.ok_or(Error::Invalid)?)
    }

    pub(crate) fn add_to(&mut self, at: usize, values: &mut [i64]) -> Result<(), Error> {
        self.refresh(at)?;
        self.hand_out(at, None)?;
        let set = &self.sets[at];
        let found = &set.values[..set.events().len()];
        let values = values.get_mut(..found.len()).ok_or(Error::Invalid)?;
        for (value, more) in values.iter_mut().zip(found) {
            *value = value.wrapping_add(*more);
        }
        self.zero(at)?;
        self.turn(at)
    }

    /// Sets the counts of a set to zero.
    pub fn reset(&mut self, set: i32) -> Result<(), Error> {
        self.frozen(|it| it.reset_frozen(set))
    }

    /// [`reset`](Self::reset), for a caller that has frozen the counters.
    pub fn reset_frozen(&mut self, set: i32) -> Result<(), Error> {
        let at = self.bound(set)?;
        self.refresh(at)?;
        self.zero(at)
    }

    /// Sets the counts of a set to zero. The set must be up to date.
    pub(crate) fn zero(&mut self, at: usize) -> Result<(), Error> {
        let set = &mut self.sets[at];
        if set.is(PAPI_RUNNING) {
            count::reset(set, &mut self.counters)?;
        }
        set.values = [0; EVENTS];
        Ok(())
    }

    /// Makes a set's events take turns on the counters. Each count is then scaled by the time of
    /// its turns.
    pub fn set_multiplex(&mut self, set: i32) -> Result<(), Error> {
        let at = self.bound(set)?;
        if self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::IsRunning);
        }
        if self.sets[at].is(PAPI_MULTIPLEXING | PAPI_OVERFLOWING) {
            return Err(Error::Invalid);
        }
        let machine = self.machine()?;
        self.sets[at].state |= PAPI_MULTIPLEXING;
        self.sets[at].place(&machine, &self.counters)
    }

    /// Gives the next events of the running set their turn, if it is multiplexed: for a timer's
    /// handler.
    pub fn multiplex_tick(&mut self) -> Result<(), Error> {
        self.frozen(Self::multiplex_tick_frozen)
    }

    /// [`multiplex_tick`](Self::multiplex_tick), for a caller that has frozen the counters.
    pub fn multiplex_tick_frozen(&mut self) -> Result<(), Error> {
        self.running.map_or(Ok(()), |at| self.turn(at))
    }

    /// Without a timer, the functions that read a set give it its turns.
    pub(crate) fn turn(&mut self, at: usize) -> Result<(), Error> {
        count::rotate(&mut self.sets[at], &mut self.counters)
    }

    /// Lets an event of a set interrupt after each `threshold` events; 0: no longer.
    pub fn overflow(&mut self, set: i32, code: i32, threshold: i32) -> Result<(), Error> {
        let at = self.bound(set)?;
        if self.sets[at].is(PAPI_RUNNING) {
            return Err(Error::IsRunning);
        }
        let position = self.sets[at].position(code).ok_or(Error::NoEvent)?;
        let threshold = u32::try_from(threshold).map_err(|_| Error::Invalid)?;
        let machine = self.machine()?;
        if threshold != 0 && terms::of(machine.cpu, code)?.is_derived()
            || self.sets[at].is(PAPI_MULTIPLEXING)
        {
            return Err(Error::Invalid);
        }
        if threshold == 0 && self.sets[at].thresholds[position] == 0 {
            return Err(Error::Invalid);
        }
        self.sets[at].thresholds[position] = threshold;
        self.note_thresholds(at);
        Ok(())
    }

    /// Tells the native events of a set which threshold they have.
    fn note_thresholds(&mut self, at: usize) {
        let Some(machine) = self.machine else { return };
        let set = &mut self.sets[at];
        let needed = set.needed;
        set.needs[..needed]
            .iter_mut()
            .for_each(|need| need.threshold = 0);
        let mut any = false;
        for position in 0..set.events().len() {
            let threshold = set.thresholds[position];
            let Ok(terms) = terms::of(machine.cpu, set.events()[position]) else {
                continue;
            };
            if let ([term], true) = (terms.as_slice(), threshold != 0) {
                any = true;
                let need = set.needs[..needed]
                    .iter_mut()
                    .find(|need| need.event == term.event);
                need.into_iter()
                    .for_each(|need| need.threshold = threshold.into());
            }
        }
        set.state = if any {
            set.state | PAPI_OVERFLOWING
        } else {
            set.state & !PAPI_OVERFLOWING
        };
    }

    /// Handles the PMU's interrupt. Returns the events that have reached their threshold.
    pub fn interrupt(&mut self) -> Result<Option<Overflow>, Error> {
        self.frozen(Self::interrupt_frozen)
    }

    /// [`interrupt`](Self::interrupt), for a caller that has frozen the counters.
    pub fn interrupt_frozen(&mut self) -> Result<Option<Overflow>, Error> {
        let Some(at) = self.running else {
            return Ok(None);
        };
        let machine = self.machine()?;
        let events = count::overflows(&mut self.sets[at], &machine, &mut self.counters)?;
        let set = self.first.wrapping_add(at as i32);
        Ok((events != 0).then_some(Overflow { set, events }))
    }

    /// Sets the memory for results ([`region`]); an empty region: nowhere.
    pub fn set_results(&mut self, words: &'static [AtomicU64]) {
        self.results = words;
    }

    /// Returns whether an event can be counted.
    pub fn query_event(&self, code: i32) -> Result<(), Error> {
        let machine = self.machine()?;
        if !terms::is_preset(code) && !terms::is_native(code) {
            return Err(Error::NoEvent);
        }
        terms::of(machine.cpu, code).map(drop)
    }

    /// Returns an event's code by its name.
    pub fn event_name_to_code(&self, name: &str) -> Result<i32, Error> {
        query::code_of(self.machine()?.cpu, name)
    }

    /// Returns an event's name.
    pub fn event_code_to_name(&self, code: i32) -> Result<&'static str, Error> {
        query::name_of(self.machine()?.cpu, code)
    }

    /// Returns information about an event.
    pub fn event_info(&self, code: i32) -> Result<Info, Error> {
        query::info(&self.machine()?, &self.counters, code)
    }
}

/// Calls `what` with each code until one fails. Returns 0 if all succeeded, else the number before
/// the failure.
///
/// # Errors
///
/// [`Error::Invalid`] without codes, and the error of the first of them.
pub fn each(
    codes: impl IntoIterator<Item = i32>,
    mut what: impl FnMut(i32) -> Result<(), Error>,
) -> Result<usize, Error> {
    let mut any = false;
    for (done, code) in codes.into_iter().enumerate() {
        any = true;
        match what(code) {
            Err(error) if done == 0 => return Err(error),
            Err(_) => return Ok(done),
            Ok(()) => {}
        }
    }
    if any { Ok(0) } else { Err(Error::Invalid) }
}
