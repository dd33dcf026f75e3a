//! What a line carries, by its bytes: ports are exchanged, and baud rates are wrong.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::telemetry::wire;
use cloison_formats::telemetry::MAX_MESSAGE;

/// What a line carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A console.
    Text,
    /// Telemetry.
    Telemetry,
    /// Neither: the baud rate is wrong, or another device sends.
    Noise,
}

/// The ends of a console's lines. A message that has only begun may be text too, a name for example,
/// but it does not have these two bytes.
const LINE_ENDS: [&[u8]; 2] = [b"\r\n", b"\n\r"];
/// So many bytes of neither are noise, if messages end in them.
const NOISE: usize = 1024;
/// So many of a hundred bytes must be text. Power-on may leave noise on a line, and a message
/// contains names, but also a few other bytes.
const PERCENT: usize = 97;

/// Returns what a line carries, once its bytes tell.
pub fn content(bytes: &[u8]) -> Option<Content> {
    if bytes.contains(&0) && wire::decode(bytes).any(|(_, message)| message.is_ok()) {
        return Some(Content::Telemetry);
    }
    let text = bytes.iter().filter(|byte| is_text(**byte)).count();
    let has_line = || {
        let mut pairs = bytes.windows(2);
        bytes.len() >= MAX_MESSAGE || pairs.any(|pair| LINE_ENDS.contains(&pair))
    };
    if text * 100 >= bytes.len() * PERCENT && has_line() {
        return Some(Content::Text);
    }
    // A line of a message that was joined in the middle has its first whole message after this.
    let most = if bytes.contains(&0) {
        NOISE
    } else {
        MAX_MESSAGE
    };
    (bytes.len() >= most).then_some(Content::Noise)
}

/// Returns whether firmware prints this byte on a console. Other text begins after it.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | 0x08 | 0x1b | 0x20..=0x7e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::color::ColorSet;
    use cloison_formats::telemetry::{BootInfo, Message, VERSION, encode};

    fn message() -> Vec<u8> {
        encode(&Message::AuditEnd { pages: 3 }, &mut [0; MAX_MESSAGE])
            .expect("it fits")
            .to_vec()
    }

    #[test]
    fn bytes_tell_what_a_line_carries() {
        assert_eq!(content(b""), None);
        assert_eq!(content(b"U-Boot"), None);
        assert_eq!(
            content(b"U-Boot 2024.01 (Jan 08 2024)\r\n"),
            Some(Content::Text)
        );
        assert_eq!(content(&message()), Some(Content::Telemetry));
        // Noise of power-on before either.
        let mut noisy = vec![0xff, 0x00, 0x13];
        noisy.extend(message());
        noisy.extend(message());
        assert_eq!(content(&noisy), Some(Content::Telemetry));
        let mut noisy = vec![0x02, 0x13];
        noisy.extend([b'x'; 80]);
        assert_eq!(content(&noisy), None);
        noisy.extend(b"\r\n");
        assert_eq!(content(&noisy), Some(Content::Text));
        assert_eq!(content(&[b'x'; MAX_MESSAGE]), Some(Content::Text));
    }

    #[test]
    fn no_start_of_a_message_is_a_text() {
        let name = "a name that is as long as a name can be and longer.0123abcd";
        let boot = Message::Boot(BootInfo {
            version: VERSION,
            system: name.repeat(4),
            board: name.to_owned(),
            colors: 16,
            hypervisor_colors: ColorSet::default(),
            hypervisor_pages: 100,
            hypervisor_frames: vec![],
            timer_hz: 62_500_000,
        });
        let bytes = encode(&boot, &mut [0; MAX_MESSAGE])
            .expect("it fits")
            .to_vec();
        for end in 0..bytes.len() {
            assert_eq!(content(&bytes[..end]), None, "{end} bytes");
        }
        assert_eq!(content(&bytes), Some(Content::Telemetry));
    }

    #[test]
    fn another_baud_rate_is_noise() {
        // Bits of text, sampled at half the rate.
        let noise: Vec<u8> = (0_u32..2_000)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 & 0x9f)
            .collect();
        assert_eq!(content(&noise), Some(Content::Noise));
        assert_eq!(content(&noise[..600]), None);
    }
}
