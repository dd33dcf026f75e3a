//! The power states of a VM's vCPUs: who may start, stop, restart and end what, in one atomic word.
//!
//! ```text
//!            claim          publish          enter           ask            leave
//!      Off ────────▶ Claimed ──────▶ Pending ─────▶ On ─────────────▶ Leaving ─────▶ Off
//!       ▲                               │ stop                 (CPU_OFF, stop)
//!       └───────────────────────────────┘
//! ```
//!
//! To stop a vCPU is a state of that vCPU ([`State::Leaving`]), not a message: nothing can arrive late and stop a vCPU that
//! has been started since. The interrupt that goes with it only has the core look at the word.
//!
//! One vCPU at a time ends or restarts the VM ([`Power::end`]). Until it has, no vCPU can be claimed. A VM that is
//! doomed ([`Doom`]) has no next life, whoever was about to start one: [`Power::restart`] decides in the same step.
//!
//! Others order a VM to stop, start or restart ([`Power::order`]): vCPU 0 leaves, and its core carries the order out once
//! no vCPU is at it ([`Power::take_order`]). One order waits at a time, through the VM's restarts and its end.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::CallError;
use cloison_abi::reply::{Change, Life};
use cloison_formats::limits::MAX_VCPUS;
use core::sync::atomic::Ordering;
#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, fence};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, fence};

/// A vCPU's power state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Off.
    Off = 0,
    /// Off, but another vCPU is about to say where it starts.
    Claimed = 1,
    /// Asked to start; its core has not yet.
    Pending = 2,
    /// On.
    On = 3,
    /// On, but asked to stop or about to.
    Leaving = 4,
}

/// Why a VM has no next life. Where there are several reasons, the last one in this list counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doom {
    /// It was ordered to stop, or the machine turns itself off.
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

/// What a VM's first core has been ordered to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// End the VM.
    Stop,
    /// Restart the VM, which runs.
    Restart,
    /// Restart the VM, which has ended.
    Revive,
}

/// Three bits per vCPU, then the VM's.
#[derive(Clone, Copy)]
struct Word(u32);

impl Word {
    const BITS: u32 = 3;
    /// A vCPU ends or restarts the VM.
    const ENDING: u32 = 1 << 24;
    /// vCPU 0 is asked to start as the VM does.
    const BOOT: u32 = 1 << 25;
    /// The VM's end is over.
    const DEAD: u32 = 1 << 26;
    /// A [`Doom`], or 0.
    const DOOM: u32 = 27;
    /// Ordered to end.
    const STOP: u32 = 1 << 29;
    /// Ordered to live again.
    const RESTART: u32 = 1 << 30;
    const ORDERED: u32 = Self::STOP | Self::RESTART;
    /// The machine turns itself off: there is no life after this one.
    const FINAL: u32 = 1 << 31;

    const fn has(self, bits: u32) -> bool {
        self.0 & bits != 0
    }

    const fn state(self, vcpu: usize) -> State {
        match self.0 >> (vcpu as u32 * Self::BITS) & 7 {
            0 => State::Off,
            1 => State::Claimed,
            2 => State::Pending,
            3 => State::On,
            _ => State::Leaving,
        }
    }

    const fn with(self, vcpu: usize, state: State) -> Self {
        let shift = vcpu as u32 * Self::BITS;
        Self(self.0 & !(7 << shift) | (state as u32) << shift)
    }

    const fn doom(self) -> Option<Doom> {
        match self.0 >> Self::DOOM & 3 {
            0 => None,
            1 => Some(Doom::Stopped),
            2 => Some(Doom::Off),
            _ => Some(Doom::Killed),
        }
    }

    fn doomed(self, why: Doom) -> Self {
        let worst = self.doom().map_or(why, |doom| doom.max(why));
        Self(self.0 & !(3 << Self::DOOM) | (worst as u32) << Self::DOOM)
    }

    /// Whether a vCPU other than this one is on or is being turned on.
    fn has_others(self, vcpu: usize) -> bool {
        (0..MAX_VCPUS)
            .any(|other| other != vcpu && !matches!(self.state(other), State::Off | State::Leaving))
    }
}

/// The power states of one VM.
#[derive(Debug)]
pub struct Power(AtomicU32);

impl Power {
    /// A VM that is being loaded: vCPU 0 is claimed until whoever loads it [publishes](Self::publish) it, and the others are
    /// off. An order waits for that.
    pub fn loading() -> Self {
        Self(AtomicU32::new(Word::BOOT | State::Claimed as u32))
    }

    fn word(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Takes one step, if the word allows it; the word before it either way.
    fn step(&self, next: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        let next = |word| next(Word(word)).map(|word| word.0);
        self.0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .map(Word)
            .map_err(Word)
    }

    /// Returns a vCPU's state.
    pub fn state(&self, vcpu: usize) -> State {
        self.word().state(vcpu)
    }

    /// Reserves an off vCPU for the caller, who says where it starts and then calls [`publish`](Self::publish).
    ///
    /// # Errors
    /// Its state, where it is not off, or where the VM is about to end or to restart.
    pub fn claim(&self, vcpu: usize) -> Result<(), State> {
        let free = |word: Word| {
            word.state(vcpu) == State::Off && !word.has(Word::ENDING) && word.doom().is_none()
        };
        let claimed = self.step(|word| free(word).then(|| word.with(vcpu, State::Claimed)));
        claimed.map(drop).map_err(|word| word.state(vcpu))
    }

    /// Asks a claimed vCPU to start.
    pub fn publish(&self, vcpu: usize) {
        let _ = self.step(|word| Some(word.with(vcpu, State::Pending)));
    }

    /// A core starts its vCPU, if that was asked to and has not been stopped since, and no order comes first.
    pub fn enter(&self, vcpu: usize) -> Option<Start> {
        let pending = |word: Word| {
            word.state(vcpu) == State::Pending && !(vcpu == 0 && word.has(Word::ORDERED))
        };
        let on = |word: Word| {
            if vcpu == 0 {
                Word(word.0 & !Word::BOOT)
            } else {
                word
            }
            .with(vcpu, State::On)
        };
        let before = self.step(|word| pending(word).then(|| on(word))).ok()?;
        Some(if vcpu == 0 && before.has(Word::BOOT) {
            Start::Boot
        } else {
            Start::CpuOn
        })
    }

    /// Whether a core has to stop its vCPU.
    pub fn is_leaving(&self, vcpu: usize) -> bool {
        self.state(vcpu) == State::Leaving
    }

    /// Has a vCPU stop; returns its state then. The caller interrupts the vCPU's core and asks again until it is off.
    pub fn stop(&self, vcpu: usize) -> State {
        let next = |word: Word| match word.state(vcpu) {
            State::Pending => Some(word.with(vcpu, State::Off)),
            State::On => Some(word.with(vcpu, State::Leaving)),
            // Whoever claims it publishes it at once.
            State::Claimed | State::Leaving | State::Off => None,
        };
        match self.step(next) {
            Ok(before) if before.state(vcpu) == State::Pending => State::Off,
            Ok(_) => State::Leaving,
            Err(word) => word.state(vcpu),
        }
    }

    /// A core has stopped its vCPU.
    pub fn leave(&self, vcpu: usize) {
        let _ = self.step(|word| Some(word.with(vcpu, State::Off)));
    }

    /// A vCPU turns itself off. Returns whether it is the last one, with which the VM ends; where an order waits, that
    /// decides what becomes of the VM.
    pub fn cpu_off(&self, vcpu: usize) -> bool {
        self.step(|word| {
            (word.has_others(vcpu) || word.has(Word::ENDING | Word::ORDERED))
                .then(|| word.with(vcpu, State::Leaving))
        })
        .is_err()
    }

    /// A vCPU is about to end the VM (`doom`) or to restart it. Returns whether it is the one to do so: if not, another one
    /// is doing it and waits for this one to leave.
    pub fn end(&self, doom: Option<Doom>) -> bool {
        let next = |word: Word| Word(doom.map_or(word, |why| word.doomed(why)).0 | Word::ENDING);
        self.step(|word| Some(next(word)))
            .is_ok_and(|before| !before.has(Word::ENDING))
    }

    /// The machine turns itself off: the VM starts no other life.
    pub fn doom(&self) {
        let _ = self.step(|word| Some(Word(word.doomed(Doom::Stopped).0 | Word::FINAL)));
    }

    /// Orders the VM, from outside, to change its life. Returns whether there is something to change: the caller then
    /// interrupts the VM's first core.
    ///
    /// # Errors
    /// [`CallError::Busy`], where another order waits, where a VM that is to start has not ended yet, or where the machine
    /// turns itself off.
    pub fn order(&self, change: Change) -> Result<bool, CallError> {
        let next = |word: Word| {
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
            Some(Word(
                if leaves {
                    word.with(0, State::Leaving)
                } else {
                    word
                }
                .0 | order,
            ))
        };
        let before = self.step(next).map_err(|_| CallError::Busy)?;
        Ok(next(before).is_some_and(|after| after.0 != before.0))
    }

    /// The VM's first core, which runs no guest, takes the order that waits: from here on it ends or restarts the VM, as
    /// after [`end`](Self::end), and vCPU 0 counts as claimed. `None` too while another vCPU is at it, or vCPU 0 is being
    /// turned on: the core is interrupted when that is over.
    pub fn take_order(&self) -> Option<Order> {
        let order = |word: Word| {
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
            let rest = Word(word.0 & !(Word::ORDERED | Word::BOOT));
            let rest = match order(word)? {
                Order::Stop => rest.doomed(Doom::Stopped),
                Order::Restart => rest,
                // Whoever has ended the VM may still be on its way out.
                Order::Revive => Word(word.0 & (Word::ENDING - 1)),
            };
            Some(Word(rest.with(0, State::Claimed).0 | Word::ENDING))
        };
        self.step(next).ok().and_then(order)
    }

    /// Returns what others may know of the VM.
    pub fn life(&self) -> Life {
        let word = self.word();
        match word.doom() {
            _ if word.has(Word::ORDERED) => Life::Changing,
            Some(Doom::Stopped) if word.has(Word::DEAD) => Life::Stopped,
            Some(Doom::Killed) if word.has(Word::DEAD) => Life::Killed,
            _ if word.has(Word::DEAD) => Life::Off,
            None if !word.has(Word::ENDING | Word::BOOT) => Life::Running,
            _ => Life::Changing,
        }
    }

    /// The next life begins: the running vCPU is off, vCPU 0 starts. All others are off already.
    ///
    /// # Errors
    /// Why there is no next life.
    pub fn restart(&self) -> Result<(), Doom> {
        let next =
            |word: Word| Word(Word(word.0 & Word::ORDERED).with(0, State::Pending).0 | Word::BOOT);
        match self.step(|word| word.doom().is_none().then(|| next(word))) {
            Ok(_) => Ok(()),
            Err(word) => Err(word.doom().unwrap_or(Doom::Stopped)),
        }
    }

    /// The VM's end is over, and with it an order to end it. Returns why it ended. Of several VMs that end at the same time,
    /// one at least sees all others dead afterwards.
    pub fn bury(&self) -> Doom {
        let before = self.step(|word| Some(Word(word.0 & !Word::STOP | Word::DEAD)));
        fence(Ordering::SeqCst);
        before.ok().and_then(Word::doom).unwrap_or(Doom::Off)
    }

    /// Whether the VM's end is over.
    pub fn is_dead(&self) -> bool {
        self.word().has(Word::DEAD)
    }
}

/// The requests that have arrived for a core.
pub struct Requests(AtomicU32);

impl Requests {
    /// None.
    #[cfg(not(loom))]
    pub const fn none() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Adds a request, which is a bit. The caller interrupts the core afterwards.
    pub fn post(&self, request: u32) {
        self.0.fetch_or(request, Ordering::Release);
    }

    /// Takes the requests, as a mask. The core has acknowledged the interrupt: what is posted later
    /// interrupts it again.
    pub fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Acquire)
    }
}

#[cfg(test)]
pub(crate) mod tests;
