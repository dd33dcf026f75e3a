//! Break-before-make: how an entry of stage 2 changes under a running guest (Arm ARM DDI 0487,
//! D8.17 "TLB maintenance"; docs/architecture.md, "Migration").
//!
//! A walk may have been cached by intermediate address and, joined with stage 1, by virtual address.
//! So the order is: the store, DSB, TLBI IPAS2E1IS, DSB, TLBI VMALLE1IS, DSB; or TLBI VMALLS12E1IS
//! or ALLE1IS in place of the two.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::rules::{Checked, Difference, Rule};
use crate::stage2::{Entry, Page};
use cloison_formats::addr::{PAGE_SHIFT, PhysAddr};

/// An instruction that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// DSB that waits for stores and maintenance in the inner shareable domain.
    Barrier,
    /// DSB that waits for stores only.
    StoreBarrier,
    /// TLBI IPAS2E1IS or IPAS2LE1IS: of this page.
    ByIpa(u64),
    /// TLBI VMALLE1IS: stage 1 of the current VMID.
    Stage1,
    /// TLBI VMALLS12E1IS: both stages of the current VMID.
    BothStages,
    /// TLBI ALLE1IS: of all VMIDs.
    Everything,
}

/// Returns what an instruction does, given its operand (Arm ARM, C5.5 "TLB maintenance
/// instructions" and C6.2 "DSB").
pub const fn act(word: u32, operand: u64) -> Option<Act> {
    if word & 0xffff_f0ff == 0xd503_309f {
        // CRm: the domain and the kinds of accesses. 0b1111 is SY, 0b1011 ISH, 0b1110 ST, 0b1010
        // ISHST.
        return match word >> 8 & 15 {
            0b1111 | 0b1011 => Some(Act::Barrier),
            0b1110 | 0b1010 => Some(Act::StoreBarrier),
            _ => None,
        };
    }
    match word & 0xffff_ffe0 {
        // The operand has the IPA from bit 12 on, in bits 35 to 0.
        0xd50c_8020 | 0xd50c_80a0 => Some(Act::ByIpa(operand & 0xf_ffff_ffff)),
        0xd508_8300 => Some(Act::Stage1),
        0xd50c_83c0 => Some(Act::BothStages),
        0xd50c_8380 => Some(Act::Everything),
        _ => None,
    }
}

/// How far the invalidation of a broken entry is.
///
/// In the order in which they must come; a comparison tells how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The valid bit is clear; the store may still be in a buffer.
    Broken,
    /// All walks find the invalid entry.
    Stored,
    ByIpa,
    /// No stage-2 translation is cached any more; combined ones may be.
    ByIpaDone,
    /// Asked for, but not complete on all cores.
    Invalidated,
    /// No core has the translation, and accesses by it are over.
    Clean,
}

/// A page without a valid entry, which had one.
///
/// The core that broke it must also complete the invalidation: barriers of other cores do not wait
/// for its maintenance.
#[derive(Clone, Copy, Debug)]
struct Broken {
    page: Page,
    frame: u64,
    core: usize,
    stage: Stage,
    /// What the page holds, once no core can change it: a digest of the observer's.
    contents: Option<u64>,
}

/// The entries that were broken and are not valid again.
#[derive(Debug, Default)]
pub struct Maintenance {
    /// A few at a time: a batch of pages for each core.
    broken: Vec<Broken>,
}

impl Maintenance {
    /// Returns whether no page is on its way.
    pub fn is_quiet(&self) -> bool {
        self.broken.is_empty()
    }

    /// Follows an instruction of a core whose VMID is that of `vm`.
    pub fn follow(&mut self, core: usize, vm: usize, act: Act) {
        for one in self.broken.iter_mut().filter(|one| one.core == core) {
            // Invalidation by VMID reaches the tables of the VM whose VTTBR_EL2 the core has.
            let is_vms = one.page.vm == vm;
            one.stage = match (act, one.stage) {
                (Act::Barrier | Act::StoreBarrier, Stage::Broken) => Stage::Stored,
                (Act::ByIpa(number), Stage::Stored)
                    if is_vms && number == one.page.ipa.page_number() =>
                {
                    Stage::ByIpa
                }
                (Act::Barrier, Stage::ByIpa) => Stage::ByIpaDone,
                (Act::Stage1, Stage::ByIpaDone) if is_vms => Stage::Invalidated,
                (Act::BothStages, Stage::Stored | Stage::ByIpa | Stage::ByIpaDone) if is_vms => {
                    Stage::Invalidated
                }
                (Act::Everything, Stage::Stored | Stage::ByIpa | Stage::ByIpaDone) => {
                    Stage::Invalidated
                }
                (Act::Barrier, Stage::Invalidated) => Stage::Clean,
                // An instruction out of order has no effect on this entry.
                (_, stage) => stage,
            };
        }
    }

    /// Takes note of what pages hold that no core can reach any more, with a digest of a frame.
    pub fn note_contents(&mut self, digest: impl Fn(PhysAddr) -> u64) {
        let unreachable = |one: &&mut Broken| one.stage == Stage::Clean && one.contents.is_none();
        for one in self.broken.iter_mut().filter(unreachable) {
            one.contents = Some(digest(PhysAddr(one.frame << PAGE_SHIFT)));
        }
    }

    /// Checks that a page that is about to be valid again holds what it held, with the same digest.
    ///
    /// # Errors
    ///
    /// Its contents are other ones.
    pub fn check_contents(
        &self,
        page: Page,
        after: Entry,
        digest: impl Fn(PhysAddr) -> u64,
    ) -> Checked {
        let known = self.broken.iter().find(|one| one.page == page);
        let Some(before) = known.and_then(|one| one.contents) else {
            return Ok(());
        };
        if !after.is_valid() || digest(after.frame()) == before {
            return Ok(());
        }
        Err(Difference::new(
            Rule::Contents,
            format!("VM {} IPA {}", page.vm, page.ipa),
            "the contents that the page had in its former frame",
            format!("others in frame {}", after.frame()),
        ))
    }

    /// Checks a change of an entry by a core, and takes note of it.
    ///
    /// # Errors
    ///
    /// A valid entry became another valid one, or what was broken is used again too early.
    pub fn change(&mut self, core: usize, page: Page, before: Entry, after: Entry) -> Checked {
        let place = || format!("VM {} IPA {}", page.vm, page.ipa);
        if before == after {
            return Ok(());
        }
        if before.is_valid() && after.is_valid() {
            return Err(Difference::new(
                Rule::Break,
                place(),
                "an invalid entry in between",
                format!("{:#x}, then {:#x}", before.0, after.0),
            ));
        }
        if before.is_valid() {
            self.broken.push(Broken {
                page,
                frame: before.frame().page_number(),
                core,
                stage: Stage::Broken,
                contents: None,
            });
            return Ok(());
        }
        // From one invalid entry to another: no translation was made from it.
        if !after.is_valid() {
            return Ok(());
        }
        let frame = after.frame().page_number();
        // Either is too early: the page again, or its former frame for another page.
        let used = |one: &&Broken| one.page == page || one.frame == frame;
        if let Some(early) = self
            .broken
            .iter()
            .filter(used)
            .find(|one| one.stage < Stage::Clean)
        {
            return Err(late(early, "before this page or frame is mapped again"));
        }
        self.broken.retain(|one| one.page != page);
        Ok(())
    }

    /// Checks that a core whose guest continues has completed what it began.
    ///
    /// # Errors
    ///
    /// A translation may still be in a TLB, or a page is missing.
    pub fn leave(&self, core: usize) -> Checked {
        let Some(own) = self.broken.iter().find(|one| one.core == core) else {
            return Ok(());
        };
        if own.stage < Stage::Clean {
            return Err(late(own, "before the guest continues"));
        }
        Err(Difference::new(
            Rule::Moving,
            format!("VM {} IPA {}", own.page.vm, own.page.ipa),
            "a valid entry once the core's guest continues",
            "none",
        ))
    }

    /// Returns whether a VM's page is without a valid entry on behalf of any core.
    pub fn is_broken(&self, frame: PhysAddr) -> Option<usize> {
        let mut all = self.broken.iter();
        all.find(|one| one.frame == frame.page_number())
            .map(|one| one.page.vm)
    }
}

/// Returns which step is missing.
fn late(one: &Broken, when: &str) -> Difference {
    let missing = match one.stage {
        Stage::Broken => "DSB after the store",
        Stage::Stored => "TLBI of the IPA",
        Stage::ByIpa => "DSB after TLBI of the IPA",
        Stage::ByIpaDone => "TLBI of stage 1",
        Stage::Invalidated | Stage::Clean => "DSB after TLBI",
    };
    Difference::new(
        Rule::Tlbi,
        format!("VM {} IPA {}", one.page.vm, one.page.ipa),
        format!("{missing} {when}"),
        "none",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_formats::addr::Ipa;

    const PAGE: Page = Page {
        vm: 0,
        ipa: Ipa(0x4000_1000),
    };
    const OLD: Entry = Entry(0x4010_17ff);
    const NEW: Entry = Entry(0x4010_27ff);
    const MOVING: Entry = Entry(0x4010_17fe);

    fn rule(result: Checked) -> Option<Rule> {
        result.err().map(|difference| difference.rule)
    }

    fn after(acts: &[Act]) -> Option<Rule> {
        let mut maintenance = Maintenance::default();
        assert_eq!(maintenance.change(1, PAGE, OLD, MOVING), Ok(()));
        for act in acts {
            maintenance.follow(1, 0, *act);
        }
        let made = maintenance.change(1, PAGE, MOVING, NEW);
        if made.is_ok() {
            assert_eq!(maintenance.leave(1), Ok(()));
        }
        rule(made)
    }

    #[test]
    fn the_whole_sequence_passes_and_none_that_lacks_a_step() {
        let all = [
            Act::StoreBarrier,
            Act::ByIpa(0x4_0001),
            Act::Barrier,
            Act::Stage1,
            Act::Barrier,
        ];
        assert_eq!(after(&all), None);
        for missing in 0..all.len() {
            let mut some = all.to_vec();
            some.remove(missing);
            assert_eq!(after(&some), Some(Rule::Tlbi), "without {:?}", all[missing]);
        }
        assert_eq!(after(&[Act::Barrier, Act::BothStages, Act::Barrier]), None);
        assert_eq!(after(&[Act::Barrier, Act::Everything, Act::Barrier]), None);
        let other = [
            Act::Barrier,
            Act::ByIpa(5),
            Act::Barrier,
            Act::Stage1,
            Act::Barrier,
        ];
        assert_eq!(after(&other), Some(Rule::Tlbi));
    }

    #[test]
    fn a_valid_entry_is_broken_first() {
        let mut maintenance = Maintenance::default();
        assert_eq!(
            rule(maintenance.change(0, PAGE, OLD, NEW)),
            Some(Rule::Break)
        );
        assert_eq!(maintenance.change(0, PAGE, OLD, OLD), Ok(()));
        assert!(maintenance.is_quiet());
    }

    #[test]
    fn a_core_returns_once_it_is_through_and_others_do_not_wait() {
        let mut maintenance = Maintenance::default();
        assert_eq!(maintenance.change(1, PAGE, OLD, MOVING), Ok(()));
        assert_eq!(rule(maintenance.leave(1)), Some(Rule::Tlbi));
        assert_eq!(maintenance.leave(0), Ok(()));
        for act in [Act::Barrier, Act::BothStages, Act::Barrier] {
            maintenance.follow(1, 0, act);
        }
        assert_eq!(rule(maintenance.leave(1)), Some(Rule::Moving));
    }

    #[test]
    fn a_frame_is_not_reused_before_it_is_clean() {
        let mut maintenance = Maintenance::default();
        assert_eq!(maintenance.change(1, PAGE, OLD, MOVING), Ok(()));
        let other = Page {
            vm: 1,
            ipa: Ipa(0x5000_0000),
        };
        let made = maintenance.change(0, other, Entry(0), OLD);
        assert_eq!(rule(made), Some(Rule::Tlbi));
        assert_eq!(maintenance.is_broken(PhysAddr(0x4010_1000)), Some(0));
    }

    #[test]
    fn a_page_takes_its_contents_along() {
        let mut maintenance = Maintenance::default();
        let digest = |old, new| move |frame: PhysAddr| if frame == OLD.frame() { old } else { new };
        assert_eq!(maintenance.change(1, PAGE, OLD, MOVING), Ok(()));
        // Cores may still store to it: what it holds is not final.
        maintenance.note_contents(digest(1, 0));
        for act in [Act::Barrier, Act::BothStages, Act::Barrier] {
            maintenance.follow(1, 0, act);
        }
        maintenance.note_contents(digest(7, 0));
        maintenance.note_contents(digest(8, 0));
        let check =
            |digest: &dyn Fn(PhysAddr) -> u64| rule(maintenance.check_contents(PAGE, NEW, digest));
        assert_eq!(check(&digest(0, 7)), None);
        assert_eq!(check(&digest(0, 1)), Some(Rule::Contents));
        assert_eq!(check(&digest(7, 0)), Some(Rule::Contents));
    }

    #[test]
    fn instructions_are_told_apart() {
        assert_eq!(act(0xd503_3b9f, 0), Some(Act::Barrier)); // dsb ish
        assert_eq!(act(0xd503_3f9f, 0), Some(Act::Barrier)); // dsb sy
        assert_eq!(act(0xd503_3a9f, 0), Some(Act::StoreBarrier)); // dsb ishst
        assert_eq!(act(0xd503_379f, 0), None); // dsb nsh
        assert_eq!(act(0xd50c_8023, 0x4_0001), Some(Act::ByIpa(0x4_0001)));
        assert_eq!(act(0xd508_831f, 0), Some(Act::Stage1));
        assert_eq!(act(0xd50c_83df, 0), Some(Act::BothStages));
        assert_eq!(act(0xd50c_839f, 0), Some(Act::Everything));
        assert_eq!(act(0xd508_871f, 0), None); // tlbi vmalle1: this core only
    }
}
