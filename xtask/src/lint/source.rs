//! The input of the rules: the crates of a workspace, their modules as syntax trees, and all files
//! that hold prose.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cargo_metadata::{MetadataCommand, TargetKind};
use cloison_bench::lines::{EL2, NOT_EL2};
use miette::{IntoDiagnostic, Result, WrapErr, miette};
use proc_macro2::{TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;

/// A workspace, read once for all rules.
pub struct Sources {
    pub root: PathBuf,
    pub crates: Vec<Crate>,
}

/// A crate of the workspace.
pub struct Crate {
    pub name: String,
    /// Its directory, relative to the workspace.
    pub directory: PathBuf,
    pub targets: Vec<Target>,
}

impl Crate {
    /// Returns whether it is linked into EL2.
    pub fn runs_at_el2(&self) -> bool {
        let is_in = |directory: &&str| self.directory.starts_with(directory);
        EL2.iter().any(is_in) && !NOT_EL2.iter().any(is_in)
    }
}

/// A target of cargo, built from one root file. The first module is the root.
pub struct Target {
    /// A test, benchmark or example.
    pub is_test: bool,
    /// A build script, which runs on the host.
    pub is_script: bool,
    pub modules: Vec<Module>,
}

/// A module with a file.
pub struct Module {
    /// Its names from the crate's root; none for the root.
    pub path: Vec<String>,
    /// Relative to the workspace.
    pub file: PathBuf,
    pub text: String,
    pub tokens: TokenStream,
    pub syntax: syn::File,
    /// Compiled for tests only.
    pub is_test: bool,
    /// The declaration `mod x;` has `#[allow(unsafe_code)]`, or that of a module around it.
    pub allows_unsafe: bool,
}

impl Sources {
    /// Reads the workspace at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut command = MetadataCommand::new();
        command
            .current_dir(root)
            .no_deps()
            .other_options(vec!["--offline".to_owned()]);
        let metadata = command
            .exec()
            .into_diagnostic()
            .wrap_err("cargo cannot describe the workspace")?;
        let root = metadata.workspace_root.into_std_path_buf();
        let relative = |path: &Path| path.strip_prefix(&root).unwrap_or(path).to_owned();
        let mut crates = Vec::new();
        for package in metadata.packages {
            let mut targets = Vec::new();
            for target in package.targets {
                let is = |kinds: &[TargetKind]| target.kind.iter().any(|kind| kinds.contains(kind));
                let is_test = is(&[TargetKind::Test, TargetKind::Bench, TargetKind::Example]);
                let mut reader = Reader {
                    root: &root,
                    modules: Vec::new(),
                };
                reader.module(
                    Vec::new(),
                    relative(target.src_path.as_std_path()),
                    is_test,
                    false,
                )?;
                let is_script = is(&[TargetKind::CustomBuild]);
                targets.push(Target {
                    is_test,
                    is_script,
                    modules: reader.modules,
                });
            }
            let manifest = relative(package.manifest_path.as_std_path());
            let directory = manifest.parent().unwrap_or(Path::new("")).to_owned();
            crates.push(Crate {
                name: package.name.to_string(),
                directory,
                targets,
            });
        }
        Ok(Self { root, crates })
    }

    /// Returns every module of every crate, tests included, each file once.
    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        let mut seen = std::collections::BTreeSet::new();
        let targets = self.crates.iter().flat_map(|krate| &krate.targets);
        targets
            .flat_map(|target| &target.modules)
            .filter(move |module| seen.insert(&module.file))
    }

    /// Returns the modules that run at EL2, without tests and build scripts.
    pub fn hypervisor(&self) -> impl Iterator<Item = &Module> {
        let crates = self.crates.iter().filter(|krate| krate.runs_at_el2());
        let targets = crates
            .flat_map(|krate| &krate.targets)
            .filter(|target| !target.is_test && !target.is_script);
        targets
            .flat_map(|target| &target.modules)
            .filter(|module| !module.is_test)
    }
}

struct Reader<'a> {
    root: &'a Path,
    modules: Vec<Module>,
}

impl Reader<'_> {
    fn module(
        &mut self,
        path: Vec<String>,
        file: PathBuf,
        is_test: bool,
        allows_unsafe: bool,
    ) -> Result<()> {
        let text = fs::read_to_string(self.root.join(&file)).into_diagnostic();
        let text = text.wrap_err_with(|| miette!("cannot read {}", file.display()))?;
        let failed = |error: syn::Error| {
            miette!("{}:{}: {error}", file.display(), error.span().start().line)
        };
        let tokens: TokenStream = text
            .parse()
            .map_err(|error: proc_macro2::LexError| failed(error.into()))?;
        let syntax: syn::File = syn::parse2(tokens.clone()).map_err(failed)?;
        let parent = file.parent().unwrap_or(Path::new("")).to_owned();
        let keeps_beside = path.is_empty() || file.file_stem().is_some_and(|stem| stem == "mod");
        let home = if keeps_beside {
            parent.clone()
        } else {
            file.with_extension("")
        };
        let mut declared = Vec::new();
        declarations(
            &syntax.items,
            &path,
            &home,
            is_test,
            allows_unsafe,
            &mut declared,
        );
        let beside = file.clone();
        self.modules.push(Module {
            path,
            file,
            text,
            tokens,
            syntax,
            is_test,
            allows_unsafe,
        });
        for Declared {
            path,
            named,
            home,
            is_test,
            allows_unsafe,
        } in declared
        {
            let name = path.last().map_or("", String::as_str);
            let candidates = match named {
                Some(named) => vec![parent.join(named)],
                None => vec![
                    home.join(format!("{name}.rs")),
                    home.join(name).join("mod.rs"),
                ],
            };
            let found = candidates
                .into_iter()
                .find(|file| self.root.join(file).exists());
            let found =
                found.ok_or_else(|| miette!("{}: no file for `mod {name};`", beside.display()))?;
            self.module(path, found, is_test, allows_unsafe)?;
        }
        Ok(())
    }
}

struct Declared {
    path: Vec<String>,
    named: Option<String>,
    home: PathBuf,
    is_test: bool,
    allows_unsafe: bool,
}

fn declarations(
    items: &[syn::Item],
    path: &[String],
    home: &Path,
    is_test: bool,
    allows_unsafe: bool,
    out: &mut Vec<Declared>,
) {
    for item in items {
        let syn::Item::Mod(module) = item else {
            continue;
        };
        let name = module.ident.to_string();
        let path: Vec<String> = path.iter().cloned().chain([name.clone()]).collect();
        let is_test = is_test || is_for_tests(&module.attrs);
        let allows_unsafe = allows_unsafe || has_lint_level(&module.attrs, &["allow", "expect"]);
        match &module.content {
            Some((_, items)) => {
                declarations(items, &path, &home.join(&name), is_test, allows_unsafe, out)
            }
            None => {
                let named = module.attrs.iter().find_map(path_attribute);
                out.push(Declared {
                    path,
                    named,
                    home: home.to_owned(),
                    is_test,
                    allows_unsafe,
                });
            }
        }
    }
}

fn path_attribute(attribute: &syn::Attribute) -> Option<String> {
    let syn::Meta::NameValue(pair) = &attribute.meta else {
        return None;
    };
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(value),
            ..
        }) if pair.path.is_ident("path") => Some(value.value()),
        _ => None,
    }
}

/// The attributes of an item.
pub fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::ForeignMod(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether the attributes include `#[cfg(test)]`, alone or inside `all(…)`, or `#[test]`.
pub fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string().replace(' ', "");
            condition == "test" || condition.starts_with("all(test")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

/// Returns whether the attributes set the lint `unsafe_code` to one of `levels`.
pub fn has_lint_level(attributes: &[syn::Attribute], levels: &[&str]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            let is_level = levels.iter().any(|level| list.path.is_ident(level));
            is_level
                && list
                    .tokens
                    .clone()
                    .into_iter()
                    .any(|token| token.to_string() == "unsafe_code")
        }
        _ => false,
    })
}

/// Returns the line on which `node` begins.
pub fn line(node: &impl Spanned) -> usize {
    node.span().start().line
}

/// What takes the place of code, so that no words on both sides of it seem to be beside each other.
const BLANK: u8 = 1;

/// Returns the text with code blanked out: comments are left, and strings if `strings`. `tokens`
/// are those of `text`.
pub fn prose(text: &str, tokens: TokenStream, strings: bool) -> String {
    let mut bytes = text.as_bytes().to_vec();
    blank(tokens, &mut bytes, strings);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn blank(tokens: TokenStream, bytes: &mut [u8], strings: bool) {
    let mut groups = Vec::new();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        let range = token.span().byte_range();
        match token {
            // A documentation comment arrives as `#[doc = "…"]` whose tokens have the comment's
            // place.
            TokenTree::Punct(punct)
                if punct.as_char() == '#' && bytes.get(range.start) == Some(&b'/') =>
            {
                while let Some(TokenTree::Punct(_)) = tokens.peek() {
                    tokens.next();
                }
                tokens.next();
                continue;
            }
            TokenTree::Group(group) => {
                groups.push(group.stream());
                continue;
            }
            TokenTree::Literal(literal) if strings && literal.to_string().contains('"') => continue,
            _ => {}
        }
        for byte in bytes
            .get_mut(range)
            .into_iter()
            .flatten()
            .filter(|byte| **byte != b'\n')
        {
            *byte = BLANK;
        }
    }
    for group in groups {
        blank(group, bytes, strings);
    }
}
