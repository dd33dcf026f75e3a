//! The shape of the code: how large crates and functions are, what files begin with, what is unfinished.

use super::finding::{Finding, Outcome};
use super::source::{self, Sources, line};
use cloison_lab::lines;
use miette::Result;
use proc_macro2::{TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The most lines of a function, from its signature to its closing brace.
const LONGEST: usize = 100;

/// The largest crate's share of all lines of code: `src` of each crate, without comments and tests.
pub fn share(sources: &Sources, outcome: &mut Outcome) -> Result<()> {
    let mut sizes = Vec::new();
    for krate in &sources.crates {
        let directory = sources.root.join(&krate.directory).join("src");
        let size = if directory.exists() {
            lines::count(&directory)?
        } else {
            0
        };
        sizes.push((size, krate));
    }
    let total: u64 = sizes.iter().map(|(size, _)| size).sum();
    if let Some((size, krate)) = sizes.iter().max_by_key(|(size, _)| *size) {
        outcome.count = 100.0 * *size as f64 / total.max(1) as f64;
        let what = format!(
            "{} is the largest crate: {size} of {total} lines",
            krate.name
        );
        let fix = "if it is over the limit, split it by what its parts are for";
        outcome.findings.push(Finding::new(
            &krate.directory.join("Cargo.toml"),
            1,
            what,
            fix,
        ));
    }
    Ok(())
}

/// Functions over [`LONGEST`] lines, tests included.
pub fn long_functions(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in sources.modules() {
        let mut visitor = Functions(Vec::new());
        visitor.visit_file(&module.syntax);
        for (name, line, length) in visitor
            .0
            .into_iter()
            .filter(|(_, _, length)| *length > LONGEST)
        {
            let what = format!("`{name}` has {length} lines");
            findings.push(Finding::new(
                &module.file,
                line,
                what,
                format!("split it; {LONGEST} are the most"),
            ));
        }
    }
    findings
}

/// Name, first line and length.
struct Functions(Vec<(String, usize, usize)>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let (first, last) = (line(signature), body.span().end().line);
        self.0
            .push((signature.ident.to_string(), first, last + 1 - first));
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(body) = &function.default {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

/// Files that do not begin with `//!`, after an SPDX line. Once one file has that line, all must have it.
pub fn headers(sources: &Sources) -> Vec<Finding> {
    const SPDX: &str = "// SPDX-License-Identifier:";
    let licensed = sources
        .modules()
        .any(|module| module.text.starts_with(SPDX));
    let mut findings = Vec::new();
    for module in sources.modules() {
        let has_license = module.text.starts_with(SPDX);
        if licensed && !has_license {
            findings.push(Finding::new(
                &module.file,
                1,
                "no license on the first line",
                format!("add `{SPDX} …`"),
            ));
        }
        let skipped = usize::from(has_license);
        let mut first = module
            .text
            .lines()
            .skip(skipped)
            .skip_while(|line| has_license && line.trim() == "//");
        if !first.next().is_some_and(|line| line.starts_with("//! ")) {
            let fix = "begin it with one line `//! …` that says what it is for";
            findings.push(Finding::new(
                &module.file,
                1 + skipped,
                "the file does not say what it is for",
                fix,
            ));
        }
    }
    findings
}

/// `todo!`, `unimplemented!`, and comments that mark something as unfinished.
pub fn unfinished(sources: &Sources) -> Vec<Finding> {
    const MARKS: [&str; 3] = ["TODO", "FIXME", "XXX"];
    let mut findings = Vec::new();
    let fix = "finish it, or describe the limit in the documentation";
    for module in sources.modules() {
        // Telling comments from code takes time, and hardly any file has a mark.
        let is_marked = MARKS.iter().any(|mark| module.text.contains(mark));
        let comments = if is_marked {
            source::prose(&module.text, module.tokens.clone(), false)
        } else {
            String::new()
        };
        for (at, text) in comments.lines().enumerate() {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
            if let Some(mark) = words.find(|word| MARKS.contains(word)) {
                findings.push(Finding::new(
                    &module.file,
                    at + 1,
                    format!("a {mark} comment"),
                    fix,
                ));
            }
        }
        let has_stub = ["todo!", "unimplemented!"]
            .iter()
            .any(|stub| module.text.contains(stub));
        let tokens = if has_stub {
            module.tokens.clone()
        } else {
            TokenStream::new()
        };
        for (name, line) in stubs(tokens) {
            findings.push(Finding::new(&module.file, line, format!("`{name}!`"), fix));
        }
    }
    findings
}

fn stubs(tokens: TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => found.extend(stubs(group.stream())),
            TokenTree::Ident(name) if name == "todo" || name == "unimplemented" => {
                if matches!(tokens.peek(), Some(TokenTree::Punct(punct)) if punct.as_char() == '!')
                {
                    found.push((name.to_string(), name.span().start().line));
                }
            }
            _ => {}
        }
    }
    found
}
