//! Interf as a Linux program: cache-allocating stores, one per line, over a buffer (BBProf, section
//! 7.1), some pages of which it first moves to the VM's private pool. It never ends by itself;
//! `cloisonctl migrate restore` returns its pages.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use cloison_client::{Services, pin};
use nix::sys::mman::{MlockAllFlags, mlockall};
use procfs::process::{PageInfo, Process};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of a page, and of a line.
const PAGE: usize = 512;
const LINE: usize = 8;

/// A page of the buffer, which starts where a page of memory does.
#[repr(align(4096))]
struct Page([AtomicU64; PAGE]);

fn main() -> ExitCode {
    let numbers: Result<Vec<usize>, _> =
        std::env::args().skip(1).map(|word| word.parse()).collect();
    let Ok([pages, moved, vcpu]) = numbers.as_deref() else {
        eprintln!("usage: bbprof-interf PAGES MOVED VCPU");
        return ExitCode::FAILURE;
    };
    match prepare(*pages, *moved, *vcpu) {
        Ok(buffer) => store(&buffer),
        Err(error) => {
            eprintln!("bbprof-interf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the buffer, whose first pages have moved.
fn prepare(pages: usize, moved: usize, vcpu: usize) -> Result<Vec<Page>, Box<dyn Error>> {
    pin(vcpu)?;
    let buffer: Vec<Page> = (0..pages)
        .map(|_| Page([const { AtomicU64::new(1) }; PAGE]))
        .collect();
    mlockall(MlockAllFlags::MCL_CURRENT)?;
    let mut map = Process::myself()?.pagemap()?;
    let mut frames = Vec::new();
    for page in buffer.iter().take(moved) {
        let address = std::ptr::from_ref(page).addr();
        match map.get_info(address / size_of::<Page>())? {
            PageInfo::MemoryPage(flags) => {
                frames.push(flags.get_page_frame_number().0 * size_of::<Page>() as u64)
            }
            PageInfo::SwapPage(_) => return Err("a locked page has no frame".into()),
        }
    }
    if !frames.is_empty() {
        Services::open()?.move_pages(&frames, None)?;
    }
    println!("interf: pages={pages} moved={}", frames.len());
    Ok(buffer)
}

/// Stores to each line, again and again.
fn store(buffer: &[Page]) -> ! {
    for pass in 0.. {
        for line in buffer.iter().flat_map(|page| page.0.iter().step_by(LINE)) {
            line.store(pass, Relaxed);
        }
    }
    unreachable!("numbers do not end")
}
