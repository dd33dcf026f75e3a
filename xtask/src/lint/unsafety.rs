//! Unsafe code is where the compiler allows it. Clippy asks for the reason why it is sound.
//!
//! Each library and program has `#![forbid(unsafe_code)]`, or `#![deny(unsafe_code)]` with
//! `#[allow(unsafe_code)]` on the declaration of each module that needs it (`mod mmu;`) or at the
//! top of its file; `[lints]` in Cargo.toml counts too. Outside of `hypervisor/` the attribute may
//! also be on a function, `impl` or constant. The compiler holds the code against it; this rule
//! also sees code that the host does not compile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::Finding;
use super::source::{self, Crate, Module, Sources, Target, has_lint_level, line};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::Path;
use syn::visit::{self, Visit};

/// Returns the crates without a rule for unsafe code, and unsafe code outside the modules that may
/// have it.
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
        let items = !krate.runs_at_el2();
        for found in all(module)
            .into_iter()
            .filter(|found| !(items && found.is_allowed))
        {
            let fix = "move it to a module for unsafe code, or put `#[allow(unsafe_code)]` on the \
                       module's declaration";
            findings.push(Finding::new(
                &module.file,
                found.line,
                "unsafe code in a module without leave for it",
                fix,
            ));
        }
    }
}

struct Found {
    line: usize,
    /// An item around it has `#[allow(unsafe_code)]`.
    is_allowed: bool,
}

fn all(module: &Module) -> Vec<Found> {
    let mut visitor = Unsafe {
        is_allowed: false,
        found: Vec::new(),
    };
    visitor.visit_file(&module.syntax);
    visitor.found
}

struct Unsafe {
    is_allowed: bool,
    found: Vec<Found>,
}

impl Unsafe {
    fn add(&mut self, line: usize) {
        self.found.push(Found {
            line,
            is_allowed: self.is_allowed,
        });
    }

    fn tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.tokens(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => {
                    self.add(word.span().start().line);
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Unsafe {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let around = self.is_allowed;
        self.is_allowed |= has_lint_level(source::attributes(item), &["allow"]);
        visit::visit_item(self, item);
        self.is_allowed = around;
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.add(line(&block.unsafe_token));
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.add(line(token));
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let syn::Safety::Unsafe(token) = &signature.safety {
            self.add(line(token));
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_foreign_mod(&mut self, foreign: &'ast syn::ItemForeignMod) {
        self.add(line(foreign));
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if attribute.path().is_ident("unsafe") {
            self.add(line(attribute));
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        // To the compiler it is unsafe code, although it needs no `unsafe`.
        let name = mac.path.segments.last();
        if name.is_some_and(|name| name.ident == "global_asm") {
            self.add(line(mac));
        }
        self.tokens(mac.tokens.clone());
    }
}
