//! What of EL2 guests have reached: for viewers of lcov and drcov files, and a list of what they have
//! not, with the reasons of `tests/fuzz/unreached.toml`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::cargo::SOURCES;
use cloison_engine::installation;
use cloison_profiler::symbols::{Frame, Symbols};
use cloison_prover::fuzz::state::{BlockHits, COVERAGE};
use cloison_prover::ways::Reach;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// The file with the reasons.
pub const REASONS: &str = "tests/fuzz/unreached.toml";

/// Why guests do not reach some functions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reasons {
    reason: Vec<Reason>,
}

/// Why guests do not reach functions whose names start so, and what others have inlined.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    #[serde(default)]
    functions: Vec<String>,
    /// Parts of names: of a function that is inlined there, or of the one that holds the block.
    #[serde(default)]
    inlined: Vec<String>,
    why: String,
}

/// A line of the hypervisor's source: the file, from the checkout, and the number.
type Line = (String, u32);

/// A block with what holds it.
struct Place<'a> {
    function: String,
    /// The functions that are inlined there, and the one above.
    inlined: Vec<String>,
    /// The line that it is of, or that uses the library that it is of.
    line: Option<Line>,
    block: &'a BlockHits,
}

impl Reason {
    fn is_of(&self, place: &Place<'_>) -> bool {
        let mut starts = self.functions.iter();
        let mut parts = self.inlined.iter();
        starts.any(|start| place.function.starts_with(start.as_str()))
            || parts.any(|part| {
                place
                    .inlined
                    .iter()
                    .any(|name| name.contains(part.as_str()))
            })
    }
}

/// Counts of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reached.
    pub reached: usize,
    /// Not reached, for a reason.
    pub excused: usize,
    /// Not reached, without one.
    pub missed: usize,
    /// Lines of the source with a block that was reached: the compiler copies a function to where it
    /// is called, and each copy has blocks as well.
    pub lines: usize,
    /// Lines whose blocks were all missed.
    pub missed_lines: usize,
}

impl Counts {
    /// Returns the percentage of some that are reached, with so many missed.
    fn percent(reached: usize, missed: usize) -> f64 {
        100.0 * reached as f64 / (reached + missed).max(1) as f64
    }
}

/// Writes the files for viewers and the list, and prints the counts.
///
/// # Errors
///
/// If a file cannot be read or written.
pub fn write(directory: &Path, elf: &Path) -> Result<Counts> {
    let text = std::fs::read(directory.join(COVERAGE)).into_diagnostic()?;
    let blocks: Vec<BlockHits> = serde_json::from_slice(&text).into_diagnostic()?;
    let bytes = std::fs::read(elf).into_diagnostic()?;
    let symbols = Symbols::parse("the EL2 image", &bytes).map_err(|error| miette!("{error}"))?;
    let save = |name: &str, bytes: &[u8]| {
        let file = directory.join(name);
        std::fs::write(&file, bytes)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", file.display()))
    };
    save("coverage.info", lcov(&blocks, &symbols).as_bytes())?;
    save("coverage.drcov", &drcov(&blocks, elf))?;
    let file = installation::root().join(REASONS);
    let reasons = std::fs::read_to_string(&file)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read {}", file.display()))?;
    let reasons: Reasons = toml::from_str(&reasons).into_diagnostic()?;
    let named: Vec<Place<'_>> = blocks
        .iter()
        .map(|block| {
            let frames = symbols.frames(block.start);
            Place {
                function: symbols.at(block.start).function,
                line: frames.iter().find_map(line_of),
                inlined: frames.into_iter().filter_map(|one| one.function).collect(),
                block,
            }
        })
        .collect();
    let (counts, list) = judge(&named, &reasons.reason);
    save("unreached.txt", list.as_bytes())?;
    let Counts {
        reached,
        excused,
        missed,
        lines,
        missed_lines,
    } = counts;
    println!(
        "blocks of EL2: {reached} reached by guests, {missed} not, {excused} out of reach for a \
         reason: {:.1} % of those in reach",
        Counts::percent(reached, missed)
    );
    println!(
        "lines of its source in reach: {lines} reached, {missed_lines} in no copy of them: {:.1} %",
        Counts::percent(lines, missed_lines)
    );
    println!(
        "{}/coverage.info (lcov), coverage.drcov, unreached.txt",
        directory.display()
    );
    Ok(counts)
}

/// Returns the line of a frame, if it is of the hypervisor's source.
fn line_of(frame: &Frame) -> Option<Line> {
    let file = frame.file.as_ref()?.strip_prefix(SOURCES)?;
    let file = file.strip_prefix('/')?.to_owned();
    (frame.line > 0).then_some((file, frame.line))
}

/// Returns why guests cannot reach a block, by the code alone. What ran all the same was no guest's
/// doing: other cores still start when the first program begins.
const fn why(block: &BlockHits) -> Option<&'static str> {
    match (block.reach, block.hits) {
        (Reach::Guests, _) => None,
        (Reach::Fault, 0) => Some("each path from there reports a fault of EL2"),
        (Reach::NoWay, 0) => {
            Some("no path leads there from the vectors for guests: it runs before them, or never")
        }
        (_, 1..) => Some("ran, although no path leads there from the vectors for guests"),
    }
}

/// Counts blocks, and lists those that were not reached by function.
fn judge(blocks: &[Place<'_>], reasons: &[Reason]) -> (Counts, String) {
    let mut counts = Counts::default();
    let mut missed: BTreeMap<&str, usize> = BTreeMap::new();
    let mut excused: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut seen, mut unseen) = (BTreeSet::new(), BTreeSet::new());
    for place in blocks {
        let Place {
            function,
            line,
            block,
            ..
        } = place;
        let reason = reasons.iter().find(|reason| reason.is_of(place));
        let computed = why(block);
        if let Some(why) = computed.or(reason.map(|reason| reason.why.as_str()))
            && (block.hits == 0 || computed.is_some())
        {
            counts.excused += 1;
            *excused.entry(why).or_default() += 1;
        } else if block.hits > 0 {
            counts.reached += 1;
            seen.extend(line);
        } else {
            counts.missed += 1;
            *missed.entry(function).or_default() += 1;
            unseen.extend(line);
        }
    }
    let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (file, line) in unseen.difference(&seen) {
        lines.entry(file).or_default().push(line.to_string());
        counts.missed_lines += 1;
    }
    counts.lines = seen.len();
    let mut list = String::new();
    let mut sorted: Vec<_> = missed.into_iter().collect();
    sorted.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
    for (name, count) in sorted {
        // Writing to a string does not fail.
        let _ = writeln!(list, "{count:6} {name}");
    }
    for (why, count) in excused {
        let _ = writeln!(list, "{count:6} out of reach: {why}");
    }
    for (file, numbers) in lines {
        let _ = writeln!(list, "{file}, lines: {}", numbers.join(", "));
    }
    (counts, list)
}

/// Returns coverage by line, as `genhtml` and editors read it.
fn lcov(blocks: &[BlockHits], symbols: &Symbols) -> String {
    let mut files: BTreeMap<String, BTreeMap<u32, u64>> = BTreeMap::new();
    for block in blocks {
        for address in (block.start..block.end).step_by(4) {
            let location = symbols.at(address);
            if let (Some(file), 1..) = (location.file, location.line) {
                let lines = files.entry(file.to_string()).or_default();
                let hits = lines.entry(location.line).or_default();
                *hits = block.hits.max(*hits);
            }
        }
    }
    let mut text = String::from("TN:\n");
    for (file, lines) in files {
        let _ = writeln!(text, "SF:{file}");
        for (line, hits) in &lines {
            let _ = writeln!(text, "DA:{line},{hits}");
        }
        let reached = lines.values().filter(|hits| **hits > 0).count();
        let _ = writeln!(text, "LF:{}\nLH:{reached}\nend_of_record", lines.len());
    }
    text
}

/// Returns the blocks that ran, as viewers for DynamoRIO's drcov format, version 2, read them.
fn drcov(blocks: &[BlockHits], elf: &Path) -> Vec<u8> {
    let base = blocks.first().map_or(0, |block| block.start) & !0xfff;
    let end = blocks.last().map_or(0, |block| block.end);
    let ran: Vec<_> = blocks.iter().filter(|block| block.hits > 0).collect();
    let mut bytes = format!(
        "DRCOV VERSION: 2\nDRCOV FLAVOR: drcov\nModule Table: version 2, count 1\n\
         Columns: id, base, end, entry, checksum, timestamp, path\n\
         0, {base:#x}, {end:#x}, 0x0, 0x0, 0x0, {}\nBB Table: {} bbs\n",
        elf.display(),
        ran.len()
    )
    .into_bytes();
    for block in ran {
        bytes.extend(((block.start - base) as u32).to_le_bytes());
        bytes.extend(((block.end - block.start) as u16).to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, hits: u64) -> BlockHits {
        BlockHits {
            start,
            end: start + 8,
            hits,
            reach: Reach::Guests,
        }
    }

    #[test]
    fn blocks_are_reached_excused_or_missed() {
        let mut blocks = [3, 0, 0, 0, 0, 0, 2, 1].map(|hits| block(8, hits));
        blocks[4].reach = Reach::Fault;
        blocks[5].reach = Reach::NoWay;
        blocks[6].reach = Reach::NoWay;
        let names = [
            "a::run", "a::run", "boot::go", "b::x", "a::run", "a::run", "a::run", "boot::go",
        ];
        let mut named: Vec<_> = names
            .into_iter()
            .zip(&blocks)
            .map(|(name, block)| Place {
                function: name.to_owned(),
                inlined: Vec::new(),
                line: None,
                block,
            })
            .collect();
        for (at, line) in [(0, 4), (1, 4), (2, 5), (3, 6), (7, 7)] {
            named[at].line = Some(("a.rs".into(), line));
        }
        named[3].inlined = vec!["<c::Boot as Encode>::encode".into(), "b::x".into()];
        let reasons = [Reason {
            functions: vec!["boot::".into()],
            inlined: vec!["c::Boot as".into()],
            why: "before guests".into(),
        }];
        let (counts, list) = judge(&named, &reasons);
        let wanted = Counts {
            reached: 2,
            excused: 5,
            missed: 1,
            // The one that was missed is reached in another block.
            lines: 2,
            missed_lines: 0,
        };
        assert_eq!(counts, wanted);
        named[1].line = Some(("a.rs".into(), 9));
        let (counts, lines) = judge(&named, &reasons);
        assert_eq!((counts.lines, counts.missed_lines), (2, 1));
        assert!(lines.ends_with("a.rs, lines: 9\n"), "{lines}");
        for line in [
            "1 a::run",
            "2 out of reach: before guests",
            "1 out of reach: each path from there reports",
            "1 out of reach: no path",
            "1 out of reach: ran, although",
        ] {
            assert!(list.contains(line), "{list}");
        }
    }

    #[test]
    fn drcov_has_the_blocks_that_ran() {
        let bytes = drcov(&[block(0x1004, 1), block(0x100c, 0)], Path::new("el2"));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("0, 0x1000, 0x1014,") && text.contains("BB Table: 1 bbs\n"));
        assert!(bytes.ends_with(&[4, 0, 0, 0, 8, 0, 0, 0]));
    }

    #[test]
    fn the_reasons_can_be_read() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let text = std::fs::read_to_string(root.join(REASONS)).unwrap();
        let reasons: Reasons = toml::from_str(&text).unwrap();
        assert!(reasons.reason.iter().all(|one| !one.why.is_empty()));
    }
}
