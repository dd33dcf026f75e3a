//! Takes apart what a console carries when the telemetry goes between its lines of text.
//!
//! A message starts with [`STARTS`], which text never contains, and ends with a zero byte, which
//! its encoding never contains. It may stand anywhere in the text.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::wire;
use cloison_formats::telemetry::{MAX_MESSAGE, STARTS};
use std::mem::take;

/// What bytes of such a line were.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// The console's text.
    pub text: Vec<u8>,
    /// Messages, each with the zero byte that ends it, as on a line that carries them alone. Some
    /// may be damaged.
    pub messages: Vec<u8>,
}

/// Where the next byte belongs.
#[derive(Clone, Debug)]
enum Within {
    /// To the text, whose unfinished line this is.
    Text(Vec<u8>),
    /// To a message that starts with these bytes.
    Message(Vec<u8>),
}

/// Takes a line apart.
#[derive(Clone, Debug)]
pub struct Separator(Within);

impl Default for Separator {
    fn default() -> Self {
        Self(Within::Text(Vec::new()))
    }
}

impl Separator {
    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Parts {
        let mut parts = Parts::default();
        for &byte in bytes {
            match &mut self.0 {
                Within::Text(_) if byte == STARTS => self.0 = Within::Message(Vec::new()),
                // The start of this message was lost: it is in the line of text.
                Within::Text(line) if byte == 0 => {
                    parts.messages.append(line);
                    parts.messages.push(0);
                }
                Within::Text(line) => {
                    parts.text.push(byte);
                    if byte == b'\n' {
                        line.clear();
                    } else {
                        line.push(byte);
                    }
                }
                Within::Message(message) => {
                    message.push(byte);
                    if byte == 0 || message.len() > MAX_MESSAGE {
                        let message = take(message);
                        self.0 = Within::Text(Vec::new());
                        close(message, &mut parts);
                    }
                }
            }
        }
        parts
    }

    /// Returns what is left at the end.
    pub fn finish(self) -> Parts {
        let mut parts = Parts::default();
        if let Within::Message(message) = self.0 {
            close(message, &mut parts);
        }
        parts
    }
}

/// Adds a message. If it lost its end, it has swallowed text and the start of a later one.
fn close(message: Vec<u8>, parts: &mut Parts) {
    let is_message = |bytes: &[u8]| wire::decode(bytes).all(|(_, read)| read.is_ok());
    if is_message(&message) {
        parts.messages.extend(message);
        return;
    }
    let starts = (0..message.len()).filter(|&at| message[at] == STARTS);
    let later = starts.map(|at| at + 1).find(|&at| {
        let rest = &message[at..];
        rest.len() > 1 && is_message(rest)
    });
    let (damaged, rest) = message.split_at(later.map_or(message.len(), |at| at - 1));
    // Its own bytes, of which there is one at least, end somewhere before a line end, most often.
    let text = (1..damaged.len()).find(|&at| damaged[at] == b'\n');
    let (damaged, text) = damaged.split_at(text.unwrap_or(damaged.len()));
    parts.messages.extend(damaged);
    if damaged.last() != Some(&0) {
        parts.messages.push(0);
    }
    parts.text.extend(text.iter().filter(|&&byte| byte != 0));
    parts.messages.extend(rest.iter().skip(1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::telemetry::{Message, encode};
    use proptest::prelude::*;

    fn message(pages: u64) -> Vec<u8> {
        let mut buffer = [0; 64];
        encode(&Message::AuditEnd { pages }, &mut buffer)
            .expect("it fits")
            .to_vec()
    }

    fn split(bytes: &[u8], chunk: usize) -> Parts {
        let mut separator = Separator::default();
        let mut all = Parts::default();
        for bytes in bytes.chunks(chunk) {
            let parts = separator.feed(bytes);
            all.text.extend(parts.text);
            all.messages.extend(parts.messages);
        }
        let parts = separator.finish();
        all.text.extend(parts.text);
        all.messages.extend(parts.messages);
        all
    }

    fn pages(messages: &[u8]) -> Vec<Option<u64>> {
        let page = |read| match read {
            Ok(Message::AuditEnd { pages }) => Some(pages),
            _ => None,
        };
        wire::decode(messages).map(|(_, read)| page(read)).collect()
    }

    #[test]
    fn a_message_that_lost_its_end_costs_neither_the_next_one_nor_whole_lines() {
        let mut line = b"[a] one\r\n".to_vec();
        line.push(STARTS);
        line.extend(&message(3)[..7]);
        line.extend(b"[a] two\r\n[a] three\r\n");
        line.push(STARTS);
        line.extend(message(4));
        line.extend(b"[a] four\r\n");
        let parts = split(&line, 5);
        assert_eq!(pages(&parts.messages), [None, Some(4)]);
        let text = String::from_utf8(parts.text).expect("text");
        assert_eq!(text, "[a] one\r\n\n[a] three\r\n[a] four\r\n");
    }

    #[test]
    fn a_message_that_lost_its_start_is_read_or_named() {
        for (text, first) in [("[a] one\r\n", Some(3)), ("[a] one", None)] {
            let mut line = text.as_bytes().to_vec();
            line.extend(message(3));
            line.push(STARTS);
            line.extend(message(4));
            assert_eq!(pages(&split(&line, 3).messages), [first, Some(4)]);
        }
    }

    #[test]
    fn the_last_words_are_kept_though_a_message_was_begun() {
        let mut line = vec![STARTS];
        line.extend(&message(3)[..4]);
        line.extend(b"\r\npanicked at the end\r\n");
        let parts = split(&line, 8);
        assert_eq!(pages(&parts.messages), [None]);
        let text = String::from_utf8(parts.text).expect("text");
        assert!(text.contains("panicked at the end"), "{text}");
    }

    proptest! {
        #[test]
        fn messages_anywhere_in_text_are_taken_out_whole(
            pieces in prop::collection::vec(("[ -~\n\r\t\u{1b}]{0,20}", any::<u64>()), 0..20),
            chunk in 1_usize..50,
        ) {
            let (mut line, mut text, mut sent) = (Vec::new(), String::new(), Vec::new());
            for (words, pages) in &pieces {
                line.extend(words.bytes());
                line.push(STARTS);
                line.extend(message(*pages));
                text += words;
                sent.push(Some(*pages));
            }
            let parts = split(&line, chunk);
            prop_assert_eq!(parts.text, text.into_bytes());
            prop_assert_eq!(pages(&parts.messages), sent);
        }

        #[test]
        fn any_bytes_are_taken_apart(bytes in prop::collection::vec(any::<u8>(), 0..9_000)) {
            split(&bytes, 100);
        }
    }
}
