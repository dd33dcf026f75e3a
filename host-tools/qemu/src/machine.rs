//! The running CPU's memory and registers beyond what version 4 of the plugin API reads.
//!
//! Later versions have functions for all of it, which are used where QEMU has them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cpu::Cpu;
use crate::ffi::{Api, ByteArray, KNOWN_QEMU, functions};
use crate::guest::{Buffer, General, qemu};
use libc::{c_int, c_void, size_t};

/// A source of the running CPU's memory and registers.
pub trait Machine: Send + Sync {
    /// Translates a virtual address by the CPU's current tables, as a debugger does. Cache
    /// maintenance and DC ZVA cause no memory callback, and a block's address is virtual.
    fn translate(&self, cpu: Cpu, address: u64) -> Option<u64>;
    /// Reads physical memory, as a walk of the CPU's tables does. What has no memory reads as it
    /// was.
    fn read_memory(&self, cpu: Cpu, physical: u64, bytes: &mut [u8]);
    /// Writes physical memory. QEMU translates code again that is written over.
    fn write_memory(&self, cpu: Cpu, physical: u64, bytes: &[u8]);
    /// Sets a general register, in a block's callback: a guest that reads an event counter gets
    /// the modelled count.
    fn set_register(&self, cpu: Cpu, which: General, value: u64);
}

/// Finds the source that this QEMU has.
///
/// # Errors
///
/// The name of a missing function of the plugin API.
pub fn machine() -> Result<Box<dyn Machine>, &'static str> {
    let api = Official::find().map(ByApi::new);
    match (api, ByInternals::find()) {
        (Ok(api), _) => Ok(Box::new(api)),
        (Err(_), Ok(internals)) => Ok(Box::new(internals)),
        (Err(name), Err(_)) => Err(name),
    }
}

/// Tests a source against what the plugin API shows of the same CPU. `code` is an instruction that
/// the CPU is about to execute, with its virtual address; `register` is any.
///
/// # Errors
///
/// What differs.
pub fn check(
    machine: &dyn Machine,
    cpu: Cpu,
    register: General,
    (address, word): (u64, u32),
) -> Result<(), String> {
    let before = register.register.read();
    machine.set_register(cpu, register, !before);
    let set = register.register.read();
    machine.set_register(cpu, register, before);
    let mut bytes = [0; 4];
    if let Some(physical) = machine.translate(cpu, address) {
        machine.read_memory(cpu, physical, &mut bytes);
    }
    let read = u32::from_le_bytes(bytes);
    if set == !before && register.register.read() == before && read == word {
        return Ok(());
    }
    Err(format!(
        "this QEMU's memory or registers are not as the plugin expects them (code {word:#x} read as \
         {read:#x}, register {:#x} as {set:#x}): {KNOWN_QEMU}",
        !before
    ))
}

functions! {
    /// Functions of the plugin API since version 5 (QEMU 10.1).
    Official {
        /// Translates an address.
        translate = c"qemu_plugin_translate_vaddr": fn(u64, *mut u64) -> bool;
        /// Reads physical memory. 0 is success.
        read = c"qemu_plugin_read_memory_hwaddr": fn(u64, *mut ByteArray, size_t) -> c_int;
        /// Writes physical memory. 0 is success.
        write_memory = c"qemu_plugin_write_memory_hwaddr": fn(u64, *mut ByteArray) -> c_int;
        /// Writes a register.
        write = c"qemu_plugin_write_register": fn(*mut c_void, *mut ByteArray);
    }
}

/// The plugin API.
struct ByApi {
    f: Official,
    api: Api,
    buffer: Buffer,
}

impl ByApi {
    fn new(f: Official) -> Self {
        let api = qemu().api;
        let buffer = Buffer::new(&api);
        Self { f, api, buffer }
    }
}

impl Machine for ByApi {
    fn translate(&self, _cpu: Cpu, address: u64) -> Option<u64> {
        let mut physical = 0;
        // SAFETY: on the thread of the running CPU, as `Cpu` shows.
        unsafe { (self.f.translate)(address, &raw mut physical) }.then_some(physical)
    }

    fn read_memory(&self, _cpu: Cpu, physical: u64, bytes: &mut [u8]) {
        // SAFETY: on the thread of the running CPU, as `Cpu` shows; what was read is in the array,
        // as long as that says.
        unsafe {
            let buffer = self.buffer.0;
            (self.api.set_size)(buffer, 0);
            if (self.f.read)(physical, buffer, bytes.len()) == 0 {
                let read = std::slice::from_raw_parts((*buffer).data, (*buffer).len as usize);
                for (to, from) in bytes.iter_mut().zip(read) {
                    *to = *from;
                }
            }
        }
    }

    fn write_memory(&self, _cpu: Cpu, physical: u64, bytes: &[u8]) {
        // SAFETY: on the thread of the running CPU, as `Cpu` shows; the array is made as long as
        // what is copied to it.
        unsafe {
            let buffer = self.buffer.0;
            (self.api.set_size)(buffer, bytes.len() as u32);
            let to = (*buffer).data;
            to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            (self.f.write_memory)(physical, buffer);
        }
    }

    fn set_register(&self, _cpu: Cpu, which: General, value: u64) {
        // SAFETY: on the thread of the running CPU, as `Cpu` shows; the array has the register's
        // eight bytes.
        unsafe {
            let buffer = self.buffer.0;
            (self.api.set_size)(buffer, size_of::<u64>() as u32);
            (*buffer).data.cast::<u64>().write_unaligned(value);
            (self.f.write)(which.register.0.as_ptr(), buffer);
        }
    }
}

functions! {
    /// Functions that the debugger's stub of QEMU 10.0 uses.
    ByInternals {
        /// Translates the address of a page.
        page = c"cpu_get_phys_page_attrs_debug": fn(*mut c_void, u64, *mut u64) -> u64;
        /// Copies from or to physical memory.
        memory = c"cpu_physical_memory_rw": fn(u64, *mut c_void, u64, bool);
        /// Sets a register.
        write = c"aarch64_cpu_gdb_write_register": fn(*mut c_void, *mut u8, c_int) -> c_int;
    }
}

impl Machine for ByInternals {
    fn translate(&self, cpu: Cpu, address: u64) -> Option<u64> {
        let mut attributes = 0u64;
        // SAFETY: on the thread of the running CPU, as `Cpu` shows; MemTxAttrs is 8 bytes in QEMU 10
        // and is only written.
        let page = unsafe { (self.page)(cpu.0.as_ptr(), address & !0xfff, &raw mut attributes) };
        (page != u64::MAX).then_some(page & !0xfff | address & 0xfff)
    }

    fn read_memory(&self, _cpu: Cpu, physical: u64, bytes: &mut [u8]) {
        // SAFETY: the function writes as many bytes as it is told; the last argument says that it
        // reads the memory.
        unsafe {
            (self.memory)(
                physical,
                bytes.as_mut_ptr().cast(),
                bytes.len() as u64,
                false,
            )
        }
    }

    fn write_memory(&self, _cpu: Cpu, physical: u64, bytes: &[u8]) {
        let from = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the function only reads the bytes, as many as it is told; the last argument says
        // that it writes the memory.
        unsafe { (self.memory)(physical, from, bytes.len() as u64, true) }
    }

    fn set_register(&self, cpu: Cpu, which: General, value: u64) {
        let mut bytes = value.to_le_bytes();
        // SAFETY: on the thread of the running CPU, as `Cpu` shows; 8 bytes are read.
        unsafe {
            (self.write)(
                cpu.0.as_ptr(),
                bytes.as_mut_ptr(),
                c_int::from(which.number),
            )
        };
    }
}
