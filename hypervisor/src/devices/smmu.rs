//! The SMMUv3 (Arm IHI 0070): the streams of a VM's devices go through its stage 2, all others abort.
//!
//! The stream table is linear, a page of EL2's own. Waits are bounded: an SMMU that does not answer
//! costs the VM that has it a warning, and the others nothing.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::machine::mmio::{Page, SMMU, SMMU_EVENTS};
use crate::machine::registers::{Readable, Writeable};
use crate::machine::stage2::{Frame, Stage2, Table, VTCR};
use crate::machine::sysreg;
use cloison_formats::addr::PhysAddr;
use cloison_formats::image::Streams;
use cloison_logic::smmu::register::*;
use cloison_logic::smmu::{
    CUT, ENTRY_WORDS, EVENT_WORDS, Event, FORGET, LOG2_COMMANDS, LOG2_ENTRIES, LOG2_EVENTS, OPEN,
    translated, waiting,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use spin::Once;
use spin::mutex::TicketMutex;

/// How often a register is read for what the SMMU is to do.
const PATIENCE: u32 = 1000;
/// First word of the event queue, in the page that begins with the command queue.
const EVENTS_AT: usize = 256;

/// What is in memory.
struct Memory {
    /// The stream table.
    entries: &'static Table,
    /// The queues.
    queues: &'static Table,
    /// The streams that are open while their VM lives.
    streams: Streams,
    /// Events that were taken.
    taken: AtomicU64,
}

/// Set at boot, if the image has an SMMU.
static MEMORY: Once<Memory> = Once::new();
/// Held from commands to their end.
static COMMANDS: TicketMutex<()> = TicketMutex::new(());

/// Returns whether `is_so` within the time that the SMMU has.
fn wait(is_so: impl Fn() -> bool) -> bool {
    (0..PATIENCE).any(|_| is_so())
}

/// Writes a register of 64 bits.
fn set_address(page: &Page, register: usize, value: u64) {
    page[register].set(value as u32);
    page[register + 1].set((value >> 32) as u32);
}

/// Turns the SMMU on, with all streams cut; boot core only, once. `None` if it cannot do what is
/// needed, or does not answer.
pub fn init(entries: Frame, queues: Frame, stage2: &Stage2, streams: Streams) -> Option<()> {
    let words = translated(VTCR, stage2.vttbr());
    for entry in entries.table.chunks(ENTRY_WORDS) {
        entry[0].store(CUT, Relaxed);
        for (slot, word) in entry[1..].iter().zip(words) {
            slot.store(word, Relaxed);
        }
    }
    let control = |value| {
        SMMU[CR0].set(value);
        wait(|| SMMU[CR0ACK].get() == value).then_some(())
    };
    (SMMU[IDR0].get() & NEEDED == NEEDED).then_some(())?;
    // Whatever a boot loader left: nothing passes while it is off.
    SMMU[GBPA].set(ABORT);
    wait(|| SMMU[GBPA].get() & UPDATE == 0).then_some(())?;
    control(0)?;
    SMMU[CR1].set(CACHED);
    SMMU[CR2].set(0);
    let base = |PhysAddr(pa), log2| pa | u64::from(log2);
    set_address(&SMMU, STRTAB_BASE, entries.pa.0);
    SMMU[STRTAB_BASE_CFG].set(LOG2_ENTRIES);
    set_address(&SMMU, CMDQ_BASE, base(queues.pa, LOG2_COMMANDS));
    SMMU[CMDQ_PROD].set(0);
    SMMU[CMDQ_CONS].set(0);
    let events = PhysAddr(queues.pa.0 + 8 * EVENTS_AT as u64);
    set_address(&SMMU, EVENTQ_BASE, base(events, LOG2_EVENTS));
    SMMU_EVENTS[EVENTQ_PROD].set(0);
    SMMU_EVENTS[EVENTQ_CONS].set(0);
    SMMU[IRQ_CTRL].set(EVENTS);
    control(QUEUES)?;
    let memory = MEMORY.call_once(|| Memory {
        entries: entries.table,
        queues: queues.table,
        streams,
        taken: AtomicU64::new(0),
    });
    memory.forget().then_some(())?;
    control(TRANSLATES)
}

impl Memory {
    /// Has the SMMU read the table again, and finish what it does by what it has read before.
    /// Returns whether it has.
    fn forget(&self) -> bool {
        let _guard = COMMANDS.lock();
        let produced = SMMU[CMDQ_PROD].get();
        // Not so only after commands that have not ended in time.
        let is_done = |produced| waiting(produced, SMMU[CMDQ_CONS].get(), LOG2_COMMANDS) == 0;
        if !is_done(produced) {
            return false;
        }
        for (at, command) in (produced..).zip(FORGET) {
            let at = (at as usize % (1 << LOG2_COMMANDS)) * command.len();
            for (slot, word) in self.queues[at..].iter().zip(command) {
                slot.store(word, Relaxed);
            }
        }
        // The table and the commands are there before the SMMU is told.
        sysreg::dsb();
        let end = (produced + FORGET.len() as u32) & ((2 << LOG2_COMMANDS) - 1);
        SMMU[CMDQ_PROD].set(end);
        wait(|| is_done(end))
    }

    /// Sets the first word of the VM's entries. Returns whether the SMMU has seen it.
    fn set(&self, word: u64) -> bool {
        for (stream, entry) in (0..).zip(self.entries.chunks(ENTRY_WORDS)) {
            if self.streams.contains(stream) {
                entry[0].store(word, Relaxed);
            }
        }
        self.forget()
    }
}

/// Opens the VM's streams. Returns whether the SMMU has done so.
pub fn open() -> bool {
    MEMORY.get().is_some_and(|memory| memory.set(OPEN))
}

/// Cuts the VM's streams: from here on no device reads or writes its memory. Returns whether the
/// SMMU has done so.
pub fn cut() -> bool {
    MEMORY.get().is_some_and(|memory| memory.set(CUT))
}

/// Returns whether events wait.
pub fn has_events() -> bool {
    let [produced, consumed] = [EVENTQ_PROD, EVENTQ_CONS].map(|index| SMMU_EVENTS[index].get());
    waiting(produced, consumed, LOG2_EVENTS) > 0
}

/// Takes all events. Returns the first one, and how many were taken since boot. A full queue has lost
/// some.
pub fn take_events() -> Option<(Event, u64)> {
    let memory = MEMORY.get()?;
    let [produced, consumed] = [EVENTQ_PROD, EVENTQ_CONS].map(|index| SMMU_EVENTS[index].get());
    // The SMMU has written what it counts.
    sysreg::dsb();
    let at = consumed as usize % (1 << LOG2_EVENTS) * EVENT_WORDS + EVENTS_AT;
    let event = Event::of([0, 1, 2].map(|word| memory.queues[at + word].load(Relaxed)));
    // Also the bit that says that some were lost.
    SMMU_EVENTS[EVENTQ_CONS].set(produced);
    let count = u64::from(waiting(produced, consumed, LOG2_EVENTS));
    let all = memory.taken.fetch_add(count, Relaxed) + count;
    (count > 0).then_some((event, all))
}

/// Visits the entries of the table that do not cut their stream, as the SMMU finds them.
pub fn walk(mut visit: impl FnMut(u32, [u64; 4])) {
    let entries = MEMORY
        .get()
        .into_iter()
        .flat_map(|memory| memory.entries.chunks(ENTRY_WORDS));
    for (stream, entry) in (0..).zip(entries) {
        let words = [0, 1, 2, 3].map(|word| entry[word].load(Relaxed));
        if words[0] != CUT {
            visit(stream, words);
        }
    }
}
