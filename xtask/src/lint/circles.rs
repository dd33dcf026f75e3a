//! Circles between the modules of a crate.
//!
//! A module is a file; `mod x { … }` belongs to the file around it. A module uses another if it
//! imports something that the other defines, or names it in a path, also in the arguments of a
//! macro. A re-export is followed to the file that defines the item. Not a use: `mod x;`, a
//! re-export (`pub use`, `pub(crate) use`), an attribute, a visibility (`pub(in crate::x)`), and
//! test code. Not seen: the method of a type that a module does not name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::Finding;
use super::source::{Sources, Target, attributes, is_for_tests, line};
use petgraph::algo::tarjan_scc;
use petgraph::graphmap::DiGraphMap;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

/// Returns each circle, with the uses that form it.
pub fn find(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for krate in &sources.crates {
        for target in krate.targets.iter().filter(|target| !target.is_test) {
            let edges = uses(target);
            let graph: DiGraphMap<usize, ()> = edges.keys().copied().collect();
            for circle in tarjan_scc(&graph)
                .into_iter()
                .filter(|circle| circle.len() > 1)
            {
                findings.push(describe(&krate.name, target, &circle, &edges));
            }
        }
    }
    findings
}

type Edges = BTreeMap<(usize, usize), usize>;

fn describe(krate: &str, target: &Target, circle: &[usize], edges: &Edges) -> Finding {
    let name = |at: usize| match target.modules[at].path.join("::") {
        root if root.is_empty() => "crate".to_owned(),
        path => path,
    };
    let inside = |(from, to): &(usize, usize)| circle.contains(from) && circle.contains(to);
    let uses = edges.iter().filter(|(edge, _)| inside(edge));
    let uses: Vec<String> = uses
        .map(|((from, to), line)| {
            format!(
                "\n    {}:{line} uses {}",
                target.modules[*from].file.display(),
                name(*to)
            )
        })
        .collect();
    let first = circle.iter().min().copied().unwrap_or_default();
    let at = edges
        .iter()
        .find(|(edge, _)| edge.0 == first && inside(edge))
        .map_or(1, |(_, line)| *line);
    let what = format!(
        "{} modules of {krate} use each other in a circle",
        circle.len()
    );
    let fix = format!(
        "move what both sides need below both, or pass it as an argument:{}",
        uses.concat()
    );
    Finding::new(&target.modules[first].file, at, what, fix)
}

/// Which module uses which, with the line of the first use.
fn uses(target: &Target) -> Edges {
    let mut tree = Tree { scopes: Vec::new() };
    for (file, module) in target.modules.iter().enumerate() {
        let parent = module
            .path
            .split_last()
            .and_then(|(_, parent)| tree.scope(parent));
        tree.add(module.path.clone(), file, parent, &module.syntax.items);
    }
    let mut edges = Edges::new();
    for (file, module) in target
        .modules
        .iter()
        .enumerate()
        .filter(|(_, module)| !module.is_test)
    {
        let scope = tree.scope(&module.path).unwrap_or_default();
        let mut visitor = Uses {
            tree: &tree,
            scope,
            file,
            edges: &mut edges,
        };
        visitor.visit_file(&module.syntax);
    }
    edges
}

/// A module, in a separate file or not, and the names in it.
struct Scope {
    path: Vec<String>,
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: BTreeSet<String>,
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

struct Tree {
    scopes: Vec<Scope>,
}

impl Tree {
    fn scope(&self, path: &[String]) -> Option<usize> {
        self.scopes.iter().position(|scope| scope.path == path)
    }

    fn add(&mut self, path: Vec<String>, file: usize, parent: Option<usize>, items: &[Item]) {
        let at = self.scopes.len();
        if let (Some(parent), Some(name)) = (parent, path.last()) {
            self.scopes[parent].children.insert(name.clone(), at);
        }
        self.scopes.push(Scope {
            path: path.clone(),
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
        });
        for item in items {
            match item {
                Item::Mod(module) => {
                    if let Some((_, items)) = &module.content {
                        let path = path
                            .iter()
                            .cloned()
                            .chain([module.ident.to_string()])
                            .collect();
                        self.add(path, file, Some(at), items);
                    }
                }
                Item::Use(item) if !is_for_tests(&item.attrs) => {
                    let mut leaves = Vec::new();
                    flatten(&item.tree, &[], &mut leaves);
                    for leaf in leaves {
                        match leaf.name {
                            Some(name) => _ = self.scopes[at].imports.insert(name, leaf.path),
                            None => self.scopes[at].globs.push(leaf.path),
                        }
                    }
                }
                item => self.scopes[at].items.extend(name_of(item)),
            }
        }
    }

    /// The module that defines what `path` means in `scope`; `None` outside this crate.
    fn resolve(&self, scope: usize, path: &[String], depth: usize) -> Option<usize> {
        let (mut at, mut rooted) = (scope, false);
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => (at, rooted) = (0, true),
                "self" => rooted = true,
                "super" => (at, rooted) = (self.scopes[at].parent?, true),
                name => {
                    let here = &self.scopes[at];
                    if let Some(child) = here.children.get(name) {
                        (at, rooted) = (*child, true);
                    } else if here.items.contains(name) {
                        return Some(at);
                    } else if depth == 0 {
                        return None;
                    } else if let Some(import) = here.imports.get(name) {
                        let full = [import, &path[index + 1..]].concat();
                        // `use x::y as x`, or the name of another crate: not a module of this one.
                        return if full.first() == Some(&path[index]) && import.len() == 1 {
                            None
                        } else {
                            self.resolve(at, &full, depth - 1)
                        };
                    } else {
                        let mut sources = here
                            .globs
                            .iter()
                            .filter_map(|glob| self.resolve(at, glob, depth - 1));
                        let has = |scope: &usize| self.has(*scope, name);
                        return match sources.find(has) {
                            Some(source) => self.resolve(source, &path[index..], depth - 1),
                            None => rooted.then_some(at),
                        };
                    }
                }
            }
        }
        rooted.then_some(at)
    }

    fn has(&self, scope: usize, name: &str) -> bool {
        let scope = &self.scopes[scope];
        scope.items.contains(name)
            || scope.imports.contains_key(name)
            || scope.children.contains_key(name)
    }
}

fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// One name that a `use` brings in; none for `*`.
struct Leaf {
    path: Vec<String>,
    name: Option<String>,
}

fn flatten(tree: &UseTree, prefix: &[String], out: &mut Vec<Leaf>) {
    let with = |name: &syn::Ident| -> Vec<String> {
        // `use a::{self, b}`: `self` is `a`.
        let name = (name != "self" || prefix.is_empty()).then(|| name.to_string());
        prefix.iter().cloned().chain(name).collect()
    };
    match tree {
        UseTree::Path(tree) => flatten(&tree.tree, &with(&tree.ident), out),
        UseTree::Name(tree) => {
            let path = with(&tree.ident);
            out.push(Leaf {
                name: path.last().cloned(),
                path,
            });
        }
        UseTree::Rename(tree) => out.push(Leaf {
            path: with(&tree.ident),
            name: Some(tree.rename.to_string()),
        }),
        UseTree::Glob(_) => out.push(Leaf {
            path: prefix.to_vec(),
            name: None,
        }),
        UseTree::Group(tree) => tree
            .items
            .iter()
            .for_each(|tree| flatten(tree, prefix, out)),
    }
}

struct Uses<'a> {
    tree: &'a Tree,
    scope: usize,
    file: usize,
    edges: &'a mut Edges,
}

impl Uses<'_> {
    fn add(&mut self, path: &[String], line: usize) {
        if let Some(scope) = self.tree.resolve(self.scope, path, 8) {
            let file = self.tree.scopes[scope].file;
            if file != self.file {
                self.edges.entry((self.file, file)).or_insert(line);
            }
        }
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut at) = (Vec::new(), 0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.path(&std::mem::take(&mut path), at);
                        at = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                token => {
                    self.path(&std::mem::take(&mut path), at);
                    colons = 0;
                    if let TokenTree::Group(group) = token {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.path(&path, at);
    }

    fn path(&mut self, path: &[String], line: usize) {
        // One name alone is an item of this module, a local variable, or what a `use` brought in.
        let alone = path.len() == 1 && !self.tree.scopes[self.scope].imports.contains_key(&path[0]);
        if !path.is_empty() && !alone {
            self.add(path, line);
        }
    }
}

impl<'ast> Visit<'ast> for Uses<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let Some((_, items)) = &module.content else {
            return;
        };
        let around = self.scope;
        if let Some(inner) = self.tree.scopes[around]
            .children
            .get(&module.ident.to_string())
        {
            self.scope = *inner;
        }
        items.iter().for_each(|item| self.visit_item(item));
        self.scope = around;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if matches!(item.vis, Visibility::Inherited) {
            let mut leaves = Vec::new();
            flatten(&item.tree, &[], &mut leaves);
            leaves
                .iter()
                .for_each(|leaf| self.add(&leaf.path, line(item)));
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string())
            .collect();
        self.path(&names, line(path));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.tokens(mac.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'ast Visibility) {}
}
