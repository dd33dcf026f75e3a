//! Staircase as a Linux program: five groups of pages, each read more often than the one before
//! (BBProf, section 7.2), or all equally often. It reads every byte, as the paper's program does.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of the buffer, unless the third argument says how many.
const PAGES: usize = 100;
/// A page of the buffer, which starts where a page of memory does.
#[repr(align(4096))]
struct Page([AtomicU8; PAGE]);

/// Number of phases.
const PHASES: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments
        .first()
        .map_or(Ok(200), |rounds| rounds.parse::<u32>());
    let pages = arguments
        .get(2)
        .map_or(Ok(PAGES), |pages| pages.parse::<usize>());
    let (Ok(rounds), Ok(pages)) = (rounds, pages) else {
        return usage();
    };
    let skipped = match arguments.get(1).map(String::as_str) {
        None | Some("steps") => pages / PHASES,
        Some("equal") => 0,
        Some(_) => return usage(),
    };
    let buffer: Vec<Page> = (0..pages)
        .map(|_| Page([const { AtomicU8::new(1) }; PAGE]))
        .collect();
    println!(
        "staircase: sum={}",
        black_box(access)(&buffer, rounds, skipped)
    );
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: bbprof-staircase [ROUNDS [steps|equal [PAGES]]]");
    ExitCode::FAILURE
}

/// The observation segment: in each phase, as many passes over the buffer; each phase leaves out
/// more pages at its start.
#[inline(never)]
fn access(buffer: &[Page], rounds: u32, skipped: usize) -> u64 {
    let mut sum = 0;
    for phase in 0..PHASES {
        for _ in 0..rounds {
            for byte in buffer[phase * skipped..].iter().flat_map(|page| &page.0) {
                sum += u64::from(byte.load(Relaxed));
            }
        }
    }
    sum
}
