//! Sharing one console: guests' output as lines of text, and the selection of the VM that gets the input.
//!
//! ```text
//! byte from a guest   if let Some(part) = buffer.push(byte) { output.prefix(vm, &part) … }
//! guest is quiet      if let Some(part) = buffer.pause() { output.prefix(vm, &part) … }
//! guest stops         if let Some(part) = buffer.flush() { output.prefix(vm, &part) … }
//! byte of input       match switch.push(byte) {
//!                         Action::Deliver(vm, byte) => uart[vm].push_rx(byte),
//!                         Action::Switched(vm) => print "input goes to [name]",
//!                         Action::Help => print what can be typed,
//!                         Action::None => {}
//!                     }
//! ```

/// Maximum length of a guest's line before it is printed in parts.
pub const MAX_LINE: usize = 160;
/// Starts a command to the switch: Ctrl-T.
pub const ESCAPE: u8 = 0x14;

/// Maximum length of the text for one byte: `\xNN`.
const ESCAPED: usize = 4;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A part of a guest's line of text, ready to be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Printable text.
    pub text: &'a str,
    /// An earlier part of the same line was already returned.
    pub continues: bool,
    /// The line ends with this part.
    pub ends: bool,
}

/// Collects a guest's output into lines.
///
/// Tabs, backspaces and terminal sequences (ESC) pass through, other bytes that are not printable ASCII become `\xNN`,
/// and carriage returns are dropped. A line that is too long, or whose guest pauses before its end (a prompt), is
/// returned in parts.
#[derive(Clone, Debug)]
pub struct LineBuffer {
    bytes: [u8; MAX_LINE],
    len: usize,
    /// The collected bytes were returned; the next byte starts a new part.
    taken: bool,
    /// A part of the line was returned.
    continues: bool,
}

impl Default for LineBuffer {
    /// Creates an empty buffer.
    fn default() -> Self {
        Self { bytes: [0; MAX_LINE], len: 0, taken: false, continues: false }
    }
}

impl LineBuffer {
    /// Adds a byte. Returns a line when it is complete, or a part when no more fits.
    pub fn push(&mut self, byte: u8) -> Option<Part<'_>> {
        if self.taken {
            (self.taken, self.len) = (false, 0);
        }
        match byte {
            b'\n' => return Some(self.take(true)),
            b'\r' => return None,
            b'\t' | 0x08 | 0x1b | b' '..=b'~' => self.append(&[byte]),
            _ => self.append(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
        (self.len + ESCAPED > MAX_LINE).then(|| self.take(false))
    }

    /// Returns what was collected of an unfinished line, which may continue later.
    pub fn pause(&mut self) -> Option<Part<'_>> {
        self.is_waiting().then(|| self.take(false))
    }

    /// Returns whether there are collected bytes that have not been returned.
    pub const fn is_waiting(&self) -> bool {
        !self.taken && self.len > 0
    }

    /// Returns the end of a line that its guest will not finish.
    pub fn flush(&mut self) -> Option<Part<'_>> {
        if self.taken {
            (self.taken, self.len) = (false, 0);
        }
        (self.len > 0 || self.continues).then(|| self.take(true))
    }

    fn append(&mut self, text: &[u8]) {
        for (slot, &byte) in self.bytes[self.len..].iter_mut().zip(text) {
            *slot = byte;
            self.len += 1;
        }
    }

    fn take(&mut self, ends: bool) -> Part<'_> {
        self.taken = true;
        let continues = core::mem::replace(&mut self.continues, !ends);
        Part { text: core::str::from_utf8(&self.bytes[..self.len]).unwrap_or(""), continues, ends }
    }
}

/// The VM with an unfinished line on the console, shared by all that print there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    open: Option<u8>,
}

/// What is printed before a part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// A line end, because another line is unfinished.
    pub line_end: bool,
    /// The VM's name: `[name] ` for a new line, `[name]+` if it continues one that was interrupted.
    pub name: Option<char>,
}

impl Output {
    /// Returns the prefix for a part that a VM prints.
    pub fn part(&mut self, vm: u8, part: &Part<'_>) -> Prefix {
        let goes_on = part.continues && self.open == Some(vm);
        let prefix = Prefix {
            line_end: self.open.is_some() && !goes_on,
            name: (!goes_on).then_some(if part.continues { '+' } else { ' ' }),
        };
        self.open = (!part.ends).then_some(vm);
        prefix
    }

    /// Prepares for a complete line from elsewhere. Returns whether a line end must be printed before it.
    pub fn line(&mut self) -> bool {
        self.open.take().is_some()
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
#[derive(Clone, Debug)]
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

    /// Returns the VM that gets the input.
    pub const fn selected(&self) -> u8 {
        self.selected
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
        std::format!("{before}{}{behind}", part.text)
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
        let mut say = |vm, continues, ends| {
            let Prefix { line_end, name } = output.part(vm, &Part { text: "", continues, ends });
            (line_end, name)
        };
        assert_eq!(say(0, false, true), (false, Some(' ')));
        assert_eq!(say(0, false, false), (false, Some(' ')));
        assert_eq!(say(0, true, false), (false, None));
        assert_eq!(say(1, false, true), (true, Some(' ')));
        assert_eq!(say(0, true, false), (false, Some('+')));
        // A VM that was restarted within a line starts a new one.
        assert_eq!(say(0, false, false), (true, Some(' ')));
        assert!(output.line());
        assert!(!output.line());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_part_is_too_long(bytes: Vec<u8>) {
            let mut buffer = LineBuffer::default();
            let mut out = String::new();
            for &byte in &bytes {
                if let Some(part) = buffer.push(byte) {
                    prop_assert!(part.text.len() <= MAX_LINE);
                    out.push_str(part.text);
                }
            }
            out.push_str(buffer.flush().map_or("", |part| part.text));
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
                        prop_assert_eq!(vm, switch.selected());
                    }
                    Action::Switched(vm) => prop_assert_eq!(vm, switch.selected()),
                    Action::Help | Action::None => {}
                }
                prop_assert!(switch.selected() < vms);
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
