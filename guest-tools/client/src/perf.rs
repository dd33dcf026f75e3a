//! PAPI's counters from the kernel: perf_event_open(2), where the VM has a PMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::counting::{Domain, PageCalls, midr};
use cloison_epapi::backend::{Counters, Machine, Overflow};
use cloison_epapi::cpu::Cpu;
use cloison_epapi::error::Error;
use cloison_epapi::{CounterIndex, CounterSet, EventId};
use perf_event_open_sys::bindings::{
    PERF_FLAG_FD_CLOEXEC, PERF_IOC_FLAG_GROUP, PERF_TYPE_RAW, perf_event_attr,
};
use perf_event_open_sys::{ioctls, perf_event_open};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};

/// The target of counting: a thread, or a vCPU with all that it executes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// The calling thread, on whatever vCPU it runs.
    #[default]
    Thread,
    /// Everything on this vCPU, which the kernel allows root.
    Vcpu(usize),
}

/// The kernel's counters. An event set is one group of the kernel's events: they count together or
/// not at all.
#[derive(Debug, Default)]
pub struct PerfEvents {
    domain: Domain,
    target: Target,
    leader: Option<CounterIndex>,
    open: [Option<Counter>; CounterIndex::MOST],
}

#[derive(Debug)]
struct Counter {
    file: File,
    /// The numbers to add to the kernel's counts.
    base: u64,
}

/// PAPI's way to count in a process of a guest: the kernel's counters if the VM has a PMU, else the
/// hypervisor's.
pub type Available = cloison_epapi::Available<PerfEvents, PageCalls>;

/// INST_RETIRED, which every PMUv3 of the tables has.
const INSTRUCTIONS: EventId = EventId::INST_RETIRED;

impl PerfEvents {
    /// Returns counters of this.
    pub fn of(target: Target, domain: Domain) -> Self {
        Self {
            domain,
            target,
            ..Self::default()
        }
    }

    /// Opens an event of the PMU's that does not count yet.
    fn open(&self, event: EventId, group: Option<&File>) -> io::Result<File> {
        let mut attributes = perf_event_attr {
            type_: PERF_TYPE_RAW,
            config: event.0.into(),
            ..Default::default()
        };
        attributes.size = size_of::<perf_event_attr>() as u32;
        attributes.set_exclude_hv(1);
        attributes.set_exclude_kernel((self.domain == Domain::User).into());
        attributes.set_exclude_user((self.domain == Domain::Kernel).into());
        // The group's first event decides for the group. It is never without a counter: then
        // reading it fails.
        attributes.set_disabled(group.is_none().into());
        attributes.set_pinned(group.is_none().into());
        let group = group.map_or(-1, File::as_raw_fd);
        let (thread, cpu) = match self.target {
            Target::Thread => (0, -1),
            Target::Vcpu(vcpu) => (-1, vcpu as i32),
        };
        // SAFETY: the call only reads the attributes.
        let descriptor = unsafe {
            perf_event_open(
                &mut attributes,
                thread,
                cpu,
                group,
                PERF_FLAG_FD_CLOEXEC.into(),
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(unsafe { File::from_raw_fd(descriptor) })
    }

    /// Finds out how many events of a kind fit into a group, which is how many counters there are
    /// for it.
    fn fitting(&self, event: EventId) -> io::Result<u32> {
        let leader = self.open(event, None)?;
        let mut members = Vec::new();
        while members.len() < CounterIndex::MOST - 2 {
            match self.open(event, Some(&leader)) {
                Ok(member) => members.push(member),
                Err(_) => break,
            }
        }
        Ok(1 + members.len() as u32)
    }

    fn counter(&mut self, counter: CounterIndex) -> Result<&mut Counter, Error> {
        self.open
            .get_mut(counter.index())
            .and_then(Option::as_mut)
            .ok_or(Error::NoEvent)
    }

    fn group(&self) -> Option<&File> {
        self.leader
            .and_then(|leader| self.open[leader.index()].as_ref())
            .map(|counter| &counter.file)
    }
}

impl Counters for PerfEvents {
    fn probe(&mut self) -> Result<Machine, Error> {
        let vcpu = if let Target::Vcpu(vcpu) = self.target {
            vcpu
        } else {
            rustix::thread::sched_getcpu()
        };
        let cpu = midr(vcpu)
            .ok()
            .and_then(Cpu::by_midr)
            .ok_or(Error::NoCounters)?;
        let counters = self
            .fitting(INSTRUCTIONS)
            .map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Error::Permission,
                _ => Error::NoCounters,
            })?;
        Ok(Machine {
            cpu,
            counters: CounterSet::lowest(counters) | CounterSet::CYCLES,
            frequency: 1_000_000_000,
        })
    }

    fn width(&self, _: CounterIndex) -> u32 {
        64
    }

    fn configure(
        &mut self,
        counter: CounterIndex,
        event: EventId,
        overflow: Overflow,
    ) -> Result<(), Error> {
        if overflow == Overflow::Interrupts {
            return Err(Error::NotSupported);
        }
        let file = self
            .open(event, self.group())
            .map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Error::Permission,
                io::ErrorKind::InvalidInput => Error::Conflict,
                _ => Error::System,
            })?;
        *self.open.get_mut(counter.index()).ok_or(Error::Conflict)? =
            Some(Counter { file, base: 0 });
        self.leader.get_or_insert(counter);
        Ok(())
    }

    fn read(&mut self, counter: CounterIndex) -> Result<u64, Error> {
        let Counter { file, base } = self.counter(counter)?;
        let mut bytes = [0; 8];
        // Nothing is read of a group that the kernel had no counters for: others have them.
        file.read_exact(&mut bytes)
            .map_err(|_| Error::CountersLost)?;
        Ok(base.wrapping_add(u64::from_ne_bytes(bytes)))
    }

    fn overflowed(&mut self) -> CounterSet {
        CounterSet::EMPTY
    }

    fn write(&mut self, counter: CounterIndex, value: u64) -> Result<(), Error> {
        let current = self.read(counter)?;
        let counter = self.counter(counter)?;
        counter.base = counter.base.wrapping_add(value).wrapping_sub(current);
        Ok(())
    }

    fn clear(&mut self, _: CounterSet) {}

    fn ticks(&mut self) -> u64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    fn enable(&mut self, _: CounterSet) -> Result<(), Error> {
        // All events that are open count with their group.
        Ok(())
    }

    fn disable(&mut self, counters: CounterSet) -> Result<(), Error> {
        for counter in counters.counters() {
            self.open[counter.index()] = None;
            self.leader.take_if(|leader| *leader == counter);
        }
        Ok(())
    }

    fn freeze(&mut self) {
        if let Some(file) = self.group() {
            // SAFETY: a descriptor of perf's, and a request without memory.
            unsafe { ioctls::DISABLE(file.as_raw_fd(), PERF_IOC_FLAG_GROUP) };
        }
    }

    fn thaw(&mut self) {
        if let Some(file) = self.group() {
            // SAFETY: a descriptor of perf's, and a request without memory.
            unsafe { ioctls::ENABLE(file.as_raw_fd(), PERF_IOC_FLAG_GROUP) };
        }
    }
}
