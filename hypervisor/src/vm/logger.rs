//! Prints messages of the `log` macros on the console, each with its core and level.

use crate::devices::console;
use crate::vm::cpu;
use cloison_formats::image::LogLevel;

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        let level = match record.level() {
            log::Level::Error => "error: ",
            log::Level::Warn => "warning: ",
            log::Level::Info => "",
            log::Level::Debug => "debug: ",
            log::Level::Trace => "trace: ",
        };
        console::print(format_args!("[core {}] {level}{}\n", cpu::current_index(), record.args()));
    }

    fn flush(&self) {}
}

/// Connects the `log` macros to the console.
pub fn init(level: LogLevel) {
    static LOGGER: Logger = Logger;
    // A second call would have no effect; there is only one.
    let _ = log::set_logger(&LOGGER);
    log::set_max_level(match level {
        LogLevel::Error => log::LevelFilter::Error,
        LogLevel::Warn => log::LevelFilter::Warn,
        LogLevel::Info => log::LevelFilter::Info,
        LogLevel::Debug => log::LevelFilter::Debug,
        LogLevel::Trace => log::LevelFilter::Trace,
    });
}
