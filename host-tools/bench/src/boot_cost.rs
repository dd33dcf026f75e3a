//! Measures the instructions that the hypervisor adds to booting Linux: the same kernel, RAM disk
//! and device tree on QEMU's `virt` machine with and without it.
//!
//! Under `-icount shift=0` instructions are time, and the board model's counting plugin counts them
//! all, on all cores and at all exception levels. A boot ends where the first process would start
//! its shell: it turns the machine off instead.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Emulation;
use cloison_config::guest_linux::Release;
use cloison_config::{Checked, ImageSource};
use cloison_engine::counting::{self, Counting};
use cloison_engine::figures::Figures;
use cloison_engine::image::{self, Image};
use cloison_engine::linux::device_tree::{self, Around};
use cloison_engine::linux::load;
use cloison_engine::model::Instructions;
use cloison_engine::progress::stage;
use cloison_engine::qemu::Machine;
use cloison_engine::report::Section;
use cloison_engine::telemetry::Telemetry;
use cloison_engine::text::grouped;
use cloison_engine::{configuration, files, installation, parts, setup};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::ids::VmId;
use cloison_formats::telemetry::ExitReason;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The systems to boot: one VM each.
pub const CONFIGS: [&str; 2] = ["linux-cloud", "linux-rt"];
/// Largest acceptable ratio of instructions with and without the hypervisor.
pub const AIM: f64 = 1.03;
/// Returns what makes a kernel do the same work at each boot, and all that it does unless it is
/// told otherwise: its tests of cryptography. 6.12 tests its Diffie-Hellman with a random key, and
/// how random its jitter is until the result pleases it: without these two, boots whose command
/// lines differ in one letter differ by 0.2 %; with them, by a tenth. 6.1 tests Diffie-Hellman with
/// fixed keys.
const fn same_work(release: Release) -> &'static str {
    match release {
        Release::Bookworm => " cryptomgr.notests=0",
        Release::Trixie => " cryptomgr.notests=0 initcall_blacklist=dh_init,jent_mod_init",
    }
}
/// The board that boots them.
const BOARD: &str = "virt";
/// Time limit. A boot takes several seconds.
const LIMIT: Duration = Duration::from_secs(400);

/// `cloison linux boot-cost`.
#[derive(Clone, Debug, clap::Args)]
pub struct BootCostArgs {
    /// Also write the figures here
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The boots of one kernel.
#[derive(Debug, PartialEq, Eq)]
pub struct Boots {
    /// Name of the configuration.
    pub name: &'static str,
    /// The Debian release of the kernel.
    pub release: Release,
    /// Counts without the hypervisor.
    pub bare: Instructions,
    /// Counts with the hypervisor.
    pub under: Instructions,
    /// Entries into the hypervisor, by [`ExitReason`].
    pub exits: [u64; ExitReason::ALL.len()],
}

impl Boots {
    /// Returns the ratio of instructions with the hypervisor to those without.
    pub fn ratio(&self) -> f64 {
        self.under.all() as f64 / self.bare.all() as f64
    }
}

/// Runs `cloison linux boot-cost`.
pub fn boot_cost(args: &BootCostArgs) -> Result<()> {
    stage("set-up", || {
        setup::qemu().and_then(|()| setup::core_library().map(drop))
    })?;
    let plugin = stage("board model", parts::model_plugin)?;
    let mut boots = Vec::new();
    for release in Release::ALL {
        for name in CONFIGS {
            boots.push(stage(&format!("{name} of {release}"), || {
                measure(name, release, &plugin)
            })?);
        }
    }
    let mut figures = Figures::new("boot-cost");
    let mut cost = Section::new(
        "Instructions of a boot to the shell and power-off (QEMU virt, -icount shift=0)",
        &[
            "system",
            "bare",
            "under Cloison",
            "of these at EL2",
            "ratio",
            "aim, at most",
            "aim met",
        ],
    );
    let reasons =
        std::iter::once("system").chain(ExitReason::ALL.map(cloison_engine::telemetry::exit_name));
    let mut entries = Section::new("Entries into the hypervisor", &reasons.collect::<Vec<_>>());
    let mut missed = 0;
    for boot in &boots {
        let met = boot.ratio() <= AIM;
        missed += u64::from(!met);
        let name = format!("{} of {}", boot.name, boot.release);
        cost.row([
            name.clone(),
            grouped(boot.bare.all()),
            grouped(boot.under.all()),
            grouped(boot.under.instructions[2]),
            format!("{:.4}", boot.ratio()),
            format!("{AIM:.2}"),
            if met { "yes" } else { "no" }.to_owned(),
        ]);
        entries.row(std::iter::once(name).chain(boot.exits.map(grouped)));
        let name = format!("{}_{}", boot.release, boot.name.replace('-', "_"));
        figures.count(format!("{name}_bare_instructions"), boot.bare.all());
        figures.count(format!("{name}_instructions"), boot.under.all());
        figures.count(
            format!("{name}_el2_instructions"),
            boot.under.instructions[2],
        );
        figures.value(format!("{name}_ratio"), boot.ratio());
        figures.count(format!("{name}_entries"), boot.exits.iter().sum());
    }
    figures.count("aims_missed", missed);
    let cost = cost.note(
        "Bare: the same kernel, RAM disk and device tree, the same amount of memory in one piece, \
         at EL1 without Cloison.",
    );
    let entries = entries.note("Both cores, from the VM's start to its end.");
    println!("{}\n{}", cost.to_text(), entries.to_text());
    figures.write(args.json.as_deref())
}

/// Boots the system of a shipped configuration, with a release's kernel, with and without the
/// hypervisor.
pub fn measure(name: &'static str, release: Release, plugin: &Path) -> Result<Boots> {
    let file = installation::root()
        .join("configs")
        .join(name)
        .with_extension("toml");
    let mut checked = configuration::load(&file, Some(BOARD))?;
    counting::prepare_for(&mut checked, Counting::Icount.machine())?;
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.exec = Some("true".to_owned());
            linux.tree.cmdline.push_str(same_work(release));
            linux.release = release;
        }
    }
    let image = image::build(&checked, &[])?;
    let scratch = files::scratch()?;
    let emulation = checked.emulation()?;
    let (under, exits) = with_cloison(emulation, &image, plugin, scratch.path())?;
    let bare = without(&checked, &image, plugin, scratch.path())?;
    Ok(Boots {
        name,
        release,
        bare,
        under,
        exits,
    })
}

/// Runs a machine to its end and reads the counts.
fn count(machine: Machine, plugin: &Path, scratch: &Path) -> Result<(Instructions, Vec<u8>)> {
    let counts = scratch.join("counts.json");
    let machine = machine.icount(Some(0)).limit(LIMIT).arg("-plugin");
    let outcome = machine
        .arg(format!("{},count={}", plugin.display(), counts.display()))
        .run()?;
    if !outcome.exit.is_clean() || !outcome.console.contains("ended with status 0") {
        let tail: Vec<&str> = outcome.console.lines().rev().take(12).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        return Err(miette!(
            help = format!("the console's last lines were:\n{tail}"),
            "the boot did not finish ({})",
            outcome.exit
        ));
    }
    let text = std::fs::read_to_string(&counts)
        .into_diagnostic()
        .wrap_err("the plugin left no counts")?;
    std::fs::remove_file(&counts).into_diagnostic()?;
    Ok((
        serde_json::from_str(&text).into_diagnostic()?,
        outcome.telemetry,
    ))
}

fn with_cloison(
    board: &Emulation,
    image: &Image,
    plugin: &Path,
    scratch: &Path,
) -> Result<(Instructions, [u64; ExitReason::ALL.len()])> {
    let file = scratch.join("Image");
    image.write(&file)?;
    let (counted, telemetry) = count(Machine::new(board, &file), plugin, scratch)?;
    let exits = Telemetry::parse(&telemetry)
        .exits(VmId(0))
        .ok_or_else(|| miette!("the log lacks the reasons for entries into the hypervisor"))?;
    Ok((counted, exits))
}

fn without(
    checked: &Checked,
    image: &Image,
    plugin: &Path,
    scratch: &Path,
) -> Result<Instructions> {
    Ok(count(bare(checked, image, scratch)?, plugin, scratch)?.0)
}

/// Returns the machine that boots the only VM of a system without the hypervisor. It has the same
/// kernel, RAM disk and device tree, which are written to `scratch`.
///
/// # Errors
///
/// Returns an error if the VM is not a Linux guest or its files cannot be read or written.
pub fn bare(checked: &Checked, image: &Image, scratch: &Path) -> Result<Machine> {
    let vm = &image.system.vms[0];
    let ImageSource::Linux(linux) = &checked.images[0] else {
        return Err(miette!("VM `{}` is not a Linux guest", vm.name));
    };
    let loaded = load(linux, vm, &Around::of(&image.system, VmId(0)))?;
    let keep = |name: &str, bytes: &[u8]| {
        let path = scratch.join(name);
        std::fs::write(&path, bytes)
            .into_diagnostic()
            .map(|()| path)
    };
    let (kernel, initrd) = (
        keep("kernel", &loaded.kernel)?,
        keep("initrd", &loaded.initrd)?,
    );
    let tree = keep("tree", &loaded.device_tree)?;
    let bytes: u64 = vm
        .regions
        .iter()
        .map(|region| u64::from(region.pages) * PAGE_SIZE)
        .sum();
    Ok(Machine::new(checked.emulation()?, &kernel)
        // A guest's exception levels are EL0 and EL1.
        .args([
            "-machine",
            "virtualization=off",
            "-m",
            &format!("{}M", bytes >> 20),
            "-append",
        ])
        .arg(device_tree::command_line(linux, &vm.name))
        .args([
            "-initrd".into(),
            initrd.into_os_string(),
            "-dtb".into(),
            tree.into_os_string(),
        ]))
}
