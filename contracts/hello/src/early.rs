//! What the hello image prints where it cannot check anything: the boot loader left the core at another
//! exception level.
//!
//! These texts are whole, because code at another level can do no more than send bytes.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// What the image prints at EL1.
pub const AT_EL1: &str = "cloison hello: started at EL1, and needs EL2 #el1\r\n";
/// What the image prints at EL3.
pub const AT_EL3: &str = "cloison hello: started at EL3, and needs EL2 #el3\r\n";

/// Returns the exception level at which the image was started, if a line of a console's text says
/// that it was the wrong one.
pub fn wrong_level(text: &str) -> Option<u8> {
    [(AT_EL1, 1), (AT_EL3, 3)]
        .into_iter()
        .find(|(line, _)| text.trim_end().ends_with(line.trim_end()))
        .map(|(_, level)| level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_has_the_same_texts() {
        let image = include_str!("../../../guest-tools/hello/src/start.rs");
        for text in [AT_EL1, AT_EL3] {
            let literal = text.replace("\r\n", "\\r\\n");
            assert!(
                image.contains(&std::format!(".asciz  \"{literal}\"")),
                "{literal}"
            );
        }
    }

    #[test]
    fn the_level_is_read_from_the_line() {
        assert_eq!(wrong_level("Starting kernel ...\r"), None);
        assert_eq!(wrong_level(&std::format!("noise{AT_EL1}")), Some(1));
        assert_eq!(wrong_level(AT_EL3), Some(3));
    }
}
