//! `cloison image`: writes the files from which a board starts Cloison, from a card, a network or JTAG.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::boot_readme::readme;
use cloison_config::BoardFile;
use cloison_config::boot_files::GENERATED;
use cloison_config::validation::record::Machine;
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, machines};
use cloison_engine::figures::Figures;
use cloison_engine::files::{keep_apart, write_atomic};
use cloison_engine::image::{self, Image};
use cloison_engine::{configuration, installation, text, u_boot};
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
    let names = names_of(&checked.board);
    let outputs: Vec<PathBuf> = names
        .iter()
        .map(|file| directory.join(file))
        .chain(args.json.clone())
        .collect();
    keep_apart(
        [installation::find(&args.config).as_path()],
        outputs.iter().map(PathBuf::as_path),
    )?;
    write(&image, &checked.board, &directory)?;
    for file in names {
        println!("{}", installation::display(&directory.join(file)));
    }
    println!(
        "{} bytes for board {}; README.txt says how to boot it, and what should follow",
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

/// Returns the names of the files that [`write`] writes.
pub(crate) fn names_of(board: &BoardFile) -> Vec<&str> {
    let more = board.boot_files.iter().map(|file| file.name.as_str());
    GENERATED.into_iter().chain(more).collect()
}

/// Writes the image, the boot script as text and in binary form, the files of the board's own, and
/// instructions.
///
/// # Errors
///
/// If a file cannot be written.
pub fn write(image: &Image, board: &BoardFile, directory: &Path) -> Result<()> {
    let length = image.bytes.len() as u64;
    write_files(
        &image.bytes,
        &readme(&image.system, length, board),
        board,
        directory,
    )
}

/// Writes an image with these instructions, as [`write`] does.
///
/// # Errors
///
/// If a file cannot be written.
pub(crate) fn write_files(
    image: &[u8],
    readme: &str,
    board: &BoardFile,
    directory: &Path,
) -> Result<()> {
    let script = script();
    let wrapped = u_boot::wrapped(&script);
    // In the order of the names.
    let contents: [&[u8]; 5] = [
        image,
        script.as_bytes(),
        &wrapped,
        &wrapped,
        readme.as_bytes(),
    ];
    for (name, bytes) in GENERATED.into_iter().zip(contents) {
        write_atomic(&directory.join(name), bytes)?;
    }
    for file in &board.boot_files {
        write_atomic(
            &directory.join(&file.name),
            file.text.trim_start().as_bytes(),
        )?;
    }
    Ok(())
}

/// Returns U-Boot's script. `devtype`, `devnum` and `distro_bootpart` are set by U-Boot's search
/// for the script: a network's type is `ethernet` (doc/develop/bootstd/script.rst), in older versions
/// `dhcp` (include/config_distro_bootcmd.h). The values here are those of a ZCU102's SD slot, for a
/// script that is started by hand.
fn script() -> String {
    "\
if test -z \"${devtype}\"; then setenv devtype mmc; fi
if test -z \"${devnum}\"; then setenv devnum 0; fi
if test -z \"${distro_bootpart}\"; then setenv distro_bootpart 1; fi
if test -z \"${kernel_addr_r}\"; then setenv kernel_addr_r 0x18000000; fi
setenv cloison_load load ${devtype} ${devnum}:${distro_bootpart} ${kernel_addr_r} Image
if test \"${devtype}\" = ethernet; then setenv cloison_load tftpboot ${kernel_addr_r} Image; fi
if test \"${devtype}\" = dhcp; then setenv cloison_load tftpboot ${kernel_addr_r} Image; fi
echo Cloison: loading Image to ${kernel_addr_r}
run cloison_load && booti ${kernel_addr_r} - ${fdtcontroladdr}
echo Cloison: Image could not be started
"
    .to_owned()
}
