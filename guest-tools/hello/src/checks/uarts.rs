//! Both UARTs: their kinds, their interrupts, and a line on the second one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::interrupt::Gic;
use crate::console::{Level, Uart};
use crate::report::{Report, address, nothing_at};
use alloc::format;
use cloison_formats::image::{self, Board, UartKind};
use cloison_hello::TELEMETRY_LINE;
use cloison_hello::line::Verdict;

/// Returns the name of a kind in board files.
fn name(kind: UartKind) -> &'static str {
    match kind {
        UartKind::Pl011 => "pl011",
        UartKind::Cadence => "cadence",
        UartKind::Mini => "mini-uart",
    }
}

/// Checks both UARTs.
pub fn check(report: &mut Report, board: &Board, gic: &Gic) {
    // What is read here was sent by it.
    report.compare(
        "console.base",
        board.console.base,
        Some(board.console.base),
        "",
    );
    match check_kind(report, "console", &board.console) {
        Some(uart) => check_interrupt(report, "console.irq", &board.console, uart, gic),
        None => {
            let remark = "its kind is not known";
            report.untested("console.irq", board.console.irq.0, remark);
        }
    }
    let remark = "nobody types now; with a system's image, Ctrl-T and ? list the VMs";
    report.untested("console.input", "yes", remark);
    // A second UART, not the console's.
    let second = board.telemetry.as_ref();
    let Some(telemetry) = second.filter(|uart| uart.base != board.console.base) else {
        return;
    };
    let uart = Uart {
        kind: telemetry.kind,
        base: telemetry.base.0,
    };
    if uart.shown_kind().is_err() {
        let remark = nothing_at(uart.base);
        report.line(
            "telemetry.base",
            address(uart.base),
            "-",
            Verdict::Wrong,
            &remark,
        );
        for key in ["telemetry.kind", "telemetry.irq", "telemetry.sends"] {
            report.untested(key, "-", &remark);
        }
        return;
    }
    report.compare("telemetry.base", telemetry.base, Some(telemetry.base), "");
    let Some(uart) = check_kind(report, "telemetry", telemetry) else {
        let remark = "its kind is not known";
        report.untested("telemetry.sends", "yes", remark);
        return report.untested("telemetry.irq", telemetry.irq.0, remark);
    };
    let is_sent = uart.turn_on().is_ok()
        && TELEMETRY_LINE.bytes().all(|byte| uart.send(byte))
        && uart.is_drained();
    let found = if is_sent { "yes" } else { "no" };
    let remark = "a line with `cloison hello` went there";
    report.compare("telemetry.sends", "yes", Some(found), remark);
    check_interrupt(report, "telemetry.irq", telemetry, uart, gic);
}

/// Checks what a UART is that answers. Returns it as it is.
fn check_kind(report: &mut Report, key: &str, claims: &image::Uart) -> Option<Uart> {
    let uart = Uart {
        kind: claims.kind,
        base: claims.base.0,
    };
    let shown = uart.shown_kind().ok().flatten();
    let remark = match shown {
        Some(shown) if shown == claims.kind => "",
        Some(_) => "by its identification registers",
        None => "its registers are not those of this kind",
    };
    report.compare(
        format!("{key}.kind"),
        name(claims.kind),
        shown.map(name),
        remark,
    );
    shown.map(|kind| Uart { kind, ..uart })
}

/// Checks the interrupt of a UART that has sent something.
fn check_interrupt(report: &mut Report, key: &str, claims: &image::Uart, uart: Uart, gic: &Gic) {
    if !gic.has_distributor() {
        return report.untested(key, claims.irq.0, "there is no GICD");
    }
    // Answers, as it has before.
    let found = gic.raised_by(
        || _ = uart.raise(Level::High),
        || _ = uart.raise(Level::Low),
    );
    let remark = if found.is_some() {
        "its transmit interrupt is pending at the GICD"
    } else {
        "no interrupt became pending"
    };
    report.compare(key, claims.irq.0, found, remark);
}
