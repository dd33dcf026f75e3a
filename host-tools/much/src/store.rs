//! A temporary file for columns that are too large for memory.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file without a name, which disappears with the process.
#[derive(Debug)]
pub struct Store {
    file: File,
    end: AtomicU64,
}

/// Bytes of a number in the file.
const WIDTH: usize = size_of::<u32>();

impl Store {
    /// Creates an empty one in the directory for temporary files.
    ///
    /// # Errors
    /// If no file can be created there.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            file: tempfile::tempfile()?,
            end: AtomicU64::new(0),
        })
    }

    /// Adds numbers at the end; returns their position.
    ///
    /// # Errors
    ///
    /// If the file cannot be written, as on a full disk.
    pub fn append(&self, values: &[u32]) -> io::Result<u64> {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let at = self.end.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_all_at(&bytes, at)?;
        Ok(at)
    }

    /// Replaces the number that is `index` numbers after `at`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, at: u64, index: usize, value: u32) -> io::Result<()> {
        self.file
            .write_all_at(&value.to_le_bytes(), at + (index * WIDTH) as u64)
    }

    /// Adds `count` of the numbers at `at` to a list.
    ///
    /// # Panics
    ///
    /// If the disk does not return the written bytes.
    pub fn read(&self, at: u64, count: usize, to: &mut Vec<u32>) {
        let mut bytes = vec![0; count * WIDTH];
        let read = self.file.read_exact_at(&mut bytes, at);
        assert!(
            read.is_ok(),
            "a temporary file of counts cannot be read: {read:?}"
        );
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .rev()
                .fold(0_u32, |number, &byte| number << 8 | u32::from(byte))
        };
        to.extend(bytes.chunks_exact(WIDTH).map(number));
    }
}
