//! What the emulated UARTs have in common: the receive FIFO, and the interrupts.
// SPDX-License-Identifier: MIT OR Apache-2.0

use heapless::Deque;

/// Capacity of the receive FIFO: more than a PL011's 32, because nothing throttles what is typed or
/// pasted while the guest is busy.
pub const RX_FIFO: usize = 1024;

/// The receive FIFO is full: the byte is lost, and the guest will see an overrun. The guest sees OE
/// in its data register and in the raw interrupt status (Arm DDI 0183, 3.3.1 and 3.3.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// What both kinds have: the receive FIFO, and the interrupts. `RECEIVED` are the interrupts of
/// bytes in the FIFO, `SENT` those of bytes that were sent, and `OVERRUN` that of a lost byte.
#[derive(Debug, Default)]
pub struct Lines<const RECEIVED: u32, const SENT: u32, const OVERRUN: u32> {
    /// Bytes that have arrived for the guest and that it has not read.
    pub fifo: Deque<u8, RX_FIFO>,
    /// The status without the receive bits, which follow from the FIFO; `received_cleared` hides
    /// them after a write that clears them.
    pub raised: u32,
    pub received_cleared: bool,
    /// The interrupts that reach the line.
    pub mask: u32,
}

impl<const RECEIVED: u32, const SENT: u32, const OVERRUN: u32> Lines<RECEIVED, SENT, OVERRUN> {
    /// Adds a byte that arrives for the guest.
    pub fn push(&mut self, byte: u8) -> Result<(), Full> {
        if self.fifo.push_back(byte).is_err() {
            self.raised |= OVERRUN;
            return Err(Full);
        }
        // A new byte raises the receive interrupts again.
        self.received_cleared = false;
        Ok(())
    }

    /// Sets which interrupts reach the line.
    pub fn unmask(&mut self, mask: u32) {
        // The FIFO is below its level whenever a driver starts to wait for that. On real hardware, a
        // driver that had filled it first would soon see the same.
        if mask & !self.mask & SENT != 0 {
            self.raised |= SENT;
        }
        self.mask = mask;
    }

    /// Clears interrupts.
    pub fn clear(&mut self, bits: u32) {
        // The receive bits follow from the FIFO, so that they are hidden instead of cleared.
        self.raised &= !bits;
        self.received_cleared |= bits & RECEIVED != 0;
    }

    /// Returns the raw interrupt status. With bytes in the FIFO, both the level and the timeout
    /// interrupt are raised, because the guest may wait for either.
    pub fn status(&self) -> u32 {
        let received = if self.fifo.is_empty() || self.received_cleared {
            0
        } else {
            RECEIVED
        };
        self.raised | received
    }

    /// Returns the level of the interrupt line.
    pub fn level(&self) -> bool {
        self.status() & self.mask != 0
    }
}
