//! A VM's doorbell: the bits that its peers have set, and the VM's life.
//!
//! One atomic word, so that a bit is set for a life or not at all: in the word of a VM that has
//! ended are no bits, and none can be set before its next life begins.
//!
//! ```text
//! peer calls      if doorbell.ring(bits, life, may_pass)? { interrupt a core of the VM }
//! that core       line: lock, then look at `waiting`
//! VM takes bits   doorbell.take(mask), then line: lock, then look at `waiting`
//! VM ends         doorbell.close(), then its devices are reset
//! VM starts       doorbell.open()
//! ```
//!
//! The line of the interrupt follows the word: each change is followed by a look at the word under
//! the lock of the VM's interrupts, so that the last look sees all changes. An edge that the VM's
//! list register can take at once needs no lock.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::AtomicU64;
use cloison_abi::reply::Taken;
use cloison_abi::{CallError, doorbell};
use core::sync::atomic::Ordering::{AcqRel, Acquire};

/// Where the life is in the word: above the bits.
const LIFE_SHIFT: u32 = doorbell::ALL.trailing_ones();
/// One life more. An odd one runs.
const LIFE: u64 = 1 << LIFE_SHIFT;

/// The doorbell of a VM, which has not started yet by default.
#[derive(Debug, Default)]
pub struct Doorbell {
    /// The bits that wait, and the number of starts and ends before now.
    word: AtomicU64,
}

/// Checks that the VM runs, and has the life that its peer means; 0 is any.
fn meet(word: u64, life: u64) -> Result<(), CallError> {
    if word & LIFE == 0 {
        Err(CallError::Off)
    } else if life != 0 && life != word >> LIFE_SHIFT {
        Err(CallError::Expired)
    } else {
        Ok(())
    }
}

impl Doorbell {
    /// Sets bits, if the VM has the life `life`. Returns whether one of them is new; `may_pass` is
    /// asked before that, once. What the caller has stored before is seen by who takes the bits.
    ///
    /// Also for bits that are set already, the word is written: a load alone could be older than
    /// the caller's stores, and the bits then be taken without these being seen
    /// (`loom_finds_a_call_that_only_looks`).
    ///
    /// # Errors
    /// [`CallError::Off`], [`CallError::Expired`] or, if it may not pass, [`CallError::TooOften`].
    pub fn ring(
        &self,
        bits: u64,
        life: u64,
        may_pass: impl FnOnce() -> bool,
    ) -> Result<bool, CallError> {
        let mut may_pass = Some(may_pass);
        let mut word = self.word.load(Acquire);
        loop {
            meet(word, life)?;
            let is_new = word & bits != bits;
            if is_new && may_pass.take().is_some_and(|may_pass| !may_pass()) {
                return Err(CallError::TooOften);
            }
            let next = word | bits;
            match self.word.compare_exchange_weak(word, next, AcqRel, Acquire) {
                Ok(_) => return Ok(is_new),
                Err(now) => word = now,
            }
        }
    }

    /// Takes those of the bits in `mask` that wait, in the life that the VM has.
    pub fn take(&self, mask: u64) -> Taken {
        let mask = mask & doorbell::ALL;
        let word = self.word.fetch_and(!mask, AcqRel);
        Taken {
            bits: word & mask,
            life: word >> LIFE_SHIFT,
        }
    }

    /// Returns the bits that wait.
    pub fn waiting(&self) -> u64 {
        self.word.load(Acquire) & doorbell::ALL
    }

    /// Returns the life; odd while the VM runs.
    pub fn life(&self) -> u64 {
        self.word.load(Acquire) >> LIFE_SHIFT
    }

    /// The VM starts. Returns whether that is new.
    pub fn open(&self) -> bool {
        self.turn(0)
    }

    /// The VM has ended: what was meant for this life is gone. Returns whether that is new.
    pub fn close(&self) -> bool {
        self.turn(LIFE)
    }

    /// Ends the life, or the time without one, whose lowest bit is `now`.
    fn turn(&self, now: u64) -> bool {
        let turned = self.word.fetch_update(AcqRel, Acquire, |word| {
            // The number wraps after 2^24 of them, to one without a life.
            (word & LIFE == now).then_some((word & !doorbell::ALL).wrapping_add(LIFE))
        });
        turned.is_ok()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_life_that_has_ended_leaves_no_bits_and_gets_none() {
        let bell = Doorbell::default();
        assert_eq!(bell.ring(1, 0, || true), Err(CallError::Off));
        assert!(bell.open() && !bell.open());
        assert_eq!(bell.ring(1, 0, || true), Ok(true));
        assert_eq!(bell.ring(1, 1, || false), Ok(false), "it is set already");
        assert_eq!(bell.ring(2, 1, || false), Err(CallError::TooOften));
        assert!(bell.close() && !bell.close());
        assert_eq!((bell.waiting(), bell.life()), (0, 2));
        assert_eq!(bell.ring(1, 0, || true), Err(CallError::Off));
        assert!(bell.open());
        assert_eq!(bell.ring(1, 1, || true), Err(CallError::Expired));
        assert_eq!(bell.ring(1, 3, || true), Ok(true));
        assert_eq!([1, 0], [(); 2].map(|()| bell.take(u64::MAX).bits));
        assert_eq!(bell.life(), 3, "no mask reaches it");
    }

    #[test]
    fn lives_are_numbered_round_and_keep_their_parity() {
        let bell = Doorbell::default();
        for life in 1..=1u64 << 24 {
            assert!(if life % 2 == 1 {
                bell.open()
            } else {
                bell.close()
            });
            assert_eq!(bell.life(), life % (1 << 24));
        }
    }

    proptest! {
        /// Against a set and a counter, whatever is called.
        #[test]
        fn a_doorbell_is_a_set_of_bits_in_a_life(
            steps in prop::collection::vec((0u8..5, any::<u64>(), any::<bool>()), 1..200),
        ) {
            let bell = Doorbell::default();
            let (mut bits, mut life) = (0, 0);
            for (step, number, may) in steps {
                match step {
                    0 => {
                        prop_assert_eq!(bell.open(), life % 2 == 0);
                        life += u64::from(life % 2 == 0);
                    }
                    1 => {
                        prop_assert_eq!(bell.close(), life % 2 == 1);
                        bits = if life % 2 == 1 { 0 } else { bits };
                        life += u64::from(life % 2 == 1);
                    }
                    2 => {
                        let taken = bell.take(number);
                        prop_assert_eq!((taken.bits, taken.life), (bits & number, life));
                        bits &= !number;
                    }
                    _ => {
                        let (bit, meant) = (1 << (number % 40), number >> 40 & 3);
                        let expected = if life % 2 == 0 {
                            Err(CallError::Off)
                        } else if meant != 0 && meant != life {
                            Err(CallError::Expired)
                        } else if bits & bit == 0 && !may {
                            Err(CallError::TooOften)
                        } else {
                            Ok(bits & bit == 0)
                        };
                        prop_assert_eq!(bell.ring(bit, meant, || may), expected);
                        bits |= expected.map_or(0, |_| bit);
                    }
                }
                prop_assert_eq!((bell.waiting(), bell.life()), (bits, life));
            }
        }
    }
}
