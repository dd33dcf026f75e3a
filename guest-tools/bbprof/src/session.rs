//! The common part of all modes that run a program: preparing the machine, starting the program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::command::Common;
use crate::error::Error;
use crate::held::HeldLease;
use crate::program::Binary;
use crate::sampler::Processes;
use crate::target::Launch;
use crate::{machine, signals};
use cloison_profile::Provenance;
use std::ffi::OsString;
use std::path::Path;

/// The machine while a mode runs. This process is the only profiler and is pinned to a vCPU. It is
/// a real-time process unless an option says otherwise.
pub struct Machine {
    /// The VM's pages.
    pub held: HeldLease,
    /// The share of time that real-time processes had before.
    share: Option<String>,
}

/// The part of the time that real-time processes may have.
const SHARE: &str = "/proc/sys/kernel/sched_rt_runtime_us";

impl Machine {
    /// Takes the VM's lease, and prepares this process.
    pub fn prepare(common: &Common) -> Result<Self, Error> {
        let held = HeldLease::take()?;
        signals::watch()?;
        cloison_client::pin(common.vcpu)?;
        let mut share = None;
        if !common.no_real_time {
            // Otherwise the kernel would stop both for a twentieth of each second.
            share = std::fs::read_to_string(SHARE).ok();
            std::fs::write(SHARE, "-1")
                .map_err(Error::system("let real-time processes have all the time"))?;
            machine::become_real_time(machine::Role::Profiler)
                .map_err(Error::system("become a real-time process"))?;
        }
        Ok(Self { held, share })
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(share) = &self.share {
            // It could be written before; if not now, only the kernel's protection from runaway
            // processes is missing.
            let _ = std::fs::write(SHARE, share);
        }
    }
}

/// The environment of programs beside what the user adds and the settings of the allocator. It is
/// not that of the user's shell, which differs from login to login.
pub const ENVIRONMENT: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Returns all variables of the program that a profile is of.
pub fn variables(provenance: &Provenance) -> Vec<(String, String)> {
    let pair = |setting: &String| {
        setting
            .split_once('=')
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    let Provenance {
        environment,
        allocator,
        ..
    } = provenance;
    environment
        .iter()
        .chain(allocator)
        .filter_map(pair)
        .collect()
}

/// Returns the processes that the options allow.
pub fn processes(common: &Common) -> Processes {
    if common.new_processes {
        Processes::New("--new-processes".to_owned())
    } else {
        Processes::One
    }
}

/// Returns how to start the program that a profile is of under the options.
pub fn launch(
    common: &Common,
    binary: &Binary,
    arguments: &[OsString],
    provenance: &Provenance,
) -> Launch {
    Launch {
        program: binary.path().to_owned(),
        arguments: arguments.to_vec(),
        environment: variables(provenance),
        fixed: common.fixed,
        real_time: !common.no_real_time,
        quiet: !common.output,
    }
}

/// Returns the settings by which glibc's allocator takes all memory from a heap that is large enough
/// from the start, and gives nothing back (BBProf, section 5.1).
pub fn allocator(peak: u64) -> Vec<String> {
    vec![
        format!("MALLOC_TOP_PAD_={peak}"),
        "MALLOC_MMAP_MAX_=0".to_owned(),
        format!("MALLOC_TRIM_THRESHOLD_={}", i64::MAX),
    ]
}

/// Returns the first line of a file of the kernel's, or nothing.
pub fn line_of(path: impl AsRef<Path>) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim_end_matches(['\n', '\0']).to_owned()
}
