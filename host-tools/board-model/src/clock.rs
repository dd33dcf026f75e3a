//! A clock for each core, and the rule for which core may run: the one whose clock is lowest.
//!
//! QEMU runs one core at a time, in turn, and each for at least one block. The running core may get
//! ahead of the slowest other one by a quantum; then it yields. If a core's blocks take longer than
//! a quantum (a long block whose every line is fetched from memory), it gets further ahead with
//! each turn. Then the others may run until they have caught up; otherwise it would run faster than
//! they do. Nothing in the rule depends on the host's time, so a run repeats exactly.
//!
//! The core that runs first finds shared resources free, and the core that runs last finds them
//! taken. So the turns of each core end at times that are shifted by another part of the quantum:
//! each core is then first, second and last for equally long.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Maximum number of modelled cores.
pub const MAX_CORES: usize = 16;

/// Maximum quanta that a core runs at a time if all others wait.
const ALONE: u64 = 8;

/// State of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It executes, or could execute.
    Runs,
    /// It waits for an interrupt or is off; no other core waits for it.
    Waits,
}

/// The clocks of all cores, and whose turn it is.
#[derive(Clone, Debug)]
pub struct Clocks {
    cycles: Vec<u64>,
    states: Vec<State>,
    quantum: u64,
    /// When all clocks were set last: turns end at times that are counted from here.
    origin: u64,
    turn: Option<usize>,
    gave_way: bool,
}

impl Clocks {
    /// Creates the clocks for zero cores.
    pub fn new(quantum: u64) -> Self {
        Self {
            cycles: Vec::new(),
            states: Vec::new(),
            quantum,
            origin: 0,
            turn: None,
            gave_way: false,
        }
    }
    /// Adds a core.
    pub fn add_core(&mut self) {
        self.cycles.push(0);
        self.states.push(State::Waits);
    }
    /// Number of cores.
    pub fn cores(&self) -> usize {
        self.cycles.len()
    }
    /// Returns the cycles of a core.
    #[inline]
    pub fn cycles(&self, core: usize) -> u64 {
        self.cycles[core]
    }
    /// Advances the clock of a core.
    #[inline]
    pub fn spend(&mut self, core: usize, cycles: u64) {
        self.cycles[core] += cycles;
    }
    /// Sets all clocks.
    pub fn set_all(&mut self, cycles: u64) {
        self.origin = cycles;
        self.cycles.fill(cycles);
    }
    /// Records that all cores have waited.
    pub fn all_waited(&mut self) {
        self.states.fill(State::Waits);
        self.turn = None;
    }
    /// Returns the lowest clock of a running core.
    pub fn slowest(&self) -> Option<u64> {
        self.running().min()
    }
    fn running(&self) -> impl Iterator<Item = u64> {
        self.cycles
            .iter()
            .zip(&self.states)
            .filter(|(_, state)| **state == State::Runs)
            .map(|(clock, _)| *clock)
    }
    fn others(&self, core: usize) -> impl Iterator<Item = u64> {
        let others = self.cycles.iter().zip(&self.states).enumerate();
        others
            .filter(move |(other, (_, state))| *other != core && **state == State::Runs)
            .map(|(_, (clock, _))| *clock)
    }

    /// Returns whether a turn starts: the last core that ran has yielded, or another one runs now.
    /// Then [`Clocks::takes_turn`] must be called.
    #[inline]
    pub fn is_new_turn(&self, core: usize) -> bool {
        self.gave_way || self.turn != Some(core)
    }

    /// Starts a core's turn. QEMU visits the cores in order and skips those that wait; a skipped
    /// core counts as waiting. A core that waited continues at the time of the slowest other one,
    /// but not before `time`, up to which timers have run.
    pub fn takes_turn(&mut self, core: usize, time: u64) {
        let cores = self.cores();
        let mut skipped = self.turn.map_or(core, |turn| (turn + 1) % cores);
        while skipped != core {
            self.states[skipped] = State::Waits;
            skipped = (skipped + 1) % cores;
        }
        if self.turn == Some(core) {
            for other in (0..cores).filter(|other| *other != core) {
                self.states[other] = State::Waits;
            }
        }
        if self.states[core] == State::Waits {
            let others = self.others(core).min().unwrap_or(0);
            self.cycles[core] = self.cycles[core].max(others).max(time);
            self.states[core] = State::Runs;
        }
        self.turn = Some(core);
        self.gave_way = false;
    }

    /// Makes the core yield at the end of its block.
    pub fn gives_way(&mut self) {
        self.gave_way = true;
    }

    /// Returns whether some other core waits for an interrupt or is off.
    pub fn is_another_waiting(&self, core: usize) -> bool {
        self.states
            .iter()
            .enumerate()
            .any(|(other, state)| other != core && *state == State::Waits)
    }

    /// Takes back cycles that a core did not spend.
    pub fn refund(&mut self, core: usize, cycles: u64) {
        self.cycles[core] -= cycles;
    }

    /// Makes a core in a polling loop wait until the slowest other one's time.
    pub fn idle(&mut self, core: usize) {
        let others = self.others(core).min().unwrap_or(0);
        self.cycles[core] = self.cycles[core].max(others);
    }

    /// Returns the last of the times that are shifted for a core, up to `end`; a core that has been
    /// there runs one block.
    fn shifted(&self, core: usize, end: u64) -> u64 {
        let runs = |state: &&State| **state == State::Runs;
        let (before, all) = (
            self.states[..core].iter().filter(runs).count(),
            self.states.iter().filter(runs).count(),
        );
        let shift = self.quantum * before as u64 / all.max(1) as u64;
        let first = (self.origin + shift) % self.quantum;
        (end + self.quantum - first) / self.quantum * self.quantum + first - self.quantum
    }

    /// Returns the cycle up to which the core may run. The limit is a quantum beyond the slowest
    /// other core, or the time of the fastest, and from there back to the core's next shifted time.
    /// A core that runs alone has a limit at which time does not appear to stop. The limit is never
    /// beyond the next timer, so that all cores are there when it fires. A timer that is not ahead
    /// of the core is over or unknown: the core looks for it after a quantum.
    pub fn limit(&self, core: usize, timer: u64) -> u64 {
        let now = self.cycles[core];
        let end = match (self.others(core).min(), self.others(core).max()) {
            (Some(slowest), Some(fastest)) => {
                self.shifted(core, fastest.max(slowest + self.quantum))
            }
            _ if timer > now => now + ALONE * self.quantum,
            _ => now + self.quantum,
        };
        if timer > now { end.min(timer) } else { end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn three() -> Clocks {
        let mut clocks = Clocks::new(300);
        for core in 0..3 {
            clocks.add_core();
            clocks.takes_turn(core, 0);
        }
        clocks
    }

    #[test]
    fn a_core_that_is_left_out_waits() {
        let mut clocks = three();
        clocks.takes_turn(0, 0);
        clocks.spend(0, 5000);
        clocks.gives_way();
        clocks.takes_turn(2, 0);
        assert_eq!(clocks.slowest(), Some(0), "core 2 runs");
        clocks.spend(2, 1000);
        assert_eq!(
            clocks.limit(0, 0),
            1200,
            "core 1 was left out and holds nobody back"
        );
        clocks.gives_way();
        clocks.takes_turn(0, 0);
        clocks.takes_turn(1, 0);
        assert_eq!(
            clocks.cycles(1),
            1000,
            "it wakes at the time of the slowest"
        );
    }

    #[test]
    fn a_core_alone_is_its_own_measure() {
        let mut clocks = three();
        clocks.takes_turn(0, 0);
        clocks.gives_way();
        clocks.takes_turn(0, 0);
        clocks.spend(0, 777);
        assert_eq!(
            [0, 800, 2000, u64::MAX].map(|timer| clocks.limit(0, timer)),
            [1077, 800, 2000, 3177]
        );
    }

    #[test]
    fn all_cores_stop_at_a_timer() {
        let mut clocks = three();
        clocks.spend(2, 250);
        assert_eq!(
            [0, 2].map(|core| clocks.limit(core, 280)),
            [280, 200],
            "core 2 has its turns to 200, 500, ..."
        );
        clocks.spend(2, 30);
        assert_eq!(
            [0, 1].map(|core| clocks.limit(core, 280)),
            [280, 100],
            "core 2 is there, and others are not"
        );
        assert!(!clocks.is_another_waiting(0));
        clocks.idle(0);
        assert_eq!(clocks.cycles(0), 0, "core 1 is as slow");
        clocks.spend(1, 50);
        clocks.idle(0);
        assert_eq!(clocks.cycles(0), 50);
    }

    #[test]
    fn after_all_waited_time_has_gone_on() {
        let mut clocks = three();
        clocks.all_waited();
        assert_eq!(clocks.slowest(), None);
        assert!(clocks.is_new_turn(1));
        clocks.takes_turn(1, 4000);
        assert_eq!((clocks.cycles(1), clocks.slowest()), (4000, Some(4000)));
    }

    #[test]
    fn turns_end_at_times_that_count_from_when_the_model_is_turned_on() {
        let ends = |start: u64| {
            let mut clocks = three();
            clocks.set_all(start);
            [0, 1, 2].map(|core| clocks.limit(core, 0) - start)
        };
        assert_eq!(ends(1_000_000), [300, 100, 200]);
        assert_eq!(ends(1_000_000), ends(17_000_000));
    }

    #[test]
    fn each_core_is_the_first_as_often_as_the_others() {
        for cores in 2..=4 {
            let mut clocks = Clocks::new(300);
            for core in 0..cores {
                clocks.add_core();
                clocks.takes_turn(core, 0);
            }
            // How many cores have been at each core's time when it is there.
            let mut earlier = vec![0u64; cores];
            for turn in 0..1000 {
                let core = turn % cores;
                clocks.takes_turn(core, 0);
                while clocks.cycles(core) < clocks.limit(core, 0) {
                    clocks.spend(core, 10);
                    earlier[core] += clocks
                        .others(core)
                        .filter(|other| *other >= clocks.cycles(core))
                        .count() as u64;
                }
                clocks.gives_way();
            }
            let (least, most) = (
                earlier.iter().min().expect("cores"),
                earlier.iter().max().expect("cores"),
            );
            assert!(most - least < most / 10, "{earlier:?}");
        }
    }

    proptest! {
        /// Each turn has at least one block, as in QEMU. No clock gets ahead by more than a quantum
        /// and two blocks.
        #[test]
        fn clocks_stay_together(blocks in prop::collection::vec(1u64..200, 10..500), long in 200u64..10_000) {
            let mut clocks = three();
            let mut core = 0;
            clocks.takes_turn(0, 0);
            for block in blocks {
                clocks.spend(core, if core == 0 { long } else { block });
                let slowest = (0..3).map(|core| clocks.cycles(core)).min().unwrap();
                prop_assert!((0..3).all(|core| clocks.cycles(core) < slowest + 300 + 2 * long));
                if clocks.cycles(core) >= clocks.limit(core, 0) {
                    clocks.gives_way();
                    core = (core + 1) % 3;
                    clocks.takes_turn(core, 0);
                }
            }
        }
    }
}
