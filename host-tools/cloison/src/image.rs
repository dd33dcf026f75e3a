//! `cloison image`: writes the files for an SD card from which U-Boot starts Cloison.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::validation::record::Machine;
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, machines};
use cloison_engine::figures::Figures;
use cloison_engine::files::{keep_apart, write_atomic};
use cloison_engine::image::{self, Image};
use cloison_engine::{configuration, installation, text};
use cloison_formats::image::System;
use miette::Result;
use std::path::{Path, PathBuf};

/// `cloison image`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageArgs {
    /// The system's configuration
    pub config: PathBuf,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// The machine that will boot the image, whose verdicts on events its quotas need
    #[arg(long, value_name = "MACHINE", default_value = "hardware", value_parser = machines())]
    pub machine: Machine,
    /// Take quotas on events that nobody has validated there, as `allow_untrusted = true` in each
    /// does
    #[arg(long)]
    pub allow_untrusted: bool,
    /// Directory for the files [default: image/CONFIG-BOARD in target/cloison, without a checkout
    /// in cloison-output]
    #[arg(short, long = "out", alias = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Runs `cloison image`.
pub fn image(args: &ImageArgs) -> Result<()> {
    let mut checked = configuration::load(&args.config, args.board.as_deref())?;
    if args.allow_untrusted {
        checked.allow_untrusted();
    }
    counting::prepare_for(&mut checked, args.machine)?;
    let image = image::build(&checked, &[])?;
    let stem = args
        .config
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let name = format!("{stem}-{}", image.system.board.name);
    let directory = args
        .output
        .clone()
        .unwrap_or_else(|| installation::output_dir().join("image").join(name));
    let outputs: Vec<PathBuf> = FILES
        .iter()
        .map(|file| directory.join(file))
        .chain(args.json.clone())
        .collect();
    keep_apart(
        [installation::find(&args.config).as_path()],
        outputs.iter().map(PathBuf::as_path),
    )?;
    write(&image, &checked.board.card, &directory)?;
    for file in FILES {
        println!("{}", installation::display(&directory.join(file)));
    }
    println!(
        "{} bytes for board {}; copy the files to the first (FAT) partition of the card",
        text::Style::of_output().show(&text::grouped(image.bytes.len() as u64)),
        image.system.board.name
    );
    let mut figures = Figures::new("image")
        .board(&image.system.board.name)
        .config(&args.config)
        .image(&image);
    figures
        .count("image_bytes", image.bytes.len() as u64)
        .count("hypervisor_bytes", image.hypervisor_len as u64);
    figures.write(args.json.as_deref())
}

/// The files that [`write`] writes.
const FILES: [&str; 4] = ["Image", "boot.cmd", "boot.scr", "README.txt"];

/// Writes the image, the boot script as text and in binary form, and instructions with what the
/// board file says on its card.
pub fn write(image: &Image, card: &str, directory: &Path) -> Result<()> {
    let (script, readme) = (script(), readme(image, card));
    let wrapped = legacy_script(&script);
    let contents: [&[u8]; 4] = [&image.bytes, script.as_bytes(), &wrapped, readme.as_bytes()];
    for (name, bytes) in FILES.into_iter().zip(contents) {
        write_atomic(&directory.join(name), bytes)?;
    }
    Ok(())
}

/// Returns U-Boot's script. `devtype`, `devnum` and `distro_bootpart` are set by U-Boot's search
/// for `boot.scr`; the values here are those of a ZCU102's SD slot, for a script that is started by
/// hand.
fn script() -> String {
    "\
if test -z \"${devtype}\"; then setenv devtype mmc; fi
if test -z \"${devnum}\"; then setenv devnum 0; fi
if test -z \"${distro_bootpart}\"; then setenv distro_bootpart 1; fi
if test -z \"${kernel_addr_r}\"; then setenv kernel_addr_r 0x18000000; fi
echo Cloison: loading Image to ${kernel_addr_r}
load ${devtype} ${devnum}:${distro_bootpart} ${kernel_addr_r} Image && booti ${kernel_addr_r} - \
     ${fdtcontroladdr}
echo Cloison: Image could not be started
"
    .to_owned()
}

/// Wraps a script in U-Boot's legacy image header, as `mkimage -T script` does, so that `source`
/// accepts it.
fn legacy_script(script: &str) -> Vec<u8> {
    const MAGIC: u32 = 0x2705_1956;
    const LINUX: u8 = 5;
    const ARM64: u8 = 22;
    const SCRIPT: u8 = 6;
    const UNCOMPRESSED: u8 = 0;
    // A script image contains a list of lengths that ends with 0, then the scripts.
    let mut data = (script.len() as u32).to_be_bytes().to_vec();
    data.extend_from_slice(&0_u32.to_be_bytes());
    data.extend_from_slice(script.as_bytes());
    let mut name = [0; 32];
    name[..7].copy_from_slice(b"Cloison");
    let header = |header_crc: u32| {
        let mut header = Vec::with_capacity(64);
        // Time, load address and entry point are 0: the image does not depend on when it is built,
        // and is not executed.
        for word in [
            MAGIC,
            header_crc,
            0,
            data.len() as u32,
            0,
            0,
            crc32fast::hash(&data),
        ] {
            header.extend_from_slice(&word.to_be_bytes());
        }
        header.extend_from_slice(&[LINUX, ARM64, SCRIPT, UNCOMPRESSED]);
        header.extend_from_slice(&name);
        header
    };
    // The header's CRC is computed with its own field set to 0.
    let mut image = header(crc32fast::hash(&header(0)));
    image.extend_from_slice(&data);
    image
}

/// Returns the instructions beside the image: what is on the card, what `card` of the board file
/// says, and how the image is started by hand.
fn readme(image: &Image, card: &str) -> String {
    let System {
        name,
        board,
        hypervisor_colors,
        vms,
        ..
    } = &image.system;
    let ram = board.ram.first().map_or(0, |range| range.start.0);
    let card = card.trim();
    let card = if card.is_empty() {
        "The board file says nothing on what else this board needs."
    } else {
        card
    };
    format!(
        "\
Cloison system image \"{name}\" for board {board_name}

Image     {length} bytes: hypervisor, configuration and guests (arm64 Image format)
boot.scr  boot script for U-Boot; boot.cmd is its text

Copy all files to the first partition (FAT) of the SD card.

{card}

U-Boot finds boot.scr by itself. By hand, at its prompt, from the card or from a TFTP server:

  load mmc 0:1 ${{kernel_addr_r}} Image
  dhcp ${{kernel_addr_r}} SERVER:Image

then

  booti ${{kernel_addr_r}} - ${{fdtcontroladdr}}

Load address: any multiple of 0x200000 in RAM (RAM starts at {ram:#x}); U-Boot's own kernel_addr_r is one.
The image and what follows it need {need:#x} bytes there. U-Boot must run at EL2: its banner says so.

The first line after \"Starting kernel ...\":

  [core 0] Cloison {version} on {board_name}: {name}, {colors} colors, own colors {hypervisor_colors}, {vms} VMs

If another system starts instead, remove its boot.scr, extlinux folder or EFI loader from the card. If nothing
follows \"Starting kernel\", U-Boot is not at EL2, or the image is for another board.
",
        board_name = board.name,
        length = image.bytes.len(),
        need = (image.bytes.len() as u64).next_multiple_of(0x20_0000),
        version = env!("CARGO_PKG_VERSION"),
        colors = board.llc.colors().unwrap_or(0),
        vms = vms.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_header_that_u_boot_checks() {
        let image = legacy_script("echo hello\n");
        let word = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().unwrap());
        assert_eq!(word(0), 0x2705_1956);
        assert_eq!(word(12) as usize, image.len() - 64);
        assert_eq!(word(24), crc32fast::hash(&image[64..]));
        let mut header = image[..64].to_vec();
        header[4..8].fill(0);
        assert_eq!(word(4), crc32fast::hash(&header));
        assert_eq!(&image[28..32], [5, 22, 6, 0]);
        assert_eq!(word(64), 11);
        assert_eq!(word(68), 0);
        assert_eq!(&image[72..], b"echo hello\n");
    }
}
