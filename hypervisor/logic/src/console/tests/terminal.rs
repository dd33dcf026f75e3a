//! A terminal's view of the console: a model of a terminal reads the output that three VMs, a core
//! and a user cause.
//!
//! The parser is that of the crate `vte`, after Paul Williams, "A parser for DEC's ANSI-compatible
//! video terminals". The model knows which sequences change how a later line looks, by ECMA-48 and
//! xterm's ctlseqs, and believes none of them to be undone unless a sequence that is documented to
//! do so has followed.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use std::collections::BTreeSet;
use std::{format, vec};

/// What may be wrong with the text that a terminal prints next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Spoil {
    Attributes,
    CharacterSet,
    LockingShift,
    SingleShift,
    Coding,
    Colors,
    Palette,
    Margins,
    /// A mode of `CSI ? number h`.
    Mode(u16),
    NoWrapping,
    OnPrinter,
    /// Only `ESC <` is obeyed.
    Vt52,
    /// Only `ESC ETX` is obeyed.
    Tektronix,
    /// The cursor may be on a row that holds text.
    Moved,
}

/// What ends a string (OSC, DCS, SOS, PM, APC).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Any escape sequence, as in the parser.
    Escape,
    /// Only ST and BEL.
    St,
}

/// A kind of terminal.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// It knows DECSTR and what came with it.
    has_decstr: bool,
    strings: Ends,
}

struct Terminal {
    kind: Kind,
    /// Within a string that the parser no longer sees.
    in_string: bool,
    spoiled: BTreeSet<Spoil>,
    /// The cursor was moved to the last row.
    is_at_end: bool,
    after_escape: bool,
    row: String,
    /// Whether all text of the row is as it was written.
    is_plain: bool,
    /// The rows that show what was printed.
    plain: Vec<String>,
}

impl Terminal {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            in_string: false,
            spoiled: BTreeSet::new(),
            is_at_end: false,
            after_escape: false,
            row: String::new(),
            is_plain: true,
            plain: vec![],
        }
    }

    fn set(&mut self, spoil: Spoil, on: bool) {
        if on {
            self.spoiled.insert(spoil);
        } else {
            self.spoiled.remove(&spoil);
        }
    }

    /// Whether it obeys control sequences.
    fn obeys(&self) -> bool {
        ![Spoil::Vt52, Spoil::Tektronix]
            .iter()
            .any(|mode| self.spoiled.contains(mode))
    }

    fn read(&mut self, parser: &mut vte::Parser, byte: u8) {
        let after_escape = core::mem::replace(&mut self.after_escape, byte == ESC);
        if self.in_string {
            if after_escape && byte == b'\\' || byte == BEL {
                self.in_string = false;
                // This ends it for the parser, too.
                parser.advance(self, &[CAN]);
            }
            return;
        }
        // The parser does not tell after which byte a control character came.
        if after_escape && byte == 0x03 {
            self.set(Spoil::Tektronix, false);
        }
        self.in_string = self.kind.strings != Ends::Escape
            && after_escape
            && matches!(byte, b']' | b'P' | b'X' | b'^' | b'_');
        parser.advance(self, &[byte]);
    }

    fn mode(&mut self, number: u16, on: bool) {
        match number {
            2 => self.set(Spoil::Vt52, !on),
            7 => self.set(Spoil::NoWrapping, !on),
            38 if on => self.set(Spoil::Tektronix, true),
            47 | 1047 | 1049 => self.set(Spoil::Mode(47), on),
            5 | 69 | 2026 => self.set(Spoil::Mode(number), on),
            6 => {
                self.set(Spoil::Mode(6), on);
                self.set(Spoil::Moved, true);
            }
            _ => {}
        }
    }
}

impl vte::Perform for Terminal {
    fn print(&mut self, character: char) {
        self.is_at_end = false;
        self.is_plain &= self.spoiled.is_empty();
        self.row.push(character);
        self.set(Spoil::SingleShift, false);
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                let row = core::mem::take(&mut self.row);
                if core::mem::replace(&mut self.is_plain, true) {
                    self.plain.push(row);
                }
                // The last row moves up, unless margins keep it where it is.
                if core::mem::take(&mut self.is_at_end) {
                    self.set(Spoil::Moved, false);
                }
            }
            0x0f => self.set(Spoil::LockingShift, false),
            _ => {}
        }
    }

    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        match params.first().copied().unwrap_or_default() {
            b"10" | b"11" => self.set(Spoil::Colors, true),
            // The other one is not known to be right, but the same text needs both.
            b"111" => self.set(Spoil::Colors, false),
            [b'P', ..] => self.set(Spoil::Palette, true),
            b"R" => self.set(Spoil::Palette, false),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], _: bool, byte: u8) {
        match (intermediates, byte) {
            ([], b'<') => self.set(Spoil::Vt52, false),
            _ if !self.obeys() => {}
            ([], b'\\') => {}
            ([], b'N' | b'O') if self.kind.has_decstr => self.set(Spoil::SingleShift, true),
            ([], b'n' | b'o') => self.set(Spoil::LockingShift, true),
            ([b'('], _) => self.set(Spoil::CharacterSet, byte != b'B'),
            ([b'%'], _) => self.set(Spoil::Coding, byte != b'G'),
            _ => self.set(Spoil::Moved, true),
        }
    }

    fn csi_dispatch(&mut self, params: &vte::Params, intermediates: &[u8], _: bool, action: char) {
        if !self.obeys() {
            return;
        }
        let numbers: Vec<u16> = params.iter().map(|param| param[0]).collect();
        self.is_at_end = false;
        match (intermediates, action) {
            ([], 'm') => self.set(Spoil::Attributes, numbers.iter().any(|&number| number != 0)),
            ([], 'i') => self.set(Spoil::OnPrinter, numbers[0] == 5),
            ([], 'r') => {
                self.set(Spoil::Margins, numbers.iter().any(|&number| number != 0));
                self.set(Spoil::Moved, true);
            }
            ([], 'B') if numbers[0] >= 500 => {
                self.is_at_end = !self.spoiled.contains(&Spoil::Margins)
            }
            ([b'?'], 'h' | 'l') => numbers
                .into_iter()
                .for_each(|number| self.mode(number, action == 'h')),
            ([b'!'], 'p') if self.kind.has_decstr => {
                self.set(Spoil::SingleShift, false);
                // As the VT510 does it.
                self.set(Spoil::NoWrapping, true);
            }
            ([b'!'], 'p') | ([], 'n') => {}
            _ => self.set(Spoil::Moved, true),
        }
    }
}

/// What happens.
#[derive(Clone, Debug)]
enum Act {
    Writes(usize, Vec<u8>),
    Pauses(usize),
    CoreSays(u8),
    InputGoesTo(usize),
    Prints(usize),
}

const BEL: u8 = 0x07;
const CAN: u8 = 0x18;

/// The VM that never has the input, and the ring of the core.
const VICTIM: usize = 2;
const CORE: usize = 3;

/// What a guest writes: text, sequences that would spoil others' lines, the beginnings of some, and
/// noise.
fn written() -> impl Strategy<Value = Vec<u8>> {
    const SPOILING: [&[u8]; 37] = [
        b"\x1b",
        b"\x1b[",
        b"\x1b[3",
        b"\x1b]0;t",
        b"\x1b]0;t\x1b",
        b"\x1bPq",
        b"\x1bP1$",
        b"\x1bXsos",
        b"\x1b^pm",
        b"\x1b_apc",
        b"\x1b%",
        b"\x1b(",
        b"\x1b[8m",
        b"\x1b[1;37;47m",
        b"\x1b[m",
        b"\x1b(0",
        b"\x1b*0\x1bn",
        b"\x1bN",
        b"\x1b%@",
        b"\x1b]11;#fff\x1b\\",
        b"\x1b]10;#fff",
        b"\x1b]P0ffffff",
        b"\x1b[5;6r",
        b"\x1b[?7l",
        b"\x1b[?6h",
        b"\x1b[?5;69h",
        b"\x1b[?1049h",
        b"\x1b[?2026h",
        b"\x1b[5i",
        b"\x1b[?2l",
        b"\x1b[?38h",
        b"\x1b[4h",
        b"\x1b[H",
        b"\x1b[3A",
        b"\x1bM",
        b"\x1bc",
        b"\x1b[6n",
    ];
    let piece = prop_oneof![
        3 => "[a-z \u{e9}\u{6771}]{0,8}".prop_map(String::into_bytes),
        4 => prop::sample::select(&SPOILING[..]).prop_map(<[u8]>::to_vec),
        2 => Just(b"\n".to_vec()),
        1 => prop::collection::vec(any::<u8>().prop_filter("a name", |byte| *byte != b'2'), 0..4),
        1 => Just(vec![b'x'; MAX_LINE]),
    ];
    prop::collection::vec(piece, 1..6).prop_map(|pieces| pieces.concat())
}

fn kind() -> impl Strategy<Value = Kind> {
    let strings = prop::sample::select(&[Ends::Escape, Ends::St][..]);
    (any::<bool>(), strings).prop_map(|(has_decstr, strings)| Kind {
        has_decstr,
        strings,
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (0usize..3, written()).prop_map(|(vm, bytes)| Act::Writes(vm, bytes)),
        1 => (0usize..3).prop_map(Act::Pauses),
        2 => any::<u8>().prop_map(Act::CoreSays),
        1 => (0usize..2).prop_map(Act::InputGoesTo),
        4 => (0usize..200).prop_map(Act::Prints),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]
    /// A VM that has or had the input leaves nothing open that changes what a terminal shows of
    /// others' lines.
    #[test]
    fn others_lines_are_shown_as_they_are(
        acts in prop::collection::vec(act(), 1..40),
        kind in kind(),
    ) {
        let rings = [const { Messages::<16384>::empty() }; 4];
        let (mut output, mut input) = (Output::default(), 0);
        let mut buffers: [LineBuffer; 3] = Default::default();
        let (mut terminal, mut parser) = (Terminal::new(kind), vte::Parser::new());
        let mut show = |output: &mut Output, input, most| {
            core::iter::from_fn(|| output.next(&rings, input))
                .take(most)
                .for_each(|byte| terminal.read(&mut parser, byte));
        };
        let (mut written, mut said) = (String::new(), vec![]);
        let ended = (0..3).map(|vm| Act::Writes(vm, b"\n".to_vec()));
        for act in acts.into_iter().chain(ended) {
            match act {
                Act::Writes(vm, bytes) => {
                    for byte in bytes {
                        if let Some(part) = buffers[vm].push(byte) {
                            part.queue(&vm.to_string(), &rings[vm]);
                            if vm == VICTIM {
                                written.push_str(core::str::from_utf8(&part.text).expect("text"));
                            }
                            // No ring is ever full.
                            show(&mut output, input, MAX_LINE);
                        }
                    }
                }
                Act::Pauses(vm) => {
                    if let Some(part) = buffers[vm].pause() {
                        part.queue(&vm.to_string(), &rings[vm]);
                        if vm == VICTIM {
                            written.push_str(core::str::from_utf8(&part.text).expect("text"));
                        }
                    }
                }
                Act::CoreSays(number) => {
                    rings[CORE].push(format_args!("\x01[core {number}] text\r\n"));
                    said.push(format!("[core {number}] text"));
                }
                Act::InputGoesTo(vm) => input = vm,
                Act::Prints(most) => show(&mut output, input, most),
            }
        }
        show(&mut output, input, usize::MAX);
        // Whatever the last line was, one from elsewhere is shown.
        for byte in output.line(None).bytes().chain(*b"[core 0] over\r\n") {
            terminal.read(&mut parser, byte);
        }
        said.push("[core 0] over".into());
        let victims = terminal
            .plain
            .iter()
            .filter_map(|row| row.strip_prefix("[2]"));
        let shown: String = victims
            .map(|row| row.strip_prefix([' ', '+']).expect("a name"))
            .collect();
        let expected = written
            .replace('\t', "")
            .replace('\x1b', "\\x1b")
            .replace('\x08', "\\x08");
        prop_assert_eq!(shown, expected);
        let cores: Vec<_> = terminal
            .plain
            .iter()
            .filter(|row| row.starts_with("[core "))
            .cloned()
            .collect();
        prop_assert_eq!(cores, said);
    }
}

#[test]
fn a_title_that_does_not_end_swallows_nobody() {
    let rings = [const { Messages::<1024>::empty() }; 2];
    let mut attacker = LineBuffer::default();
    for part in b"\x1b]0;text\n"
        .iter()
        .filter_map(|&byte| attacker.push(byte))
    {
        part.queue("attacker", &rings[0]);
    }
    part(false, true).queue("victim", &rings[1]);
    // The attacker's own next line follows the victim's without another reset.
    part(false, true).queue("attacker", &rings[0]);
    let mut output = Output::default();
    let text: String = core::iter::from_fn(|| output.next(&rings, 0))
        .map(char::from)
        .collect();
    assert_eq!(
        text,
        format!("[attacker] \x1b]0;text\r\n{NEUTRAL}[victim] x\r\n[attacker] x\r\n")
    );
}
