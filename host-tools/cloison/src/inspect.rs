//! `cloison inspect`: the color map of a configuration, and its verification on the booted system.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::{between, color_map, live};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::figures::Figures;
use cloison_engine::{cargo, configuration, image, parts, setup};
use miette::{Result, WrapErr};
use std::path::PathBuf;

/// `cloison inspect`.
#[derive(Clone, Debug, clap::Args)]
pub struct InspectArgs {
    /// The system's configuration
    pub config: PathBuf,
    /// Boot it, walk its real stage-2 tables, and verify that each page's color belongs to its
    /// pool
    #[arg(long)]
    pub live: bool,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Boot a hypervisor whose allocator returns wrong frames occasionally: the verification must
    /// fail
    #[arg(long, requires = "live", hide_short_help = true)]
    pub fault_injection: bool,
}

/// Runs `cloison inspect`.
pub fn inspect(args: &InspectArgs) -> Result<()> {
    let mut checked = configuration::load(&args.config, args.board.as_deref())?;
    color_map::print_color_map(&checked);
    let ways = between::between(&checked.system);
    if !ways.is_empty() {
        println!("\n  {}", ways.join("\n  "));
    }
    let name = checked.system.board.name.clone();
    let mut figures = Figures::new("inspect").board(&name).config(&args.config);
    for (figure, value) in color_map::figures(&checked) {
        figures.count(figure, value as u64);
    }
    let verdict = if args.live {
        let emulation = checked.emulation()?.clone();
        parts::prepare()?;
        setup::qemu()?;
        checked.system.audit = true;
        let features: &[&str] = if args.fault_injection {
            &[cargo::FAULT_INJECTION]
        } else {
            &[]
        };
        let image = image::build(&checked, features)?;
        let audit = live::boot_and_judge(&image, &emulation)
            .wrap_err("the system could not be inspected")?;
        println!("{audit}");
        audit.figures(&mut figures);
        audit.verdict()
    } else {
        Ok(())
    };
    figures.write(args.json.as_deref())?;
    verdict
}
