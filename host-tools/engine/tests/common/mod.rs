//! Ports for tests of captures.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::capture::port::Port;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;

/// A pseudo-terminal: the board's side, and the port.
pub fn pseudo_terminal() -> (File, Port) {
    let board = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&board)
        .and_then(|()| unlockpt(&board))
        .expect("ours");
    let name = ptsname(&board, Vec::new()).expect("it has a name");
    let name = name.into_string().expect("a path");
    (File::from(board), Port::Path(name.into()))
}
