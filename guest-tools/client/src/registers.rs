//! The services page in this process's memory: found in the device tree, mapped from `/dev/mem`,
//! accessed 64 bits at a time.
//!
//! The only unsafe code of this crate.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_abi::{list, page};
use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// Registers of a services page.
pub trait Registers {
    /// Reads the 64-bit register at `offset`.
    fn read(&self, offset: u16) -> u64;
    /// Writes the 64-bit register at `offset`.
    fn write(&mut self, offset: u16, value: u64);
    /// Keeps other programs of the VM from making calls until [`end_turn`](Self::end_turn).
    fn take_turn(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Lets other programs make calls again.
    fn end_turn(&mut self) {}
    /// Writes a list of [`LONGEST`](cloison_abi::list::LONGEST) entries at most where the
    /// hypervisor can read it. Returns its IPA.
    fn put_list(&mut self, entries: &[u64]) -> Result<u64, Error>;
    /// Returns the IPA of the list that was written last.
    fn list_ipa(&self) -> Result<u64, Error>;
}

/// The services page of the VM in which this process runs.
#[derive(Debug)]
pub struct MappedPage {
    memory: File,
    address: NonNull<c_void>,
    list: Option<ListPage>,
}

/// A page of this process that holds a list of pages.
#[derive(Debug)]
struct ListPage {
    address: NonNull<u64>,
    /// Where the kernel says which frame each page of this process has.
    frames: File,
}

fn no_list(what: &'static str, source: io::Error) -> Error {
    Error::List { what, source }
}

impl ListPage {
    fn new() -> Result<Self, Error> {
        let frames =
            File::open("/proc/self/pagemap").map_err(|source| no_list("locate", source))?;
        // SAFETY: a new mapping, which nothing else knows.
        let mapped = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                LENGTH,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let mapped = mapped.map_err(|errno| no_list("map", errno.into()))?;
        let address = NonNull::new(mapped.cast())
            .ok_or_else(|| no_list("map", io::ErrorKind::OutOfMemory.into()))?;
        let page = Self { address, frames };
        // SAFETY: the mapping that was just made.
        unsafe { mlock(mapped, LENGTH) }.map_err(|errno| no_list("lock", errno.into()))?;
        Ok(page)
    }

    fn write(&mut self, entries: &[u64]) {
        assert!(
            entries.len() as u64 <= list::LONGEST,
            "a list of {} entries",
            entries.len()
        );
        for (index, &entry) in entries.iter().enumerate() {
            // SAFETY: the page is mapped, writable and this object's own; the index is inside it.
            // Volatile, because the hypervisor reads it.
            unsafe { self.address.as_ptr().add(index).write_volatile(entry) };
        }
    }

    fn ipa(&self) -> Result<u64, Error> {
        let page = self.address.as_ptr() as u64 / LENGTH as u64;
        let mut entry = [0; 8];
        self.frames
            .read_exact_at(&mut entry, page * 8)
            .map_err(|source| no_list("locate", source))?;
        let entry = u64::from_le_bytes(entry);
        // Bit 63: the page is in memory. Bits 54 to 0: its frame, which only root is told.
        let frame = entry & ((1 << 55) - 1);
        if entry >> 63 == 0 || frame == 0 {
            return Err(no_list("locate", io::ErrorKind::PermissionDenied.into()));
        }
        Ok(frame * LENGTH as u64)
    }
}

impl Drop for ListPage {
    fn drop(&mut self) {
        // SAFETY: `new` mapped this range with this length, and no reference into it exists.
        let _ = unsafe { munmap(self.address.as_ptr().cast(), LENGTH) };
    }
}

/// Bytes of a page.
const LENGTH: usize = 0x1000;
/// Where Linux shows the device tree.
const DEVICE_TREE: &str = "/sys/firmware/devicetree/base";
/// The file from which the page is mapped.
const MEMORY: &str = "/dev/mem";

/// The property that has the ceilings of other VMs' budgets, in the page's node.
const CEILINGS: &str = "cloison,ceilings";

/// Returns the address of the services page, according to the device tree below `root`.
pub fn find(root: &Path) -> Result<u64, Error> {
    let reg = std::fs::read(node(root)?.join("reg")).unwrap_or_default();
    let address = reg.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    address.ok_or(Error::DeviceTree)
}

/// Returns the largest budget in events that this VM may set for quota `index` of VM `vm`. There is
/// none if the VM does not regulate that one, or if its device tree does not come from Cloison.
pub fn ceiling(vm: u64, index: u64) -> Option<u64> {
    ceiling_below(Path::new(DEVICE_TREE), vm, index)
}

/// Like [`ceiling`], according to the device tree below `root`.
pub fn ceiling_below(root: &Path, vm: u64, index: u64) -> Option<u64> {
    let cells = std::fs::read(node(root).ok()?.join(CEILINGS)).ok()?;
    let (cells, _) = cells.as_chunks::<4>();
    let cells: Vec<u64> = cells
        .iter()
        .map(|cell| u32::from_be_bytes(*cell).into())
        .collect();
    let (rows, _) = cells.as_chunks::<3>();
    let row = rows.iter().find(|row| row[..2] == [vm, index])?;
    Some(row[2])
}

/// Returns the directory of the page's node in the device tree below `root`.
fn node(root: &Path) -> Result<PathBuf, Error> {
    let family = page::COMPATIBLE.trim_end_matches(|c: char| c.is_ascii_digit());
    for node in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(compatible) = std::fs::read(node.path().join("compatible")) else {
            continue;
        };
        let compatible = String::from_utf8_lossy(&compatible);
        let names = || compatible.split('\0');
        if names().any(|name| name == page::COMPATIBLE) {
            return Ok(node.path());
        }
        if let Some(other) = names().find(|name| name.starts_with(family)) {
            return Err(Error::OtherPage(other.to_owned()));
        }
    }
    Err(Error::Absent)
}

impl MappedPage {
    /// Finds and maps the page.
    pub fn open() -> Result<Self, Error> {
        let address = find(Path::new(DEVICE_TREE))?;
        let sync = rustix::fs::OFlags::SYNC.bits() as i32;
        let memory = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(sync)
            .open(MEMORY);
        let memory = memory.map_err(|source| Error::Memory {
            what: "open",
            source,
        })?;
        // SAFETY: a new mapping at an address of the kernel's choice, so it cannot overlap memory
        // that this process uses.
        let mapped = unsafe {
            let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            mmap(
                std::ptr::null_mut(),
                LENGTH,
                rights,
                flags,
                &memory,
                address,
            )
        };
        let mapped = mapped.map_err(|errno| Error::Memory {
            what: "map",
            source: errno.into(),
        })?;
        let address = NonNull::new(mapped).ok_or(Error::DeviceTree)?;
        Ok(Self {
            memory,
            address,
            list: None,
        })
    }

    fn register(&self, offset: u16) -> *mut u64 {
        assert!(
            offset.is_multiple_of(8) && usize::from(offset) < LENGTH,
            "no register at {offset:#x}"
        );
        self.address
            .as_ptr()
            .wrapping_byte_add(usize::from(offset))
            .cast()
    }
}

impl Registers for MappedPage {
    fn read(&self, offset: u16) -> u64 {
        let register = self.register(offset);
        #[cfg(target_arch = "aarch64")]
        {
            let value: u64;
            // SAFETY: a register of the mapped page, which is no memory of Rust's. The hypervisor
            // can only decode this form of a load; a compiler may choose another for
            // `read_volatile`.
            unsafe {
                std::arch::asm!("ldr {}, [{}]", out(reg) value, in(reg) register, options(nostack, preserves_flags))
            };
            value
        }
        // SAFETY: a register of the mapped page.
        #[cfg(not(target_arch = "aarch64"))]
        unsafe {
            register.read_volatile()
        }
    }

    fn write(&mut self, offset: u16, value: u64) {
        let register = self.register(offset);
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as in `read`. A call may move pages of this process, which is invisible to it.
        unsafe {
            std::arch::asm!("str {}, [{}]", in(reg) value, in(reg) register, options(nostack, preserves_flags))
        };
        // SAFETY: as in `read`.
        #[cfg(not(target_arch = "aarch64"))]
        unsafe {
            register.write_volatile(value)
        };
    }

    /// Takes a file lock, which the kernel releases if the process dies.
    fn take_turn(&mut self) -> Result<(), Error> {
        flock(&self.memory, FlockOperation::LockExclusive).map_err(|errno| Error::Memory {
            what: "lock",
            source: errno.into(),
        })
    }

    fn end_turn(&mut self) {
        // The file is open and locked by this process, so unlocking cannot fail.
        let _ = flock(&self.memory, FlockOperation::Unlock);
    }

    fn put_list(&mut self, entries: &[u64]) -> Result<u64, Error> {
        if self.list.is_none() {
            self.list = Some(ListPage::new()?);
        }
        self.list.iter_mut().for_each(|list| list.write(entries));
        self.list_ipa()
    }

    fn list_ipa(&self) -> Result<u64, Error> {
        self.list.as_ref().map_or_else(
            || Err(no_list("locate", io::ErrorKind::NotFound.into())),
            ListPage::ipa,
        )
    }
}

impl Drop for MappedPage {
    fn drop(&mut self) {
        // SAFETY: `open` mapped this range with this length, and no reference into it exists.
        let _ = unsafe { munmap(self.address.as_ptr(), LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn tree(compatible: &[u8], reg: &[u8]) -> Result<u64, Error> {
        with_tree(&[("compatible", compatible), ("reg", reg)], find)
    }

    /// Reads a device tree whose only node has these properties.
    fn with_tree<T>(properties: &[(&str, &[u8])], read: impl FnOnce(&Path) -> T) -> T {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let root = std::env::temp_dir().join(format!(
            "cloison-tree-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Ordering::Relaxed)
        ));
        let node = root.join("services@9001000");
        std::fs::create_dir_all(&node).unwrap();
        for (name, value) in properties {
            std::fs::write(node.join(name), value).unwrap();
        }
        let found = read(&root);
        std::fs::remove_dir_all(&root).unwrap();
        found
    }

    #[test]
    fn the_page_is_found_by_its_name() {
        let reg = [0, 0, 0, 0, 0x09, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0];
        assert_eq!(tree(b"cloison,services-1\0", &reg).unwrap(), 0x0900_1000);
        assert!(matches!(
            tree(b"arm,pl011\0arm,primecell\0", &reg),
            Err(Error::Absent)
        ));
        assert!(
            matches!(tree(b"cloison,services-23\0", &reg), Err(Error::OtherPage(name)) if name.ends_with("23"))
        );
        assert!(matches!(
            tree(b"x\0cloison,services-1\0", &reg[..7]),
            Err(Error::DeviceTree)
        ));
        assert!(matches!(
            find(Path::new("/nowhere/at/all")),
            Err(Error::Absent)
        ));
    }

    #[test]
    fn a_ceiling_is_the_third_cell_of_its_row() {
        let name: (&str, &[u8]) = ("compatible", b"cloison,services-1\0");
        // Quota 1 of VM 2 up to 500,000 events, and a row that is cut.
        let cells: Vec<u8> = [1_u32, 0, 70, 2, 1, 500_000, 3, 0]
            .iter()
            .flat_map(|cell| cell.to_be_bytes())
            .collect();
        let known = |vm, index| {
            with_tree(&[name, (CEILINGS, &cells)], |root| {
                ceiling_below(root, vm, index)
            })
        };
        assert_eq!(known(1, 0), Some(70));
        assert_eq!(known(2, 1), Some(500_000));
        assert_eq!([known(2, 0), known(3, 0), known(0, 0)], [None; 3]);
        assert_eq!(with_tree(&[name], |root| ceiling_below(root, 2, 1)), None);
        assert_eq!(ceiling_below(Path::new("/nowhere/at/all"), 2, 1), None);
    }
}
