//! `cloison check`: reports every error of a configuration with its position and a fix.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::events::EventNames;
use cloison_config::problem::{count, display_path};
use cloison_config::quantity::show_duration;
use cloison_config::validation::record::Machine;
use cloison_config::{Checked, Errors};
use cloison_engine::board_argument::BoardArgument;
use cloison_engine::counting::{self, Counting, machines};
use cloison_engine::text::grouped;
use cloison_engine::{configuration, installation};
use cloison_formats::ids::VcpuIndex;
use cloison_formats::image::GuestPmu;
use miette::{Report, Result, miette};
use std::path::{Path, PathBuf};

/// `cloison check`.
#[derive(Clone, Debug, clap::Args)]
pub struct CheckArgs {
    /// The configurations
    #[arg(required = true, value_name = "CONFIG")]
    pub files: Vec<PathBuf>,
    /// The board, if not the configuration's
    #[arg(long, value_name = "NAME", value_parser = BoardArgument)]
    pub board: Option<String>,
    /// The machine that will run the systems, whose verdicts on events their quotas need [default:
    /// any that has them]
    #[arg(long, value_name = "MACHINE", value_parser = machines())]
    pub machine: Option<Machine>,
}

impl CheckArgs {
    fn load(&self, path: &Path) -> Result<Checked, Errors> {
        let mut checked = configuration::load(path, self.board.as_deref())?;
        if let Some(machine) = self.machine {
            let warnings = counting::adapt(&mut checked, machine)?;
            checked.warnings.extend(warnings);
        }
        Ok(checked)
    }
}

/// Returns one line about the machines on which the quotas hold.
fn where_quotas_hold(checked: &Checked) -> String {
    let (holds, fails): (Vec<Machine>, Vec<Machine>) = checked
        .quota_events
        .verdicts()
        .machines()
        .partition(|machine| checked.quota_events.holds_on(*machine));
    let list = |machines: &[Machine], word: &str| {
        machines
            .iter()
            .map(Machine::to_string)
            .collect::<Vec<_>>()
            .join(word)
    };
    let not = if fails.is_empty() {
        String::new()
    } else {
        format!(", not on {}", list(&fails, " or "))
    };
    format!(
        "its quotas hold on {}{not}; --machine shows the evidence",
        list(&holds, " and ")
    )
}

/// Returns what the quotas amount to, and what takes the event counters of each core: a line each.
fn budgets(checked: &Checked) -> String {
    let (names, events, board) = (
        EventNames::of(&checked.board.events),
        &checked.board.events,
        &checked.board,
    );
    let mut lines = String::new();
    let each = board.board.counters_per_event();
    for vm in &checked.system.vms {
        for (index, quota) in vm.quotas.iter().enumerate() {
            let counted = &quota.counted;
            let bytes = events.by_id(counted.event).and_then(|event| event.bytes);
            let rate = bytes.map_or(String::new(), |bytes| {
                let bytes = f64::from(bytes) / f64::from(counted.weight);
                format!(
                    " = {:.1} MB/s at {bytes} bytes each",
                    quota.budget.0 as f64 * bytes * 1e3 / quota.period.0 as f64
                )
            });
            let (vm, vcpu, what) = (&vm.name, quota.vcpu, names.counted(quota));
            let (budget, period) = (grouped(quota.budget.0), show_duration(quota.period));
            lines +=
                &format!("  {vm} vCPU {vcpu}, quota {index}: {budget} {what} / {period}{rate}\n");
        }
        for vcpu in (0..).map(VcpuIndex).take(vm.cores.len()) {
            let own = vm.quotas.iter().filter(|quota| quota.vcpu == vcpu);
            let of_quotas: usize = own.map(|quota| quota.counted().count()).sum();
            let segments = vm.segment_counters();
            if of_quotas == 0 && segments == 0 && !vm.has_counters() {
                continue;
            }
            let (all, taken) = (board.counters as usize, of_quotas * each);
            let shadow = if each == 2 {
                " (each has a shadow counter)"
            } else {
                ""
            };
            let cycles = if vm.has_counters() && segments > 0 {
                " and their cycles"
            } else {
                ""
            };
            let guest = match (vm.pmu != GuestPmu::None, vm.has_counters()) {
                (true, _) => ", the rest for its PMU",
                (false, true) => ", the rest for its calls",
                (false, false) => "",
            };
            let free = all.saturating_sub(taken + segments);
            lines += &format!(
                "  {} vCPU {vcpu}: of {all} event counters, {taken} for quotas{shadow}, \
                 {segments} for HEMs{cycles}{guest}; {free} {}\n",
                vm.name,
                if vm.has_counters() {
                    "for the guest"
                } else {
                    "free"
                },
            );
        }
    }
    lines
}

/// Runs `cloison check`: reports for each file that it is valid, or all its errors.
pub fn check(args: &CheckArgs) -> Result<()> {
    let mut bad = 0;
    for path in &args.files {
        match args.load(path) {
            Ok(checked) => {
                println!(
                    "{}: ok ({})",
                    display_path(&installation::find(path)).display(),
                    checked.summary()
                );
                print!("{}", budgets(&checked));
                let logged = || {
                    let line = counting::warning(&checked, Counting::Stock)?;
                    // The options are those of the command that boots it.
                    let option = if line.contains("; add --") {
                        " to `run`"
                    } else {
                        ""
                    };
                    Some(line + option)
                };
                let note = match (args.machine, checked.quota_events.is_empty()) {
                    (None, false) => Some(where_quotas_hold(&checked)),
                    (None, true) if checked.board.emulation.is_some() => logged(),
                    _ => None,
                };
                if let Some(note) = note {
                    eprintln!("note: {note}");
                }
                for warning in checked.warnings {
                    eprintln!("{:?}", Report::new(warning));
                }
            }
            Err(errors) => {
                bad += 1;
                eprintln!("{:?}", Report::new(errors));
            }
        }
    }
    match bad {
        0 => Ok(()),
        bad => Err(miette!(
            "{bad} of {} failed",
            count(args.files.len(), "configuration")
        )),
    }
}
