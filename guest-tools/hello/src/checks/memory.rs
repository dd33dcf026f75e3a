//! The RAM and other memories: their ends, some pages between, and that no two addresses are one cell.
//!
//! A probe writes two patterns to a word of a page, reads them back, and restores the word. No reserved
//! page is touched. Memory is accessed as a device here, so that no cache answers instead.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::{Fault, read64, write64};
use crate::machine::loaded::{BLOCK, base};
use crate::report::{Report, address};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr, PhysRange};
use cloison_formats::image::Board;

/// Two patterns, one the inverse of the other.
const PATTERNS: [u64; 2] = [0x5a5a_0ff0_c33c_9669, !0x5a5a_0ff0_c33c_9669];
/// Pages between the ends that are probed.
const BETWEEN: u64 = 16;

/// The addresses that are probed, and those that are not.
struct Prober<'a> {
    reserved: &'a [PhysRange],
}

impl Prober<'_> {
    /// Whether a page may be written.
    fn is_free(&self, page: u64) -> bool {
        let is_reserved = self
            .reserved
            .iter()
            .any(|range| range.contains(PhysAddr(page)));
        let is_own = (base()..base() + BLOCK).contains(&page);
        !is_reserved && !is_own
    }

    /// Whether the word at an address keeps what is written.
    fn keeps(&self, at: u64) -> bool {
        let tried = || -> Result<bool, Fault> {
            let before = read64(at)?;
            let mut keeps = true;
            for pattern in PATTERNS {
                write64(at, pattern)?;
                keeps &= read64(at)? == pattern;
            }
            write64(at, before)?;
            Ok(keeps)
        };
        tried().unwrap_or(false)
    }

    /// Returns the free page at or next to `page` in a direction, within a bank.
    fn free_page(&self, bank: PhysRange, page: u64, next: impl Fn(u64) -> u64) -> Option<u64> {
        let mut page = page;
        while bank.contains(PhysAddr(page)) {
            if self.is_free(page) {
                return Some(page);
            }
            page = next(page);
        }
        None
    }

    /// Returns the first page after `low`, which works, that does not, if `high` does not. Pages that
    /// are not free count as those after them.
    fn boundary(&self, bank: PhysRange, low: u64, high: u64) -> u64 {
        let (mut works, mut fails) = (low, high);
        while fails - works > PAGE_SIZE {
            let middle = (works + (fails - works) / 2) & !(PAGE_SIZE - 1);
            let free = self.free_page(bank, middle, |page| page + PAGE_SIZE);
            match free.filter(|page| *page < fails) {
                Some(page) if self.keeps(page) => works = page,
                _ => fails = middle,
            }
        }
        fails
    }

    /// Returns the first page from `low` on, which does not work, that does, if `high` does.
    fn first(&self, bank: PhysRange, low: u64, high: u64) -> u64 {
        let (mut fails, mut works) = (low, high);
        while works - fails > PAGE_SIZE {
            let middle = (fails + (works - fails) / 2) & !(PAGE_SIZE - 1);
            let free = self.free_page(bank, middle, |page| page + PAGE_SIZE);
            match free.filter(|page| *page < works) {
                Some(page) if !self.keeps(page) => fails = page,
                _ => works = middle,
            }
        }
        works
    }

    /// Returns the distance at which a bank repeats itself: a word at one address is the same as one at
    /// another.
    ///
    /// The addresses differ by powers of two, as those do that a controller ignores. They are in the
    /// last page of the image's block, so that a bank that repeats itself over the image loses nothing
    /// but this page, which is unused.
    fn repeats_after(&self, bank: PhysRange) -> Option<u64> {
        let offset = BLOCK - PAGE_SIZE;
        let first = bank.start.0.next_multiple_of(BLOCK) + offset;
        let at = self.free_page(bank, first, |page| page + BLOCK)?;
        let distances = (BLOCK.trailing_zeros()..64).map(|shift| 1 << shift);
        let is_inside = |distance: &u64| bank.contains(PhysAddr(at.saturating_add(*distance)));
        distances
            .take_while(is_inside)
            .filter(|distance| self.is_free(at + distance))
            .find(|distance| self.is_one_cell(at, at + distance).unwrap_or(false))
    }

    /// Whether two addresses are one word.
    fn is_one_cell(&self, one: u64, other: u64) -> Result<bool, Fault> {
        let before = [read64(one)?, read64(other)?];
        write64(one, PATTERNS[0])?;
        write64(other, PATTERNS[1])?;
        let is_one = read64(one)? == PATTERNS[1];
        write64(other, before[1])?;
        write64(one, before[0])?;
        Ok(is_one)
    }
}

/// Checks all memories.
pub fn check(report: &mut Report, board: &Board) {
    let prober = Prober {
        reserved: &board.reserved,
    };
    for (number, &bank) in board.ram.iter().enumerate() {
        check_bank(report, &prober, &format!("ram[{number}]"), bank);
    }
    for (number, memory) in board.memories.iter().enumerate() {
        check_bank(report, &prober, &format!("memory[{number}]"), memory.range);
    }
}

/// Checks a bank.
fn check_bank(report: &mut Report, prober: &Prober<'_>, key: &str, bank: PhysRange) {
    let (start, size) = (format!("{key}.start"), format!("{key}.size"));
    let last = bank.end().0.saturating_sub(PAGE_SIZE);
    let first = prober.free_page(bank, bank.start.0, |page| page + PAGE_SIZE);
    let end = prober.free_page(bank, last, |page| page.wrapping_sub(PAGE_SIZE));
    let (Some(first), Some(end)) = (first, end) else {
        report.untested(start, bank.start, "all of it is reserved");
        return report.untested(size, bank.len, "all of it is reserved");
    };
    // Of a bank whose ends do not work, the image's place does, or some page between.
    let inside = probes(prober, bank, first, end);
    let Some(&works) = inside.iter().find(|page| prober.keeps(**page)) else {
        let remark = "no page keeps what is written";
        report.compare(start, bank.start, None::<String>, remark);
        return report.untested(size, bank.len, remark);
    };
    let found_start = if prober.keeps(first) {
        bank.start.0
    } else {
        prober.first(bank, first, works)
    };
    report.compare(start, bank.start, Some(address(found_start)), "");
    let found_end = if prober.keeps(end) {
        bank.end().0
    } else {
        prober.boundary(bank, works, end)
    };
    let fails = inside
        .iter()
        .find(|page| (found_start..found_end).contains(*page) && !prober.keeps(**page));
    let (found, remark) = match (fails, prober.repeats_after(bank)) {
        (Some(page), _) => (None, format!("the page at {page:#x} keeps nothing")),
        (None, Some(distance)) => (
            Some(distance),
            format!("it repeats itself every {distance:#x}"),
        ),
        (None, None) => (
            Some(found_end - found_start),
            format!("of the claimed range; {} pages were probed", inside.len()),
        ),
    };
    report.compare(size, bank.len, found, remark);
}

/// Returns the pages of a bank that are probed: both ends and some between.
fn probes(prober: &Prober<'_>, bank: PhysRange, first: u64, end: u64) -> Vec<u64> {
    let step = (end - first) / (BETWEEN + 1);
    let between = (1..=BETWEEN).map(|number| (first + number * step) & !(PAGE_SIZE - 1));
    let mut pages: Vec<u64> = between
        .filter_map(|page| prober.free_page(bank, page, |page| page + PAGE_SIZE))
        .chain([first, end])
        .collect();
    // The end of the image is in RAM for certain, if the bank holds it.
    let after = base() + BLOCK;
    if bank.contains(PhysAddr(base())) && bank.contains(PhysAddr(after)) {
        pages.extend(prober.free_page(bank, after, |page| page + PAGE_SIZE));
    }
    pages.sort_unstable();
    pages.dedup();
    pages
}

/// Returns why the blocks after the image are no buffer, if they are not.
pub fn buffer_problem(board: &Board, bytes: u64) -> Option<String> {
    let buffer = PhysRange {
        start: PhysAddr(base() + BLOCK),
        len: bytes,
    };
    let is_ram = board.ram.iter().any(|bank| bank.covers(&buffer));
    let is_reserved = board.reserved.iter().any(|range| range.overlaps(&buffer));
    (!is_ram || is_reserved).then(|| "no 4 MiB of free RAM follow the image".to_string())
}
