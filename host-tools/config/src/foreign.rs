//! Configurations of other hypervisors, told by their contents: `cloison import` reads them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::Path;

/// What another hypervisor is configured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Foreign {
    /// Bao's `config.c`.
    Bao,
    /// A cell of Jailhouse, the root cell or another one, in C.
    Jailhouse,
    /// The source of a device tree with Xen's domains.
    XenTree,
    /// The same, compiled.
    XenCompiled,
    /// A script of Xen's ImageBuilder.
    ImageBuilder,
    /// hvisor's JSON: a zone, or the virtio devices of zones.
    Hvisor,
}

/// How much of a file is looked at.
const LOOKED_AT: usize = 256 << 10;
/// The first bytes of a compiled device tree.
const TREE_MAGIC: &[u8] = &[0xd0, 0x0d, 0xfe, 0xed];

impl Foreign {
    /// Returns its name, with an article.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bao => "a configuration of Bao",
            Self::Jailhouse => "a cell of Jailhouse",
            Self::XenTree => "a device tree",
            Self::XenCompiled => "a compiled device tree",
            Self::ImageBuilder => "a configuration of Xen's ImageBuilder",
            Self::Hvisor => "a configuration of hvisor",
        }
    }

    /// Returns the hypervisor that it is for.
    pub const fn family(self) -> &'static str {
        match self {
            Self::Bao => "Bao",
            Self::Jailhouse => "Jailhouse",
            Self::XenTree | Self::XenCompiled | Self::ImageBuilder => "Xen",
            Self::Hvisor => "hvisor",
        }
    }

    /// Returns what a file is, if it is one of these.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        if bytes.starts_with(TREE_MAGIC) {
            return Some(Self::XenCompiled);
        }
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if text.trim_start().starts_with(['{', '['])
            && has(&["\"memory_regions\"", "\"zones\"", "\"zone_id\""])
        {
            return Some(Self::Hvisor);
        }
        if has(&["jailhouse_system", "jailhouse_cell_desc", "<jailhouse/"]) {
            return Some(Self::Jailhouse);
        }
        if has(&["/dts-v1/"]) || text.lines().any(|line| line.trim_end() == "/ {") {
            return Some(Self::XenTree);
        }
        if has(&[
            ".vmlist",
            "VM_IMAGE(",
            "VM_IMAGE_OFFSET(",
            "struct vm_config",
        ]) {
            return Some(Self::Bao);
        }
        let starts = |key: &str| {
            text.lines()
                .any(|line| line.trim_start().starts_with(key) && line.contains('='))
        };
        ["NUM_DOMUS", "DOMU_KERNEL", "DOM0_KERNEL"]
            .into_iter()
            .any(starts)
            .then_some(Self::ImageBuilder)
    }

    /// Returns what is wrong with a file that is none of these, and what to do with it.
    pub fn unknown(bytes: &[u8], shown: &Path) -> (String, String) {
        let file = shown.display();
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(LOOKED_AT)]);
        let (what, help) = if bytes.starts_with(b"JHSYST") || bytes.starts_with(b"JHCELL") {
            ("a compiled cell of Jailhouse", "import its source in C")
        } else if text.lines().any(|line| line.trim() == "[[vm]]") {
            ("a configuration of Cloison already", "use `cloison check`")
        } else if text.contains("ROOT_ZONE_") {
            (
                "hvisor's board.rs, which says what its root zone has",
                "import the JSON of the other zones, and add the root zone by hand",
            )
        } else if text.lines().any(|line| line.starts_with("vcpus")) && text.contains("kernel") {
            (
                "a domain's configuration for `xl`, which starts it at run time",
                "import the device tree or the ImageBuilder configuration of a dom0less system",
            )
        } else {
            (
                "nothing that can be imported",
                "it reads Bao's config.c, cells of Jailhouse in C, Xen's dom0less device trees and \
                 ImageBuilder configurations, and hvisor's JSON; it tells them by their contents",
            )
        };
        (format!("{file} is {what}"), help.to_owned())
    }
}

/// Returns the format of a file that is no TOML, by how it begins.
pub(crate) fn other_format(text: &str) -> Option<&'static str> {
    let text = text.trim_start();
    let is_c = ["#include", "#define", "#ifdef", "#ifndef", "/*", "//"]
        .iter()
        .any(|start| text.starts_with(start));
    if is_c {
        Some("C source")
    } else if text.starts_with('{') {
        Some("JSON")
    } else if text.starts_with('<') {
        Some("XML")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_contents() {
        let cases: [(&[u8], Option<Foreign>); 9] = [
            (
                b"struct config c = { .vmlist_size = 1 };",
                Some(Foreign::Bao),
            ),
            (b"#include <jailhouse/types.h>\n", Some(Foreign::Jailhouse)),
            (
                b"struct { struct jailhouse_cell_desc cell; } c",
                Some(Foreign::Jailhouse),
            ),
            (b"/dts-v1/;\n/ { };", Some(Foreign::XenTree)),
            (&[0xd0, 0x0d, 0xfe, 0xed, 0, 0], Some(Foreign::XenCompiled)),
            (b"# one\nNUM_DOMUS=1\n", Some(Foreign::ImageBuilder)),
            (b" { \"zone_id\": 1 }", Some(Foreign::Hvisor)),
            (b"{ \"name\": 1 }", None),
            (b"name = 'x'\n[[vm]]\n", None),
        ];
        for (bytes, kind) in cases {
            assert_eq!(
                Foreign::of(bytes),
                kind,
                "{}",
                String::from_utf8_lossy(bytes)
            );
        }
    }

    #[test]
    fn in_the_place_of_a_configuration_they_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let cases: [(&[u8], &str); 3] = [
            (
                b"struct config c = { .vmlist = { } };",
                "a configuration of Bao",
            ),
            (b"/dts-v1/;\n/ { };", "a device tree"),
            (&[0xd0, 0x0d, 0xfe, 0xed, 0, 0], "a compiled device tree"),
        ];
        for (bytes, what) in cases {
            let path = folder.path().join("system.toml");
            std::fs::write(&path, bytes).unwrap();
            let errors = crate::document::load(&path, "name one", |_| Some(())).unwrap_err();
            let [problem] = errors.problems() else {
                panic!("{errors:?}");
            };
            assert!(problem.message().contains(what), "{problem}");
            assert!(problem.fix().unwrap().contains("cloison import"));
        }
    }
}
