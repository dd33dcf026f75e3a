//! PSCI for guests: every function, in every power state of two vCPUs, from each of them, compared
//! with the tables of Arm DEN 0022 (edition F.b).
//!
//! The file under test is the hypervisor's own. What it uses of the hypervisor is replaced here: a
//! VM with this crate's power states, and calls that do not return.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![cfg(not(loom))]

#[path = "../../src/exits/psci.rs"]
mod psci;

/// The parts of the hypervisor that the file uses.
mod vm {
    pub mod cpu {
        use crate::vm::partition::Vm;

        /// A vCPU that has called.
        #[derive(Clone, Copy)]
        pub struct Visit {
            pub vm: &'static Vm,
            pub vcpu: usize,
        }
    }

    pub mod partition {
        use cloison_formats::addr::Ipa;
        use cloison_logic::power::{Power, State};
        use std::cell::Cell;

        /// Where the VM's RAM is.
        pub const RAM: std::ops::Range<u64> = 0x4000_0000..0x4001_0000;

        /// How a vCPU was told to start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Vcpu {
            pub entry: u64,
            pub context: u64,
        }

        pub struct Vm {
            pub power: Power,
            pub vcpus: Vec<Cell<Vcpu>>,
        }

        impl Vm {
            pub fn has_ram(&self, ipa: Ipa) -> bool {
                RAM.contains(&ipa.0)
            }

            pub fn power_on(&self, vcpu: usize, entry: Ipa, context: u64) -> Result<(), State> {
                self.power.claim(vcpu)?;
                self.vcpus[vcpu].set(Vcpu {
                    entry: entry.0,
                    context,
                });
                self.power.publish(vcpu);
                Ok(())
            }
        }
    }

    pub mod life {
        use crate::vm::cpu::Visit;
        use std::panic::resume_unwind;

        /// What a call does that does not return.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum End {
            CpuOff,
            Off,
            Restart,
        }

        /// Ends the call, for the vCPU that made it.
        fn end(visit: Visit, end: End) -> ! {
            resume_unwind(Box::new((visit.vcpu, end)))
        }

        pub fn cpu_off(visit: Visit) -> ! {
            end(visit, End::CpuOff)
        }

        pub fn off(visit: Visit) -> ! {
            end(visit, End::Off)
        }

        pub fn restart(visit: Visit) -> ! {
            end(visit, End::Restart)
        }
    }
}

use cloison_logic::power::{Doom, Power, State};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use vm::cpu::Visit;
use vm::life::End;
use vm::partition::{RAM, Vcpu, Vm};

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It returns this to its caller.
    Returns(i64),
    /// It does not return.
    Ends(End),
    /// PSCI does not know it, and the caller's dispatcher asks others.
    Unknown,
}

/// Power states in which a vCPU that does not call can be.
const STATES: [State; 5] = [
    State::Off,
    State::Claimed,
    State::Pending,
    State::On,
    State::Leaving,
];

/// Returns a VM whose calling vCPU is on and whose other one is in a state; `ends` if a third party
/// ends the VM meanwhile.
fn machine(caller: usize, other: State, ends: bool) -> &'static Vm {
    let power = Power::loading();
    power.publish(0);
    power.enter(0).expect("pending");
    let start = |vcpu: usize| {
        power.claim(vcpu).expect("off");
        power.publish(vcpu);
        power.enter(vcpu).expect("pending");
    };
    start(1);
    let peer = 1 - caller;
    power.leave(peer);
    match other {
        State::Off => {}
        State::Claimed => power.claim(peer).expect("off"),
        State::Pending => {
            power.claim(peer).expect("off");
            power.publish(peer);
        }
        State::On => start(peer),
        State::Leaving => {
            start(peer);
            power.stop(peer);
        }
    }
    if ends {
        assert!(power.end(Some(Doom::Killed)));
    }
    assert_eq!([power.state(caller), power.state(peer)], [State::On, other]);
    let vcpus = (0..2).map(|_| Cell::new(Vcpu::default())).collect();
    Box::leak(Box::new(Vm { power, vcpus }))
}

fn call(vm: &'static Vm, vcpu: usize, function: u32, arguments: [u64; 3]) -> Outcome {
    let visit = Visit { vm, vcpu };
    let result = catch_unwind(AssertUnwindSafe(|| psci::call(visit, function, arguments)));
    match result {
        Ok(Some(value)) => Outcome::Returns(value),
        Ok(None) => Outcome::Unknown,
        Err(end) => {
            let (ended, end) = *end.downcast::<(usize, End)>().expect("no other panic");
            assert_eq!(ended, vcpu, "another vCPU than the caller");
            Outcome::Ends(end)
        }
    }
}

// Return codes (5.2.2).
const SUCCESS: i64 = 0;
const NOT_SUPPORTED: i64 = -1;
const INVALID_PARAMETERS: i64 = -2;
const ALREADY_ON: i64 = -4;
const ON_PENDING: i64 = -5;
const INTERNAL_FAILURE: i64 = -6;
const INVALID_ADDRESS: i64 = -9;

/// Functions of the standard service range (5.1): those that PSCI 1.1 makes mandatory, and the
/// optional ones that a guest of Cloison has.
const CPU_ON: u32 = 0x03;
const AFFINITY_INFO: u32 = 0x04;
const FUNCTIONS: [(u32, bool, bool); 10] = [
    // Number, 32-bit form, 64-bit form.
    (0x00, true, false),
    (0x01, true, true),
    (0x02, true, false),
    (CPU_ON, true, true),
    (AFFINITY_INFO, true, true),
    (0x06, true, false),
    (0x08, true, false),
    (0x09, true, false),
    (0x0a, true, false),
    // MIGRATE is optional, and absent where there is no Trusted OS to migrate (5.7).
    (0x05, false, false),
];

/// Returns whether PSCI has the function, by its identifier in w0.
fn exists(function: u32) -> bool {
    let wide = function & 1 << 30 != 0;
    let is_standard = function & !(1 << 30) & !0x1f == 0x8400_0000;
    is_standard
        && FUNCTIONS.iter().any(|&(number, narrow_form, wide_form)| {
            number == function & 0x1f && if wide { wide_form } else { narrow_form }
        })
}

/// What the document says that a call does, given the state of each vCPU.
fn expected(states: [State; 2], ends: bool, function: u32, arguments: [u64; 3]) -> Outcome {
    /// SMCCC_VERSION (Arm DEN 0028, 7.2), which PSCI_FEATURES tells too.
    const SMCCC_VERSION: u32 = 0x8000_0000;
    if function == SMCCC_VERSION {
        return Outcome::Returns(0x1_0001);
    }
    if !exists(function) {
        return Outcome::Unknown;
    }
    let wide = function & 1 << 30 != 0;
    // Arguments of the 32-bit forms are in w1 to w3 (Arm DEN 0028, 3.1).
    let [x1, x2, _] = arguments.map(|x| if wide { x } else { x & 0xffff_ffff });
    let state = usize::try_from(x1).ok().and_then(|vcpu| states.get(vcpu));
    Outcome::Returns(match function & 0x1f {
        // PSCI_VERSION (5.3): major in bits 31 to 16.
        0x00 => 0x1_0001,
        // CPU_SUSPEND (5.4): a standby state returns when it ends.
        0x01 => SUCCESS,
        0x02 => return Outcome::Ends(End::CpuOff),
        // CPU_ON (5.6), and what it returns to a core that is on or is being turned on (6.4).
        CPU_ON => match state {
            None => INVALID_PARAMETERS,
            Some(_) if !RAM.contains(&x2) || x2 % 4 != 0 => INVALID_ADDRESS,
            Some(State::On | State::Leaving) => ALREADY_ON,
            Some(State::Claimed | State::Pending) => ON_PENDING,
            // The document has a code for what it does not foresee, such as a system that ends.
            Some(State::Off) if ends => INTERNAL_FAILURE,
            Some(State::Off) => SUCCESS,
        },
        // AFFINITY_INFO (5.7): level 0 is a core; ON 0, OFF 1, ON_PENDING 2.
        AFFINITY_INFO => match state {
            Some(_) if x2 != 0 => INVALID_PARAMETERS,
            None => INVALID_PARAMETERS,
            Some(State::On | State::Leaving) => 0,
            Some(State::Off) => 1,
            Some(State::Claimed | State::Pending) => 2,
        },
        // MIGRATE_INFO_TYPE (5.9): no Trusted OS, or it need not be migrated.
        0x06 => 2,
        0x08 => return Outcome::Ends(End::Off),
        0x09 => return Outcome::Ends(End::Restart),
        // PSCI_FEATURES (5.15).
        _ if exists(x1 as u32) || x1 as u32 == SMCCC_VERSION => SUCCESS,
        _ => NOT_SUPPORTED,
    })
}

/// Affinities, entry points and other arguments, with those at the edges, and with an upper half
/// that 32-bit forms do not have.
const FIRST: [u64; 10] = [
    0,
    1,
    2,
    3,
    0x100,
    0x8400_0003,
    0xc400_0003,
    1 << 32,
    1 << 32 | 1,
    u64::MAX,
];
const SECOND: [u64; 9] = [
    0,
    1,
    RAM.start,
    RAM.start + 2,
    RAM.start - 4,
    RAM.end - 4,
    RAM.end,
    1 << 32 | RAM.start,
    u64::MAX,
];

#[test]
fn every_call_in_every_power_state_is_answered_as_the_document_says() {
    let ids = (0..0x20).flat_map(|number| [0x8400_0000 | number, 0xc400_0000 | number]);
    let ids: Vec<u32> = ids
        .chain([0x8000_0000, 0x8400_0020, 0xc600_0000, 0])
        .collect();
    let mut count = 0;
    for (caller, ends) in [(0, false), (0, true), (1, false), (1, true)] {
        for other in STATES {
            let mut states = [State::On; 2];
            states[1 - caller] = other;
            for &function in &ids {
                for (x1, x2) in FIRST.into_iter().flat_map(|x1| SECOND.map(|x2| (x1, x2))) {
                    let vm = machine(caller, other, ends);
                    let neighbor = machine(caller, other, ends);
                    let arguments = [x1, x2, 0x1_2345_6789];
                    let found = call(vm, caller, function, arguments);
                    let expected = expected(states, ends, function, arguments);
                    let what = format_args!(
                        "{function:#x} of {x1:#x}, {x2:#x} by {caller}, other {other:?}, {ends}"
                    );
                    assert_eq!(found, expected, "{what}");
                    check_effect(vm, states, found, function, arguments);
                    // Nothing reaches another VM.
                    let apart = [neighbor.power.state(0), neighbor.power.state(1)];
                    assert_eq!(apart, states, "{what}");
                    count += 1;
                }
            }
        }
    }
    println!("{count} calls");
}

/// A call changes the state of the vCPU that it turns on, and of no other.
fn check_effect(
    vm: &Vm,
    before: [State; 2],
    outcome: Outcome,
    function: u32,
    [x1, x2, x3]: [u64; 3],
) {
    let after = [vm.power.state(0), vm.power.state(1)];
    let started =
        exists(function) && function & 0x1f == CPU_ON && outcome == Outcome::Returns(SUCCESS);
    if !started {
        assert_eq!(after, before);
        return;
    }
    let narrow = |x: u64| {
        if function & 1 << 30 == 0 {
            x & 0xffff_ffff
        } else {
            x
        }
    };
    let target = narrow(x1) as usize;
    assert_eq!(after[target], State::Pending);
    assert_eq!(after[1 - target], before[1 - target]);
    let expected = Vcpu {
        entry: narrow(x2),
        context: narrow(x3),
    };
    assert_eq!(vm.vcpus[target].get(), expected);
}
