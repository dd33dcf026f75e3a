//! Captures of the hello image: where its log ends, and what can be wrong with it.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common;

use cloison_engine::capture::hello::{CapturedHello, capture};
use cloison_engine::capture::port::{Baud, Port};
use cloison_engine::capture::session::{CaptureEnd, Observer, Remark, Role, Source};
use cloison_engine::hello::log::read_log;
use cloison_hello::TELEMETRY_LINE;
use cloison_hello::early::AT_EL1;
use cloison_hello::line::{BEGIN, END, Line, Verdict};
use common::pseudo_terminal;
use miette::Diagnostic;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than any capture takes that something else ends.
const LONG: Duration = Duration::from_secs(120);

/// What a capture shows and says.
#[derive(Default)]
struct Said {
    shown: Vec<u8>,
    remarks: Vec<String>,
}

impl Observer for Said {
    fn console(&mut self, bytes: &[u8]) {
        self.shown.extend_from_slice(bytes);
    }
    fn remark(&mut self, remark: Remark) {
        self.remarks.push(remark.to_string());
    }
}

/// A log, as the image prints it after U-Boot.
fn log() -> String {
    let lines = [
        (BEGIN, "virt", "0badcafe", Verdict::Noted),
        ("level", "2", "2", Verdict::Right),
        ("cache.ways", "8", "16", Verdict::Wrong),
        (END, "3", "1", Verdict::Noted),
    ];
    let mut text = "U-Boot 2024.01 (Jan 08 2024)\r\nStarting kernel ...\r\n".to_owned();
    for (number, (key, expected, found, verdict)) in (0..).zip(lines) {
        let line = Line {
            number,
            key: key.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
            verdict,
            remark: String::new(),
        };
        text += &format!("{line}\r\n");
    }
    text
}

struct Bench {
    directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Port {
        std::fs::write(self.path(name), bytes).expect("written");
        Port::Path(self.path(name))
    }
}

fn captured(console: Option<Port>, telemetry: Option<Port>) -> (CapturedHello, Said) {
    captured_for(LONG, console, telemetry)
}

fn captured_for(
    limit: Duration,
    console: Option<Port>,
    telemetry: Option<Port>,
) -> (CapturedHello, Said) {
    let mut said = Said::default();
    let sources: Vec<Source> = [(console, Role::Console), (telemetry, Role::Telemetry)]
        .into_iter()
        .filter_map(|(port, role)| port.map(|port| Source { port, role }))
        .collect();
    let captured = capture(&sources, Baud(115_200), Some(limit), &mut said).expect("ports");
    (captured, said)
}

/// Returns the error of a capture, and its advice.
fn refused(captured: &CapturedHello) -> String {
    let error = captured.error.as_ref().expect("an error");
    let help = error.help().expect("advice");
    format!("{error} | {help}")
}

/// The capture ends by itself after the image's last line, on a port that stays open.
#[test]
fn the_last_line_ends_a_capture_from_a_terminal() {
    let (mut board, console) = pseudo_terminal();
    let (mut second, telemetry) = pseudo_terminal();
    let sender = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        second.write_all(TELEMETRY_LINE.as_bytes()).expect("sent");
        for piece in log().as_bytes().chunks(37) {
            board.write_all(piece).expect("sent");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Ports that close are gone, and are waited for.
        std::thread::sleep(Duration::from_secs(2));
        (board, second)
    });
    let (captured, said) = captured(Some(console), Some(telemetry));
    sender.join().expect("it has sent");
    assert_eq!(captured.end, CaptureEnd::Off);
    assert_eq!(captured.telemetry, Some(true));
    assert!(
        captured.error.is_none() && said.remarks.is_empty(),
        "{:?}",
        said.remarks
    );
    assert_eq!(said.shown, captured.console);
    assert_eq!(captured.console, log().into_bytes());
}

/// A board that starts again has its log from there on; one that stops, or is not at EL2, ends too.
#[test]
fn each_end_of_the_image_is_one() {
    let bench = Bench::new();
    let whole = log();
    let cut = &whole[..whole.len() - 40];
    let cases = [
        (whole.clone(), CaptureEnd::Off),
        (format!("{cut}\r\n{whole}"), CaptureEnd::Off),
        (cut.to_owned(), CaptureEnd::LogsEnded),
        (format!("{whole}\r\n{cut}\r\n"), CaptureEnd::LogsEnded),
        (
            format!("{cut}\r\ncloison hello: stopped: exception\r\n"),
            CaptureEnd::Off,
        ),
        (format!("U-Boot 2024.01\r\n{AT_EL1}"), CaptureEnd::Off),
    ];
    for (text, end) in cases {
        let port = bench.file("console", text.as_bytes());
        let (captured, _) = captured(Some(port), None);
        assert_eq!(captured.end, end, "{text}");
        assert!(
            captured.error.is_none() && captured.telemetry.is_none(),
            "{text}"
        );
        assert_eq!(captured.console, text.as_bytes());
    }
}

#[test]
fn exchanged_ports_are_named_and_used() {
    let bench = Bench::new();
    let [console, telemetry] = [
        bench.file("first", TELEMETRY_LINE.as_bytes()),
        bench.file("second", log().as_bytes()),
    ];
    let (captured, said) = captured(Some(console), Some(telemetry));
    assert_eq!(captured.console, log().as_bytes());
    assert_eq!(captured.telemetry, Some(true));
    let [remark] = &said.remarks[..] else {
        panic!("{:?}", said.remarks)
    };
    assert!(remark.contains("the ports are exchanged"), "{remark}");
}

#[test]
fn a_second_uart_that_sends_nothing_or_something_else_is_told() {
    let bench = Bench::new();
    let console = || Some(bench.file("console", log().as_bytes()));
    let other = bench.file("other", b"login: ");
    let (captured_one, _) = captured(console(), Some(other));
    assert_eq!(captured_one.telemetry, Some(false));
    let noise: Vec<u8> = (0_u32..4_000)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let noisy = bench.file("noise", &noise);
    let (captured, said) = captured(console(), Some(noisy));
    assert_eq!(captured.telemetry, Some(false));
    assert!(captured.error.is_none());
    assert!(
        said.remarks[0].contains("is 115200 its baud rate?"),
        "{:?}",
        said.remarks
    );
}

#[test]
fn what_is_no_log_is_refused_with_advice() {
    let bench = Bench::new();
    let noise: Vec<u8> = (0_u32..4_000)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let (noisy, _) = captured(Some(bench.file("noise", &noise)), None);
    let error = refused(&noisy);
    assert!(
        error.contains("4000 bytes that are neither") && error.contains("--baud"),
        "{error}"
    );
    let (_board, silent) = pseudo_terminal();
    let (silent, _) = captured_for(Duration::from_millis(300), Some(silent), None);
    assert_eq!(silent.end, CaptureEnd::TimeIsUp);
    assert!(refused(&silent).contains("nothing arrived"));
    // Text without a line of the image: its reader says what it may be.
    let texts = [
        (
            "[core 0] Cloison 0.1.0 on virt: kit, 16 colors\r\n",
            "of another image",
        ),
        ("Starting kernel ...\r\n\r\n", "printed nothing"),
        ("ZynqMP> \r\nZynqMP> \r\n", "from power-on on"),
    ];
    for (text, words) in texts {
        let port = bench.file("console", text.as_bytes());
        let (captured, _) = captured(Some(port), None);
        assert!(captured.error.is_none(), "{text}");
        let text = String::from_utf8_lossy(&captured.console).into_owned();
        let error = read_log(&text).expect_err("no log");
        let help = error.help().expect("advice").to_string();
        assert!(help.contains(words), "{help}");
    }
}
