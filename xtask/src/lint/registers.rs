//! System registers at EL2 are typed: no access by a name in a string, no shift or mask of a
//! register's value.
//!
//! A *string register* is a string in the arguments of a macro that is a register's name
//! (`"hcr_el2"`) or holds an `mrs` or `msr` instruction. The module `sysreg` may have them, and so
//! may `global_asm!` and `naked_asm!`: programs in assembly, not accesses.
//!
//! A *register's value* is a variable or field named like a system register (see [`NAMES`]),
//! `.get()` of a register (`SPSR_EL2.get()`), an access by string, or a variable that was bound to
//! one of these in the same function; also in parentheses, cast, or borrowed. Its operand of `<<`,
//! `>>` or `&` counts; so does a shift in what is written to a register (`HCR_EL2.set(1 << 3)`).
//! Masks are fine where they are typed themselves, the `value` or `mask` of fields, and of the
//! registers with a bit per PMU counter ([`BIT_PER_COUNTER`]). The module `syndrome` may have them:
//! there they are decoded. Not seen: a value that a function passes on under another name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::finding::Finding;
use super::source::{Module, Sources, is_for_tests, line};
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Pat, Token};

/// Variables that hold a register's value, also as the last part of a name: `own_mpidr`, `esr_el2`.
const NAMES: [&str; 16] = [
    "esr", "far", "hpfar", "spsr", "elr", "par", "mpidr", "midr", "clidr", "ccsidr", "ctr", "hcr",
    "sctlr", "vtcr", "mdcr", "pmcr",
];

/// Registers without fields: each bit is one counter of the PMU.
const BIT_PER_COUNTER: [&str; 6] = [
    "PMCNTENSET_EL0",
    "PMCNTENCLR_EL0",
    "PMINTENSET_EL1",
    "PMINTENCLR_EL1",
    "PMOVSSET_EL0",
    "PMOVSCLR_EL0",
];

/// Returns the accesses to system registers by strings.
pub fn strings(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in sources
        .hypervisor()
        .filter(|module| !module.path.iter().any(|name| name == "sysreg"))
    {
        each_macro(module, |mac| {
            let name = mac.path.segments.last();
            let name = name.map_or(String::new(), |segment| segment.ident.to_string());
            if ["global_asm", "naked_asm"].contains(&name.as_str()) {
                return;
            }
            for (text, line) in literals(mac.tokens.clone()) {
                if is_register(&text) || has_instruction(&text) {
                    let what = format!("the register {text:?} in a string");
                    let fix = "use a typed register (`aarch64-cpu`), or add a function to `sysreg`";
                    findings.push(Finding::new(&module.file, line, what, fix));
                }
            }
        });
    }
    findings
}

/// Calls `each` with every macro of a module outside its modules of tests.
pub(super) fn each_macro(module: &Module, each: impl FnMut(&syn::Macro)) {
    Macros { each }.visit_file(&module.syntax);
}

struct Macros<F> {
    each: F,
}

impl<'ast, F: FnMut(&syn::Macro)> Visit<'ast> for Macros<F> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        (self.each)(mac);
    }
}

/// Returns the strings among tokens, each with its line.
pub(super) fn literals(tokens: TokenStream) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => found.extend(literals(group.stream())),
            TokenTree::Literal(literal) => {
                if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                    found.push((text.value(), text.span().start().line));
                }
            }
            _ => {}
        }
    }
    found
}

/// `hcr_el2`, `S3_0_C15_C2_0`.
fn is_register(text: &str) -> bool {
    let lower = text.to_lowercase();
    let is_name = lower.chars().all(|c| c == '_' || c.is_ascii_alphanumeric());
    let by_level = lower
        .split_once("_el")
        .is_some_and(|(_, level)| level.len() == 1);
    let by_number = lower.starts_with("s3_") && lower.split('_').count() == 5;
    is_name && (by_level || by_number)
}

fn has_instruction(text: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| ["mrs", "msr"].contains(&word.to_lowercase().as_str()))
}

/// Returns the shifts and masks of registers' values.
pub fn shifts(sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for module in sources
        .hypervisor()
        .filter(|module| !module.path.iter().any(|name| name == "syndrome"))
    {
        let mut visitor = Shifts {
            module,
            findings: &mut findings,
            bound: BTreeSet::new(),
            written: false,
            seen: BTreeSet::new(),
        };
        visitor.visit_file(&module.syntax);
    }
    findings
}

struct Shifts<'a> {
    module: &'a Module,
    findings: &'a mut Vec<Finding>,
    /// Variables of this function that were bound to a register's value.
    bound: BTreeSet<String>,
    /// Inside of what is written to a register.
    written: bool,
    /// Lines that have a finding.
    seen: BTreeSet<usize>,
}

impl Shifts<'_> {
    fn is_value(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Paren(inner) => self.is_value(&inner.expr),
            Expr::Group(inner) => self.is_value(&inner.expr),
            Expr::Cast(inner) => self.is_value(&inner.expr),
            Expr::Reference(inner) => self.is_value(&inner.expr),
            Expr::Unary(inner) => self.is_value(&inner.expr),
            Expr::Path(path) => path.path.get_ident().is_some_and(|name| {
                is_named(&name.to_string()) || self.bound.contains(&name.to_string())
            }),
            Expr::Field(field) => {
                matches!(&field.member, syn::Member::Named(name) if is_named(&name.to_string()))
            }
            Expr::MethodCall(call) => call.method == "get" && is_typed(&call.receiver),
            Expr::Macro(mac) => literals(mac.mac.tokens.clone())
                .iter()
                .any(|(text, _)| is_register(text)),
            _ => false,
        }
    }

    fn report(&mut self, line: usize, what: &str) {
        if self.seen.insert(line) {
            let fix =
                "read the field by name (`SPSR_EL2.read(SPSR_EL2::M)`), or decode it in `syndrome`";
            self.findings
                .push(Finding::new(&self.module.file, line, what, fix));
        }
    }
}

fn is_named(variable: &str) -> bool {
    // `ESR_EL2` is a typed register, or the name of one in a table.
    let name = variable
        .trim_end_matches(|c: char| c.is_ascii_digit())
        .trim_end_matches("_el");
    let last = name.rsplit('_').next().unwrap_or_default();
    NAMES.contains(&last)
}

fn is_typed(expression: &Expr) -> bool {
    let Expr::Path(path) = expression else {
        return false;
    };
    path.path
        .segments
        .last()
        .is_some_and(|segment| is_register(&segment.ident.to_string()))
}

/// Whether a mask is allowed on this expression: fields' own mask, or a register that is one bit
/// per counter.
fn is_mask_of_names(expression: &Expr) -> bool {
    match expression {
        Expr::Field(field) => {
            matches!(&field.member, syn::Member::Named(name) if ["value", "mask"].contains(&name.to_string().as_str()))
        }
        Expr::MethodCall(call) if call.method == "get" => match &*call.receiver {
            Expr::Path(path) => path
                .path
                .segments
                .last()
                .is_some_and(|last| BIT_PER_COUNTER.contains(&last.ident.to_string().as_str())),
            _ => false,
        },
        _ => false,
    }
}

const fn is_shift(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::Shl(_) | BinOp::Shr(_) | BinOp::ShlAssign(_) | BinOp::ShrAssign(_)
    )
}

impl<'ast> Visit<'ast> for Shifts<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        self.bound.clear();
        visit::visit_signature(self, signature);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let pattern = match &local.pat {
            Pat::Type(typed) => &typed.pat,
            pattern => pattern,
        };
        if let (Pat::Ident(name), Some(init)) = (pattern, &local.init)
            && self.is_value(&init.expr)
        {
            self.bound.insert(name.ident.to_string());
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let is_mask = matches!(binary.op, BinOp::BitAnd(_) | BinOp::BitAndAssign(_))
            && ![&binary.left, &binary.right]
                .into_iter()
                .any(|side| is_mask_of_names(side));
        if (is_shift(&binary.op) || is_mask)
            && (self.is_value(&binary.left) || self.is_value(&binary.right))
        {
            self.report(line(binary), "a shift or mask of a register's value");
        } else if is_shift(&binary.op) && self.written {
            self.report(line(binary), "a shift in what is written to a register");
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let around = self.written;
        self.written |= call.method == "set" && is_typed(&call.receiver);
        visit::visit_expr_method_call(self, call);
        self.written = around;
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        let Ok(arguments) = mac.parse_body_with(Punctuated::<Expr, Token![,]>::parse_terminated)
        else {
            return;
        };
        let around = self.written;
        self.written |= mac
            .path
            .segments
            .last()
            .is_some_and(|segment| segment.ident == "write")
            && literals(mac.tokens.clone())
                .iter()
                .any(|(text, _)| is_register(text));
        arguments
            .iter()
            .for_each(|argument| self.visit_expr(argument));
        self.written = around;
    }
}
