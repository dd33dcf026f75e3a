//! The installed `cloison` without a checkout and without Rust: the program and a bundle, in an
//! empty folder.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// What a lab machine has: the program, a bundle, QEMU, and an empty folder to work in. None of it
/// is in the checkout.
struct Machine {
    home: TempDir,
}

impl Machine {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a scratch directory");
        let machine = Self { home };
        for folder in ["bin", "tools", "work"] {
            fs::create_dir(machine.path(folder)).expect("a folder");
        }
        let built = cloison_tests::program();
        fs::copy(built, machine.path("bin/cloison")).expect("the program is built");
        succeed(
            Command::new(built.with_file_name("xtask"))
                .args(["bundle", "--output"])
                .arg(machine.path("bundle")),
        );

        let paths = std::env::var_os("PATH").unwrap_or_default();
        let qemu = std::env::split_paths(&paths).map(|folder| folder.join("qemu-system-aarch64"));
        let qemu = qemu
            .into_iter()
            .find(|file| file.is_file())
            .expect("QEMU is installed");
        std::os::unix::fs::symlink(qemu, machine.path("tools/qemu-system-aarch64"))
            .expect("a link");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Runs the program in the empty folder, with an environment that knows no checkout and a PATH
    /// with QEMU alone.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(self.path("bin/cloison"));
        command
            .args(arguments)
            .current_dir(self.path("work"))
            .env_clear();
        command
            .env("PATH", self.path("tools"))
            .env("HOME", self.home.path());
        command.env("CLOISON_BUNDLE", self.path("bundle"));
        command.output().expect("the program starts")
    }

    /// As [`Self::run`]; returns standard output of a run that must succeed.
    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "cloison {arguments:?}\n{out}{err}");
        out
    }

    #[track_caller]
    fn refused(&self, message: &str) {
        let output = self.run(&["check", "configs/demo.toml"]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(message), "{text}");
    }
}

#[track_caller]
fn succeed(command: &mut Command) {
    let output = command.output().expect("it starts");
    assert!(
        output.status.success(),
        "{command:?}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Changes the last byte of a file and returns the file as it was.
fn damage(file: &Path) -> Vec<u8> {
    let before = fs::read(file).expect("a file of the bundle");
    let mut bytes = before.clone();
    *bytes.last_mut().expect("it has bytes") ^= 1;
    fs::write(file, bytes).expect("it can be written");
    before
}

#[test]
fn an_installed_program_needs_nothing_but_a_bundle() {
    let machine = Machine::new();
    let checked = machine.done(&["check", "configs/demo.toml"]);
    assert!(
        checked.contains("configs/demo.toml: ok (virt: 4 VMs"),
        "{checked}"
    );

    machine.done(&[
        "demo",
        "--stock",
        "--no-open",
        "--out",
        "demo",
        "--json",
        "demo.json",
    ]);
    let text = fs::read_to_string(machine.path("work/demo.json")).expect("the figures");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["figures"]["hem_records"], 10, "{text}");

    let csv = machine.done(&["hem", "decode", "demo/telemetry.bin"]);
    assert_eq!(
        csv.as_bytes(),
        fs::read(machine.path("work/demo/hem.csv")).expect("the demo's log")
    );
    // The names of events are those of the bundle's board file.
    assert!(csv.contains("INST_RETIRED"), "{csv}");

    let console = machine.done(&["run", "configs/demo.toml", "--icount", "--timeout", "400"]);
    assert!(console.contains("[victim]"), "{console}");
    assert!(
        machine
            .path("work/cloison-output/run/demo-virt/telemetry.bin")
            .is_file(),
        "{console}"
    );

    let listed = machine.done(&["experiment", "list"]);
    assert!(listed.contains("interference-wss"), "{listed}");

    let completions = fs::read_to_string(machine.path("bundle/share/completions/cloison.bash"));
    assert!(completions.expect("the completions").contains("--exec"));
    succeed(
        Command::new("bash")
            .arg("-n")
            .arg(machine.path("bundle/share/completions/cloison.bash")),
    );
    let manual = fs::read_to_string(machine.path("bundle/share/man/man1/cloison-run.1"));
    let manual = manual.expect("the manual page");
    assert!(
        manual.contains(".TH") && manual.contains("\\-\\-exec"),
        "{manual}"
    );

    let guest = machine.path("bundle/guests/echo");
    let before = damage(&guest);
    machine.refused("is damaged: guests/echo");
    fs::write(&guest, before).expect("it can be written");
    fs::remove_file(machine.path("bundle/bundle.json")).expect("it is there");
    machine.refused("is not a bundle");
}
