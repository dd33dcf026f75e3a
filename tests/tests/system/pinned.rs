//! Boots of a Linux guest of four vCPUs while QEMU has a single, busy core of the host, with and
//! without the hypervisor.
//!
//! A lock that several vCPUs take at each tick makes all of them wait whenever the host interrupts
//! its holder, and a boot then takes minutes. No test knows how fast a host is, so the same kernel
//! boots in turn without the hypervisor, and the slowest boots are compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_bench::boot_cost;
use cloison_config::ImageSource;
use cloison_engine::qemu::Machine;
use cloison_formats::ids::Core;
use cloison_tests::{Clock, LIMIT, VIRT, image, load, machine, shipped};
use miette::{Result, miette};
use std::process::{Child, Command};
use std::time::Duration;

/// Maximum ratio of the slowest boot under the hypervisor to the slowest one without it, of twenty
/// each.
const MOST: f64 = 2.0;
/// The same for a few boots each, where one that the host interrupts has no equal on the other
/// side. The stalls that the test is for make a boot ten times as long; a busy host alone must not
/// fail it.
const MOST_OF_FEW: f64 = 6.0;
/// What the guest runs instead of a shell: succeeds if all vCPUs are on.
const EXEC: &str = "test $(nproc) = 4";

/// A program that never rests. It is killed when this value goes out of scope.
struct Busy(Child);

impl Busy {
    /// Starts it. It runs on the cores of the thread that starts it, and dies with that.
    fn start() -> Self {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "sh", "-c", "while :; do :; done"])
            .spawn();
        Self(child.expect("a shell starts"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().expect("it never ends by itself");
        self.0.wait().expect("it was killed");
    }
}

/// Restricts the calling thread, and what it starts from now on, to one of its cores. Returns the
/// core's number.
fn pin_this_thread() -> String {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
    let cores = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a list of cores");
    let first: String = cores
        .trim()
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    let thread = std::fs::read_link("/proc/thread-self").expect("procfs");
    let thread = thread
        .file_name()
        .and_then(|name| name.to_str())
        .expect("the thread's number")
        .to_owned();
    let pinned = Command::new("taskset")
        .args(["--cpu-list", "--pid", &first, &thread])
        .output();
    assert!(
        pinned.is_ok_and(|output| output.status.success()),
        "taskset does not work"
    );
    first
}

/// Boots to the end of [`EXEC`]. Returns how long it took.
fn boot(machine: Machine) -> Result<Duration> {
    let outcome = machine.limit(LIMIT).run()?;
    let ended = outcome.exit.is_clean() && outcome.console.contains("ended with status 0");
    if !ended {
        let tail: Vec<&str> = outcome.console.lines().rev().take(40).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        return Err(miette!(
            "{} after {:?}:\n{tail}\n{}",
            outcome.exit,
            outcome.wall,
            outcome.errors
        ));
    }
    Ok(outcome.wall)
}

/// Boots `times` times bare and as often under the hypervisor, in turn, and compares the slowest
/// boots.
fn boots_in_turn(times: usize, most: f64) -> Result<()> {
    let mut checked = load(&shipped("linux-cloud"), VIRT)?;
    checked.system.vms[0].cores = [0, 1, 2, 3].map(Core).to_vec();
    let ImageSource::Linux(linux) = &mut checked.images[0] else {
        panic!("a Linux guest")
    };
    linux.exec = Some(EXEC.to_owned());
    let image = image(&checked)?;
    let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let under = machine(VIRT, &file, Clock::Real)?;
    let bare = boot_cost::bare(&checked, &image, scratch.path())?;
    // In its own thread: the test's has to keep all its cores.
    let thread = std::thread::spawn(move || -> Result<[Duration; 2]> {
        let core = pin_this_thread();
        let busy = Busy::start();
        let mut slowest = [Duration::ZERO; 2];
        for number in 1..=times {
            let took = [boot(bare.clone())?, boot(under.clone())?];
            slowest = [0, 1].map(|which| slowest[which].max(took[which]));
            println!(
                "boot {number} on core {core}: bare {:.1?}, under Cloison {:.1?}",
                took[0], took[1]
            );
        }
        drop(busy);
        Ok(slowest)
    });
    let [bare, under] = thread.join().expect("the boots did not panic")?;
    let ratio = under.as_secs_f64() / bare.as_secs_f64();
    println!("slowest of {times}: bare {bare:.1?}, under Cloison {under:.1?}, ratio {ratio:.2}");
    assert!(
        ratio <= most,
        "{ratio:.2} times as long as the slowest boot without the hypervisor"
    );
    Ok(())
}

#[test]
fn four_vcpus_on_one_busy_core_of_the_host_boot_without_a_stall() -> Result<()> {
    boots_in_turn(3, MOST_OF_FEW)
}

#[test]
#[ignore = "takes some minutes; prints a table"]
fn four_vcpus_on_one_busy_core_of_the_host_boot_at_most_twice_as_slowly_as_bare() -> Result<()> {
    boots_in_turn(20, MOST)
}
