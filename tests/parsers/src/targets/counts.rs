//! Counts that perf, PAPI and others wrote: CSV, JSON, Parquet, compressed or not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::telemetry;
use crate::scratch;
use crate::target::{Form, Outcome, Target};
use cloison_config::events::EventNames;
use cloison_engine::hem::Table;
use cloison_engine::telemetry::Telemetry;
use cloison_much::read::{self, Request, Rows, Scaled};

/// Counts of runs.
pub const COUNTS: Target = Target {
    name: "counts",
    package: "cloison-much",
    rule: "each error has a message; each event has as many counts as runs, and none is not a number",
    form: Form::Text,
    files: &[],
    made: texts,
    check,
};

/// The same parser with binary seeds.
pub const PARQUET: Target = Target {
    name: "parquet",
    form: Form::Bytes,
    files: &[],
    made: tables,
    ..COUNTS
};

fn texts() -> Vec<Vec<u8>> {
    [
        "sub_experiment,run,event,value\n0,0,a,1\n0,0,b,2\n0,1,a,3\n0,1,b,4\n1,0,a,5\n1,0,c,6\n",
        "vm,vcpu,workload,sub_experiment,run,event,event_code,value,cycles,overflowed\n\
         v,0,1,0,0,a,0x11,1,100,0\nv,0,1,0,0,b,0x12,2,100,false\n",
        "a,b,c\n1,2,3\n4,5,6\n",
        "# started on Mon Jan 1\n\n10,,instructions,1000,100.00,,\n20,,cycles,1000,100.00,2.0,per cycle\n",
        "1.000,10,,instructions,1000,100.00,,\n1.000,20,,cycles,1000,100.00,,\n",
        "{\"counter-value\" : \"10.0\", \"unit\" : \"\", \"event\" : \"cycles\", \"event-runtime\" : 1, \
         \"pcnt-running\" : 100.00}\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

fn check(input: &[u8]) -> Outcome {
    let path = scratch::file("counts", input);
    let mut outcome = Outcome::Refused;
    for scaled in [Scaled::Refuse, Scaled::LeaveOut, Scaled::Keep] {
        let request = Request {
            scaled,
            ..Request::default()
        };
        match read::read_as(&path, &request, &Rows::new()) {
            Ok(found) => {
                let measurements = &found.measurements;
                for event in 0..measurements.events.len() {
                    let counts = measurements.grouped(event);
                    assert!(
                        counts
                            .iter()
                            .all(|count| count.is_finite() && *count >= 0.0)
                    );
                }
                outcome = Outcome::Accepted;
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    if let Ok(vectors) = read::read_vectors(&path) {
        assert!(!vectors.events.is_empty());
    }
    outcome
}

/// Returns a table in Parquet, as `hem` writes it, and an empty compressed text.
fn tables() -> Vec<Vec<u8>> {
    let table = Table::new(&Telemetry::parse(&telemetry::run()), &EventNames::default());
    vec![
        table.to_parquet().expect("a table"),
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
            .to_vec(),
    ]
}
