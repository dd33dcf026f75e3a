//! What carries out a plan: scripts for perf and PAPI, a part of a system's file, or a table.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::files::write_atomic;
use cloison_much::data::FEWEST_RUNS;
use miette::{IntoDiagnostic, Result, WrapErr};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

/// Options of what carries out a plan.
#[derive(Clone, Debug, clap::Args)]
pub struct RunnerArgs {
    /// Write what carries out the plan: a script for perf or PAPI on any machine that has them,
    /// [vm.campaign] of a system's file, or a table
    #[arg(
        long = "for",
        value_enum,
        value_name = "WHAT",
        conflicts_with = "table"
    )]
    pub target: Option<Target>,
    /// Runs of each sub-experiment, for --for
    #[arg(long, value_name = "N", default_value_t = FEWEST_RUNS, requires = "target")]
    pub repeats: usize,
    /// Where --for writes (default: to standard output)
    #[arg(
        short,
        long = "out",
        alias = "output",
        value_name = "FILE",
        requires = "target"
    )]
    pub output: Option<PathBuf>,
}

/// What carries out a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// A script that calls perf stat for each run, and collects what it writes
    Perf,
    /// A script that runs a program that uses PAPI's high-level interface
    Papi,
    /// `[vm.campaign]` for Cloison
    Campaign,
    /// CSV with a row for each event of each sub-experiment
    Csv,
}

/// An event as a runner knows it.
#[derive(Clone, Debug)]
pub struct RunEvent {
    /// Its name.
    pub name: String,
    /// Its number in the PMU.
    pub code: Option<u32>,
}

impl RunEvent {
    /// Returns what perf calls it: numbers as raw events.
    fn of_perf(&self) -> String {
        self.code
            .map_or_else(|| self.name.clone(), |code| format!("r{code:x}"))
    }
    /// Returns what PAPI calls it.
    fn of_papi(&self) -> String {
        self.code
            .map_or_else(|| self.name.clone(), |code| format!("perf_raw::r{code:x}"))
    }
}

/// Writes what carries out a plan, if the options ask for it. Returns whether they do.
///
/// # Errors
///
/// If the file cannot be written.
pub fn write(
    args: &RunnerArgs,
    sub_experiments: &[Vec<usize>],
    events: &[RunEvent],
) -> Result<bool> {
    let Some(target) = args.target else {
        return Ok(false);
    };
    let blocks: Vec<Vec<&RunEvent>> = sub_experiments
        .iter()
        .map(|block| block.iter().map(|&event| &events[event]).collect())
        .collect();
    let text = match target {
        Target::Perf => perf(&blocks, events, args.repeats),
        Target::Papi => papi(&blocks, events, args.repeats),
        Target::Campaign => campaign(&blocks, args.repeats),
        Target::Csv => table(&blocks)?,
    };
    match &args.output {
        Some(path) => write_atomic(path, text.as_bytes())?,
        None => std::io::stdout()
            .write_all(text.as_bytes())
            .into_diagnostic()
            .wrap_err("cannot write to standard output")?,
    }
    Ok(true)
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes a text, or a key, for TOML.
fn of_toml(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// The start of a script: its options, and the file that maps names.
fn head(what: &str, default: &str, repeats: usize, names: &[(String, &str)]) -> String {
    let mut text = format!(
        "#!/bin/sh\n\
         # {what}\n\
         # Usage: sh THIS PROGRAM [ARGUMENT...]\n\
         # RUNS: runs of each sub-experiment; OUT: where the counts go. Sub-experiments take turns.\n\
         # Then: cloison much merge \"$OUT\" -o vectors.csv\n\
         set -eu\n\
         RUNS=${{RUNS:-{repeats}}}\n\
         OUT=${{OUT:-{default}}}\n\
         if [ $# -eq 0 ]; then echo \"usage: sh $0 PROGRAM [ARGUMENT...]\" >&2; exit 2; fi\n\
         if [ -e \"$OUT\" ]; then echo \"$OUT exists: remove it, or set OUT\" >&2; exit 1; fi\n"
    );
    if !names.is_empty() {
        text.push_str("cat > \"$OUT.much.toml\" <<'END'\n[names]\n");
        for (from, to) in names {
            let _ = writeln!(text, "{} = {}", of_toml(from), of_toml(to));
        }
        text.push_str("END\n");
    }
    text
}

fn names(events: &[RunEvent], of: impl Fn(&RunEvent) -> String) -> Vec<(String, &str)> {
    let pairs = events.iter().map(|event| (of(event), event.name.as_str()));
    pairs.filter(|(from, to)| from != to).collect()
}

/// The loop over all runs, whose body calls `count` for each sub-experiment.
fn rounds(blocks: &[Vec<&RunEvent>], of: impl Fn(&RunEvent) -> String) -> String {
    let mut text = "run=0\nwhile [ \"$run\" -lt \"$RUNS\" ]; do\n".to_owned();
    for block in blocks {
        let events: Vec<String> = block.iter().map(|event| of(event)).collect();
        let _ = writeln!(text, "  count {} \"$@\"", quoted(&events.join(",")));
    }
    text.push_str("  run=$((run + 1))\ndone\n");
    text
}

fn perf(blocks: &[Vec<&RunEvent>], events: &[RunEvent], repeats: usize) -> String {
    let names = names(events, RunEvent::of_perf);
    let what = "Counts events by perf stat, a few at a time.";
    let mut text = head(what, "counts.csv", repeats, &names);
    text.push_str(
        "count() {\n  \
           events=$1\n  \
           shift\n  \
           LC_ALL=C \"${PERF:-perf}\" stat -x, -o \"$OUT\" --append -e \"$events\" -- \"$@\"\n\
         }\n",
    );
    text + &rounds(blocks, RunEvent::of_perf)
}

fn papi(blocks: &[Vec<&RunEvent>], events: &[RunEvent], repeats: usize) -> String {
    let names = names(events, RunEvent::of_papi);
    let what = "Counts events by PAPI's high-level interface, a few at a time.";
    let mut text = head(what, "counts", repeats, &names);
    text.push_str(
        "mkdir -p \"$OUT\"\n\
         number=0\n\
         count() {\n  \
           events=$1\n  \
           shift\n  \
           number=$((number + 1))\n  \
           PAPI_EVENTS=$events PAPI_OUTPUT_DIRECTORY=\"$OUT/last\" \"$@\"\n  \
           for file in \"$OUT\"/last/papi_hl_output*/*.json; do\n    \
             mv \"$file\" \"$OUT/run-$(printf %06d \"$number\")-${file##*/}\"\n  \
           done\n  \
           rm -r \"$OUT/last\"\n\
         }\n",
    );
    text + &rounds(blocks, RunEvent::of_papi)
}

fn campaign(blocks: &[Vec<&RunEvent>], repeats: usize) -> String {
    let mut text = "[vm.campaign]\nsub_experiments = [\n".to_owned();
    for block in blocks {
        let names: Vec<String> = block.iter().map(|it| of_toml(&it.name)).collect();
        let _ = writeln!(text, "    [{}],", names.join(", "));
    }
    let _ = writeln!(text, "]\nruns = {repeats}");
    text
}

fn table(blocks: &[Vec<&RunEvent>]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(vec![]);
    writer
        .write_record(["sub_experiment", "event_code", "event"])
        .into_diagnostic()?;
    for (number, block) in blocks.iter().enumerate() {
        for event in block {
            let code = event
                .code
                .map_or_else(String::new, |code| format!("{code:#x}"));
            writer
                .write_record([number.to_string(), code, event.name.clone()])
                .into_diagnostic()?;
        }
    }
    String::from_utf8(writer.into_inner().into_diagnostic()?).into_diagnostic()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_much::read::{Form, Request, Rows, read_as};
    use std::process::Command;

    const BLOCKS: [&[usize]; 3] = [&[0, 1], &[0, 2], &[1, 2]];

    fn events() -> Vec<RunEvent> {
        let event = |name: &str, code| RunEvent {
            name: name.to_owned(),
            code,
        };
        vec![
            event("page-faults", None),
            event("CPU_CYCLES", Some(0x11)),
            event("it's", None),
        ]
    }

    fn written(target: Target) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let args = RunnerArgs {
            target: Some(target),
            repeats: 30,
            output: Some(path.clone()),
        };
        let blocks: Vec<Vec<usize>> = BLOCKS.iter().map(|block| block.to_vec()).collect();
        assert!(write(&args, &blocks, &events()).expect("written"));
        std::fs::read_to_string(path).expect("a file")
    }

    #[test]
    fn a_campaign_and_a_table_name_the_events() {
        let text = written(Target::Campaign);
        let value: toml::Value =
            toml::from_str(&text.replace("[vm.campaign]", "[campaign]")).expect("TOML");
        assert_eq!(value["campaign"]["runs"].as_integer(), Some(30));
        assert_eq!(
            value["campaign"]["sub_experiments"][1][1].as_str(),
            Some("it's")
        );
        assert!(written(Target::Csv).contains("\n1,,page-faults\n1,,it's\n2,0x11,CPU_CYCLES\n"));
    }

    /// With a program in place of perf, which writes in its form.
    #[test]
    fn the_script_for_perf_runs_and_its_counts_are_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("count.sh"), written(Target::Perf)).expect("written");
        let perf = "#!/bin/sh\n\
                    { echo '# started on a day'; echo\n\
                    for event in $(echo \"$7\" | sed \"s/it's/its/; s/,/ /g\"); do\n  \
                    echo \"$(wc -l < \"${10}\"),,$event,1000,100.00,,\"\ndone; } >> \"$4\"\n\
                    echo >> \"${10}\"\n";
        let run = || {
            Command::new("sh")
                .arg(at("count.sh"))
                .args(["touch"])
                .arg(at("runs"))
                .env("PERF", "./perf-of-test")
                .env("RUNS", "3")
                .current_dir(folder.path())
                .output()
                .expect("sh")
        };
        std::fs::write(at("perf-of-test"), perf).expect("written");
        let mut permissions = std::fs::metadata(at("perf-of-test"))
            .expect("a file")
            .permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
        std::fs::set_permissions(at("perf-of-test"), permissions).expect("a program");
        std::fs::write(at("runs"), "").expect("written");
        let output = run();
        assert!(output.status.success(), "{output:?}");
        let found = read_as(&at("counts.csv"), &Request::default(), &Rows::new()).expect("counts");
        assert_eq!((found.form, found.measurements.runs()), (Form::PerfCsv, 9));
        assert_eq!(found.measurements.sub_experiments.len(), 3);
        let names = std::fs::read_to_string(at("counts.csv.much.toml")).expect("a file");
        assert_eq!(names, "[names]\n\"r11\" = \"CPU_CYCLES\"\n");
        assert!(
            !run().status.success(),
            "counts are not mixed with older ones"
        );
    }

    #[test]
    fn the_script_for_papi_is_valid() {
        let text = written(Target::Papi);
        assert!(
            text.contains("count 'page-faults,perf_raw::r11' \"$@\""),
            "{text}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("papi.sh");
        std::fs::write(&path, text).expect("written");
        let valid = Command::new("sh").arg("-n").arg(path).status().expect("sh");
        assert!(valid.success());
    }
}
