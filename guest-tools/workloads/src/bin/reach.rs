//! Reach: keeps words in its own pages, and tries to reach others by their physical addresses.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]

use cloison_guest::ram::PAGE;
use cloison_guest::{arg, entry, println, probe};

entry!(main);

/// Times that the own words are written and compared, with tries to reach the others in between.
const ROUNDS: u64 = 20;

/// Returns the word at an address in a round.
const fn word(address: u64, round: u64) -> u64 {
    address.rotate_left(20) ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Stores to an address of this VM's, or of nobody's. Returns whether it was reached.
#[allow(unsafe_code)]
fn store(address: u64, value: u64) -> bool {
    // SAFETY: the configuration's addresses: pages that hold nothing of this program, or none.
    unsafe { probe::write(address, value) }.is_ok()
}

/// Loads from an address of this VM's, or of nobody's, unless it is not reached.
#[allow(unsafe_code)]
fn load(address: u64) -> Option<u64> {
    // SAFETY: as for `store`.
    unsafe { probe::read(address) }.ok()
}

fn main() {
    let (own, own_pages) = (arg(0, 0), arg(1, 0));
    let (other, other_pages) = (arg(2, 0), arg(3, 0));
    let pages = |start: u64, count: u64| (0..count).map(move |page| start + page * PAGE);
    let words = || pages(own, own_pages).flat_map(|page| (page..page + PAGE).step_by(64));
    let (mut wrong, mut reached) = (0, 0);
    for round in 0..ROUNDS {
        wrong += words()
            .filter(|&address| !store(address, word(address, round)))
            .count();
        for address in pages(other, other_pages) {
            reached += u64::from(load(address).is_some()) + u64::from(store(address, round));
        }
        wrong += words()
            .filter(|&address| load(address) != Some(word(address, round)))
            .count();
    }
    println!("reach: own={own_pages} wrong={wrong} others={other_pages} reached={reached}");
}
