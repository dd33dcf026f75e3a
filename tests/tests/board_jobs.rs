//! A board runs jobs (`cloison submit --engine board`), rehearsed with Debian's U-Boot on QEMU's
//! `virt`: a network with QEMU's TFTP server, and its UARTs as pseudo-terminals or TCP ports.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::guest_linux::Release;
use cloison_engine::image::numbered::numbered;
use cloison_engine::qemu::Machine;
use cloison_engine::setup::Firmware;
use cloison_engine::setup::emulator::PROGRAM;
use cloison_engine::telemetry::{Telemetry, wire};
use cloison_engine::{configuration, setup};
use cloison_formats::telemetry::{Entry, MAX_MESSAGE, Message, Record, encode};
use cloison_formats::units::{Cycles, Nanos};
use cloison_lab::boards::result;
use cloison_lab::jobs::manifest;
use cloison_tests::VIRT;
use cloison_tests::jobs::{CommandResult, Lab};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a test waits for what happens by itself.
const PATIENCE: Duration = Duration::from_secs(120);
/// The next image, in the folder that the TFTP server offers.
const IMAGE: &str = "cloison-next.img";
/// The size of U-Boot's environment on `virt` (`CONFIG_ENV_SIZE`), and of the flash with it.
const ENVIRONMENT: usize = 0x4_0000;
const FLASH: u64 = 64 << 20;
/// What `saveenv` would have kept on a board: it asks the network for the script.
const VARIABLES: [&str; 4] = [
    "bootdelay=0",
    "bootcmd=setenv autoload no; while true; do dhcp; tftpboot ${scriptaddr} boot.scr.uimg && source ${scriptaddr}; sleep 1; done",
    "kernel_addr_r=0x40400000",
    "scriptaddr=0x40200000",
];

/// Waits until something is so.
#[track_caller]
fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(
            started.elapsed() < PATIENCE,
            "{what}: not after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A TCP port that nobody uses.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A `virt` machine whose U-Boot fetches from a folder. It is reset by its monitor, and stops with
/// the test.
struct Board {
    qemu: Child,
    /// Its console and its telemetry, as `--console` and `--telemetry` name them.
    ports: [String; 2],
    monitor: u16,
    _flash: tempfile::TempDir,
}

/// What the machine's UARTs are on this side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Terminals,
    Tcp,
}

impl Board {
    fn start(folder: &Path, lines: Lines) -> Self {
        setup::qemu().expect("QEMU");
        let firmware = Firmware::UBoot.obtain(Release::Bookworm).expect("U-Boot");
        let board = configuration::emulation(VIRT).expect("its file");
        let home = tempfile::tempdir().expect("a directory");
        let flash = flash(home.path());
        let ports = [free_port(), free_port()];
        let monitor = free_port();
        let mut command = Command::new(PROGRAM);
        command
            .args(board.machine_arguments())
            .args(["-display", "none"])
            .args(&board.options)
            .arg("-bios")
            .arg(firmware)
            .arg("-drive")
            .arg(format!(
                "if=pflash,index=1,format=raw,file={}",
                flash.display()
            ))
            .arg("-netdev")
            .arg(format!("user,id=net,tftp={}", folder.display()))
            .args(["-device", "virtio-net-device,netdev=net"])
            .arg("-monitor")
            .arg(format!("tcp:127.0.0.1:{monitor},server=on,wait=off"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        for port in ports {
            command.arg("-serial").arg(match lines {
                Lines::Terminals => "pty".to_owned(),
                Lines::Tcp => format!("tcp:127.0.0.1:{port},server=on,wait=off"),
            });
        }
        let mut qemu = command.spawn().expect("QEMU starts");
        let ports = match lines {
            Lines::Tcp => {
                // The monitor is the last one that listens.
                until("QEMU", || {
                    TcpStream::connect(("127.0.0.1", monitor)).is_ok()
                });
                ports.map(|port| format!("tcp:127.0.0.1:{port}"))
            }
            Lines::Terminals => {
                let output = BufReader::new(qemu.stdout.take().expect("its output"));
                let names: Vec<String> = output
                    .lines()
                    .map_while(Result::ok)
                    .filter_map(|line| {
                        let name = line.split_once("redirected to ")?.1;
                        Some(name.split(' ').next()?.to_owned())
                    })
                    .take(2)
                    .collect();
                names.try_into().expect("two terminals")
            }
        };
        Self {
            qemu,
            ports,
            monitor,
            _flash: home,
        }
    }

    /// Returns the command that resets it.
    fn reset(&self) -> String {
        let monitor = self.monitor;
        let send =
            format!("exec 3<>/dev/tcp/127.0.0.1/{monitor}; echo system_reset >&3; sleep 0.2");
        format!("bash -c '{send}'")
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Writes a flash with U-Boot's environment: a CRC-32, and the variables.
fn flash(home: &Path) -> PathBuf {
    let path = home.join("flash");
    let mut data: Vec<u8> = VARIABLES
        .iter()
        .flat_map(|variable| variable.bytes().chain([0]))
        .collect();
    data.resize(ENVIRONMENT - 4, 0);
    let mut file = File::create(&path).expect("a file");
    let sum = crc32fast::hash(&data).to_le_bytes();
    file.write_all(&sum).expect("written");
    file.write_all(&data).expect("written");
    file.set_len(FLASH).expect("its size");
    path
}

/// Makes the jobs of a file for the board.
fn jobs(lab: &Lab) -> PathBuf {
    lab.jobs_with("jobs", &["--machine", "hardware", "--board", VIRT])
}

/// Starts `submit` on the board; its messages go to a file.
fn submit(lab: &Lab, directory: &Path, served: &Path, board: &[&str], log: &Path) -> Child {
    let (directory, served) = (
        directory.display().to_string(),
        served.display().to_string(),
    );
    let mut args = vec![
        "submit", &directory, "--engine", "board", "--serve", &served,
    ];
    args.extend(board);
    let log = File::options().create(true).append(true).open(log);
    let mut command = lab.command(&args, &[]);
    command.stdout(Stdio::null()).stderr(log.expect("a file"));
    command.spawn().expect("it starts")
}

/// The number of results.
fn results(directory: &Path) -> usize {
    let found = fs::read_dir(directory.join("results"))
        .into_iter()
        .flatten();
    found
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|it| it == "result"))
        .count()
}

/// Returns telemetry without what differs between two runs of one image in real time: times,
/// cycles, how often a VM left for the hypervisor, and how deep the stacks were.
fn without_times(telemetry: &[u8]) -> Vec<u8> {
    let timeless = |message| {
        let Message::Entry(Entry { core, record, .. }) = message else {
            return message;
        };
        let record = match record {
            Record::Hem(mut hem) => {
                hem.cycles = Cycles(0);
                Record::Hem(hem)
            }
            Record::Exits { vm, .. } => Record::Exits {
                vm,
                counts: Default::default(),
            },
            Record::StackUse(mut stack) => {
                stack.used = 0;
                Record::StackUse(stack)
            }
            other => other,
        };
        let at = Nanos(0);
        Message::Entry(Entry { core, at, record })
    };
    wire::decode(telemetry)
        .flat_map(|(_, message)| {
            let message = timeless(message.expect("it is whole"));
            let mut buffer = [0; MAX_MESSAGE];
            encode(&message, &mut buffer).expect("it fits").to_vec()
        })
        .collect()
}

/// Returns a console without the times that the guest prints: ticks, cycles, and ticks per access.
fn without_printed_times(console: &str) -> String {
    let mut before = "";
    let words = console.split(' ').map(|word| {
        let is_time = std::mem::replace(&mut before, word) == "access";
        match word.split_once('=') {
            _ if is_time => "T",
            Some(("ticks", _)) => "ticks=T",
            Some(("cycles", _)) => "cycles=T",
            _ => word,
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Compares the board's results with those of the same images, started by QEMU without U-Boot: the
/// console and the telemetry, byte for byte except times.
fn compare(directory: &Path) {
    let emulation = configuration::emulation(VIRT).expect("its file");
    let (_, jobs) = manifest::read(directory).expect("the jobs");
    let scratch = tempfile::tempdir().expect("a directory");
    for job in &jobs {
        let boot = job.boot.with_parts_in(&directory.join("parts"));
        let kept = boot.image().expect("it is for a board");
        let number = NonZeroUsize::new(job.job).expect("from 1");
        let limit = u32::try_from(job.boot.limit_s).expect("it fits");
        let image = numbered(&kept.read().expect("its parts"), number, limit).expect("it is valid");
        let file = scratch.path().join("Image");
        image.write(&file).expect("written");
        let run = Machine::new(&emulation, &file).run().expect("QEMU starts");
        assert!(run.exit.is_clean(), "{}: {}", run.exit, run.console);
        let file = result::path(&manifest::results(directory), &job.key);
        let found = result::read(&file, &job.key).expect("a result");
        let [shown, expected] = [&found.console, &run.console].map(|it| without_printed_times(it));
        assert_eq!(shown, expected, "{}", job.run);
        assert!(found.console.contains(&image.system.name));
        let [found, expected] = [&found.telemetry, &run.telemetry].map(|it| without_times(it));
        assert!(found == expected, "{}: other telemetry", job.run);
    }
}

/// Has a board run an experiment of many boots, with exchanged ports, while `submit` is killed and
/// interrupted; then compares all results.
fn rehearse(runs: usize) {
    let lab = Lab::new(runs as u64);
    let directory = jobs(&lab);
    let served = lab.path("tftp");
    fs::create_dir(&served).expect("a directory");
    let log = lab.path("log");
    let board = Board::start(&served, Lines::Terminals);
    let reset = board.reset();
    let [console, telemetry] = board.ports.each_ref();
    let started = Instant::now();
    let submit = || {
        let ports = [
            "--console",
            telemetry,
            "--telemetry",
            console,
            "--reset",
            &reset,
        ];
        submit(&lab, &directory, &served, &ports, &log)
    };
    // Killed, then interrupted.
    for (signal, after) in [("KILL", runs / 4), ("INT", runs / 2)] {
        let mut first = submit();
        until("results", || results(&directory) >= after);
        // The shell's: a minimal system has no other.
        let sent = Command::new("sh")
            .args(["-c", "kill -s \"$@\"", "kill", signal])
            .arg(first.id().to_string())
            .status();
        assert!(sent.expect("a shell starts").success());
        assert!(!first.wait().expect("it ends").success());
    }
    assert!(results(&directory) < runs, "it was interrupted too late");
    let mut last = submit();
    let status = last.wait().expect("it ends");
    let said = fs::read_to_string(&log).expect("the messages");
    assert!(status.success(), "{said}");
    println!(
        "{runs} runs on the board: {:.0} s",
        started.elapsed().as_secs_f64()
    );
    assert!(
        said.contains(&format!("the ports are exchanged: {console} carries")),
        "{said}"
    );
    assert!(
        said.contains("interrupted: ") && said.contains("the same command continues"),
        "{said}"
    );
    assert!(!served.join(IMAGE).exists(), "nothing is offered any more");
    assert!(!directory.join("failed").exists(), "{said}");

    let collected = lab.collect(&directory);
    assert_eq!(collected.code, 0, "{collected:?}");
    let report = |name: &str| fs::read_to_string(directory.join("report").join(name)).expect(name);
    let figures = report("figures.json");
    for text in [
        r#""qemu": "none: a board executed the images""#,
        r#""modelled": "false""#,
        &format!(r#""runs": {runs}"#),
    ] {
        assert!(figures.contains(text), "{text} in {figures}");
    }
    let page = report("report.html");
    assert!(page.contains("Measured: a board executed the images") && !page.contains("Modelled"));
    compare(&directory);
}

#[test]
fn a_board_runs_jobs_as_qemu_does() {
    rehearse(8);
}

/// The long form, by hand: some minutes.
#[test]
#[ignore = "sixty boots by U-Boot, and sixty without"]
fn a_board_runs_sixty_jobs_as_qemu_does() {
    rehearse(60);
}

/// Has a board run all jobs of a directory, round by round, until there is a report. Returns the
/// number of rounds, and what the last one said.
fn run_rounds(lab: &Lab, directory: &Path, served: &Path, board: &Board) -> (usize, CommandResult) {
    let log = lab.path("log");
    let reset = board.reset();
    let [console, telemetry] = board.ports.each_ref();
    let ports = [
        "--console",
        console,
        "--telemetry",
        telemetry,
        "--reset",
        &reset,
    ];
    for round in 1.. {
        let status = submit(lab, directory, served, &ports, &log).wait();
        let said = || fs::read_to_string(&log).expect("the messages");
        assert!(status.expect("it ends").success(), "{}", said());
        let collected = lab.collect(directory);
        if collected.code != 75 {
            assert_eq!(collected.code, 0, "{collected:?}");
            return (round, collected);
        }
        assert!(
            round < 12 && collected.says("to run now"),
            "{collected:?} {}",
            said()
        );
    }
    unreachable!("a round has returned")
}

/// What the model says of a campaign and of a profile is not there; the counts and the times are
/// those of the board.
#[test]
fn a_board_counts_a_campaign_profiles_a_vm_and_judges_events() {
    let (campaign, profile) = (Lab::campaign(1), Lab::profile(&[]));
    let served = campaign.path("tftp");
    fs::create_dir(&served).expect("a directory");
    let board = Board::start(&served, Lines::Terminals);

    let directory = jobs(&campaign);
    let (rounds, collected) = run_rounds(&campaign, &directory, &served, &board);
    assert_eq!(rounds, 1);
    assert!(collected.out.contains("(measured)"), "{collected:?}");
    let read = |directory: &Path, name: &str| {
        fs::read_to_string(directory.join("report").join(name)).expect(name)
    };
    let page = read(&directory, "report.html");
    assert!(
        page.contains("Measured: a board executed the images"),
        "{page}"
    );
    let place = "chase/seed-1";
    let counts = read(&directory, &format!("{place}/counts.csv"));
    // Runs of 3 events, of each of 2 sub-experiments.
    let (_, all) = manifest::read(&directory).expect("the jobs");
    assert_eq!(all.len(), 1);
    let file = result::path(&manifest::results(&directory), &all[0].key);
    let found = result::read(&file, &all[0].key).expect("a result");
    let logged = Telemetry::parse(&found.telemetry);
    let logged: usize = logged.hem_runs().map(|run| run.counts().count()).sum();
    assert_eq!(counts.lines().count(), 1 + logged, "{counts}");
    assert!(page.contains(&format!("{place}/merge.html")), "{page}");
    for name in ["vectors.csv", "vectors.parquet", "merge.html"] {
        let file = directory.join("report").join(place).join(name);
        assert!(file.metadata().expect(name).len() > 0);
    }
    assert!(
        !directory
            .join("report")
            .join(place)
            .join("truth.csv")
            .exists()
    );

    let directory = jobs(&profile);
    // Without the model, time says nothing of pages: chance decides whether any of them matters.
    let (_, collected) = run_rounds(&profile, &directory, &served, &board);
    assert!(
        collected.out.contains("Importance (measured on the board)"),
        "{collected:?}"
    );
    assert_eq!(read(&directory, "pages.csv").lines().count(), 41);
    assert!(read(&directory, "figures.json").contains(r#""modelled": "false""#));

    let benchmarks = Lab::benchmarks();
    let directory = jobs(&benchmarks);
    let (rounds, _) = run_rounds(&benchmarks, &directory, &served, &board);
    assert_eq!(rounds, 1);
    let own = read(&directory, "verdicts.toml");
    let (head, verdicts) = own.split_once("[[verdict]]").expect("verdicts");
    assert!(head.contains("machine = \"hardware\""), "{head}");
    // A counter that QEMU lacks stays at zero on this board too.
    let here = benchmarks.path("here.toml");
    let (file, to) = (benchmarks.file(), here.display().to_string());
    let file = file.display().to_string();
    benchmarks.good(&["events", "validate", "--manifest", &file, "--out", &to]);
    let here = fs::read_to_string(here).expect("verdicts");
    let here = here.split_once("[[verdict]]").expect("verdicts").1;
    assert_eq!(verdicts, here);
    assert!(here.contains("INST_RETIRED"), "{here}");
}

/// A console server whose line breaks once: after it has passed on two texts, one after the other.
struct BadCable {
    port: u16,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<bool>>,
}

impl BadCable {
    fn new(to: &str, breaks_after: [&'static [u8]; 2]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener.set_nonblocking(true).expect("it can wait");
        let port = listener.local_addr().expect("its address").port();
        let address = to.strip_prefix("tcp:").expect("an address").to_owned();
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            // QEMU listens soon after its start.
            let mut tries = (0..100).map(|_| {
                std::thread::sleep(Duration::from_millis(100));
                TcpStream::connect(&address)
            });
            let mut board = tries.find_map(Result::ok).expect("QEMU listens");
            board
                .set_read_timeout(Some(Duration::from_millis(20)))
                .expect("it can wait");
            let (mut client, mut passed, mut broken): (
                Option<TcpStream>,
                Vec<u8>,
                Option<Instant>,
            ) = (None, vec![], None);
            let mut bytes = [0; 256];
            while !end.load(Relaxed) {
                let is_away =
                    broken.is_some_and(|since| since.elapsed() < Duration::from_millis(500));
                if client.is_none() && !is_away {
                    client = listener.accept().ok().map(|(stream, _)| stream);
                }
                let length = match board.read(&mut bytes) {
                    Ok(0) => break,
                    Ok(length) => length,
                    Err(error)
                        if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                    {
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                // What nobody listens to is lost.
                let Some(stream) = &mut client else { continue };
                if stream.write_all(&bytes[..length]).is_err() {
                    client = None;
                    continue;
                }
                passed.extend_from_slice(&bytes[..length]);
                let mut rest = &passed[..];
                let is_there = breaks_after.iter().all(|text| {
                    let at = rest.windows(text.len()).position(|it| it == *text);
                    at.is_some_and(|at| {
                        rest = &rest[at..];
                        true
                    })
                });
                if broken.is_none() && is_there {
                    broken = Some(Instant::now());
                    client = None;
                }
            }
            broken.is_some()
        });
        Self {
            port,
            is_over,
            thread: Some(thread),
        }
    }

    /// Ends it. Returns whether it has broken.
    fn end(mut self) -> bool {
        self.is_over.store(true, Relaxed);
        self.thread
            .take()
            .is_some_and(|thread| thread.join().expect("it ends"))
    }
}

/// Two short runs, and one whose guest never ends.
fn with_a_run_that_hangs() -> Lab {
    let lab = Lab::new(2);
    let text = fs::read_to_string(lab.file()).expect("the experiment");
    let hangs = "[[variant]]\nname = 'stuck'\n\
                 remove = ['vm.other-1', 'vm.other-2', 'vm.other-3']\n\
                 set = { 'vm.victim.image.workload' = 'echo', 'vm.victim.args' = [0, 0, 0, 0] }\n";
    fs::write(lab.file(), text + hangs).expect("written");
    lab
}

#[test]
fn a_board_that_fails_is_named_and_loses_nothing() {
    let lab = with_a_run_that_hangs();
    let directory = jobs(&lab);
    let served = lab.path("tftp");
    fs::create_dir(&served).expect("a directory");
    let (_, all) = manifest::read(&directory).expect("the jobs");
    let runs: Vec<&str> = all.iter().map(|job| job.run.as_str()).collect();
    assert_eq!(runs.len(), 3);
    assert_eq!(runs[2], "runs/stuck");

    // The board starts with an image that nobody has offered: it fits, but is none of these jobs.
    let board = Board::start(&served, Lines::Tcp);
    let cable = BadCable::new(&board.ports[1], [b"memory 2 ", b"victim"]);
    let telemetry = format!("tcp:127.0.0.1:{}", cable.port);
    // Whatever happens, it resets itself.
    let reset = "false";
    let log = lab.path("log");
    let ports = [
        "--console",
        &board.ports[0],
        "--telemetry",
        &telemetry,
        "--reset",
        reset,
        "--run-limit",
        "12",
    ];
    let foreign = {
        let boot = all[0].boot.with_parts_in(&directory.join("parts"));
        let kept = boot.image().expect("it is for a board").read();
        let number = NonZeroUsize::new(9).expect("it is not 0");
        numbered(&kept.expect("its parts"), number, 600).expect("it is valid")
    };
    let fresh = lab.path("foreign.img");
    foreign.write(&fresh).expect("written");
    let mut command = submit(&lab, &directory, &served, &ports, &log);
    until("an image", || served.join(IMAGE).exists());
    fs::rename(&fresh, served.join(IMAGE)).expect("another image");
    let status = command.wait().expect("it ends");
    let said = fs::read_to_string(&log).expect("the messages");
    println!("{said}");
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(cable.end(), "the cable did not break: {said}");
    let one_line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in [
        &format!(
            "not taken: this is a run of {} on {VIRT}",
            foreign.system.name
        ),
        &format!("{telemetry} is gone"),
        &format!(
            "job 2 ({}): {telemetry} was gone during the run; once more",
            runs[1]
        ),
        "job 3 (runs/stuck): no end within 12 s of its start; once more",
        "job 3 (runs/stuck): no end within 12 s of its start; it has no result",
        "1 of 3 jobs failed twice",
    ] {
        assert!(one_line.contains(text), "{text} in {said}");
    }
    // Two results, and a note about the third.
    assert_eq!(results(&directory), 2);
    let collected = lab.collect(&directory);
    assert!(
        collected.code == 75
            && collected.says("1 of 3 jobs have no result")
            && collected.says("no end within 12 s of its start"),
        "{collected:?}"
    );
    // A job for a board is not started in QEMU, and one for QEMU not on a board.
    let refused = lab.run(&directory, 3);
    assert!(
        refused.code == 1 && refused.says("the job is for board `virt`, and not for QEMU"),
        "{refused:?}"
    );
    let emulated = Lab::new(1);
    let jobs = emulated.jobs("jobs").display().to_string();
    let served = served.display().to_string();
    let refused = emulated.cloison(
        &[
            "submit",
            &jobs,
            "--engine",
            "board",
            "--console",
            "tcp:localhost:1",
            "--serve",
            &served,
        ],
        &[],
    );
    assert!(
        refused.code == 1 && refused.says("the jobs are for QEMU, and not for a board"),
        "{refused:?}"
    );
}
