//! `cloison linux`: kernels and programs for Linux guests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_bench::boot_cost;
use cloison_config::ImageSource;
use cloison_config::guest_linux::{Flavor, KernelSource, Release};
use cloison_engine::configuration;
use cloison_engine::figures::Figures;
use cloison_engine::linux::device_tree::Around;
use cloison_engine::linux::modules::{self, Set};
use cloison_engine::linux::packages::{self, Cached, CachedFile};
use cloison_engine::linux::programs;
use cloison_engine::setup::consent::{self, Consent};
use cloison_engine::text::{Style, grouped};
use cloison_formats::ids::VmId;
use miette::Result;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// `cloison linux`.
#[derive(Clone, Debug, clap::Args)]
pub struct LinuxArgs {
    #[command(subcommand)]
    command: LinuxCommand,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum LinuxCommand {
    /// Download Debian's kernels and busybox, and list what is in the cache
    Fetch {
        /// Also download the packages that these configurations name
        #[arg(value_name = "CONFIG")]
        configs: Vec<PathBuf>,
        /// The Debian release of the kernels, besides those that the configurations name
        #[arg(long, value_name = "RELEASE", default_value_t)]
        release: Release,
        /// Download again, which gets the newest versions, all that is in the cache
        #[arg(long)]
        update: bool,
        /// Also write the figures here
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Count the instructions that the hypervisor adds to booting each kernel
    BootCost(boot_cost::BootCostArgs),
}

/// Runs `cloison linux`.
pub fn linux(args: &LinuxArgs) -> Result<()> {
    let (configs, release, update, json) = match &args.command {
        LinuxCommand::Fetch {
            configs,
            release,
            update,
            json,
        } => (configs, *release, *update, json),
        LinuxCommand::BootCost(args) => return boot_cost::boot_cost(args),
    };
    consent::give(Consent::Given);
    let mut releases = BTreeSet::from([release]);
    let mut lists: BTreeSet<(Release, Vec<String>)> = BTreeSet::new();
    let mut drivers: BTreeSet<(Release, Flavor, Set)> = BTreeSet::new();
    for path in configs {
        let checked = configuration::load(path, None)?;
        for (vm, image) in (0..).zip(checked.images) {
            if let ImageSource::Linux(linux) = image {
                releases.insert(linux.release);
                if let KernelSource::Debian(flavor) = linux.kernel {
                    let sets = Around::of(&checked.system, VmId(vm)).modules(&linux);
                    let all = sets.into_iter().map(|set| (linux.release, flavor, set));
                    drivers.extend(all);
                }
                if !linux.packages.is_empty() {
                    lists.insert((linux.release, linux.packages));
                }
            }
        }
    }
    let cached = if update { Cached::Update } else { Cached::Use };
    if update {
        releases.extend(
            Release::ALL
                .into_iter()
                .filter(|release| packages::is_kept(*release)),
        );
        let kernels = Release::ALL
            .into_iter()
            .flat_map(|release| Flavor::ALL.map(|flavor| (release, flavor)));
        let all = kernels.flat_map(|(release, flavor)| Set::ALL.map(|set| (release, flavor, set)));
        drivers
            .extend(all.filter(|&(release, flavor, set)| modules::are_kept(release, flavor, set)));
        lists.extend(Release::ALL.into_iter().flat_map(|release| {
            packages::kept_lists(release)
                .into_iter()
                .map(move |list| (release, list))
        }));
    }
    let mut figures = Figures::new("linux");
    for release in releases {
        for (name, kept) in packages::all(release, cached)? {
            report(&format!("{release} {name}"), &kept);
            figures.count(format!("{release}_{name}_bytes"), kept.bytes);
        }
    }
    for (release, flavor, set) in drivers {
        let (name, of) = (flavor.name(), set.name());
        let kept = modules::archive(release, flavor, set, cached)?;
        report(&format!("{release} {name} {of}"), &kept);
        figures.count(format!("{release}_{name}_{of}_bytes"), kept.bytes);
    }
    for (number, (release, list)) in lists.iter().enumerate() {
        let kept = programs::archive(*release, list, cached)?;
        report(&format!("{release} packages"), &kept);
        figures.count(format!("packages{number}_bytes"), kept.bytes);
    }
    figures.write(json.as_deref())
}

fn report(name: &str, kept: &CachedFile) {
    println!("{name:<17} {} ({})", kept.package, kept.version);
    println!(
        "{:<17} {} bytes, SHA-256 {}",
        "",
        shown(kept.bytes),
        kept.sha256
    );
}

fn shown(bytes: u64) -> String {
    Style::of_output().show(&grouped(bytes))
}
