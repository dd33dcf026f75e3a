//! A program to profile. Inside or before its function, it does what its argument names; most of
//! that cannot be profiled.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use std::hint::black_box;
use std::process::{Command, ExitCode, abort, exit};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How often the segment has run, in the program's own memory.
static RUNS: AtomicUsize = AtomicUsize::new(0);
/// Steps of a segment for each time that it has run.
const STEPS: usize = 300_000;

/// Bytes that a segment reads: a few pages.
const BYTES: usize = 6 * 4096;

fn main() -> ExitCode {
    let what = std::env::args().nth(1).unwrap_or_default();
    if what == "early-thread" {
        thread::spawn(|| thread::sleep(Duration::from_secs(60)));
    }
    if what == "early-exit" {
        exit(5);
    }
    if what == "late" {
        // Longer than a profiler takes its first lease for.
        thread::sleep(Duration::from_secs(70));
    }
    let bytes = vec![1_u8; BYTES];
    println!("black-box: sum={}", black_box(segment)(&bytes, &what));
    ExitCode::from(7)
}

/// The observation segment.
#[inline(never)]
fn segment(bytes: &[u8], what: &str) -> usize {
    match what {
        "exit" => exit(3),
        "crash" => abort(),
        "fork" => drop(Command::new("/bin/busybox").arg("true").status()),
        "exec" => drop(std::os::unix::process::CommandExt::exec(
            Command::new("/bin/busybox").arg("true"),
        )),
        "thread" => drop(thread::spawn(|| 1).join()),
        // More than the heap that the first run needed, which is made that large in all others.
        "map" => {
            let is_first = std::env::var_os("MALLOC_TOP_PAD_").is_none();
            drop(black_box(vec![1_u8; if is_first { 1 } else { 64 << 20 }]));
        }
        "deep" => return deep(100),
        // A second run in one process would take twice as long.
        "again" => {
            let runs = 1 + RUNS.fetch_add(1, Relaxed);
            for step in 0..runs * STEPS {
                black_box(step);
            }
        }
        "say" => println!("black-box: in the segment"),
        "forever" => loop {
            black_box(bytes);
        },
        _ => {}
    }
    bytes.iter().map(|&byte| usize::from(black_box(byte))).sum()
}

/// Needs a stack of two pages for each level.
fn deep(levels: usize) -> usize {
    let frame = black_box([levels as u8; 8192]);
    let below = if levels == 0 { 0 } else { deep(levels - 1) };
    below + usize::from(frame[levels])
}
