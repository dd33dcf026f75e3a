//! The events that a machine's PMU counts, and the configured events that it leaves at zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

use clap::builder::{PossibleValuesParser, TypedValueParser};
use cloison_board_model::events::Event as Modelled;
use cloison_config::board::BoardFile;
use cloison_config::emulation::Emulated;
use cloison_config::events::Event;
use cloison_config::problem::Problem;
use cloison_config::validation::record as validated;
use cloison_config::{Checked, Errors};
use cloison_formats::image::Quota;
use cloison_formats::units::EventId;
use miette::Report;
use std::fmt;

/// The machine that counts events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// QEMU without options: cores run in parallel.
    Stock,
    /// QEMU with `-icount`, which also counts instructions.
    Icount,
    /// The board model.
    Model,
}

impl Counting {
    /// Returns whether an event does not stay zero.
    pub fn counts(self, board: &BoardFile, event: EventId) -> bool {
        match self {
            Self::Stock => board.emulated(event) == Emulated::Yes,
            Self::Icount => board.emulated(event) != Emulated::No,
            Self::Model => {
                Modelled::from_number(event.0.into()).is_some()
                    || board.emulated(event) == Emulated::Yes
            }
        }
    }

    /// Returns the events that the machine counts as bits of PMCEID0_EL0 and PMCEID1_EL0, which
    /// announce the common events 0x00 to 0x1f and 0x20 to 0x3f. The board model counts more
    /// than QEMU announces.
    pub fn announced(self, board: &BoardFile) -> [u32; 2] {
        let common = board
            .events
            .events
            .iter()
            .map(|event| event.id)
            .filter(|id| id.0 < 64 && self.counts(board, *id));
        common.fold([0; 2], |mut bits, id| {
            bits[usize::from(id.0 / 32)] |= 1 << (id.0 % 32);
            bits
        })
    }

    /// Returns the machine whose verdicts on events apply.
    pub const fn machine(self) -> validated::Machine {
        match self {
            Self::Stock => validated::Machine::Stock,
            Self::Icount => validated::Machine::Icount,
            Self::Model => validated::Machine::Model,
        }
    }

    /// Returns the option of `run` and `top` that selects it.
    const fn option(self) -> Option<&'static str> {
        match self {
            Self::Stock => None,
            Self::Icount => Some("--icount"),
            Self::Model => Some("--model"),
        }
    }
}

impl fmt::Display for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stock => "QEMU by itself",
            Self::Icount => "QEMU with --icount",
            Self::Model => "the board model",
        })
    }
}

/// Accepts the name of a machine whose events can be validated.
pub fn machines() -> impl TypedValueParser<Value = validated::Machine> {
    let named = |word: &str| {
        validated::Machine::ALL
            .into_iter()
            .find(|(name, _)| *name == word)
    };
    PossibleValuesParser::new(validated::Machine::ALL.map(|(name, _)| name))
        .try_map(move |word| named(&word).map(|(_, machine)| machine).ok_or("no machine"))
}

/// Completes a configuration for one machine, whose events its guests' PMUs announce. Returns
/// warnings about the events of its quotas.
///
/// # Errors
///
/// Returns the quotas whose events cannot be trusted on that machine, with the evidence.
pub fn adapt(checked: &mut Checked, machine: validated::Machine) -> Result<Vec<Problem>, Errors> {
    let counting = [Counting::Stock, Counting::Icount, Counting::Model]
        .into_iter()
        .find(|it| it.machine() == machine);
    // Hardware announces itself what it counts.
    checked.system.announced =
        counting.map_or([0; 2], |counting| counting.announced(&checked.board));
    checked.on(machine)
}

/// Completes a configuration for one machine, and prints warnings about the events of its quotas.
///
/// # Errors
///
/// Returns the quotas whose events cannot be trusted on that machine, with the evidence.
pub fn prepare_for(checked: &mut Checked, machine: validated::Machine) -> Result<(), Errors> {
    for warning in adapt(checked, machine)? {
        eprintln!("{:?}", Report::new(warning));
    }
    Ok(())
}

/// Returns one line about the configured events that stay zero on a machine: the events, the VMs
/// whose budgets on them cannot act, and the option that changes it. Returns `None` if all events
/// count.
pub fn warning(checked: &Checked, machine: Counting) -> Option<String> {
    let event = |id: EventId| {
        checked
            .board
            .events
            .by_id(id)
            .filter(|_| !machine.counts(&checked.board, id))
    };
    let mut missing: Vec<&Event> = Vec::new();
    let mut held: Vec<String> = Vec::new();
    for vm in &checked.system.vms {
        let budgets: Vec<&Event> = vm
            .quotas
            .iter()
            .flat_map(Quota::counted)
            .filter_map(|counted| event(counted.event))
            .collect();
        if !budgets.is_empty() {
            held.push(format!("`{}`", vm.name));
        }
        let campaign = vm
            .campaign
            .iter()
            .flat_map(|campaign| campaign.sub_experiments.iter().flatten());
        let logged = vm.hems.iter().chain(campaign).filter_map(|id| event(*id));
        for event in budgets.into_iter().chain(logged) {
            if !missing.iter().any(|known| known.id == event.id) {
                missing.push(event);
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let names: Vec<&str> = missing.iter().map(|event| event.name.as_str()).collect();
    let effect = match held.as_slice() {
        [] if names.len() > 1 => "which stay zero in the log".to_owned(),
        [] => "which stays zero in the log".to_owned(),
        [vm] => format!("so the budget of {vm} cannot act"),
        vms => format!("so the budgets of {} cannot act", list(vms)),
    };
    Some(format!(
        "{machine} does not count {}, {effect}{}",
        list(&names),
        offer(checked, machine, &missing)
    ))
}

/// Returns the options under which the missing events count, as the end of the warning.
fn offer(checked: &Checked, machine: Counting, missing: &[&Event]) -> String {
    let is_modelled = checked
        .board
        .emulation
        .as_ref()
        .is_some_and(|emulation| emulation.model.is_some());
    let others: Vec<Counting> = [Counting::Model, Counting::Icount]
        .into_iter()
        .filter(|other| {
            *other != machine
                && machine != Counting::Model
                && (*other != Counting::Model || is_modelled)
        })
        .collect();
    let all: Vec<&str> = others
        .iter()
        .filter(|other| {
            missing
                .iter()
                .all(|event| other.counts(&checked.board, event.id))
        })
        .filter_map(|other| other.option())
        .collect();
    if !all.is_empty() {
        return format!("; add {}", all.join(" or "));
    }
    let some = others.iter().find_map(|other| {
        let counted: Vec<&str> = missing
            .iter()
            .filter(|event| other.counts(&checked.board, event.id))
            .map(|event| event.name.as_str())
            .collect();
        if counted.is_empty() {
            None
        } else {
            Some(format!("; {} counts {}", other.option()?, list(&counted)))
        }
    });
    some.unwrap_or_default()
}

/// Returns `a`, `a and b`, `a, b and c`.
fn list<T: AsRef<str>>(items: &[T]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    match items.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => items.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration;
    use std::path::Path;

    fn demo(event: &str) -> Checked {
        let text = std::fs::read_to_string(configuration::directory().join("demo.toml"))
            .expect("it is there");
        let text = text.replace(
            "event = \"INST_RETIRED\"",
            &format!("event = \"{event}\"\nallow_untrusted = true"),
        );
        configuration::load_text(&configuration::directory().join("demo.toml"), text, None)
            .expect("a good one")
    }

    #[test]
    fn budgets_that_cannot_act_are_named_with_the_way_out() {
        let checked = demo("INST_RETIRED");
        let line = warning(&checked, Counting::Stock).expect("stock QEMU counts no instructions");
        assert_eq!(
            line,
            "QEMU by itself does not count INST_RETIRED, so the budgets of `interf-1`, `interf-2` \
             and `interf-3` cannot act; add --model or --icount"
        );
        assert_eq!(
            (
                warning(&checked, Counting::Icount),
                warning(&checked, Counting::Model)
            ),
            (None, None)
        );
    }

    #[test]
    fn each_machine_counts_its_own_events() {
        let checked = demo("L2D_CACHE_REFILL");
        let line = warning(&checked, Counting::Icount).expect("QEMU has no caches");
        assert!(
            line.starts_with("QEMU with --icount does not count L2D_CACHE_REFILL,"),
            "{line}"
        );
        assert!(line.ends_with("cannot act; add --model"), "{line}");
        let line = warning(&checked, Counting::Stock).expect("QEMU has no caches");
        assert!(
            line.contains("INST_RETIRED") && line.ends_with("; add --model"),
            "{line}"
        );
        assert_eq!(warning(&checked, Counting::Model), None);
        // The model has no branch predictor, and nothing else would count its misses.
        let line = warning(&demo("BR_MIS_PRED"), Counting::Model).expect("not modelled");
        assert!(
            line.starts_with("the board model does not count BR_MIS_PRED,")
                && line.ends_with("act"),
            "{line}"
        );
        let line = warning(&demo("BR_MIS_PRED"), Counting::Stock).expect("not modelled");
        assert!(line.ends_with("; --model counts INST_RETIRED"), "{line}");
    }

    /// The bits by which a guest's perf knows events by name.
    #[test]
    fn each_machine_announces_what_it_counts() {
        let board = configuration::board("virt").expect("a good one");
        let bits = |machine: Counting| machine.announced(&board);
        assert_eq!(
            bits(Counting::Stock),
            [1 << 0x00 | 1 << 0x11, 0],
            "SW_INCR and CPU_CYCLES"
        );
        assert_eq!(
            bits(Counting::Icount),
            [1 << 0x00 | 1 << 0x08 | 1 << 0x11, 0],
            "and INST_RETIRED"
        );
        let [low, high] = bits(Counting::Model);
        for event in Modelled::ALL.iter().filter(|event| (**event as u64) < 32) {
            assert_eq!(low >> *event as u64 & 1, 1, "{}", event.name());
        }
        assert_eq!(
            (low >> 0x10 & 1, high),
            (0, 0),
            "it has no branch predictor"
        );
        let a72 = configuration::board("virt-a72").expect("a good one");
        assert_eq!(Counting::Stock.announced(&a72), [1 << 0x00 | 1 << 0x11, 0]);
    }

    #[test]
    fn events_that_are_only_logged_hold_nobody() {
        let path = configuration::directory().join("demo.toml");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let text = text.replace(
            "event = \"INST_RETIRED\"",
            "event = \"CPU_CYCLES\"\nallow_untrusted = true",
        );
        let checked = configuration::load_text(Path::new(&path), text, None).expect("a good one");
        let line = warning(&checked, Counting::Stock).expect("the victim logs INST_RETIRED");
        assert!(
            line.contains("INST_RETIRED, which stays zero in the log; add --model or --icount"),
            "{line}"
        );
    }
}
