//! What can be wrong with a capture: each has a message that says what, and what to do.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;

use cloison_engine::capture::port::{Baud, Port, PortError};
use cloison_engine::capture::session::{Captured, Observer, Remark, Role, Session, Source, listen};
use cloison_engine::capture::stream::announcement;
use cloison_engine::configuration;
use cloison_engine::telemetry::wire;
use cloison_formats::color::ColorSet;
use cloison_formats::ids::{Core, VmId};
use cloison_formats::image::System;
use cloison_formats::telemetry::{
    BootInfo, Entry, MAX_MESSAGE, Message, Record, STARTS, StackUse, VERSION, VmInfo, VmState,
    encode,
};
use cloison_formats::units::Nanos;
use common::pseudo_terminal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longer than any capture takes that something else ends.
const LONG: Duration = Duration::from_secs(120);

const CONSOLE: &str = "\
U-Boot 2024.01 (Jan 08 2024 - 18:44:11 +0000)\r\n\
Starting kernel ...\r\n\
[core 0] Cloison 0.1.0 on virt: pvt-sh, 16 colors, own colors 15, 2 VMs\r\n\
[core 0] all VMs are off; turning the machine off\r\n";

fn system() -> System {
    let path = Path::new("configs/pvt-sh.toml");
    configuration::load(path, None)
        .expect("a shipped configuration")
        .system
}

fn sent(message: &Message) -> Vec<u8> {
    encode(message, &mut [0; MAX_MESSAGE])
        .expect("it fits")
        .to_vec()
}

fn boot(system: &str, board: &str, version: u16) -> Vec<u8> {
    sent(&Message::Boot(BootInfo {
        version,
        system: system.into(),
        board: board.into(),
        colors: 16,
        hypervisor_colors: ColorSet(1),
        hypervisor_pages: 1,
        hypervisor_frames: vec![],
        timer_hz: 62_500_000,
    }))
}

fn state(vm: u8, at: u64, state: VmState) -> Vec<u8> {
    sent(&Message::Entry(Entry {
        core: Core(0),
        at: Nanos(at),
        record: Record::VmState {
            vm: VmId(vm),
            state,
        },
    }))
}

/// A stream of the system, in whole messages.
fn messages() -> Vec<Vec<u8>> {
    let system = system();
    let mut all = vec![boot("pvt-sh", "virt", VERSION)];
    all.extend(
        system
            .vms
            .iter()
            .map(|vm| sent(&Message::Vm(announcement(vm)))),
    );
    for vm in 0..2 {
        all.push(state(vm, 10 + u64::from(vm), VmState::Started));
        all.push(state(vm, 20 + u64::from(vm), VmState::Off));
    }
    // The last record before the machine turns itself off.
    all.push(sent(&Message::Entry(Entry {
        core: Core(0),
        at: Nanos(30),
        record: Record::StackUse(StackUse {
            core: None,
            used: 1_000,
            size: 8_192,
        }),
    })));
    all
}

/// Bytes that are neither text nor telemetry.
fn noise() -> Vec<u8> {
    (0_u32..20_000)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

/// What a capture says.
#[derive(Default)]
struct Said(Vec<String>);

impl Observer for Said {
    fn console(&mut self, _: &[u8]) {}
    fn remark(&mut self, remark: Remark) {
        if !matches!(remark, Remark::Record(_)) {
            self.0.push(remark.to_string());
        }
    }
}

/// A scratch directory, in which logs are ports.
struct Bench {
    directory: tempfile::TempDir,
    /// When a capture that nothing else ends is over.
    limit: Duration,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a scratch directory");
        Self {
            directory,
            limit: LONG,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn log(&self, name: &str, bytes: &[u8]) -> Port {
        std::fs::write(self.path(name), bytes).expect("written");
        Port::Path(self.path(name))
    }

    /// Captures, and returns everything that it says.
    fn capture(&self, console: Option<Port>, telemetry: Option<Port>) -> String {
        self.capture_of(&system(), console, telemetry)
    }

    fn capture_of(
        &self,
        system: &System,
        console: Option<Port>,
        telemetry: Option<Port>,
    ) -> String {
        let mut said = Said::default();
        let sources: Vec<Source> = [(console, Role::Console), (telemetry, Role::Telemetry)]
            .into_iter()
            .filter_map(|(port, role)| port.map(|port| Source { port, role }))
            .collect();
        match listen(&sources, Baud(115_200)) {
            Err(error) => said.0.push(rendered(&error)),
            Ok(listener) => {
                let session = Session::new(system, &sources, Baud(115_200));
                let Captured {
                    end, runs, error, ..
                } = session.run(&listener, Some(self.limit), &mut said);
                let frames: usize = runs.iter().map(|run| run.frames()).sum();
                said.0.push(match error {
                    Some(error) => rendered(&error),
                    None => format!("{end}; {} runs, {frames} messages\n", runs.len()),
                });
            }
        }
        // Two ports are read by two threads.
        if let Some((_, remarks)) = said.0.split_last_mut() {
            remarks.sort();
        }
        let place = format!("{}/", self.directory.path().display());
        said.0.join("\n").replace(&place, "")
    }
}

fn rendered(error: &dyn miette::Diagnostic) -> String {
    let mut text = String::new();
    let theme = miette::GraphicalTheme::unicode_nocolor();
    let handler = miette::GraphicalReportHandler::new_themed(theme)
        .with_width(1_000)
        .with_links(false);
    handler
        .render_report(&mut text, error)
        .expect("the error renders");
    text
}

fn check(name: &str, said: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, said));
}

/// Returns what a capture says without the names of this machine's ports.
fn anywhere(said: &str) -> String {
    let is_list = |line: &&str| !line.contains("serial ports");
    said.lines()
        .filter(is_list)
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn a_good_log_is_a_run() {
    let bench = Bench::new();
    let console = bench.log("console", CONSOLE.as_bytes());
    let telemetry = bench.log("telemetry", &messages().concat());
    check("good", &bench.capture(Some(console), Some(telemetry)));
}

/// Telemetry between the lines of the console: whole, and with a byte lost at each place of a
/// record. Without the byte that starts it or ends it, it can be read all the same.
#[test]
fn one_line_carries_both() {
    let bench = Bench::new();
    let mut system = system();
    system.board.telemetry = Some(system.board.console);
    let (first, second) = CONSOLE.split_at(CONSOLE.find("[core 0]").expect("a line"));
    let mut line = first.as_bytes().to_vec();
    let mut starts = Vec::new();
    for message in messages() {
        starts.push(line.len());
        line.push(STARTS);
        line.extend(message);
    }
    // In the middle of a line, too.
    let (banner, last) = second.split_at(30);
    line.extend(banner.as_bytes());
    line.push(STARTS);
    line.extend(state(1, 40, VmState::Off));
    line.extend(last.as_bytes());
    let capture = |bytes: &[u8]| {
        let port = bench.log("both", bytes);
        bench.capture_of(&system, Some(port), None)
    };
    let whole = capture(&line);
    let count = messages().len() + 1;
    assert!(
        whole.contains(&format!("turned off; 1 runs, {count} messages")),
        "{whole}"
    );
    assert!(!whole.contains("damaged"), "{whole}");
    // A record of a state: neither the first message nor an announcement.
    for at in starts[4] + 1..starts[5] - 1 {
        let mut damaged = line.clone();
        damaged.remove(at);
        let said = capture(&damaged);
        assert!(said.contains("damaged"), "byte {at}: {said}");
        let least = count - 2;
        let read = said.rsplit("1 runs, ").next().unwrap_or_default();
        let read: usize = read
            .split(' ')
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or_default();
        assert!((least..count).contains(&read), "byte {at}: {said}");
    }
}

#[test]
fn ports_that_cannot_be_opened() {
    let bench = Bench::new();
    let path = |name: &str| Some(Port::Path(bench.path(name)));
    let missing = bench.capture(path("ttyUSB7"), None);
    assert!(missing.contains("this machine"), "{missing}");
    check("no_port", &anywhere(&missing));
    std::fs::create_dir(bench.path("serial")).expect("a directory");
    check("directory", &bench.capture(path("serial"), None));
    let null = Some(Port::Path("/dev/null".into()));
    check("no_serial_port", &anywhere(&bench.capture(null, None)));
    let denied = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    let denied = Port::Path("/dev/ttyUSB0".into()).cannot_open(denied);
    check("no_permission", &rendered(&denied));
    let busy = std::io::Error::from_raw_os_error(16);
    let busy = Port::Path("/dev/ttyUSB0".into()).cannot_open(busy);
    check("busy", &rendered(&busy));
    bench.log("empty", b"");
    check("empty_log", &bench.capture(path("empty"), None));
    let tcp = |port| Port::Tcp {
        host: "127.0.0.1".into(),
        port,
    };
    check("no_server", &bench.capture(Some(tcp(1)), None));
    let texts = ["", "tcp:", "tcp:lab", "tcp:lab:0", "tcp:lab:ssh"].map(|text| {
        let error = text.parse::<Port>().expect_err("no port");
        format!("{text:?}: {error}\n")
    });
    check("bad_names", &texts.concat());
}

#[test]
fn one_port_for_both() {
    let bench = Bench::new();
    let port = bench.log("ttyUSB0", CONSOLE.as_bytes());
    let twice = bench.capture(Some(port.clone()), Some(port.clone()));
    check("same_port", &twice);
    std::os::unix::fs::symlink(bench.path("ttyUSB0"), bench.path("by-id")).expect("a link");
    let link = Some(Port::Path(bench.path("by-id")));
    check("same_port_by_link", &bench.capture(Some(port), link));
}

#[test]
fn ports_that_carry_something_else() {
    let bench = Bench::new();
    let console = || Some(bench.log("console", CONSOLE.as_bytes()));
    let telemetry = || Some(bench.log("telemetry", &messages().concat()));
    check("exchanged", &bench.capture(telemetry(), console()));
    let other = Some(bench.log("other", CONSOLE.as_bytes()));
    // Which of two equal ports is used, the first bytes decide.
    let twice = bench.capture(console(), other);
    assert!(
        twice.contains("carries the console too, and is not used"),
        "{twice}"
    );
    let other = Some(bench.log("other", &messages().concat()));
    let twice = bench.capture(other, telemetry());
    assert!(
        twice.contains("carries the telemetry too, and is not used"),
        "{twice}"
    );
    let noisy = || Some(bench.log("noise", &noise()));
    check("console_of_another_rate", &bench.capture(noisy(), None));
    check("telemetry_of_another_rate", &bench.capture(None, noisy()));
    let zeros = Some(bench.log("zeros", &[0; 5_000]));
    check("zeros", &bench.capture(None, zeros));
}

#[test]
fn logs_of_something_else() {
    let bench = Bench::new();
    let stream = |name: &str, first: Vec<u8>| {
        let mut all = messages();
        all[0] = first;
        Some(bench.log(name, &all.concat()))
    };
    let image = stream("image", boot("kit", "virt", VERSION));
    check("another_image", &bench.capture(None, image));
    let board = stream("board", boot("pvt-sh", "zcu102", VERSION));
    check("another_board", &bench.capture(None, board));
    let version = stream("version", boot("pvt-sh", "virt", VERSION + 1));
    check("another_version", &bench.capture(None, version));
    let mut vms = messages();
    vms[1] = sent(&Message::Vm(VmInfo {
        name: "renamed".into(),
        cores: vec![Core(0)],
        pages: 1,
        untrusted: vec![],
    }));
    let vms = Some(bench.log("vms", &vms.concat()));
    check("a_changed_configuration", &bench.capture(None, vms));
    let banner = CONSOLE.replace("pvt-sh", "demo");
    let banner = Some(bench.log("banner", banner.as_bytes()));
    check("another_banner", &bench.capture(banner, None));
}

#[test]
fn runs_that_are_not_whole() {
    let bench = Bench::new();
    let whole = messages().concat();
    let log = |name: &str, bytes: &[u8]| Some(bench.log(name, bytes));
    let cut = log("cut", &whole[..whole.len() - 3]);
    check("truncated", &bench.capture(None, cut));
    let late = log("late", &messages()[2..].concat());
    check("joined_late", &bench.capture(None, late));
    let mut lost = messages();
    lost[1].remove(5);
    let lost = log("lost", &lost.concat());
    check("a_lost_announcement", &bench.capture(None, lost));
    let firmware = CONSOLE.split("[core").next().unwrap_or_default();
    let firmware = log("firmware", firmware.as_bytes());
    check("firmware_only", &bench.capture(firmware, None));
    let reset = log(
        "reset",
        &[messages().concat(), messages().concat()].concat(),
    );
    check("reset", &bench.capture(None, reset));
}

#[test]
fn silence() {
    let bench = Bench {
        limit: Duration::from_millis(300),
        ..Bench::new()
    };
    let (_board, port) = pseudo_terminal();
    let name = port.to_string();
    let said = bench.capture(Some(port), None);
    check("silence", &said.replace(&name, "/dev/pts/N"));
}

#[test]
fn a_port_that_goes_and_comes_back() {
    let bench = Bench::new();
    let (first, port) = pseudo_terminal();
    let link = bench.path("cable");
    let name = |port: &Port| PathBuf::from(port.to_string());
    std::os::unix::fs::symlink(name(&port), &link).expect("a link");
    let system = system();
    let source = Source {
        port: Port::Path(link.clone()),
        role: Role::Telemetry,
    };
    let sources = [source];
    let listener = listen(&sources, Baud(115_200)).expect("it opens");
    let session = Session::new(&system, &sources, Baud(115_200));
    let all = messages();
    let board = std::thread::spawn(move || {
        let (mut board, mut pieces) = (first, all.into_iter());
        for piece in pieces.by_ref().take(4) {
            board.write_all(&piece).expect("sent");
        }
        std::thread::sleep(Duration::from_millis(300));
        // The cable is pulled out, and plugged in again at another port.
        drop(board);
        std::fs::remove_file(&link).expect("a link");
        std::thread::sleep(Duration::from_millis(300));
        let (mut board, port) = pseudo_terminal();
        std::os::unix::fs::symlink(name(&port), &link).expect("a link");
        // The board sends while nobody listens, too.
        std::thread::sleep(Duration::from_millis(600));
        pieces.next();
        for piece in pieces {
            board.write_all(&piece).expect("sent");
        }
        std::thread::sleep(Duration::from_millis(300));
    });
    let mut said = Said::default();
    let captured = session.run(&listener, Some(LONG), &mut said);
    board.join().expect("it ends");
    assert!(captured.error.is_none(), "{:?}", captured.error);
    assert_eq!(captured.runs[0].frames(), messages().len() - 1);
    let said = said.0.join("\n");
    assert!(
        said.contains("is gone; waiting") && said.contains("is back after"),
        "{said}"
    );
}

#[test]
fn a_console_server() {
    let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = server.local_addr().expect("it has one").port();
    let board = std::thread::spawn(move || {
        let halves = messages().concat();
        let (one, other) = halves.split_at(70);
        for half in [one, other] {
            // The server restarts in the middle of a message, of which nothing is lost.
            let (mut line, _) = server.accept().expect("a client");
            line.write_all(half).expect("sent");
        }
    });
    let system = system();
    let source = Source {
        port: Port::Tcp {
            host: "localhost".into(),
            port,
        },
        role: Role::Telemetry,
    };
    let sources = [source];
    let listener = listen(&sources, Baud(115_200)).expect("it connects");
    let session = Session::new(&system, &sources, Baud(115_200));
    let captured = session.run(&listener, Some(LONG), &mut Said::default());
    board.join().expect("it ends");
    assert_eq!(captured.runs[0].bytes, messages().concat());
    assert!(captured.runs[0].damages.is_empty());
}

#[test]
fn a_baud_rate_that_no_port_has() {
    let (_board, port) = pseudo_terminal();
    let error = port.open(Baud(0)).err();
    assert!(
        matches!(error, None | Some(PortError::Settings { .. })),
        "{error:?}"
    );
}

/// Returns which of so many bytes are lost: one in 10,000, by a generator (SplitMix64).
fn losses(len: usize) -> Vec<usize> {
    let mut seed = 41_u64;
    let mut next = || {
        seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    (0..len).filter(|_| next() % 10_000 == 0).collect()
}

#[test]
fn a_line_that_loses_bytes_costs_the_damaged_records_only() {
    let mut all = messages();
    let last = all.pop().expect("the last record");
    all.extend((0..6_000_u32).map(|count| {
        sent(&Message::Entry(Entry {
            core: Core(1),
            at: Nanos(1_000_000 + u64::from(count) * 12_345),
            record: Record::Dropped { count },
        }))
    }));
    all.push(last);
    let len = all.iter().map(Vec::len).sum();
    let lost = losses(len);
    assert!(lost.len() >= 5, "{} of {len}", lost.len());
    let (mut at, mut received, mut whole, mut hit) = (0, Vec::new(), Vec::new(), 0);
    let mut is_joined = false;
    for message in &all {
        let range = at..at + message.len();
        at = range.end;
        let kept = range.clone().filter(|byte| !lost.contains(byte));
        received.extend(kept.map(|byte| message[byte - range.start]));
        // A message that has lost its end is joined to the next one.
        let is_hit = range.clone().any(|byte| lost.contains(&byte));
        if is_hit || is_joined {
            hit += 1;
        } else {
            whole.extend_from_slice(message);
        }
        is_joined = lost.contains(&(range.end - 1));
    }
    let (mut board, port) = pseudo_terminal();
    let source = Source {
        port,
        role: Role::Telemetry,
    };
    let system = system();
    let sources = [source];
    let listener = listen(&sources, Baud(115_200)).expect("it opens");
    let session = Session::new(&system, &sources, Baud(115_200));
    let sender = received.clone();
    let sender = std::thread::spawn(move || {
        board.write_all(&sender).expect("sent");
        board
    });
    let mut said = Said::default();
    let captured = session.run(&listener, Some(LONG), &mut said);
    drop(sender.join().expect("it ends"));
    assert!(captured.error.is_none(), "{:?}", captured.error);
    assert_eq!(captured.runs[0].bytes, received);
    let read = |bytes: &[u8]| -> Vec<Message> {
        wire::decode(bytes)
            .filter_map(|(_, one)| one.ok())
            .collect()
    };
    assert_eq!(read(&received), read(&whole));
    assert_eq!(read(&received).len() + hit, all.len());
    let named: Vec<&String> = said
        .0
        .iter()
        .filter(|one| one.starts_with("damaged"))
        .collect();
    assert_eq!(named.len(), captured.runs[0].damages.len());
    assert!(
        named.len() == lost.len() && hit >= named.len(),
        "{named:#?}"
    );
    for damage in &captured.runs[0].damages {
        assert!(damage.after.contains("at ") && damage.before.contains("at "));
    }
}
