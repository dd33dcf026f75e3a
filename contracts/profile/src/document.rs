//! The file format of profiles, version 2: TOML with a checksum. Version 1 names pages of a VM's
//! regions, not of a process.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::layout::Kind;
use crate::profile::{Baseline, Block, Excluded, Mode, Profile, Provenance, VmaProfile};
use crate::times::Times;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::ops::Range;
use thiserror::Error;

/// Version of the file format that this module reads and writes.
pub const VERSION: u64 = 2;
/// Start of a checksum.
const SHA256: &str = "sha256:";

/// Why a file is no profile.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum DocumentError {
    /// It is not TOML, or not with the fields of a profile.
    #[error("{message}")]
    Syntax {
        /// The mistake.
        message: String,
        /// Bytes of the file that are.
        span: Range<usize>,
    },
    /// It has another version.
    #[error(
        "the profile has version {0}; this is read by other programs (version 1: `profile` of a \
         [[vm]])"
    )]
    Version(u64),
    /// The checksum is missing, or not where it must be.
    #[error("the profile has no checksum: its second line must be `checksum = \"sha256:...\"`")]
    NoChecksum,
    /// It has changed since it was written.
    #[error(
        "the profile has changed since it was written: its checksum is {found}, of its contents \
         {computed}"
    )]
    Checksum {
        /// The checksum in the file.
        found: String,
        /// The checksum of what is there.
        computed: String,
    },
    /// Its contents contradict themselves.
    #[error("{0}")]
    Contents(String),
}

/// The least of a document: which version it has.
#[derive(Deserialize)]
struct Head {
    version: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u64,
    checksum: String,
    mode: Mode,
    unit: String,
    #[serde(default)]
    events: Vec<String>,
    #[serde(default)]
    provenance: Provenance,
    #[serde(default)]
    baseline: Baseline,
    #[serde(default)]
    vma: Vec<Vma>,
    #[serde(default)]
    excluded: Vec<Excluded>,
}

/// A row of `page`: offset, minimum, mean, maximum, samples.
type PageRow = (u32, u64, f64, u64, u32);
/// A row of `block`: offset, pages, minimum, mean, maximum, samples.
type BlockRow = (u32, u32, u64, f64, u64, u32);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vma {
    index: u32,
    #[serde(default)]
    kind: Option<Kind>,
    #[serde(default)]
    name: String,
    pages: u32,
    #[serde(default)]
    page: Vec<PageRow>,
    #[serde(default)]
    block: Vec<BlockRow>,
    /// Offset, and the mean of each event.
    #[serde(default)]
    counts: Vec<(u32, Vec<f64>)>,
}

impl From<Vma> for VmaProfile {
    fn from(vma: Vma) -> Self {
        let counts = |offset| {
            let found = vma.counts.iter().find(|(at, _)| *at == offset);
            found.map_or_else(Vec::new, |(_, counts)| counts.clone())
        };
        let of = |offset, pages, times| Block {
            offset,
            pages,
            times,
            counts: counts(offset),
        };
        let page = |(offset, min, mean, max, samples)| {
            of(
                offset,
                1,
                Times {
                    min,
                    mean,
                    max,
                    samples,
                },
            )
        };
        let block = |(offset, pages, min, mean, max, samples)| {
            of(
                offset,
                pages,
                Times {
                    min,
                    mean,
                    max,
                    samples,
                },
            )
        };
        let mut blocks: Vec<Block> = vma
            .page
            .into_iter()
            .map(page)
            .chain(vma.block.into_iter().map(block))
            .collect();
        blocks.sort_by_key(|block| block.offset);
        Self {
            index: vma.index,
            kind: vma.kind,
            name: vma.name,
            pages: vma.pages,
            blocks,
        }
    }
}

/// Returns the version that a profile's text names, known or not; `None` if it names none.
pub fn version(text: &str) -> Option<u64> {
    toml::from_str::<Head>(text).ok().map(|head| head.version)
}

fn checksum(body: &str) -> String {
    let hash = Sha256::digest(body.as_bytes());
    hash.iter().fold(SHA256.to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns what follows the checksum's line, and the checksum.
fn body(text: &str) -> Option<(&str, &str)> {
    let mut lines = text.splitn(3, '\n');
    let (version, checksum, body) = (lines.next()?, lines.next()?, lines.next()?);
    let value = checksum
        .trim()
        .strip_prefix("checksum = \"")?
        .strip_suffix('"')?;
    version
        .trim_start()
        .starts_with("version")
        .then_some((value, body))
}

/// Reads a profile.
///
/// # Errors
/// If the text is not TOML with the fields of a profile, of another version, changed, or
/// contradicts itself.
pub fn read(text: &str) -> Result<Profile, DocumentError> {
    let syntax = |error: toml::de::Error| DocumentError::Syntax {
        message: error.message().to_owned(),
        span: error.span().unwrap_or_default(),
    };
    let head: Head = toml::from_str(text).map_err(syntax)?;
    if head.version != VERSION {
        return Err(DocumentError::Version(head.version));
    }
    // Before anything else is looked at: a damaged file is called so, and not misread.
    let (found, body) = body(text).ok_or(DocumentError::NoChecksum)?;
    let computed = checksum(body);
    if found != computed {
        return Err(DocumentError::Checksum {
            found: found.to_owned(),
            computed,
        });
    }
    let document: Document = toml::from_str(text).map_err(syntax)?;
    let profile = Profile {
        mode: document.mode,
        unit: document.unit,
        events: document.events,
        provenance: document.provenance,
        baseline: document.baseline,
        vmas: document.vma.into_iter().map(VmaProfile::from).collect(),
        excluded: document.excluded,
    };
    match profile.fault() {
        Some(fault) => Err(DocumentError::Contents(fault)),
        None => Ok(profile),
    }
}

/// Returns a string as TOML writes it.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn quoted_list(texts: &[String]) -> String {
    let list: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", list.join(", "))
}

/// Returns a float as TOML writes it: always with a point, so that a reader keeps its type.
fn float(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    }
}

/// Writes a profile.
pub fn write(profile: &Profile) -> String {
    let mut body = String::new();
    // Writing into a string cannot fail.
    let _ = write_body(profile, &mut body);
    format!(
        "version = {VERSION}\nchecksum = \"{}\"\n{body}",
        checksum(&body)
    )
}

fn write_body(profile: &Profile, out: &mut String) -> std::fmt::Result {
    let Profile {
        mode,
        unit,
        provenance,
        baseline,
        events,
        vmas,
        excluded,
    } = profile;
    writeln!(
        out,
        "# The checksum is of everything below its line. A row of `page` is offset, min, mean, \
         max, samples;"
    )?;
    writeln!(
        out,
        "# one of `block` has the number of its pages after the offset."
    )?;
    writeln!(
        out,
        "mode = \"{mode}\"\nunit = {}\nevents = {}\n",
        quoted(unit),
        quoted_list(events)
    )?;
    write_provenance(provenance, out)?;
    write_baseline(baseline, out)?;
    vmas.iter().try_for_each(|vma| write_vma(vma, out))?;
    for Excluded {
        vma,
        name,
        pages,
        reason,
    } in excluded
    {
        let (name, reason) = (quoted(name), quoted(reason));
        writeln!(
            out,
            "\n[[excluded]]\nvma = {vma}\nname = {name}\npages = {pages}\nreason = {reason}"
        )?;
    }
    Ok(())
}

fn write_provenance(provenance: &Provenance, out: &mut String) -> std::fmt::Result {
    writeln!(out, "[provenance]")?;
    for (key, value) in [
        ("program", &provenance.program),
        ("sha256", &provenance.sha256),
        ("symbol", &provenance.symbol),
        ("kernel", &provenance.kernel),
        ("board", &provenance.board),
        ("tool", &provenance.tool),
    ] {
        writeln!(out, "{key} = {}", quoted(value))?;
    }
    writeln!(out, "arguments = {}", quoted_list(&provenance.arguments))?;
    writeln!(out, "allocator = {}", quoted_list(&provenance.allocator))?;
    let environment = quoted_list(&provenance.environment);
    writeln!(out, "environment = {environment}")?;
    for (key, value) in [("end", provenance.end), ("stack", provenance.stack)] {
        if let Some(value) = value {
            writeln!(out, "{key} = {value}")?;
        }
    }
    Ok(())
}

fn write_baseline(baseline: &Baseline, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[baseline]")?;
    for (key, times) in [
        ("none", baseline.none),
        ("all", baseline.all),
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
                "{key} = {{ min = {min}, mean = {}, max = {max}, samples = {samples} }}",
                float(mean)
            )?;
        }
    }
    Ok(())
}

fn write_vma(vma: &VmaProfile, out: &mut String) -> std::fmt::Result {
    writeln!(out, "\n[[vma]]\nindex = {}", vma.index)?;
    if let Some(kind) = vma.kind {
        writeln!(out, "kind = \"{kind}\"")?;
    }
    writeln!(out, "name = {}\npages = {}", quoted(&vma.name), vma.pages)?;
    let (single, several): (Vec<&Block>, Vec<&Block>) =
        vma.blocks.iter().partition(|block| block.pages == 1);
    let offset = |block: &Block| block.offset.to_string();
    let offset_and_pages = |block: &Block| format!("{}, {}", block.offset, block.pages);
    write_rows(
        "page",
        single.into_iter().map(|block| (offset(block), block)),
        out,
    )?;
    write_rows(
        "block",
        several
            .into_iter()
            .map(|block| (offset_and_pages(block), block)),
        out,
    )?;
    let counted = vma.blocks.iter().filter(|block| !block.counts.is_empty());
    let rows = counted.map(|block| {
        let counts: Vec<String> = block.counts.iter().map(|&count| float(count)).collect();
        format!("{}, [{}]", block.offset, counts.join(", "))
    });
    write_list("counts", rows, out)
}

/// Writes the times of blocks after what names each.
fn write_rows<'a>(
    key: &str,
    blocks: impl Iterator<Item = (String, &'a Block)>,
    out: &mut String,
) -> std::fmt::Result {
    let rows = blocks.map(|(name, block)| {
        let Times {
            min,
            mean,
            max,
            samples,
        } = block.times;
        format!("{name}, {min}, {}, {max}, {samples}", float(mean))
    });
    write_list(key, rows, out)
}

/// Writes a list of lists, or nothing if it is empty.
fn write_list(key: &str, rows: impl Iterator<Item = String>, out: &mut String) -> std::fmt::Result {
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "{key} = [")?;
    rows.try_for_each(|row| writeln!(out, "    [{row}],"))?;
    writeln!(out, "]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::profiles;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_again(profile in profiles()) {
            let text = write(&profile);
            prop_assert_eq!(read(&text), Ok(profile), "{}", text);
        }

        #[test]
        fn no_change_of_a_byte_goes_unnoticed(
            profile in profiles(),
            at in any::<prop::sample::Index>(),
            other in 0_u8..128,
        ) {
            let text = write(&profile);
            let mut bytes = text.clone().into_bytes();
            let at = at.index(bytes.len());
            prop_assume!(bytes[at] != other);
            bytes[at] = other;
            if let Ok(changed) = String::from_utf8(bytes) {
                // Spaces around the version and the checksum say nothing.
                prop_assert!(
                    read(&changed).map_or(true, |read| read == profile),
                    "{}",
                    changed
                );
                if at > text.find("checksum").unwrap_or(0) + 90 {
                    prop_assert!(read(&changed).is_err());
                }
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            let _ = read(&text);
            let _ = read(&format!("version = 2\nchecksum = \"{}\"\n{text}", checksum(&text)));
        }
    }

    const BODY: &str = "mode = \"c\"\nunit = \"cycles\"\n[[vma]]\nindex = 3\nkind = \"h\"\n\
        pages = 9\n\
        page = [[0, 1, 1.5, 2, 2], [8, 5, 5, 5, 1]]\nblock = [[1, 4, 9, 9.0, 9, 1]]\n";

    fn file(body: &str) -> String {
        format!("version = 2\nchecksum = \"{}\"\n{body}", checksum(body))
    }

    #[test]
    fn a_file_written_by_hand_is_read() {
        let profile = read(&file(BODY)).unwrap();
        let offsets: Vec<(u32, u32)> = profile.vmas[0]
            .blocks
            .iter()
            .map(|block| (block.offset, block.pages))
            .collect();
        assert_eq!(
            (profile.mode, profile.pages(), offsets),
            (Mode::Cacheable, 6, vec![(0, 1), (1, 4), (8, 1)])
        );
        assert_eq!(version(&file(BODY)), Some(2));
        assert_eq!(version("version = 1\n[[region]]\n"), Some(1));
        assert_eq!(version("nothing"), None);
    }

    #[test]
    fn bad_files_are_refused_with_the_reason() {
        let refused = |text: &str| read(text).unwrap_err();
        assert_eq!(refused("version = 1\n"), DocumentError::Version(1));
        assert_eq!(refused("version = 3\n"), DocumentError::Version(3));
        assert_eq!(
            refused(&format!("version = 2\n{BODY}")),
            DocumentError::NoChecksum
        );
        let changed = file(BODY).replace("index = 3", "index = 4");
        assert!(matches!(refused(&changed), DocumentError::Checksum { .. }));
        for (old, new, message) in [
            ("mode = \"c\"", "mode = \"x\"", "unknown variant `x`"),
            ("unit", "units", "unknown field `units`"),
            ("kind = \"h\"", "kind = \"q\"", "unknown variant `q`"),
            ("index = 3", "index = -3", "invalid value: integer `-3`"),
            ("[0, 1, 1.5, 2, 2]", "[0, 1, 1.5, 2]", "invalid length 4"),
            (
                "[0, 1, 1.5, 2, 2]",
                "[0, 3, 1.5, 2, 2]",
                "page 3:0: the minimum is above the maximum",
            ),
            (
                "[8, 5",
                "[9, 5",
                "page 3:9 is outside its mapping, which has 9 pages",
            ),
            (
                "[1, 4, 9",
                "[0, 4, 9",
                "page 3:0 is listed twice, or not in order",
            ),
        ] {
            assert!(BODY.contains(old), "{old}");
            let error = refused(&file(&BODY.replacen(old, new, 1)));
            assert!(error.to_string().contains(message), "{new}: {error}");
            if let DocumentError::Syntax { span, .. } = error {
                assert!(
                    !span.is_empty() && span.end <= file(BODY).len() + 2,
                    "{span:?}"
                );
            }
        }
    }
}
