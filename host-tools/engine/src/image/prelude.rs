//! A program before a guest's first instruction, which makes some of the VM's pages non-cacheable.
//!
//! The guest and its memory stay unchanged. The program is at the end of the region that holds the
//! guest's image, below a device tree. It starts in the guest's place, makes the calls of the
//! service `profile`, which the VM gets for it, and jumps to the guest with all registers except
//! `x17` unchanged. A restart of the VM starts it again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Flat, Image, ImageError, system_image};
use cloison_abi::{Call, cadence, pl011, psci, services};
use cloison_formats::addr::{Ipa, PAGE_SIZE};
use cloison_formats::guest_map::{GuestUart, GuestUartKind};
use cloison_formats::ids::VmId;
use cloison_formats::image::{self, Backing, Module, System, Vm};
use miette::{Diagnostic, Result};
use thiserror::Error;

/// The console's line if the hypervisor refuses to make a page non-cacheable.
pub const REFUSED: &str = "prelude: the hypervisor refused to make a page non-cacheable";

/// Consecutive pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The first one.
    pub first: Ipa,
    /// Their number.
    pub pages: u64,
}

/// Whether the other VMs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// They run their images.
    Run,
    /// They turn themselves off at their first instruction. They keep their memory, so that no
    /// frame of any VM changes.
    Off,
}

/// Why a program cannot be put before a guest.
#[derive(Debug, Error, Diagnostic)]
pub enum PreludeError {
    /// The guest's image leaves no room.
    #[error(
        "VM `{vm}`: after its image there is no room for the {length} bytes that make pages \
         non-cacheable"
    )]
    #[diagnostic(help(
        "they are in the last pages of the region that holds the image: make that larger"
    ))]
    NoRoom {
        /// Name of the VM.
        vm: String,
        /// Bytes that are needed.
        length: u64,
    },
    /// The image that results is invalid.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Image(#[from] ImageError),
}

/// Returns the image in which VM `vm` starts with these pages non-cacheable, and ends the system
/// when it ends. The hypervisor moves none of its pages by itself.
///
/// # Errors
///
/// If there is no room for the program.
pub fn before(
    image: &Image,
    hypervisor: &Flat,
    vm: VmId,
    uncached: &[Pages],
    others: Others,
) -> Result<Image, PreludeError> {
    let mut system = image.system.clone();
    let mut payload = image.bytes[image.payload.clone()].to_vec();
    if others == Others::Off {
        turn_others_off(&mut system, vm, &mut payload);
    }
    let guest = &mut system.vms[vm.index()];
    let program = program(&guest.map.uart, guest.image.entry, uncached);
    let load = place(guest, program.len() as u64)?;
    guest.services |= services::PROFILE;
    guest.modules.push(Module {
        offset: append(&mut payload, &program),
        len: program.len() as u32,
        load,
    });
    guest.image.entry = load;
    if let Some(profile) = &mut guest.profile {
        (profile.top, profile.after) = (0, None);
    }
    system.ends_with = Some(vm);
    Ok(system_image(hypervisor, system, &payload)?)
}

/// Returns the image of a system that ends when VM `vm` ends. The guest is not changed.
///
/// # Errors
///
/// If the image that results is invalid.
pub fn until(
    image: &Image,
    hypervisor: &Flat,
    vm: VmId,
    others: Others,
) -> Result<Image, PreludeError> {
    let mut system = image.system.clone();
    let mut payload = image.bytes[image.payload.clone()].to_vec();
    if others == Others::Off {
        turn_others_off(&mut system, vm, &mut payload);
    }
    system.ends_with = Some(vm);
    Ok(system_image(hypervisor, system, &payload)?)
}

/// Appends bytes to a payload at the start of a page. Returns their place in it.
fn append(payload: &mut Vec<u8>, bytes: &[u8]) -> u32 {
    payload.resize(payload.len().next_multiple_of(PAGE_SIZE as usize), 0);
    let offset = payload.len() as u32;
    payload.extend_from_slice(bytes);
    offset
}

/// Makes all VMs except one turn themselves off at their first instruction.
fn turn_others_off(system: &mut System, vm: VmId, payload: &mut Vec<u8>) {
    let offset = append(payload, &bytes_of(&OFF));
    let len = (OFF.len() * 4) as u32;
    system
        .vms
        .iter_mut()
        .enumerate()
        .filter(|(index, _)| *index != vm.index())
        .for_each(|(_, vm)| turn_off(vm, offset, len));
}

/// Makes a VM turn itself off at its first instruction, by the program at this offset.
fn turn_off(vm: &mut Vm, offset: u32, len: u32) {
    let ram = vm
        .regions
        .iter()
        .find(|region| !matches!(region.backing, Backing::Device(_)));
    let load = ram.map_or(vm.image.load, |region| region.ipa);
    vm.image = image::Image {
        offset,
        len,
        load,
        entry: load,
    };
    vm.modules.clear();
    (vm.campaign, vm.profile) = (None, None);
}

/// Returns where the program is loaded: before the end of the region that holds the image, and
/// before what else is loaded there.
fn place(vm: &Vm, length: u64) -> Result<Ipa, PreludeError> {
    let image_end = vm.image.load.0 + u64::from(vm.image.len);
    let region = vm
        .regions
        .iter()
        .find(|region| region.contains(vm.image.load));
    let stop = region.map_or(0, |region| region.ipa.page(u64::from(region.pages)).0);
    let loaded = vm
        .modules
        .iter()
        .map(|module| module.load.0)
        .filter(|load| (image_end..stop).contains(load));
    let stop = loaded.min().unwrap_or(stop);
    let load = stop.saturating_sub(length.next_multiple_of(PAGE_SIZE));
    if load < image_end {
        return Err(PreludeError::NoRoom {
            vm: vm.name.clone(),
            length,
        });
    }
    Ok(Ipa(load))
}

/// Encodings of the A64 instructions that the program needs (Arm ARM DDI 0487, C6.2).
mod a64 {
    pub const HVC: u32 = 0xd400_0002;
    /// `b .`
    pub const WAIT: u32 = 0x1400_0000;

    /// `movz Xd, #bits, lsl #(16 * part)`
    pub const fn movz(d: u32, bits: u32, part: u32) -> u32 {
        0xd280_0000 | part << 21 | (bits & 0xffff) << 5 | d
    }
    /// `movk Xd, #bits, lsl #(16 * part)`
    pub const fn movk(d: u32, bits: u32, part: u32) -> u32 {
        0xf280_0000 | part << 21 | (bits & 0xffff) << 5 | d
    }
    /// `mov Xd, Xm`; 31 is the zero register.
    pub const fn mov(d: u32, m: u32) -> u32 {
        0xaa00_03e0 | m << 16 | d
    }
    /// `ldr Xt, [Xn], #8`
    pub const fn next_word(t: u32, n: u32) -> u32 {
        0xf840_8400 | n << 5 | t
    }
    /// `ldrb Wt, [Xn], #1`
    pub const fn next_byte(t: u32, n: u32) -> u32 {
        0x3840_1400 | n << 5 | t
    }
    /// `str Wt, [Xn]`
    pub const fn store(t: u32, n: u32) -> u32 {
        0xb900_0000 | n << 5 | t
    }
    /// `adr Xd, .+(4 * words)`
    pub const fn adr(d: u32, words: u32) -> u32 {
        0x1000_0000 | words << 5 | d
    }
    /// `cbz Xt, .+(4 * words)`
    pub const fn cbz(t: u32, words: i32) -> u32 {
        0xb400_0000 | (words as u32 & 0x7_ffff) << 5 | t
    }
    /// `b .+(4 * words)`
    pub const fn b(words: i32) -> u32 {
        WAIT | words as u32 & 0x3ff_ffff
    }
    /// `br Xn`
    pub const fn br(n: u32) -> u32 {
        0xd61f_0000 | n << 5
    }
}

const ZERO: u32 = 31;
const SET: u32 = Call::SetCacheability as u32;

/// The code of another VM instead of its image.
const OFF: [u32; 4] = [
    a64::movz(0, psci::SYSTEM_OFF, 0),
    a64::movk(0, psci::SYSTEM_OFF >> 16, 1),
    a64::HVC,
    a64::WAIT,
];

/// Number of the first word after the code: the guest's entry, pairs of a first page and a number
/// of pages, a pair of zeros, and the text.
const TABLE: u32 = 40;
/// Returns the code, which prints on this UART. Its length is even, so that the table is aligned.
fn code(uart: &GuestUart) -> [u32; TABLE as usize] {
    let data = uart.base.0
        + u64::from(match uart.kind {
            GuestUartKind::Pl011 => pl011::offset::DR,
            GuestUartKind::Cadence => cadence::offset::FIFO,
        });
    let part = |number: u32| (data >> (16 * number)) as u32 & 0xffff;
    [
        // The registers with which the guest starts.
        a64::adr(23, TABLE),
        a64::mov(19, 0),
        a64::mov(20, 1),
        a64::mov(21, 2),
        a64::mov(22, 3),
        a64::next_word(24, 23),
        // 6: makes the pages of each entry non-cacheable.
        a64::next_word(1, 23),
        a64::next_word(2, 23),
        a64::cbz(2, 20),
        a64::mov(3, ZERO),
        a64::movz(0, SET, 0),
        a64::movk(0, SET >> 16, 1),
        a64::HVC,
        a64::cbz(0, -7),
        // 14: it was refused. Prints the text, which is after the entry of zeros, and turns the VM
        // off.
        a64::next_word(1, 23),
        a64::next_word(2, 23),
        a64::cbz(2, 2),
        a64::b(-3),
        a64::movz(1, part(0), 0),
        a64::movk(1, part(1), 1),
        a64::movk(1, part(2), 2),
        a64::next_byte(3, 23),
        a64::cbz(3, 3),
        a64::store(3, 1),
        a64::b(-3),
        a64::movz(0, psci::SYSTEM_OFF, 0),
        a64::movk(0, psci::SYSTEM_OFF >> 16, 1),
        a64::HVC,
        // 28: all pages are as they should be; starts the guest.
        a64::mov(0, 19),
        a64::mov(1, 20),
        a64::mov(2, 21),
        a64::mov(3, 22),
        a64::mov(17, 24),
        a64::mov(19, ZERO),
        a64::mov(20, ZERO),
        a64::mov(21, ZERO),
        a64::mov(22, ZERO),
        a64::mov(23, ZERO),
        a64::mov(24, ZERO),
        a64::br(17),
    ]
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the program that makes these pages non-cacheable and jumps to `entry`.
fn program(uart: &GuestUart, entry: Ipa, uncached: &[Pages]) -> Vec<u8> {
    let mut bytes = bytes_of(&code(uart));
    let entries = uncached
        .iter()
        .filter(|pages| pages.pages > 0)
        .flat_map(|pages| [pages.first.0, pages.pages]);
    let table = std::iter::once(entry.0).chain(entries).chain([0, 0]);
    bytes.extend(table.flat_map(u64::to_le_bytes));
    bytes.extend_from_slice(REFUSED.as_bytes());
    bytes.extend_from_slice(b"\n\0");
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hypervisor, system};
    use super::*;
    use cloison_formats::ids::Core;

    fn image() -> Image {
        system_image(&hypervisor(), system(), b"8 bytes.").unwrap()
    }

    /// What aarch64-linux-gnu-as makes of them.
    #[test]
    fn instructions_are_encoded_as_an_assembler_does() {
        let expected = [
            (a64::adr(23, 40), 0x1000_0517),
            (a64::mov(19, 0), 0xaa00_03f3),
            (a64::mov(3, ZERO), 0xaa1f_03e3),
            (a64::next_word(24, 23), 0xf840_86f8),
            (a64::next_byte(3, 23), 0x3840_16e3),
            (a64::store(3, 1), 0xb900_0023),
            (a64::cbz(2, 18), 0xb400_0242),
            (a64::cbz(0, -7), 0xb4ff_ff20),
            (a64::movz(0, 0xa, 0), 0xd280_0140),
            (a64::movk(0, 0xc600, 1), 0xf2b8_c000),
            (a64::b(-3), 0x17ff_fffd),
            (a64::br(17), 0xd61f_0220),
        ];
        for (found, expected) in expected {
            assert_eq!(found, expected, "{found:#x}");
        }
    }

    #[test]
    fn the_program_is_at_the_end_of_the_region_and_has_the_pages() {
        let pages = [
            Pages {
                first: Ipa(0x4000_0000),
                pages: 2,
            },
            Pages {
                first: Ipa(0x4000_3000),
                pages: 1,
            },
        ];
        let made = before(&image(), &hypervisor(), VmId(0), &pages, Others::Off).unwrap();
        let vm = &made.system.vms[0];
        assert_eq!(
            (vm.image.entry, vm.image.load),
            (Ipa(0x4000_3000), Ipa(0x4000_0000))
        );
        assert_eq!(vm.services, services::PROFILE);
        assert_eq!(made.system.ends_with, Some(VmId(0)));
        let module = vm.modules[0];
        assert_eq!(module.load, Ipa(0x4000_3000));
        let payload = &made.bytes[made.payload.clone()];
        assert!(payload.starts_with(b"8 bytes."));
        let program = &payload[module.offset as usize..][..module.len as usize];
        let word = |at: usize| {
            u64::from_le_bytes(
                program[4 * TABLE as usize + 8 * at..][..8]
                    .try_into()
                    .unwrap(),
            )
        };
        let table: Vec<u64> = (0..7).map(word).collect();
        assert_eq!(table, [0x4000_0000, 0x4000_0000, 2, 0x4000_3000, 1, 0, 0]);
        assert!(program.ends_with(b"non-cacheable\n\0"));
    }

    #[test]
    fn other_vms_turn_themselves_off_and_keep_their_memory() {
        let mut system = system();
        let mut other = system.vms[0].clone();
        (other.name, other.cores) = ("two".into(), vec![Core(1)]);
        system.pools[0].kind = image::PoolKind::Sh;
        system.vms.push(other);
        let image = system_image(&hypervisor(), system, b"8 bytes.").unwrap();
        let off = before(&image, &hypervisor(), VmId(1), &[], Others::Off)
            .unwrap()
            .system;
        assert_eq!(off.vms[0].regions, image.system.vms[0].regions);
        assert_eq!(
            (off.vms[0].image.len, off.vms[0].image.entry),
            (16, Ipa(0x4000_0000))
        );
        assert_eq!(off.vms[0].services, 0);
        let run = before(&image, &hypervisor(), VmId(1), &[], Others::Run)
            .unwrap()
            .system;
        assert_eq!(run.vms[0], image.system.vms[0]);
        assert_eq!(
            (off.ends_with, run.ends_with),
            (Some(VmId(1)), Some(VmId(1)))
        );
    }

    #[test]
    fn an_image_that_fills_its_region_is_refused() {
        let mut system = system();
        system.vms[0].image.len = 3 * 4096 + 1;
        let image = system_image(&hypervisor(), system, &[0; 4 * 4096]).unwrap();
        let error = before(&image, &hypervisor(), VmId(0), &[], Others::Off).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("VM `one`: after its image there is no room for the "),
            "{error}"
        );
    }

    /// Below a device tree, which is loaded at the end too.
    #[test]
    fn what_else_is_loaded_there_is_not_overwritten() {
        let mut system = system();
        system.vms[0].modules = vec![Module {
            offset: 0,
            len: 8,
            load: Ipa(0x4000_2000),
        }];
        let image = system_image(&hypervisor(), system, b"8 bytes.").unwrap();
        let made = before(&image, &hypervisor(), VmId(0), &[], Others::Off).unwrap();
        assert_eq!(made.system.vms[0].modules[1].load, Ipa(0x4000_1000));
    }
}
