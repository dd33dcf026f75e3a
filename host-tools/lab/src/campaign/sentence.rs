//! Sentences of a campaign's file: texts with placeholders, as in an experiment's account, over the
//! campaign's numbers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::experiment::check::Mistake;
use crate::experiment::expression::{self, Refusal, Scope, Selection, Value};

/// What a sentence can name.
const NAMES: [&str; 6] = [
    "counters",
    "events",
    "runs",
    "seeds",
    "sub_experiments",
    "workloads",
];

/// The numbers of a campaign.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Counters of a sub-experiment.
    pub counters: u64,
    /// Events.
    pub events: u64,
    /// Runs of each of MUCH's sub-experiments.
    pub runs: u64,
    /// Repetitions with other seeds.
    pub seeds: u64,
    /// MUCH's sub-experiments.
    pub sub_experiments: u64,
    /// Workloads.
    pub workloads: u64,
}

impl Numbers {
    /// Returns a text with its placeholders filled in; nothing if one has no value, as a division by
    /// zero.
    ///
    /// # Errors
    /// The first mistake in an expression or a format, or a name that is none of a campaign's
    /// numbers.
    pub fn fill(&self, text: &str) -> Result<Option<String>, Mistake> {
        expression::fill(text, self)
    }
}

fn unknown(name: &str) -> Result<Value, Refusal> {
    Err(Refusal::unknown(
        "number of a campaign",
        name,
        "numbers",
        NAMES,
    ))
}

impl Scope for Numbers {
    fn name(&self, name: &str) -> Result<Value, Refusal> {
        Ok(Value::Count(match name {
            "counters" => self.counters,
            "events" => self.events,
            "runs" => self.runs,
            "seeds" => self.seeds,
            "sub_experiments" => self.sub_experiments,
            "workloads" => self.workloads,
            _ => return unknown(name),
        }))
    }

    fn member(&self, of: &Selection, name: &str) -> Result<Value, Refusal> {
        unknown(&format!("{}.{name}", of.variant))
    }

    fn setting(&self, of: &Selection, path: &str) -> Result<Value, Refusal> {
        unknown(&format!("{}:{path}", of.variant))
    }

    fn of_event(&self, function: &str, event: &str, _: f64) -> Result<Value, Refusal> {
        unknown(&format!("{function}({event})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: Numbers = Numbers {
        counters: 6,
        events: 16,
        runs: 50,
        seeds: 10,
        sub_experiments: 10,
        workloads: 16,
    };

    #[test]
    fn a_sentence_has_the_numbers_of_its_campaign() {
        let filled = NUMBERS.fill("{runs * sub_experiments} runs of {events:word} events");
        assert_eq!(filled.unwrap().unwrap(), "500 runs of 16 events");
    }

    #[test]
    fn what_a_campaign_does_not_have_is_refused() {
        for (text, message) in [
            ("{boards}", "there is no number of a campaign `boards`"),
            (
                "{w1.cycles}",
                "there is no number of a campaign `w1.cycles`",
            ),
            (
                "{others(BUS_ACCESS)}",
                "there is no number of a campaign `others(BUS_ACCESS)`",
            ),
            ("{runs", "a closing brace is missing"),
        ] {
            assert_eq!(NUMBERS.fill(text).unwrap_err().message, message, "{text}");
        }
    }
}
