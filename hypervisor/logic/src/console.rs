//! Sharing one console: guests' output as lines of text, the hypervisor's messages between them,
//! and the selection of the VM that gets the input.
//!
//! ```text
//! byte from a guest   if let Some(part) = buffer.push(byte) { part.queue(name, &rings[vm]) }
//! guest is quiet      if let Some(part) = buffer.pause() { … }
//! guest stops         if let Some(part) = buffer.flush() { … }
//! something waits     while let Some(byte) = output.next(&rings, input) { send(byte) }
//! byte of input       match switch.push(byte) {
//!                         Action::Deliver(vm, byte) => uart[vm].push_rx(byte),
//!                         Action::Switched(vm) => print "input goes to [name]",
//!                         Action::Order(vm, change) => change its life, if granted,
//!                         Action::Help => print what can be typed,
//!                         Action::None => {}
//!                     }
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::messages::{BEGINS, Messages, Position};
use cloison_abi::reply::Change;
use core::mem::{replace, take};
use heapless::{Deque, Vec};

/// Maximum length of a guest's line before it is printed in parts.
pub const MAX_LINE: usize = 160;
/// Starts a command to the switch: Ctrl-T.
pub const ESCAPE: u8 = 0x14;

/// Maximum length of the text for one byte: `\xNN`.
const ESCAPED: usize = 4;
/// Maximum length of a character's UTF-8, and of its bytes as text.
const CHARACTER: usize = 4;
// One byte may turn itself and the three bytes before it into text, if they are no character.
const LONGEST: usize = CHARACTER * ESCAPED;
/// Bytes that print nothing, but that an interactive guest needs: they move the cursor, or make a
/// terminal answer.
const BACKSPACE: u8 = 0x08;
const ESC: u8 = 0x1b;

/// A part of a guest's line of text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    text: Vec<u8, MAX_LINE>,
    /// An earlier part of the same line was already returned.
    pub continues: bool,
    /// The line ends with this part.
    pub ends: bool,
}

/// Collects a guest's output into lines.
///
/// Tabs, backspaces and terminal sequences (ESC) are kept for [`Output::next`] to decide, and
/// carriage returns are dropped. Other bytes that are neither printable ASCII nor UTF-8 become
/// `\xNN`, and so do those of characters that a terminal obeys instead of printing them. A line
/// that is too long, or whose guest pauses before its end (a prompt), is returned in parts.
///
/// There is one for each VM, under the lock of its UART: vCPUs that print at once mix their bytes
/// in one line, as on a real UART.
#[derive(Default)]
pub struct LineBuffer {
    text: Vec<u8, MAX_LINE>,
    continues: bool,
    /// The first bytes of a character in UTF-8.
    begun: Vec<u8, CHARACTER>,
}

/// Returns whether a terminal may obey a character beyond ASCII: C1 controls, and those that
/// change the direction of the text (Unicode, UAX #9), with which a guest could write another one's
/// name.
const fn is_obeyed(character: char) -> bool {
    matches!(
        character,
        '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
    )
}

impl LineBuffer {
    /// Adds a byte. Returns a line when it is complete, or a part when no more fits.
    pub fn push(&mut self, byte: u8) -> Option<Part> {
        match byte {
            // A byte of ASCII never continues a character: what was begun is none.
            0x80.. => self.collect(byte),
            _ => self.escape_begun(),
        }
        match byte {
            b'\n' => return Some(self.take(true)),
            b'\r' | 0x80.. => {}
            b'\t' | BACKSPACE | ESC | b' '..=b'~' => self.text.extend([byte]),
            _ => self.text.extend(byte.escape_ascii()),
        }
        // Before the next byte could fail to fit: `extend` would panic at a full vector
        // (`nothing_is_lost_and_no_part_is_too_long`).
        (self.text.len() + LONGEST > MAX_LINE).then(|| self.take(false))
    }

    /// Adds a byte of a character in UTF-8, and the character if it is complete.
    fn collect(&mut self, byte: u8) {
        // Each continuation byte has these two bits; what begins instead ends what was begun.
        if byte & 0xc0 != 0x80 {
            self.escape_begun();
        }
        // At most four bytes are begun: with the fourth, they are a character or an error.
        self.begun.extend([byte]);
        match core::str::from_utf8(&self.begun) {
            Ok(text) if !text.contains(is_obeyed) => {
                self.text.extend(text.bytes());
                self.begun.clear();
            }
            // Without a length, the error is only that bytes are missing: the next one may complete
            // the character.
            Err(error) if error.error_len().is_none() => {}
            // Invalid, or a character that a terminal obeys.
            _ => self.escape_begun(),
        }
    }

    /// Adds the bytes of a character that is not, or not to be, printed.
    fn escape_begun(&mut self) {
        self.text
            .extend(take(&mut self.begun).into_iter().flat_map(u8::escape_ascii));
    }

    /// Returns what was collected of an unfinished line, which may continue later.
    pub fn pause(&mut self) -> Option<Part> {
        self.is_waiting().then(|| self.take(false))
    }

    /// Returns whether there are collected bytes that have not been returned.
    pub fn is_waiting(&self) -> bool {
        !self.text.is_empty()
    }

    /// Returns the end of a line that its guest will not finish.
    pub fn flush(&mut self) -> Option<Part> {
        self.escape_begun();
        // Also where no byte is left: the parts printed before still need their end.
        (self.is_waiting() || self.continues).then(|| self.take(true))
    }

    /// Empties the buffer into a part.
    fn take(&mut self, ends: bool) -> Part {
        // Whether the *next* part continues this line is decided by the end of this one.
        let continues = replace(&mut self.continues, !ends);
        Part {
            text: take(&mut self.text),
            continues,
            ends,
        }
    }
}

/// Begins a part that continues a line, instead of [`BEGINS`]. The VM's name follows, and [`NAMED`]
/// after it. A [`LineBuffer`] passes none of these bytes.
const CONTINUES: u8 = 2;
const NAMED: u8 = 3;
/// Ends a part that does not end its line.
const PAUSES: u8 = 4;

impl Part {
    /// Adds the part to its VM's ring. Returns where it ends there.
    pub fn queue<const N: usize>(&self, name: &str, ring: &Messages<N>) -> Position {
        let (start, mark) = if self.continues {
            (CONTINUES, '+')
        } else {
            (BEGINS, ' ')
        };
        // Always UTF-8: only whole characters and ASCII are added to the text.
        let text = core::str::from_utf8(&self.text).unwrap_or_default();
        let end = if self.ends { "\r\n" } else { "\x04" };
        // As one message: a part that does not fit in the ring is lost and counted as a whole, so
        // that the marks in the ring stay in pairs.
        ring.push(format_args!(
            "{}[{name}]{mark}\x03{text}{end}",
            char::from(start)
        ))
    }
}

/// Brings a terminal that has passed any sequences into the state in which a line of text is read
/// as it is written, at the start of an empty row. What each of them undoes would hide a line, or
/// show another one in its place.
///
/// Sources: ECMA-48, 5th edition; xterm's "Control Sequences" (ctlseqs); console_codes(4) of Linux.
/// A terminal ignores a sequence that it does not know. They clear nothing, so what is on the
/// screen stays there.
pub const NEUTRAL: &str = concat!(
    // CAN ends a sequence and every string (OSC, DCS, SOS, PM, APC), and ST (ECMA-48, 8.3.143)
    // what does not obey it.
    "\x18\x1b\\",
    // Out of xterm's Tektronix and VT52 modes, which know none of the others.
    "\x1b\x03\x1b<",
    // To the screen, not to a printer only (MC, ECMA-48, 8.3.82).
    "\x1b[4i",
    // DECSTR: margins, origin, insertion, a locked keyboard, character sets with a single shift
    // that waits for its character.
    "\x1b[!p",
    // What DECSTR leaves, or a terminal without it: reverse video, origin, the alternate screen,
    // left and right margins, a screen that is not drawn; wrapping; top and bottom margins
    // (DECSTBM).
    "\x1b[?5;6;47;69;2026l\x1b[?7h\x1b[r",
    // Attributes (SGR 0), ASCII as G0 and in use, UTF-8.
    "\x1b[m\x0f\x1b(B\x1b%G",
    // Foreground and background, which may be the same color; on Linux's console, the palette.
    "\x1b]110\x1b\\\x1b]111\x1b\\\x1b]R\x1b\\",
    // To the last row, and a new one.
    "\x1b[999B\r\n",
);

/// The unfinished output on the console, shared by all cores that print there.
///
/// The holder of the console's lock has it. Ring numbers are those of the slice that
/// [`next`](Self::next) gets.
#[derive(Debug, Default)]
pub struct Output {
    /// The ring from which terminal sequences have passed since the terminal was last in a known
    /// state.
    altered: Option<usize>,
    /// The ring of the VM whose line is unfinished.
    open: Option<usize>,
    /// The ring whose message or part is unfinished. Nothing else can be printed then.
    pub begun: Option<usize>,
    /// The ring whose turn is next.
    turn: usize,
    /// Within a name that is already on the line.
    hides: bool,
    /// Bytes to print before the next byte of the ring.
    waiting: Deque<u8, { NEUTRAL.len() }>,
}

impl Output {
    /// Prepares for a line that comes `from` a ring or, with `None`, from elsewhere. Returns what
    /// must be printed before it.
    pub fn line(&mut self, from: Option<usize>) -> &'static str {
        let is_open = self.open.take().is_some();
        // The ring that has passed the sequences may continue as it is: it means them. `NEUTRAL`
        // ends with a new row, so that an open line needs no other end.
        if self.altered.is_some() && self.altered != from {
            self.altered = None;
            return NEUTRAL;
        }
        if is_open { "\r\n" } else { "" }
    }

    /// Returns the next byte of what waits in the rings, which take turns: messages, each on a new
    /// line, and parts of VMs' lines with the VM's name, `[name] ` before a new line and
    /// `[name]+` before one that was interrupted, and never after another's text. Only of the
    /// VM that has the `input`, known by its ring, do terminal sequences pass: a terminal types
    /// its answers to that VM. Another source's text follows them after [`NEUTRAL`].
    pub fn next<const N: usize>(&mut self, rings: &[Messages<N>], input: usize) -> Option<u8> {
        loop {
            if let Some(byte) = self.waiting.pop_front() {
                return Some(byte);
            }
            // Round robin from the ring after the last one. An unfinished message keeps its turn,
            // because its bytes must stay together.
            let mut turns = (self.turn..rings.len()).chain(0..self.turn);
            let ring = self
                .begun
                .or_else(|| turns.find(|&ring| !rings[ring].is_empty()))?;
            let byte = rings[ring].pop()?;
            self.begun = Some(ring);
            // May be one past the last ring: the round then begins with the first.
            self.turn = ring + 1;
            match byte {
                BEGINS | CONTINUES => {
                    // If the terminal still shows this line at its end, its name is there already.
                    self.hides = byte == CONTINUES && self.open == Some(ring);
                    if !self.hides {
                        let before = self.line(Some(ring));
                        self.waiting.extend(before.bytes());
                    }
                }
                NAMED => self.hides = false,
                // The line stays open. If another ring prints now, the rest follows with the name
                // again.
                PAUSES => {
                    self.begun = None;
                    self.open = Some(ring);
                }
                _ if self.hides => {}
                // Shown as text: a VM without the input must not move the cursor, nor make the
                // terminal answer the VM that has it.
                BACKSPACE | ESC if ring != input => self.waiting.extend(byte.escape_ascii()),
                _ => {
                    if byte == b'\n' {
                        self.begun = None;
                        self.open = None;
                    }
                    // From now on, another source's line needs `NEUTRAL` before it.
                    if byte == ESC {
                        self.altered = Some(ring);
                    }
                    return Some(byte);
                }
            }
        }
    }
}

/// The meaning of an input byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Pass the byte to this VM.
    Deliver(u8, u8),
    /// This VM gets the input from now on.
    Switched(u8),
    /// Change the life of this VM.
    Order(u8, Change),
    /// Print what can be typed.
    Help,
    /// Nothing to do.
    None,
}

/// Selects the VM that gets the console's input, initially the first one.
pub struct InputSwitch {
    /// Number of VMs: at most eight, one for each digit key.
    vms: u8,
    /// The VM that gets the input.
    selected: u8,
    /// Whether the byte before was [`ESCAPE`], so that the next one is a command.
    escaped: bool,
}

impl InputSwitch {
    /// Creates the switch for a system with this many VMs, at least one.
    pub const fn new(vms: u8) -> Self {
        Self {
            vms,
            selected: 0,
            escaped: false,
        }
    }

    /// Processes a byte of input.
    pub const fn push(&mut self, byte: u8) -> Action {
        if !self.escaped {
            self.escaped = byte == ESCAPE;
            return if self.escaped {
                Action::None
            } else {
                Action::Deliver(self.selected, byte)
            };
        }
        self.escaped = false;
        self.selected = match byte {
            // Twice Ctrl-T is how a guest gets one.
            ESCAPE => return Action::Deliver(self.selected, ESCAPE),
            // VMs are numbered from 1 for people.
            b'1'..=b'8' if byte - b'1' < self.vms => byte - b'1',
            b'n' if self.selected + 1 < self.vms => self.selected + 1,
            // After the last VM, the first one again.
            b'n' => 0,
            // Orders are for the VM that has the input, which need not run.
            b's' => return Action::Order(self.selected, Change::Start),
            b'x' => return Action::Order(self.selected, Change::Stop),
            b'r' => return Action::Order(self.selected, Change::Restart),
            // Also for unknown commands: the user needs the help.
            _ => return Action::Help,
        };
        Action::Switched(self.selected)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::{String, ToString};
    use std::vec::Vec;

    mod terminal;

    /// Returns the output for these bytes; an unfinished part is followed by `>`, and a
    /// continuation preceded by it.
    fn lines(buffer: &mut LineBuffer, bytes: &[u8]) -> Vec<String> {
        bytes
            .iter()
            .filter_map(|&byte| buffer.push(byte).map(|part| shown(&part)))
            .collect()
    }

    fn shown(part: &Part) -> String {
        let (before, behind) = (
            if part.continues { ">" } else { "" },
            if part.ends { "" } else { ">" },
        );
        std::format!("{before}{}{behind}", text(part, true))
    }

    fn text(part: &Part, has_input: bool) -> String {
        let part = Part {
            ends: false,
            ..part.clone()
        };
        let text = said(
            &mut Output {
                open: Some(0),
                ..Output::default()
            },
            0,
            &part,
            has_input,
        );
        text.strip_prefix("\r\n[0] ").unwrap_or(&text).into()
    }

    /// Returns what is printed for a part of the VM with this number and name.
    fn said(output: &mut Output, vm: usize, part: &Part, has_input: bool) -> String {
        let rings = [const { Messages::<1024>::empty() }; 4];
        part.queue(&vm.to_string(), &rings[vm]);
        let input = if has_input { vm } else { rings.len() };
        String::from_utf8(core::iter::from_fn(|| output.next(&rings, input)).collect())
            .expect("ASCII")
    }

    fn part(continues: bool, ends: bool) -> Part {
        Part {
            text: [b'x'].into_iter().collect(),
            continues,
            ends,
        }
    }

    #[test]
    fn lines_end_at_newlines() {
        let mut buffer = LineBuffer::default();
        assert_eq!(
            lines(&mut buffer, b"one\r\ntwo\n\nlogin: "),
            ["one", "two", ""]
        );
        assert!(buffer.is_waiting());
        assert_eq!(
            buffer.pause().map(|part| shown(&part)),
            Some("login: >".into())
        );
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
        assert_eq!(
            lines(&mut buffer, b"\ta\x00\x7f\xff\x1b[1mb\x08\n"),
            ["\ta\\x00\\x7f\\xff\x1b[1mb\x08"]
        );
    }

    #[test]
    fn characters_print_and_bytes_that_are_none_are_shown() {
        let mut buffer = LineBuffer::default();
        for text in [
            "M\u{fc}nchen, \u{6771}\u{4eac}, \u{1f980}",
            "\u{a0}\u{7ff}\u{800}\u{ffff}\u{10000}\u{10ffff}",
        ] {
            assert_eq!(lines(&mut buffer, text.as_bytes()), [""; 0]);
            assert_eq!(lines(&mut buffer, b"\n"), [text]);
        }
        // Cut short, overlong, a surrogate, beyond Unicode, continuations of nothing.
        let wrong: [(&[u8], &str); 8] = [
            (b"\xc3\n", "\\xc3"),
            (b"\xe6\x9da\n", "\\xe6\\x9da"),
            (b"\xf0\x9f\xa6\xc3\xbc\n", "\\xf0\\x9f\\xa6\u{fc}"),
            (b"\xc0\x80\n", "\\xc0\\x80"),
            (b"\xed\xa0\x80\n", "\\xed\\xa0\\x80"),
            (b"\xf4\x90\x80\x80\n", "\\xf4\\x90\\x80\\x80"),
            (b"\x80\xbf\xff\n", "\\x80\\xbf\\xff"),
            // A terminal takes U+009B for the beginning of a sequence, and U+202E turns the text
            // around.
            (b"\xc2\x9b2J \xe2\x80\xae\n", "\\xc2\\x9b2J \\xe2\\x80\\xae"),
        ];
        for (bytes, shown) in wrong {
            assert_eq!(lines(&mut buffer, bytes), [shown]);
        }
        lines(&mut buffer, b"\xe6\x9d");
        assert_eq!(
            (buffer.pause(), buffer.is_waiting()),
            (None, false),
            "a pause does not tear a character"
        );
        assert_eq!(lines(&mut buffer, b"\xb1\n"), ["\u{6771}"]);
        lines(&mut buffer, b"\xe6");
        assert_eq!(
            buffer.flush().map(|part| shown(&part)),
            Some("\\xe6".into())
        );
    }

    #[test]
    fn long_lines_come_in_parts() {
        let mut buffer = LineBuffer::default();
        let room = MAX_LINE - LONGEST + 1;
        let text = "x".repeat(room);
        assert_eq!(lines(&mut buffer, text.as_bytes()), [text + ">"]);
        assert_eq!(lines(&mut buffer, b"\n\nshort\n"), [">", "", "short"]);
        assert_eq!(
            lines(&mut buffer, "y".repeat(room + 3).as_bytes()),
            ["y".repeat(room) + ">"]
        );
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
        assert_eq!([output.line(None), output.line(None)], ["\r\n", ""]);
    }

    #[test]
    fn only_the_vm_with_the_input_moves_the_cursor() {
        let mut buffer = LineBuffer::default();
        b"a\x1b[6n\x08\tb\x9b"
            .iter()
            .for_each(|&byte| assert_eq!(buffer.push(byte), None));
        let part = buffer.push(b'\n').expect("a line");
        assert_eq!(text(&part, true), "a\x1b[6n\x08\tb\\x9b");
        assert_eq!(text(&part, false), "a\\x1b[6n\\x08\tb\\x9b");
    }

    #[test]
    fn a_message_ends_an_unfinished_line_and_is_not_torn() {
        let rings = [const { Messages::<64>::empty() }; 3];
        let mut output = Output::default();
        let text = |output: &mut Output, most| -> String {
            core::iter::from_fn(|| output.next(&rings, 2))
                .take(most)
                .map(char::from)
                .collect()
        };
        part(false, false).queue("vm", &rings[2]);
        assert_eq!(text(&mut output, 100), "[vm] x");
        rings[1].push(format_args!("\x01one\r\n"));
        assert_eq!(
            (&text(&mut output, 3)[..], output.begun),
            ("\r\no", Some(1))
        );
        // Another core's message waits for the end of this one.
        rings[0].push(format_args!("\x01two\r\n"));
        assert_eq!(
            (&text(&mut output, 100)[..], output.begun),
            ("ne\r\ntwo\r\n", None)
        );
        part(true, true).queue("vm", &rings[2]);
        assert_eq!(text(&mut output, 100), "[vm]+x\r\n");
    }

    #[test]
    fn all_rings_take_turns() {
        let rings = [const { Messages::<64>::empty() }; 3];
        for _ in 0..2 {
            rings[0].push(format_args!("\x01core\r\n"));
            part(false, true).queue("a", &rings[1]);
            part(false, true).queue("b", &rings[2]);
        }
        let mut output = Output::default();
        let text: String = core::iter::from_fn(|| output.next(&rings, 1))
            .map(char::from)
            .collect();
        assert_eq!(text, "core\r\n[a] x\r\n[b] x\r\n".repeat(2));
    }

    #[test]
    fn a_writer_knows_when_its_line_is_out() {
        let rings = [Messages::<64>::empty()];
        let mut output = Output::default();
        // Often enough to pass the end of the ring.
        for _ in 0..20 {
            let first = part(false, false).queue("vm", &rings[0]);
            let second = part(true, true).queue("vm", &rings[0]);
            assert!(!rings[0].is_past(first) && !rings[0].is_past(second));
            assert_eq!(
                core::iter::from_fn(|| output.next(&rings, 0))
                    .take(6)
                    .count(),
                6
            );
            assert!(!rings[0].is_past(second));
            while output.next(&rings, 0).is_some() {}
            assert!(rings[0].is_past(first) && rings[0].is_past(second));
        }
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_part_is_too_long(before: String, odd: Vec<u8>, after: String) {
            let bytes = [before.as_bytes(), &odd, after.as_bytes()].concat();
            let mut buffer = LineBuffer::default();
            let mut out = String::new();
            for &byte in &bytes {
                if let Some(part) = buffer.push(byte) {
                    prop_assert!(part.text.len() <= MAX_LINE);
                    out.push_str(&text(&part, true));
                }
            }
            out.push_str(
                &buffer
                    .flush()
                    .map_or(String::new(), |part| text(&part, true)),
            );
            let shown = |bytes: &[u8]| {
                bytes
                    .iter()
                    .map(|byte| std::format!("\\x{byte:02x}"))
                    .collect::<String>()
            };
            let mut expected = String::new();
            for chunk in bytes.utf8_chunks() {
                for character in chunk.valid().chars() {
                    match character {
                        '\r' | '\n' => {}
                        '\t' | '\x08' | '\x1b' | ' '..='~' => expected.push(character),
                        '\u{a0}'.. if !is_obeyed(character) => expected.push(character),
                        _ => {
                            expected.push_str(&shown(character.encode_utf8(&mut [0; 4]).as_bytes()))
                        }
                    }
                }
                expected.push_str(&shown(chunk.invalid()));
            }
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
                    Action::Switched(vm) | Action::Order(vm, _) => {
                        prop_assert_eq!(vm, switch.selected)
                    }
                    Action::Help | Action::None => {}
                }
                prop_assert!(switch.selected < vms);
            }
        }
    }

    #[test]
    fn the_switch_obeys() {
        let mut switch = InputSwitch::new(3);
        let mut push = |text: &[u8]| {
            text.iter()
                .map(|&byte| switch.push(byte))
                .collect::<Vec<_>>()
        };
        assert_eq!(push(b"1"), [Action::Deliver(0, b'1')]);
        assert_eq!(
            push(b"\x143n"),
            [Action::None, Action::Switched(2), Action::Deliver(2, b'n')]
        );
        assert_eq!(push(b"\x14n"), [Action::None, Action::Switched(0)]);
        assert_eq!(
            push(b"\x14\x14"),
            [Action::None, Action::Deliver(0, ESCAPE)]
        );
        assert_eq!(push(b"\x144"), [Action::None, Action::Help]);
        assert_eq!(
            push(b"\x142\x14s"),
            [
                Action::None,
                Action::Switched(1),
                Action::None,
                Action::Order(1, Change::Start)
            ]
        );
        assert_eq!(push(b"\x14x\x14r")[1], Action::Order(1, Change::Stop));
        assert_eq!(push(b"\x14r")[1], Action::Order(1, Change::Restart));
        assert_eq!(push(b"\x14?"), [Action::None, Action::Help]);
    }
}
