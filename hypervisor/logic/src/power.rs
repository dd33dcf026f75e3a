//! The power states of a VM's vCPUs, and the VM's end and restart, in one atomic word.
//!
//! ```text
//!            claim          publish          enter           ask            leave
//!      Off ────────▶ Claimed ──────▶ Pending ─────▶ On ─────────────▶ Leaving ─────▶ Off
//!       ▲                               │ stop                 (CPU_OFF, stop)
//!       └───────────────────────────────┘
//! ```
//!
//! A vCPU that has to stop is in the state [`State::Leaving`]. No message says so: a late message
//! could stop a vCPU that was started again. The interrupt only makes the core read the word.
//!
//! One vCPU at a time ends or restarts the VM ([`Power::end`]). No vCPU can be claimed meanwhile. A
//! doomed VM ([`Doom`]) has no next life. [`Power::restart`] decides that in the same step.
//!
//! The console and other VMs order a VM to stop, start or restart ([`Power::order`]): vCPU 0
//! leaves. Its core carries out the order when no other vCPU ends or restarts the VM
//! ([`Power::take_order`]). One order waits at a time, through the VM's restarts and its end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::atomic::{AtomicU32, AtomicU64, fence};
use cloison_abi::CallError;
use cloison_abi::reply::{Change, Life};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Release, SeqCst};

/// A vCPU's power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Off.
    Off = 0,
    /// Off; another vCPU is about to set where it starts.
    Claimed = 1,
    /// Asked to start; its core has not started it yet. PSCI calls it ON_PENDING (Arm DEN 0022,
    /// AFFINITY_INFO).
    Pending = 2,
    /// On.
    On = 3,
    /// On; it stops soon.
    Leaving = 4,
}

/// Why a VM has no next life. Of several reasons, the last one in this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doom {
    /// An order stopped it, or the machine turns itself off.
    Stopped = 1,
    /// The VM has turned itself off.
    Off = 2,
    /// The hypervisor has ended it.
    Killed = 3,
}

/// How a vCPU is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With its VM, as the VM's first vCPU.
    Boot,
    /// By CPU_ON.
    CpuOn,
}

/// An order for a VM's first core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End the VM.
    Stop,
    /// Restart the running VM.
    Restart,
    /// Restart the VM after its end.
    Revive,
}

/// Three bits per vCPU, then the VM's.
#[derive(Clone, Copy)]
struct Word(u64);

impl Word {
    /// Bits of a vCPU's state.
    const BITS: u32 = 3;
    /// In the states of all vCPUs (16, `MAX_VCPUS`: bits 0 to 47), the bits of which one is set while a
    /// vCPU is neither off nor leaving.
    const PRESENT: u64 = 0o3333_3333_3333_3333;
    /// A vCPU ends or restarts the VM.
    const ENDING: u64 = 1 << 48;
    /// vCPU 0 is asked to start as the VM does.
    const BOOT: u64 = 1 << 49;
    /// The VM's end is over.
    const DEAD: u64 = 1 << 50;
    /// A [`Doom`], or 0.
    const DOOM: u32 = 51;
    /// Ordered to end.
    const STOP: u64 = 1 << 53;
    /// Ordered to live again.
    const RESTART: u64 = 1 << 54;
    /// An order that has not been carried out: to stop, or to start again.
    const ORDERED: u64 = Self::STOP | Self::RESTART;
    /// The machine turns itself off: there is no life after this one.
    const FINAL: u64 = 1 << 55;

    /// Returns whether some of these bits are set.
    const fn has(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Returns the state of a vCPU.
    const fn state(self, vcpu: usize) -> State {
        match self.0 >> (vcpu as u32 * Self::BITS) & 7 {
            0 => State::Off,
            1 => State::Claimed,
            2 => State::Pending,
            3 => State::On,
            _ => State::Leaving,
        }
    }

    /// Returns the word with these bits set.
    const fn and(self, bits: u64) -> Self {
        Self(self.0 | bits)
    }

    /// Returns the word with these bits clear.
    const fn without(self, bits: u64) -> Self {
        Self(self.0 & !bits)
    }

    /// Returns the word with another state of a vCPU.
    const fn with(self, vcpu: usize, state: State) -> Self {
        let shift = vcpu as u32 * Self::BITS;
        self.without(7 << shift).and((state as u64) << shift)
    }

    /// Returns why the VM ends, if it does.
    const fn doom(self) -> Option<Doom> {
        match self.0 >> Self::DOOM & 3 {
            0 => None,
            1 => Some(Doom::Stopped),
            2 => Some(Doom::Off),
            _ => Some(Doom::Killed),
        }
    }

    /// Returns the word of a VM that has no next life, for this or a stronger reason.
    fn doomed(self, why: Doom) -> Self {
        // A kill wins against a stop or a restart in any order
        // (`loom_a_kill_wins_against_a_restart`).
        let worst = self.doom().map_or(why, |doom| doom.max(why));
        self.without(3 << Self::DOOM)
            .and((worst as u64) << Self::DOOM)
    }

    /// Returns whether a vCPU other than this one is on or is being turned on.
    fn has_others(self, vcpu: usize) -> bool {
        self.with(vcpu, State::Off).has(Self::PRESENT)
    }
}

/// The power states of one VM.
///
/// One word, so that each decision about several vCPUs and the VM's end is one atomic step. The
/// models in `power/tests/models.rs` try all interleavings, each beside a model with a bug that
/// must be found.
#[derive(Debug)]
pub struct Power(AtomicU64);

impl Power {
    /// Creates the states of a VM that is being loaded: vCPU 0 is claimed until the loader
    /// [publishes](Self::publish) it, and the others are off. An order waits for that.
    pub fn loading() -> Self {
        Self(AtomicU64::new(Word::BOOT | State::Claimed as u64))
    }

    // Acquire pairs with the Release of each step: a core that sees a state sees what was written
    // before it.
    fn word(&self) -> Word {
        Word(self.0.load(Acquire))
    }

    /// Takes one step, if the word allows it. Returns the word before, in both cases.
    fn step(&self, next: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        let next = |word| next(Word(word)).map(|word| word.0);
        self.0
            .fetch_update(AcqRel, Acquire, next)
            .map(Word)
            .map_err(Word)
    }

    /// Takes one step. Returns the word before.
    fn change(&self, next: impl Fn(Word) -> Word) -> Word {
        match self.step(|word| Some(next(word))) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Returns a vCPU's state.
    pub fn state(&self, vcpu: usize) -> State {
        self.word().state(vcpu)
    }

    /// Reserves an off vCPU for the caller. The caller sets where it starts, and then calls
    /// [`publish`](Self::publish).
    ///
    /// # Errors
    /// The vCPU's state, if it is not off, or if the VM is about to end or to restart.
    pub fn claim(&self, vcpu: usize) -> Result<(), State> {
        // Without the state `Claimed`, a vCPU that is being turned on could be taken for off
        // (`loom_a_claimed_vcpu_is_not_taken_for_off`).
        let free = |word: Word| {
            word.state(vcpu) == State::Off && !word.has(Word::ENDING) && word.doom().is_none()
        };
        let claimed = self.step(|word| free(word).then(|| word.with(vcpu, State::Claimed)));
        claimed.map(drop).map_err(|word| word.state(vcpu))
    }

    /// Asks a claimed vCPU to start. Its entry point, written before, is visible to the core that
    /// enters it.
    pub fn publish(&self, vcpu: usize) {
        self.change(|word| word.with(vcpu, State::Pending));
    }

    /// Starts the vCPU on its core, if it is pending and no order waits for the core. Returns how
    /// it starts.
    pub fn enter(&self, vcpu: usize) -> Option<Start> {
        let pending = |word: Word| {
            // A life that began after an order was given would outlive it
            // (`loom_an_early_order_waits_for_the_first_life`).
            word.state(vcpu) == State::Pending && !(vcpu == 0 && word.has(Word::ORDERED))
        };
        let boots = if vcpu == 0 { Word::BOOT } else { 0 };
        let on = |word: Word| word.without(boots).with(vcpu, State::On);
        let before = self.step(|word| pending(word).then(|| on(word))).ok()?;
        Some(if before.has(boots) {
            Start::Boot
        } else {
            Start::CpuOn
        })
    }

    /// Returns whether a core whose vCPU is off has to start the vCPU, or to carry out an order.
    pub fn is_wanted(&self, vcpu: usize) -> bool {
        let word = self.word();
        word.state(vcpu) == State::Pending || vcpu == 0 && word.has(Word::ORDERED)
    }

    /// Asks a vCPU to stop. Returns its new state. The caller interrupts the vCPU's core, and calls
    /// again until the vCPU is off.
    pub fn stop(&self, vcpu: usize) -> State {
        let next = |word: Word| match word.state(vcpu) {
            State::Pending => Some(word.with(vcpu, State::Off)),
            State::On => Some(word.with(vcpu, State::Leaving)),
            // A claimed vCPU is published at once.
            State::Claimed | State::Leaving | State::Off => None,
        };
        match self.step(next) {
            Ok(before) if before.state(vcpu) == State::Pending => State::Off,
            Ok(_) => State::Leaving,
            Err(word) => word.state(vcpu),
        }
    }

    /// Records that a core has stopped its vCPU.
    pub fn leave(&self, vcpu: usize) {
        self.change(|word| word.with(vcpu, State::Off));
    }

    /// Turns off the calling vCPU. Returns whether it is the last one: then the VM ends, unless an
    /// order waits, or the machine's end stops the others.
    pub fn cpu_off(&self, vcpu: usize) -> bool {
        self.step(|word| {
            // One step decides who is last: two checks apart could leave the end to each other
            // (`loom_one_of_two_is_the_last_to_turn_itself_off`).
            (word.has_others(vcpu) || word.has(Word::ENDING | Word::ORDERED | Word::FINAL))
                .then(|| word.with(vcpu, State::Leaving))
        })
        .is_err()
    }

    /// Begins to end the VM (`doom`) or to restart it. Returns whether the calling vCPU does so. If
    /// not, another vCPU does, and waits until this one leaves.
    pub fn end(&self, doom: Option<Doom>) -> bool {
        let doomed = |word: Word| doom.map_or(word, |why| word.doomed(why));
        let before = self.change(|word| doomed(word).and(Word::ENDING));
        !before.has(Word::ENDING)
    }

    /// Dooms the VM, because the machine turns itself off: this life is its last. `FINAL` is apart
    /// from the doom, because an order could revive a VM that is only doomed
    /// (`loom_nobody_is_revived_while_the_machine_turns_off`).
    pub fn doom(&self) {
        self.change(|word| word.doomed(Doom::Stopped).and(Word::FINAL));
    }

    /// Orders the VM, from outside, to change its life. Returns whether there is something to
    /// change: the caller then interrupts the VM's first core.
    ///
    /// # Errors
    /// [`CallError::Busy`], if another order waits, if a VM that has to start has not ended yet, or
    /// if the machine turns itself off.
    pub fn order(&self, change: Change) -> Result<bool, CallError> {
        let next = |word: Word| {
            // Its memory is still in use: a start has to wait
            // (`a_vm_that_dies_cannot_be_started_before_it_is_dead`).
            let dies = word.has(Word::ENDING) && word.doom().is_some() && !word.has(Word::DEAD);
            let order = match change {
                _ if word.has(Word::ORDERED | Word::FINAL) => return None,
                Change::Stop if word.has(Word::DEAD) => 0,
                Change::Stop => Word::STOP,
                Change::Start if dies => return None,
                Change::Start if !word.has(Word::DEAD) => 0,
                Change::Start | Change::Restart => Word::RESTART,
            };
            let leaves = order != 0 && word.state(0) == State::On;
            let left = if leaves {
                word.with(0, State::Leaving)
            } else {
                word
            };
            Some(left.and(order))
        };
        let before = self.step(next).map_err(|_| CallError::Busy)?;
        Ok(next(before).is_some_and(|after| after.0 != before.0))
    }

    /// Takes the order that waits, on the VM's first core, which runs no guest. The core then ends
    /// or restarts the VM, as after [`end`](Self::end), and vCPU 0 is claimed. Returns `None` also
    /// while another vCPU ends or restarts the VM, or vCPU 0 is being turned on: the core is
    /// interrupted afterwards.
    pub fn take_order(&self) -> Option<Order> {
        let order = |word: Word| {
            // On or leaving, vCPU 0 still has a guest to leave; claimed, another vCPU is turning it
            // on.
            let is_free = matches!(word.state(0), State::Off | State::Pending);
            match (word.has(Word::DEAD), word.has(Word::STOP)) {
                _ if !word.has(Word::ORDERED) || word.has(Word::FINAL) || !is_free => None,
                (true, _) => Some(Order::Revive),
                _ if word.has(Word::ENDING) => None,
                (false, true) => Some(Order::Stop),
                (false, false) => Some(Order::Restart),
            }
        };
        let next = |word: Word| {
            let rest = word.without(Word::ORDERED | Word::BOOT);
            let rest = match order(word)? {
                Order::Stop => rest.doomed(Doom::Stopped),
                Order::Restart => rest,
                // The vCPU that has ended the VM may still be leaving.
                Order::Revive => Word(word.0 & (Word::ENDING - 1)),
            };
            Some(rest.with(0, State::Claimed).and(Word::ENDING))
        };
        self.step(next).ok().and_then(order)
    }

    /// Returns the state of the VM, for other VMs.
    pub fn life(&self) -> Life {
        let word = self.word();
        match word.doom() {
            // An order that waits counts first: whatever the VM does now, it is about to change.
            _ if word.has(Word::ORDERED) => Life::Changing,
            Some(Doom::Stopped) if word.has(Word::DEAD) => Life::Stopped,
            Some(Doom::Killed) if word.has(Word::DEAD) => Life::Killed,
            _ if word.has(Word::DEAD) => Life::Off,
            None if !word.has(Word::ENDING | Word::BOOT) => Life::Running,
            _ => Life::Changing,
        }
    }

    /// Begins the next life: the running vCPU is off, vCPU 0 starts. All others are off already.
    /// Returns whether there is a next life.
    pub fn restart(&self) -> bool {
        let next = |word: Word| {
            // An order that waits is for the VM, not for its life: it is kept
            // (`loom_an_order_is_carried_out`).
            let ordered = Word(word.0 & Word::ORDERED);
            ordered.with(0, State::Pending).and(Word::BOOT)
        };
        self.step(|word| word.doom().is_none().then(|| next(word)))
            .is_ok()
    }

    /// Completes the VM's end, and an order to end it. Returns why it ended. Of several VMs that
    /// end at the same time, at least one sees all others dead afterwards.
    pub fn bury(&self) -> Doom {
        let before = self.change(|word| word.without(Word::STOP).and(Word::DEAD));
        // Each VM stores its own end and then reads the others': only a sequentially consistent
        // fence keeps two of them from both reading old words
        // (`loom_of_two_vms_that_end_one_notices`).
        fence(SeqCst);
        before.doom().unwrap_or(Doom::Off)
    }

    /// Returns whether the VM's end is complete.
    pub fn is_dead(&self) -> bool {
        self.word().has(Word::DEAD)
    }
}

/// The requests that have arrived for a core.
pub struct Requests(AtomicU32);

impl Requests {
    /// Creates an empty set.
    #[cfg(not(loom))]
    pub const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds a request, a bit. The caller interrupts the core afterwards. Release: what the request
    /// is about was written before it (`loom_finds_a_request_that_overtakes_what_was_written`).
    pub fn post(&self, request: u32) {
        self.0.fetch_or(request, Release);
    }

    /// Takes the requests, as a mask. The core has acknowledged the interrupt: a later request
    /// interrupts it again. The other order loses a request
    /// (`loom_finds_an_interrupt_that_is_acknowledged_too_late`).
    pub fn take(&self) -> u32 {
        self.0.swap(0, Acquire)
    }
}

#[cfg(test)]
pub(crate) mod tests;
