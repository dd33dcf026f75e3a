//! The tokens of C and of device-tree sources.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::source::{Failure, Place, Sources};
use std::rc::Rc;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name.
    Name,
    /// A number as the preprocessor sees it, not yet read.
    Number,
    /// A string, with its quotes.
    Text,
    /// A character, with its quotes.
    Character,
    /// Anything else.
    Sign,
}

/// A token.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is.
    pub kind: Kind,
    /// Its text.
    pub text: Rc<str>,
    /// Where it is, or where the macro is that it comes from.
    pub place: Place,
    /// Whether it is the first of a line.
    pub starts_line: bool,
    /// Whether white space is before it.
    pub is_apart: bool,
}

impl Token {
    /// Returns whether it is this sign.
    pub fn is(&self, sign: &str) -> bool {
        self.kind == Kind::Sign && &*self.text == sign
    }

    /// Returns the name that it is.
    pub fn name(&self) -> Option<&str> {
        (self.kind == Kind::Name).then_some(&*self.text)
    }
}

/// Returns whether a sign is next, at a position in tokens.
pub fn sign_at(tokens: &[Token], at: usize, sign: &str) -> bool {
    tokens.get(at).is_some_and(|token| token.is(sign))
}

/// Returns the place of what is next: of the last token at the end.
pub fn place_at(tokens: &[Token], at: usize) -> Place {
    let last = at.min(tokens.len().saturating_sub(1));
    tokens
        .get(last)
        .map(|token| token.place)
        .unwrap_or_default()
}

/// Signs of more than one character, longest first.
const SIGNS: [&str; 22] = [
    "...", "<<=", ">>=", "##", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "++", "--",
    "+=", "-=", "*=", "/=", "|=", "&=", "^=",
];

/// Returns the tokens of a file.
///
/// # Errors
///
/// Returns an error for a string or comment without an end.
pub fn tokens(sources: &Sources, file: u16) -> Result<Vec<Token>, Failure> {
    let text = sources.text(file);
    let bytes = text.as_bytes();
    let mut lexer = Lexer {
        bytes,
        at: 0,
        starts_line: true,
        is_apart: true,
    };
    let mut found = Vec::new();
    while let Some(start) = lexer.skip().map_err(|start| {
        let place = place(file, start, start + 2);
        sources
            .error(place, "comment", "a comment without an end")
            .help("close it with */")
    })? {
        let (kind, end) = lexer.token(start).map_err(|end| {
            let message = "a string or character without an end on its line";
            sources
                .error(place(file, start, end), "string", message)
                .help("close the quotation marks")
        })?;
        // A character that is more than a byte is one sign.
        let end = (end..=bytes.len())
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(bytes.len());
        found.push(Token {
            kind,
            text: text[start..end].replace("\\\n", "").into(),
            place: place(file, start, end),
            starts_line: lexer.starts_line,
            is_apart: lexer.is_apart,
        });
        (lexer.starts_line, lexer.is_apart, lexer.at) = (false, false, end);
    }
    Ok(found)
}

fn place(file: u16, start: usize, end: usize) -> Place {
    let [start, end] = [start, end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
    Place { file, start, end }
}

struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
    starts_line: bool,
    is_apart: bool,
}

impl Lexer<'_> {
    fn has(&self, text: &str) -> bool {
        self.bytes[self.at..].starts_with(text.as_bytes())
    }

    /// Skips white space and comments. Returns where the next token starts, or where a comment
    /// starts that has no end.
    fn skip(&mut self) -> Result<Option<usize>, usize> {
        while self.at < self.bytes.len() {
            if self.has("/*") {
                let body = &self.bytes[self.at + 2..];
                let length = body
                    .windows(2)
                    .position(|pair| pair == b"*/")
                    .ok_or(self.at)?;
                self.at += length + 4;
            } else if self.has("//") {
                while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                    self.at += 1;
                }
            } else if self.has("\\\n") {
                self.at += 2;
            } else if self.has("\\\r\n") {
                self.at += 3;
            } else if self.bytes[self.at] == b'\n' {
                self.starts_line = true;
                self.at += 1;
            } else if self.bytes[self.at].is_ascii_whitespace() {
                self.at += 1;
            } else {
                return Ok(Some(self.at));
            }
            self.is_apart = true;
        }
        Ok(None)
    }

    /// Returns the kind and the end of the token at `start`, or where the line ends before it does.
    fn token(&self, start: usize) -> Result<(Kind, usize), usize> {
        let rest = &self.bytes[start..];
        let run = |fits: &dyn Fn(usize, u8) -> bool| {
            let length = rest
                .iter()
                .enumerate()
                .take_while(|(at, byte)| fits(*at, **byte))
                .count();
            start + length
        };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$';
        let dot_digit = rest[0] == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit);
        if rest[0].is_ascii_digit() || dot_digit {
            return Ok((
                Kind::Number,
                run(&|at, byte| is_word(byte) || (at == 0 && byte == b'.')),
            ));
        }
        if is_word(rest[0]) {
            return Ok((Kind::Name, run(&|_, byte| is_word(byte))));
        }
        if rest[0] == b'"' || rest[0] == b'\'' {
            let mut at = start + 1;
            while let Some(&byte) = self.bytes.get(at) {
                match byte {
                    b'\n' if rest[0] == b'\'' => break,
                    b'\n' => return Err(at),
                    b'\\' => at += 2,
                    _ if byte == rest[0] => {
                        let kind = if byte == b'"' {
                            Kind::Text
                        } else {
                            Kind::Character
                        };
                        return Ok((kind, at + 1));
                    }
                    _ => at += 1,
                }
            }
            // An apostrophe, as in the text of #error.
            return if rest[0] == b'\'' {
                Ok((Kind::Sign, start + 1))
            } else {
                Err(self.bytes.len())
            };
        }
        let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
        Ok((Kind::Sign, start + sign.map_or(1, |sign| sign.len())))
    }
}

/// Returns what a string token says.
pub fn unquote(text: &str) -> String {
    let inner = text
        .get(1..text.len().saturating_sub(1))
        .unwrap_or_default();
    let mut plain = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(next) = characters.next() {
        if next != '\\' {
            plain.push(next);
            continue;
        }
        match characters.next() {
            Some('n') => plain.push('\n'),
            Some('t') => plain.push('\t'),
            Some('r') => plain.push('\r'),
            Some(other) => plain.push(other),
            None => {}
        }
    }
    plain
}
