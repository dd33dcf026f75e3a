//! PAPI's calls of the hypervisor from a process: through the services page, on one vCPU, by one
//! program at a time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::{Services, pin};
use cloison_abi::{Call, services};
use cloison_epapi::hypervisor::{Hypervisor, NOT_EL0, NOT_EL1};
use rustix::fs::{FlockOperation, flock};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::fs::File;

/// The part of a guest that is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Domain {
    /// Programs, and the kernel on their behalf and on its own.
    All,
    /// Programs only, which is PAPI's default.
    #[default]
    User,
    /// The kernel only.
    Kernel,
}

/// Calls through the services page, for [`Service`](cloison_epapi::Service) and
/// [`Hems`](cloison_epapi::Hems).
///
/// The first call opens the page. While something is counted, the calling thread stays on the vCPU
/// that it runs on, because counters belong to a core, and no other thread or program can count
/// there in this way.
#[derive(Debug, Default)]
pub struct PageCalls {
    domain: Domain,
    open: Option<Open>,
    held: Option<CounterLock>,
}

#[derive(Debug)]
struct Open {
    services: Services,
    midr: u32,
}

/// A vCPU's counters.
#[derive(Debug)]
struct CounterLock {
    /// Locked, until this is dropped or the process ends.
    _lock: File,
    /// Where the thread could run before.
    before: CpuSet,
}

impl Drop for CounterLock {
    fn drop(&mut self) {
        // If the thread cannot go where it was, it stays.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// Where Linux describes its CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// Returns MIDR_EL1 of a vCPU, as the kernel shows it.
///
/// # Errors
/// [`Error::Cpu`] if the kernel does not show it.
pub fn midr(vcpu: usize) -> Result<u32, Error> {
    let path = format!("{CPUS}/cpu{vcpu}/regs/identification/midr_el1");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Cpu {
        path: path.clone(),
        source,
    })?;
    let digits = text.trim().trim_start_matches("0x");
    let value = u64::from_str_radix(digits, 16).map_err(std::io::Error::other);
    value
        .map(|value| value as u32)
        .map_err(|source| Error::Cpu { path, source })
}

impl PageCalls {
    /// Returns calls that count this domain.
    pub const fn of(domain: Domain) -> Self {
        Self {
            domain,
            open: None,
            held: None,
        }
    }

    /// Opens the page, unless it is open.
    ///
    /// # Errors
    /// Those of [`Services::open`] and [`midr`], and [`Error::NothingToCountWith`].
    pub fn open(&mut self) -> Result<(), Error> {
        self.opened().map(drop)
    }

    fn opened(&mut self) -> Result<&mut Open, Error> {
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let services = Services::open()?;
                if services.identify().services & (services::COUNTERS | services::HEM) == 0 {
                    return Err(Error::NothingToCountWith);
                }
                Open {
                    services,
                    midr: midr(sched_getcpu())?,
                }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Keeps the thread on its vCPU, and others from its counters, until nothing counts any longer.
    ///
    /// # Errors
    /// [`Error::Taken`] if another thread or program has them, and those of [`pin`].
    pub fn hold(&mut self) -> Result<(), Error> {
        if self.held.is_some() {
            return Ok(());
        }
        let before = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let vcpu = sched_getcpu();
        pin(vcpu)?;
        let path = format!("{CPUS}/cpu{vcpu}");
        let lock = File::open(&path).map_err(|source| Error::Cpu { path, source })?;
        let locked = flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::Taken { vcpu });
        // If it is not locked, the thread is let go all the same.
        let held = CounterLock {
            _lock: lock,
            before,
        };
        locked?;
        self.held = Some(held);
        Ok(())
    }

    fn make(&mut self, function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error> {
        self.opened()?.services.call(function, arguments)
    }

    /// Makes a call, with what belongs to it: counters are held from the first call that sets one
    /// up to the one after which none counts. What would change the counters of others is left
    /// out.
    fn turn(&mut self, function: Call, arguments: [u64; 3]) -> Result<[u64; 3], Error> {
        let is_held = self.held.is_some();
        match function {
            Call::CounterEventSet | Call::SegmentBegin if !is_held => {
                self.opened()?;
                self.hold()?;
                if function == Call::CounterEventSet {
                    // A program that was killed may have left some that count.
                    self.make(Call::CounterEnable, [0; 3])?;
                }
                let made = self.make(function, arguments);
                if made.is_err() {
                    self.held = None;
                }
                made
            }
            Call::CounterEnable | Call::CounterInhibit | Call::CounterSet if !is_held => {
                self.opened().map(|_| [0; 3])
            }
            Call::CounterEnable | Call::SegmentEnd => {
                let made = self.make(function, arguments);
                if function == Call::SegmentEnd || arguments[0] == 0 {
                    self.held = None;
                }
                made
            }
            _ => self.make(function, arguments),
        }
    }
}

impl Drop for PageCalls {
    /// Stops what still counts.
    fn drop(&mut self) {
        if self.held.is_some() {
            let _ = self.make(Call::CounterEnable, [0; 3]);
        }
    }
}

impl Hypervisor for PageCalls {
    fn call(
        &mut self,
        function: Call,
        arguments: [u64; 3],
    ) -> Result<[u64; 3], cloison_epapi::Error> {
        self.turn(function, arguments).map_err(|error| match error {
            Error::Refused { error, .. } => error.into(),
            Error::Taken { .. } => cloison_epapi::Error::Conflict,
            Error::Absent | Error::Memory { .. } | Error::NothingToCountWith => {
                cloison_epapi::Error::NoCounters
            }
            _ => cloison_epapi::Error::System,
        })
    }

    fn midr(&mut self) -> Result<u32, cloison_epapi::Error> {
        self.opened()
            .map(|open| open.midr)
            .map_err(|_| cloison_epapi::Error::System)
    }

    fn filter(&self) -> u32 {
        match self.domain {
            Domain::All => 0,
            Domain::User => NOT_EL1,
            Domain::Kernel => NOT_EL0,
        }
    }
}
