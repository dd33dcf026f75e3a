//! The initial RAM disk of Linux VMs: Debian's static busybox, the `cloison` command, a first process that gives a shell on
//! the console, and the programs that a configuration names: of Debian packages, and files.

use super::{Linux, packages, programs};
use crate::build;
use cpio::newc::{Builder, ModeFileType, trailer};
use flate2::Compression;
use flate2::write::GzEncoder;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::Write;

/// The first process.
const INIT: &str = include_str!("init.sh");

const DIRECTORIES: [&str; 9] = ["bin", "dev", "etc", "proc", "root", "run", "sbin", "sys", "tmp"];
/// Of `/dev/console`, which the kernel opens for the first process before there is a devtmpfs: major and minor.
const CONSOLE: (u32, u32) = (5, 1);

/// What the RAM disk holds.
pub(super) enum Node<'a> {
    Directory,
    Program(&'a [u8]),
    Link(&'a str),
    Device((u32, u32)),
}

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
    let client = std::fs::read(build::client()?).into_diagnostic()?;
    let mut nodes: Vec<(String, Node)> = DIRECTORIES.map(|name| (name.to_owned(), Node::Directory)).into();
    nodes.push(("dev/console".into(), Node::Device(CONSOLE)));
    nodes.push(("bin/busybox".into(), Node::Program(&busybox)));
    nodes.push(("bin/cloisonctl".into(), Node::Program(&client)));
    nodes.push(("bin/sh".into(), Node::Link("busybox")));
    nodes.push(("init".into(), Node::Program(INIT.as_bytes())));
    pack(&nodes, Compression::fast())
}

/// Makes an archive: cpio (newc), packed by gzip.
pub(super) fn pack(nodes: &[(String, Node)], compression: Compression) -> Result<Vec<u8>> {
    let archive = archive(nodes).into_diagnostic().wrap_err_with(|| miette!("cannot make the initial RAM disk"))?;
    let mut packed = GzEncoder::new(Vec::new(), compression);
    packed.write_all(&archive).into_diagnostic()?;
    packed.finish().into_diagnostic()
}

fn archive(nodes: &[(String, Node)]) -> std::io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    for (number, (name, node)) in (1..).zip(nodes) {
        let (kind, mode, bytes): (_, _, &[u8]) = match node {
            Node::Directory => (ModeFileType::Directory, 0o755, &[]),
            Node::Program(bytes) => (ModeFileType::Regular, 0o755, bytes),
            Node::Link(target) => (ModeFileType::Symlink, 0o777, target.as_bytes()),
            Node::Device(_) => (ModeFileType::Char, 0o600, &[]),
        };
        let mut builder = Builder::new(name).ino(number).nlink(1).mode(mode).set_mode_file_type(kind);
        if let Node::Device((major, minor)) = node {
            builder = builder.rdev_major(*major).rdev_minor(*minor);
        }
        let mut file = builder.write(&mut archive, bytes.len() as u32);
        file.write_all(bytes)?;
        file.finish()?;
    }
    trailer(&mut archive)?;
    Ok(archive)
}
