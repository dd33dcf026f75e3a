//! @NAME@: sums a buffer in observation segments and prints what each cost.
#![no_std]
#![no_main]

use cloison_guest::ram::Ram;
use cloison_guest::{arg, call, entry, println, segment};
use core::sync::atomic::Ordering::Relaxed;

entry!(main);

/// Number in the HEM log.
const WORKLOAD: u32 = 100;

fn main() {
    match call::identify() {
        Ok(own) => println!("hello from @NAME@: VM {}, vCPU {}, interface {}", own.vm, own.vcpu, own.version),
        Err(error) => println!("@NAME@: not on Cloison: {error}"),
    }
    let buffer = Ram::behind_image().take(512 * 1024);
    for run in 0..arg(0, 3) {
        let measured = segment::measure(WORKLOAD, 0, run as u32, || {
            for word in buffer {
                word.store(word.load(Relaxed) + 1, Relaxed);
            }
        });
        println!("@NAME@: run={run} {measured}");
    }
    // The VM is turned off.
}
