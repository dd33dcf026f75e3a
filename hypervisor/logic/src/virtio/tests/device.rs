//! The registers of a device, as drivers use them and as none does.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::super::registers::{Change, Reasons, Registers, Seen};
use super::*;
use cloison_abi::virtio::offset::*;
use cloison_abi::virtio::{feature, interrupt, status};

const SEEN: Seen = Seen {
    needs_reset: 0,
    turns: 3,
    mac: 0x0504_0302_0102,
    cid: 4,
};
const ACKNOWLEDGE: u32 = 1;
const DRIVER: u32 = 2;

/// Sets up a device as Linux's driver does. Returns what its last write led to.
fn set_up(device: &mut Registers, features: [u32; 2], size: u32) -> Change {
    assert!(matches!(device.write(STATUS, 0), Change::Reset));
    device.reset();
    device.write(STATUS, ACKNOWLEDGE | DRIVER);
    for half in [1, 0] {
        device.write(DRIVER_FEATURES_SELECT, half);
        device.write(DRIVER_FEATURES, features[half as usize]);
    }
    device.write(STATUS, ACKNOWLEDGE | DRIVER | status::FEATURES_OK);
    for queue in [2, 0, 1] {
        device.write(QUEUE_SELECT, queue);
        if device.read(QUEUE_SIZE_MAX, SEEN) == 0 {
            continue;
        }
        assert_eq!(device.read(QUEUE_READY, SEEN), 0);
        device.write(QUEUE_SIZE, size);
        for (register, at) in [
            (QUEUE_DESCRIPTORS, RAM),
            (QUEUE_DRIVER, RAM + 0x1000),
            (QUEUE_DEVICE, RAM + 0x2000),
        ] {
            device.write(register, at as u32);
            device.write(register + 4, (at >> 32) as u32);
        }
        device.write(QUEUE_READY, 1);
    }
    let all = ACKNOWLEDGE | DRIVER | status::FEATURES_OK | status::DRIVER_OK;
    device.write(STATUS, all)
}

#[test]
fn a_driver_finds_the_device_and_starts_it() {
    let mut device = Registers::new(LinkKind::Net);
    let read = |device: &Registers, offset| device.read(offset, SEEN);
    assert_eq!(read(&device, MAGIC), 0x7472_6976);
    assert_eq!((read(&device, VERSION), read(&device, DEVICE_ID)), (2, 1));
    assert_eq!(read(&device, QUEUE_SIZE_MAX), 256);
    assert_eq!(read(&device, DEVICE_FEATURES), (1 << 5) | (1 << 16));
    device.write(DEVICE_FEATURES_SELECT, 1);
    assert_eq!(read(&device, DEVICE_FEATURES), 1);
    device.write(DEVICE_FEATURES_SELECT, 2);
    assert_eq!(read(&device, DEVICE_FEATURES), 0);
    device.write(QUEUE_SELECT, 2);
    assert_eq!(read(&device, QUEUE_SIZE_MAX), 0, "two queues");
    let change = set_up(&mut device, LinkKind::Net.features(), 256);
    assert!(matches!(change, Change::Started([Some(_), Some(_), None])));
    assert_eq!(read(&device, STATUS), 15);
    assert_eq!(read(&device, QUEUE_READY), 1);
    // What is agreed and in use does not change.
    assert!(matches!(device.write(STATUS, 15), Change::None));
    device.write(QUEUE_SIZE, 3);
    device.write(DRIVER_FEATURES, u32::MAX);
    assert_eq!(read(&device, STATUS), 15);
    assert!(matches!(
        device.write(QUEUE_READY, 0),
        Change::Left(Role::Sender)
    ));
    let seen = Seen {
        needs_reset: 0x40,
        ..SEEN
    };
    assert_eq!(device.read(STATUS, seen), 0x4f);
    assert!(device.reset(), "a driver ran");
    assert_eq!(read(&device, STATUS), 0);
    assert!(!device.reset());
}

#[test]
fn sockets_have_a_third_queue() {
    let mut device = Registers::new(LinkKind::Vsock);
    assert_eq!(device.read(DEVICE_ID, SEEN), 19);
    for (queue, most) in [(1, 256), (2, 256), (3, 0)] {
        device.write(QUEUE_SELECT, queue);
        assert_eq!(device.read(QUEUE_SIZE_MAX, SEEN), most);
    }
    let change = set_up(&mut device, LinkKind::Vsock.features(), 8);
    let Change::Started([_, _, Some(events)]) = change else {
        panic!("{change:?}");
    };
    assert_eq!(events.role, Role::Event);
    device.write(QUEUE_SELECT, 2);
    let change = device.write(QUEUE_READY, 0);
    assert!(matches!(change, Change::Left(Role::Event)));
}

#[test]
fn features_that_the_device_lacks_are_not_agreed() {
    for kind in LinkKind::ALL {
        let mut device = Registers::new(kind);
        let [low, high] = kind.features();
        for features in [[low | 1, high], [low, high | 2], [low | 1, 0]] {
            assert!(matches!(set_up(&mut device, features, 8), Change::None));
            assert_eq!(device.read(STATUS, SEEN), ACKNOWLEDGE | DRIVER);
        }
        for (few, omits) in [([0, feature::VERSION_1], 0), ([0, 0], 2)] {
            let mut device = Registers::new(kind);
            let Change::Started([Some(queue), ..]) = set_up(&mut device, few, 8) else {
                panic!("no driver has started");
            };
            let is_frame = kind == LinkKind::Net;
            assert_eq!(queue.omits, if is_frame { omits } else { 0 });
        }
    }
}

/// As NuttX's driver does.
#[test]
fn a_driver_may_write_each_bit_of_its_status_alone() {
    let mut device = Registers::new(LinkKind::Net);
    set_up(&mut device, [1, 0], 8);
    assert!(
        matches!(device.write(STATUS, 4), Change::None),
        "no features are agreed"
    );
    device.reset();
    for bit in [ACKNOWLEDGE, DRIVER, status::FEATURES_OK] {
        assert!(matches!(device.write(STATUS, bit), Change::None));
    }
    let started = device.write(STATUS, status::DRIVER_OK);
    assert!(matches!(started, Change::Started(_)));
    let all = ACKNOWLEDGE | DRIVER | status::FEATURES_OK | status::DRIVER_OK;
    assert_eq!(device.read(STATUS, SEEN), all);
}

#[test]
fn a_queue_that_cannot_be_one_is_never_ready() {
    let mut device = Registers::new(LinkKind::Console);
    let change = set_up(&mut device, [0, feature::VERSION_1], 7);
    assert!(matches!(change, Change::Started([None, None, None])));
    assert_eq!(device.read(QUEUE_READY, SEEN), 0);
}

#[test]
fn the_configuration_has_the_address_and_the_state_of_the_link() {
    let device = Registers::new(LinkKind::Net);
    let bytes = device.configuration(SEEN).to_le_bytes();
    assert_eq!(bytes, [2, 1, 2, 3, 4, 5, 1, 0]);
    let down = Seen { turns: 4, ..SEEN };
    assert_eq!(device.configuration(down).to_le_bytes()[6], 0);
    assert_ne!(device.read(GENERATION, down), device.read(GENERATION, SEEN));
    let console = Registers::new(LinkKind::Console);
    assert_eq!(console.configuration(SEEN), 0);
    let sockets = Registers::new(LinkKind::Vsock);
    assert_eq!(sockets.configuration(SEEN), 4);
}

#[test]
fn reasons_wait_until_they_are_handled() {
    let reasons = Reasons::default();
    assert!(reasons.add(interrupt::USED));
    assert!(!reasons.add(interrupt::USED), "it stands for several");
    assert!(reasons.add(interrupt::CONFIGURATION | status::NEEDS_RESET));
    assert_eq!((reasons.waiting(), reasons.needs_reset()), (3, 0x40));
    reasons.handled(u32::MAX);
    assert_eq!((reasons.waiting(), reasons.needs_reset()), (0, 0x40));
    reasons.clear();
    assert_eq!(reasons.needs_reset(), 0);
}

/// Whatever is written where: no panic, and a driver that follows the rules starts it afterwards.
#[test]
fn any_writes_leave_a_device_that_can_be_reset() {
    let mut state = 7u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        state >> 33
    };
    let mut device = Registers::new(LinkKind::Net);
    for round in 0..300_000 {
        let value = if next() % 2 == 0 { next() % 16 } else { next() };
        let offset = (next() % 0x120) as u16 & !3;
        if matches!(device.write(offset, value as u32), Change::Reset) {
            device.reset();
        }
        device.read(offset, SEEN);
        if round % 1000 == 0 {
            let started = set_up(&mut device, LinkKind::Net.features(), 64);
            assert!(matches!(started, Change::Started([Some(_), Some(_), None])));
        }
    }
}
