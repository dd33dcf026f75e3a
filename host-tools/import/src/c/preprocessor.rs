//! The C preprocessor: includes, conditions, macros. All that it does is bounded.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::expression;
use super::lexer::{self, Kind, Token};
use crate::source::{Failure, Place, Sources};
use cloison_config::files;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How deep files may include each other, and macros may name each other.
const DEEPEST: usize = 48;
/// How many tokens the macros of an import may make.
const MOST_TOKENS: usize = 1 << 20;
/// How far above a file the folders are whose `include` may have what it includes.
const FOLDERS: usize = 4;
/// Where headers are, below a folder above the file that includes them.
const HEADERS: [&str; 4] = [
    "",
    "include",
    "include/arch/arm64",
    "hypervisor/arch/arm64/include",
];

/// What the user says about headers and macros.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Folders with headers, searched first.
    pub includes: Vec<PathBuf>,
    /// Macros: `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
}

/// A macro.
#[derive(Clone, Debug)]
struct Macro {
    /// Names of its parameters, if it has some. The last one may be `...`.
    parameters: Option<Vec<Rc<str>>>,
    body: Rc<[Token]>,
}

/// What a file is once its macros are replaced.
#[derive(Debug)]
pub struct Preprocessed {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// Includes whose file was not found.
    pub missing: Vec<(String, Place)>,
}

/// Preprocesses a file. `prelude` is a header of ours that is read before it, and `opaque` are
/// macros that stay as they are written, wherever they are defined.
///
/// # Errors
///
/// Returns the first mistake.
pub fn run(
    sources: &mut Sources,
    file: u16,
    prelude: &str,
    opaque: &[&str],
    settings: &Settings,
) -> Result<Preprocessed, Failure> {
    let mut preprocessor = Preprocessor {
        sources,
        settings,
        opaque,
        macros: HashMap::new(),
        output: Vec::new(),
        missing: Vec::new(),
        once: Vec::new(),
        made: 0,
        is_header: false,
    };
    let own = |text: String, name: &str, sources: &mut Sources| {
        sources
            .add(Path::new(name), text, false)
            .unwrap_or_default()
    };
    let header = own(
        prelude.to_owned(),
        "(Cloison's header)",
        preprocessor.sources,
    );
    preprocessor.file(header, 0)?;
    let defines: String = settings
        .defines
        .iter()
        .map(|define| {
            let (name, value) = define.split_once('=').unwrap_or((define, "1"));
            format!("#define {name} {value}\n")
        })
        .collect();
    let header = own(defines, "(command line)", preprocessor.sources);
    preprocessor.file(header, 0)?;
    preprocessor.output.clear();
    preprocessor.file(file, 0)?;
    Ok(Preprocessed {
        tokens: preprocessor.output,
        missing: preprocessor.missing,
    })
}

struct Preprocessor<'a> {
    sources: &'a mut Sources,
    settings: &'a Settings,
    opaque: &'a [&'a str],
    macros: HashMap<Rc<str>, Macro>,
    output: Vec<Token>,
    missing: Vec<(String, Place)>,
    /// Files with `#pragma once`.
    once: Vec<PathBuf>,
    /// How many tokens macros have made.
    made: usize,
    /// Whether the current file is included by another.
    is_header: bool,
}

/// An open `#if`.
#[derive(Clone, Copy)]
struct Condition {
    /// Whether the lines of this branch count.
    is_active: bool,
    /// Whether a branch was taken already.
    was_taken: bool,
    /// Whether the lines around it count.
    is_within_active: bool,
    place: Place,
}

const DIRECTIVES: [&str; 14] = [
    "define",
    "undef",
    "include",
    "if",
    "ifdef",
    "ifndef",
    "elif",
    "else",
    "endif",
    "error",
    "warning",
    "pragma",
    "line",
    "include_next",
];

impl Preprocessor<'_> {
    fn error(&self, place: Place, message: impl Into<String>, help: &str) -> Failure {
        self.sources
            .error(place, "preprocessor", message)
            .help(help)
            .into()
    }

    fn file(&mut self, file: u16, depth: usize) -> Result<(), Failure> {
        let tokens = lexer::tokens(self.sources, file)?;
        let mut conditions: Vec<Condition> = Vec::new();
        let mut pending: Vec<Token> = Vec::new();
        let mut at = 0;
        while at < tokens.len() {
            let is_active = conditions.last().is_none_or(|it| it.is_active);
            let end = line_end(&tokens, at);
            let directive = tokens[at]
                .is("#")
                .then(|| tokens.get(at + 1).filter(|_| at + 1 < end))
                .flatten()
                .and_then(Token::name)
                .filter(|name| DIRECTIVES.contains(name));
            let Some(name) = directive else {
                if is_active {
                    pending.extend_from_slice(&tokens[at..end]);
                }
                at = end;
                continue;
            };
            let rest = &tokens[at + 2..end];
            let place = tokens[at].place.to(tokens[end - 1].place);
            if !self.condition(name, rest, place, &mut conditions)? && is_active {
                let before = std::mem::take(&mut pending);
                let expanded = self.expand(&before, &mut Vec::new())?;
                self.output.extend(expanded);
                self.directive(name, rest, place, file, depth)?;
            }
            at = end;
        }
        if let Some(open) = conditions.last() {
            let help = "close it with #endif";
            return Err(self.error(open.place, "a condition without an end", help));
        }
        let expanded = self.expand(&pending, &mut Vec::new())?;
        self.output.extend(expanded);
        Ok(())
    }

    /// Carries out a directive about conditions; returns whether it was one.
    fn condition(
        &mut self,
        name: &str,
        rest: &[Token],
        place: Place,
        conditions: &mut Vec<Condition>,
    ) -> Result<bool, Failure> {
        let is_within_active = conditions.last().is_none_or(|it| it.is_active);
        if matches!(name, "if" | "ifdef" | "ifndef") {
            if conditions.len() >= DEEPEST {
                let message = format!("more than {DEEPEST} conditions in each other");
                return Err(self.error(place, message, "simplify the file"));
            }
            let holds = is_within_active && self.holds(name, rest, place)?;
            conditions.push(Condition {
                is_active: holds,
                was_taken: holds,
                is_within_active,
                place,
            });
            return Ok(true);
        }
        if !matches!(name, "elif" | "else" | "endif") {
            return Ok(false);
        }
        let Some(mut open) = conditions.pop() else {
            return Err(self.error(place, format!("#{name} without #if"), "remove it"));
        };
        if name != "endif" {
            let may = open.is_within_active && !open.was_taken;
            open.is_active = may && (name == "else" || self.holds("if", rest, place)?);
            open.was_taken |= open.is_active;
            conditions.push(open);
        }
        Ok(true)
    }

    fn holds(&mut self, name: &str, rest: &[Token], place: Place) -> Result<bool, Failure> {
        let defined = |it: &Self, token: Option<&Token>| {
            token
                .and_then(Token::name)
                .is_some_and(|name| it.macros.contains_key(name))
        };
        match name {
            "ifdef" => return Ok(defined(self, rest.first())),
            "ifndef" => return Ok(!defined(self, rest.first())),
            _ => {}
        }
        // `defined` comes before macros are replaced.
        let mut line: Vec<Token> = Vec::new();
        let mut at = 0;
        while let Some(token) = rest.get(at) {
            if token.name() != Some("defined") {
                line.push(token.clone());
                at += 1;
                continue;
            }
            let in_brackets = rest.get(at + 1).is_some_and(|token| token.is("("));
            let subject = rest.get(at + 1 + usize::from(in_brackets));
            let mut number = token.clone();
            number.kind = Kind::Number;
            number.text = if defined(self, subject) { "1" } else { "0" }.into();
            line.push(number);
            at += if in_brackets { 4 } else { 2 };
        }
        let line = self.expand(&line, &mut Vec::new())?;
        if line.is_empty() {
            return Err(self.error(place, "a condition without an expression", "write one"));
        }
        // In a condition, a name without a macro is 0.
        match expression::evaluate(self.sources, &line, &|_| Some(0)) {
            Ok(value) => Ok(value != 0),
            // What a header asks of a compiler.
            Err(_) if self.is_header => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    fn directive(
        &mut self,
        name: &str,
        rest: &[Token],
        place: Place,
        file: u16,
        depth: usize,
    ) -> Result<(), Failure> {
        match name {
            "define" => self.define(rest, place),
            "undef" => {
                if let Some(name) = rest.first().and_then(Token::name) {
                    self.macros.remove(name);
                }
                Ok(())
            }
            "include" => self.include(rest, place, file, depth),
            "error" => {
                let said = self.sources.at(place).to_owned();
                let help = "set what it asks for with -D NAME=VALUE or -I FOLDER";
                Err(self.error(place, format!("the file itself refuses: {said}"), help))
            }
            "pragma" => {
                if rest.first().and_then(Token::name) == Some("once") {
                    self.once.push(self.sources.path(file).to_path_buf());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn define(&mut self, rest: &[Token], place: Place) -> Result<(), Failure> {
        let Some(name) = rest.first().filter(|token| token.kind == Kind::Name) else {
            return Err(self.error(place, "#define without a name", "name the macro"));
        };
        let mut body = &rest[1..];
        let mut parameters = None;
        if body
            .first()
            .is_some_and(|token| token.is("(") && !token.is_apart)
        {
            let Some(close) = body.iter().position(|token| token.is(")")) else {
                return Err(self.error(place, "parameters without an end", "close them with )"));
            };
            let names = body[1..close]
                .iter()
                .filter(|token| !token.is(","))
                .map(|token| token.text.clone());
            parameters = Some(names.collect());
            body = &body[close + 1..];
        }
        let body = body.into();
        self.macros
            .insert(name.text.clone(), Macro { parameters, body });
        Ok(())
    }

    fn include(
        &mut self,
        rest: &[Token],
        place: Place,
        file: u16,
        depth: usize,
    ) -> Result<(), Failure> {
        let rest = match rest.first() {
            Some(first) if first.kind == Kind::Name => self.expand(rest, &mut Vec::new())?,
            _ => rest.to_vec(),
        };
        let name = match rest.first() {
            Some(first) if first.kind == Kind::Text => lexer::unquote(&first.text),
            Some(first) if first.is("<") => rest[1..]
                .iter()
                .take_while(|token| !token.is(">"))
                .map(|token| &*token.text)
                .collect(),
            _ => String::new(),
        };
        if name.is_empty() || Path::new(&name).is_absolute() {
            let message = "#include without a relative path";
            return Err(self.error(place, message, "write #include \"file.h\""));
        }
        if depth >= DEEPEST {
            let message = format!("more than {DEEPEST} files include each other");
            return Err(self.error(place, message, "does the file include itself?"));
        }
        let Some(path) = self.find(&name, file) else {
            self.missing.push((name, place));
            return Ok(());
        };
        if self.once.contains(&path) {
            return Ok(());
        }
        let text = files::read_text(&path, files::CONFIGURATION).map_err(|error| {
            let message = format!("cannot read {}: {error}", path.display());
            self.error(place, message, "name its folder with -I FOLDER")
        })?;
        let Some(included) = self.sources.add(&path, text, false) else {
            return Err(self.error(place, "too many files", "does a file include itself?"));
        };
        let around = std::mem::replace(&mut self.is_header, true);
        self.file(included, depth + 1)?;
        self.is_header = around;
        Ok(())
    }

    /// Returns the file that an include means.
    fn find(&self, name: &str, file: u16) -> Option<PathBuf> {
        let from = self.sources.path(file);
        let beside = from.parent().unwrap_or(Path::new(""));
        let near = |folder: &Path| HEADERS.map(|headers| folder.join(headers).join(name));
        let absolute = std::path::absolute(beside).unwrap_or_default();
        let above = absolute.ancestors().take(FOLDERS).flat_map(near);
        std::iter::once(beside.join(name))
            .chain(
                self.settings
                    .includes
                    .iter()
                    .map(|folder| folder.join(name)),
            )
            .chain(above)
            .find(|path| path.is_file())
    }

    /// Returns whether a macro stays as it is written. A name that ends with `*` is a prefix.
    fn is_opaque(&self, name: &str) -> bool {
        self.opaque
            .iter()
            .any(|opaque| match opaque.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => name == *opaque,
            })
    }

    /// Replaces the macros of tokens, except those whose replacement this is.
    fn expand(
        &mut self,
        tokens: &[Token],
        within: &mut Vec<Rc<str>>,
    ) -> Result<Vec<Token>, Failure> {
        let mut result: Vec<Token> = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            let found = (token.kind == Kind::Name && !within.contains(&token.text))
                .then(|| self.macros.get(&token.text))
                .flatten()
                .filter(|_| !self.is_opaque(&token.text));
            let Some(found) = found.cloned() else {
                result.push(token.clone());
                continue;
            };
            let mut body = found.body.to_vec();
            if let Some(parameters) = &found.parameters {
                let Some((arguments, next)) = arguments(&tokens[at..]) else {
                    // Without arguments it is a name.
                    result.push(token.clone());
                    continue;
                };
                at += next;
                body = self.substitute(&body, parameters, &arguments, within)?;
            }
            body = paste(body);
            if within.len() >= DEEPEST {
                let message = format!("more than {DEEPEST} macros in each other");
                return Err(self.error(token.place, message, "simplify the macros"));
            }
            for made in &mut body {
                made.place = token.place;
            }
            // Also counts what makes nothing in the end.
            self.made += body.len() + 1;
            if self.made > MOST_TOKENS {
                let message = format!("macros make more than {MOST_TOKENS} tokens");
                return Err(self.error(token.place, message, "simplify the macros"));
            }
            within.push(token.text.clone());
            let body = self.expand(&body, within)?;
            within.pop();
            result.extend(body);
        }
        Ok(result)
    }

    fn substitute(
        &mut self,
        body: &[Token],
        parameters: &[Rc<str>],
        arguments: &[Vec<Token>],
        within: &mut Vec<Rc<str>>,
    ) -> Result<Vec<Token>, Failure> {
        let argument = |name: &str| -> Option<Vec<Token>> {
            if name == "__VA_ARGS__" {
                let first = parameters.len().checked_sub(1)?;
                let rest = arguments.get(first..).unwrap_or_default();
                let mut joined = Vec::new();
                for (number, part) in rest.iter().enumerate() {
                    if let (true, Some(first)) = (number > 0, part.first()) {
                        let mut comma = first.clone();
                        (comma.kind, comma.text) = (Kind::Sign, ",".into());
                        joined.push(comma);
                    }
                    joined.extend_from_slice(part);
                }
                return Some(joined);
            }
            let index = parameters.iter().position(|known| &**known == name)?;
            Some(arguments.get(index).cloned().unwrap_or_default())
        };
        let mut result: Vec<Token> = Vec::new();
        for (at, token) in body.iter().enumerate() {
            let follows = |sign| at > 0 && body[at - 1].is(sign);
            let pastes = follows("##") || body.get(at + 1).is_some_and(|next| next.is("##"));
            let Some(given) = token.name().and_then(&argument) else {
                result.push(token.clone());
                continue;
            };
            if follows("#") {
                result.pop();
                let mut text = token.clone();
                (text.kind, text.text) = (Kind::Text, quote(&given).into());
                result.push(text);
            } else if pastes {
                result.extend(given);
            } else {
                result.extend(self.expand(&given, within)?);
            }
        }
        Ok(result)
    }
}

/// Returns the index after the last token of the line that starts at `at`.
fn line_end(tokens: &[Token], at: usize) -> usize {
    let rest = &tokens[at + 1..];
    let length = rest.iter().position(|token| token.starts_line);
    length.map_or(tokens.len(), |length| at + 1 + length)
}

/// Returns the arguments in brackets at the start of the tokens, and how many tokens these are.
fn arguments(tokens: &[Token]) -> Option<(Vec<Vec<Token>>, usize)> {
    if !tokens.first()?.is("(") {
        return None;
    }
    let (mut found, mut depth) = (vec![Vec::new()], 0_usize);
    for (at, token) in tokens.iter().enumerate() {
        let opens = ["(", "{", "["].iter().any(|sign| token.is(sign));
        let closes = [")", "}", "]"].iter().any(|sign| token.is(sign));
        depth = if closes {
            depth.saturating_sub(1)
        } else {
            depth
        };
        if depth == 0 && token.is(")") {
            return Some((found, at + 1));
        }
        if depth == 1 && token.is(",") {
            found.push(Vec::new());
        } else if depth > 0 {
            found.last_mut()?.push(token.clone());
        }
        depth += usize::from(opens);
    }
    None
}

/// Returns the text of tokens as a string in C.
fn quote(tokens: &[Token]) -> String {
    let mut text = String::from("\"");
    for (at, token) in tokens.iter().enumerate() {
        if at > 0 && token.is_apart {
            text.push(' ');
        }
        if token.kind == Kind::Text {
            text.push_str(&token.text.replace('\\', "\\\\").replace('"', "\\\""));
        } else {
            text.push_str(&token.text);
        }
    }
    text.push('"');
    text
}

/// Joins tokens around `##`.
fn paste(body: Vec<Token>) -> Vec<Token> {
    if !body.iter().any(|token| token.is("##")) {
        return body;
    }
    let mut result: Vec<Token> = Vec::with_capacity(body.len());
    let mut joins = false;
    for token in body {
        if token.is("##") {
            joins = !result.is_empty();
            continue;
        }
        match result.last_mut().filter(|_| joins) {
            Some(last) => last.text = format!("{}{}", last.text, token.text).into(),
            None => result.push(token),
        }
        joins = false;
    }
    result
}
