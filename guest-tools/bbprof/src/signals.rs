//! Signals that end the tool: the target is killed, and the tool ends after it has made all pages
//! cacheable again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

/// A signal has come.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// The target, or 0.
static TARGET: AtomicI32 = AtomicI32::new(0);

/// Starts to watch for signals.
pub fn watch() -> Result<(), Error> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(Error::system("watch for signals"))?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            INTERRUPTED.store(true, SeqCst);
            kill_target();
        }
    });
    Ok(())
}

fn kill_target() {
    let target = TARGET.load(SeqCst);
    if target != 0 {
        // If it has ended, there is nothing to kill.
        let _ = kill(Pid::from_raw(target), Signal::SIGKILL);
    }
}

/// Names the process to kill when a signal comes; kills it at once if one has come.
pub fn set_target(pid: Option<Pid>) {
    TARGET.store(pid.map_or(0, Pid::as_raw), SeqCst);
    if INTERRUPTED.load(SeqCst) {
        kill_target();
    }
}

/// Returns an error if a signal has come.
pub fn check() -> Result<(), Error> {
    if INTERRUPTED.load(SeqCst) {
        Err(Error::Interrupted)
    } else {
        Ok(())
    }
}
