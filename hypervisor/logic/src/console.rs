//! Sharing one console: guests' output as lines of text, the hypervisor's messages between them, and the selection of
//! the VM that gets the input.
//!
//! ```text
//! byte from a guest   if let Some(part) = buffer.push(byte) { output.part((vm, name), &part, has_input, send) }
//! guest is quiet      if let Some(part) = buffer.pause() { … }
//! guest stops         if let Some(part) = buffer.flush() { … }
//! messages wait       while let Some(byte) = output.message(&rings) { send(byte) }
//! byte of input       match switch.push(byte) {
//!                         Action::Deliver(vm, byte) => uart[vm].push_rx(byte),
//!                         Action::Switched(vm) => print "input goes to [name]",
//!                         Action::Help => print what can be typed,
//!                         Action::None => {}
//!                     }
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::messages::Messages;

/// Maximum length of a guest's line before it is printed in parts.
pub const MAX_LINE: usize = 160;
/// Starts a command to the switch: Ctrl-T.
pub const ESCAPE: u8 = 0x14;

/// Maximum length of the text for one byte: `\xNN`.
const ESCAPED: usize = 4;
/// Bytes that print nothing, but that an interactive guest needs: they move the cursor, or make a terminal answer.
const BACKSPACE: u8 = 0x08;
const ESC: u8 = 0x1b;

/// Returns the text that shows a byte which is not printed.
const fn escaped(byte: u8) -> [u8; ESCAPED] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    [b'\\', b'x', HEX[byte as usize >> 4], HEX[byte as usize & 15]]
}

/// A part of a guest's line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    bytes: [u8; MAX_LINE],
    len: usize,
    /// An earlier part of the same line was already returned.
    pub continues: bool,
    /// The line ends with this part.
    pub ends: bool,
}

/// Collects a guest's output into lines.
///
/// Tabs, backspaces and terminal sequences (ESC) are kept for [`Output::part`] to decide, other bytes that are not printable
/// ASCII become `\xNN`, and carriage returns are dropped. A line that is too long, or whose guest pauses before its end (a
/// prompt), is returned in parts.
pub struct LineBuffer {
    bytes: [u8; MAX_LINE],
    len: usize,
    continues: bool,
}

impl Default for LineBuffer {
    /// Creates an empty buffer.
    fn default() -> Self {
        Self { bytes: [0; MAX_LINE], len: 0, continues: false }
    }
}

impl LineBuffer {
    /// Adds a byte. Returns a line when it is complete, or a part when no more fits.
    pub fn push(&mut self, byte: u8) -> Option<Part> {
        match byte {
            b'\n' => return Some(self.take(true)),
            b'\r' => return None,
            b'\t' | BACKSPACE | ESC | b' '..=b'~' => self.append(&[byte]),
            _ => self.append(&escaped(byte)),
        }
        (self.len + ESCAPED > MAX_LINE).then(|| self.take(false))
    }

    /// Returns what was collected of an unfinished line, which may continue later.
    pub fn pause(&mut self) -> Option<Part> {
        self.is_waiting().then(|| self.take(false))
    }

    /// Returns whether there are collected bytes that have not been returned.
    pub const fn is_waiting(&self) -> bool {
        self.len > 0
    }

    /// Returns the end of a line that its guest will not finish.
    pub fn flush(&mut self) -> Option<Part> {
        (self.len > 0 || self.continues).then(|| self.take(true))
    }

    fn append(&mut self, text: &[u8]) {
        self.bytes[self.len..][..text.len()].copy_from_slice(text);
        self.len += text.len();
    }

    fn take(&mut self, ends: bool) -> Part {
        let continues = core::mem::replace(&mut self.continues, !ends);
        Part { bytes: self.bytes, len: core::mem::take(&mut self.len), continues, ends }
    }
}

/// What is unfinished on the console, shared by all that print there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// The VM whose line is unfinished.
    open: Option<u8>,
    /// The core whose message is unfinished. Nothing else can be printed then.
    pub begun: Option<usize>,
    /// The line end before that message, of which the first byte was printed.
    line_end: bool,
}

impl Output {
    /// Prints a part of a VM's line with `send`: with the VM's name, `[name] ` before a new line and `[name]+` before one
    /// that was interrupted, and never after another's text. Only of the VM that has the console's input do terminal sequences
    /// pass: a terminal types its answers to that VM, and only the user who has chosen it can be deceived.
    pub fn part(&mut self, (vm, name): (u8, &str), part: &Part, has_input: bool, mut send: impl FnMut(u8)) {
        if !part.continues || self.open != Some(vm) {
            let line_end = if self.line() { "\r\n" } else { "" };
            let mark = if part.continues { "]+" } else { "] " };
            [line_end, "[", name, mark].iter().flat_map(|text| text.bytes()).for_each(&mut send);
        }
        for &byte in &part.bytes[..part.len] {
            match byte {
                BACKSPACE | ESC if !has_input => escaped(byte).into_iter().for_each(&mut send),
                _ => send(byte),
            }
        }
        if part.ends {
            b"\r\n".iter().copied().for_each(send);
        }
        self.open = (!part.ends).then_some(vm);
    }

    /// Prepares for a complete line from elsewhere. Returns whether a line end must be printed before it.
    pub fn line(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Returns the next byte of the messages in the cores' rings, each on its own line.
    pub fn message<const N: usize>(&mut self, rings: &[Messages<N>]) -> Option<u8> {
        if core::mem::take(&mut self.line_end) {
            return Some(b'\n');
        }
        if self.begun.is_none() {
            self.begun = Some(rings.iter().position(|ring| !ring.is_empty())?);
            if self.line() {
                self.line_end = true;
                return Some(b'\r');
            }
        }
        let byte = rings[self.begun?].pop();
        if byte == Some(b'\n') {
            self.begun = None;
        }
        byte
    }
}

/// The meaning of an input byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pass the byte to this VM.
    Deliver(u8, u8),
    /// This VM gets the input from now on.
    Switched(u8),
    /// Print what can be typed.
    Help,
    /// Nothing to do.
    None,
}

/// Selects the VM that gets the console's input, initially the first one.
pub struct InputSwitch {
    vms: u8,
    selected: u8,
    escaped: bool,
}

impl InputSwitch {
    /// Creates the switch for a system with this many VMs, at least one.
    pub const fn new(vms: u8) -> Self {
        Self { vms: if vms == 0 { 1 } else { vms }, selected: 0, escaped: false }
    }

    /// Processes a byte of input.
    pub const fn push(&mut self, byte: u8) -> Action {
        if !self.escaped {
            self.escaped = byte == ESCAPE;
            return if self.escaped { Action::None } else { Action::Deliver(self.selected, byte) };
        }
        self.escaped = false;
        self.selected = match byte {
            ESCAPE => return Action::Deliver(self.selected, ESCAPE),
            b'1'..=b'8' if byte - b'1' < self.vms => byte - b'1',
            b'n' if self.selected + 1 < self.vms => self.selected + 1,
            b'n' => 0,
            // Also for unknown commands: the user needs the help.
            _ => return Action::Help,
        };
        Action::Switched(self.selected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// Returns the output for these bytes; an unfinished part is followed by `>`, and a continuation preceded by it.
    fn lines(buffer: &mut LineBuffer, bytes: &[u8]) -> Vec<String> {
        bytes.iter().filter_map(|&byte| buffer.push(byte).map(|part| shown(&part))).collect()
    }

    fn shown(part: &Part) -> String {
        let (before, behind) = (if part.continues { ">" } else { "" }, if part.ends { "" } else { ">" });
        std::format!("{before}{}{behind}", text(part, true))
    }

    fn text(part: &Part, has_input: bool) -> String {
        let part = Part { ends: false, ..part.clone() };
        let text = said(&mut Output { open: Some(0), ..Output::default() }, 0, &part, has_input);
        text.strip_prefix("\r\n[0] ").unwrap_or(&text).into()
    }

    /// Returns what is printed for a part of the VM with this number and name.
    fn said(output: &mut Output, vm: u8, part: &Part, has_input: bool) -> String {
        let mut bytes = Vec::new();
        output.part((vm, &vm.to_string()), part, has_input, |byte| bytes.push(byte));
        String::from_utf8(bytes).expect("ASCII")
    }

    fn part(continues: bool, ends: bool) -> Part {
        Part { bytes: [b'x'; MAX_LINE], len: 1, continues, ends }
    }

    #[test]
    fn lines_end_at_newlines() {
        let mut buffer = LineBuffer::default();
        assert_eq!(lines(&mut buffer, b"one\r\ntwo\n\nlogin: "), ["one", "two", ""]);
        assert!(buffer.is_waiting());
        assert_eq!(buffer.pause().map(|part| shown(&part)), Some("login: >".into()));
        assert_eq!(buffer.pause(), None);
        assert!(!buffer.is_waiting());
        assert_eq!(lines(&mut buffer, b"root\nnext\n"), [">root", "next"]);
        assert_eq!(buffer.flush(), None);
    }

    #[test]
    fn a_guest_that_stops_leaves_no_line_open() {
        let mut buffer = LineBuffer::default();
        lines(&mut buffer, b"half");
        assert_eq!(buffer.flush().map(|part| shown(&part)), Some("half".into()));
        lines(&mut buffer, b"half");
        let _ = buffer.pause();
        assert_eq!(buffer.flush().map(|part| shown(&part)), Some(">".into()));
        assert_eq!(buffer.flush(), None);
    }

    #[test]
    fn bytes_that_do_not_print_are_shown() {
        let mut buffer = LineBuffer::default();
        assert_eq!(lines(&mut buffer, b"\ta\x00\x7f\xff\x1b[1mb\x08\n"), ["\ta\\x00\\x7f\\xff\x1b[1mb\x08"]);
    }

    #[test]
    fn long_lines_come_in_parts() {
        let mut buffer = LineBuffer::default();
        let room = MAX_LINE - ESCAPED + 1;
        let text = "x".repeat(room);
        assert_eq!(lines(&mut buffer, text.as_bytes()), [text + ">"]);
        assert_eq!(lines(&mut buffer, b"\n\nshort\n"), [">", "", "short"]);
        assert_eq!(lines(&mut buffer, "y".repeat(room + 3).as_bytes()), ["y".repeat(room) + ">"]);
        assert_eq!(lines(&mut buffer, b"\n"), [">yyy"]);
    }

    #[test]
    fn speakers_do_not_mix_their_lines() {
        let mut output = Output::default();
        let mut say = |vm, continues, ends| said(&mut output, vm, &part(continues, ends), true);
        assert_eq!(say(0, false, true), "[0] x\r\n");
        assert_eq!(say(0, false, false), "[0] x");
        assert_eq!(say(0, true, false), "x");
        assert_eq!(say(1, false, true), "\r\n[1] x\r\n");
        assert_eq!(say(0, true, false), "[0]+x");
        // A VM that was restarted within a line starts a new one.
        assert_eq!(say(0, false, false), "\r\n[0] x");
        assert!(output.line());
        assert!(!output.line());
    }

    #[test]
    fn only_the_vm_with_the_input_moves_the_cursor() {
        let mut buffer = LineBuffer::default();
        b"a\x1b[6n\x08\tb\x9b".iter().for_each(|&byte| assert_eq!(buffer.push(byte), None));
        let part = buffer.push(b'\n').expect("a line");
        assert_eq!(text(&part, true), "a\x1b[6n\x08\tb\\x9b");
        assert_eq!(text(&part, false), "a\\x1b[6n\\x08\tb\\x9b");
    }

    #[cfg(not(loom))]
    #[test]
    fn a_message_ends_an_unfinished_line_and_is_not_torn() {
        let rings = [Messages::<64>::empty(), Messages::empty()];
        let mut output = Output::default();
        said(&mut output, 3, &part(false, false), true);
        rings[1].push(format_args!("one\r\n"));
        let begin: Vec<u8> = core::iter::from_fn(|| output.message(&rings)).take(3).collect();
        assert_eq!((&begin[..], output.begun.is_some()), (&b"\r\no"[..], true));
        // Another core's message waits for the end of this one.
        rings[0].push(format_args!("two\r\n"));
        let rest: Vec<u8> = core::iter::from_fn(|| output.message(&rings)).collect();
        assert_eq!((&rest[..], output.begun.is_some()), (&b"ne\r\ntwo\r\n"[..], false));
        assert_eq!(said(&mut output, 3, &part(true, true), true), "[3]+x\r\n");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_part_is_too_long(bytes: Vec<u8>) {
            let mut buffer = LineBuffer::default();
            let mut out = String::new();
            for &byte in &bytes {
                if let Some(part) = buffer.push(byte) {
                    prop_assert!(part.len <= MAX_LINE);
                    out.push_str(&text(&part, true));
                }
            }
            out.push_str(&buffer.flush().map_or(String::new(), |part| text(&part, true)));
            let expected: String = bytes
                .iter()
                .filter(|byte| !b"\r\n".contains(byte))
                .map(|&byte| match byte {
                    b'\t' | 0x08 | 0x1b | b' '..=b'~' => char::from(byte).to_string(),
                    _ => std::format!("\\x{byte:02x}"),
                })
                .collect();
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn only_existing_vms_get_input(vms in 1u8..9, bytes: Vec<u8>) {
            let mut switch = InputSwitch::new(vms);
            for byte in bytes {
                match switch.push(byte) {
                    Action::Deliver(vm, delivered) => {
                        prop_assert_eq!(delivered, byte);
                        prop_assert_eq!(vm, switch.selected);
                    }
                    Action::Switched(vm) => prop_assert_eq!(vm, switch.selected),
                    Action::Help | Action::None => {}
                }
                prop_assert!(switch.selected < vms);
            }
        }
    }

    #[test]
    fn the_switch_obeys() {
        let mut switch = InputSwitch::new(3);
        let mut push = |text: &[u8]| text.iter().map(|&byte| switch.push(byte)).collect::<Vec<_>>();
        assert_eq!(push(b"1"), [Action::Deliver(0, b'1')]);
        assert_eq!(push(b"\x143n"), [Action::None, Action::Switched(2), Action::Deliver(2, b'n')]);
        assert_eq!(push(b"\x14n"), [Action::None, Action::Switched(0)]);
        assert_eq!(push(b"\x14\x14"), [Action::None, Action::Deliver(0, ESCAPE)]);
        assert_eq!(push(b"\x144"), [Action::None, Action::Help]);
        assert_eq!(push(b"\x14?"), [Action::None, Action::Help]);
    }
}
