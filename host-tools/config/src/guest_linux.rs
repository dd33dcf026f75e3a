//! A VM's Linux guest, as its configuration describes it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::addr::Ipa;
use cloison_formats::ids::Intid;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// A Debian release from which kernels, programs and boot loaders for arm64 are taken. It is never
/// the host's own release, so that the same configuration is the same system on every host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// Debian 12: kernel 6.1, U-Boot 2023.01. The default of a configuration that names no release.
    #[default]
    Bookworm,
    /// Debian 13: kernel 6.12, U-Boot 2025.01.
    Trixie,
}

impl Release {
    /// All, oldest first.
    pub const ALL: [Self; 2] = [Self::Bookworm, Self::Trixie];

    /// Returns its codename, which configurations and Debian's archive use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
        }
    }

    /// Returns the number in `uname -r` with which its kernels' versions start.
    pub const fn kernel(self) -> &'static str {
        match self {
            Self::Bookworm => "6.1",
            Self::Trixie => "6.12",
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a release that is none of [`Release::ALL`].
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a Debian release that Cloison knows: write {names}", names = Release::ALL.map(Release::name).join(" or "))]
pub struct UnknownRelease(pub String);

impl FromStr for Release {
    type Err = UnknownRelease;

    fn from_str(name: &str) -> Result<Self, UnknownRelease> {
        let named = Self::ALL.into_iter().find(|release| release.name() == name);
        named.ok_or_else(|| UnknownRelease(name.to_owned()))
    }
}

/// A Debian kernel for arm64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// `linux-image-cloud-arm64`: for virtual machines.
    Cloud,
    /// `linux-image-rt-arm64`: with PREEMPT_RT.
    Rt,
}

impl Flavor {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cloud, Self::Rt];

    /// Returns the name used in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cloud => "cloud",
            Self::Rt => "rt",
        }
    }

    /// Returns the Debian package that contains it.
    pub const fn package(self) -> &'static str {
        match self {
            Self::Cloud => "linux-image-cloud-arm64",
            Self::Rt => "linux-image-rt-arm64",
        }
    }
}

/// Source of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KernelSource {
    /// A Debian package.
    Debian(Flavor),
    /// An uncompressed arm64 `Image`.
    File(PathBuf),
}

/// Programs of Cloison for Linux guests that a configuration can ask for; `cloisonctl` is always
/// there.
pub const TOOLS: [&str; 5] = [
    "bbprof",
    "bbprof-benchmark",
    "bbprof-c2is",
    "bbprof-interf",
    "bbprof-staircase",
];

/// How the VM's Linux kernel sees a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Shown {
    /// Memory to use.
    #[default]
    Memory,
    /// Reserved memory, which the kernel knows and leaves alone (`reserved-memory`, `no-map`).
    Reserved,
    /// Not at all: the device tree does not mention it.
    Hidden,
    /// A device that is passed through to a driver.
    Device(DeviceNode),
}

/// What a guest's device tree says of a device that is passed through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceNode {
    /// Its compatible strings, the most specific first (Devicetree Specification 0.4, 2.3.1).
    pub compatible: Vec<String>,
    /// Its interrupts (GIC IDs of SPIs), in the order of its driver's binding; one may be there
    /// several times.
    pub interrupts: Vec<Intid>,
    /// Its clocks, which nothing changes: the driver's name and the frequency in Hz of each.
    pub clocks: Vec<(String, u32)>,
    /// Other properties that its driver's binding asks for, by their names.
    pub properties: Vec<(String, Property)>,
}

/// The value of a device tree's property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// It is there, without a value.
    There,
    /// Strings.
    Texts(Vec<String>),
    /// Cells of 32 bits.
    Cells(Vec<u32>),
}

/// The contents of a guest's device tree that do not follow from its VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// The command line (`bootargs`). A kernel's includes the console.
    pub cmdline: String,
    /// How the guest sees each of the VM's regions.
    pub shown: Vec<Shown>,
    /// Name of the CPU, without its vendor.
    pub cpu: String,
    /// The PMU's interrupt (a PPI), if the board wires it.
    pub pmu_irq: Option<Intid>,
    /// Address of the tree, if the configuration sets it.
    pub place: Option<Ipa>,
}

/// A VM's Linux guest, as its configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linux {
    /// The Debian release of the kernel, of busybox and of `packages`.
    pub release: Release,
    /// Source of the kernel.
    pub kernel: KernelSource,
    /// Path of the initial RAM disk; `None` for Cloison's own.
    pub initrd: Option<PathBuf>,
    /// Debian packages whose programs go into Cloison's RAM disk.
    pub packages: Vec<String>,
    /// Names of Cloison's own programs that go into Cloison's RAM disk, of [`TOOLS`].
    pub tools: Vec<&'static str>,
    /// Programs on this machine that go into Cloison's RAM disk.
    pub programs: Vec<PathBuf>,
    /// Command that the first process runs instead of a shell, before it turns the VM off.
    pub exec: Option<String>,
    /// Load address of the RAM disk; `None` for the first one after the kernel.
    pub initrd_load: Option<u64>,
    /// The contents of its device tree.
    pub tree: Described,
}

/// Returns a command line with one more word. The word is after the configured ones, which may be
/// known by their position, and before `--`, after which all words are the first process's.
fn with_word(line: &str, word: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    if !words.contains(&"--") {
        return format!("{line} {word}").trim().to_owned();
    }
    let at = words
        .iter()
        .position(|word| *word == "--")
        .unwrap_or(words.len());
    [&words[..at], &[word], &words[at..]].concat().join(" ")
}

/// Returns a command line with `word`, which is `NAME=VALUE`, unless it gives NAME a value.
pub fn with_default(line: &str, word: &str) -> String {
    let name = word.split_inclusive('=').next().unwrap_or(word);
    if line.split_whitespace().any(|given| given.starts_with(name)) {
        return line.to_owned();
    }
    with_word(line, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_gives_way_to_what_is_given() {
        assert_eq!(with_default("quiet", "hostname=a"), "quiet hostname=a");
        assert_eq!(with_default("hostname=b", "hostname=a"), "hostname=b");
        assert_eq!(
            with_default("hostnames=b", "hostname=a"),
            "hostnames=b hostname=a"
        );
    }

    #[test]
    fn words_are_added_where_they_shift_no_other() {
        assert_eq!(with_word("", "console=ttyAMA0"), "console=ttyAMA0");
        assert_eq!(with_word("smp  2", "hostname=a"), "smp  2 hostname=a");
        assert_eq!(
            with_word("quiet -- single", "console=ttyAMA0"),
            "quiet console=ttyAMA0 -- single"
        );
    }
}
