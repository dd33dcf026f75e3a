//! What both forms of Xen's configurations say of domains: memory, colors, the command line.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::draft::{Backing, Colors, Cores, Draft, DraftImage, DraftRegion, DraftVm, Sharing};
use crate::fields::XEN;
use crate::source::{Failure, Place, Sources};
use cloison_abi::map;
use cloison_config::quantity::number_set;
use std::path::PathBuf;

/// The memory of a dom0 for which the command line names none.
const DOM0_BYTES: u64 = 512 << 20;
/// Returns a region of memory.
pub fn memory(place: Place, ipa: u64, size: u64, colors: Option<Colors>) -> DraftRegion {
    DraftRegion {
        name: None,
        place,
        ipa,
        size,
        backing: Backing::Memory {
            colors,
            sharing: Sharing::AsFound,
        },
        execute: true,
    }
}

/// Reads a set of colors: `0-3,8`.
///
/// # Errors
///
/// Returns what is no set.
pub fn colors(sources: &Sources, text: &str, place: Place) -> Result<Colors, Failure> {
    let failure = |message: String, help: &str| -> Failure {
        sources.error(place, "colors", message).help(help).into()
    };
    let set = number_set(text, "color").map_err(|error| failure(error.message, &error.help))?;
    let mut mask = 0;
    for (color, _) in set {
        if color >= 64 {
            return Err(failure(format!("color {color}"), "colors are 0 to 63"));
        }
        mask |= 1 << color;
    }
    Ok(Colors { mask, place })
}

/// What Xen's command line says of dom0 and of Xen.
#[derive(Clone, Debug, Default)]
pub struct CommandLine {
    /// Whether it says anything of dom0.
    pub has_dom0: bool,
    /// Its memory.
    pub memory: Option<u64>,
    /// Its vCPUs.
    pub vcpus: Option<u64>,
    /// Its colors.
    pub colors: Option<Colors>,
    place: Place,
}

impl CommandLine {
    /// Reads a command line.
    ///
    /// # Errors
    ///
    /// Returns the first word that is no quantity.
    pub fn read(
        draft: &mut Draft,
        sources: &Sources,
        line: &str,
        place: Place,
    ) -> Result<Self, Failure> {
        let mut found = Self {
            place,
            ..Self::default()
        };
        for word in line.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match key {
                "dom0_mem" => {
                    let first = value.split(',').next().unwrap_or_default();
                    let size = first.rsplit(':').next().unwrap_or_default();
                    found.memory = size_of(size, 1 << 10);
                    found.has_dom0 = true;
                }
                "dom0_max_vcpus" => {
                    let most = value.rsplit('-').next().unwrap_or_default();
                    found.vcpus = most.parse().ok();
                    found.has_dom0 = true;
                }
                "dom0-llc-colors" | "dom0_colors" => {
                    found.colors = Some(colors(sources, value, place)?);
                }
                "xen-llc-colors" | "xen_colors" => {
                    draft.hypervisor_colors = Some(colors(sources, value, place)?);
                }
                "llc-way-size" | "way_size" => {
                    draft.note_field(&XEN, "xen.llc-way-size", place, word)
                }
                "llc-size" => draft.note_field(&XEN, "xen.llc-size", place, word),
                "llc-nr-ways" => draft.note_field(&XEN, "xen.llc-nr-ways", place, word),
                "sched" if value != "null" => draft.note_field(&XEN, "xen.sched", place, word),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Adds dom0 as the first VM.
    pub fn push_dom0(
        &self,
        draft: &mut Draft,
        modules: impl Into<Kernel>,
        bootargs: Option<String>,
        place: Place,
    ) {
        let modules = modules.into();
        let size = self.memory.unwrap_or(DOM0_BYTES);
        let at = if self.has_dom0 { self.place } else { place };
        draft.vms.push(DraftVm {
            // A kernel finds it in its device tree.
            distributor: None,
            name: "dom0".to_owned(),
            place,
            cores: self.vcpus.map_or(Cores::Rest(u64::MAX), Cores::Some),
            regions: vec![memory(at, map::RAM, size, self.colors)],
            interrupts: Vec::new(),
            image: DraftImage::Kernel {
                path: modules.kernel,
                initrd: modules.ramdisk,
                cmdline: bootargs.unwrap_or_default(),
            },
            remarks: Vec::new(),
        });
        draft.note(
            place,
            "dom0",
            "no VM is privileged, and none has all devices: this one has neither toolstack nor disks",
            "services = [\"manage\"] lets it stop and start others; pass devices through as regions",
        );
    }
}

/// A kernel with its RAM disk.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The kernel's file.
    pub kernel: PathBuf,
    /// The RAM disk's file.
    pub ramdisk: Option<PathBuf>,
}

/// Reads a size such as `1G` or `512`; `unit` is that of a number alone.
pub fn size_of(text: &str, unit: u64) -> Option<u64> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => unit,
        "B" => 1,
        "K" | "KB" => 1 << 10,
        "M" | "MB" => 1 << 20,
        "G" | "GB" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}
