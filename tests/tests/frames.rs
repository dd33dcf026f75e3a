//! Tables as pandas, polars and pyarrow write them today give the vectors of the long CSV file with
//! the same counts. The libraries come from Python's package index, into `target/frames`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_tests::program;
use cloison_tests::python::{self, succeeds};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCKS: [[&str; 2]; 3] = [
    ["L1D_CACHE", "L1D_CACHE_REFILL"],
    ["L1D_CACHE", "CPU_CYCLES"],
    ["L1D_CACHE_REFILL", "CPU_CYCLES"],
];
const RUNS: u64 = 40;

/// Counts with a common cause in each run, as long CSV; the sub-experiments take turns.
fn long() -> String {
    let mut text = "sub_experiment,run,event,value\n".to_owned();
    for run in 0..RUNS {
        for (sub_experiment, block) in (0u64..).zip(&BLOCKS) {
            let cause = (run * 7919 + sub_experiment * 104_729) % 1009;
            for event in block {
                let share = event.len() as u64;
                let value = 100_000 + cause * share + (run * share * 31) % 97;
                let _ = writeln!(text, "{sub_experiment},{run},{event},{value}");
            }
        }
    }
    text
}

/// Imports and merges a file. Returns the long CSV and the vectors.
fn much(file: &Path, folder: &Path) -> [String; 2] {
    let of = |verb: &str| {
        let out = folder.join(format!("{verb}.csv"));
        let mut command = Command::new(program());
        command.args(["much", verb]).arg(file).arg("-o").arg(&out);
        succeeds(command.env("XDG_CACHE_HOME", folder.join("cache")));
        std::fs::read_to_string(&out).expect("the command wrote it")
    };
    ["import", "merge"].map(of)
}

#[test]
#[ignore = "on demand: installs pandas, polars and pyarrow with pip, in target/frames"]
fn tables_of_pandas_polars_and_pyarrow_give_the_vectors_of_the_long_csv() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let tables = scratch.path().join("tables");
    std::fs::create_dir(&tables).expect("a directory");
    let source = scratch.path().join("long.csv");
    std::fs::write(&source, long()).expect("written");
    let python = python::with(
        "frames",
        "pandas, polars, pyarrow",
        &["pandas", "polars", "pyarrow"],
    );
    let versions = "import sys, pandas, polars, pyarrow; print(sys.version.split()[0], \
                    pandas.__version__, polars.__version__, pyarrow.__version__)";
    print!("{}", succeeds(Command::new(&python).args(["-c", versions])));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/frames.py");
    succeeds(Command::new(&python).arg(script).arg(&source).arg(&tables));

    let [imported, vectors] = much(&source, scratch.path());
    assert_eq!(
        vectors.lines().next(),
        Some("L1D_CACHE,L1D_CACHE_REFILL,CPU_CYCLES")
    );
    let mut files: Vec<PathBuf> = std::fs::read_dir(&tables)
        .expect("the tables")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    assert_eq!(files.len(), 24);
    for file in &files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let [same, merged] = much(file, scratch.path());
        assert_eq!(same, imported, "{name}");
        assert_eq!(merged, vectors, "{name}");
        println!("{name}: the same");
    }
}
