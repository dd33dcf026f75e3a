//! The devices that VMs may have, as far as reading one register tells: whether something answers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::access::read32;
use crate::machine::loaded::LINKED;
use crate::report::{Report, address, nothing_at};
use alloc::format;
use cloison_hello::claims::{Claims, Clock, Device, Place};
use cloison_hello::line::Verdict;

/// Checks each device of the board file. It is the last check: where an access hangs, the last line
/// says after which device.
pub fn check(report: &mut Report, claims: &Claims) {
    for (number, device) in claims.devices.iter().enumerate() {
        let key = format!("device[{number}].start");
        let start = address(device.range.start.0);
        match why_not(claims, device) {
            Some(why) => report.untested(key, start, format!("{}: {why}", device.name)),
            None => probe(report, claims.place, &key, device),
        }
    }
}

/// Returns why a device must not be read, if it must not.
fn why_not(claims: &Claims, device: &Device) -> Option<&'static str> {
    let board = &claims.board;
    let mut uarts = board.telemetry.iter().chain([&board.console]);
    if uarts.any(|uart| device.range.contains(uart.base)) {
        return Some("reading a UART may take a byte from it; see its own lines");
    }
    if device.range.start.0 >= LINKED {
        return Some("it is beyond what this image maps");
    }
    (device.clock == Clock::Firmware)
        .then_some("its clock is the firmware's, and an access without it may hang")
}

/// Reads the first register, which no device is known to change by that.
fn probe(report: &mut Report, place: Place, key: &str, device: &Device) {
    let start = device.range.start.0;
    let name = &device.name;
    match (read32(start), place) {
        (Ok(value), _) => {
            let remark = format!("{name}: its first register has {value:#010x}");
            report.compare(key, address(start), Some(address(start)), remark);
        }
        (Err(_), Place::Emulator) => {
            report.untested(key, address(start), format!("{name}: QEMU may lack it"));
        }
        (Err(_), Place::Board) => {
            let remark = format!("{name}: {}", nothing_at(start));
            report.line(key, address(start), "-", Verdict::Wrong, remark);
        }
    }
}
