//! `cloison import`: configurations of Bao, Jailhouse, Xen and hvisor as Cloison's.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::problem::{count, display_path};
use cloison_config::quantity::number_set;
use cloison_config::shipped::DEFAULT_BOARD;
use cloison_config::sources::WORKLOADS;
use cloison_config::{guest_map, suggest};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::configuration;
use cloison_engine::files::write_atomic;
use cloison_import::c::Settings;
use cloison_import::{Imported, Options, Target};
use miette::{Report, Result, miette};
use std::path::PathBuf;

/// `cloison import`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportArgs {
    /// Files of one system, told by their contents: Bao's config.c, Jailhouse's root cell and other
    /// cells in C, a Xen dom0less device tree (source or compiled) or ImageBuilder configuration,
    /// hvisor's JSON
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Write the configuration here, not to the standard output
    #[arg(short, long = "out", alias = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The board, if not the one with the files' interrupt distributor
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// The hypervisor's colors, if neither those of the files nor free ones
    #[arg(long, value_name = "SET", value_parser = color_mask)]
    pub hypervisor_colors: Option<u64>,
    /// The file of an image, by the name of its VM or by the name that the files have for it
    #[arg(long, value_name = "NAME=PATH", value_parser = named_path)]
    pub image: Vec<(String, PathBuf)>,
    /// The directory with the images that the files name
    #[arg(long, value_name = "DIR")]
    pub images: Option<PathBuf>,
    /// A workload of Cloison that runs instead of images that are not here
    #[arg(long, value_name = "WORKLOAD", value_parser = workload)]
    pub stand_in: Option<String>,
    /// A directory with headers that the files include, besides those near them
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<PathBuf>,
    /// A macro for files in C
    #[arg(short = 'D', value_name = "NAME=VALUE")]
    pub define: Vec<String>,
}

fn color_mask(text: &str) -> Result<u64, String> {
    let set =
        number_set(text, "color").map_err(|error| format!("{}; {}", error.message, error.help))?;
    set.into_iter().try_fold(0, |mask, (color, _)| {
        let bit = u32::try_from(color)
            .ok()
            .and_then(|color| 1_u64.checked_shl(color));
        bit.map(|bit| mask | bit)
            .ok_or_else(|| format!("there is no color {color}; colors are 0 to 63"))
    })
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("write NAME=PATH: the VM or the image, and its file".to_owned()),
    }
}

fn workload(text: &str) -> Result<String, String> {
    let known = || WORKLOADS.iter().map(|(known, _)| *known);
    if known().any(|name| name == text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "there is no workload `{text}`; {}",
            suggest(text, "workloads", known())
        ))
    }
}

/// Runs `cloison import`: writes the configuration, and lists what is not as it was.
pub fn import(args: &ImportArgs) -> Result<()> {
    let boards = configuration::boards();
    let mut names: Vec<&str> = boards.iter().map(String::as_str).collect();
    if let Some(own) = args.board.as_deref().filter(|name| !names.contains(name)) {
        names.push(own);
    }
    let boards = names
        .into_iter()
        .map(configuration::board)
        .collect::<Result<Vec<_>, _>>()?;
    let target = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from("imported.toml"));
    let options = Options {
        board: args.board.clone(),
        hypervisor_colors: args.hypervisor_colors,
        settings: Settings {
            includes: args.include.clone(),
            defines: args.define.clone(),
        },
        images: args.image.clone(),
        folder: args.images.clone(),
        stand_in: args.stand_in.clone(),
        base: target.parent().map(PathBuf::from).unwrap_or_default(),
    };
    let maps = guest_map::all(&configuration::directory())?;
    let imported = cloison_import::import(
        &args.files,
        &options,
        &Target {
            boards: &boards,
            default: DEFAULT_BOARD,
            maps: &maps,
            check: &|text| configuration::load_text(&target, text, None),
        },
    )?;
    match &args.output {
        Some(path) => write_atomic(path, imported.text.as_bytes())?,
        None => print!("{}", imported.text),
    }
    report(args, imported)
}

/// Says on standard error what the files are, what is not as it was, and what `check` says.
fn report(args: &ImportArgs, imported: Imported) -> Result<()> {
    for (path, kind) in args.files.iter().zip(&imported.kinds) {
        eprintln!("{}: {}", display_path(path).display(), kind.name());
    }
    let entries = match imported.list.len() {
        1 => "1 entry".to_owned(),
        number => format!("{number} entries"),
    };
    eprintln!(
        "{} taken over; not as it was: {entries}",
        count(imported.taken, "item")
    );
    for entry in &imported.list {
        eprintln!("  {entry}");
    }
    let written = args.output.as_deref().map_or_else(
        || "the configuration".to_owned(),
        |path| display_path(path).display().to_string(),
    );
    match imported.checked {
        Ok(checked) => {
            eprintln!("{written}: ok ({})", checked.summary());
            Ok(())
        }
        Err(errors) => {
            eprintln!("{:?}", Report::new(errors));
            Err(miette!(
                help = "change it as these errors say, then run `cloison check`",
                "{written} is written, but it is not valid yet"
            ))
        }
    }
}
