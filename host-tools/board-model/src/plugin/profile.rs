//! Charges the model's events to the code that a core executes, for a profile.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::state::{Access, Block, Plugin};
use super::time::EPOCH;
use crate::decode::Special;
use crate::profile::{Recorded, Recorder, Values, since, values};
use cloison_abi::psci;
use cloison_qemu::listener::MemoryAccess;

/// Returns whether an instruction is an SMC, with any number.
pub const fn is_firmware_call(word: u32) -> bool {
    word & 0xffe0_001f == 0xd400_0003
}

impl Plugin {
    fn values(&self, core: usize) -> Values {
        let cycles = self.clocks.cycles(core).max(self.profile.origin);
        values(self.caches.counts(core), cycles)
    }

    /// Starts the profile, when the model is turned on.
    pub fn begin_profile(&mut self) {
        let origin = self.cycles(EPOCH);
        let now = (0..self.counters.len()).map(|core| values(self.caches.counts(core), origin));
        self.profile.recorder = Some(Box::new(Recorder::new(now)));
        self.profile.origin = origin;
    }

    /// Moves the core to a block, and charges what the one before it took. `look_after_counters` has
    /// run, and no load of the block before has been waited for.
    #[inline(never)]
    pub fn profile_block(&mut self, core: usize, block: &Block) {
        let now = self.values(core);
        let Some(recorder) = &mut self.profile.recorder else {
            return;
        };
        recorder.charge_block(core, &now);
        // At another level, the model counts what is waited for to that.
        if recorder.level(core) == Some(block.level) && !self.waits[core].is_empty() {
            self.profile_waits(core, u64::MAX);
        }
        let by_exception = block.vector.is_some();
        self.profile.by_exception[core] = by_exception;
        if let Some(recorder) = &mut self.profile.recorder {
            recorder.enter(core, block.site, by_exception);
        }
    }

    /// Charges what is new to the core's block.
    pub fn charge_block(&mut self, core: usize) {
        let now = self.values(core);
        if let Some(recorder) = &mut self.profile.recorder {
            recorder.charge_block(core, &now);
        }
    }

    /// Handles an access that is not to the line of the last one, and charges what it takes to it.
    #[inline(never)]
    pub fn profile_look_up(
        &mut self,
        core: usize,
        info: &MemoryAccess<'_>,
        address: u64,
        access: Access,
    ) {
        if !self.waits[core].is_empty() {
            self.profile_waits(core, access.issued());
        }
        let before = self.begin_charge(core);
        self.look_up_lines(core, info, address, access);
        self.charge(core, Some(access.address()), &before);
    }

    /// Ends the line that the core has stored to, and charges what that takes to the store that
    /// begins another one.
    #[inline(never)]
    pub fn profile_line(&mut self, core: usize, whole: bool, access: Access) {
        if self.profile.charges {
            // This access is being charged.
            return self.end_line(core, whole, access);
        }
        let before = self.begin_charge(core);
        self.end_line(core, whole, access);
        self.charge(core, Some(access.address()), &before);
    }

    /// Handles an instruction that does more than its loads and stores, and charges what it takes to
    /// it.
    #[inline(never)]
    pub fn profile_special(&mut self, core: usize, special: Special, address: u64) {
        let before = self.begin_charge(core);
        self.perform(core, special, address);
        self.charge(core, Some(address), &before);
    }

    /// Lets the core wait for loads, and charges that to the last one.
    fn profile_waits(&mut self, core: usize, cycle: u64) {
        let before = self.begin_charge(core);
        self.wait_for_loads(core, cycle);
        self.charge(core, None, &before);
    }

    /// Returns the core's counts before something that is charged to one instruction.
    fn begin_charge(&mut self, core: usize) -> Values {
        self.profile.refund = Values::default();
        self.profile.charges = true;
        self.values(core)
    }

    /// Charges what has come since `before` to an instruction of the core's block, or to the last
    /// load.
    fn charge(&mut self, core: usize, instruction: Option<u64>, before: &Values) {
        // What the block gave back is the block's.
        let new = since(&since(&self.values(core), before), &self.profile.refund);
        let waits = !self.waits[core].is_empty();
        self.profile.charges = false;
        let Some(recorder) = &mut self.profile.recorder else {
            return;
        };
        if let (Some(address), true) = (instruction, waits) {
            recorder.loads(core, address);
        }
        if new != Values::default() {
            match instruction {
                Some(address) => recorder.charge_instruction(core, address, &new),
                None => recorder.charge_load(core, &new),
            }
        }
    }

    /// Records that the core's block was left after its first `executed` instructions, of which
    /// `counted` were known as executed until now, and how many cycles it gave back.
    pub fn profile_leave(&mut self, core: usize, executed: u64, counted: u64, cycles: u64) {
        if let Some(recorder) = &mut self.profile.recorder {
            recorder.leaves(core, executed, counted);
            let mut back = Values::default();
            back[0] = cycles.wrapping_neg();
            back[1] = executed.wrapping_sub(counted);
            self.profile.refund = back;
        }
    }

    /// Charges a jump of the core's clock at the start of its turn as time that it waited.
    pub fn charge_wait(&mut self, core: usize) {
        let now = self.values(core);
        if let Some(recorder) = &mut self.profile.recorder {
            recorder.waits(core, &now, self.profile.by_exception[core]);
        }
    }

    /// Follows whether the guest's counters count, after they were set up.
    pub fn profile_counters(&mut self, core: usize) {
        let counting = self.counters[core].pmu.counts_for_guest();
        let now = self.values(core);
        if let Some(recorder) = &mut self.profile.recorder
            && recorder.is_counting(core) != counting
        {
            recorder.charge_block(core, &now);
            recorder.set_counting(core, counting);
        }
    }

    /// Handles a call of the firmware: one that turns the machine off ends the profile. What cores
    /// do after that, until QEMU ends, depends on the host.
    pub fn firmware_call(&mut self) {
        if matches!(
            self.register(0) as u32,
            psci::SYSTEM_OFF | psci::SYSTEM_RESET
        ) {
            self.end_profile();
        }
    }

    /// Ends the profile, if there is one.
    pub fn end_profile(&mut self) {
        if self.profile.recorder.is_none() {
            return;
        }
        for core in 0..self.clocks.cores() {
            self.charge_block(core);
        }
        let counts = self.so_far();
        if let Some(recorder) = self.profile.recorder.take() {
            self.profile.recorded = Some(recorder.finish(self.board.clock_mhz, counts));
        }
    }

    /// Returns the finished profile.
    pub fn take_profile(&mut self) -> Option<Recorded> {
        self.end_profile();
        self.profile.recorded.take()
    }
}
