//! From the claims to the last line, on the boot core, and the part of the other cores.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::checks::interrupt::Gic;
use crate::checks::{cores, cpu, devices, gic, memory, pmu, uarts};
use crate::console::{self, Uart};
use crate::machine::{heap, loaded};
use crate::report::{Report, abandon};
use crate::{power, report};
use alloc::format;
use cloison_hello::claims;
use cloison_hello::line::{BEGIN, Verdict};

/// Checks everything, and turns the machine off. `image` is what follows this image's code and data.
pub fn check(image: &[u8]) -> ! {
    heap::init();
    let parameters = loaded::parameters();
    power::init_early(parameters.psci);
    if let Some((kind, base)) = parameters.console {
        console::init(Uart { kind, base: base.0 });
    }
    let (claims, sum) =
        claims::decode(image).unwrap_or_else(|error| abandon(format_args!("{error}")));
    let board = &claims.board;
    power::init(board);
    let mut report = Report::default();
    let own_version = env!("CARGO_PKG_VERSION");
    report.line(
        BEGIN,
        &board.name,
        format!("{sum:08x}"),
        Verdict::Noted,
        format!(
            "Cloison {own_version}, loaded at {}",
            report::address(loaded::base())
        ),
    );
    cpu::check(&mut report, &claims);
    let gic = gic::check(&mut report, board);
    uarts::check(&mut report, board, &gic);
    memory::check(&mut report, board);
    pmu::check(&mut report, &claims, &gic, cores::own_number(&claims));
    cores::check(&mut report, &claims);
    devices::check(&mut report, &claims);
    report.end();
    power::off()
}

/// Answers on another core, and turns it off.
pub extern "C" fn secondary(core: u64) -> ! {
    cores::answer(core as usize, &Gic::of_boot_core());
    power::core_off()
}
