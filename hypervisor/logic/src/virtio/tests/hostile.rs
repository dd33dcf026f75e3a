//! Drivers that follow no rule: each violation is named, costs its own device alone, and ends.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use cloison_abi::virtio::descriptor::INDIRECT;

/// Steps in which a chain of the longest kind is done, with all that surrounds it.
const LONGEST: usize = 8_000;

/// Returns what a driver that does `with` to its memory is found to have done.
fn found(role: Role, with: impl FnOnce(&Ram)) -> Violation {
    let (both, mut sender, mut receiver) = (Both::new(), Driver::new(4), Driver::new(4));
    let mut wire = joined(LinkKind::Net, &sender, &receiver);
    receiver.offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
    sender.offer(both.of(Role::Sender), &[(BUFFERS, 32)], 0);
    with(both.of(role));
    let wrong = run(&mut wire, &both).into_iter().find_map(Result::err);
    let wrong = wrong.expect("a violation");
    assert_eq!(wrong.role, role);
    // Its queue is left; the other end's is not.
    assert_eq!(wire.step(&both), Ok(Step::Idle));
    wrong.what
}

#[test]
fn each_violation_is_named() {
    for (role, access) in [(Role::Sender, 0), (Role::Receiver, FILL)] {
        let available = found(role, |ram| ram.put(DRIVER + 2, &5u16.to_le_bytes()));
        assert_eq!(available, Violation::Available);
        let number = found(role, |ram| ram.put(DRIVER + 4, &4u16.to_le_bytes()));
        assert_eq!(number, Violation::Number);
        let next = found(role, |ram| {
            descriptor(ram, 0, (BUFFERS, 1), access, Some(4));
        });
        assert_eq!(next, Violation::Number);
        let endless = found(role, |ram| {
            descriptor(ram, 0, (BUFFERS, 1), access, Some(0));
        });
        assert_eq!(endless, Violation::Endless);
        let direction = found(role, |ram| {
            descriptor(ram, 0, (BUFFERS, 32), access ^ FILL, None);
        });
        assert_eq!(direction, Violation::Flags);
        let indirect = found(role, |ram| {
            descriptor(ram, 0, (BUFFERS, 32), access | INDIRECT, None);
        });
        assert_eq!(indirect, Violation::Flags);
        for at in [0, RAM - 60, RAM + LEN, u64::MAX, 1 << 48, RAM + LEN - 4] {
            let beyond = found(role, |ram| descriptor(ram, 0, (at, 64), access, None));
            assert_eq!(beyond, Violation::Memory, "{at:#x}");
        }
    }
}

#[test]
fn a_queue_is_checked() {
    let is_one = |setup: &Setup| Queue::new(Role::Sender, setup).is_some();
    assert!(is_one(&setup(256)) && is_one(&setup(1)));
    for size in [0, 3, 512, 65_536 + 4] {
        let setup = Setup { size, ..setup(4) };
        assert!(!is_one(&setup), "{size}");
    }
    for (register, value) in [(0, 8), (4, 1), (8, 2), (1, 1 << 16), (9, u32::MAX)] {
        let mut setup = setup(4);
        setup.registers[register] = value;
        assert!(!is_one(&setup), "{register} {value:#x}");
    }
}

#[test]
fn rings_outside_of_ram_are_found() {
    for first in [0, 4, 8] {
        let both = Both::new();
        let mut setup = setup(4);
        setup.registers[first] = 0u32.wrapping_sub(16);
        setup.registers[first + 1] = 0xffff;
        let mut wire = new_wire(LinkKind::Console);
        wire.join(Queue::new(Role::Sender, &setup).expect("aligned"));
        wire.join(Driver::new(4).queue(Role::Receiver));
        Driver::new(4).offer(both.of(Role::Sender), &[(BUFFERS, 4)], 0);
        Driver::new(4).offer(both.of(Role::Receiver), &[(BUFFERS, 64)], FILL);
        let ends = run(&mut wire, &both);
        let wrong = Wrong {
            role: Role::Sender,
            what: Violation::Memory,
        };
        assert_eq!(ends.last(), Some(&Err(wrong)));
    }
}

/// A number of which the next one follows (xorshift, G. Marsaglia 2003).
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Fills a guest's queue with what a driver might write, and what none would.
fn fill(ram: &Ram, state: &mut u64, access: u16) {
    let size = 8;
    for number in 0..size {
        let at = match random(state) % 8 {
            0 => random(state),
            1 => DESCRIPTORS + random(state) % 0x3000,
            2 => RAM + LEN - random(state) % 64,
            _ => BUFFERS + random(state) % (LEN - 0x4000),
        };
        let len = match random(state) % 8 {
            0 => random(state) as u32,
            1 => 0,
            2 => 6_000,
            _ => (random(state) % 64) as u32,
        };
        let flags = match random(state) % 16 {
            0 => random(state) as u16,
            _ => access,
        };
        let next = match random(state) % 4 {
            0 => Some((random(state) % u64::from(size + 1)) as u16),
            1 => Some((number + 1) % size),
            _ => None,
        };
        descriptor(ram, number, (at, len), flags, next);
    }
    for slot in 0..u64::from(size) {
        let head = (random(state) % u64::from(size + u16::from(slot == 7))) as u16;
        ram.put(DRIVER + 4 + 2 * slot, &head.to_le_bytes());
    }
    let count = (random(state) % 9) as u16;
    ram.put(DRIVER + 2, &count.to_le_bytes());
}

/// A million random rings, each with all that follows of it: it ends, no step has more than a few
/// accesses or a page, and nothing outside of the two guests is reached (`Ram` would say so).
#[test]
fn a_million_random_rings_end_in_bounded_steps() {
    let state = &mut 0x9e37_79b9_7f4a_7c15;
    let both = Both::new();
    let (mut used, mut wrong) = (0u64, 0u64);
    // Each round has two rings.
    for round in 0..500_000 {
        let driver = Driver::new(8);
        for (ram, access) in both.ram.iter().zip([FILL, 0]) {
            fill(ram, state, access);
        }
        let kind = LinkKind::ALL[round % LinkKind::ALL.len()];
        let mut wire = joined(kind, &driver, &driver);
        for step in 0.. {
            assert!(step < LONGEST, "round {round} does not end");
            let before = both.ram.each_ref().map(|ram| ram.accesses.get());
            let copied = both.copied.get();
            match wire.step(&both) {
                Ok(Step::Idle | Step::Waits) => break,
                Ok(Step::More) => {}
                Ok(Step::Used(_)) => used += 1,
                Err(_) => wrong += 1,
            }
            let accesses: u64 = (both.ram.iter().zip(before))
                .map(|(ram, before)| ram.accesses.get() - before)
                .sum();
            assert!(accesses <= 9, "{accesses} accesses in a step");
            assert!(both.copied.get() - copied <= PAGE_SIZE);
        }
    }
    assert!(
        used > 100_000 && wrong > 100_000,
        "{used} used, {wrong} wrong"
    );
}

/// A guest that changes each word of its queue while it is read.
#[test]
fn a_queue_that_changes_at_each_access_is_a_violation_at_most() {
    let mut state = 1;
    for round in 0..20_000 {
        let mut both = Both::new();
        both.ram[round % 2].meddle = Some(|bytes, access| {
            let mut state = access.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let at = random(&mut state) as usize % 0x3000;
            bytes[at] = random(&mut state) as u8;
            // Most of what is read next is there.
            bytes[(random(&mut state) % 128) as usize] ^= 1;
        });
        for (ram, access) in both.ram.iter().zip([FILL, 0]) {
            fill(ram, &mut state, access);
        }
        let driver = Driver::new(8);
        let mut wire = joined(LinkKind::Net, &driver, &driver);
        let mut steps = 0;
        while !matches!(wire.step(&both), Ok(Step::Idle | Step::Waits)) {
            steps += 1;
            assert!(steps < 100 * LONGEST, "round {round} does not end");
        }
    }
}
