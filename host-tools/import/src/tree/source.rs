//! The source form of device trees (Devicetree Specification, chapter 6).
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::{Node, Property};
use crate::c::{self, Kind, Settings, Token};
use crate::source::{Failure, Sources};

/// How deep nodes may be in each other.
const DEEPEST: usize = 32;

/// Reads a device tree; returns its root.
///
/// # Errors
///
/// Returns the first mistake.
pub fn read(sources: &mut Sources, file: u16, settings: &Settings) -> Result<Node, Failure> {
    let text = c::run(sources, file, "", &[], settings)?;
    let mut parser = Parser {
        sources,
        tokens: &text.tokens,
        at: 0,
        root: Node::default(),
    };
    parser.whole()?;
    Ok(parser.root)
}

struct Parser<'a> {
    sources: &'a Sources,
    tokens: &'a [Token],
    at: usize,
    root: Node,
}

/// Signs that end a name.
const ENDS: [&str; 13] = [
    "{", "}", ";", "=", "<", ">", "[", "]", "(", ")", ":", "&", ">>",
];

impl Parser<'_> {
    fn error(&self, message: &str) -> Failure {
        let place = c::place_at(self.tokens, self.at);
        self.sources
            .error(place, "device tree", message)
            .help("the Devicetree Specification, chapter 6, has the syntax")
            .into()
    }

    fn next_is(&self, sign: &str) -> bool {
        c::sign_at(self.tokens, self.at, sign)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let found = self.next_is(sign);
        self.at += usize::from(found);
        found
    }

    fn needs(&mut self, sign: &str) -> Result<(), Failure> {
        if self.takes(sign) {
            Ok(())
        } else {
            Err(self.error(&format!("`{sign}` is missing here")))
        }
    }

    fn whole(&mut self) -> Result<(), Failure> {
        while self.at < self.tokens.len() {
            let labels = self.labels();
            if self.next_is("/")
                && self
                    .tokens
                    .get(self.at + 1)
                    .is_some_and(|token| token.is("{"))
            {
                self.at += 1;
                let mut root = std::mem::take(&mut self.root);
                root.labels.extend(labels);
                if root.name.is_empty() {
                    root.name = "/".to_owned();
                    root.place = self.tokens[self.at - 1].place;
                }
                let body = self.body(&mut root, 0);
                self.root = root;
                body?;
            } else if self.takes("&") {
                let label = self.name();
                let mut part = Node::default();
                self.body(&mut part, 0)?;
                if let Some(node) = find(&mut self.root, &label) {
                    merge(node, part);
                }
            } else if self.next_is("/") {
                // /dts-v1/; /plugin/; /memreserve/ …; /include/ "file"; /delete-node/ &label;
                self.skip_statement();
            } else {
                return Err(self.error("a node, `/ {` or `&label {`, is expected here"));
            }
        }
        Ok(())
    }

    fn skip_statement(&mut self) {
        let mut signs = 0;
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            signs += usize::from(token.is("/"));
            // /include/ "file" has no semicolon.
            let ends = token.is(";") || token.kind == Kind::Text && signs == 2;
            if ends {
                break;
            }
        }
    }

    fn labels(&mut self) -> Vec<String> {
        let mut labels = Vec::new();
        while let Some(name) = self.tokens.get(self.at).and_then(Token::name)
            && self
                .tokens
                .get(self.at + 1)
                .is_some_and(|token| token.is(":"))
        {
            labels.push(name.to_owned());
            self.at += 2;
        }
        labels
    }

    /// Reads the name of a node or property: tokens without space between them.
    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(token) = self.tokens.get(self.at) {
            let ends = ENDS.iter().any(|sign| token.is(sign)) || token.kind == Kind::Text;
            if ends || (!name.is_empty() && token.is_apart) {
                break;
            }
            name.push_str(&token.text);
            self.at += 1;
        }
        name
    }

    /// Reads what is in a node, between its braces.
    fn body(&mut self, node: &mut Node, depth: usize) -> Result<(), Failure> {
        if depth > DEEPEST {
            return Err(self.error("nodes that are too deep in each other"));
        }
        self.needs("{")?;
        loop {
            if self.takes("}") {
                self.takes(";");
                return Ok(());
            }
            if self.at >= self.tokens.len() {
                return Err(self.error("a node without an end"));
            }
            let labels = self.labels();
            let place = self.tokens[self.at.min(self.tokens.len() - 1)].place;
            if self.next_is("/") {
                self.delete(node);
                continue;
            }
            let name = self.name();
            if name.is_empty() {
                return Err(self.error("a name is expected here"));
            }
            if self.next_is("{") {
                let mut child = Node {
                    name,
                    labels,
                    place,
                    ..Node::default()
                };
                self.body(&mut child, depth + 1)?;
                match node
                    .children
                    .iter_mut()
                    .find(|known| known.name == child.name)
                {
                    Some(known) => merge(known, child),
                    None => node.children.push(child),
                }
                continue;
            }
            let mut property = Property {
                name,
                place,
                bytes: Vec::new(),
                references: Vec::new(),
            };
            if self.takes("=") {
                self.value(&mut property)?;
            }
            self.needs(";")?;
            node.properties.push(property);
        }
    }

    /// Carries out `/delete-node/ name;` and `/delete-property/ name;`.
    fn delete(&mut self, node: &mut Node) {
        let what = self.name();
        let name = self.name();
        if what.contains("delete-node") {
            node.children.retain(|child| child.name != name);
        } else if what.contains("delete-property") {
            node.properties.retain(|property| property.name != name);
        }
        while self.at < self.tokens.len() && !self.takes(";") {
            self.at += 1;
        }
    }

    fn value(&mut self, property: &mut Property) -> Result<(), Failure> {
        let mut bits = 32;
        loop {
            let Some(token) = self.tokens.get(self.at) else {
                return Err(self.error("a value without an end"));
            };
            if token.kind == Kind::Text {
                property
                    .bytes
                    .extend_from_slice(c::unquote(&token.text).as_bytes());
                property.bytes.push(0);
                self.at += 1;
            } else if self.takes("<") {
                self.cells(property, bits)?;
                bits = 32;
            } else if self.takes("[") {
                self.bytes(property)?;
            } else if self.takes("&") {
                property.references.push(self.name());
            } else if self.next_is("/") {
                // /bits/ 64
                self.name();
                let number = self
                    .tokens
                    .get(self.at)
                    .and_then(|token| c::number(&token.text));
                bits = number
                    .filter(|bits| [8, 16, 32, 64].contains(bits))
                    .ok_or_else(|| self.error("/bits/ is 8, 16, 32 or 64"))?;
                self.at += 1;
            } else {
                self.labels();
                if self.next_is(";") || self.next_is(",") {
                    return Err(self.error("a value is missing here"));
                }
                return Err(self.error("a value is text in quotes, <cells> or [bytes]"));
            }
            self.labels();
            if !self.takes(",") {
                return Ok(());
            }
        }
    }

    fn cells(&mut self, property: &mut Property, bits: i128) -> Result<(), Failure> {
        let width = usize::try_from(bits / 8).unwrap_or(4);
        while !self.takes(">") {
            let Some(token) = self.tokens.get(self.at) else {
                return Err(self.error("cells without an end"));
            };
            if self.takes("&") {
                if self.takes("{") {
                    while self.at < self.tokens.len() && !self.takes("}") {
                        self.at += 1;
                    }
                } else {
                    property.references.push(self.name());
                }
                property.bytes.extend_from_slice(&vec![0; width]);
                continue;
            }
            let start = self.at;
            if token.is("(") {
                let mut depth = 0_usize;
                while let Some(token) = self.tokens.get(self.at) {
                    depth = (depth + usize::from(token.is("(")))
                        .saturating_sub(usize::from(token.is(")")));
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            } else {
                self.at += 1;
            }
            let tokens = &self.tokens[start..self.at];
            // A name that a missing header defines: 0, as the properties with such names are not
            // those of domains.
            let value = match tokens {
                [name] if name.kind == Kind::Name => 0,
                tokens => c::evaluate(self.sources, tokens, &|_| Some(0))?,
            };
            let bytes = (value as u64).to_be_bytes();
            if width < 8
                && (value < 0 || value >> (8 * width) != 0)
                && value != i128::from(u64::MAX)
            {
                let place = tokens[0].place;
                let message = format!("{value:#x} does not fit into a cell of {bits} bits");
                let failure = self.sources.error(place, &property.name, message);
                return Err(failure.help("write it as two cells: <high low>").into());
            }
            property.bytes.extend_from_slice(&bytes[8 - width..]);
        }
        Ok(())
    }

    fn bytes(&mut self, property: &mut Property) -> Result<(), Failure> {
        let mut digits = String::new();
        while !self.takes("]") {
            let Some(token) = self.tokens.get(self.at) else {
                return Err(self.error("bytes without an end"));
            };
            digits.push_str(&token.text);
            self.at += 1;
        }
        let pairs: Vec<char> = digits.chars().collect();
        for pair in pairs.chunks(2) {
            let text: String = pair.iter().collect();
            let byte = u8::from_str_radix(&text, 16)
                .map_err(|_| self.error("bytes are pairs of hexadecimal digits"))?;
            property.bytes.push(byte);
        }
        Ok(())
    }
}

/// Returns the node with a label.
fn find<'a>(node: &'a mut Node, label: &str) -> Option<&'a mut Node> {
    if node.labels.iter().any(|known| known == label) {
        return Some(node);
    }
    node.children
        .iter_mut()
        .find_map(|child| find(child, label))
}

/// Adds what another part of the source says about a node.
fn merge(node: &mut Node, part: Node) {
    node.labels.extend(part.labels);
    node.properties.extend(part.properties);
    for child in part.children {
        match node
            .children
            .iter_mut()
            .find(|known| known.name == child.name)
        {
            Some(known) => merge(known, child),
            None => node.children.push(child),
        }
    }
}
