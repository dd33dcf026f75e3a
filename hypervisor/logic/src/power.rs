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
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_formats::limits::MAX_VCPUS;
#[cfg(not(loom))]
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;

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
    /// The machine turns itself off.
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

    #[inline]
    const fn state(self, vcpu: usize) -> State {
        match self.0 >> (vcpu as u32 * Self::BITS) & 7 {
            0 => State::Off,
            1 => State::Claimed,
            2 => State::Pending,
            3 => State::On,
            _ => State::Leaving,
        }
    }

    #[inline]
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
        (0..MAX_VCPUS).any(|other| other != vcpu && !matches!(self.state(other), State::Off | State::Leaving))
    }
}

/// The power states of one VM. By default, all vCPUs are off.
#[derive(Debug, Default)]
pub struct Power(AtomicU32);

impl Power {
    fn word(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Takes one step, if the word allows it; the word before it either way.
    fn step(&self, next: impl Fn(Word) -> Option<Word>) -> Result<Word, Word> {
        let next = |word| next(Word(word)).map(|word| word.0);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).map(Word).map_err(Word)
    }

    /// Returns a vCPU's state.
    #[inline]
    pub fn state(&self, vcpu: usize) -> State {
        self.word().state(vcpu)
    }

    /// Starts the VM's first life.
    pub fn boot(&self) {
        let _ = self.step(|word| Some(Word(word.with(0, State::Pending).0 | Word::BOOT)));
    }

    /// Reserves an off vCPU for the caller, who says where it starts and then calls [`publish`](Self::publish).
    ///
    /// # Errors
    /// Its state, where it is not off, or where the VM is about to end or to restart.
    pub fn claim(&self, vcpu: usize) -> Result<(), State> {
        let free = |word: Word| word.state(vcpu) == State::Off && word.0 & Word::ENDING == 0 && word.doom().is_none();
        let claimed = self.step(|word| free(word).then(|| word.with(vcpu, State::Claimed)));
        claimed.map(drop).map_err(|word| word.state(vcpu))
    }

    /// Asks a claimed vCPU to start.
    pub fn publish(&self, vcpu: usize) {
        let _ = self.step(|word| Some(word.with(vcpu, State::Pending)));
    }

    /// A core starts its vCPU, if that was asked to and has not been stopped since.
    pub fn enter(&self, vcpu: usize) -> Option<Start> {
        let pending = |word: Word| word.state(vcpu) == State::Pending;
        let on = |word: Word| if vcpu == 0 { Word(word.0 & !Word::BOOT) } else { word }.with(vcpu, State::On);
        let before = self.step(|word| pending(word).then(|| on(word))).ok()?;
        Some(if vcpu == 0 && before.0 & Word::BOOT != 0 { Start::Boot } else { Start::CpuOn })
    }

    /// Whether a core has to stop its vCPU.
    #[inline]
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

    /// A vCPU turns itself off. Returns whether it is the last one, with which the VM ends.
    pub fn cpu_off(&self, vcpu: usize) -> bool {
        let ends = |word: Word| word.0 & Word::ENDING != 0;
        self.step(|word| (word.has_others(vcpu) || ends(word)).then(|| word.with(vcpu, State::Leaving))).is_err()
    }

    /// A vCPU is about to end the VM (`doom`) or to restart it. Returns whether it is the one to do so: if not, another one
    /// is doing it and waits for this one to leave.
    pub fn end(&self, doom: Option<Doom>) -> bool {
        let next = |word: Word| Word(doom.map_or(word, |why| word.doomed(why)).0 | Word::ENDING);
        self.step(|word| Some(next(word))).is_ok_and(|before| before.0 & Word::ENDING == 0)
    }

    /// Has the VM not start another life.
    pub fn doom(&self, why: Doom) {
        let _ = self.step(|word| Some(word.doomed(why)));
    }

    /// The next life begins: the running vCPU is off, vCPU 0 starts. All others are off already.
    ///
    /// # Errors
    /// Why there is no next life.
    pub fn restart(&self) -> Result<(), Doom> {
        let next = Word(Word(0).with(0, State::Pending).0 | Word::BOOT);
        match self.step(|word| word.doom().is_none().then_some(next)) {
            Ok(_) => Ok(()),
            Err(word) => Err(word.doom().unwrap_or(Doom::Stopped)),
        }
    }

    /// The VM's end is over. Returns why it ended.
    pub fn bury(&self) -> Doom {
        let before = self.step(|word| Some(Word(word.0 | Word::DEAD)));
        before.ok().and_then(Word::doom).unwrap_or(Doom::Off)
    }

    /// Whether the VM's end is over.
    pub fn is_dead(&self) -> bool {
        self.word().0 & Word::DEAD != 0
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
