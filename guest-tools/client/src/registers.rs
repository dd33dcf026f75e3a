//! The services page in this process's memory: found in the device tree, mapped from `/dev/mem`, accessed 64 bits at a time.
//!
//! The only unsafe code of this crate.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_abi::page;
use rustix::fs::{FlockOperation, flock};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
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
}

/// The services page of the VM in which this process runs.
#[derive(Debug)]
pub struct MappedPage {
    memory: File,
    address: NonNull<c_void>,
}

/// Bytes of a page.
const LENGTH: usize = 0x1000;
/// Where Linux shows the device tree.
const DEVICE_TREE: &str = "/sys/firmware/devicetree/base";
/// The file from which the page is mapped.
const MEMORY: &str = "/dev/mem";

/// Returns the address of the services page, according to the device tree below `root`.
pub fn find(root: &Path) -> Result<u64, Error> {
    let family = page::COMPATIBLE.trim_end_matches(|c: char| c.is_ascii_digit());
    for node in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let Ok(compatible) = std::fs::read(node.path().join("compatible")) else { continue };
        let compatible = String::from_utf8_lossy(&compatible);
        let names = || compatible.split('\0');
        if names().any(|name| name == page::COMPATIBLE) {
            let reg = std::fs::read(node.path().join("reg")).unwrap_or_default();
            let address = reg.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            return address.ok_or(Error::DeviceTree);
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
        let memory = OpenOptions::new().read(true).write(true).custom_flags(sync).open(MEMORY);
        let memory = memory.map_err(|source| Error::Memory { what: "open", source })?;
        // SAFETY: a new mapping at an address of the kernel's choice, so it cannot overlap memory that this process
        // uses.
        let mapped = unsafe {
            let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
            mmap(std::ptr::null_mut(), LENGTH, rights, flags, &memory, address)
        };
        let mapped = mapped.map_err(|errno| Error::Memory { what: "map", source: errno.into() })?;
        let address = NonNull::new(mapped).ok_or(Error::DeviceTree)?;
        Ok(Self { memory, address })
    }

    fn register(&self, offset: u16) -> *mut u64 {
        assert!(offset.is_multiple_of(8) && usize::from(offset) < LENGTH, "no register at {offset:#x}");
        self.address.as_ptr().wrapping_byte_add(usize::from(offset)).cast()
    }
}

impl Registers for MappedPage {
    fn read(&self, offset: u16) -> u64 {
        let register = self.register(offset);
        #[cfg(target_arch = "aarch64")]
        {
            let value: u64;
            // SAFETY: a register of the mapped page, which is no memory of Rust's. The hypervisor can only decode this
            // form of a load; a compiler may choose another for `read_volatile`.
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
        flock(&self.memory, FlockOperation::LockExclusive)
            .map_err(|errno| Error::Memory { what: "lock", source: errno.into() })
    }

    fn end_turn(&mut self) {
        // The file is open and locked by this process, so unlocking cannot fail.
        let _ = flock(&self.memory, FlockOperation::Unlock);
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

    fn tree(compatible: &[u8], reg: &[u8]) -> Result<u64, Error> {
        let root = std::env::temp_dir().join(format!("cloison-tree-{}-{}", std::process::id(), compatible.len()));
        let node = root.join("services@9001000");
        std::fs::create_dir_all(&node).unwrap();
        std::fs::write(node.join("compatible"), compatible).unwrap();
        std::fs::write(node.join("reg"), reg).unwrap();
        let found = find(&root);
        std::fs::remove_dir_all(&root).unwrap();
        found
    }

    #[test]
    fn the_page_is_found_by_its_name() {
        let reg = [0, 0, 0, 0, 0x09, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x10, 0];
        assert_eq!(tree(b"cloison,services-1\0", &reg).unwrap(), 0x0900_1000);
        assert!(matches!(tree(b"arm,pl011\0arm,primecell\0", &reg), Err(Error::Absent)));
        assert!(matches!(tree(b"cloison,services-23\0", &reg), Err(Error::OtherPage(name)) if name.ends_with("23")));
        assert!(matches!(tree(b"x\0cloison,services-1\0", &reg[..7]), Err(Error::DeviceTree)));
        assert!(matches!(find(Path::new("/nowhere/at/all")), Err(Error::Absent)));
    }
}
