//! Commands in the documentation: finds them on a page, executes them as typed, and compares their
//! output.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Maximum difference between a number on a page and the one that is printed: compilers differ.
const TOLERANCE: f64 = 0.1;
/// What is left out on a page: a line of this alone is any number of lines, a word any word.
const LEFT_OUT: &str = "…";

/// A command of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The text to type, with its here-document.
    pub typed: String,
    /// The output that the page shows; none if it shows nothing.
    pub shown: Vec<String>,
}

/// Returns a page of the documentation.
///
/// # Panics
///
/// Panics if there is no page of this name.
pub fn page(name: &str) -> String {
    let file = installation::root().join("docs").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the part of a page below a heading of the second level.
///
/// # Panics
///
/// Panics if the page has no such heading.
pub fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    rest.split("\n## ").next().unwrap_or_default()
}

/// Returns the fenced blocks of this language.
pub fn blocks<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    text.split(&format!("```{language}\n"))
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// Returns the commands of a `console` block: the lines after `$ `, each with the lines of its
/// here-document.
pub fn steps(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = vec![];
    let mut lines = block.lines();
    while let Some(line) = lines.next() {
        let Some(command) = line.strip_prefix("$ ") else {
            steps
                .last_mut()
                .expect("a block starts with a command")
                .shown
                .push(line.to_owned());
            continue;
        };
        let mut typed = command.to_owned();
        if command.ends_with("<<'END'") {
            for line in lines.by_ref() {
                let _ = write!(typed, "\n{line}");
                if line == "END" {
                    break;
                }
            }
        }
        steps.push(Step {
            typed,
            shown: vec![],
        });
    }
    steps
}

/// Executes commands in a folder, one after the other, as typed in a shell. Each must succeed, and
/// print the page's output.
///
/// # Panics
///
/// Panics with the command and its output if it fails or prints something else.
pub fn execute(steps: &[Step], folder: &Path) {
    // In the checkout, `cargo xtask` is an alias; it is the same program from here, built with the
    // same flags and, by the workspace's manifest, with the same features.
    let root = installation::root();
    let manifest = root.join("Cargo.toml");
    let manifest = manifest.to_str().expect("a plain path");
    let alias = [
        "run",
        "--quiet",
        "--locked",
        "--manifest-path",
        manifest,
        "--bin",
        "xtask",
        "--",
    ];
    let config =
        std::fs::read_to_string(root.join(".cargo/config.toml")).expect("the checkout's own");
    let lines = config
        .lines()
        .map(|line| match line.starts_with("xtask = ") {
            true => format!("xtask = {alias:?}\n"),
            false => format!("{line}\n"),
        });
    std::fs::create_dir_all(folder.join(".cargo")).expect("a folder");
    std::fs::write(folder.join(".cargo/config.toml"), lines.collect::<String>()).expect("a file");
    let mut place = folder.to_path_buf();
    for step in steps {
        // A shell remembers its folder from one command to the next.
        let script = format!(
            "exec 2>&1\n{}\nstatus=$?; pwd > {:?}; exit $status",
            step.typed,
            folder.join(".place")
        );
        let mut command = Command::new("bash");
        command
            .args(["-c", &script])
            .current_dir(&place)
            .stdin(Stdio::null());
        // What cargo sets for the tests is not set for a user.
        let ours = |name: &str| name.starts_with("CARGO") && name != "CARGO_HOME";
        std::env::vars()
            .map(|(name, _)| name)
            .filter(|name| ours(name))
            .for_each(|name| {
                command.env_remove(name);
            });
        command.env("CARGO_TARGET_DIR", installation::target_dir());
        let output = command.output().expect("bash starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "$ {}\n{}\n{text}",
            step.typed,
            output.status
        );
        assert!(
            is_shown(&step.shown, &text),
            "$ {}\nshows\n{}\n\n{text}",
            step.typed,
            step.shown.join("\n")
        );
        place = std::fs::read_to_string(folder.join(".place"))
            .expect("the shell wrote it")
            .trim_end()
            .into();
    }
}

/// Returns whether a command printed what a page shows, if that shows anything.
fn is_shown(shown: &[String], printed: &str) -> bool {
    let printed: Vec<&str> = printed
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let shown: Vec<&str> = shown
        .iter()
        .map(String::as_str)
        .filter(|line| !line.trim().is_empty())
        .collect();
    shown.is_empty() || follows(&shown, &printed)
}

fn follows(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], rest) => rest.is_empty(),
        ([LEFT_OUT], _) => true,
        ([LEFT_OUT, shown @ ..], _) => {
            (0..printed.len()).any(|from| follows(shown, &printed[from..]))
        }
        ([line, shown @ ..], [first, printed @ ..]) => {
            is_line(line, first) && follows(shown, printed)
        }
        (_, []) => false,
    }
}

fn is_line(shown: &str, printed: &str) -> bool {
    let words = |line: &str| {
        line.split([' ', '='])
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (shown, printed): (Vec<String>, Vec<String>) = (words(shown), words(printed));
    // At the end of a line, the rest of it is left out.
    let open = shown.last().is_some_and(|word| word == LEFT_OUT);
    let as_many = shown.len() == printed.len() || (open && shown.len() <= printed.len());
    as_many
        && shown
            .iter()
            .zip(&printed)
            .all(|(shown, printed)| shown == LEFT_OUT || is_word(shown, printed))
}

fn is_word(shown: &str, printed: &str) -> bool {
    match (shown.parse::<f64>(), printed.parse::<f64>()) {
        (Ok(shown), Ok(printed)) => (shown - printed).abs() <= TOLERANCE * shown.abs(),
        _ => shown == printed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_their_here_documents_and_output() {
        let page = "# A\n\n## One\n```console\n$ a\n…\nx\n$ cat > f <<'END'\n$ no command\nEND\n\
            $ b # c\n```\n## Two\n";
        let found: Vec<Step> = blocks(section(page, "One"), "console")
            .into_iter()
            .flat_map(steps)
            .collect();
        let step = |typed: &str, shown: &[&str]| Step {
            typed: typed.to_owned(),
            shown: shown.iter().map(|line| (*line).to_owned()).collect(),
        };
        let here = "cat > f <<'END'\n$ no command\nEND";
        assert_eq!(
            found,
            [step("a", &["…", "x"]), step(here, &[]), step("b # c", &[])]
        );
    }

    #[test]
    fn output_is_what_the_page_shows() {
        let shown = |lines: &str, printed: &str| {
            is_shown(
                &lines.lines().map(str::to_owned).collect::<Vec<_>>(),
                printed,
            )
        };
        assert!(shown("", "anything"));
        assert!(shown(
            "one\n…\ncycles=1000",
            "one\ntwo\n\nthree\ncycles=1099\n"
        ));
        assert!(shown("…\n| a | … | 5 |\n…", "x\n| a  |  7 | 5 |\n"));
        assert!(shown("f: ok …", "f: ok (virt: 2 VMs)"));
        for (lines, printed) in [
            ("one", "one\ntwo"),
            ("one\ntwo", "one"),
            ("…\ncycles=1000", "cycles=1101"),
            ("…\ncycles=1000", "cycles=1000\nmore"),
            ("VM 0", "VM 1"),
            ("f: ok …", "f: bad (virt)"),
            ("| a | … | 5 |", "| a | 5 |"),
        ] {
            assert!(!shown(lines, printed), "{lines:?} {printed:?}");
        }
    }

    #[test]
    #[should_panic(expected = "$ false")]
    fn a_command_that_fails_is_noticed() {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let step = |typed: &str| Step {
            typed: typed.to_owned(),
            shown: vec![],
        };
        execute(
            &[
                step("mkdir deep && cd deep"),
                step("test ! -e deep"),
                step("false"),
            ],
            scratch.path(),
        );
    }
}
