//! The QEMU that loaded the plugin, as safe code sees it: a CPU or register exists only where QEMU
//! has named it, and only on the thread on which QEMU may be asked about it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::callbacks::{Registration, registration};
use crate::cpu::Running;
use crate::ffi::{Api, ByteArray, KNOWN_QEMU, PluginId, RegisterDescriptor, fail, missing};
use libc::c_void;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Returns the exception level in a value of CPSR: M\[3:2\].
pub const fn level(cpsr: u64) -> u8 {
    (cpsr >> 2 & 3) as u8
}

/// A register of the running CPU.
#[derive(Clone, Copy, Debug)]
pub struct Register(pub(crate) NonNull<c_void>);

impl Register {
    /// Returns its value. Ends the run if QEMU does not provide it: a register that reads as zero
    /// would silently change the model.
    pub fn read(self) -> u64 {
        let Qemu { api, buffer, .. } = qemu();
        // SAFETY: the handle came from QEMU, and keeps this on the thread on which QEMU gave it, the
        // vCPUs'; the array is emptied before it is filled.
        unsafe {
            let bytes = buffer.0;
            (api.set_size)(bytes, 0);
            (api.read_register)(self.0.as_ptr(), bytes);
            let data = (*bytes).data;
            match (*bytes).len {
                8 => data.cast::<u64>().read_unaligned(),
                4 => u64::from(data.cast::<u32>().read_unaligned()),
                length => fail(&format!(
                    "this QEMU cannot read registers where the plugin needs them ({length} \
                     bytes): {KNOWN_QEMU}"
                )),
            }
        }
    }
}

impl Register {
    /// Returns the value of a register of 128 bits, its lower half first; that of a narrower one is
    /// in the lower half.
    pub fn read_wide(self) -> [u64; 2] {
        let Qemu { api, buffer, .. } = qemu();
        let mut value = [0u8; 16];
        // SAFETY: as in `read`; as many bytes are read as the array has.
        unsafe {
            let bytes = buffer.0;
            (api.set_size)(bytes, 0);
            (api.read_register)(self.0.as_ptr(), bytes);
            let read = std::slice::from_raw_parts((*bytes).data, (*bytes).len as usize);
            for (to, from) in value.iter_mut().zip(read) {
                *to = *from;
            }
        }
        let number = u128::from_le_bytes(value);
        [number as u64, (number >> 64) as u64]
    }
}

/// A general register of the running CPU.
#[derive(Clone, Copy, Debug)]
pub struct General {
    /// Its number, below 31.
    pub number: u8,
    /// The register.
    pub register: Register,
}

/// An array of GLib's that only the vCPUs' thread uses.
pub(crate) struct Buffer(pub(crate) *mut ByteArray);

// SAFETY: who uses one has a register or a CPU, which stay on the vCPUs' thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub fn new(api: &Api) -> Self {
        // SAFETY: allocates memory.
        Self(unsafe { (api.byte_array)() })
    }
}

/// QEMU's functions, and its number for this plugin.
pub struct Qemu {
    pub(crate) api: Api,
    pub(crate) registration: Box<dyn Registration>,
    pub(crate) id: PluginId,
    buffer: Buffer,
}

static QEMU: OnceLock<Qemu> = OnceLock::new();

/// Returns the QEMU that loaded the plugin. For callbacks: they run after QEMU has loaded it.
#[inline]
pub fn qemu() -> &'static Qemu {
    match QEMU.get() {
        Some(qemu) => qemu,
        None => unreachable!("QEMU calls back after the plugin was loaded"),
    }
}

impl Qemu {
    /// Finds QEMU's functions.
    ///
    /// # Errors
    ///
    /// If QEMU lacks one, or the plugin was loaded twice.
    pub fn find(id: PluginId) -> Result<&'static Self, String> {
        let api = Api::find().map_err(missing)?;
        let found = Self {
            registration: registration().map_err(missing)?,
            buffer: Buffer::new(&api),
            api,
            id,
        };
        QEMU.set(found).map_err(|_| "loaded twice".to_owned())?;
        Ok(qemu())
    }

    /// Makes QEMU translate all code again, once no vCPU executes.
    pub fn retranslate(&self) {
        self.registration.forget(self.id);
    }
}

/// A vCPU that starts, on its thread and before it executes anything.
#[derive(Debug)]
pub struct Start {
    /// Its number.
    pub core: usize,
    running: Running,
}

impl Start {
    /// Describes the start of a vCPU on this thread.
    pub(crate) fn of(core: usize) -> Self {
        let running = Running::of_this_thread();
        Self { core, running }
    }

    /// Returns the variable for the CPU that its thread runs.
    pub const fn running(&self) -> Running {
        self.running
    }

    /// Returns the registers of these names. Ends the run if QEMU lacks one.
    pub fn named<const N: usize>(&self, names: [&[u8]; N]) -> [Register; N] {
        let all = self.registers();
        names.map(|name| match all.iter().find(|(known, _)| *known == name) {
            Some((_, register)) => *register,
            None => fail(&format!(
                "this QEMU's CPU has no {}",
                String::from_utf8_lossy(name)
            )),
        })
    }

    /// Returns its registers, with QEMU's names of them.
    pub fn registers(&self) -> Vec<(&'static [u8], Register)> {
        let api = &qemu().api;
        // SAFETY: on the vCPU's thread; the list and the first members of its descriptors are as
        // declared, and names are zero-terminated strings that live as long as QEMU.
        unsafe {
            let list = &*(api.registers)();
            let size = (api.element_size)(list) as usize;
            let descriptors = (0..list.len as usize)
                .map(|at| &*list.data.add(at * size).cast::<RegisterDescriptor>());
            descriptors
                .filter(|descriptor| !descriptor.name.is_null())
                .filter_map(|descriptor| {
                    let name = CStr::from_ptr(descriptor.name).to_bytes();
                    Some((name, Register(NonNull::new(descriptor.handle)?)))
                })
                .collect()
        }
    }
}
