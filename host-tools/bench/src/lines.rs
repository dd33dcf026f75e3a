//! Counts the code that runs at EL2, in tokens and lines, without blank lines, comments and tests.
//!
//! The limit is one of tokens: they do not depend on the layout. A token is a name, a literal, a
//! character of punctuation, or one of a pair of brackets. What rustfmt adds with a line's end is not
//! counted: a comma before a closing bracket, and braces around a match arm beyond its comma.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::installation;
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of tokens at EL2. Guest maps took 2,489: where a VM's devices are, and a second UART
/// that is emulated. Channels and doorbells took 4,056. A channel's writer, by whom its memory is
/// cleared, and the named bits of the second UART took 182; memories besides the RAM 212. Links, which
/// are devices of virtio and their wire, took 9,160; counts of what links and doorbells carry, their
/// records and two calls that return them, 1,096; links of sockets, their parts of packets and their
/// events, 621. Names for what a `bool` said took 40; telemetry on the console's line 327, and calls of a
/// board's firmware 935. A reset at the end of a run took 131; legacy drivers 47; an SMMU, whose streams
/// go through a VM's stage 2, 3,464. A first and a last line at any level of messages took 52; a reset of
/// the machine when a run does not end, 185. A doorbell's own path, which is a quarter as long as the
/// general one, took 1,077: its calls, its interrupt, and its list register. GICv3, with distributor and
/// redistributors for guests and its system registers for EL2, took 4,721. That a vCPU which waits for
/// the console lets other cores run took 16.
pub const LIMIT: u64 = 120_940;

/// How much code there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Lines with code.
    pub lines: u64,
    /// Tokens.
    pub tokens: u64,
}

/// Directories of the code that is linked into EL2, in the workspace.
pub const EL2: [&str; 3] = ["hypervisor", "contracts/formats", "contracts/abi"];
/// Paths within these that are not: the specification and values for fixtures are the host's alone.
pub const NOT_EL2: [&str; 2] = ["hypervisor/spec", "contracts/formats/src/blank.rs"];

/// Returns the size of the code that is linked into EL2.
pub fn el2() -> Result<Size> {
    let mut total = Size::default();
    let root = installation::root();
    for directory in EL2 {
        let size = count(&root.join(directory), &not_el2())?;
        total.lines += size.lines;
        total.tokens += size.tokens;
    }
    Ok(total)
}

/// Returns the paths of [`NOT_EL2`].
pub fn not_el2() -> [PathBuf; NOT_EL2.len()] {
    NOT_EL2.map(|directory| installation::root().join(directory))
}

/// Counts the code of the Rust files below `directory`, except in some directories.
pub fn count(directory: &Path, left_out: &[PathBuf]) -> Result<Size> {
    let mut files = Vec::new();
    collect(directory, &mut files).into_diagnostic()?;
    files.retain(|file| !left_out.iter().any(|directory| file.starts_with(directory)));
    let mut total = Size::default();
    let mut tests = BTreeSet::new();
    let mut counted = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).into_diagnostic()?;
        let code = code_lines(&text)
            .wrap_err_with(|| miette!("cannot read {} as Rust", file.display()))?;
        let parent = file.parent().unwrap_or(directory);
        let stem = file.file_stem().unwrap_or_default();
        // `foo.rs` has its modules in `foo/`; `mod.rs`, `lib.rs` and `main.rs` have them in their
        // own directory.
        let home = match stem.to_str() {
            Some("mod" | "lib" | "main") => parent.to_path_buf(),
            _ => parent.join(stem),
        };
        tests.extend(code.test_modules.iter().map(|name| home.join(name)));
        counted.push((file, code.size));
    }
    for (file, size) in counted {
        let is_test = tests
            .iter()
            .any(|module| file.with_extension("") == *module || file.starts_with(module));
        if !is_test {
            total = Size {
                lines: total.lines + size.lines,
                tokens: total.tokens + size.tokens,
            };
        }
    }
    Ok(total)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && !["target", "tests", "benches"].contains(&name) {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The code of one file.
#[derive(Debug, Default)]
struct Code {
    size: Size,
    /// Modules in separate files that are compiled for tests only.
    test_modules: Vec<String>,
}

/// The counts of one file so far.
#[derive(Default)]
struct Tally {
    lines: BTreeSet<usize>,
    tokens: u64,
    test_modules: Vec<String>,
}

impl Tally {
    /// Counts a token on a line.
    fn token(&mut self, line: usize) {
        self.lines.insert(line);
        self.tokens += 1;
    }
}

fn code_lines(text: &str) -> Result<Code> {
    let tokens: TokenStream = text.parse().map_err(|error| miette!("{error}"))?;
    let source: Vec<&str> = text.lines().collect();
    let mut tally = Tally::default();
    mark(tokens, &source, &mut tally);
    let size = Size {
        lines: tally.lines.len() as u64,
        tokens: tally.tokens,
    };
    Ok(Code {
        size,
        test_modules: tally.test_modules,
    })
}

/// Adds all tokens that are neither documentation nor part of a test.
fn mark(tokens: TokenStream, source: &[&str], tally: &mut Tally) {
    let mut tokens = tokens.into_iter().peekable();
    let mut follows_equals = false;
    let mut follows_arrow = false;
    while let Some(token) = tokens.next() {
        let is_arm = std::mem::replace(&mut follows_arrow, false);
        let was_equals = std::mem::replace(&mut follows_equals, false);
        if let TokenTree::Punct(punct) = &token
            && punct.as_char() == '#'
        {
            let inner =
                matches!(tokens.peek(), Some(TokenTree::Punct(mark)) if mark.as_char() == '!');
            if inner {
                tokens.next();
            }
            if let Some(TokenTree::Group(attribute)) = tokens.peek()
                && attribute.delimiter() == Delimiter::Bracket
            {
                let attribute = attribute.clone();
                tokens.next();
                match attribute_kind(&attribute) {
                    Attribute::Documentation => {}
                    Attribute::Test if inner => return,
                    Attribute::Test => tally.test_modules.extend(skip_item(&mut tokens)),
                    Attribute::Other => {
                        tally.token(punct.span().start().line);
                        mark_group(&attribute, source, tally);
                    }
                }
                continue;
            }
        }
        match &token {
            TokenTree::Group(group) => {
                mark_group(group, source, tally);
                if is_arm && group.delimiter() == Delimiter::Brace {
                    tally.tokens -= 1;
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' && tokens.peek().is_none() => {
                tally.lines.insert(punct.span().start().line);
            }
            TokenTree::Punct(punct) => {
                follows_arrow = punct.as_char() == '>' && was_equals;
                follows_equals = punct.as_char() == '=';
                tally.token(punct.span().start().line);
            }
            TokenTree::Literal(literal) => {
                let (first, last) = (literal.span().start().line, literal.span().end().line);
                // Assembly is a string of many lines, some of them blank or comments.
                let says = |line: &usize| {
                    let text = source.get(line - 1).map_or("", |text| text.trim());
                    *line == first || *line == last || !(text.is_empty() || text.starts_with("//"))
                };
                tally.lines.extend((first..=last).filter(says));
                tally.tokens += 1;
            }
            other => tally.token(other.span().start().line),
        }
    }
}

fn mark_group(group: &Group, source: &[&str], tally: &mut Tally) {
    if group.delimiter() != Delimiter::None {
        tally.token(group.span_open().start().line);
        tally.token(group.span_close().start().line);
    }
    mark(group.stream(), source, tally);
}

enum Attribute {
    Documentation,
    Test,
    Other,
}

fn attribute_kind(attribute: &Group) -> Attribute {
    let words: Vec<String> = attribute
        .stream()
        .into_iter()
        .map(|token| token.to_string())
        .collect();
    match words.first().map(String::as_str) {
        Some("doc") => Attribute::Documentation,
        Some("cfg") if words.get(1).is_some_and(|condition| condition == "(test)") => {
            Attribute::Test
        }
        _ => Attribute::Other,
    }
}

/// Skips the item after `#[cfg(test)]`. Returns its name if it is a module in a separate file.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) -> Option<String> {
    let (mut keyword, mut name) = (None, None);
    for token in tokens {
        match token {
            TokenTree::Ident(word) if keyword.is_none() => {
                let word = word.to_string();
                if [
                    "mod",
                    "use",
                    "extern",
                    "const",
                    "static",
                    "type",
                    "fn",
                    "impl",
                    "struct",
                    "enum",
                    "trait",
                    "macro_rules",
                ]
                .contains(&word.as_str())
                {
                    keyword = Some(word);
                }
            }
            TokenTree::Ident(word) if name.is_none() => name = Some(word.to_string()),
            TokenTree::Punct(punct) if punct.as_char() == ';' => {
                return name.filter(|_| keyword.as_deref() == Some("mod"));
            }
            // The braces of `use a::{b, c};` or of a constant's value do not end it.
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Brace
                    && !matches!(keyword.as_deref(), Some("use" | "const" | "static")) =>
            {
                return None;
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_blanks_and_tests_do_not_count() {
        let text = r##"//! Tagline.

/* block
   comment */
#![no_std]
/// Documentation.
fn f<'a>(x: &'a str) -> char { // 1: after code
    let s = "not // a comment";

    '"'
}
#[cfg(test)]
use std::{vec, string};
#[cfg(test)]
mod tests {
    fn g() {}
}
#[cfg(test)]
mod more;
global_asm!("
    // what it is for
    mov x0, x1

    ret
");
"##;
        let code = code_lines(text).unwrap();
        // #![no_std], fn, let, char, }, global_asm, mov, ret, ").
        assert_eq!(code.size.lines, 9);
        // The attribute (without `!`) 4, the function's head and braces 19 (a lifetime is two),
        // `let` 5, the character 1, the assembly 6.
        assert_eq!(code.size.tokens, 35);
        assert_eq!(code.test_modules, ["more"]);
    }

    #[test]
    fn layout_does_not_count() {
        let size = |text: &str| code_lines(text).unwrap().size.tokens;
        let packed = "fn f() { g(a, b); match c { A => x(), B => y() } }";
        let plain = "fn f() {\n g(\na,\nb,\n);\nmatch c {\nA => {\nx()\n}\nB => y(),\n}\n}";
        assert_eq!(size(packed), size(plain));
        assert!(size("fn f() { A => {{ x }} }") > size("fn f() { A => { x } }"));
    }

    #[test]
    fn test_modules_in_files_of_their_own_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        write("lib.rs", "#[cfg(test)]\nmod fake;\nmod real;\n");
        write("fake.rs", "fn a() {}\nfn b() {}\n");
        write("real.rs", "fn a() {}\n#[cfg(not(test))]\nfn b() {}\n");
        // `mod real;` and two functions of six tokens, one of them with an attribute of ten.
        assert_eq!(
            count(directory.path(), &[]).unwrap(),
            Size {
                lines: 4,
                tokens: 25
            }
        );
    }
}
