//! Who speaks on the one console, and who listens: lines of guests, and the input switch.
//!
//! ```text
//! byte from a guest   if let Some(line) = buffer.push(byte) { print "[name] line" }
//! guest stops         if let Some(line) = buffer.flush() { print "[name] line" }
//! byte of input       match switch.push(byte) {
//!                         Action::Deliver(vm, byte) => uart[vm].push_rx(byte),
//!                         Action::Switched(vm) => print "input goes to [name]",
//!                         Action::Help => print HELP,
//!                         Action::None => {}
//!                     }
//! ```

/// Bytes of a line at most, as printed.
pub const MAX_LINE: usize = 160;
/// Begins a command to the switch: Ctrl-T.
pub const ESCAPE: u8 = 0x14;
/// What [`Action::Help`] prints.
pub const HELP: &str =
    "Ctrl-T, then: 1 to 8 for input to that VM, n for the next VM, Ctrl-T for a Ctrl-T to the VM, ? for this help";

/// Longest text that one byte becomes: `\xNN`.
const ESCAPED: usize = 4;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Collects a guest's output into lines.
///
/// Tabs and terminal sequences (ESC) pass, other bytes that are not printable ASCII become `\xNN`, carriage returns
/// go. A line that is too long is broken.
#[derive(Clone, Debug)]
pub struct LineBuffer {
    bytes: [u8; MAX_LINE],
    len: usize,
    /// The bytes were handed out; the next one begins a new line.
    taken: bool,
    /// The line was broken: a newline right behind the break adds no empty line.
    broken: bool,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl LineBuffer {
    /// Empty.
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_LINE], len: 0, taken: false, broken: false }
    }

    /// Adds a byte. Returns a line when one is complete.
    pub fn push(&mut self, byte: u8) -> Option<&str> {
        if self.taken {
            (self.taken, self.len) = (false, 0);
        }
        match byte {
            b'\n' if self.broken => {
                self.broken = false;
                return None;
            }
            b'\n' => return Some(self.take()),
            b'\r' => return None,
            b'\t' | 0x1b | b' '..=b'~' => self.append(&[byte]),
            _ => self.append(&[b'\\', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
        self.broken = self.len + ESCAPED > MAX_LINE;
        self.broken.then(|| self.take())
    }

    /// What is left of a line that has not ended.
    pub fn flush(&mut self) -> Option<&str> {
        self.broken = false;
        (!self.taken && self.len > 0).then(|| self.take())
    }

    fn append(&mut self, text: &[u8]) {
        for (slot, &byte) in self.bytes[self.len..].iter_mut().zip(text) {
            *slot = byte;
            self.len += 1;
        }
    }

    fn take(&mut self) -> &str {
        self.taken = true;
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

/// What a byte of input means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The VM gets the byte.
    Deliver(u8, u8),
    /// From now on this VM gets the input.
    Switched(u8),
    /// The user asks what can be typed: [`HELP`].
    Help,
    /// Nothing to do.
    None,
}

/// Decides which VM gets the console's input; the first one to begin with.
#[derive(Clone, Debug)]
pub struct InputSwitch {
    vms: u8,
    selected: u8,
    escaped: bool,
}

impl InputSwitch {
    /// For a system with this many VMs, at least one.
    pub const fn new(vms: u8) -> Self {
        Self { vms: if vms == 0 { 1 } else { vms }, selected: 0, escaped: false }
    }

    /// The VM that gets the input.
    pub const fn selected(&self) -> u8 {
        self.selected
    }

    /// Takes a byte of input.
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
            // Also for what is no command: the user wants to know.
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

    fn lines(buffer: &mut LineBuffer, bytes: &[u8]) -> Vec<String> {
        bytes.iter().filter_map(|&byte| buffer.push(byte).map(ToString::to_string)).collect()
    }

    #[test]
    fn lines_end_at_newlines() {
        let mut buffer = LineBuffer::new();
        assert_eq!(lines(&mut buffer, b"one\r\ntwo\n\nlogin: "), ["one", "two", ""]);
        assert_eq!(buffer.flush(), Some("login: "));
        assert_eq!(buffer.flush(), None);
        assert_eq!(lines(&mut buffer, b"root\n"), ["root"]);
    }

    #[test]
    fn bytes_that_do_not_print_are_shown() {
        let mut buffer = LineBuffer::new();
        assert_eq!(lines(&mut buffer, b"\ta\x00\x7f\xff\x1b[1mb\n"), ["\ta\\x00\\x7f\\xff\x1b[1mb"]);
    }

    #[test]
    fn long_lines_break_once() {
        let mut buffer = LineBuffer::new();
        let room = MAX_LINE - ESCAPED + 1;
        let text = "x".repeat(room);
        assert_eq!(lines(&mut buffer, text.as_bytes()), std::slice::from_ref(&text));
        // The newline that ends the broken line adds no empty one; the next does.
        assert_eq!(lines(&mut buffer, b"\n\nshort\n"), ["", "short"]);
        assert_eq!(lines(&mut buffer, "y".repeat(room + 3).as_bytes()), ["y".repeat(room)]);
        assert_eq!(buffer.flush(), Some("yyy"));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_line_is_too_long(bytes: Vec<u8>) {
            let mut buffer = LineBuffer::new();
            let mut out = String::new();
            for &byte in &bytes {
                if let Some(line) = buffer.push(byte) {
                    prop_assert!(line.len() <= MAX_LINE);
                    out.push_str(line);
                }
            }
            out.push_str(buffer.flush().unwrap_or(""));
            let expected: String = bytes
                .iter()
                .filter(|byte| !b"\r\n".contains(byte))
                .map(|&byte| match byte {
                    b'\t' | 0x1b | b' '..=b'~' => char::from(byte).to_string(),
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
