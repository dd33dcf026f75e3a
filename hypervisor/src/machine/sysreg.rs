//! Instructions without a name in Rust: barriers, TLB and cache maintenance, HINTs, CRC32, SMC.
// SPDX-License-Identifier: MIT OR Apache-2.0

use aarch64_cpu::asm::barrier::{self, ISH, SY};
use cloison_abi::model_hint;
use cloison_formats::addr::{Ipa, PAGE_SHIFT, PAGE_SIZE, PhysAddr};
use core::arch::aarch64::{__crc32b, __crc32d};
use core::arch::asm;
use spin::relax::RelaxStrategy;

/// Instruction barrier: earlier writes to system registers take effect for later instructions.
pub fn isb() {
    barrier::isb(SY);
}

/// Data barrier over the inner shareable domain: all cores.
///
/// Completes loads, stores, and TLB and cache maintenance of this core that precede it.
pub fn dsb_ish() {
    barrier::dsb(ISH);
}

/// Data barrier over the full system.
///
/// Needed where an observer is outside the inner shareable domain: a device, or memory at the point
/// of coherency.
pub fn dsb() {
    barrier::dsb(SY);
}

/// Invalidates the running VM's translations of IPA pages on all cores (Arm ARM DDI 0487, D8.13.5:
/// stage 2 by IPA, then the combined entries, once for all pages).
///
/// The first barrier makes the changed descriptors visible to all walks. The one after the last IPA
/// completes the invalidation of stage 2, so that VMALLE1 also reaches combined entries that were
/// made from it until then. The last one waits until all cores have finished accesses by the old
/// translations.
pub fn tlbi_ipas(pages: impl Iterator<Item = Ipa>) {
    // SAFETY: invalidating TLB entries is always sound; the next access walks the tables again.
    unsafe {
        asm!("dsb ishst", options(nostack, preserves_flags));
        for ipa in pages {
            asm!(
                "tlbi ipas2e1is, {page}",
                page = in(reg) ipa.page_number(),
                options(nostack, preserves_flags),
            );
        }
        asm!(
            "
            dsb     ish
            tlbi    vmalle1is
            dsb     ish
            isb
            ",
            options(nostack, preserves_flags),
        );
    }
}

/// Invalidates the running VM's translations on all cores, those by the guest's tables too.
///
/// VTTBR_EL2 holds the VMID that is meant: this core's VM, for good.
pub fn tlbi_vm() {
    // SAFETY: invalidating TLB entries is always sound; the next access walks the tables again.
    unsafe {
        asm!(
            "
            dsb     ishst
            tlbi    vmalls12e1is
            dsb     ish
            isb
            ",
            options(nostack, preserves_flags),
        )
    };
}

/// Invalidates all EL1&0 translations of every VM on all cores.
///
/// Only at boot: it reaches every VMID.
pub fn tlbi_guests() {
    // SAFETY: invalidating TLB entries is always sound; the next access walks the tables again.
    unsafe {
        asm!(
            "
            dsb     ishst
            tlbi    alle1is
            dsb     ish
            isb
            ",
            options(nostack, preserves_flags),
        )
    };
}

/// Invalidates EL2's translation of one page on all cores: they share its tables, and each may have
/// walked them for any address.
///
/// By last level only (VALE2): tables of EL2 are never removed.
pub fn tlbi_el2(va: u64) {
    // SAFETY: invalidating TLB entries is always sound; the next access walks the tables again.
    unsafe {
        asm!(
            "
            dsb     ishst
            tlbi    vale2is, {page}
            dsb     ish
            isb
            ",
            page = in(reg) va >> PAGE_SHIFT,
            options(nostack, preserves_flags),
        )
    };
}

/// Takes an SError that is pending since before the first guest, so that no guest is blamed for it:
/// EL2 masks SErrors everywhere else. HCR_EL2.AMO must route them here.
///
/// The DSB completes accesses whose error may still be on its way; between the two writes of DAIF,
/// an SError is taken.
pub fn take_pending_serror() {
    // SAFETY: an SError goes to EL2's own vectors, which do not return.
    unsafe {
        asm!(
            "
            dsb     sy
            isb
            msr     daifclr, #4
            isb
            msr     daifset, #4
            ",
            options(nostack, preserves_flags),
        )
    };
}

/// Repeats instructions eight times. `.rept` would do the same, but the compiler takes the size of
/// assembly from its lines, and branches over more than that may not reach.
macro_rules! eight_times {
    ($instructions:expr) => {
        concat!(
            $instructions,
            $instructions,
            $instructions,
            $instructions,
            $instructions,
            $instructions,
            $instructions,
            $instructions,
        )
    };
}
pub(crate) use eight_times;

/// Cleans and invalidates the page at `va` to the point of coherency.
///
/// Invalidates too: a plain clean may corrupt data on a Cortex-A53 (erratum 855873).
pub fn clean_invalidate_page(va: u64) {
    // SAFETY: maintenance by address of a mapped page, which changes no contents.
    unsafe {
        asm!(
            eight_times!(eight_times!(
                "
                dc      civac, {line}
                add     {line}, {line}, #64
                "
            )),
            line = inout(reg) va => _,
            options(nostack, preserves_flags),
        );
    }
    dsb();
}

/// Copies `len` bytes from `from` to `to`, neither of which needs to be aligned; two bytes are copied
/// at once.
///
/// # Safety
/// All bytes must be mapped, and those at `to` writable; none may be Rust's memory that is otherwise
/// in use.
pub unsafe fn copy_bytes(from: u64, to: u64, len: u64) {
    // SAFETY: the caller's obligations are the same.
    unsafe {
        asm!(
            "
            2:
            subs    {rest}, {rest}, #32
            b.lo    3f
            ldp     {a}, {b}, [{from}], #16
            ldp     {c}, {d}, [{from}], #16
            stp     {a}, {b}, [{to}], #16
            stp     {c}, {d}, [{to}], #16
            b       2b
            3:
            tbz     {rest}, #4, 4f
            ldp     {a}, {b}, [{from}], #16
            stp     {a}, {b}, [{to}], #16
            4:
            tbz     {rest}, #3, 5f
            ldr     {a}, [{from}], #8
            str     {a}, [{to}], #8
            5:
            tbz     {rest}, #2, 6f
            ldr     {a:w}, [{from}], #4
            str     {a:w}, [{to}], #4
            6:
            tbz     {rest}, #1, 7f
            ldrh    {a:w}, [{from}], #2
            strh    {a:w}, [{to}], #2
            7:
            tbz     {rest}, #0, 8f
            ldrb    {a:w}, [{from}]
            strb    {a:w}, [{to}]
            8:
            ",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            rest = inout(reg) len => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack),
        );
    }
}

/// Tells the board model (docs/board-model.md) whether stage 2 makes the page at `pa` cacheable;
/// everything else executes the HINT as a NOP.
pub fn tell_cacheable(pa: PhysAddr, cacheable: bool) {
    // SAFETY: a HINT in this space is a NOP by the architecture; it touches no memory and no
    // register.
    unsafe {
        asm!(
            "hint #{number}",
            number = const model_hint::CACHEABILITY,
            in("x0") pa.0,
            in("x1") PAGE_SIZE,
            in("x2") u64::from(!cacheable),
            options(nostack, preserves_flags),
        );
    }
}

/// What a core does at a lock that others hold for more than a moment.
pub struct Patience;

impl RelaxStrategy for Patience {
    fn relax() {
        let_others_run();
    }
}

/// Says that this core is waiting for another. An emulator that runs the cores in turn runs the
/// others then.
pub fn let_others_run() {
    // SAFETY: YIELD is a hint; it touches no memory and no register.
    unsafe { asm!("yield", options(nomem, nostack, preserves_flags)) };
}

/// Invalidates the instruction caches of all cores.
///
/// The data must have been cleaned to the point of unification before. The ISB drops what this core
/// has fetched; the others synchronize at their next exception or return.
pub fn invalidate_instruction_caches() {
    // SAFETY: the next fetch reads memory again.
    unsafe {
        asm!(
            "
            ic      ialluis
            dsb     ish
            isb
            ",
            options(nostack, preserves_flags),
        )
    };
}

/// Copies one page; both addresses are page aligned.
///
/// With general registers: a guest's vector registers are not saved at its exits.
///
/// # Safety
/// Both pages must be mapped, and `to` must be writable and not otherwise in use.
pub unsafe fn copy_page(from: u64, to: u64) {
    // SAFETY: the caller's obligations are the same.
    unsafe {
        asm!(
            "2:",
            eight_times!(
                "
                ldp     {a}, {b}, [{from}], #16
                ldp     {c}, {d}, [{from}], #16
                ldp     {e}, {f}, [{from}], #16
                ldp     {g}, {h}, [{from}], #16
                stp     {a}, {b}, [{to}], #16
                stp     {c}, {d}, [{to}], #16
                stp     {e}, {f}, [{to}], #16
                stp     {g}, {h}, [{to}], #16
                ldp     {a}, {b}, [{from}], #16
                ldp     {c}, {d}, [{from}], #16
                ldp     {e}, {f}, [{from}], #16
                ldp     {g}, {h}, [{from}], #16
                stp     {a}, {b}, [{to}], #16
                stp     {c}, {d}, [{to}], #16
                stp     {e}, {f}, [{to}], #16
                stp     {g}, {h}, [{to}], #16
                "
            ),
            "
            subs    {rest}, {rest}, #1
            b.ne    2b
            ",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            rest = inout(reg) 4u64 => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            e = out(reg) _,
            f = out(reg) _,
            g = out(reg) _,
            h = out(reg) _,
            options(nostack),
        );
    }
}

/// Copies one page as [`copy_page`] does, and cleans and invalidates its copy to the point of
/// coherency. Uses vector registers, so that a system of 40 MB starts sooner: a guest's first entry
/// clears them.
///
/// # Safety
/// As [`copy_page`]; and no guest of this core may be between its first entry and its end.
pub unsafe fn load_page(from: u64, to: u64) {
    // SAFETY: the caller's obligations are the same; EL2 itself keeps nothing in vector registers.
    unsafe {
        asm!(
            "
            .arch_extension fp
            .arch_extension simd
        2:
            ",
            eight_times!(
                "
                ldp     q0, q1, [{from}], #32
                ldp     q2, q3, [{from}], #32
                stp     q0, q1, [{to}]
                stp     q2, q3, [{to}, #32]
                dc      civac, {to}
                add     {to}, {to}, #64
                "
            ),
            "
            subs    {rest}, {rest}, #1
            b.ne    2b
            dsb     sy
            .arch_extension nosimd
            .arch_extension nofp
            ",
            from = inout(reg) from => _,
            to = inout(reg) to => _,
            rest = inout(reg) 8u64 => _,
            out("v0") _,
            out("v1") _,
            out("v2") _,
            out("v3") _,
            options(nostack),
        );
    }
}

/// Computes CRC-32 (ISO-HDLC) with the CPU's CRC32 instructions.
pub fn crc32(bytes: &[u8]) -> u32 {
    // SAFETY: the CRC extension is part of the Cortex-A53, and of every core since Armv8.1.
    unsafe { crc32_by_words(bytes) }
}

/// # Safety
/// The CPU has the CRC extension.
#[target_feature(enable = "crc")]
fn crc32_by_words(bytes: &[u8]) -> u32 {
    let by_byte = |crc, bytes: &[u8]| bytes.iter().fold(crc, |crc, &byte| __crc32b(crc, byte));
    let by_word = |crc, words: &[u64]| {
        words
            .iter()
            .fold(crc, |crc, &word| __crc32d(crc, u64::from_le(word)))
    };
    // SAFETY: every bit pattern is a `u64`.
    let (head, words, tail) = unsafe { bytes.align_to::<u64>() };
    // Eight words at a time: the system image is checked before the first guest starts.
    let (groups, rest) = words.as_chunks::<8>();
    let crc = groups
        .iter()
        .fold(by_byte(u32::MAX, head), |crc, group| by_word(crc, group));
    !by_byte(by_word(crc, rest), tail)
}

/// Calls the firmware (SMC Calling Convention, Arm DEN 0028). Returns x0 to x3.
///
/// # Safety
/// The function must be one that preserves memory and EL2's registers. One that starts a core must
/// start it at code that sets up that core's stack and tables.
pub unsafe fn smc(function: u32, mut x1: u64, mut x2: u64, mut x3: u64) -> [u64; 4] {
    let mut x0 = u64::from(function);
    // SAFETY: by the contract; the firmware preserves what a function of C does.
    unsafe {
        asm!(
            "smc #0",
            inout("x0") x0,
            inout("x1") x1,
            inout("x2") x2,
            inout("x3") x3,
            clobber_abi("C"),
            options(nostack),
        );
    }
    [x0, x1, x2, x3]
}
