//! Interf: cache-allocating stores, one per line, over a buffer (BBProf, section 7.1).
#![no_std]
#![no_main]
#![forbid(unsafe_code)]

use cloison_guest::ram::{LINE_WORDS, Ram};
use cloison_guest::{arg, args, entry, println, timer};
use cloison_workloads::PROFILED;
use core::sync::atomic::Ordering::Relaxed;

entry!(main);

fn main() {
    let buffer = Ram::behind_image().take_at(PROFILED, arg(0, 420 * 1024));
    let iterations = args()[1];
    println!("interf: buffer={} B at={PROFILED:#x} iterations={iterations}", buffer.len() * 8);
    let start = timer::now();
    let mut done = 0u64;
    while iterations == 0 || done < iterations {
        for line in buffer.chunks_exact(LINE_WORDS) {
            line[0].store(done, Relaxed);
        }
        done += 1;
    }
    println!("interf: done iterations={done} ticks={}", timer::now() - start);
}
