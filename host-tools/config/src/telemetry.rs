//! By which line a system's telemetry leaves: `[telemetry]` of a configuration.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::board::BoardFile;
use crate::document::Table;
use crate::emulation::Serial;

/// What carries the telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// The board's second UART.
    Uart,
    /// The console's UART, between the lines of text.
    Console,
    /// Nothing: it is not sent.
    Off,
}

const WAYS: [(&str, Over); 3] = [
    ("uart", Over::Uart),
    ("console", Over::Console),
    ("off", Over::Off),
];

/// Reads the table, and has the board's UARTs carry what it says. A UART that carries nothing else
/// may be a VM's.
pub(crate) fn read(root: &Table<'_>, board: Option<&mut BoardFile>) {
    let Some(table) = root.optional("telemetry").and_then(|field| field.table()) else {
        return;
    };
    let field = table.required(
        "over",
        "say by which line it leaves: over = \"console\", \"uart\" or \"off\"",
    );
    let over = field.and_then(|field| Some((field.one_of("telemetry line", &WAYS)?, field)));
    table.finish();
    let (Some((over, field)), Some(board)) = (over, board) else {
        return;
    };
    let hardware = &mut board.board;
    match over {
        Over::Uart if hardware.telemetry.is_none() => {
            let error = field
                .error(format!(
                    "the board {} has no UART for the telemetry",
                    hardware.name
                ))
                .label("a second UART");
            field.push(error.help(
                "over = \"console\" sends it between the lines of the console; a board file's \
                 [telemetry] describes a second UART",
            ));
            return;
        }
        Over::Uart => return,
        Over::Console => hardware.telemetry = Some(hardware.console),
        Over::Off => hardware.telemetry = None,
    }
    let serial = board.emulation.iter_mut().flat_map(|it| &mut it.serial);
    for line in serial {
        *line = match *line {
            Serial::Console if over == Over::Console => Serial::Both,
            Serial::Telemetry => Serial::Vm,
            other => other,
        };
    }
}
