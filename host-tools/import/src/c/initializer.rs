//! Objects with initializers: `struct config config = { .vmlist_size = 1, … };`
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::expression;
use super::lexer::{self, Kind, Token};
use super::preprocessor::Preprocessed;
use crate::source::{Failure, Place, Sources};
use std::collections::HashMap;

/// How deep lists may be in each other.
const DEEPEST: usize = 32;
/// The most entries of a list: more than any VM, region or device table has.
pub const MOST_ENTRIES: usize = 4096;

/// An initializer.
#[derive(Clone, Debug)]
pub enum Node {
    /// A list in braces.
    List(List),
    /// An expression, which is computed when its value is asked for.
    Expression(Vec<Token>),
}

/// A list in braces.
#[derive(Clone, Debug)]
pub struct List {
    items: Vec<Item>,
    /// From the first to the last brace.
    pub place: Place,
}

/// An entry of a list.
#[derive(Clone, Debug)]
struct Item {
    /// `.field` and `[number]` before the `=`.
    path: Vec<Step>,
    node: Node,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    /// The first and the last number of a range, or one number twice.
    Index(usize, usize),
}

/// A field of a list.
#[derive(Clone, Debug)]
pub struct Field {
    /// Its initializer.
    pub node: Node,
    /// Where its name is.
    pub place: Place,
}

/// The objects of a file.
#[derive(Debug)]
pub struct Objects<'a> {
    sources: &'a Sources,
    by_name: HashMap<String, Node>,
    /// Calls of opaque macros outside of objects, such as `VM_IMAGE(name, path)`.
    pub calls: Vec<Call>,
}

/// A call of an opaque macro.
#[derive(Clone, Debug)]
pub struct Call {
    /// The macro.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<Vec<Token>>,
    /// Where it is.
    pub place: Place,
}

impl<'a> Objects<'a> {
    /// Finds the objects of a file.
    ///
    /// # Errors
    ///
    /// Returns the first list that has no end or is too deep.
    pub fn find(sources: &'a Sources, text: &'a Preprocessed) -> Result<Self, Failure> {
        let tokens = &text.tokens;
        let (mut by_name, mut calls) = (HashMap::new(), Vec::new());
        let (mut at, mut depth) = (0, 0_usize);
        while let Some(token) = tokens.get(at) {
            if depth == 0 && token.is("=") {
                let mut parser = Parser {
                    sources,
                    tokens,
                    at: at + 1,
                };
                if let Some(name) = declared(&tokens[..at])
                    && parser.starts_list()
                {
                    by_name.insert(name, parser.node(0)?);
                    at = parser.at;
                    continue;
                }
            }
            if depth == 0
                && let Some(call) = call(&tokens[at..])
            {
                calls.push(call);
            }
            let opens = ["{", "(", "["].iter().any(|sign| token.is(sign));
            let closes = ["}", ")", "]"].iter().any(|sign| token.is(sign));
            depth = (depth + usize::from(opens)).saturating_sub(usize::from(closes));
            at += 1;
        }
        Ok(Self {
            sources,
            by_name,
            calls,
        })
    }

    /// Returns the object of this name.
    pub fn object(&self, name: &str) -> Option<&List> {
        match self.by_name.get(name)? {
            Node::List(list) => Some(list),
            Node::Expression(_) => None,
        }
    }

    /// Returns all objects.
    pub fn all(&self) -> impl Iterator<Item = (&str, &List)> {
        self.by_name.iter().filter_map(|(name, node)| match node {
            Node::List(list) => Some((name.as_str(), list)),
            Node::Expression(_) => None,
        })
    }

    /// Returns the number that an initializer stands for.
    ///
    /// # Errors
    ///
    /// If it is a list, or its value is unknown, negative or too large.
    pub fn number(&self, field: &Field) -> Result<u64, Failure> {
        let tokens = match &field.node {
            Node::Expression(tokens) => tokens,
            Node::List(list) => match list.items.as_slice() {
                // Braces around a number are allowed.
                [only] if only.path.is_empty() => {
                    let inner = Field {
                        node: only.node.clone(),
                        place: only.place,
                    };
                    return self.number(&inner);
                }
                _ => return Err(self.error(list.place, "a list in the place of a number")),
            },
        };
        let resolve = |name: &str| match name {
            "true" => Some(1),
            "false" | "NULL" => Some(0),
            _ => None,
        };
        let value = expression::evaluate(self.sources, tokens, &resolve)?;
        u64::try_from(value).map_err(|_| self.error(field.place, format!("{value} is negative")))
    }

    /// Returns the text that an initializer is: strings next to each other are one.
    pub fn text_of(&self, field: &Field) -> Option<String> {
        let Node::Expression(tokens) = &field.node else {
            return None;
        };
        tokens
            .iter()
            .map(|token| (token.kind == Kind::Text).then(|| lexer::unquote(&token.text)))
            .collect()
    }

    /// Returns the list that an initializer is, names, or points to.
    pub fn list<'b>(&'b self, field: &'b Field) -> Option<&'b List> {
        let mut node = &field.node;
        // An object may name another one, but not in a circle.
        for _ in 0..DEEPEST {
            match node {
                Node::List(list) => return Some(list),
                Node::Expression(tokens) => {
                    let name = match tokens.as_slice() {
                        [name] => name,
                        [and, name] if and.is("&") => name,
                        _ => return None,
                    };
                    node = self.by_name.get(name.name()?)?;
                }
            }
        }
        None
    }

    /// Returns the call of a macro that an initializer is.
    pub fn call_of(field: &Field) -> Option<Call> {
        match &field.node {
            Node::Expression(tokens) => call(tokens),
            Node::List(_) => None,
        }
    }

    fn error(&self, place: Place, message: impl Into<String>) -> Failure {
        self.sources
            .error(place, "initializer", message)
            .help("write a number")
            .into()
    }
}

impl List {
    /// Returns a field. If several initializers set parts of it, these are together.
    pub fn field(&self, name: &str) -> Option<Field> {
        let matches =
            |item: &&Item| matches!(item.path.first(), Some(Step::Field(known)) if known == name);
        let mut parts: Vec<Item> = Vec::new();
        let mut whole = None;
        for item in self.items.iter().filter(matches) {
            if item.path.len() == 1 {
                whole = Some(item);
                parts.clear();
            } else {
                let mut part = item.clone();
                part.path.remove(0);
                parts.push(part);
            }
        }
        let Some(first) = parts.first() else {
            let item = whole?;
            return Some(Field {
                node: item.node.clone(),
                place: item.place,
            });
        };
        let place = first.place;
        if let Some(Item {
            node: Node::List(list),
            ..
        }) = whole
        {
            parts.splice(0..0, list.items.iter().cloned());
        }
        Some(Field {
            node: Node::List(Self {
                items: parts,
                place,
            }),
            place,
        })
    }

    /// Returns the names of the fields that are set, each with its first place.
    pub fn names(&self) -> Vec<(&str, Place)> {
        let mut names: Vec<(&str, Place)> = Vec::new();
        for item in &self.items {
            if let Some(Step::Field(name)) = item.path.first()
                && !names.iter().any(|(known, _)| known == name)
            {
                names.push((name, item.place));
            }
        }
        names
    }

    /// Returns the entries of an array.
    ///
    /// # Errors
    ///
    /// If there are too many.
    pub fn entries(&self, sources: &Sources) -> Result<Vec<Field>, Failure> {
        let too_many = |place: Place| -> Failure {
            let message = format!("more than {MOST_ENTRIES} entries");
            sources
                .error(place, "array", message)
                .help("no such table is that long")
                .into()
        };
        let mut entries: Vec<(usize, Field)> = Vec::new();
        let mut next = 0;
        for item in &self.items {
            let (first, last) = match item.path.as_slice() {
                [] => (next, next),
                [Step::Index(first, last), ..] => (*first, *last),
                // A field: this is no array.
                _ => continue,
            };
            if last >= MOST_ENTRIES || entries.len() + (last - first) >= MOST_ENTRIES {
                return Err(too_many(item.place));
            }
            next = last + 1;
            let mut field = Field {
                node: item.node.clone(),
                place: item.place,
            };
            if item.path.len() > 1 {
                let mut part = item.clone();
                part.path.remove(0);
                field.node = Node::List(Self {
                    items: vec![part],
                    place: item.place,
                });
            }
            entries.extend((first..=last).map(|index| (index, field.clone())));
        }
        entries.sort_by_key(|(index, _)| *index);
        Ok(entries.into_iter().map(|(_, field)| field).collect())
    }

    /// Returns whether the list has no entry at all.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

/// Returns the name of the object that is declared before an `=`.
fn declared(tokens: &[Token]) -> Option<String> {
    let mut end = tokens.len();
    loop {
        let last = tokens.get(end.checked_sub(1)?)?;
        if last.is("]") || last.is(")") {
            let (open, close) = if last.is("]") { ("[", "]") } else { ("(", ")") };
            let mut depth = 0_usize;
            end = tokens[..end].iter().rposition(|token| {
                depth += usize::from(token.is(close));
                depth -= usize::from(token.is(open) && depth > 0);
                depth == 0
            })?;
            // The name of an attribute is none of an object.
            if last.is(")") && tokens.get(end.checked_sub(1)?)?.kind == Kind::Name {
                end -= 1;
            }
            continue;
        }
        return last.name().map(str::to_owned);
    }
}

/// Returns the call of a macro or function that the tokens start with.
fn call(tokens: &[Token]) -> Option<Call> {
    let name = tokens.first()?.name()?;
    if !tokens.get(1)?.is("(") {
        return None;
    }
    let (mut arguments, mut depth) = (vec![Vec::new()], 0_usize);
    for token in &tokens[1..] {
        depth -= usize::from(token.is(")") && depth > 0);
        if depth == 0 && token.is(")") {
            return Some(Call {
                name: name.to_owned(),
                arguments,
                place: tokens[0].place.to(token.place),
            });
        }
        if depth == 1 && token.is(",") {
            arguments.push(Vec::new());
        } else if depth > 0 {
            arguments.last_mut()?.push(token.clone());
        }
        depth += usize::from(token.is("("));
    }
    None
}

struct Parser<'a> {
    sources: &'a Sources,
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    fn error(&self, message: &str) -> Failure {
        let place = lexer::place_at(self.tokens, self.at);
        self.sources
            .error(place, "initializer", message)
            .help("write .field = value, separated by commas, in braces")
            .into()
    }

    fn next_is(&self, sign: &str) -> bool {
        lexer::sign_at(self.tokens, self.at, sign)
    }

    /// Returns whether a list is next, perhaps after its type in brackets, which is skipped.
    fn starts_list(&mut self) -> bool {
        let rest = &self.tokens[self.at.min(self.tokens.len())..];
        let skipped = usize::from(rest.first().is_some_and(|token| token.is("&")));
        let Some(first) = rest.get(skipped) else {
            return false;
        };
        if first.is("{") {
            self.at += skipped;
            return true;
        }
        if !first.is("(") {
            return false;
        }
        let mut depth = 0_usize;
        let close = rest[skipped..].iter().position(|token| {
            depth += usize::from(token.is("("));
            depth -= usize::from(token.is(")") && depth > 0);
            depth == 0
        });
        let Some(after) = close.map(|close| skipped + close + 1) else {
            return false;
        };
        let is_list = rest.get(after).is_some_and(|token| token.is("{"));
        self.at += if is_list { after } else { 0 };
        is_list
    }

    fn node(&mut self, depth: usize) -> Result<Node, Failure> {
        if depth > DEEPEST {
            return Err(self.error("lists that are too deep in each other"));
        }
        if self.starts_list() {
            return self.list(depth).map(Node::List);
        }
        let (start, mut open) = (self.at, 0_usize);
        while let Some(token) = self.tokens.get(self.at) {
            let opens = ["(", "[", "{"].iter().any(|sign| token.is(sign));
            let closes = [")", "]", "}"].iter().any(|sign| token.is(sign));
            if open == 0 && (token.is(",") || token.is(";") || closes) {
                break;
            }
            open = (open + usize::from(opens)).saturating_sub(usize::from(closes));
            self.at += 1;
        }
        if start == self.at {
            return Err(self.error("a value is missing here"));
        }
        Ok(Node::Expression(self.tokens[start..self.at].to_vec()))
    }

    fn list(&mut self, depth: usize) -> Result<List, Failure> {
        let start = self.tokens[self.at].place;
        self.at += 1;
        let mut items = Vec::new();
        loop {
            let Some(token) = self.tokens.get(self.at) else {
                let failure = self
                    .sources
                    .error(start, "initializer", "a list without an end");
                return Err(failure.help("close it with }").into());
            };
            if token.is("}") {
                let place = start.to(token.place);
                self.at += 1;
                return Ok(List { items, place });
            }
            if token.is(",") {
                self.at += 1;
                continue;
            }
            let first = token.place;
            let path = self.path()?;
            let end = self
                .tokens
                .get(self.at.saturating_sub(1))
                .map(|token| token.place);
            let node = self.node(depth + 1)?;
            let place = if path.is_empty() {
                first
            } else {
                first.to(end.unwrap_or(first))
            };
            items.push(Item { path, node, place });
        }
    }

    /// Reads `.field[number] =`, or `field:`.
    fn path(&mut self) -> Result<Vec<Step>, Failure> {
        let mut path = Vec::new();
        let old = self
            .tokens
            .get(self.at + 1)
            .is_some_and(|token| token.is(":"));
        if let (Some(name), true) = (self.tokens.get(self.at).and_then(Token::name), old) {
            path.push(Step::Field(name.to_owned()));
            self.at += 2;
            return Ok(path);
        }
        loop {
            if self.next_is(".") {
                let Some(name) = self.tokens.get(self.at + 1).and_then(Token::name) else {
                    return Err(self.error("`.` without a field's name"));
                };
                path.push(Step::Field(name.to_owned()));
                self.at += 2;
            } else if self.next_is("[") {
                let rest = &self.tokens[self.at + 1..];
                let close = rest
                    .iter()
                    .position(|token| token.is("]"))
                    .ok_or_else(|| self.error("`[` without `]`"))?;
                let inner = &rest[..close];
                let index = |tokens: &[Token]| {
                    let index = expression::evaluate(self.sources, tokens, &|_| None)?;
                    usize::try_from(index)
                        .ok()
                        .filter(|index| *index < MOST_ENTRIES)
                        .ok_or_else(|| self.error("an entry beyond any table's end"))
                };
                let dots = inner.iter().position(|token| token.is("..."));
                let first = index(dots.map_or(inner, |dots| &inner[..dots]))?;
                let last = dots.map_or(Ok(first), |dots| index(&inner[dots + 1..]))?;
                if last < first {
                    return Err(self.error("a range that ends before it starts"));
                }
                path.push(Step::Index(first, last));
                self.at += close + 2;
            } else {
                break;
            }
        }
        if !path.is_empty() {
            if !self.next_is("=") {
                return Err(self.error("`=` is missing here"));
            }
            self.at += 1;
        }
        Ok(path)
    }
}
