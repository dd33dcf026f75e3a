//! A process as it was at its function: registers and memory, so that it can do the same again.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::Error;
use crate::memory::Memory;
use cloison_profile::Mapping;
use cloison_profile::layout::{Kind, PAGE};

/// Bytes that are compared at a time.
const CHUNK: usize = 64 * PAGE as usize;

/// The contents of the memory that a process can change and that is its own.
pub struct Snapshot {
    pieces: Vec<Piece>,
}

/// Consecutive pages.
struct Piece {
    start: u64,
    contents: Vec<u8>,
}

impl Piece {
    fn end(&self) -> u64 {
        self.start + self.contents.len() as u64
    }
}

/// Returns the addresses of the pages that a process may have changed, in ascending order.
fn changeable(memory: &Memory, layout: &[Mapping]) -> Result<Vec<u64>, Error> {
    let mut pages = Vec::new();
    for mapping in layout.iter().filter(|mapping| Snapshot::keeps(mapping)) {
        pages.extend(memory.present(mapping)?);
    }
    Ok(pages)
}

/// How a process was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// Its memory is as it was.
    Whole {
        /// Pages that had changed.
        changed: usize,
    },
    /// It has pages that it had not: what was there is not known.
    NewPages(usize),
}

impl Snapshot {
    /// Returns whether a process can change a mapping, and it alone.
    pub fn keeps(mapping: &Mapping) -> bool {
        mapping.access.write && !mapping.access.shared && mapping.kind != Kind::Kernel
    }

    /// Keeps what a stopped process has.
    pub fn take(memory: &Memory, layout: &[Mapping]) -> Result<Self, Error> {
        let mut pieces: Vec<Piece> = Vec::new();
        for page in changeable(memory, layout)? {
            let mut contents = vec![0; PAGE as usize];
            memory.read(page, &mut contents)?;
            match pieces.last_mut().filter(|last| last.end() == page) {
                Some(last) => last.contents.extend(contents),
                None => pieces.push(Piece {
                    start: page,
                    contents,
                }),
            }
        }
        Ok(Self { pieces })
    }

    /// Returns the number of pages that are kept.
    fn pages(&self) -> usize {
        let bytes: usize = self.pieces.iter().map(|piece| piece.contents.len()).sum();
        bytes / PAGE as usize
    }

    /// Writes back the pages that have changed.
    pub fn restore(&self, memory: &Memory, layout: &[Mapping]) -> Result<Restored, Error> {
        let present = changeable(memory, layout)?.len();
        if present != self.pages() {
            return Ok(Restored::NewPages(present.abs_diff(self.pages())));
        }
        let mut changed = 0;
        // A buffer of the whole memory would be faulted in again and again.
        let mut now = vec![0; CHUNK];
        for Piece { start, contents } in &self.pieces {
            for (address, old) in (*start..).step_by(CHUNK).zip(contents.chunks(CHUNK)) {
                let now = &mut now[..old.len()];
                memory.read(address, now)?;
                let pages = old.chunks(PAGE as usize).zip(now.chunks(PAGE as usize));
                for (index, (old, now)) in (0..).zip(pages) {
                    if old != now {
                        memory.write(address + index * PAGE, old)?;
                        changed += 1;
                    }
                }
            }
        }
        Ok(Restored::Whole { changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_profile::layout::Access;
    use nix::unistd::Pid;

    /// Three pages, the first of which begins where a page does.
    fn mapping(buffer: &[u8]) -> Mapping {
        let start = (buffer.as_ptr().addr() as u64).next_multiple_of(PAGE);
        Mapping {
            index: 0,
            kind: Kind::Heap,
            name: String::new(),
            start,
            pages: 3,
            access: Access {
                read: true,
                write: true,
                ..Access::default()
            },
        }
    }

    #[test]
    fn what_has_changed_is_written_back_and_nothing_else() {
        let mut buffer = vec![1_u8; 4 * PAGE as usize];
        let layout = [mapping(&buffer)];
        let skip = (layout[0].start - buffer.as_ptr().addr() as u64) as usize;
        let memory = Memory::open(Pid::this()).expect("this process");
        let snapshot = Snapshot::take(&memory, &layout).expect("a snapshot");
        assert_eq!(snapshot.pages(), 3);
        std::hint::black_box(&mut buffer)[skip + 5000] = 7;
        let restored = snapshot.restore(&memory, &layout).expect("restored");
        assert_eq!(restored, Restored::Whole { changed: 1 });
        assert!(std::hint::black_box(&buffer).iter().all(|&byte| byte == 1));
        let restored = snapshot.restore(&memory, &layout).expect("restored");
        assert_eq!(restored, Restored::Whole { changed: 0 });
    }

    #[test]
    fn pages_that_were_not_there_are_reported() {
        let buffer = vec![1_u8; 4 * PAGE as usize];
        let mut layout = [mapping(&buffer)];
        layout[0].pages = 2;
        let memory = Memory::open(Pid::this()).expect("this process");
        let snapshot = Snapshot::take(&memory, &layout).expect("a snapshot");
        layout[0].pages = 3;
        let restored = snapshot.restore(&memory, &layout).expect("a comparison");
        assert_eq!(restored, Restored::NewPages(1));
    }

    #[test]
    fn what_is_shared_or_cannot_be_written_is_not_kept() {
        let buffer = vec![1_u8; 4 * PAGE as usize];
        let mut layout = [mapping(&buffer)];
        let memory = Memory::open(Pid::this()).expect("this process");
        layout[0].access.shared = true;
        let snapshot = Snapshot::take(&memory, &layout).expect("a snapshot");
        assert_eq!(snapshot.pages(), 0);
        layout[0].access = Access::default();
        let snapshot = Snapshot::take(&memory, &layout).expect("a snapshot");
        assert_eq!(snapshot.pages(), 0);
    }
}
