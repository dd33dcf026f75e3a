//! Prints messages of the `log` macros on the console, each with its core and level.
//!
//! Once guests run, messages wait in a ring: nobody who prints can hold up the core that has something to say.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, timer};
use crate::vm::cpu::{self, Cpu};
use cloison_formats::image::LogLevel;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering};
use log::LevelFilter;

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        // By level, from 1.
        const LEVELS: [&str; 6] = ["", "error: ", "warning: ", "", "debug: ", "trace: "];
        let (core, level, text) = (
            cpu::current_index(),
            LEVELS[record.level() as usize],
            record.args(),
        );
        let message = format_args!("[core {core}] {level}{text}");
        if QUEUES.load(Ordering::Relaxed) {
            say(cpu::this(), message)
        } else {
            console::print(message)
        }
    }

    fn flush(&self) {}
}

/// Whether messages wait in rings, because guests run, or are printed at once.
pub static QUEUES: AtomicBool = AtomicBool::new(false);

/// Prints a message soon.
pub fn say(cpu: &Cpu, message: fmt::Arguments) {
    console::say(cpu.index, message);
    cpu.send_soon(timer::now());
    cpu.deadlines.program();
}

/// Connects the `log` macros to the console.
pub fn init(level: LogLevel) {
    // A second call would have no effect; there is only one.
    let _ = log::set_logger(&Logger);
    let levels = [
        LevelFilter::Error,
        LevelFilter::Warn,
        LevelFilter::Info,
        LevelFilter::Debug,
        LevelFilter::Trace,
    ];
    log::set_max_level(levels[level as usize]);
}
