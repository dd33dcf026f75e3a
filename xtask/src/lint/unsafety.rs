//! Unsafe code is where the compiler allows it, and says why it is sound.
//!
//! *Where*: each library and program has `#![forbid(unsafe_code)]`, or `#![deny(unsafe_code)]` with `#[allow(unsafe_code)]`
//! on the declaration of each module that needs it (`mod mmu;`) or at the top of its file; `[lints]` in Cargo.toml
//! counts too. Outside of `hypervisor/` the attribute may also be on a function, `impl` or constant. The compiler holds the code against it; this rule sees also code that the host does not compile.
//!
//! *Why*: an unsafe block or `unsafe impl` has a comment `// SAFETY:` of at least [`WORDS`] words directly above, above the
//! statement around it, or as its first line. An `unsafe fn` that is not an implementation of a trait has a section
//! `# Safety` in its documentation. Tests included.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::Finding;
use super::source::{self, Crate, Module, Sources, Target, has_lint_level, line};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// The fewest words that can say why something is sound: "as above" does not.
const WORDS: usize = 4;

/// Crates without a rule for unsafe code, and unsafe code outside the modules that may have it.
pub fn places(sources: &Sources) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let of_workspace = manifest(&sources.root)?;
    let inherited = level(
        of_workspace
            .get("workspace")
            .and_then(|table| table.get("lints")),
    );
    for krate in &sources.crates {
        let own = manifest(&sources.root.join(&krate.directory))?;
        let lints = own.get("lints");
        let inherits = lints
            .and_then(|lints| lints.get("workspace"))
            .and_then(toml::Value::as_bool)
            == Some(true);
        let in_manifest = level(lints) || inherits && inherited;
        for target in krate
            .targets
            .iter()
            .filter(|target| !target.is_test && !target.is_script)
        {
            places_in(krate, target, in_manifest, &mut findings);
        }
    }
    Ok(findings)
}

fn manifest(directory: &Path) -> Result<toml::Table> {
    let path = directory.join("Cargo.toml");
    let text = fs::read_to_string(&path)
        .into_diagnostic()
        .wrap_err_with(|| miette!("cannot read {}", path.display()))?;
    text.parse().into_diagnostic()
}

/// Whether a `[lints]` table refuses unsafe code.
fn level(lints: Option<&toml::Value>) -> bool {
    let value = lints
        .and_then(|lints| lints.get("rust"))
        .and_then(|rust| rust.get("unsafe_code"));
    let value = value.map(|value| value.get("level").unwrap_or(value));
    value
        .and_then(toml::Value::as_str)
        .is_some_and(|level| ["deny", "forbid"].contains(&level))
}

fn places_in(krate: &Crate, target: &Target, in_manifest: bool, findings: &mut Vec<Finding>) {
    let Some(root) = target.modules.first() else {
        return;
    };
    if !in_manifest && !has_lint_level(&root.syntax.attrs, &["forbid", "deny"]) {
        let what = format!("{} has no rule for unsafe code", krate.name);
        findings.push(Finding::new(
            &root.file,
            1,
            what,
            "add `#![forbid(unsafe_code)]`, or `#![deny(unsafe_code)]`",
        ));
    }
    for module in target
        .modules
        .iter()
        .filter(|module| !module.is_test && !module.allows_unsafe)
    {
        let is_root = module.path.is_empty();
        let allowed = |above: &&Module| {
            has_lint_level(&above.syntax.attrs, &["allow"]) && !above.path.is_empty()
        };
        if target
            .modules
            .iter()
            .filter(allowed)
            .any(|above| module.path.starts_with(&above.path))
        {
            continue;
        }
        if is_root && has_lint_level(&root.syntax.attrs, &["allow"]) {
            findings.push(Finding::new(
                &root.file,
                1,
                "unsafe code is allowed in the whole crate",
                "name the modules",
            ));
        }
        let items = !krate.directory.starts_with("hypervisor");
        for found in all(module)
            .into_iter()
            .filter(|found| !(items && found.is_allowed))
        {
            let fix = "move it to a module for unsafe code, or put `#[allow(unsafe_code)]` on the module's declaration";
            findings.push(Finding::new(
                &module.file,
                found.line,
                "unsafe code in a module without leave for it",
                fix,
            ));
        }
    }
}

/// Unsafe code that does not say why it is sound, or what its callers owe it.
pub fn reasons(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in sources.modules() {
        let lines: Vec<&str> = module.text.lines().collect();
        for found in all(module) {
            let Some(what) = found.missing(&lines) else {
                continue;
            };
            let fix = match found.kind {
                Kind::Function { .. } => {
                    "say in a section `# Safety` what the caller has to ensure"
                }
                _ => "say in `// SAFETY: …` which fact makes it sound",
            };
            findings.push(Finding::new(&module.file, found.line, what, fix));
        }
    }
    findings
}

enum Kind {
    /// A block or an `impl`, whose comment may be above the line on which the statement around it begins.
    Body {
        statement: usize,
    },
    Function {
        is_documented: bool,
    },
    /// Has its reason elsewhere: `unsafe extern`, `#[unsafe(no_mangle)]`, the implementation of a trait's function.
    Other,
}

struct Found {
    line: usize,
    kind: Kind,
    /// An item around it has `#[allow(unsafe_code)]`.
    is_allowed: bool,
}

impl Found {
    fn missing(&self, lines: &[&str]) -> Option<&'static str> {
        match self.kind {
            Kind::Function {
                is_documented: true,
            }
            | Kind::Other => None,
            Kind::Function { .. } => Some("an `unsafe fn` without a section `# Safety`"),
            Kind::Body { statement } => {
                let said = [self.line, statement]
                    .iter()
                    .filter_map(|line| reason_above(lines, *line))
                    .max();
                match said.max(reason_inside(lines, self.line)) {
                    Some(WORDS..) => None,
                    Some(_) => Some("a SAFETY comment that gives no reason"),
                    None => Some("unsafe code without a SAFETY comment"),
                }
            }
        }
    }
}

/// How many words the SAFETY comment directly above a line has.
fn reason_above(lines: &[&str], line: usize) -> Option<usize> {
    let above = lines.get(..line - 1)?.iter().rev().map(|line| line.trim());
    let comment: Vec<&str> = above
        .take_while(|line| line.starts_with("//") || line.starts_with("#["))
        .collect();
    words(comment.into_iter().rev())
}

fn reason_inside(lines: &[&str], line: usize) -> Option<usize> {
    let same = lines
        .get(line - 1)?
        .split_once("//")
        .map(|(_, comment)| comment);
    words(
        same.into_iter().chain(
            lines
                .get(line..)?
                .iter()
                .map(|line| line.trim())
                .take_while(|line| line.starts_with("//")),
        ),
    )
}

fn words<'a>(comment: impl Iterator<Item = &'a str>) -> Option<usize> {
    let text: Vec<&str> = comment
        .map(|line| line.trim_start_matches('/').trim())
        .collect();
    let text = text.join(" ");
    let (_, reason) = text.split_once("SAFETY:")?;
    Some(reason.split_whitespace().count())
}

fn all(module: &Module) -> Vec<Found> {
    let mut visitor = Unsafe {
        statement: 0,
        is_allowed: false,
        found: Vec::new(),
    };
    visitor.visit_file(&module.syntax);
    visitor.found
}

struct Unsafe {
    /// The line on which the innermost statement, field or item begins.
    statement: usize,
    is_allowed: bool,
    found: Vec<Found>,
}

impl Unsafe {
    fn add(&mut self, line: usize, kind: Kind) {
        self.found.push(Found {
            line,
            kind,
            is_allowed: self.is_allowed,
        });
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut tokens = tokens.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => {
                    let line = word.span().start().line;
                    match tokens.peek() {
                        Some(TokenTree::Group(body)) if body.delimiter() == Delimiter::Brace => {
                            self.add(line, Kind::Body { statement: line });
                        }
                        Some(TokenTree::Ident(word)) if word == "impl" => {
                            self.add(line, Kind::Body { statement: line })
                        }
                        _ => self.add(line, Kind::Other),
                    }
                }
                _ => {}
            }
        }
    }

    fn function(
        &mut self,
        signature: &syn::Signature,
        attributes: &[syn::Attribute],
        implements: bool,
    ) {
        let syn::Safety::Unsafe(token) = &signature.safety else {
            return;
        };
        let is_documented = attributes.iter().any(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("doc") => {
                matches!(&pair.value, syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. })
                    if text.value().trim() == "# Safety")
            }
            _ => false,
        });
        self.add(
            line(token),
            if implements {
                Kind::Other
            } else {
                Kind::Function { is_documented }
            },
        );
    }

    fn within(&mut self, statement: usize, visit: impl FnOnce(&mut Self)) {
        let around = std::mem::replace(&mut self.statement, statement);
        visit(self);
        self.statement = around;
    }
}

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        self.within(line(statement), |this| visit::visit_stmt(this, statement));
    }

    fn visit_item(&mut self, item: &'ast syn::Item) {
        let around = self.is_allowed;
        self.is_allowed |= has_lint_level(source::attributes(item), &["allow"]);
        self.within(line(item), |this| visit::visit_item(this, item));
        self.is_allowed = around;
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        self.within(line(item), |this| visit::visit_impl_item(this, item));
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.within(line(arm), |this| visit::visit_arm(this, arm));
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        self.within(line(field), |this| visit::visit_field_value(this, field));
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.add(
            line(&block.unsafe_token),
            Kind::Body {
                statement: self.statement,
            },
        );
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.add(
                line(token),
                Kind::Body {
                    statement: self.statement,
                },
            );
        }
        for method in &item.items {
            if let syn::ImplItem::Fn(method) = method {
                self.function(&method.sig, &method.attrs, item.trait_.is_some());
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.attrs, false);
        visit::visit_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.sig, &function.attrs, false);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_foreign_mod(&mut self, foreign: &'ast syn::ItemForeignMod) {
        self.add(line(foreign), Kind::Other);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("unsafe") {
            self.add(line(attribute), Kind::Other);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        // To the compiler it is unsafe code, although it needs no `unsafe`.
        if mac
            .path
            .segments
            .last()
            .is_some_and(|name| name.ident == "global_asm")
        {
            self.add(line(mac), Kind::Other);
        }
        self.tokens(mac.tokens.clone());
    }
}
