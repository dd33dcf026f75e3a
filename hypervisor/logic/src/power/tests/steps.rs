//! Power states, one step at a time; `models` takes the same steps concurrently.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::*;
use cloison_formats::limits::MAX_VCPUS;

fn two() -> Power {
    let power = Power::loading();
    power.publish(0);
    assert_eq!(power.enter(0), Some(Start::Boot));
    power
}

fn both_on() -> Power {
    let power = two();
    power.claim(1).expect("off");
    power.publish(1);
    power.enter(1).expect("pending");
    power
}

#[test]
fn an_order_before_the_first_life_waits_for_it() {
    for (change, has_changed, life) in [
        (Change::Stop, true, Life::Stopped),
        (Change::Start, false, Life::Running),
        (Change::Restart, true, Life::Running),
    ] {
        let power = Power::loading();
        assert_eq!(
            (power.claim(0), power.life()),
            (Err(State::Claimed), Life::Changing)
        );
        assert_eq!(power.order(change), Ok(has_changed));
        assert_eq!(
            (power.take_order(), power.enter(0)),
            (None, None),
            "its memory is being loaded"
        );
        assert_eq!(
            power.order(Change::Stop).is_err(),
            has_changed,
            "one order at a time"
        );
        if has_changed {
            power.publish(0);
            run_core(&power);
            assert_eq!(power.life(), life, "{change:?}");
        }
    }
}

#[test]
fn a_core_is_wanted_to_start_its_vcpu_or_to_carry_out_an_order() {
    let power = two();
    assert!(!power.is_wanted(0) && !power.is_wanted(1));
    power.claim(1).expect("off");
    assert!(!power.is_wanted(1), "nobody has said yet where it starts");
    power.publish(1);
    assert!(power.is_wanted(1) && !power.is_wanted(0));
    assert_eq!(power.enter(1), Some(Start::CpuOn));
    assert_eq!(power.order(Change::Stop), Ok(true));
    assert_eq!(
        (power.is_wanted(0), power.is_wanted(1)),
        (true, false),
        "the first core carries it out"
    );
}

#[test]
fn the_first_vcpu_boots_once_and_is_turned_on_afterwards() {
    let power = two();
    assert_eq!(power.enter(0), None, "it is on");
    assert_eq!(power.claim(0), Err(State::On));
    power.claim(1).expect("off");
    assert_eq!(
        (power.state(1), power.claim(1)),
        (State::Claimed, Err(State::Claimed))
    );
    power.publish(1);
    assert_eq!(
        (power.claim(1), power.enter(1)),
        (Err(State::Pending), Some(Start::CpuOn))
    );
    assert!(!power.cpu_off(0), "vCPU 1 is on");
    power.leave(0);
    power.claim(0).expect("off");
    power.publish(0);
    assert_eq!(
        power.enter(0),
        Some(Start::CpuOn),
        "the VM does not start, a vCPU does"
    );
}

#[test]
fn a_stopped_vcpu_has_no_request_left_for_its_next_life() {
    let power = both_on();
    assert!(power.end(None));
    assert_eq!(
        (power.stop(0), power.stop(0)),
        (State::Leaving, State::Leaving),
        "asked twice"
    );
    assert!((power.state(0) == State::Leaving));
    power.leave(0);
    assert_eq!(power.stop(0), State::Off);
    assert!(power.restart(), "not doomed");
    assert!(!(power.state(0) == State::Leaving));
    assert_eq!(
        (power.state(1), power.enter(0)),
        (State::Off, Some(Start::Boot))
    );
}

#[test]
fn what_has_not_started_is_stopped_without_its_core() {
    let power = two();
    power.claim(1).expect("off");
    assert_eq!(
        power.stop(1),
        State::Claimed,
        "the core that claimed it publishes it first"
    );
    power.publish(1);
    assert_eq!((power.stop(1), power.enter(1)), (State::Off, None));
}

#[test]
fn nobody_is_turned_on_while_the_vm_ends() {
    let power = two();
    assert!(power.end(None) && !power.end(None));
    assert_eq!(power.claim(1), Err(State::Off));
    assert!(!power.cpu_off(0), "the one that ends it waits for this one");
}

#[test]
fn the_last_one_out_is_told() {
    let power = both_on();
    assert!(!power.cpu_off(0));
    assert!(power.cpu_off(1), "the other one is on its way out");
}

#[test]
fn a_doomed_vm_does_not_restart() {
    for (first, second, last) in [
        (Doom::Killed, Doom::Off, Doom::Killed),
        (Doom::Stopped, Doom::Killed, Doom::Killed),
        (Doom::Stopped, Doom::Off, Doom::Off),
    ] {
        let power = two();
        assert!(power.end(Some(first)));
        assert!(!power.end(Some(second)));
        assert_eq!((power.restart(), power.is_dead()), (false, false));
        assert_eq!((power.bury(), power.is_dead()), (last, true));
    }
}

#[test]
fn every_vcpu_has_its_own_bits() {
    let power = Power::loading();
    for vcpu in 0..MAX_VCPUS {
        assert_eq!(
            power.claim(vcpu).is_ok(),
            vcpu != 0,
            "the first one is claimed from the beginning"
        );
        power.publish(vcpu);
        assert_eq!(
            power.enter(vcpu),
            Some(if vcpu == 0 { Start::Boot } else { Start::CpuOn })
        );
        power.stop(vcpu);
    }
    assert!((0..MAX_VCPUS).all(|vcpu| power.state(vcpu) == State::Leaving));
    assert!(!power.is_dead() && power.restart());
}

/// Everything that can happen to a VM with one vCPU: ordered from outside, or by itself.
#[derive(Clone, Copy, Debug)]
enum Event {
    Ordered(Change),
    Restarts,
    Ends(Doom),
}

const EVENTS: [Event; 6] = [
    Event::Ordered(Change::Stop),
    Event::Ordered(Change::Start),
    Event::Ordered(Change::Restart),
    Event::Restarts,
    Event::Ends(Doom::Off),
    Event::Ends(Doom::Killed),
];

/// What the core of the VM does until it has nothing left to do. Returns how many lives began.
fn run_core(power: &Power) -> u32 {
    if power.state(0) == State::Leaving {
        power.leave(0);
    }
    match power.take_order() {
        Some(Order::Stop) => {
            power.bury();
            power.leave(0);
        }
        Some(Order::Restart | Order::Revive) => assert!(power.restart(), "not doomed"),
        None => {}
    }
    u32::from(power.enter(0).is_some())
}

/// Has a running VM restart or end itself, as `vm::life` does.
fn happen(power: &Power, event: Event) -> u32 {
    match event {
        Event::Ordered(change) => {
            let has_changed = power.order(change).expect("no order waits");
            assert_eq!(power.life() == Life::Changing, has_changed);
            assert!(
                !has_changed || power.order(change) == Err(CallError::Busy),
                "one order at a time"
            );
        }
        Event::Restarts if power.state(0) == State::On => {
            assert!(power.end(None));
            assert!(power.restart(), "not doomed");
        }
        Event::Ends(why) if power.state(0) == State::On => {
            assert!(power.end(Some(why)));
            assert_eq!(power.bury(), why);
            power.leave(0);
        }
        Event::Restarts | Event::Ends(_) => {}
    }
    run_core(power)
}

#[test]
fn orders_and_a_vms_own_acts_in_every_order_leave_what_the_last_one_says() {
    const LENGTH: u32 = 6;
    let mut sequences = 0;
    for number in 0..EVENTS.len().pow(LENGTH) {
        let power = two();
        let (mut life, mut lives) = (Life::Running, 0);
        for place in 0..LENGTH {
            let event = EVENTS[number / EVENTS.len().pow(place) % EVENTS.len()];
            let runs = life == Life::Running;
            let mut begins = 0;
            (life, begins) = match event {
                Event::Ordered(Change::Stop) if runs => (Life::Stopped, begins),
                Event::Ordered(Change::Start) if !runs => (Life::Running, 1),
                Event::Ordered(Change::Restart) => (Life::Running, 1),
                Event::Restarts if runs => (Life::Running, 1),
                Event::Ends(Doom::Off) if runs => (Life::Off, 0),
                Event::Ends(_) if runs => (Life::Killed, 0),
                _ => (life, 0),
            };
            lives += begins;
            assert_eq!(
                (happen(&power, event), power.life()),
                (begins, life),
                "{event:?} in sequence {number}"
            );
        }
        sequences += usize::from(lives <= LENGTH);
    }
    assert_eq!(sequences, 46_656);
}

#[test]
fn an_order_outlives_what_the_vm_does_meanwhile() {
    // It restarts itself: the order comes first.
    let power = two();
    assert_eq!(power.order(Change::Stop), Ok(true));
    assert!((power.state(0) == State::Leaving) && power.end(None));
    assert!(power.restart(), "not doomed");
    assert_eq!(
        (power.enter(0), power.take_order()),
        (None, Some(Order::Stop))
    );
    // It has ended itself: an order to end it is over, one to restart it is not.
    for (change, order) in [(Change::Stop, None), (Change::Restart, Some(Order::Revive))] {
        let power = two();
        assert_eq!(power.order(change), Ok(true));
        assert!(power.end(Some(Doom::Killed)));
        power.leave(0);
        assert_eq!(power.take_order(), None, "another core carries it out");
        power.bury();
        assert_eq!(power.take_order(), order);
    }
}

#[test]
fn a_vm_is_started_again_once_the_vcpu_that_ended_it_has_left() {
    let power = both_on();
    assert!(power.end(Some(Doom::Off)));
    assert_eq!(power.stop(0), State::Leaving);
    power.leave(0);
    power.bury();
    assert_eq!(
        (power.order(Change::Start), power.take_order()),
        (Ok(true), Some(Order::Revive))
    );
    assert_eq!(
        power.stop(1),
        State::Leaving,
        "it has not said yet that it is off"
    );
    power.leave(1);
    assert_eq!(
        (power.stop(1), power.restart(), power.enter(0)),
        (State::Off, true, Some(Start::Boot))
    );
}

#[test]
fn a_vm_that_dies_cannot_be_started_before_it_is_dead() {
    let power = two();
    assert!(power.end(Some(Doom::Off)));
    assert_eq!(power.order(Change::Start), Err(CallError::Busy));
    power.bury();
    power.leave(0);
    assert_eq!(power.order(Change::Start), Ok(true));
    power.doom();
    assert_eq!(
        (power.take_order(), power.order(Change::Restart)),
        (None, Err(CallError::Busy)),
        "the machine is off"
    );
}

#[test]
fn the_last_vcpu_leaves_an_ordered_vm_to_the_order() {
    let power = both_on();
    assert_eq!(power.order(Change::Restart), Ok(true));
    assert!(
        (power.state(0) == State::Leaving) && !power.cpu_off(1),
        "the VM restarts, and does not end"
    );
}

#[test]
fn a_vm_that_the_machines_end_stops_has_not_turned_itself_off() {
    let power = both_on();
    power.doom();
    assert_eq!(power.stop(0), State::Leaving);
    power.leave(0);
    assert!(
        !power.cpu_off(1),
        "it is last because the other was stopped"
    );
    assert_eq!((power.stop(1), power.is_dead()), (State::Leaving, false));
}
