//! Prints messages of the `log` macros on the console, each with its core and level.
//!
//! Once guests run, messages wait in a ring: a core that prints cannot hold up another core with a
//! message.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::devices::{console, timer};
use crate::machine::registers::{CNTFRQ_EL0, Readable};
use crate::vm::cpu::{self, Cpu};
use crate::vm::partition::Vm;
use cloison_formats::image::LogLevel;
use cloison_logic::clock::Ticks;
use cloison_logic::limit::Topic;
use core::fmt;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use log::{Level, LevelFilter};

/// The target of the `log` macros. It has no state: the console and the rings do.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        // By level, from 1.
        const LEVELS: [&str; 6] = ["", "error: ", "warning: ", "", "debug: ", "trace: "];
        let core = cpu::current_index();
        let level = LEVELS[record.level() as usize];
        // Formatted when it is written: EL2 allocates nothing for a message.
        let message = format_args!("[core {core}] {level}{}", record.args());
        if QUEUES.load(Relaxed) {
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
    // The core's own ring, which no other core writes to.
    console::messages(cpu.index).push(format_args!("\x01{message}\r\n"));
    cpu.send_by(timer::now() + cpu.output_delay);
    cpu.deadlines.program();
}

/// Logs what a VM has caused, unless it has caused too much of late: 8 messages at once, 16 with
/// those about its end, and one a second. The next message says how many were left out.
pub fn about(vm: &Vm, level: Level, topic: Topic, message: fmt::Arguments) {
    // A message that the level hides must not use up the VM's allowance.
    if level > log::max_level() {
        return;
    }
    let second = Ticks(CNTFRQ_EL0.get());
    match vm.messages.pass(topic, timer::now(), second) {
        Some(0) => log::log!(level, "VM {}{message}", vm.spec.name),
        Some(more) => log::log!(
            level,
            "VM {}{message} ({more} messages like this were left out)",
            vm.spec.name
        ),
        None => {}
    }
}

/// Logs a message at any level: a run's first and last lines, by which a reader of the console finds
/// its beginning and its end.
pub fn always(message: fmt::Arguments) {
    log::logger().log(&log::Record::builder().args(message).build());
}

/// Connects the `log` macros to the console.
pub fn init(level: LogLevel) {
    // A second call would have no effect; there is only one.
    let _ = log::set_logger(&Logger);
    // The first filter is that of no messages.
    let filters = LevelFilter::iter().skip(1);
    filters
        .take(level as usize + 1)
        .for_each(log::set_max_level);
}
