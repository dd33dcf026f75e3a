//! Pages whose every word says where it is and how often it has been written.

use cloison_guest::ram::PAGE;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Words in a page.
pub const PAGE_WORDS: usize = (PAGE / 8) as usize;

/// Pages that one vCPU writes and checks.
#[derive(Debug)]
pub struct Stamps {
    words: &'static [AtomicU64],
    /// How often each word has been written.
    generation: u64,
}

impl Stamps {
    /// Writes all words for the first time.
    pub fn new(words: &'static [AtomicU64]) -> Self {
        let stamps = Self { words, generation: 0 };
        for word in words {
            word.store(stamps.content(word), SeqCst);
        }
        stamps
    }

    /// Words that were written for the first time, and only then, before the VM restarted.
    pub const fn of_an_earlier_life(words: &'static [AtomicU64]) -> Self {
        Self { words, generation: 0 }
    }

    /// What a word holds in this generation: different for every address and generation.
    fn content(&self, word: &AtomicU64) -> u64 {
        (word.as_ptr().addr() as u64 ^ self.generation << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Checks every word and writes it anew; `after_page` runs after each page. How many words were wrong.
    pub fn pass(&mut self, mut after_page: impl FnMut()) -> u64 {
        let next = Self { words: self.words, generation: self.generation + 1 };
        let mut wrong = 0;
        for page in self.words.chunks(PAGE_WORDS) {
            for word in page {
                wrong += u64::from(word.load(SeqCst) != self.content(word));
                word.store(next.content(word), SeqCst);
            }
            after_page();
        }
        self.generation = next.generation;
        wrong
    }
}
