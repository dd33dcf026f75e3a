//! Memory that this VM does not own: other VMs', the hypervisor's, devices', unmapped.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::phase::{Own, Phase};
use cloison_benchmarks::random::Random;
use cloison_guest::abi::map;
use cloison_guest::probe::{self, Op};

/// Exclusive upper bound of intermediate physical addresses: 40 bits.
const IPA_END: u64 = 1 << 40;
const PAGE: u64 = 4096;
/// Encoding of `nop`.
const NOP: u64 = 0xd503_201f;

/// Returns the ranges to walk with their steps: fine where the boards have RAM, devices and the
/// hypervisor, coarse elsewhere.
fn ranges(own: Own) -> [(u64, u64, u64); 11] {
    [
        (0, 1 << 28, 256 << 10),
        (map::GICD, map::GICD + (1 << 20), PAGE),
        (map::UART, map::UART + (1 << 20), PAGE),
        (0x0a00_0000, 0x0a01_0000, PAGE),
        (0, map::RAM, 2 << 20),
        (own.ram_end, own.ram_end + (1 << 20), PAGE),
        (own.ram_end, 1 << 32, 2 << 20),
        (0xf900_0000, 0xfa00_0000, 64 << 10),
        (0xff00_0000, 0xff10_0000, 64 << 10),
        (0x8_0000_0000, 0x8_8000_0000, 8 << 20),
        (0, IPA_END, 1 << 30),
    ]
}

/// Returns an address that this VM does not own, aligned to 8.
pub fn foreign(own: Own, random: &mut Random) -> u64 {
    loop {
        let bits = 12 + random.below(29);
        let address = random.below(1 << bits) & !7;
        if !own.has(address) {
            return address;
        }
    }
}

/// Reads and writes across the whole address space.
pub fn sweep(own: Own, random: &mut Random) -> u64 {
    let mut phase = Phase::new("memory");
    for (start, end, step) in ranges(own) {
        let mut base = start;
        while base < end {
            let address = base + (random.below(PAGE) & !7);
            if !own.has(address) {
                // SAFETY: not this VM's memory, so it cannot hold anything of this program; the
                // access faults.
                let (read, written) =
                    unsafe { (probe::read(address), probe::write(address, random.bits())) };
                phase.must_fail(read, format_args!("read of {address:#x}"));
                phase.must_fail(written.map(|()| 0), format_args!("write to {address:#x}"));
            }
            base += step;
        }
    }
    phase.finish()
}

/// Tries every kind of access, aligned and not, instruction fetches, and accesses across the end of
/// the VM's RAM.
pub fn accesses(own: Own, random: &mut Random) -> u64 {
    let mut phase = Phase::new("unmapped");
    let mut pages = [
        0,
        PAGE,
        map::GICD + PAGE,
        map::GICC + 0x2_0000,
        map::GICC + 0x3_0000,
        map::SERVICES + PAGE,
        map::RAM - PAGE,
        own.ram_end,
        own.ram_end + PAGE,
        0xf901_0000,
        0xffff_f000,
        0x8_0000_0000,
        IPA_END / 2 - PAGE,
        IPA_END / 2,
        IPA_END - PAGE,
        0,
    ];
    pages[15] = foreign(own, random) & !(PAGE - 1);
    for page in pages {
        for op in Op::ALL {
            for offset in [0, 1, 3, 4, 0xff8] {
                let address = page + offset;
                // SAFETY: as in `sweep`; no access crosses the end of the page.
                let result = unsafe { probe::access(op, address, random.bits()) };
                if op.is_access() {
                    phase.must_fail(result, format_args!("{op:?} at {address:#x}"));
                } else {
                    phase.may_fail(result);
                }
            }
        }
    }
    // The runtime maps the first GiB as devices, never executable.
    for page in pages.into_iter().filter(|&page| page >= map::RAM) {
        // SAFETY: there is no code to execute; the fetch faults.
        let result = unsafe { probe::jump(page, 0, 0) };
        // A fetch that succeeded would have caused at least an undefined instruction.
        let fetched = match result {
            Err(fault) if fault.class() == 0x21 => Err(fault),
            Err(fault) => Ok(fault.esr),
            Ok(value) => Ok(value),
        };
        phase.must_fail(fetched, format_args!("fetch from {page:#x}"));
    }

    let edge = own.ram_end;
    for (op, address) in [
        (Op::LoadDouble, edge - 4),
        (Op::LoadHalf, edge - 1),
        (Op::LoadWord, edge - 2),
        (Op::LoadPair, edge - 8),
        (Op::StoreDouble, edge - 4),
        (Op::StoreHalf, edge - 1),
        (Op::StorePair, edge - 8),
    ] {
        // SAFETY: the last bytes of the VM's RAM, far above everything that this program uses, and
        // the bytes after them.
        let result = unsafe { probe::access(op, address, random.bits()) };
        phase.must_fail(result, format_args!("{op:?} across the end of RAM"));
    }
    // SAFETY: as above; a `nop` in the last word, then execution continues into unmapped memory.
    let run_over = unsafe {
        let written = probe::access(Op::StoreWord, edge - 4, NOP);
        let cleaned = written.and_then(|_| probe::access(Op::CleanLine, edge - 4, 0));
        cleaned
            .and_then(|_| probe::access(Op::InvalidateInstructionLine, edge - 4, 0))
            .and_then(|_| probe::jump(edge - 4, 0, 0))
    };
    phase.must_fail(run_over, format_args!("execution across the end of RAM"));
    phase.finish()
}
