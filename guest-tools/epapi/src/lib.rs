//! PAPI for programs without an operating system: the functions of the ePAPI paper (Giesen et al.,
//! WCET 2019), table 3.
//!
//! A [`Library`] counts for one core, over a way to count ([`Counters`]): the registers of the PMU
//! ([`Pmuv3`]), the hypervisor's counter service ([`Service`]) or its observation segments
//! ([`Hems`]). It needs no memory but its own. The C library `libepapi.a` (guest-tools/epapi/c) has
//! the same functions with PAPI's signatures; docs/papi.md compares both with PAPI.
//!
//! ```
//! use cloison_epapi::preset::{PAPI_TOT_CYC, PAPI_TOT_INS};
//! use cloison_epapi::{Error, EventId, Library, Simulated};
//!
//! # fn main() -> Result<(), Error> {
//! let mut papi = Library::new(Simulated::new("cortex-a53", 6), 0);
//! papi.library_init()?;
//! let set = papi.create_eventset(-1)?;
//! papi.add_events(set, &[PAPI_TOT_CYC, PAPI_TOT_INS])?;
//! papi.start(set)?;
//! papi.counters().run(1000, &[(EventId::INST_RETIRED, 700)]); // On hardware: the code to be measured.
//! let mut values = [0; 2];
//! papi.stop(set, Some(&mut values))?;
//! assert_eq!(values, [1000, 700]);
//! assert_eq!(papi.start(set + 1), Err(Error::NoEventSet));
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`preset`], [`cpu`] | PAPI's presets, and what they are on each CPU |
//! | [`tables`], [`terms`] | native events and verdicts from `configs`; what a code stands for |
//! | [`error`] | PAPI's return codes |
//! | [`backend`] | what a way to count has to offer; [`pmuv3`], [`service`], [`hems`] and [`simulated`] are such ways |
//! | [`available`] | the first of them that there is |
//! | [`hypervisor`] | its calls |
//! | [`set`], `count` | event sets, and counting with them: overflow, multiplexing |
//! | [`library`]; [`high`], `mode` | the low-level and the high-level functions |
//! | [`query`] | what is known about an event |
//! | [`region`] | results in memory, for others to read |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![deny(unsafe_code)]

pub mod available;
pub mod backend;
mod count;
pub mod cpu;
pub mod error;
pub mod hems;
pub mod high;
#[allow(unsafe_code)]
pub mod hypervisor;
pub mod library;
mod mode;
#[allow(unsafe_code)]
pub mod pmuv3;
pub mod preset;
pub mod query;
pub mod region;
pub mod service;
pub mod set;
pub mod simulated;
pub mod tables;
pub mod terms;

pub use available::Available;
pub use backend::{Counters, Machine};
pub use cloison_events::{CounterIndex, CounterSet, EventId};
pub use error::Error;
pub use hems::Hems;
pub use hypervisor::Hypervisor;
pub use library::{Library, PAPI_VER_CURRENT};
pub use pmuv3::Pmuv3;
pub use service::Service;
pub use simulated::Simulated;

/// Compiles the examples of the page for PAPI users.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/papi.md")]
pub struct Page;
