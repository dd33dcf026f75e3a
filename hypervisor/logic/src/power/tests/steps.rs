//! Power states, one step at a time; `models` has them taken at the same time.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::*;

fn two() -> Power {
    let power = Power::default();
    power.boot();
    assert_eq!(power.enter(0), Some(Start::Boot));
    power
}

#[test]
fn the_first_vcpu_boots_once_and_is_turned_on_afterwards() {
    let power = two();
    assert_eq!(power.enter(0), None, "it is on");
    assert_eq!(power.claim(0), Err(State::On));
    power.claim(1).expect("off");
    assert_eq!((power.state(1), power.claim(1)), (State::Claimed, Err(State::Claimed)));
    power.publish(1);
    assert_eq!((power.claim(1), power.enter(1)), (Err(State::Pending), Some(Start::CpuOn)));
    assert!(!power.cpu_off(0), "vCPU 1 is on");
    power.leave(0);
    power.claim(0).expect("off");
    power.publish(0);
    assert_eq!(power.enter(0), Some(Start::CpuOn), "the VM does not start, a vCPU does");
}

#[test]
fn a_stopped_vcpu_has_no_request_left_for_its_next_life() {
    let power = two();
    power.claim(1).expect("off");
    power.publish(1);
    power.enter(1).expect("pending");
    assert!(power.end(None));
    assert_eq!((power.stop(0), power.stop(0)), (State::Leaving, State::Leaving), "asked twice");
    assert!(power.is_leaving(0));
    power.leave(0);
    assert_eq!(power.stop(0), State::Off);
    power.restart().expect("not doomed");
    assert!(!power.is_leaving(0));
    assert_eq!((power.state(1), power.enter(0)), (State::Off, Some(Start::Boot)));
}

#[test]
fn what_has_not_started_is_stopped_without_its_core() {
    let power = two();
    power.claim(1).expect("off");
    assert_eq!(power.stop(1), State::Claimed, "whoever claimed it publishes it first");
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
    let power = two();
    power.claim(1).expect("off");
    power.publish(1);
    power.enter(1).expect("pending");
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
        assert!(power.end(None));
        power.doom(first);
        assert!(!power.end(Some(second)));
        assert_eq!((power.restart(), power.is_dead()), (Err(last), false));
        assert_eq!((power.bury(), power.is_dead()), (last, true));
    }
}

#[test]
fn every_vcpu_has_its_own_bits() {
    let power = Power::default();
    for vcpu in 0..MAX_VCPUS {
        power.claim(vcpu).expect("off");
        power.publish(vcpu);
        assert_eq!(power.enter(vcpu), Some(Start::CpuOn));
        power.stop(vcpu);
    }
    assert!((0..MAX_VCPUS).all(|vcpu| power.is_leaving(vcpu)));
    assert!(!power.is_dead() && power.restart().is_ok());
}
