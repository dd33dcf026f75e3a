//! Errors of calls to the hypervisor, with advice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::{ABI_VERSION, Call, CallError, page, services};
use std::io;
use thiserror::Error;

/// Errors returned by the hypervisor client.
#[derive(Debug, Error)]
pub enum Error {
    /// The device tree has no services page.
    #[error("this machine has no Cloison services page")]
    Absent,
    /// The device tree has a services page of another kind.
    #[error("unknown kind of services page `{0}`; this program supports `{known}`", known = page::COMPATIBLE)]
    OtherPage(String),
    /// The page's node in the device tree has no address.
    #[error("the services page has no address in the device tree")]
    DeviceTree,
    /// `/dev/mem` cannot be used.
    #[error("cannot {what} /dev/mem: {source}")]
    Memory {
        /// The operation that failed, as a verb.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The page at that address is not Cloison's.
    #[error("no services page at its address: the magic value reads {0:#x}")]
    NotCloison(u64),
    /// The interface has a version that this program does not know.
    #[error("interface version mismatch: the hypervisor has {0}, this program {ABI_VERSION}")]
    Version(u64),
    /// The hypervisor rejected the call.
    #[error("{}", refusal(*.call, *.error))]
    Refused {
        /// The rejected call.
        call: Call,
        /// The error code that it returned.
        error: CallError,
    },
    /// The hypervisor rejected a list of pages because of one of them.
    #[error("page {page:#x}: {}", refusal(*.call, *.error))]
    Page {
        /// The rejected call.
        call: Call,
        /// The error code that it returned.
        error: CallError,
        /// First address of the page.
        page: u64,
    },
    /// This process cannot make a list of pages, or the kernel has moved the list during the call.
    #[error("cannot {what} a list of pages: {source}")]
    List {
        /// The operation that failed, as a verb.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// A lease cannot last this long.
    #[error("a lease lasts from 1 ns to one hour")]
    Length,
    /// The hypervisor returned an unknown code.
    #[error("unknown answer {0:#x} from the hypervisor")]
    Unknown(u64),
    /// Nothing that counts is granted to this VM.
    #[error("this VM is granted neither the service `counters` nor `hem`")]
    NothingToCountWith,
    /// Another program counts on this vCPU by the hypervisor.
    #[error("another program counts on vCPU {vcpu}")]
    Taken {
        /// Number of the vCPU.
        vcpu: usize,
    },
    /// The kernel does not describe a vCPU.
    #[error("cannot read {path}: {source}")]
    Cpu {
        /// The file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The thread cannot be pinned to this vCPU.
    #[error("cannot run on vCPU {vcpu}: {source}")]
    Vcpu {
        /// Number of the vCPU.
        vcpu: usize,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns advice on how to fix the problem, if there is any.
    pub fn help(&self) -> Option<String> {
        let help = |text: &str| Some(text.to_owned());
        match self {
            Self::Absent => help(
                "in a Cloison VM, set `services_page = true` in its [[vm]]; other machines have \
                 no services page",
            ),
            Self::OtherPage(_) | Self::Version(_) => {
                help("use the `cloisonctl` command that came with the hypervisor")
            }
            Self::Memory { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                help("run it as root; the kernel needs CONFIG_DEVMEM, and no lockdown")
            }
            Self::Refused {
                call: Call::VmOrder,
                error: CallError::Denied,
            } => help(
                "name the VM in `manages` in this VM's configuration, with the service `manage`, \
                 and boot the system again",
            ),
            Self::Refused {
                call: Call::BudgetRead | Call::BudgetSet,
                error: CallError::Denied,
            } => help(
                "name the VM in `regulates` in this VM's configuration, with the service \
                 `regulate`, and boot the system again",
            ),
            Self::Refused {
                call,
                error: CallError::Denied,
            } => service(*call).map(|name| {
                format!(
                    "add \"{name}\" to `services` in the VM's configuration, and boot the system \
                     again"
                )
            }),
            Self::Refused {
                error: CallError::PoolFull,
                ..
            }
            | Self::Page {
                error: CallError::PoolFull,
                ..
            } => help(
                "nothing was moved; request fewer pages, or move some back with `cloisonctl \
                 migrate restore`",
            ),
            Self::Refused {
                error: CallError::Busy,
                ..
            } => help("try again"),
            Self::NothingToCountWith => help(
                "add \"counters\" to `services` in the VM's configuration, or give the VM a PMU: \
                 pmu = \"emulated\"; and boot the system again",
            ),
            Self::Taken { .. } => help("wait until it has ended, or choose another vCPU by --vcpu"),
            Self::Cpu { .. } => help("mount /sys; the kernel shows it since Linux 4.7"),
            Self::Refused {
                error: CallError::Taken,
                ..
            }
            | Self::Page {
                error: CallError::Taken,
                ..
            } => help("let the other program end, or its lease run out"),
            Self::List { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                help("run it as root")
            }
            _ => None,
        }
    }
}

/// The services that a configuration can grant, and its names for them.
pub const SERVICE_NAMES: [(u32, &str); 7] = [
    (services::HEM, "hem"),
    (services::MIGRATE, "migrate"),
    (services::QUOTA, "quota"),
    (services::PROFILE, "profile"),
    (services::MANAGE, "manage"),
    (services::REGULATE, "regulate"),
    (services::COUNTERS, "counters"),
];

/// Returns the service that a call needs, as configurations name it. Of a call that two services
/// grant, it is the one for which programs make the call.
fn service(call: Call) -> Option<&'static str> {
    let granting = call.services();
    let purpose = [services::PROFILE, services::MANAGE]
        .into_iter()
        .find(|bit| granting & bit != 0);
    let service = purpose.unwrap_or(granting);
    let (_, name) = SERVICE_NAMES.iter().find(|(bit, _)| *bit == service)?;
    Some(name)
}

fn refusal(call: Call, error: CallError) -> String {
    let migrates = service(call) == Some("migrate");
    match (error, service(call)) {
        (CallError::Denied, _) if call == Call::VmOrder => {
            "this VM may not manage that one".to_owned()
        }
        (CallError::Denied, Some("regulate")) => {
            "this VM may not set the quotas of that one".to_owned()
        }
        (CallError::Denied, Some(name)) => format!("this VM is not granted the service `{name}`"),
        (CallError::Denied, None) => "this VM may not make this call".to_owned(),
        (CallError::NotSupported, _) => "the hypervisor does not know this call".to_owned(),
        (CallError::PoolFull, _) => "the pool has too few free pages".to_owned(),
        (CallError::List, _) => "the hypervisor does not find the list of pages".to_owned(),
        (CallError::Expired, _) => "the lease has ended".to_owned(),
        (CallError::Off, _) => "the called VM is off".to_owned(),
        (CallError::TooOften, _) => "this VM calls more often than its doorbell allows".to_owned(),
        (CallError::Taken, Some("profile")) => {
            "another program has the lease of this VM's pages".to_owned()
        }
        (CallError::Taken, _) => "another program has moved it".to_owned(),
        (CallError::Busy, Some("manage")) => "an earlier change of that VM is not over".to_owned(),
        (CallError::Busy, _) => {
            "another migration or change of cacheability of this VM is in progress".to_owned()
        }
        (CallError::Absent, _) if migrates => {
            "the VM has no such pool, or no page profile".to_owned()
        }
        (CallError::Absent, Some("quota")) => "this vCPU's core has no such quota".to_owned(),
        (CallError::Absent, Some("regulate")) => {
            "there is no such VM, or it has no such quota".to_owned()
        }
        (CallError::Absent, Some("manage")) => "the machine has no such VM".to_owned(),
        (CallError::Absent, Some("counters")) => "this vCPU has no such counter".to_owned(),
        (CallError::Absent, Some("hem")) => "this VM has no such HEM".to_owned(),
        (CallError::Absent, _) => {
            "the call refers to something that this VM does not have".to_owned()
        }
        (CallError::Sequence, _) if call == Call::SegmentBegin => {
            "an observation segment is already open on this vCPU".to_owned()
        }
        (CallError::Sequence, _) => "no observation segment is open on this vCPU".to_owned(),
        (CallError::Invalid, Some("quota")) => {
            "a budget can be lowered, not raised above the configured one".to_owned()
        }
        (CallError::Invalid, Some("regulate")) => "a budget is at least one event, and never \
                                                   above the quota's ceiling (`up_to`)"
            .to_owned(),
        (CallError::Invalid, _) if call == Call::Migrate => {
            "the VM's profile does not have that many pages".to_owned()
        }
        (CallError::Invalid, Some("migrate")) => {
            "not a page of the VM's pools, or already in the private one".to_owned()
        }
        (CallError::Invalid, _) => {
            "an address or number is out of range or not in the VM's RAM".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_call_names_the_service_to_ask_for() {
        for (call, name) in [
            (Call::Time, None),
            (Call::SegmentEnd, Some("hem")),
            (Call::MovePages, Some("migrate")),
            (Call::Lease, Some("profile")),
            (Call::VmRead, Some("manage")),
            (Call::VmOrder, Some("manage")),
            (Call::BudgetSet, Some("regulate")),
            (Call::CounterMasks, Some("counters")),
        ] {
            assert_eq!(service(call), name, "{call:?}");
        }
    }
}
