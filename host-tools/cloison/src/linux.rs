//! `cloison linux`: kernels and programs for Linux guests.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::ImageSource;
use cloison_engine::configuration;
use cloison_engine::figures::Figures;
use cloison_engine::linux::packages::{self, Cached};
use cloison_engine::linux::programs;
use cloison_engine::text::{Style, grouped};
use cloison_lab::boot_cost;
use miette::Result;
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
        /// Download again, which gets the newest versions
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
    let (configs, update, json) = match &args.command {
        LinuxCommand::Fetch { configs, update, json } => (configs, update, json),
        LinuxCommand::BootCost(args) => return boot_cost::boot_cost(args),
    };
    let mut lists: Vec<Vec<String>> = Vec::new();
    for path in configs {
        for image in configuration::load(path, None)?.images {
            if let ImageSource::Linux(linux) = image
                && !linux.packages.is_empty()
                && !lists.contains(&linux.packages)
            {
                lists.push(linux.packages);
            }
        }
    }
    let cached = if *update { Cached::Update } else { Cached::Use };
    if *update {
        lists.extend(packages::kept_lists().into_iter().filter(|list| !lists.contains(list)).collect::<Vec<_>>());
    }
    let mut figures = Figures::new("linux");
    for (name, kept) in packages::all(cached)? {
        println!("{name:<8} {} {}", kept.package, kept.version);
        println!("{:<8} {} bytes, SHA-256 {}", "", shown(kept.bytes), kept.sha256);
        figures.count(format!("{name}_bytes"), kept.bytes);
    }
    for (number, list) in lists.iter().enumerate() {
        let kept = programs::archive(list, cached)?;
        println!("{:<8} {} ({})", "packages", kept.package, kept.version);
        println!("{:<8} {} bytes, SHA-256 {}", "", shown(kept.bytes), kept.sha256);
        figures.count(format!("packages{number}_bytes"), kept.bytes);
    }
    figures.write(json.as_deref())
}

fn shown(bytes: u64) -> String {
    Style::of_output().show(&grouped(bytes))
}
