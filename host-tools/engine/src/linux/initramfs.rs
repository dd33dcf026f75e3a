//! The initial RAM disk of Linux guests: Debian's static busybox, the `cloisonctl` command, a first
//! process that starts a shell on the console, and the programs that a configuration names, from
//! Debian packages and files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::archive::{Node, pack};
use super::device_tree::Around;
use super::modules;
use super::packages::{self, Cached};
use crate::{files, parts};
use cloison_config::guest_linux::{KernelSource, Linux, Release};
use flate2::Compression;
use miette::{IntoDiagnostic, Result, miette};

/// Script of the first process.
const INIT: &str = include_str!("init.sh");

const DIRECTORIES: [&str; 9] = [
    "bin", "dev", "etc", "proc", "root", "run", "sbin", "sys", "tmp",
];
/// Major and minor number of `/dev/console`, which the kernel opens for the first process before
/// there is a devtmpfs.
const CONSOLE: (u32, u32) = (5, 1);

/// Path of the configuration's command, which the first process runs.
const EXEC: &str = "exec";
/// Destination of programs given as files.
const PROGRAMS: &str = "usr/bin";

/// Builds the RAM disk. The same inputs give the same bytes.
pub fn build(linux: &Linux, around: &Around) -> Result<Vec<u8>> {
    let mut disk = base(linux.release)?;
    if let KernelSource::Debian(flavor) = linux.kernel {
        for set in around.modules(linux) {
            let modules = modules::archive(linux.release, flavor, set, Cached::Use)?;
            disk.extend(std::fs::read(modules.path).into_diagnostic()?);
        }
    }
    // A kernel unpacks concatenated archives in order.
    if !linux.packages.is_empty() {
        disk.extend(
            std::fs::read(
                super::programs::archive(linux.release, &linux.packages, Cached::Use)?.path,
            )
            .into_diagnostic()?,
        );
    }
    let mut programs: Vec<(String, Vec<u8>)> = Vec::new();
    for name in &linux.tools {
        let bytes = std::fs::read(parts::tool(name)?).into_diagnostic()?;
        programs.push((format!("{PROGRAMS}/{name}"), bytes));
    }
    for path in &linux.programs {
        let name = path
            .file_name()
            .ok_or_else(|| miette!("{} is not a file", path.display()))?;
        let bytes = files::read(path, files::IMAGE)?;
        programs.push((format!("{PROGRAMS}/{}", name.to_string_lossy()), bytes));
    }
    programs.extend(
        linux
            .exec
            .as_ref()
            .map(|command| (EXEC.to_owned(), format!("{command}\n").into_bytes())),
    );
    if !programs.is_empty() {
        let mut nodes: Vec<(String, Node)> = ["usr", PROGRAMS]
            .map(|name| (name.to_owned(), Node::Directory))
            .into();
        nodes.extend(
            programs
                .iter()
                .map(|(path, bytes)| (path.clone(), Node::Program(bytes))),
        );
        disk.extend(pack(&nodes, Compression::fast())?);
    }
    Ok(disk)
}

fn base(release: Release) -> Result<Vec<u8>> {
    let busybox = std::fs::read(packages::busybox(release, Cached::Use)?.path).into_diagnostic()?;
    let client = std::fs::read(parts::client()?).into_diagnostic()?;
    let mut nodes: Vec<(String, Node)> = DIRECTORIES
        .map(|name| (name.to_owned(), Node::Directory))
        .into();
    nodes.push(("dev/console".into(), Node::Device(CONSOLE)));
    nodes.push(("bin/busybox".into(), Node::Program(&busybox)));
    nodes.push(("bin/cloisonctl".into(), Node::Program(&client)));
    nodes.push(("bin/sh".into(), Node::Link("busybox")));
    nodes.push(("init".into(), Node::Program(INIT.as_bytes())));
    pack(&nodes, Compression::fast())
}
