//! The layout of a kernel, its RAM disk and its device tree in a VM's memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::guest_linux::{Linux, Shown};
use crate::kernel::Kernel;
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::image::{Backing, Region, Vm};
use thiserror::Error;

/// Kernels start at a multiple of this, plus their text offset.
const KERNEL_UNIT: u64 = 2 << 20;
/// Space reserved for a device tree: the boot protocol's maximum.
pub const DEVICE_TREE_ROOM: u64 = 64 << 10;

/// Addresses and lengths in the VM's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The kernel, including the memory after its file that it clears.
    pub kernel: (Ipa, u64),
    /// The initial RAM disk.
    pub initrd: (Ipa, u64),
    /// The space reserved for the device tree.
    pub device_tree: (Ipa, u64),
}

/// Errors in a layout.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Misfit {
    #[error("none of its regions is memory for Linux")]
    NoMemory,
    #[error(
        "its {what} takes {start:#x} to {end:#x}, {} bytes beyond the end of region `{region}` at {limit:#x}",
        .end - .limit
    )]
    Beyond {
        what: &'static str,
        start: u64,
        end: u64,
        region: String,
        limit: u64,
    },
    #[error("its RAM disk takes {start:#x} to {end:#x}, and no region of its memory holds that")]
    Outside { start: u64, end: u64 },
    #[error(
        "its RAM disk at {start:#x} to {end:#x} overlaps its {what} at {other:#x} to \
         {other_end:#x}"
    )]
    Overlap {
        start: u64,
        end: u64,
        what: &'static str,
        other: u64,
        other_end: u64,
    },
}

impl Layout {
    /// Places the kernel in the first region that is memory for Linux; after it the RAM disk,
    /// unless the configuration sets its address; and after that the device tree.
    pub fn new(linux: &Linux, vm: &Vm, kernel: Kernel, initrd_len: u64) -> Result<Self, Misfit> {
        Self::in_regions(
            &vm.regions,
            &linux.tree.shown,
            linux.initrd_load,
            kernel,
            initrd_len,
        )
    }

    /// Like [`Layout::new`], for regions that are not part of a VM yet.
    pub fn in_regions(
        regions: &[Region],
        shown: &[Shown],
        initrd_load: Option<u64>,
        kernel: Kernel,
        initrd_len: u64,
    ) -> Result<Self, Misfit> {
        let is_memory = |index: usize, region: &Region| {
            !matches!(region.backing, Backing::Device(_))
                && shown.get(index).is_none_or(|shown| *shown == Shown::Memory)
        };
        let memory: Vec<&Region> = regions
            .iter()
            .enumerate()
            .filter(|(index, region)| is_memory(*index, region))
            .map(|(_, r)| r)
            .collect();
        // Memory for DMA is small, and for devices.
        let mut homes = memory.iter().copied();
        let home = homes
            .find(|region| region.backing != Backing::Direct)
            .ok_or(Misfit::NoMemory)?;
        let end_of = |region: &Region| region.ipa.page(u64::from(region.pages)).0;
        let within = |what: &'static str, start: u64, len: u64| {
            let (end, limit) = (start + len, end_of(home));
            if end > limit {
                return Err(Misfit::Beyond {
                    what,
                    start,
                    end,
                    region: home.name.clone(),
                    limit,
                });
            }
            Ok((Ipa(start), len))
        };
        let base = home.ipa.0.next_multiple_of(KERNEL_UNIT) + kernel.text_offset;
        let kernel = within("kernel", base, kernel.size)?;
        let behind = (kernel.0.0 + kernel.1).next_multiple_of(PAGE_SIZE);
        let (initrd, free) = match initrd_load {
            None => {
                let initrd = within("RAM disk", behind, initrd_len)?;
                (initrd, (behind + initrd_len).next_multiple_of(PAGE_SIZE))
            }
            Some(start) => {
                let end = start + initrd_len;
                if !memory
                    .iter()
                    .any(|region| region.ipa.0 <= start && end <= end_of(region))
                {
                    return Err(Misfit::Outside { start, end });
                }
                ((Ipa(start), initrd_len), behind)
            }
        };
        let device_tree = within("device tree", free, DEVICE_TREE_ROOM)?;
        for (what, (other, len)) in [("kernel", kernel), ("device tree", device_tree)] {
            let (start, end, other_end) = (initrd.0.0, initrd.0.0 + initrd.1, other.0 + len);
            if start < other_end && other.0 < end {
                return Err(Misfit::Overlap {
                    start,
                    end,
                    what,
                    other: other.0,
                    other_end,
                });
            }
        }
        Ok(Self {
            kernel,
            initrd,
            device_tree,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(name: &str, ipa: u64, mib: u32) -> Region {
        Region {
            name: name.into(),
            ipa: Ipa(ipa),
            pages: mib << 8,
            backing: Backing::Pool(0),
            executable: true,
        }
    }

    const KERNEL: Kernel = Kernel {
        text_offset: 0,
        size: 0x1ab_0000,
        file_len: 0x1a0_0000,
    };

    fn place(regions: &[Region], shown: &[Shown], load: Option<u64>) -> Result<Layout, Misfit> {
        Layout::in_regions(regions, shown, load, KERNEL, 0x10_0001)
    }

    #[test]
    fn one_after_the_other() {
        let layout = place(&[region("ram", 0x4010_0000, 64)], &[], None).unwrap();
        assert_eq!(layout.kernel, (Ipa(0x4020_0000), 0x1ab_0000));
        assert_eq!(layout.initrd, (Ipa(0x41cb_0000), 0x10_0001));
        assert_eq!(layout.device_tree.0, Ipa(0x41db_1000));
    }

    #[test]
    fn reserved_and_hidden_regions_hold_nothing() {
        let regions = [
            region("pvt", 0x4000_0000, 64),
            region("off", 0x5000_0000, 64),
            region("ram", 0x6000_0000, 64),
        ];
        let layout = place(
            &regions,
            &[Shown::Reserved, Shown::Hidden, Shown::Memory],
            None,
        )
        .unwrap();
        assert_eq!(layout.kernel.0, Ipa(0x6000_0000));
        assert_eq!(
            place(&regions[..2], &[Shown::Reserved, Shown::Hidden], None),
            Err(Misfit::NoMemory)
        );
    }

    #[test]
    fn what_does_not_fit_is_said_in_numbers() {
        let message = |regions: &[Region], load| place(regions, &[], load).unwrap_err().to_string();
        let small = message(&[region("ram", 0x4000_0000, 16)], None);
        assert_eq!(
            small,
            "its kernel takes 0x40000000 to 0x41ab0000, 11206656 bytes beyond the end of region \
             `ram` at 0x41000000"
        );
        assert!(
            message(&[region("ram", 0x4000_0000, 27)], None)
                .contains("RAM disk takes 0x41ab0000 to 0x41bb0001")
        );
        let ram = [region("ram", 0x4000_0000, 64)];
        assert!(
            message(&ram, Some(0x4100_0000))
                .contains("overlaps its kernel at 0x40000000 to 0x41ab0000")
        );
        assert!(message(&ram, Some(0x41ab_8000)).contains("overlaps its device tree"));
        assert!(message(&ram, Some(0x5000_0000)).contains("no region of its memory holds that"));
        assert!(place(&ram, &[], Some(0x4300_0000)).is_ok());
    }
}
