//! The rules: their identities, sentences, and the promises of SPECIFICATION.md that they check.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fmt;

/// Defines the rules: name, identity, promise and sentence. One table, so that no rule lacks one of
/// them.
macro_rules! rules {
    ($($rule:ident $id:literal $promise:literal $sentence:literal;)*) => {
        /// A rule that holds in every run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Rule {
            $(#[doc = $sentence] $rule,)*
        }

        impl Rule {
            /// All rules.
            pub const ALL: &'static [Self] = &[$(Self::$rule),*];

            /// Returns its identity, as findings and SPECIFICATION.md name it.
            pub const fn id(self) -> &'static str {
                match self {
                    $(Self::$rule => $id,)*
                }
            }

            /// Returns the name of the promise that it checks.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$rule => $promise,)*
                }
            }

            /// Returns what holds.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$rule => $sentence,)*
                }
            }
        }
    };
}

rules! {
    Frame "stage2.frame" "M1" "Each page of a VM has a frame of the pool, the contiguous memory or the device that its region names, or of the pool to which its pages may move";
    Attributes "stage2.attributes" "M1" "Each page has the memory type, shareability and rights of its kind: RAM is Normal write-back, or Normal non-cacheable if the VM asked for that; devices are Device-nGnRE; what is not executable cannot be executed; a channel is never executable, and written by those alone that may";
    Once "stage2.once" "M3" "No frame is mapped twice, in one VM or in two, except that the pages of a channel have the same frames in all of its VMs";
    Home "stage2.home" "M9" "A page that is in its region's pool has the frame that it had at the VM's first instruction";
    Map "stage2.map" "M4" "A VM has the pages of its regions and the virtual CPU interface, and no others";
    Away "stage2.away" "M8" "No more of a VM's pages are in the pool to which they may move than the configuration allows";
    Tables "stage2.tables" "M4" "Tables lie in frames of the hypervisor's colors, and no table changes after the VM's first instruction";
    Break "stage2.break-before-make" "M7" "A valid entry becomes invalid before it becomes another valid one";
    Tlbi "stage2.tlbi" "M7" "An entry or a frame whose mapping was broken is used again, or the guest continues, only after barrier, invalidation by IPA, barrier, invalidation of stage 1, and barrier";
    Moving "stage2.moving" "M7" "A core that takes a page from its VM gives it back before its guest continues";
    Contents "stage2.contents" "M7" "A page has the contents in its new frame that it had in the former one when no core could change them any more";
    Root "confine.root" "M4" "A guest runs with its VM's tables and VMID, in the format of 39 bits and 4 KiB pages";
    Hcr "confine.hcr" "I4" "Whatever could reach other VMs or the firmware traps: HCR_EL2";
    Mdcr "confine.mdcr" "I7" "Debug registers trap, and so do the counters that are not the guest's: MDCR_EL2";
    Traps "confine.traps" "I4" "Trace and the physical timer trap, and the virtual counter has no offset: CPTR_EL2, CNTHCTL_EL2, CNTVOFF_EL2";
    Identity "confine.identity" "I4" "A guest sees its vCPU's number as affinity, and the CPU's own MIDR";
    Registers "visit.registers" "I4" "A guest finds its registers as they were, except the results of its call or access";
    Loaded "visit.loaded" "I6" "A load from an emulated device leaves no more bits than its width has, or their sign";
    Return "visit.return" "M5" "A guest continues at the instruction that trapped, at the next one, or in its own vector as if the exception had been taken to EL1";
    Writes "visit.writes" "M4" "EL2 stores to its own frames, to those of the VM whose core executes and of VMs with which it has a link, and to no others";
    LinkPlace "link.place" "M15" "For a link, EL2 stores to the VM at the other end only in a used ring of its device, or in a buffer that its driver has offered to be written";
    LinkSender "link.sender" "M15" "A packet of sockets that arrives names the VM that sent it, and the one that receives it";
    Started "start.registers" "P2" "A vCPU's first instruction finds the registers that the configuration or CPU_ON names, and zeros elsewhere";
    StartFp "start.fp" "P2" "A vCPU's first instruction finds zeros in the FP and SIMD registers";
    StartWhy "start.reason" "P3" "A vCPU starts only because its VM starts or restarts, or because CPU_ON asked for it with this entry point and argument";
    Off "power.off" "P3" "A vCPU that turned off, or whose VM ended or restarts, executes 0 instructions until it starts";
    NoReturn "power.no-return" "P3" "A call that turns off or restarts returns only with an error";
    Order "power.order" "P6" "An order to stop that was accepted is carried out: the VM executes nothing 100 ms later, unless it was started meanwhile";
    Begins "power.start" "P6" "An order to start a VM that has ended is carried out: it executes 100 ms later, and the time in which its budgets pay for the start";
    Grant "call.grant" "P6" "A call that the VM's configuration does not grant fails";
    Page "services.page" "I6" "A register of the services page reads its fixed value, what was written, or what the last call left; all else reads 0";
    Period "budget.period" "B1" "In any time, a core whose budget is held by an interrupt executes at most the budget of the periods that this time touches, and for each 8 events more, or those of a poll interval where the interrupt may not arrive; what its calls cost counts as executed";
    LeaseEnd "lease.end" "P5" "A call with a lease that has run out, or was ended, fails";
    LeaseOne "lease.once" "P5" "No lease has the number of an earlier one, and none is taken while another one runs";
    ListTwice "interrupts.list-once" "I2" "No two list registers hold one interrupt";
    ListOwner "interrupts.owner" "I3" "List registers hold interrupts of the core's VM only, and those with a physical interrupt hold the VM's own";
    ListStart "interrupts.start" "P2" "A vCPU's first instruction finds its CPU interface as after a reset: no active interrupt, no pending one of its core's devices, no enabled group, priority mask 0";
    ListOn "interrupts.interface" "I3" "The virtual interface is on while a guest runs";
}

/// A rule that does not hold.
///
/// Text, because it is for a reader: the observer makes none while the rules hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The rule.
    pub rule: Rule,
    /// What is observed.
    pub place: String,
    /// What must hold there.
    pub expected: String,
    /// What was found.
    pub found: String,
}

impl Difference {
    /// Returns a difference.
    pub fn new(
        rule: Rule,
        place: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self {
            rule,
            place: place.into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// Returns one of a register, with its expected and found bits.
    pub fn of_register(rule: Rule, name: &str, expected: u64, found: u64) -> Self {
        Self::new(rule, name, format!("{expected:#x}"), format!("{found:#x}"))
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            expected,
            found,
            ..
        } = self;
        write!(f, "{place}: expected {expected}, found {found}")
    }
}

/// The result of a check.
pub type Checked = Result<(), Difference>;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_rule_has_its_identity_and_a_promise() {
        let ids: BTreeSet<_> = Rule::ALL.iter().map(|rule| rule.id()).collect();
        assert_eq!(ids.len(), Rule::ALL.len());
        for rule in Rule::ALL {
            assert!(!rule.sentence().is_empty() && !rule.sentence().ends_with('.'));
            let (letter, number) = rule.promise().split_at(1);
            assert!(letter.chars().all(char::is_alphabetic) && number.parse::<u8>().is_ok());
        }
    }
}
