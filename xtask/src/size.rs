//! `cargo xtask size`: counts the code of directories, and its density.
//!
//! Rust is counted as for the limit of EL2 ([`lines`]). C and assembly are counted by the same
//! rule: a name, a literal, a character of punctuation and one of a pair of brackets are a token.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_bench::lines::{self, EL2};
use cloison_engine::installation;
use cloison_engine::report::Section;
use cloison_engine::text::grouped;
use ignore::Walk;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use regex::Regex;
use std::path::{Path, PathBuf};

/// `cargo xtask size`.
#[derive(Clone, Debug, clap::Args)]
pub struct SizeArgs {
    /// Directories of Rust, or of C and assembly; what is linked into EL2 if there are none
    #[arg(value_name = "DIR")]
    directories: Vec<PathBuf>,
}

/// Code and comments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    tokens: u64,
    lines: u64,
    /// Lines that are comments.
    comments: u64,
}

/// Counts directories, and prints a table.
///
/// # Errors
/// A directory cannot be read, or a file in it is not Rust.
pub fn size(args: &SizeArgs) -> Result<()> {
    let title = "Size without tests";
    let columns = [
        "directory",
        "tokens",
        "lines",
        "tokens a line",
        "comments a line",
    ];
    let mut section = Section::new(title, &columns);
    let own = EL2.map(|directory| installation::root().join(directory));
    let not_el2 = lines::not_el2();
    let (directories, left_out) = match args.directories.as_slice() {
        [] => (own.as_slice(), not_el2.as_slice()),
        some => (some, [].as_slice()),
    };
    let mut total = Count::default();
    for directory in directories {
        let count = count(directory, left_out)
            .wrap_err_with(|| miette!("cannot count {}", directory.display()))?;
        total.tokens += count.tokens;
        total.lines += count.lines;
        total.comments += count.comments;
        section.row(row(&directory.display().to_string(), count));
    }
    if directories.len() > 1 {
        section.row(row("all", total));
    }
    print!("{}", section.to_text());
    Ok(())
}

fn row(name: &str, count: Count) -> [String; 5] {
    let lines = count.lines.max(1) as f64;
    [
        name.to_owned(),
        grouped(count.tokens),
        grouped(count.lines),
        format!("{:.1}", count.tokens as f64 / lines),
        format!("{:.2}", count.comments as f64 / lines),
    ]
}

/// Counts what is below `directory`, except in some directories.
fn count(directory: &Path, left_out: &[PathBuf]) -> Result<Count> {
    let rust = lines::count(directory, left_out)?;
    let mut count = Count {
        tokens: rust.tokens,
        lines: rust.lines,
        comments: 0,
    };
    let c = CSources::new()?;
    for entry in Walk::new(directory) {
        let path = entry.into_diagnostic()?.into_path();
        if left_out.iter().any(|other| path.starts_with(other)) {
            continue;
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension {
            Some("rs") if !is_test(&path) => {
                count.comments += rust_comments(&read(&path)?);
            }
            Some("c" | "h" | "S") => {
                let more = c.count(&read(&path)?);
                count.tokens += more.tokens;
                count.lines += more.lines;
                count.comments += more.comments;
            }
            _ => {}
        }
    }
    Ok(count)
}

fn read(path: &Path) -> Result<String> {
    let bytes = std::fs::read(path).into_diagnostic()?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn is_test(path: &Path) -> bool {
    path.iter().any(|part| {
        ["tests", "tests.rs", "benches"]
            .iter()
            .any(|name| part == *name)
    })
}

/// Returns the lines of comments before a file's tests.
fn rust_comments(text: &str) -> u64 {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = code.unwrap_or_default().lines();
    lines
        .filter(|line| line.trim_start().starts_with("//"))
        .count() as u64
}

struct CSources {
    comment: Regex,
    token: Regex,
}

impl CSources {
    fn new() -> Result<Self> {
        let token = r#""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])+'|\w+|[^\s\w]"#;
        Ok(Self {
            comment: Regex::new(r"(?s)/\*.*?\*/|//[^\n]*").into_diagnostic()?,
            token: Regex::new(token).into_diagnostic()?,
        })
    }

    fn count(&self, text: &str) -> Count {
        let comments = self.comment.find_iter(text);
        let code = self.comment.replace_all(text, " ");
        Count {
            tokens: self.token.find_iter(&code).count() as u64,
            lines: code.lines().filter(|line| !line.trim().is_empty()).count() as u64,
            comments: comments.map(|it| it.as_str().lines().count() as u64).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_is_counted_without_its_comments() {
        let text = "/* what\n * it is */\nint f(void)\n{\n\treturn g(\"a b\", 0x1f); // why\n}\n\n";
        let count = CSources::new().expect("valid").count(text);
        // int f ( void ) { return g ( "a b" , 0x1f ) ; }
        let expected = Count {
            tokens: 15,
            lines: 4,
            comments: 3,
        };
        assert_eq!(count, expected);
    }

    #[test]
    fn comments_of_tests_do_not_count() {
        let text = "//! First.\n\n/// One.\nfn f() {} // one more\n\
            #[cfg(test)]\nmod tests {\n    // Why.\n}\n";
        assert_eq!(rust_comments(text), 2);
    }
}
