//! The VM's property, and the counts of attempts to reach beyond it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_guest::abi::map;
use cloison_guest::exceptions::Fault;
use cloison_guest::println;
use core::fmt;

/// Maximum number of leaks printed individually per phase.
const SHOWN: u64 = 8;

/// The VM's property, according to its configuration.
#[derive(Clone, Copy)]
pub struct Own {
    /// End of its RAM.
    pub ram_end: u64,
    /// Number of its vCPUs.
    pub vcpus: u64,
}

impl Own {
    /// Returns whether the VM may access this address.
    pub fn has(&self, address: u64) -> bool {
        const DEVICES: [(u64, u64); 4] = [
            (map::GICD, 0x1000),
            (map::GICC, 0x2000),
            (map::UART, 0x1000),
            (map::SERVICES, 0x1000),
        ];
        (map::RAM..self.ram_end).contains(&address)
            || DEVICES
                .iter()
                .any(|&(base, len)| (base..base + len).contains(&address))
    }
}

/// Counts of one kind of attempt.
pub struct Phase {
    name: &'static str,
    /// Attempts that failed with a fault or an error code.
    pub refused: u64,
    /// Attempts that had no effect.
    pub ignored: u64,
    leaked: u64,
}

impl Phase {
    /// No attempts yet.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            refused: 0,
            ignored: 0,
            leaked: 0,
        }
    }

    /// Records a leak, and prints it if it is one of the first.
    pub fn leak(&mut self, what: fmt::Arguments<'_>) {
        self.leaked += 1;
        if self.leaked <= SHOWN {
            println!("hostile: leak phase={} {what}", self.name);
        }
    }

    /// Records an attempt that must be refused.
    pub fn must_fail(&mut self, result: Result<u64, Fault>, what: fmt::Arguments<'_>) {
        match result {
            Err(_) => self.refused += 1,
            Ok(value) => self.leak(format_args!("{what} gave {value:#x}")),
        }
    }

    /// Records an attempt that may succeed without harm.
    pub fn may_fail(&mut self, result: Result<u64, Fault>) {
        match result {
            Err(_) => self.refused += 1,
            Ok(_) => self.ignored += 1,
        }
    }

    /// Records a condition that must hold.
    pub fn must_hold(&mut self, holds: bool, what: fmt::Arguments<'_>) {
        if holds {
            self.refused += 1;
        } else {
            self.leak(what);
        }
    }

    /// Prints the line of this phase. Returns the number of leaks.
    pub fn finish(self) -> u64 {
        let Self {
            name,
            refused,
            ignored,
            leaked,
        } = self;
        let attempts = refused + ignored + leaked;
        println!(
            "hostile: phase={name} attempts={attempts} refused={refused} leaked={leaked} \
             ignored={ignored}"
        );
        leaked
    }
}
