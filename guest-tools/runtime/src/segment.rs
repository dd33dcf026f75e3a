//! Observation segments: code whose events and time the hypervisor logs.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{call, model, timer};
use cloison_abi::CallError;
use core::fmt;

/// A segment's times as the guest itself measures them. The counts are in the HEM log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// Ticks of the virtual counter between the two calls.
    pub ticks: u64,
    /// Cycles counted by the hypervisor, or why there are none.
    pub cycles: Result<u64, CallError>,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cycles {
            Ok(cycles) => write!(f, "ticks={} cycles={cycles}", self.ticks),
            Err(error) => write!(f, "ticks={} cycles=none ({error:?})", self.ticks),
        }
    }
}

/// Runs `f` as run `run` of `workload`. If the VM lacks the service `hem`, `f` still runs.
///
/// The segment is also a region of interest for the board model. It includes both calls, because
/// the hypervisor reads its counters inside.
pub fn measure(workload: u32, sub_experiment: u32, run: u32, f: impl FnOnce()) -> Measured {
    model::begin_region();
    let begun = call::segment_begin(workload, sub_experiment, run);
    let start = timer::now();
    f();
    let ticks = timer::now() - start;
    let cycles = begun.and_then(|()| call::segment_end());
    model::end_region();
    Measured { ticks, cycles }
}
