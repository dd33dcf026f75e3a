//! `show`, `export` and `import`: read or convert a profile, without running a program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::command::{Export, Format, Import};
use crate::error::Error;
use crate::files;
use cloison_profile::{Profile, Times, document, export, raw};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// Most pages that are shown; files have all.
const SHOWN: usize = 40;

/// Shows a profile.
pub fn show(path: &Path) -> Result<ExitCode, Error> {
    print!("{}", described(&files::read(path)?));
    Ok(ExitCode::SUCCESS)
}

/// Returns a profile as text for people.
fn described(profile: &Profile) -> String {
    let mut out = String::new();
    let _ = describe(profile, &mut out);
    out
}

fn describe(profile: &Profile, out: &mut String) -> std::fmt::Result {
    let provenance = &profile.provenance;
    let command: Vec<&str> = std::iter::once(&provenance.program)
        .chain(&provenance.arguments)
        .map(String::as_str)
        .collect();
    for (key, value) in [
        ("program", command.join(" ")),
        ("function", provenance.symbol.clone()),
        (
            "ends before",
            provenance
                .end
                .map_or_else(String::new, |end| format!("{end:#x}")),
        ),
        ("allocator", provenance.allocator.join(" ")),
        ("kernel", provenance.kernel.clone()),
        ("board", provenance.board.clone()),
        ("made by", provenance.tool.clone()),
        ("mode", format!("{}, in {}", profile.mode, profile.unit)),
        ("pages", profile.pages().to_string()),
    ] {
        if !value.is_empty() {
            writeln!(out, "{key:<12} {value}")?;
        }
    }
    let baseline = &profile.baseline;
    for (name, times) in [
        ("no page", baseline.none),
        ("all pages", baseline.all),
        ("tracing", baseline.tracing),
    ] {
        if let Some(Times {
            min,
            mean,
            max,
            samples,
        }) = times
        {
            writeln!(
                out,
                "{name:<12} {mean:.0} ({min} to {max}, {samples} samples)"
            )?;
        }
    }
    writeln!(
        out,
        "\n{:>5} {:>4} {:<20} {:>6} {:>14} {:>8}",
        "rank", "kind", "mapping", "page", "importance", "part"
    )?;
    let reference = profile.reference();
    let ranked = profile.ranked();
    for (rank, it) in (1..).zip(ranked.iter().take(SHOWN)) {
        let vma = profile.vmas.iter().find(|vma| vma.index == it.page.vma);
        let (kind, name) = vma.map_or((None, ""), |vma| (vma.kind, vma.name.as_str()));
        let kind = kind.map_or_else(|| "?".to_owned(), |kind| kind.to_string());
        let name = if name.is_empty() {
            format!("mapping {}", it.page.vma)
        } else {
            name.to_owned()
        };
        let part = if reference > 0.0 {
            100.0 * it.importance / reference
        } else {
            0.0
        };
        writeln!(
            out,
            "{rank:>5} {kind:>4} {name:<20} {:>6} {:>14.0} {part:>7.2}%",
            it.page.offset, it.importance
        )?;
    }
    if ranked.len() > SHOWN {
        writeln!(
            out,
            "... and {} more: `bbprof export` has all",
            ranked.len() - SHOWN
        )?;
    }
    for excluded in &profile.excluded {
        writeln!(
            out,
            "left out: {} pages of {}: {}",
            excluded.pages, excluded.name, excluded.reason
        )?;
    }
    Ok(())
}

/// Writes a profile for other programs.
pub fn export(wanted: &Export) -> Result<ExitCode, Error> {
    let profile = files::read(&wanted.profile)?;
    let text = match wanted.format {
        Format::Csv => export::csv(&profile).map_err(|error| Error::Other(error.to_string()))?,
        Format::Json => format!("{}\n", export::json(&profile)),
    };
    files::write_or_print(wanted.out.as_deref(), &text)?;
    Ok(ExitCode::SUCCESS)
}

/// Converts a file of BBProf's profiler.
pub fn import(wanted: &Import) -> Result<ExitCode, Error> {
    let bytes = files::bytes(&wanted.file)?;
    let profile = raw::read(&bytes, wanted.mode.into()).map_err(|source| Error::Raw {
        path: wanted.file.clone(),
        source,
    })?;
    files::write_or_print(wanted.out.as_deref(), &document::write(&profile))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_profile::{Baseline, Block, Mode, Provenance, VmaProfile};

    #[test]
    fn a_profile_is_shown_most_important_first() {
        let block = |offset, cycles| Block {
            offset,
            pages: 1,
            times: Times::one(cycles),
            counts: vec![],
        };
        let blocks = (0..50)
            .map(|offset| block(offset, 900 - u64::from(offset)))
            .collect();
        let profile = Profile {
            mode: Mode::Cacheable,
            unit: "cycles".into(),
            provenance: Provenance {
                program: "tool".into(),
                ..Provenance::default()
            },
            baseline: Baseline {
                none: Some(Times::one(1000)),
                ..Baseline::default()
            },
            events: vec![],
            vmas: vec![VmaProfile {
                index: 4,
                kind: None,
                name: "[heap]".into(),
                pages: 50,
                blocks,
            }],
            excluded: vec![],
        };
        let text = described(&profile);
        let first = text
            .lines()
            .find(|line| line.trim_start().starts_with("1 "))
            .unwrap();
        let words: Vec<&str> = first.split_whitespace().collect();
        assert_eq!(words, ["1", "?", "[heap]", "49", "149", "14.90%"]);
        assert!(
            text.contains("... and 10 more") && text.starts_with("program      tool\n"),
            "{text}"
        );
    }
}
