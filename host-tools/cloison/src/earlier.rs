//! An earlier run of the same image, with which a run is compared.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::telemetry::Telemetry;
use cloison_formats::ids::VmId;

/// The telemetry of an earlier run of the same image.
#[derive(Debug)]
pub enum Before {
    /// Of the same machine: this run must send the same.
    Kept(Vec<u8>),
    /// Of a board: each VM should end as it did there.
    OnBoard(Vec<u8>),
}

impl Before {
    /// Says how a run differs from it.
    pub fn compare(&self, sent: &[u8], parsed: &Telemetry, names: &[String]) {
        match self {
            Self::Kept(before) => {
                let verdict = if before == sent {
                    "identical to"
                } else {
                    "different from"
                };
                eprintln!("the telemetry is {verdict} the kept run's");
            }
            Self::OnBoard(before) => {
                let before = Telemetry::parse(before);
                if before.boot.is_none() {
                    eprintln!("the captured run has no telemetry to compare with");
                    return;
                }
                let ends = |(vm, name): (VmId, &String)| {
                    let (there, here) = (before.end_of(vm), parsed.end_of(vm));
                    (there != here).then(|| format!("{name}: {there} on the board, {here} here"))
                };
                let others: Vec<String> = (0..).map(VmId).zip(names).filter_map(ends).collect();
                if others.is_empty() {
                    eprintln!("each VM has ended as on the board");
                }
                for line in others {
                    eprintln!("{line}");
                }
            }
        }
    }
}
