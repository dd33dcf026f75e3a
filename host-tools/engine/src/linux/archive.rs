//! Archives in the format that Linux unpacks at boot: cpio (newc), compressed with gzip.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cpio::newc::{Builder, ModeFileType, trailer};
use flate2::Compression;
use flate2::write::GzEncoder;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::io::Write;

/// An entry of the RAM disk.
pub(super) enum Node<'a> {
    Directory,
    Program(&'a [u8]),
    Link(&'a str),
    Device((u32, u32)),
}

/// Makes an archive: cpio (newc), compressed with gzip.
pub(super) fn pack(nodes: &[(String, Node)], compression: Compression) -> Result<Vec<u8>> {
    let archive = archive(nodes)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot make the initial RAM disk"))?;
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
        let mut builder = Builder::new(name)
            .ino(number)
            .nlink(1)
            .mode(mode)
            .set_mode_file_type(kind);
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
