//! The ring of messages, step by step.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::console::Output;
use crate::messages::Messages;
use proptest::prelude::*;
use std::string::String;
use std::vec::Vec;

fn read<const N: usize>(rings: &[Messages<N>], most: usize) -> String {
    let mut output = Output::default();
    core::iter::from_fn(|| output.next(rings, 0))
        .take(most)
        .map(char::from)
        .collect()
}

#[test]
fn a_full_ring_reports_its_losses_before_the_next_message() {
    let ring = [Messages::<64>::empty()];
    for number in 0..9 {
        ring[0].push(format_args!("\x01notice {number:02}\r\n"));
    }
    // Twelve bytes each.
    assert_eq!(read(&ring, 22), "notice 00\r\nnotice 01\r\n");
    ring[0].push(format_args!("\x01on\r\n"));
    assert_eq!(
        read(&ring, 100),
        "notice 02\r\nnotice 03\r\nnotice 04\r\n4 messages were lost\r\non\r\n"
    );
    assert!(ring[0].is_empty());
}

#[test]
fn losses_are_reported_even_if_no_message_follows() {
    let ring = [Messages::<32>::empty()];
    (0..2).for_each(|_| _ = ring[0].push(format_args!("{:30}\r\n", "")));
    assert_eq!(read(&ring, 100).len(), 32);
    ring[0].push(format_args!(""));
    assert_eq!(read(&ring, 100), "1 messages were lost\r\n");
    ring[0].push(format_args!(""));
    assert!(ring[0].is_empty());
}

proptest! {
    /// Whatever is written and taken in whatever steps, messages come whole and in order, and each
    /// comes or is counted.
    #[test]
    fn nothing_is_torn_and_nothing_vanishes_uncounted(
        steps in prop::collection::vec((0usize..2, 0usize..40, 0usize..200), 1..60),
    ) {
        let rings = [Messages::<128>::empty(), Messages::empty()];
        let mut output = Output::default();
        let (mut pushed, mut out) = ([0u64; 2], Vec::new());
        for (core, len, bytes) in steps {
            rings[core].push(format_args!("\x01{core} {} {:len$}\r\n", pushed[core], ""));
            pushed[core] += 1;
            out.extend(core::iter::from_fn(|| output.next(&rings, 0)).take(bytes));
        }
        for ring in &rings {
            out.extend(core::iter::from_fn(|| output.next(&rings, 0)));
            ring.push(format_args!(""));
        }
        out.extend(core::iter::from_fn(|| output.next(&rings, 0)));
        let out = String::from_utf8(out).expect("ASCII");
        prop_assert!(out.is_empty() || out.ends_with("\r\n"));
        let (mut newest, mut came) = ([None; 2], 0);
        for line in out.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words[1] == "messages" {
                came += words[0].parse::<u64>().expect("a number");
                continue;
            }
            let core: usize = words[0].parse().expect("a core");
            let number: u64 = words[1].parse().expect("a number");
            prop_assert!(newest[core] < Some(number), "{}", out);
            newest[core] = Some(number);
            came += 1;
        }
        prop_assert_eq!(came, pushed[0] + pushed[1]);
    }
}
