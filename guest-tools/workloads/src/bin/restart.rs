//! Restart: resets its VM several times and counts in memory that a reset preserves.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

use cloison_guest::ram::Ram;
use cloison_guest::{arg, entry, println, psci};
use cloison_workloads::SURVIVOR;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

entry!(main);

/// Marks a valid counter after it.
const MAGIC: u64 = u64::from_le_bytes(*b"restart!");

/// Part of the image: one at every start, because the image is loaded again.
static FRESH: AtomicU64 = AtomicU64::new(1);

fn main() {
    let resets = arg(0, 3);
    let memory = Ram::behind_image().take_at(SURVIVOR, 64);
    let (magic, count) = (&memory[0], &memory[1]);
    if magic.load(Relaxed) != MAGIC {
        count.store(0, Relaxed);
        magic.store(MAGIC, Relaxed);
    }
    if FRESH.swap(0, Relaxed) != 1 {
        println!("restart: the image was not loaded again");
        return;
    }
    let done = count.load(Relaxed);
    if done < resets {
        count.store(done + 1, Relaxed);
        println!("restart {}", done + 1);
        psci::system_reset();
    }
    magic.store(0, Relaxed);
    println!("restart: done resets={done}");
}
