//! A client of Cloison's services page, for processes of a Linux guest.
//!
//! ```no_run
//! # fn main() -> Result<(), cloison_client::Error> {
//! let mut services = cloison_client::Services::open()?;
//! let moved = services.migrate_top(16)?;      // the 16 most important pages of the VM's profile
//! # let _ = moved;
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | [`counting`], [`perf`] | ways to count for PAPI: the hypervisor's, through the page, and the kernel's |
//! | [`events`] | names of events |
//! | [`region`] | where the board model counts |
//! | `registers`, `error` | the page; why a call failed |
//!
//! Calls about a core (observation segments, counts, quotas) refer to the core of the calling vCPU:
//! see [`pin`].
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]

pub mod counting;
mod error;
pub mod events;
mod lists;
#[allow(unsafe_code)]
pub mod perf;
#[allow(unsafe_code)]
pub mod region;
#[allow(unsafe_code)]
mod registers;

pub use cloison_abi::reply::{
    Budget, Change, Channel, Colors, Counters, Hem, Identity, Life, Link, PageState, PrivatePool,
    Quota, QuotaTerms, Region, Traffic, VmInfo,
};
pub use error::{Error, SERVICE_NAMES};
pub use lists::Lease;
pub use registers::{MappedPage, Registers, ceiling};

use cloison_abi::reply::{Moved, Peer, SegmentEnd, Taken, Time};
use cloison_abi::{ABI_VERSION, Call, CallError, page};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The hypervisor's calls, made through a services page.
#[derive(Debug)]
pub struct Services<R = MappedPage> {
    registers: R,
}

impl Services {
    /// Opens the services page of the VM in which this process runs. Needs root.
    pub fn open() -> Result<Self, Error> {
        Self::new(MappedPage::open()?)
    }
}

/// A direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From this VM.
    Out = 0,
    /// To this VM.
    In = 1,
}

impl<R: Registers> Services<R> {
    /// Uses these registers for calls, if they are Cloison's and of a version that this library
    /// knows.
    pub fn new(registers: R) -> Result<Self, Error> {
        match (registers.read(page::MAGIC), registers.read(page::VERSION)) {
            (page::MAGIC_VALUE, ABI_VERSION) => Ok(Self { registers }),
            (page::MAGIC_VALUE, other) => Err(Error::Version(other)),
            (other, _) => Err(Error::NotCloison(other)),
        }
    }

    /// Makes a call. Returns what it replies.
    fn call<T: From<[u64; 3]>>(&mut self, call: Call, arguments: [u64; 3]) -> Result<T, Error> {
        match self.exchange(call, arguments)? {
            (Ok(()), results) => Ok(results.into()),
            (Err(error), _) => Err(Error::Refused { call, error }),
        }
    }

    /// Makes a call. Returns its status, and the registers after it.
    fn exchange(
        &mut self,
        call: Call,
        arguments: [u64; 3],
    ) -> Result<(Result<(), CallError>, [u64; 3]), Error> {
        self.registers.take_turn()?;
        for (&offset, value) in page::ARGUMENTS.iter().zip(arguments) {
            self.registers.write(offset, value);
        }
        self.registers.write(page::CALL, u64::from(call as u32));
        let status = self.registers.read(page::CALL);
        let results = page::ARGUMENTS.map(|offset| self.registers.read(offset));
        self.registers.end_turn();
        match (status, CallError::try_from(status as i64)) {
            (0, _) => Ok((Ok(()), results)),
            (_, Ok(error)) => Ok((Err(error), results)),
            (other, Err(_)) => Err(Error::Unknown(other)),
        }
    }

    /// Makes a call for 0, 1 and so on, until there is no more.
    fn list<T: From<[u64; 3]>>(&mut self, call: Call) -> Result<Vec<T>, Error> {
        let mut replies = Vec::new();
        loop {
            match self.call(call, [replies.len() as u64, 0, 0]) {
                Ok(reply) => replies.push(reply),
                Err(Error::Refused {
                    error: CallError::Absent,
                    ..
                }) => return Ok(replies),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns version, services, VM and vCPU.
    pub fn identify(&self) -> Identity {
        let read = |offset| self.registers.read(offset);
        Identity {
            version: read(page::VERSION),
            services: read(page::SERVICES) as u32,
            vm: read(page::VM),
            vcpu: read(page::VCPU),
        }
    }

    /// Returns the nanoseconds since the machine's reset.
    pub fn time(&mut self) -> Result<u64, Error> {
        self.call(Call::Time, [0; 3]).map(|Time { nanos }| nanos)
    }

    /// Returns the VM's regions in configuration order.
    pub fn regions(&mut self) -> Result<Vec<Region>, Error> {
        self.list(Call::Region)
    }

    /// Returns the pool to which the VM's pages can move.
    pub fn private_pool(&mut self) -> Result<PrivatePool, Error> {
        self.call(Call::PrivatePool, [0; 3])
    }

    /// Returns the state of the page at an address of RAM, as the kernel sees it.
    pub fn page_state(&mut self, ipa: u64) -> Result<PageState, Error> {
        self.call(Call::PageState, [ipa, 0, 0])
    }

    /// Moves the `k` most important pages of the VM's profile to its private pool, all or none.
    /// Returns how many moved.
    pub fn migrate_top(&mut self, k: u64) -> Result<u64, Error> {
        self.call(Call::Migrate, [k, 0, 0])
            .map(|Moved { pages }| pages)
    }

    /// Moves one page, identified by its first address, to the private pool.
    pub fn migrate_page(&mut self, ipa: u64) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::MigratePage, [ipa, 0, 0])
            .map(drop)
    }

    /// Moves every migrated page back. Returns how many moved.
    pub fn restore(&mut self) -> Result<u64, Error> {
        self.call(Call::Restore, [0; 3])
            .map(|Moved { pages }| pages)
    }

    /// Makes `pages` pages of RAM, starting at `ipa`, cacheable or non-cacheable.
    pub fn set_cacheable(&mut self, ipa: u64, pages: u64, cached: bool) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::SetCacheability, [ipa, pages, cached.into()])
            .map(drop)
    }

    /// Returns the state of a quota of the calling vCPU's core, by its position in the VM's
    /// configuration.
    pub fn quota(&mut self, index: u64) -> Result<Quota, Error> {
        self.call(Call::QuotaRead, [index, 0, 0])
    }

    /// Returns the terms of a quota of the calling vCPU's core in the running period.
    pub fn quota_terms(&mut self, index: u64) -> Result<QuotaTerms, Error> {
        self.call(Call::QuotaTerms, [index, 0, 0])
    }

    /// Returns all VMs of the machine in configuration order.
    pub fn vms(&mut self) -> Result<Vec<VmInfo>, Error> {
        self.list(Call::VmRead)
    }

    /// Returns the state of one VM, by its position in the configuration.
    pub fn vm(&mut self, index: u64) -> Result<VmInfo, Error> {
        self.call(Call::VmRead, [index, 0, 0])
    }

    /// Orders a VM to stop, start or restart. The order is carried out once [`vm`](Self::vm) no
    /// longer returns [`Life::Changing`].
    pub fn order_vm(&mut self, index: u64, change: Change) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::VmOrder, [index, change as u64, 0])
            .map(drop)
    }

    /// Returns the budget of another VM's quota, and its use.
    pub fn budget(&mut self, vm: u64, quota: u64) -> Result<Budget, Error> {
        self.call(Call::BudgetRead, [vm, quota, 0])
    }

    /// Sets the budget of another VM's quota in events, from its next period on; never above its
    /// [`ceiling`].
    pub fn set_budget(&mut self, vm: u64, quota: u64, events: u64) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::BudgetSet, [vm, quota, events])
            .map(drop)
    }

    /// Sets a quota's budget in events, from the next period on; never above the configured one.
    pub fn set_quota(&mut self, index: u64, events: u64) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::QuotaSet, [index, events, 0])
            .map(drop)
    }

    /// Returns the VM's channels in configuration order.
    pub fn channels(&mut self) -> Result<Vec<Channel>, Error> {
        self.list(Call::Channel)
    }

    /// Returns the life of a VM with which this one has a channel; odd while it runs.
    pub fn peer_life(&mut self, vm: u64) -> Result<u64, Error> {
        self.call(Call::Peer, [vm, 0, 0]).map(|Peer { life }| life)
    }

    /// Sets a bit of the doorbell of a VM with which this one has a channel.
    pub fn ring(&mut self, vm: u64, bit: u64) -> Result<(), Error> {
        self.call::<[u64; 3]>(Call::DoorbellRing, [vm, bit, 0])
            .map(drop)
    }

    /// Returns the bits of the VM's own doorbell that wait, without taking them.
    pub fn waiting(&self) -> u64 {
        self.registers.read(page::DOORBELL)
    }

    /// Takes these bits of the VM's own doorbell. Returns those that waited.
    pub fn take_bits(&mut self, mask: u64) -> Result<u64, Error> {
        self.call(Call::DoorbellTake, [mask, 0, 0])
            .map(|Taken { bits, .. }| bits)
    }

    /// Returns the VM's links in configuration order.
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.list(Call::Link)
    }

    /// Returns what has passed on a link since boot, by its position in [`links`](Self::links).
    pub fn traffic(&mut self, link: u64, direction: Direction) -> Result<Traffic, Error> {
        self.call(Call::LinkTraffic, [link, direction as u64, 0])
    }

    /// Returns the counters of the calling vCPU.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.call(Call::Counters, [0; 3])
    }

    /// Starts an observation segment on the calling vCPU and resets its HEMs to zero.
    pub fn segment_begin(
        &mut self,
        workload: u32,
        sub_experiment: u32,
        run: u32,
    ) -> Result<(), Error> {
        self.call::<[u64; 3]>(
            Call::SegmentBegin,
            [workload.into(), sub_experiment.into(), run.into()],
        )
        .map(drop)
    }

    /// Ends the segment, logs it, and returns its cycles.
    pub fn segment_end(&mut self) -> Result<u64, Error> {
        self.call(Call::SegmentEnd, [0; 3])
            .map(|SegmentEnd { cycles }| cycles)
    }

    /// Returns the counts of the running segment, or else of the last one.
    pub fn hems(&mut self) -> Result<Vec<Hem>, Error> {
        self.list(Call::HemRead)
    }
}

/// Pins the calling thread, and the programs that it starts from now on, to one vCPU.
pub fn pin(vcpu: usize) -> Result<(), Error> {
    let failed = |errno: rustix::io::Errno| Error::Vcpu {
        vcpu,
        source: errno.into(),
    };
    if vcpu >= CpuSet::MAX_CPU {
        return Err(failed(rustix::io::Errno::INVAL));
    }
    let mut set = CpuSet::new();
    set.set(vcpu);
    sched_setaffinity(None, &set).map_err(failed)
}

/// Returns the vCPUs that the calling thread may run on.
pub fn vcpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU)
        .filter(|&vcpu| set.is_set(vcpu))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cloison_abi::services;
    use cloison_logic::services_page::{Mailbox, Request};
    use std::sync::{Arc, Mutex};

    /// The hypervisor's registers, implemented by these calls.
    pub(crate) struct Page<F> {
        mailbox: Mailbox,
        serve: F,
        list: Arc<Mutex<Vec<u64>>>,
    }

    /// Where the list is.
    pub(crate) const LIST: u64 = 0x4abc_d000;

    impl<F: FnMut(Request) -> [u64; 4]> Registers for Page<F> {
        fn read(&self, offset: u16) -> u64 {
            self.mailbox.read(
                offset,
                Identity {
                    version: ABI_VERSION,
                    services: services::HEM,
                    vm: 3,
                    vcpu: 1,
                },
            )
        }
        fn write(&mut self, offset: u16, value: u64) {
            if let Some(request) = self.mailbox.write(offset, value) {
                let results = (self.serve)(request);
                self.mailbox.answer(results);
            }
        }
        fn put_list(&mut self, entries: &[u64]) -> Result<u64, Error> {
            *self.list.lock().unwrap() = entries.to_vec();
            self.list_ipa()
        }
        fn list_ipa(&self) -> Result<u64, Error> {
            Ok(LIST)
        }
    }

    fn services<F: FnMut(Request) -> [u64; 4]>(serve: F) -> Services<Page<F>> {
        with_list(Arc::default(), serve)
    }

    /// The hypervisor's registers, implemented by calls that can read `list`.
    pub(crate) fn with_list<F>(list: Arc<Mutex<Vec<u64>>>, serve: F) -> Services<Page<F>>
    where
        F: FnMut(Request) -> [u64; 4],
    {
        Services::new(Page {
            mailbox: Mailbox::default(),
            serve,
            list,
        })
        .unwrap()
    }

    #[test]
    fn calls_carry_arguments_and_results() {
        let mut page = services(|request| {
            assert_eq!(
                request,
                Request {
                    function: Call::QuotaRead as u32,
                    arguments: [7, 0, 0]
                }
            );
            [0, 11, 12, 13]
        });
        assert_eq!(
            page.quota(7).unwrap(),
            Quota {
                events: 11,
                periods: 12,
                throttled_nanos: 13
            }
        );
        assert_eq!(
            page.identify(),
            Identity {
                version: ABI_VERSION,
                services: services::HEM,
                vm: 3,
                vcpu: 1
            }
        );
    }

    #[test]
    fn lists_end_where_there_is_no_more() {
        let absent = CallError::Absent as i64 as u64;
        let mut page = services(|request| match request.arguments[0] {
            0 => [0, 0x4000_0000, 256, 0x7fff],
            1 => [0, 0x900_0000, 1, 0],
            _ => [absent, 0, 0, 0],
        });
        let regions = page.regions().unwrap();
        let colors: Vec<String> = regions
            .iter()
            .map(|region| region.colors.to_string())
            .collect();
        assert_eq!(colors, ["0-14", "none"]);
    }

    #[test]
    fn refusals_say_what_was_refused_and_what_to_do() {
        let mut page = services(|_| [CallError::Denied as i64 as u64, 0, 0, 0]);
        let error = page.migrate_top(3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "this VM is not granted the service `migrate`"
        );
        assert!(error.help().unwrap().contains("\"migrate\""));
        let mut page = services(|_| [5, 0, 0, 0]);
        assert!(matches!(page.restore(), Err(Error::Unknown(5))));
    }

    #[test]
    fn colors_are_written_as_in_configurations() {
        let text = |bits| Colors(bits).to_string();
        assert_eq!(
            [
                text(0),
                text(1),
                text(0b1011),
                text(u64::MAX),
                text(1 << 63)
            ],
            ["none", "0", "0-1,3", "0-63", "63"]
        );
    }

    #[test]
    fn what_is_not_cloison_is_refused() {
        struct Zeros;
        impl Registers for Zeros {
            fn read(&self, _: u16) -> u64 {
                0
            }
            fn write(&mut self, _: u16, _: u64) {}
            fn put_list(&mut self, _: &[u64]) -> Result<u64, Error> {
                unreachable!("no call is made")
            }
            fn list_ipa(&self) -> Result<u64, Error> {
                unreachable!("no call is made")
            }
        }
        assert!(matches!(Services::new(Zeros), Err(Error::NotCloison(0))));
    }
}
