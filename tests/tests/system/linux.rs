//! Debian's kernels, unmodified: they boot, live side by side, panic alone, and do not notice that their pages move.

use cloison_core::addr::PAGE_SIZE;
use cloison_core::blob::{Pool, PoolKind, Profile, ProfiledPage};
use cloison_core::color::ColorSet;
use cloison_core::units::Nanos;
use cloison_core::wire::{MigrationOutcome, VmState};
use cloison_kernels::random::Random;
use cloison_tests::{Clock, Run, image, load, machine, shipped};
use miette::{Result, miette};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tempfile::TempDir;
use xtask::config::{Checked, ImageSource};
use xtask::linux::Shown;
use xtask::linux::shell::{Done, Shells};
use xtask::qemu::{Board, Machine, Session};
use xtask::run::{self, RunArgs};
use xtask::telemetry::{End, Telemetry};

/// How long anything may take before the system is taken to hang. Nothing else is concluded from it.
const PATIENCE: Duration = Duration::from_secs(100);

/// A system with Linux VMs that runs.
pub(crate) struct Running {
    session: Session,
    shells: Shells,
    pub(crate) checked: Checked,
    _scratch: TempDir,
}

impl Running {
    pub(crate) fn start(checked: &Checked, board: Board, clock: Clock) -> Result<Self> {
        Self::start_on(checked, |file| machine(board, file, clock))
    }

    /// On a machine of the caller's.
    pub(crate) fn start_on(checked: &Checked, machine: impl FnOnce(&Path) -> Result<Machine>) -> Result<Self> {
        let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
        let file = scratch.path().join("Image");
        let image = image(checked)?;
        image.write(&file)?;
        let session = machine(&file)?.limit(3 * PATIENCE).start()?;
        let shells = Shells::new(checked.system.vms.iter().map(|vm| vm.name.as_str()));
        let checked = Checked { system: image.system, ..checked.clone() };
        Ok(Self { session, shells, checked, _scratch: scratch })
    }

    #[track_caller]
    pub(crate) fn vm(&self, name: &str) -> usize {
        self.checked.system.vms.iter().position(|vm| vm.name == name).expect("a VM of the configuration")
    }

    pub(crate) fn open(&mut self, vm: &str) -> Result<()> {
        let vm = self.vm(vm);
        self.shells.open(&mut self.session, vm, PATIENCE)
    }

    pub(crate) fn ask(&mut self, vm: &str, command: &str) -> Result<Done> {
        let vm = self.vm(vm);
        self.shells.run(&mut self.session, vm, command, PATIENCE)
    }

    /// What a command prints that must succeed.
    #[track_caller]
    pub(crate) fn output(&mut self, vm: &str, command: &str) -> String {
        let done = self.ask(vm, command).unwrap_or_else(|error| panic!("{vm}: {command}: {error:?}"));
        assert_eq!(done.status, 0, "{vm}: {command}: {}", done.output);
        done.output
    }

    /// The number that a command prints.
    #[track_caller]
    pub(crate) fn number(&mut self, vm: &str, command: &str) -> u64 {
        let output = self.output(vm, command);
        output.trim().parse().unwrap_or_else(|_| panic!("{vm}: {command} printed {output:?}"))
    }

    /// Waits until a VM has said something more.
    pub(crate) fn expect(&mut self, vm: &str, text: &str) -> Result<String> {
        let vm = self.vm(vm);
        self.shells.expect(&mut self.session, vm, &format!("say {text:?}"), text, PATIENCE)
    }

    /// Waits until the bare-metal VM has said that its next beats are right.
    pub(crate) fn hear_the_heart(&mut self) -> Result<()> {
        let vm = self.vm("heart");
        self.shells.pass_over(&self.session, vm);
        self.expect("heart", " ok\n").map(drop)
    }

    pub(crate) fn type_in(&mut self, vm: &str, line: &str) -> Result<()> {
        let vm = self.vm(vm);
        self.shells.send(&mut self.session, vm, line)
    }

    /// Listens until the board turns itself off.
    pub(crate) fn finish(self) -> Result<Run> {
        let outcome = self.session.finish()?;
        let telemetry = Telemetry::parse(&outcome.telemetry);
        Ok(Run { system: self.checked.system, telemetry, outcome })
    }

    /// Stops the board, which would go on.
    pub(crate) fn stop(self) -> Result<Run> {
        let outcome = self.session.stop()?;
        let telemetry = Telemetry::parse(&outcome.telemetry);
        Ok(Run { system: self.checked.system, telemetry, outcome })
    }
}

/// Timer interrupts of all vCPUs, and the counts of each.
fn timer_interrupts(table: &str) -> Vec<u64> {
    let line = table.lines().find(|line| line.contains("arch_timer")).unwrap_or_else(|| panic!("no timer:\n{table}"));
    line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect()
}

fn boots_to_a_shell(config: &str, kernel: &str, board: Board, clock: Clock) -> Result<()> {
    let mut linux = Running::start(&load(&shipped(config), board)?, board, clock)?;
    linux.open("linux")?;
    let name = linux.output("linux", "uname -a");
    assert!(name.contains(kernel) && name.contains(" linux ") && name.contains("aarch64"), "{name}");
    assert_eq!(linux.number("linux", "nproc"), 2);
    // Every vCPU's timer interrupts, again and again.
    let first = timer_interrupts(&linux.output("linux", "cat /proc/interrupts"));
    for vcpu in 0..2 {
        linux.output("linux", &format!("taskset {} sh -c 'sleep 0.2; sleep 0.2'", 1 << vcpu));
    }
    let second = timer_interrupts(&linux.output("linux", "cat /proc/interrupts"));
    assert_eq!((first.len(), second.len()), (2, 2));
    assert!(first.iter().zip(&second).all(|(first, second)| second > first), "{first:?}, then {second:?}");
    // Both regions are its memory.
    let total = linux.number("linux", "sed -n 's/MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo") << 10;
    let configured: u64 = linux.checked.system.vms[0].regions.iter().map(|region| u64::from(region.pages)).sum();
    assert!((configured * PAGE_SIZE * 3 / 4..configured * PAGE_SIZE).contains(&total), "{total} bytes");
    let ram = linux.output("linux", "grep 'System RAM' /proc/iomem");
    assert_eq!(ram, "40000000-47ffffff : System RAM\n60000000-63ffffff : System RAM\n");
    // A command's status comes through, and so does what it cannot do.
    assert_eq!(linux.ask("linux", "echo \"it's\"; (exit 7)")?, Done { output: "it's\n".into(), status: 7 });
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(run.end_of("linux"), End::Off);
    Ok(())
}

#[test]
fn the_cloud_kernel_boots_on_virt() -> Result<()> {
    boots_to_a_shell("linux-cloud", "cloud-arm64 #1 SMP", Board::Virt, Clock::Counted)
}

#[test]
fn the_cloud_kernel_boots_on_zcu102() -> Result<()> {
    boots_to_a_shell("linux-cloud", "cloud-arm64 #1 SMP", Board::Zcu102, Clock::Counted)
}

#[test]
fn the_real_time_kernel_boots_on_virt() -> Result<()> {
    boots_to_a_shell("linux-rt", "SMP PREEMPT_RT", Board::Virt, Clock::Counted)
}

#[test]
fn the_real_time_kernel_boots_on_zcu102() -> Result<()> {
    boots_to_a_shell("linux-rt", "SMP PREEMPT_RT", Board::Zcu102, Clock::Counted)
}

#[test]
fn kernels_boot_while_all_cores_really_run() -> Result<()> {
    boots_to_a_shell("linux-cloud", "cloud-arm64 #1 SMP", Board::Virt, Clock::Real)?;
    boots_to_a_shell("linux-rt", "SMP PREEMPT_RT", Board::Zcu102, Clock::Real)
}

/// Seconds since a VM's kernel started.
#[track_caller]
fn uptime(linux: &mut Running, vm: &str) -> f64 {
    let output = linux.output(vm, "cut -d ' ' -f 1 /proc/uptime");
    output.trim().parse().unwrap_or_else(|_| panic!("{output:?} is no uptime"))
}

/// In real time: a kernel that has panicked spins.
fn live_and_die_alone(board: Board) -> Result<()> {
    let mut linux = Running::start(&load(&shipped("two-linux"), board)?, board, Clock::Real)?;
    linux.open("rt")?;
    linux.open("cloud")?;
    assert!(linux.output("rt", "uname -v").contains("PREEMPT_RT"));
    assert_eq!((linux.number("rt", "nproc"), linux.number("cloud", "nproc")), (1, 2));

    // One restarts: it boots anew, and the other goes on.
    let (rt, cloud) = (uptime(&mut linux, "rt"), uptime(&mut linux, "cloud"));
    linux.output("cloud", "sleep 5");
    linux.type_in("rt", "reboot -f\n")?;
    linux.open("rt")?;
    let (rt_anew, cloud_later) = (uptime(&mut linux, "rt"), uptime(&mut linux, "cloud"));
    assert!(rt_anew < rt + 5.0 && cloud_later > cloud + 5.0, "{rt} {rt_anew}, {cloud} {cloud_later}");

    // One panics: the other and the bare-metal VM go on.
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
    let restarts = run.telemetry.vm_states().filter(|(.., state)| *state == VmState::Restarted).count();
    assert_eq!(restarts, 1, "{run}");
    assert_eq!(run.end_of("rt"), End::Off, "{run}");
    Ok(())
}

#[test]
fn two_kernels_and_a_bare_metal_vm_live_and_die_alone_on_virt() -> Result<()> {
    live_and_die_alone(Board::Virt)
}

#[test]
fn two_kernels_and_a_bare_metal_vm_live_and_die_alone_on_zcu102() -> Result<()> {
    live_and_die_alone(Board::Zcu102)
}

/// How many pages move under a Linux that works.
const PAGES: u32 = 2000;

/// Moves random pages of all of a Linux's memory, kernel and programs alike, while it packs, unpacks and sums up files.
fn pages_move_unnoticed(board: Board, clock: Clock) -> Result<()> {
    let mut checked = load(&shipped("linux-cloud"), board)?;
    let system = &mut checked.system;
    system.pools[0].colors = ColorSet::first(12);
    let colors = ColorSet::first(15).without(ColorSet::first(12));
    system.pools.push(Pool { name: "pvt".into(), kind: PoolKind::Pvt, colors, limit: Some(PAGES) });
    let mut random = Random::new(0x006c_696e_7578);
    // The kernel itself lies in the first 27 MiB; half of the pages are there.
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
    let pages = chosen.iter().map(|&(region, page)| ProfiledPage { region, page, importance: random.bits() }).collect();
    // Well within the time that the load below takes.
    system.vms[0].profile = Some(Profile { pool: 1, pages, top: PAGES, after: Some(Nanos(6_000_000_000)) });
    let mut linux = Running::start(&checked, board, clock)?;
    linux.open("linux")?;
    // Programs, their data, the page cache and the kernel's own structures: all of it is read, written and compared.
    let load = "dd if=/dev/urandom of=/tmp/a bs=64k count=256 2>/dev/null; want=$(sha256sum < /tmp/a); n=0
        while [ $(cut -d . -f 1 /proc/uptime) -lt 12 ] || [ $n -lt 3 ]; do
            for vcpu in 1 2; do
                { gzip -1 < /tmp/a | gunzip > /tmp/b$vcpu; [ \"$(sha256sum < /tmp/b$vcpu)\" = \"$want\" ] || echo CORRUPT; } &
            done
            wait; n=$((n + 1))
        done
        [ \"$(sha256sum < /tmp/a)\" = \"$want\" ] && echo rounds=$n";
    let output = linux.output("linux", load);
    assert!(!output.contains("CORRUPT"), "{output}");
    assert!(cloison_tests::number(output.lines().last().expect("a last line"), "rounds") >= 3, "{output}");
    // The kernel has nothing to complain about.
    let complaints =
        linux.ask("linux", "dmesg | grep -iE 'oops|bug|corrupt|bad page|unable to handle|rcu.*stall|hung'")?;
    assert_eq!(complaints, Done { output: String::new(), status: 1 });
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert!(run.outcome.console.contains(&format!("VM linux: {PAGES} pages moved to its PVT pool")), "{run}");
    let moved: Vec<_> = run.telemetry.migrations().map(|(_, record)| *record).collect();
    assert!(moved.iter().all(|record| record.outcome == MigrationOutcome::Moved), "{run}");
    assert_eq!(moved.len() as u64 + run.telemetry.dropped(), u64::from(PAGES), "{run}");
    Ok(())
}

#[test]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_on_virt() -> Result<()> {
    pages_move_unnoticed(Board::Virt, Clock::Counted)
}

#[test]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_on_zcu102() -> Result<()> {
    pages_move_unnoticed(Board::Zcu102, Clock::Counted)
}

#[test]
fn two_thousand_pages_of_a_working_linux_move_unnoticed_while_all_cores_really_run() -> Result<()> {
    pages_move_unnoticed(Board::Virt, Clock::Real)
}

#[test]
fn private_memory_is_hidden_reserved_or_the_hypervisors() -> Result<()> {
    for board in Board::ALL {
        for shown in [Shown::Reserved, Shown::Hidden, Shown::Memory] {
            let mut checked = load(&shipped("linux-pvt-sh"), board)?;
            // The neighbors have their own tests; here they would only take time.
            checked.system.vms.truncate(1);
            checked.images.truncate(1);
            let ImageSource::Linux(source) = &mut checked.images[0] else { panic!("a Linux") };
            source.shown[1] = shown;
            let mut linux = Running::start(&checked, board, Clock::Counted)?;
            linux.open("linux")?;
            let known = linux.output("linux", "grep -E '^8' /proc/iomem || true");
            let expected = match shown {
                Shown::Reserved => "80000000-8001ffff : reserved\n",
                Shown::Hidden => "",
                Shown::Memory => "80000000-8001ffff : System RAM\n",
            };
            assert_eq!(known, expected);
            if shown != Shown::Memory {
                // It is there for who knows of it, and keeps what is written.
                for (address, value) in [("0x80000000", "0xC0105011"), ("0x8001FFFC", "0x12345678")] {
                    linux.output("linux", &format!("devmem {address} 32 {value}"));
                    assert_eq!(linux.output("linux", &format!("devmem {address} 32")).trim(), value);
                }
            }
            linux.output("linux", "sleep 1");
            linux.type_in("linux", "poweroff -f\n")?;
            let run = linux.finish()?.whole();
            // The hypervisor's own private pool is filled by the profile.
            let moved = run.telemetry.migrations().filter(|(_, record)| record.outcome == MigrationOutcome::Moved);
            assert_eq!(moved.count(), 32, "{run}");
        }
    }
    Ok(())
}

#[test]
fn linux_and_its_neighbors_on_shared_colors_go_on_together() -> Result<()> {
    let board = Board::Virt;
    let mut linux = Running::start(&load(&shipped("linux-pvt-sh"), board)?, board, Clock::Real)?;
    linux.open("linux")?;
    linux.output("linux", "sleep 1; uname -a");
    linux.type_in("linux", "poweroff -f\n")?;
    let run = linux.finish()?.whole();
    assert_eq!(
        (run.end_of("linux"), run.end_of("interf-1"), run.end_of("interf-2")),
        (End::Off, End::Stopped, End::Stopped)
    );
    Ok(())
}

/// With HW = 1 in the timer's list register, as on hardware: bare metal does not need the hypervisor for its ticks.
#[test]
fn the_timer_is_mediated_where_the_board_says_so_and_else_not() -> Result<()> {
    for mediated in [true, false] {
        let mut checked = load(&cloison_tests::config("migrate-alone"), Board::Virt)?;
        assert!(checked.system.board.gic.mediated_timer);
        checked.system.board.gic.mediated_timer = mediated;
        let run = cloison_tests::run(&checked, Board::Virt, Clock::Counted)?.whole();
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
        icount: Some(0),
        timeout: Some(timeout),
        log: Some(directory.path().join("logs")),
        vm: vm.map(str::to_owned),
        exec: Some(command.to_owned()),
        verbose: false,
        extra: vec![],
    };
    let code = run::run(&args(Some("linux"), "echo one; echo two; exit 3", 100))?;
    assert_eq!(code, ExitCode::from(3));
    let log = |name: &str| std::fs::read_to_string(directory.path().join("logs").join(name)).expect("a log");
    assert!(log("linux.log").contains("\none\ntwo\n"), "{}", log("linux.log"));
    assert!(log("hypervisor.log").contains("Cloison") && !log("hypervisor.log").contains("one\n"));
    // What cannot be asked, and what does not end.
    let error = run::run(&args(Some("linus"), "true", 100)).expect_err("no VM is called so");
    assert!(error.to_string().contains("no Linux VM is called `linus`"), "{error}");
    let error = run::run(&args(None, "read never < /dev/console", 20)).expect_err("it never ends");
    // On a busy machine it may not have come as far as the command.
    assert!(error.to_string().starts_with("VM `linux` did not ") && error.to_string().contains(" within "), "{error}");
    Ok(())
}

/// Without `pmu` the kernel finds none; with it, what the quotas leave.
#[test]
fn a_kernel_finds_the_pmu_that_its_vm_has() -> Result<()> {
    for board in Board::ALL {
        for granted in [false, true] {
            let mut checked = load(&shipped("linux-cloud"), board)?;
            checked.system.vms[0].pmu = granted;
            let mut linux = Running::start(&checked, board, Clock::Counted)?;
            linux.open("linux")?;
            let found = linux.ask("linux", "dmesg | grep 'hw perfevents: enabled'")?;
            assert_eq!(found.status == 0, granted, "{}", found.output);
            // The kernel counts the cycle counter too.
            let counters = checked.board.counters + 1;
            let expected = format!("enabled with armv8_cortex_a53 PMU driver, {counters} counters available");
            assert!(!granted || found.output.contains(&expected), "{}", found.output);
            let events = linux.ask("linux", "test -e /sys/bus/event_source/devices/armv8_cortex_a53")?;
            assert_eq!(events.status == 0, granted);
            linux.type_in("linux", "poweroff -f\n")?;
            linux.finish()?.whole();
        }
    }
    Ok(())
}
