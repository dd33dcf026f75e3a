//! Power states under loom: every interleaving of cores that start, stop, restart and end a VM, up
//! to a bound of preemptions. Beside each model is one with a bug that the search must find.
//!
//! A core is a thread. Its interrupt is a flag that its loop takes, as late as it likes.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::*;
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::sync::atomic::AtomicUsize;

/// Runs a model in all interleavings, and says how many there were.
pub fn check(name: &str, model: impl Fn() + Send + Sync + 'static) {
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let counted = runs.clone();
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        model();
    });
    std::println!(
        "{name}: {} interleavings",
        runs.load(std::sync::atomic::Ordering::Relaxed)
    );
}

/// Returns an empty set of requests.
pub fn requests() -> Requests {
    Requests(AtomicU32::new(0))
}

/// Two vCPUs, both on unless said otherwise.
pub fn running(on: [bool; 2]) -> Arc<Power> {
    let power = Power::loading();
    power.publish(0);
    power.enter(0).expect("pending");
    if !on[0] {
        power.leave(0);
    }
    if on[1] {
        power.claim(1).expect("off");
        power.publish(1);
        power.enter(1).expect("pending");
    }
    Arc::new(power)
}

fn stop(power: &Power, vcpu: usize, mut ask: impl FnMut()) {
    while power.stop(vcpu) != State::Off {
        ask();
        thread::yield_now();
    }
}

/// How a core learns that it has to stop.
#[derive(Clone, Copy)]
enum Stops {
    ByState,
    /// A message in a mailbox, which can still be there when the next life begins.
    ByMessage,
}

/// vCPU 1 restarts the VM while vCPU 0 runs: vCPU 0 is on in the new life, and stays so.
fn a_restart_starts_the_first_vcpu(stops: Stops) {
    const LOOK: u32 = 1;
    const STOP: u32 = 2;
    let power = running([true, true]);
    let (mailbox, over) = (
        Arc::new(AtomicU32::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let restarter = {
        let (power, mailbox, over) = (power.clone(), mailbox.clone(), over.clone());
        thread::spawn(move || {
            assert!(power.end(None));
            stop(&power, 0, || _ = mailbox.fetch_or(STOP | LOOK, SeqCst));
            assert!(power.restart(), "nobody has doomed it");
            mailbox.fetch_or(LOOK, SeqCst);
            over.store(true, SeqCst);
        })
    };
    let (mut on, mut booted, mut leave) = (true, false, false);
    loop {
        let settled = over.load(SeqCst);
        let requests = mailbox.swap(0, SeqCst);
        leave |= match stops {
            Stops::ByState => requests != 0 && (power.state(0) == State::Leaving),
            Stops::ByMessage => requests & STOP != 0,
        };
        if on && leave {
            power.leave(0);
            (on, leave) = (false, false);
        } else if !on && power.enter(0) == Some(Start::Boot) {
            (on, booted) = (true, true);
        } else if settled {
            break;
        }
        thread::yield_now();
    }
    restarter.join().expect("the restarter's assertions");
    assert!(
        on && booted && power.state(0) == State::On,
        "no vCPU of the new life is on"
    );
    assert_eq!(power.state(1), State::Off);
}

#[test]
fn loom_a_stop_does_not_reach_the_next_life() {
    check("restart", || {
        a_restart_starts_the_first_vcpu(Stops::ByState)
    });
}

#[test]
#[should_panic(expected = "no vCPU of the new life is on")]
fn loom_finds_a_stop_by_message_that_reaches_the_next_life() {
    check("planted: stop by message", || {
        a_restart_starts_the_first_vcpu(Stops::ByMessage)
    });
}

/// vCPU 0 is killed while vCPU 1 restarts the VM: in any order, the VM ends as killed.
fn a_killed_vm_stays_dead(doom: Option<Doom>) {
    let power = running([true, true]);
    let finish = |power: &Power| {
        if !power.restart() {
            assert_eq!(power.bury(), Doom::Killed);
        }
    };
    let restarter = {
        let power = power.clone();
        thread::spawn(move || {
            if power.end(None) {
                stop(&power, 0, || ());
                finish(&power);
            }
            if power.state(1) != State::Off {
                power.leave(1);
            }
        })
    };
    if power.end(doom) {
        stop(&power, 1, || ());
        power.bury();
    }
    power.leave(0);
    restarter.join().expect("the restarter's assertions");
    assert!(
        power.is_dead() && power.enter(0).is_none(),
        "a killed VM lives on"
    );
}

#[test]
fn loom_a_kill_wins_against_a_restart() {
    check("kill", || a_killed_vm_stays_dead(Some(Doom::Killed)));
}

#[test]
#[should_panic(expected = "a killed VM lives on")]
fn loom_finds_a_kill_that_leaves_no_mark() {
    check("planted: kill without a mark", || {
        a_killed_vm_stays_dead(None)
    });
}

/// vCPU 0 turns vCPU 1 on and itself off, while a core has them both stop, vCPU 1 first.
fn none_is_turned_on_while_all_are_stopped(claimed_is_off: bool) {
    let power = running([true, false]);
    let starter = {
        let power = power.clone();
        thread::spawn(move || {
            if power.claim(1).is_ok() {
                power.publish(1);
            }
            power.leave(0);
        })
    };
    assert!(power.end(Some(Doom::Off)));
    for vcpu in [1, 0] {
        loop {
            match power.stop(vcpu) {
                State::Off => break,
                State::Claimed if claimed_is_off => break,
                _ => thread::yield_now(),
            }
        }
    }
    starter.join().expect("no assertions");
    assert_eq!(
        [power.state(0), power.state(1)],
        [State::Off; 2],
        "a vCPU was overlooked"
    );
}

#[test]
fn loom_a_claimed_vcpu_is_not_taken_for_off() {
    check("claim", || none_is_turned_on_while_all_are_stopped(false));
}

#[test]
#[should_panic(expected = "a vCPU was overlooked")]
fn loom_finds_a_claimed_vcpu_that_is_taken_for_off() {
    check("planted: claimed taken for off", || {
        none_is_turned_on_while_all_are_stopped(true)
    });
}

/// Both vCPUs turn themselves off: with one of them the VM ends.
fn the_last_vcpu_ends_the_vm(cpu_off: fn(&Power, usize) -> bool) {
    let power = running([true, true]);
    let off = move |power: &Power, vcpu| {
        let last = cpu_off(power, vcpu);
        power.leave(vcpu);
        u32::from(last)
    };
    let other = {
        let power = power.clone();
        thread::spawn(move || off(&power, 1))
    };
    let last = off(&power, 0) + other.join().expect("no assertions");
    assert_eq!(last, 1, "the VM has to end once");
}

#[test]
fn loom_one_of_two_is_the_last_to_turn_itself_off() {
    check("CPU_OFF", || the_last_vcpu_ends_the_vm(Power::cpu_off));
}

#[test]
#[should_panic(expected = "the VM has to end once")]
fn loom_finds_two_that_each_leave_the_end_to_the_other() {
    let looks_first = |power: &Power, vcpu| !power.word().has_others(vcpu);
    check("planted: look, then leave", move || {
        the_last_vcpu_ends_the_vm(looks_first)
    });
}

/// The vCPU that restarted the VM can be turned on by the new life's first call.
fn the_restarter_is_off_in_the_new_life(restart: fn(&Power)) {
    let power = running([false, true]);
    let restarter = {
        let power = power.clone();
        thread::spawn(move || {
            assert!(power.end(None));
            restart(&power);
        })
    };
    while power.enter(0).is_none() {
        thread::yield_now();
    }
    assert_eq!(power.claim(1), Ok(()), "the restarter is still on");
    restarter.join().expect("the restarter's assertions");
}

#[test]
fn loom_a_new_life_can_turn_the_restarter_on() {
    check("restarter", || {
        the_restarter_is_off_in_the_new_life(|power| assert!(power.restart(), "not doomed"))
    });
}

#[test]
#[should_panic(expected = "the restarter is still on")]
fn loom_finds_a_life_that_begins_before_the_restarter_has_left() {
    check("planted: start, then leave", || {
        the_restarter_is_off_in_the_new_life(|power| {
            let begun =
                |word: Word| Word(word.with(0, State::Pending).0 & !Word::ENDING | Word::BOOT);
            let _ = power.step(|word| Some(begun(word)));
            power.leave(1);
        });
    });
}

/// The machine turns itself off while vCPU 1 restarts the VM: afterwards nothing of it is on or can
/// be.
fn no_life_begins_while_the_machine_turns_off(doom: bool) {
    let power = running([false, true]);
    let restarter = {
        let power = power.clone();
        thread::spawn(move || {
            if power.end(None) && power.restart() {
                return;
            }
            power.leave(1);
        })
    };
    if doom {
        power.doom();
    }
    stop(&power, 0, || ());
    stop(&power, 1, || ());
    restarter.join().expect("no assertions");
    assert_eq!(
        (power.state(0), power.enter(0)),
        (State::Off, None),
        "a life has begun"
    );
}

#[test]
fn loom_turning_off_stops_a_vm_that_restarts() {
    check("turning off", || {
        no_life_begins_while_the_machine_turns_off(true)
    });
}

#[test]
#[should_panic(expected = "a life has begun")]
fn loom_finds_a_restart_that_turning_off_overlooks() {
    check("planted: no doom", || {
        no_life_begins_while_the_machine_turns_off(false)
    });
}

/// A VM restarts itself while another orders it to stop: the order is carried out, in this life or
/// the next.
fn an_order_is_carried_out(restart: fn(&Power)) {
    let power = running([true, false]);
    let over = Arc::new(AtomicBool::new(false));
    let core = {
        let (power, over) = (power.clone(), over.clone());
        thread::spawn(move || {
            let (mut on, mut restarted) = (true, false);
            while !power.is_dead() {
                let settled = over.load(SeqCst);
                if on && (power.state(0) == State::Leaving) {
                    power.leave(0);
                    on = false;
                } else if on && !restarted {
                    assert!(power.end(None));
                    restart(&power);
                    (on, restarted) = (false, true);
                } else if let Some(order) = power.take_order() {
                    assert_eq!((order, power.bury()), (Order::Stop, Doom::Stopped));
                    power.leave(0);
                } else if power.enter(0).is_some() {
                    on = true;
                } else {
                    assert!(!settled, "the order was lost");
                }
                thread::yield_now();
            }
        })
    };
    assert_eq!(power.order(Change::Stop), Ok(true));
    over.store(true, SeqCst);
    core.join().expect("its assertions");
    assert_eq!((power.life(), power.enter(0)), (Life::Stopped, None));
}

#[test]
fn loom_an_order_is_carried_out() {
    check("order", || {
        an_order_is_carried_out(|power| assert!(power.restart(), "not doomed"))
    });
}

#[test]
#[should_panic(expected = "the order was lost")]
fn loom_finds_a_restart_that_forgets_an_order() {
    check("planted: a life begins with an empty word", || {
        an_order_is_carried_out(|power| {
            power
                .0
                .store(Word(0).with(0, State::Pending).0 | Word::BOOT, SeqCst);
        });
    });
}

/// A VM is ordered to restart while the boot core loads it for the first time: one life begins, and
/// the VM's core runs it.
fn an_early_order_waits(power: Power, boot: fn(&Power)) {
    let power = Arc::new(power);
    let over = Arc::new(AtomicBool::new(false));
    let core = {
        let (power, over) = (power.clone(), over.clone());
        thread::spawn(move || {
            let mut on = false;
            loop {
                let settled = over.load(SeqCst);
                if on && (power.state(0) == State::Leaving) {
                    power.leave(0);
                    on = false;
                } else if !on && let Some(order) = power.take_order() {
                    assert_eq!(order, Order::Restart);
                    assert!(power.restart(), "not doomed");
                } else if !on && power.enter(0).is_some() {
                    on = true;
                } else if settled {
                    return on;
                }
                thread::yield_now();
            }
        })
    };
    let booter = {
        let power = power.clone();
        thread::spawn(move || boot(&power))
    };
    assert_eq!(power.order(Change::Restart), Ok(true));
    booter.join().expect("no assertions");
    over.store(true, SeqCst);
    assert!(core.join().expect("its assertions"));
    assert_eq!(
        (power.state(0), power.life()),
        (State::On, Life::Running),
        "a core that is off in the power word runs"
    );
}

#[test]
fn loom_an_early_order_waits_for_the_first_life() {
    check("early order", || {
        an_early_order_waits(Power::loading(), |power| power.publish(0))
    });
}

#[test]
#[should_panic(expected = "a core that is off in the power word runs")]
fn loom_finds_a_first_life_that_begins_after_an_order_was_taken() {
    check("planted: nobody claims the first life", || {
        an_early_order_waits(Power(AtomicU64::new(0)), |power| {
            let _ = power.step(|word| Some(Word(word.with(0, State::Pending).0 | Word::BOOT)));
        });
    });
}

/// The machine turns itself off while a VM that has ended is started again: afterwards nothing of
/// it is on or can be.
fn none_is_revived_while_the_machine_turns_off(doom: bool) {
    let power = running([true, false]);
    assert!(power.end(Some(Doom::Off)));
    power.leave(0);
    power.bury();
    assert_eq!(power.order(Change::Start), Ok(true));
    let core = {
        let power = power.clone();
        thread::spawn(move || {
            if let Some(order) = power.take_order() {
                assert_eq!(order, Order::Revive);
                if !power.restart() {
                    power.bury();
                    power.leave(0);
                }
            }
        })
    };
    if doom {
        power.doom();
    }
    stop(&power, 0, || ());
    core.join().expect("its assertions");
    let nobody = (power.state(0), power.take_order(), power.enter(0));
    assert_eq!(nobody, (State::Off, None, None), "a life has begun");
}

#[test]
fn loom_nobody_is_revived_while_the_machine_turns_off() {
    check("reviving", || {
        none_is_revived_while_the_machine_turns_off(true)
    });
}

#[test]
#[should_panic(expected = "a life has begun")]
fn loom_finds_a_life_after_the_last_one() {
    check("planted: no doom for the dead", || {
        none_is_revived_while_the_machine_turns_off(false)
    });
}

/// Two VMs end at the same time: one of them at least sees that all are dead, and turns the machine
/// off.
fn the_last_vm_is_noticed(bury: fn(&Power)) {
    let [one, other] = [running([true, false]), running([true, false])];
    let ends = {
        let (one, other) = (one.clone(), other.clone());
        thread::spawn(move || {
            bury(&other);
            one.is_dead()
        })
    };
    bury(&one);
    let noticed = other.is_dead();
    assert!(
        ends.join().expect("no assertions") || noticed,
        "nobody turns the machine off"
    );
}

#[test]
fn loom_of_two_vms_that_end_one_notices() {
    check("ends", || the_last_vm_is_noticed(|power| _ = power.bury()));
}

#[test]
#[should_panic(expected = "nobody turns the machine off")]
fn loom_finds_two_ends_that_overlook_each_other() {
    check("planted: no fence", || {
        the_last_vm_is_noticed(|power| _ = power.step(|word| Some(Word(word.0 | Word::DEAD))));
    });
}

/// A core's interrupt: once it has come, WFI does not wait.
#[derive(Default)]
pub struct Bell(Mutex<bool>, Condvar);

impl Bell {
    pub fn ring(&self) {
        *self.0.lock().expect("no thread panics with it") = true;
        self.1.notify_one();
    }

    /// WFI, then the interrupt's acknowledgement.
    pub fn wait(&self) {
        let mut rung = self.0.lock().expect("no thread panics with it");
        while !*rung {
            rung = self.1.wait(rung).expect("no thread panics with it");
        }
        *rung = false;
    }

    pub fn forget(&self) {
        *self.0.lock().expect("no thread panics with it") = false;
    }
}

/// A parked core is asked to start its vCPU, and then to stop it while its budget is spent.
fn no_wake_up_is_lost(forgets: bool) {
    let power = running([true, false]);
    let bell = Arc::new(Bell::default());
    let core = {
        let (power, bell) = (power.clone(), bell.clone());
        thread::spawn(move || {
            while power.enter(1).is_none() {
                if forgets {
                    bell.forget();
                }
                bell.wait();
            }
            // Throttled for good: only the stop gets it out.
            while !(power.state(1) == State::Leaving) {
                bell.wait();
            }
            power.leave(1);
        })
    };
    power.claim(1).expect("off");
    power.publish(1);
    bell.ring();
    while power.state(1) == State::Pending {
        thread::yield_now();
    }
    stop(&power, 1, || bell.ring());
    core.join().expect("no assertions");
    assert_eq!(power.state(1), State::Off);
}

#[test]
fn loom_a_waiting_core_sees_every_request() {
    check("waiting", || no_wake_up_is_lost(false));
}

/// It waits for ever, which loom says in its own way.
#[test]
#[should_panic(expected = "exceeded maximum number of branches")]
fn loom_finds_a_lost_wake_up() {
    check("planted: look, forget, wait", || no_wake_up_is_lost(true));
}
