//! Counts its own instructions and cycles, and reads the counters by itself at EL0: `mrs`, without the kernel. With an
//! argument it reads a counter whether the kernel allows it or not.
#![no_std]
#![no_main]

use cloison_linux_tools::perf::{self, Counter, Event};
use cloison_linux_tools::{process, say};

/// Turns of the loop that is counted, of two instructions each.
const TURNS: u64 = 1_000_000;

/// Called by the start-up code with the number of arguments, the program's name included.
// SAFETY: no other function is called so.
#[unsafe(no_mangle)]
extern "C" fn cloison_main(arguments: u64) -> i32 {
    if arguments > 1 {
        say!("count-self: counter 0 reads {}", perf::read(1).unwrap_or_default());
        return 0;
    }
    let events = [("instructions", Event::Instructions), ("cycles", Event::Cycles)];
    let failed = events.into_iter().filter(|(name, event)| !count(name, *event)).count();
    i32::from(failed > 0)
}

/// Counts one event; whether it could.
fn count(name: &str, event: Event) -> bool {
    let counter = match Counter::start(event) {
        Ok(counter) => counter,
        Err(error) => {
            say!("count-self: {name}: error {error}");
            return false;
        }
    };
    if !counter.is_readable() {
        say!("count-self: {name}: not for programs");
        return false;
    }
    let (Ok(kernel), Some(before)) = (counter.by_kernel(), perf::read(counter.index())) else {
        process::exit(2);
    };
    perf::work(TURNS);
    let (after, Ok(kernel_after)) = (perf::read(counter.index()), counter.by_kernel()) else {
        process::exit(2);
    };
    let (width, index) = (u32::from(counter.width()), counter.index());
    let counted = after.unwrap_or_default().wrapping_sub(before) << (64 - width) >> (64 - width);
    say!(
        "count-self: {name} index={index} width={width} expected={} mrs={counted} kernel={}",
        2 * TURNS,
        kernel_after - kernel
    );
    true
}
