//! Who speaks on the one console, and who listens: lines of guests, and the input switch.
//!
//! ```text
//! byte from a guest   if let Some(part) = buffer.push(byte) { output.prefix(vm, &part) … }
//! guest is quiet      if let Some(part) = buffer.pause() { output.prefix(vm, &part) … }
//! guest stops         if let Some(part) = buffer.flush() { output.prefix(vm, &part) … }
//! byte of input       match switch.push(byte) {
//!                         Action::Deliver(vm, byte) => uart[vm].push_rx(byte),
//!                         Action::Switched(vm) => print "input goes to [name]",
//!                         Action::Help => print HELP,
//!                         Action::None => {}
//!                     }
//! ```

/// Bytes of a guest's line that are collected before they are printed.
pub const MAX_LINE: usize = 160;
/// Begins a command to the switch: Ctrl-T.
pub const ESCAPE: u8 = 0x14;
/// What [`Action::Help`] prints.
pub const HELP: &str =
    "Ctrl-T, then: 1 to 8 for input to that VM, n for the next VM, Ctrl-T for a Ctrl-T to the VM, ? for this help";

/// Longest text that one byte becomes: `\xNN`.
const ESCAPED: usize = 4;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// A part of a guest's line, ready to be printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Printable text.
    pub text: &'a str,
    /// An earlier part of the same line was handed out before.
    pub continues: bool,
    /// The line ends here.
    pub ends: bool,
}

/// Collects a guest's output into lines.
///
/// Tabs, backspaces and terminal sequences (ESC) pass, other bytes that are not printable ASCII become `\xNN`, carriage
/// returns go. A line that is too long, or whose guest pauses before its end (a prompt), is handed out in parts.
#[derive(Clone, Debug)]
pub struct LineBuffer {
    bytes: [u8; MAX_LINE],
    len: usize,
    /// The bytes were handed out; the next one comes after them.
    taken: bool,
    /// A part of the line was handed out.
    continues: bool,
}

impl Default for LineBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl LineBuffer {
    /// Empty.
    pub const fn new() -> Self {
        Self { bytes: [0; MAX_LINE], len: 0, taken: false, continues: false }
    }

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

    /// What was collected of a line that has not ended, which may go on later.
    pub fn pause(&mut self) -> Option<Part<'_>> {
        self.is_waiting().then(|| self.take(false))
    }

    /// Whether something was collected that nobody has got.
    pub const fn is_waiting(&self) -> bool {
        !self.taken && self.len > 0
    }

    /// The end of a line whose guest does not end it any more.
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

/// Whose line stands open on the console, for all that print there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    open: Option<u8>,
}

/// What is printed before a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// A line end, since another line stands open.
    pub line_end: bool,
    /// The VM's name: `[name] ` for a new line, `[name]+` where one goes on that another speaker has cut.
    pub name: Option<char>,
}

impl Output {
    /// Nothing stands open.
    pub const fn new() -> Self {
        Self { open: None }
    }

    /// A VM prints a part.
    pub fn part(&mut self, vm: u8, part: &Part<'_>) -> Prefix {
        let goes_on = part.continues && self.open == Some(vm);
        let prefix = Prefix {
            line_end: self.open.is_some() && !goes_on,
            name: (!goes_on).then_some(if part.continues { '+' } else { ' ' }),
        };
        self.open = (!part.ends).then_some(vm);
        prefix
    }

    /// Somebody else prints whole lines. Whether a line end is due before them.
    pub fn line(&mut self) -> bool {
        self.open.take().is_some()
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

    /// What comes of these bytes; a part that does not end its line has a `>` behind it, one that goes on before it.
    fn lines(buffer: &mut LineBuffer, bytes: &[u8]) -> Vec<String> {
        bytes.iter().filter_map(|&byte| buffer.push(byte).map(|part| shown(&part))).collect()
    }

    fn shown(part: &Part) -> String {
        let (before, behind) = (if part.continues { ">" } else { "" }, if part.ends { "" } else { ">" });
        std::format!("{before}{}{behind}", part.text)
    }

    #[test]
    fn lines_end_at_newlines() {
        let mut buffer = LineBuffer::new();
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
        let mut buffer = LineBuffer::new();
        lines(&mut buffer, b"half");
        assert_eq!(buffer.flush().map(|part| shown(&part)), Some("half".into()));
        lines(&mut buffer, b"half");
        let _ = buffer.pause();
        assert_eq!(buffer.flush().map(|part| shown(&part)), Some(">".into()));
        assert_eq!(buffer.flush(), None);
    }

    #[test]
    fn bytes_that_do_not_print_are_shown() {
        let mut buffer = LineBuffer::new();
        assert_eq!(lines(&mut buffer, b"\ta\x00\x7f\xff\x1b[1mb\x08\n"), ["\ta\\x00\\x7f\\xff\x1b[1mb\x08"]);
    }

    #[test]
    fn long_lines_come_in_parts() {
        let mut buffer = LineBuffer::new();
        let room = MAX_LINE - ESCAPED + 1;
        let text = "x".repeat(room);
        assert_eq!(lines(&mut buffer, text.as_bytes()), [text + ">"]);
        assert_eq!(lines(&mut buffer, b"\n\nshort\n"), [">", "", "short"]);
        assert_eq!(lines(&mut buffer, "y".repeat(room + 3).as_bytes()), ["y".repeat(room) + ">"]);
        assert_eq!(lines(&mut buffer, b"\n"), [">yyy"]);
    }

    #[test]
    fn speakers_do_not_mix_their_lines() {
        let mut output = Output::new();
        let mut say = |vm, continues, ends| {
            let Prefix { line_end, name } = output.part(vm, &Part { text: "", continues, ends });
            (line_end, name)
        };
        assert_eq!(say(0, false, true), (false, Some(' ')));
        assert_eq!(say(0, false, false), (false, Some(' ')));
        assert_eq!(say(0, true, false), (false, None));
        assert_eq!(say(1, false, true), (true, Some(' ')));
        assert_eq!(say(0, true, false), (false, Some('+')));
        // A VM that was restarted in mid-line begins a new one.
        assert_eq!(say(0, false, false), (true, Some(' ')));
        assert!(output.line());
        assert!(!output.line());
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_part_is_too_long(bytes: Vec<u8>) {
            let mut buffer = LineBuffer::new();
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
