//! Debian's kernels, unmodified: they boot, run side by side, panic alone, and do not notice that
//! their pages move.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::{PATIENCE, Running};
use cloison::exit::{Failure, NOT_RUN, TIME_IS_UP};
use cloison::run::{self, RunArgs};
use cloison_bench::boot_cost;
use cloison_benchmarks::random::Random;
use cloison_config::ImageSource;
use cloison_config::guest_linux::{Release, Shown};
use cloison_engine::linux::shell::CommandResult;
use cloison_engine::telemetry::End;
use cloison_engine::{parts, setup};
use cloison_formats::addr::PAGE_SIZE;
use cloison_formats::color::ColorSet;
use cloison_formats::image::{GicVersion, GuestPmu, Pool, PoolKind, Profile};
use cloison_formats::telemetry::{ExitReason, MigrationOutcome, VmState};
use cloison_formats::units::Nanos;
use cloison_tests::{Clock, VIRT, VIRT_GICV3, ZCU102, config, load, shipped, with_release};
use miette::{Result, miette};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Returns the timer interrupts of each vCPU, and their sum.
fn timer_interrupts(table: &str) -> Vec<u64> {
    let line = table
        .lines()
        .find(|line| line.contains("arch_timer"))
        .unwrap_or_else(|| panic!("no timer:\n{table}"));
    line.split_whitespace()
        .skip(1)
        .map_while(|word| word.parse().ok())
        .collect()
}

fn boots_to_a_shell(
    config: &str,
    release: Release,
    kernel: &str,
    board: &str,
    clock: Clock,
) -> Result<()> {
    let mut linux = Running::start(
        &with_release(load(&shipped(config), board)?, release),
        board,
        clock,
    )?;
    linux.open("linux")?;
    let name = linux.output("linux", "uname -a");
    assert!(
        name.contains(&format!(" linux {}.", release.kernel())),
        "{name}"
    );
    assert!(
        name.contains(kernel) && name.contains(" linux ") && name.contains("aarch64"),
        "{name}"
    );
    assert_eq!(linux.number("linux", "nproc"), 2);
    // The kernel found PSCI and, by PSCI_FEATURES, the calling convention's version: without it, no
    // workaround calls.
    let convention = linux.output("linux", "dmesg | grep 'SMC Calling Convention'");
    assert!(convention.trim_end().ends_with("v1.1"), "{convention}");
    // Software written for QEMU and KVM looks for the second name.
    let names = linux.output(
        "linux",
        "tr '\\0' ' ' < /proc/device-tree/interrupt-controller@8000000/compatible",
    );
    let expected = match linux.checked.system.board.gic.version() {
        GicVersion::V2 => "arm,gic-400 arm,cortex-a15-gic",
        GicVersion::V3 => "arm,gic-v3",
    };
    assert_eq!(names.trim_end(), expected);
    // Timer interrupts arrive on every vCPU, repeatedly.
    let first = timer_interrupts(&linux.output("linux", "cat /proc/interrupts"));
    for vcpu in 0..2 {
        linux.output(
            "linux",
            &format!("taskset {} sh -c 'sleep 0.2; sleep 0.2'", 1 << vcpu),
        );
    }
    let second = timer_interrupts(&linux.output("linux", "cat /proc/interrupts"));
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(
        first
            .iter()
            .zip(&second)
            .all(|(first, second)| second > first),
        "{first:?}, then {second:?}"
    );
    // The kernel uses both regions as memory.
    let total = linux.number(
        "linux",
        "sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
    ) << 10;
    let configured: u64 = linux.checked.system.vms[0]
        .regions
        .iter()
        .map(|region| u64::from(region.pages))
        .sum();
    assert!(
        (configured * PAGE_SIZE * 3 / 4..configured * PAGE_SIZE).contains(&total),
        "{total} bytes"
    );
    let ram = linux.output("linux", "grep 'System RAM' /proc/iomem");
    assert_eq!(
        ram,
        "40000000-47ffffff : System RAM\n60000000-63ffffff : System RAM\n"
    );
    // A command's status is passed on, and so is a failure to run it.
    assert_eq!(
        linux.ask("linux", "echo \"it's\"; (exit 7)")?,
        CommandResult {
            output: "it's\n".into(),
            status: 7
        }
    );
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(run.end_of("linux"), End::Off);
    Ok(())
}

/// The shipped configurations with one Linux guest of two cores, and what their kernels call
/// themselves.
const CLOUD: (&str, &str) = ("linux-cloud", "cloud-arm64 #1 SMP");
const RT: (&str, &str) = ("linux-rt", "SMP PREEMPT_RT");

fn boot_both(release: Release, board: &str) -> Result<()> {
    for (config, kernel) in [CLOUD, RT] {
        boots_to_a_shell(config, release, kernel, board, Clock::Counted)?;
    }
    Ok(())
}

#[test]
#[ignore = "on demand: both releases, and both boards, boot in the other tests too"]
fn debian_12s_kernels_boot_on_virt() -> Result<()> {
    boot_both(Release::Bookworm, VIRT)
}

#[test]
fn debian_12s_kernels_boot_on_zcu102() -> Result<()> {
    boot_both(Release::Bookworm, ZCU102)
}

#[test]
fn debian_13s_kernels_boot_on_virt() -> Result<()> {
    boot_both(Release::Trixie, VIRT)
}

#[test]
#[ignore = "on demand: both releases, and both boards, boot in the other tests too"]
fn debian_13s_kernels_boot_on_zcu102() -> Result<()> {
    boot_both(Release::Trixie, ZCU102)
}

#[test]
fn a_kernel_boots_on_virt_with_a_gicv3() -> Result<()> {
    let (config, kernel) = CLOUD;
    boots_to_a_shell(
        config,
        Release::Bookworm,
        kernel,
        VIRT_GICV3,
        Clock::Counted,
    )
}

#[test]
#[ignore = "on demand: one kernel boots in the test before"]
fn both_releases_boot_on_virt_with_a_gicv3() -> Result<()> {
    boot_both(Release::Bookworm, VIRT_GICV3)?;
    boot_both(Release::Trixie, VIRT_GICV3)
}

/// Each of sixteen vCPUs runs programs, has its timer's interrupts, and those of the others.
#[test]
fn a_kernel_runs_on_sixteen_vcpus_of_a_gicv3() -> Result<()> {
    let board = "virt-gicv3-16";
    let checked = load(&config("sixteen-cores/linux"), board)?;
    let mut linux = Running::start(&checked, board, Clock::Counted)?;
    linux.open("linux")?;
    assert_eq!(linux.number("linux", "nproc"), 16);
    let first = timer_interrupts(&linux.output("linux", "cat /proc/interrupts"));
    // Field 39 of a program's state is its vCPU.
    let each = "for n in $(seq 0 15); do \
         taskset $(printf %x $((1 << n))) sh -c \"sleep 0.2; awk '{ print \\$39 }' /proc/self/stat\"; done";
    let expected: String = (0..16).map(|n| format!("{n}\n")).collect();
    assert_eq!(linux.output("linux", each), expected);
    let table = linux.output("linux", "cat /proc/interrupts");
    let second = timer_interrupts(&table);
    assert_eq!((first.len(), second.len()), (16, 16), "{table}");
    assert!(first.iter().zip(&second).all(|(a, b)| b > a), "{table}");
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(run.end_of("linux"), End::Off);
    Ok(())
}

#[test]
fn kernels_boot_while_all_cores_really_run() -> Result<()> {
    boots_to_a_shell(CLOUD.0, Release::Bookworm, CLOUD.1, VIRT, Clock::Real)?;
    boots_to_a_shell(RT.0, Release::Trixie, RT.1, ZCU102, Clock::Real)
}

/// Returns the seconds since a VM's kernel started.
#[track_caller]
fn uptime(linux: &mut Running, vm: &str) -> f64 {
    let output = linux.output(vm, "cut -d ' ' -f 1 /proc/uptime");
    output
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{output:?} is no uptime"))
}

/// In real time: a kernel that has panicked spins.
fn live_and_die_alone(board: &str) -> Result<()> {
    let mut linux = Running::start(&load(&shipped("two-linux"), board)?, board, Clock::Real)?;
    linux.open("rt")?;
    linux.open("cloud")?;
    assert!(linux.output("rt", "uname -v").contains("PREEMPT_RT"));
    assert_eq!(
        (linux.number("rt", "nproc"), linux.number("cloud", "nproc")),
        (1, 2)
    );

    // One guest restarts; the other continues.
    let (rt, cloud) = (uptime(&mut linux, "rt"), uptime(&mut linux, "cloud"));
    linux.output("cloud", "sleep 5");
    linux.type_in("rt", "reboot -f\n")?;
    linux.open("rt")?;
    let (rt_anew, cloud_later) = (uptime(&mut linux, "rt"), uptime(&mut linux, "cloud"));
    assert!(
        rt_anew < rt + 5.0 && cloud_later > cloud + 5.0,
        "{rt} {rt_anew}, {cloud} {cloud_later}"
    );

    // One guest panics; the other and the bare-metal VM continue.
    linux.type_in("cloud", "echo c > /proc/sysrq-trigger\n")?;
    linux.expect("cloud", "Kernel panic - not syncing: sysrq triggered crash")?;
    let before = uptime(&mut linux, "rt");
    linux.hear_the_heart()?;
    linux.output("rt", "sleep 3");
    linux.hear_the_heart()?;
    let after = uptime(&mut linux, "rt");
    assert!(after >= before + 3.0, "{before}, then {after}");
    linux.type_in("rt", "poweroff -f\n")?;
    linux.session.expect("VM rt is off", PATIENCE)?;
    linux.hear_the_heart()?;
    let run = linux.stop()?;
    assert!(!run.outcome.console.contains("CORRUPT"), "{run}");
    let restarts = run
        .telemetry
        .vm_states()
        .filter(|(.., state)| *state == VmState::Restarted)
        .count();
    assert_eq!(restarts, 1, "{run}");
    assert_eq!(run.end_of("rt"), End::Off, "{run}");
    Ok(())
}

#[test]
#[ignore = "on demand: takes a minute, and what it is about does not depend on the board"]
fn two_kernels_and_a_bare_metal_vm_live_and_die_alone_on_virt() -> Result<()> {
    live_and_die_alone(VIRT)
}

#[test]
fn two_kernels_and_a_bare_metal_vm_live_and_die_alone_on_zcu102() -> Result<()> {
    live_and_die_alone(ZCU102)
}

/// Number of pages that move while a Linux guest works.
const PAGES: u32 = 2000;

/// Moves random pages of all of a Linux guest's memory, kernel and programs alike, while it
/// compresses, decompresses and checksums files.
fn pages_move_unnoticed(board: &str, clock: Clock) -> Result<()> {
    let mut checked = load(&shipped("linux-cloud"), board)?;
    let system = &mut checked.system;
    system.pools[0].colors = ColorSet::first(12);
    let colors = ColorSet::first(15).without(ColorSet::first(12));
    system.pools.push(Pool {
        name: "pvt".into(),
        kind: PoolKind::Pvt,
        colors,
        limit: Some(PAGES),
    });
    let mut random = Random::new(0x006c_696e_7578);
    // The kernel is in the first 27 MiB; half of the pages are there.
    let kernel = (27 << 20) / PAGE_SIZE;
    let mut chosen = BTreeSet::new();
    while chosen.len() < PAGES as usize {
        let region = random.bits() % 2;
        let within = match (region, chosen.len() % 2) {
            (0, 0) => kernel,
            (region, _) => u64::from(system.vms[0].regions[region as usize].pages),
        };
        chosen.insert((region as u8, (random.bits() % within) as u32));
    }
    let mut pages: Vec<_> = chosen
        .into_iter()
        .map(|pages| (random.bits(), pages))
        .collect();
    pages.sort_unstable();
    let ipa = |(_, (region, page)): (u64, (u8, u32))| {
        system.vms[0].regions[usize::from(region)]
            .ipa
            .page(u64::from(page))
    };
    let pages = pages.into_iter().map(ipa).collect();
    // Seconds from the start to the moves, which are in the middle of the load below. In real time
    // the kernel boots later.
    let after = if clock == Clock::Real { 6 } else { 4 };
    (system.vms[0].target, system.vms[0].away) = (Some(1), PAGES);
    system.vms[0].profile = Some(Profile {
        pages,
        top: PAGES,
        after: Some(Nanos(after * 1_000_000_000)),
    });
    let mut linux = Running::start(&checked, board, clock)?;
    linux.open("linux")?;
    // Programs, their data, the page cache and the kernel's own structures: all are read, written
    // and compared.
    let load = "dd if=/dev/urandom of=/tmp/a bs=64k count=128 2>/dev/null; want=$(sha256sum < \
                /tmp/a); n=0
        while [ $(cut -d . -f 1 /proc/uptime) -lt END ] || [ $n -lt 3 ]; do
            for vcpu in 1 2; do
                { gzip -1 < /tmp/a | gunzip > /tmp/b$vcpu; [ \"$(sha256sum < /tmp/b$vcpu)\" = \
                \"$want\" ] || echo CORRUPT; } &
            done
            wait; n=$((n + 1))
        done
        [ \"$(sha256sum < /tmp/a)\" = \"$want\" ] && echo rounds=$n";
    let output = linux.output("linux", &load.replace("END", &(2 * after).to_string()));
    assert!(!output.contains("CORRUPT"), "{output}");
    assert!(
        cloison_tests::number(output.lines().last().expect("a last line"), "rounds") >= 3,
        "{output}"
    );
    // The kernel reports no problem.
    let complaints = linux.ask(
        "linux",
        "dmesg | grep -iE 'oops|bug|corrupt|bad page|unable to handle|rcu.*stall|hung'",
    )?;
    assert_eq!(
        complaints,
        CommandResult {
            output: String::new(),
            status: 1
        }
    );
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert!(
        run.outcome
            .console
            .contains(&format!("VM linux: {PAGES} pages moved to its PVT pool")),
        "{run}"
    );
    let moved: Vec<_> = run
        .telemetry
        .migrations()
        .map(|(_, record)| *record)
        .collect();
    assert!(
        moved
            .iter()
            .all(|record| record.outcome == MigrationOutcome::Moved),
        "{run}"
    );
    assert_eq!(
        moved.len() as u64 + run.telemetry.dropped(),
        u64::from(PAGES),
        "{run}"
    );
    Ok(())
}

#[test]
#[ignore = "on demand: takes a minute, and runs on this board in real time and on the other one \
            under -icount"]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_on_virt() -> Result<()> {
    pages_move_unnoticed(VIRT, Clock::Counted)
}

#[test]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_on_zcu102() -> Result<()> {
    pages_move_unnoticed(ZCU102, Clock::Counted)
}

#[test]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_while_all_cores_really_run() -> Result<()> {
    pages_move_unnoticed(VIRT, Clock::Real)
}

#[test]
fn private_memory_is_hidden_reserved_or_the_hypervisors() -> Result<()> {
    let cases = [
        (Shown::Reserved, "80000000-8001ffff : reserved\n"),
        (Shown::Hidden, ""),
        (Shown::Memory, "80000000-8001ffff : System RAM\n"),
    ];
    for (board, cases) in [(VIRT, &cases[..]), (ZCU102, &cases[..1])] {
        for &(ref shown, expected) in cases {
            let mut checked = load(&shipped("linux-pvt-sh"), board)?;
            // The neighbors have their own tests; here they would only cost time.
            checked.system.vms.truncate(1);
            checked.images.truncate(1);
            let ImageSource::Linux(source) = &mut checked.images[0] else {
                panic!("a Linux guest")
            };
            source.tree.shown[1] = shown.clone();
            let mut linux = Running::start(&checked, board, Clock::Counted)?;
            linux.open("linux")?;
            let known = linux.output("linux", "grep -E '^8' /proc/iomem || true");
            assert_eq!(known, expected);
            if *shown != Shown::Memory {
                // A program that knows of the region can use it, and it keeps what is written.
                for (address, value) in [("0x80000000", "0xC0105011"), ("0x8001FFFC", "0x12345678")]
                {
                    linux.output("linux", &format!("devmem {address} 32 {value}"));
                    assert_eq!(
                        linux
                            .output("linux", &format!("devmem {address} 32"))
                            .trim(),
                        value
                    );
                }
            }
            linux.output("linux", "sleep 1");
            linux.type_in("linux", "poweroff -f\n")?;
            let run = linux.finish()?.whole();
            // The hypervisor's own private pool is filled by the profile.
            let moved = run
                .telemetry
                .migrations()
                .filter(|(_, record)| record.outcome == MigrationOutcome::Moved);
            assert_eq!(moved.count(), 32, "{run}");
        }
    }
    Ok(())
}

#[test]
fn linux_and_its_neighbors_on_shared_colors_go_on_together() -> Result<()> {
    let board = VIRT;
    let mut linux = Running::start(&load(&shipped("linux-pvt-sh"), board)?, board, Clock::Real)?;
    linux.open("linux")?;
    linux.output("linux", "sleep 1; uname -a");
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(
        (
            run.end_of("linux"),
            run.end_of("interf-1"),
            run.end_of("interf-2")
        ),
        (End::Off, End::Stopped, End::Stopped)
    );
    Ok(())
}

fn boots_cost_hardly_more(boots: impl Iterator<Item = (Release, &'static str)>) -> Result<()> {
    setup::qemu()?;
    let plugin = parts::model_plugin()?;
    for (release, name) in boots {
        let boots = boot_cost::measure(name, release, &plugin)?;
        // A guest runs at EL0 and EL1; the hypervisor's overhead is at EL2.
        let ([_, _, none, monitor], [user, kernel, own, _]) =
            (boots.bare.instructions, boots.under.instructions);
        assert_eq!((none, monitor), (0, 0));
        assert!(
            user > 500_000 && kernel > 100_000_000 && own > 1_000_000,
            "{boots:?}"
        );
        assert!(boots.ratio() <= boot_cost::AIM, "{boots:?}");
        let [timer, interrupts] =
            [ExitReason::Timer, ExitReason::Interrupt].map(|reason| boots.exits[reason as usize]);
        assert!(timer > 10 && interrupts > 10, "{boots:?}");
    }
    Ok(())
}

/// Each release's kernel that enters the hypervisor most.
#[test]
fn a_boot_takes_hardly_more_instructions_than_without_the_hypervisor() -> Result<()> {
    boots_cost_hardly_more(Release::ALL.into_iter().zip(boot_cost::CONFIGS))
}

#[test]
#[ignore = "on demand: `cargo xtask linux boot-cost` makes the table of all"]
fn no_boot_takes_much_more_than_without_the_hypervisor() -> Result<()> {
    boots_cost_hardly_more(
        Release::ALL
            .into_iter()
            .flat_map(|release| boot_cost::CONFIGS.map(|name| (release, name))),
    )
}

/// With HW = 1 in the timer's list register, as on hardware: bare metal does not need the
/// hypervisor for its ticks.
#[test]
fn the_timer_is_mediated_where_the_board_says_so_and_else_not() -> Result<()> {
    for mediated in [true, false] {
        let mut checked = load(&cloison_tests::config("migrate-alone"), VIRT)?;
        assert!(checked.system.board.gic.mediated_timer);
        checked.system.board.gic.mediated_timer = mediated;
        let run = cloison_tests::run(&checked, VIRT, Clock::Counted)?.whole();
        assert_eq!(run.end_of(&run.system.vms[0].name), End::Off, "{run}");
    }
    Ok(())
}

#[test]
fn a_command_runs_in_a_vm_and_its_status_comes_back() -> Result<()> {
    let directory = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
    let args = |vm: Option<&str>, command: &str, timeout: u64| RunArgs {
        config: shipped("linux-cloud"),
        board: None,
        model: None,
        icount: Some(0),
        timeout: Some(timeout),
        log: Some(directory.path().join("logs")),
        vm: vm.map(str::to_owned),
        exec: Some(command.to_owned()),
        net: None,
        forward: Vec::new(),
        verbose: false,
        extra: vec![],
    };
    let run = |vm: Option<&str>, command: &str, timeout: u64| run::run(&args(vm, command, timeout));
    let code = run(Some("linux"), "echo one; echo two; exit 3", 100).expect("it runs");
    assert_eq!(code, ExitCode::from(3));
    let log = |name: &str| {
        std::fs::read_to_string(directory.path().join("logs").join(name)).expect("a log")
    };
    assert!(
        log("linux.log").contains("\none\ntwo\n"),
        "{}",
        log("linux.log")
    );
    assert!(log("hypervisor.log").contains("Cloison") && !log("hypervisor.log").contains("one\n"));
    // Invalid requests, and a command that does not end.
    let Failure { code, error } = run(Some("linus"), "true", 100).expect_err("no VM is called so");
    assert_eq!(code, 1);
    assert!(
        error.to_string().contains("no Linux VM is called `linus`"),
        "{error}"
    );
    // What a terminal would cut is refused; what it just takes is run as a whole.
    let Failure { code, error } = run(None, &"x".repeat(4_096), 100).expect_err("it is too long");
    assert_eq!(code, NOT_RUN);
    assert!(
        error.to_string().contains("too long for one line"),
        "{error}"
    );
    let longest = format!("test $(echo {} | wc -c) = 3001", "x".repeat(3_000));
    let code = run(None, &longest, 100).expect("it runs");
    assert_eq!(code, ExitCode::SUCCESS);
    let Failure { code, error } =
        run(None, "read never < /dev/console", 20).expect_err("it never ends");
    assert_eq!(code, TIME_IS_UP);
    // On a busy machine the boot may not have reached the command.
    assert!(
        error.to_string().starts_with("VM `linux` did not ")
            && error.to_string().contains(" within "),
        "{error}"
    );
    Ok(())
}

/// Without `pmu` the kernel finds no PMU; with it, the counters that quotas do not use.
#[test]
fn debians_driver_drives_a_device_that_is_passed_through() -> Result<()> {
    let board = VIRT;
    // QEMU's clock shows the host's time, and its alarm follows that: guest time must not run
    // ahead.
    let mut linux = Running::start(
        &load(&cloison_tests::config("passthrough/linux"), board)?,
        board,
        Clock::Real,
    )?;
    linux.open("linux")?;
    // Later than the time at which this was written.
    assert!(linux.number("linux", "cat /sys/class/rtc/rtc0/since_epoch") > 1_700_000_000);
    let interrupts = "grep rtc-pl031 /proc/interrupts | { read irq count rest; echo $count; }";
    assert_eq!(linux.number("linux", interrupts), 0);
    linux.output(
        "linux",
        "echo +2 >/sys/class/rtc/rtc0/wakealarm; n=0; while [ \"$(grep rtc-pl031 /proc/interrupts \
         | tr -s ' ' | cut -d ' ' -f 3)\" = 0 ] && [ $n -lt 60 ]; do sleep 1; n=$((n + 1)); done",
    );
    assert_eq!(linux.number("linux", interrupts), 1, "the alarm");
    // How many interrupts it takes depends on the machine: QEMU's FIFO is never full, so that the
    // driver sends all that it has been given whenever it is asked.
    let sent = "grep uart-pl011 /proc/interrupts | { read irq count rest; echo ${count:-0}; }";
    let before = linux.number("linux", sent);
    let text = "seq 1000 > /dev/ttyAMA1; stty -F /dev/ttyAMA1 | head -1";
    linux.output("linux", text);
    let count = linux.number("linux", sent);
    assert!(count > before, "{count} interrupts, {before} before");
    let run = linux.stop()?;
    let uart = String::from_utf8_lossy(&run.outcome.uart);
    let numbers = uart
        .lines()
        .filter_map(|line| line.trim().parse::<u32>().ok());
    assert!(numbers.eq(1..=1000), "{uart}");
    // What was sent between the lines meanwhile.
    assert_eq!(run.telemetry.problems, [], "{run}");
    assert!(run.telemetry.boot.is_some(), "{run}");
    assert!(!run.outcome.console.contains('\u{2}'), "{run}");
    Ok(())
}

#[test]
fn a_kernel_finds_the_pmu_that_its_vm_has() -> Result<()> {
    for (release, board, cases) in [
        (Release::Bookworm, ZCU102, &[false, true][..]),
        (Release::Trixie, VIRT, &[true][..]),
    ] {
        for &granted in cases {
            let mut checked = with_release(load(&shipped("linux-cloud"), board)?, release);
            checked.system.vms[0].pmu = if granted {
                GuestPmu::Emulated
            } else {
                GuestPmu::None
            };
            let mut linux = Running::start(&checked, board, Clock::Counted)?;
            linux.open("linux")?;
            let found = linux.ask("linux", "dmesg | grep 'hw perfevents: enabled'")?;
            assert_eq!(found.status == 0, granted, "{}", found.output);
            // The kernel's number includes the cycle counter.
            let counters = checked.board.counters + 1;
            let mask = match release {
                Release::Bookworm => String::new(),
                // 6.12 also says which: bit 31 is the cycle counter.
                Release::Trixie => format!(
                    " (0,{:x})",
                    1_u32 << 31 | ((1 << checked.board.counters) - 1)
                ),
            };
            let expected = format!(
                "enabled with armv8_cortex_a53 PMU driver, {counters}{mask} counters available"
            );
            assert!(
                !granted || found.output.contains(&expected),
                "{}",
                found.output
            );
            let events = linux.ask(
                "linux",
                "test -e /sys/bus/event_source/devices/armv8_cortex_a53",
            )?;
            assert_eq!(events.status == 0, granted);
            linux.type_in("linux", "poweroff -f\n")?;
            linux.finish()?.whole();
        }
    }
    Ok(())
}
