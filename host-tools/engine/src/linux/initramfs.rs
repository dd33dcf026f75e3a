//! The initial RAM disk of Linux VMs: Debian's static busybox, the `cloison` command, a first process that gives a shell on
//! the console, and the programs that a configuration names: of Debian packages, and files.

use super::archive::{Node, pack};
use super::{packages, programs};
use crate::parts;
use cloison_config::guest_linux::Linux;
use flate2::Compression;
use miette::{IntoDiagnostic, Result, WrapErr, miette};

/// The first process.
const INIT: &str = include_str!("init.sh");

const DIRECTORIES: [&str; 9] = ["bin", "dev", "etc", "proc", "root", "run", "sbin", "sys", "tmp"];
/// Of `/dev/console`, which the kernel opens for the first process before there is a devtmpfs: major and minor.
const CONSOLE: (u32, u32) = (5, 1);

/// The command of a configuration, for the first process.
const EXEC: &str = "exec";
/// Where programs that are files go.
const PROGRAMS: &str = "usr/bin";

/// Makes the RAM disk. The same inputs make the same bytes.
pub fn build(linux: &Linux) -> Result<Vec<u8>> {
    let mut disk = base()?;
    // A kernel unpacks one archive after the other.
    if !linux.packages.is_empty() {
        disk.extend(std::fs::read(programs::archive(&linux.packages)?.path).into_diagnostic()?);
    }
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for path in &linux.programs {
        let name = path.file_name().ok_or_else(|| miette!("{} names no file", path.display()))?;
        let bytes =
            std::fs::read(path).into_diagnostic().wrap_err_with(|| miette!("cannot read {}", path.display()))?;
        files.push((format!("{PROGRAMS}/{}", name.to_string_lossy()), bytes));
    }
    files.extend(linux.exec.as_ref().map(|command| (EXEC.to_owned(), format!("{command}\n").into_bytes())));
    if !files.is_empty() {
        let mut nodes: Vec<(String, Node)> = ["usr", PROGRAMS].map(|name| (name.to_owned(), Node::Directory)).into();
        nodes.extend(files.iter().map(|(path, bytes)| (path.clone(), Node::Program(bytes))));
        disk.extend(pack(&nodes, Compression::fast())?);
    }
    Ok(disk)
}

fn base() -> Result<Vec<u8>> {
    let busybox = std::fs::read(packages::busybox()?.path).into_diagnostic()?;
    let client = std::fs::read(parts::client()?).into_diagnostic()?;
    let mut nodes: Vec<(String, Node)> = DIRECTORIES.map(|name| (name.to_owned(), Node::Directory)).into();
    nodes.push(("dev/console".into(), Node::Device(CONSOLE)));
    nodes.push(("bin/busybox".into(), Node::Program(&busybox)));
    nodes.push(("bin/cloisonctl".into(), Node::Program(&client)));
    nodes.push(("bin/sh".into(), Node::Link("busybox")));
    nodes.push(("init".into(), Node::Program(INIT.as_bytes())));
    pack(&nodes, Compression::fast())
}
