//! Profiles as files.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use cloison_profile::document::DocumentError;
use cloison_profile::{Profile, document};
use std::path::Path;

/// Reads a file.
pub fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::File {
        what: "read",
        path: path.to_owned(),
        source,
    })
}

/// Reads a profile.
pub fn read(path: &Path) -> Result<Profile, Error> {
    let text = String::from_utf8_lossy(&bytes(path)?).into_owned();
    document::read(&text).map_err(|source| {
        let line = match &source {
            DocumentError::Syntax { span, .. } => Some(
                1 + text
                    .bytes()
                    .take(span.start)
                    .filter(|byte| *byte == b'\n')
                    .count(),
            ),
            _ => None,
        };
        Error::Profile {
            path: path.to_owned(),
            line,
            source,
        }
    })
}

/// Writes a file as a whole: a reader sees the old file or the new one.
pub fn write(path: &Path, text: &str) -> Result<(), Error> {
    let wrong = |source| Error::File {
        what: "write",
        path: path.to_owned(),
        source,
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = path.with_file_name(name);
    std::fs::write(&part, text).map_err(wrong)?;
    std::fs::rename(&part, path).map_err(wrong)
}

/// Writes text to a file, or prints it.
pub fn write_or_print(path: Option<&Path>, text: &str) -> Result<(), Error> {
    match path {
        Some(path) => write(path, text),
        None => {
            print!("{text}");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.toml");
        write(&path, "version = 2\n\nmode = = 3\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("x.toml:3: "), "{error}");
        write(&path, "version = 1\n").unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("version 1"));
        assert_eq!(
            std::fs::read_dir(directory.path()).unwrap().count(),
            1,
            "no parts are left"
        );
    }
}
