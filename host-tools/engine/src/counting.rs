//! What a machine's PMU counts, and the configured events that it leaves at zero.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_board_model::events::Event as Modelled;
use cloison_config::Checked;
use cloison_config::board::BoardFile;
use cloison_config::emulation::Emulated;
use cloison_config::events::Event;
use cloison_formats::units::EventId;
use std::fmt;

/// What counts the events of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// QEMU as it is: cores run in parallel.
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
            Self::Model => Modelled::from_number(event.0.into()).is_some() || board.emulated(event) == Emulated::Yes,
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

/// Returns one line about the configured events that stay zero on a machine: which, whose budgets on them cannot act,
/// and the option that changes it. Returns `None` if all events count.
pub fn warning(checked: &Checked, machine: Counting) -> Option<String> {
    let event = |id: EventId| checked.board.events.by_id(id).filter(|_| !machine.counts(&checked.board, id));
    let mut missing: Vec<&Event> = Vec::new();
    let mut held: Vec<String> = Vec::new();
    for vm in &checked.system.vms {
        let budgets: Vec<&Event> = vm.quotas.iter().filter_map(|quota| event(quota.event)).collect();
        if !budgets.is_empty() {
            held.push(format!("`{}`", vm.name));
        }
        let campaign = vm.campaign.iter().flat_map(|campaign| campaign.sub_experiments.iter().flatten());
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
    Some(format!("{machine} does not count {}, {effect}{}", list(&names), offer(checked, machine, &missing)))
}

/// Returns the options under which the missing events count, as the end of the warning.
fn offer(checked: &Checked, machine: Counting, missing: &[&Event]) -> String {
    let is_modelled = checked.board.emulation.as_ref().is_some_and(|emulation| emulation.model.is_some());
    let others: Vec<Counting> = [Counting::Model, Counting::Icount]
        .into_iter()
        .filter(|other| *other != machine && machine != Counting::Model && (*other != Counting::Model || is_modelled))
        .collect();
    let all: Vec<&str> = others
        .iter()
        .filter(|other| missing.iter().all(|event| other.counts(&checked.board, event.id)))
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
        if counted.is_empty() { None } else { Some(format!("; {} counts {}", other.option()?, list(&counted))) }
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
        let text = std::fs::read_to_string(configuration::directory().join("demo.toml")).expect("it is there");
        let text = text.replace("event = \"INST_RETIRED\"", &format!("event = \"{event}\""));
        configuration::load_text(&configuration::directory().join("demo.toml"), text, None).expect("a good one")
    }

    #[test]
    fn budgets_that_cannot_act_are_named_with_the_way_out() {
        let checked = demo("INST_RETIRED");
        let line = warning(&checked, Counting::Stock).expect("stock QEMU counts no instructions");
        assert_eq!(
            line,
            "QEMU by itself does not count INST_RETIRED, so the budgets of `interf-1`, `interf-2` and `interf-3` \
             cannot act; add --model or --icount"
        );
        assert_eq!((warning(&checked, Counting::Icount), warning(&checked, Counting::Model)), (None, None));
    }

    #[test]
    fn each_machine_counts_its_own_events() {
        let checked = demo("L2D_CACHE_REFILL");
        let line = warning(&checked, Counting::Icount).expect("QEMU has no caches");
        assert!(line.starts_with("QEMU with --icount does not count L2D_CACHE_REFILL,"), "{line}");
        assert!(line.ends_with("cannot act; add --model"), "{line}");
        let line = warning(&checked, Counting::Stock).expect("QEMU has no caches");
        assert!(line.contains("INST_RETIRED") && line.ends_with("; add --model"), "{line}");
        assert_eq!(warning(&checked, Counting::Model), None);
        // The model has no branch predictor, and nothing else would count its misses.
        let line = warning(&demo("BR_MIS_PRED"), Counting::Model).expect("not modelled");
        assert!(line.starts_with("the board model does not count BR_MIS_PRED,") && line.ends_with("act"), "{line}");
        let line = warning(&demo("BR_MIS_PRED"), Counting::Stock).expect("not modelled");
        assert!(line.ends_with("; --model counts INST_RETIRED"), "{line}");
    }

    #[test]
    fn events_that_are_only_logged_hold_nobody() {
        let path = configuration::directory().join("demo.toml");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let text = text.replace("event = \"INST_RETIRED\"", "event = \"CPU_CYCLES\"");
        let checked = configuration::load_text(Path::new(&path), text, None).expect("a good one");
        let line = warning(&checked, Counting::Stock).expect("the victim logs INST_RETIRED");
        assert!(line.contains("INST_RETIRED, which stays zero in the log; add --model or --icount"), "{line}");
    }
}
