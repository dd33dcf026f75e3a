//! The ways in which the command counts: the hypervisor's counters, its observation segments, or
//! the kernel's counters.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::failure::Failure;
use clap::ValueEnum;
use cloison_abi::services::{COUNTERS, HEM};
use cloison_client::counting::{Domain, PageCalls};
use cloison_client::perf::{PerfEvents, Target};
use cloison_client::{Error, Services, pin};
use cloison_epapi::hypervisor::Hypervisor;
use cloison_epapi::{Counters, Hems, Service};

/// The way to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum By {
    /// The hypervisor's counters: the service `counters`
    Counters,
    /// Observation segments, which count what the VM's `hems` list, and are logged: the service
    /// `hem`
    Hem,
    /// Linux's own counters, as perf's: a VM with a PMU
    Perf,
}

/// Which programs are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Programs and the kernel
    All,
    /// Programs
    User,
    /// The kernel
    Kernel,
}

impl From<Part> for Domain {
    fn from(part: Part) -> Self {
        match part {
            Part::All => Self::All,
            Part::User => Self::User,
            Part::Kernel => Self::Kernel,
        }
    }
}

/// A way to count that the command uses.
pub trait Way: Counters {
    /// Which it is.
    const BY: By;

    /// Writes a record of what the counters show to the hypervisor's log.
    fn record(&mut self, _: [u32; 3]) -> Result<(), cloison_epapi::Error> {
        Err(cloison_epapi::Error::NotSupported)
    }
}

impl<H: Hypervisor> Way for Service<H> {
    const BY: By = By::Counters;

    fn record(&mut self, numbers: [u32; 3]) -> Result<(), cloison_epapi::Error> {
        Service::record(self, numbers)
    }
}

impl<H: Hypervisor> Way for Hems<H> {
    const BY: By = By::Hem;
}

impl Way for PerfEvents {
    const BY: By = By::Perf;
}

/// A task that any way to count can carry out.
pub trait Task {
    /// The result of the task.
    type Output;
    /// Does it.
    fn run<W: Way>(self, way: W) -> Result<Self::Output, Failure>;
}

/// Does a task on one vCPU in one way.
pub fn with<T: Task>(by: By, vcpu: usize, part: Part, task: T) -> Result<T::Output, Failure> {
    pin(vcpu)?;
    let page = || -> Result<PageCalls, Failure> {
        let mut page = PageCalls::of(part.into());
        page.open()?;
        // Otherwise the first event set would find out, and could not say who has the counters.
        page.hold()?;
        Ok(page)
    };
    match by {
        By::Counters => task.run(Service::over(page()?)),
        By::Hem => task.run(Hems::over(page()?)),
        By::Perf => task.run(PerfEvents::of(Target::Vcpu(vcpu), part.into())),
    }
}

/// Returns the first way that this VM has.
pub fn choose() -> Result<By, Failure> {
    let granted = match Services::open() {
        Ok(services) => services.identify().services,
        // Without a page there may still be a PMU.
        Err(Error::Absent) => 0,
        Err(error) => return Err(error.into()),
    };
    let has = |service| granted & service != 0;
    match () {
        () if has(COUNTERS) => Ok(By::Counters),
        () if has(HEM) => Ok(By::Hem),
        () if PerfEvents::default().probe().is_ok() => Ok(By::Perf),
        () => Err(Error::NothingToCountWith.into()),
    }
}
