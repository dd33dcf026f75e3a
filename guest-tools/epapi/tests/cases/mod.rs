//! The cases: calls in order, and the results that they must have.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod high;
mod low;

use cloison_epapi::preset::{PAPI_NULL, PAPI_TOT_CYC, PAPI_TOT_INS};
use cloison_epapi::{Error, Library, Simulated};

pub use high::HIGH;
pub use low::LOW;

/// A call in a situation.
pub struct Case {
    pub function: &'static str,
    pub when: &'static str,
    pub returns: i32,
    /// What PAPI does instead; empty if it does the same.
    pub differs: &'static str,
    pub run: fn() -> i32,
}

pub type Papi = Library<Simulated>;

/// Event counters of the simulated Cortex-A53.
pub const COUNTERS: u32 = 6;

pub fn new() -> Papi {
    Library::new(Simulated::new("cortex-a53", COUNTERS), 0)
}

pub fn ready() -> Papi {
    let mut papi = new();
    papi.library_init().expect("there are counters");
    papi
}

/// A library and an event set with cycles and instructions.
pub fn with_set() -> (Papi, i32) {
    let mut papi = ready();
    let set = papi.create_eventset(PAPI_NULL).expect("there is room");
    papi.add_events(set, &[PAPI_TOT_CYC, PAPI_TOT_INS])
        .expect("both can be counted");
    (papi, set)
}

/// As [`with_set`], running.
pub fn running() -> (Papi, i32) {
    let (mut papi, set) = with_set();
    papi.start(set).expect("nothing else runs");
    (papi, set)
}

/// A library and an empty event set.
pub fn empty() -> (Papi, i32) {
    let mut papi = ready();
    let set = papi.create_eventset(PAPI_NULL).expect("there is room");
    (papi, set)
}

pub trait Code {
    fn code(self) -> i32;
}

impl Code for Result<(), Error> {
    fn code(self) -> i32 {
        self.map_or_else(Error::code, |()| 0)
    }
}

impl Code for Result<usize, Error> {
    fn code(self) -> i32 {
        self.map_or_else(Error::code, |number| number as i32)
    }
}

impl Code for Result<i32, Error> {
    fn code(self) -> i32 {
        self.unwrap_or_else(Error::code)
    }
}

/// Returns 0 or PAPI's code for a call that returns more than a number.
pub fn done<T>(result: Result<T, Error>) -> i32 {
    result.map_or_else(Error::code, |_| 0)
}

/// Returns 0 if this holds, and else a code that no function returns.
pub fn holds(it: bool) -> i32 {
    if it { 0 } else { 1000 }
}

/// Defines a list of cases: function, situation, returned code, PAPI's behavior if it differs, and
/// the calls.
macro_rules! cases {
    ($($function:ident $when:literal => $returns:expr $(, $differs:literal)?; $run:expr;)*) => {
        &[$($crate::cases::Case {
            function: stringify!($function),
            when: $when,
            returns: $returns,
            differs: concat!($($differs)?),
            run: || $run,
        },)*]
    };
}
pub(crate) use cases;
