//! A process that nobody profiles, next to a profiled one. It checks that the contents and frames
//! of its pages, and the hypervisor's changes to them, stay the same.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use cloison_client::Services;
use nix::sys::mman::{MlockAllFlags, mlockall};
use procfs::process::{PageInfo, Process};
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Pages that it has.
const PAGES: usize = 64;
/// Words of a page.
const WORDS: usize = 512;

/// A page, which starts where a page of memory does.
#[repr(align(4096))]
struct Page([AtomicU64; WORDS]);

fn main() -> ExitCode {
    match watch() {
        Ok(never) => match never {},
        Err(error) => {
            println!("changed: {error}");
            ExitCode::FAILURE
        }
    }
}

/// What word of its memory holds what.
fn content(page: usize, word: usize) -> u64 {
    ((page * WORDS + word) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the addresses of the frames, as the kernel counts them.
fn frames(pages: &[Page]) -> Result<Vec<u64>, Box<dyn Error>> {
    let mut map = Process::myself()?.pagemap()?;
    let mut frames = Vec::new();
    for page in pages {
        match map.get_info(std::ptr::from_ref(page).addr() / size_of::<Page>())? {
            PageInfo::MemoryPage(flags) => {
                frames.push(flags.get_page_frame_number().0 * size_of::<Page>() as u64)
            }
            PageInfo::SwapPage(_) => return Err("a locked page has no frame".into()),
        }
    }
    Ok(frames)
}

/// Looks again and again, until something has changed.
fn watch() -> Result<std::convert::Infallible, Box<dyn Error>> {
    let word = |page, word| AtomicU64::new(content(page, word));
    let pages: Vec<Page> = (0..PAGES)
        .map(|page| Page(std::array::from_fn(|at| word(page, at))))
        .collect();
    mlockall(MlockAllFlags::MCL_CURRENT)?;
    let mut services = Services::open()?;
    let first = frames(&pages)?;
    let mut states = Vec::new();
    for &frame in &first {
        states.push(services.page_state(frame)?);
    }
    for look in 1_u64.. {
        println!("look {look}");
        if frames(&pages)? != first {
            return Err("a frame".into());
        }
        for (page, (&frame, &state)) in first.iter().zip(&states).enumerate() {
            let now = services.page_state(frame)?;
            if now != state {
                return Err(format!("frame {frame:#x} from {state:?} to {now:?}").into());
            }
            if pages[page]
                .0
                .iter()
                .enumerate()
                .any(|(at, word)| word.load(Relaxed) != content(page, at))
            {
                return Err(format!("what page {page} holds").into());
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err("the number of looks".into())
}
