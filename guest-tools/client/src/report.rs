//! The output of `cloisonctl stat`: counts, their variation, and the metrics computed from them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ways::{By, Part};
use clap::ValueEnum;
use cloison_epapi::cpu::Cpu;
use cloison_epapi::query;
use cloison_metrics::Metric;
use serde_json::{Value, json};

/// Name of an observation segment's cycles, which it counts besides its events.
pub const SEGMENT_CYCLES: &str = "cycles";

/// An event and its counts, one for each run.
#[derive(Debug)]
pub struct Counted {
    /// How it was asked for.
    pub name: String,
    pub code: i32,
    pub counts: Vec<u64>,
    /// A counter has overflowed: some count lacks a multiple of 2^32.
    pub is_short: bool,
}

impl Counted {
    /// Returns an event without counts.
    pub fn new(name: &str, code: i32) -> Self {
        Self {
            name: name.to_owned(),
            code,
            counts: Vec::new(),
            is_short: false,
        }
    }
}

/// How long a run of the command took, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub elapsed: f64,
    /// At EL0.
    pub user: f64,
    /// In the kernel.
    pub system: f64,
}

/// How to print.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    Table,
    /// The first run has this number.
    Csv {
        first: u32,
    },
    Json,
}

/// The counts.
#[derive(Debug)]
pub struct Report<'a> {
    pub command: &'a [String],
    pub vcpu: usize,
    pub by: By,
    pub part: Part,
    pub cpu: &'a Cpu,
    pub counted: &'a [Counted],
    pub metrics: &'a [Metric],
    pub samples: &'a [Sample],
    pub status: Option<i32>,
}

/// Mean and spread of some numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    mean: f64,
    /// Of the sample: divided by one less than there are.
    variance: f64,
    least: f64,
    greatest: f64,
}

impl Spread {
    fn of(numbers: &[f64]) -> Self {
        let many = numbers.len().max(1) as f64;
        let mean = numbers.iter().sum::<f64>() / many;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        let variance = if numbers.len() > 1 {
            squares / (many - 1.0)
        } else {
            0.0
        };
        let least = numbers.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = numbers.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            mean,
            variance,
            least,
            greatest,
        }
    }

    /// Returns the standard deviation in percent of the mean.
    fn percent(&self) -> f64 {
        if self.mean == 0.0 {
            0.0
        } else {
            100.0 * self.variance.sqrt() / self.mean
        }
    }
}

fn word(value: impl ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

fn counts(counted: &Counted) -> Vec<f64> {
    counted.counts.iter().map(|count| *count as f64).collect()
}

impl Report<'_> {
    /// Returns it as text.
    pub fn write(&self, format: Format) -> String {
        match format {
            Format::Table => self.table(),
            Format::Csv { first } => self.csv(first),
            Format::Json => self.json(),
        }
    }

    /// Returns the mean of an event's counts, by its name in the event table.
    fn mean(&self, event: &str) -> Option<u64> {
        let named =
            |it: &&Counted| query::name_of(self.cpu, it.code).is_ok_and(|name| name == event);
        let found = self
            .counted
            .iter()
            .find(named)
            .filter(|it| !it.counts.is_empty())?;
        Some(Spread::of(&counts(found)).mean.round() as u64)
    }

    /// Returns the metrics that the counts give.
    fn computed(&self) -> impl Iterator<Item = (&Metric, f64)> {
        self.metrics
            .iter()
            .filter_map(|metric| Some((metric, metric.compute(|event| self.mean(event))?)))
    }

    fn seconds(&self, of: impl Fn(&Sample) -> f64) -> Spread {
        Spread::of(&self.samples.iter().map(of).collect::<Vec<_>>())
    }

    fn table(&self) -> String {
        let runs = self.samples.len();
        let many = if runs == 1 {
            String::new()
        } else {
            format!(", {runs} runs")
        };
        let (by, part) = (word(self.by), word(self.part));
        let mut text = format!(
            "\n Counts of '{}' on vCPU {} (by {by}, {part}{many}):\n\n",
            self.command.join(" "),
            self.vcpu
        );
        for counted in self.counted {
            let spread = Spread::of(&counts(counted));
            let vary = if counted.counts.len() > 1 {
                format!("  ( +- {:.2} % )", spread.percent())
            } else {
                String::new()
            };
            let vary = if counted.is_short {
                vary + "  (its counter has overflowed)"
            } else {
                vary
            };
            let name = &counted.name;
            text += &if vary.is_empty() {
                format!("{:>20.0}  {name}\n", spread.mean)
            } else {
                format!("{:>20.0}  {name:<28}{vary}\n", spread.mean)
            };
        }
        let computed: Vec<_> = self.computed().collect();
        if !computed.is_empty() {
            text.push('\n');
        }
        for (metric, value) in computed {
            text += &format!(
                "{:>20}  {:<28}  {}\n",
                metric.show(value).to_string(),
                metric.name,
                metric.expression
            );
        }
        let line = |spread: Spread, what: &str| {
            let vary = if runs > 1 {
                format!("  ( +- {:.2} % )", spread.percent())
            } else {
                String::new()
            };
            format!("{:>20.9}  seconds {what}{vary}\n", spread.mean)
        };
        text.push('\n');
        text += &line(self.seconds(|sample| sample.elapsed), "elapsed");
        text += &line(self.seconds(|sample| sample.user), "user");
        text += &line(self.seconds(|sample| sample.system), "system");
        text
    }

    /// Returns one line for each run and event, with a heading.
    fn csv(&self, first: u32) -> String {
        let mut text = "run,event,code,count,overflowed\n".to_owned();
        let runs = self
            .counted
            .iter()
            .map(|counted| counted.counts.len())
            .max()
            .unwrap_or(0);
        for (at, run) in (0..runs).zip(first..) {
            for Counted {
                name,
                code,
                counts,
                is_short,
            } in self.counted
            {
                if let Some(count) = counts.get(at) {
                    text += &format!(
                        "{run},{name},{code:#010x},{count},{}\n",
                        u8::from(*is_short)
                    );
                }
            }
        }
        text
    }

    fn json(&self) -> String {
        let spread = |it: Spread| json!({ "mean": it.mean, "variance": it.variance, "least": it.least, "greatest": it.greatest });
        let event = |counted: &Counted| {
            let mut value = spread(Spread::of(&counts(counted)));
            value["name"] = counted.name.as_str().into();
            value["code"] = (counted.code as u32).into();
            value["counts"] = counted.counts.as_slice().into();
            value["overflowed"] = counted.is_short.into();
            value
        };
        let metric = |(metric, value): (&Metric, f64)| {
            json!({
                "name": metric.name,
                "value": value,
                "shown": metric.show(value).to_string(),
                "expression": metric.expression,
                "description": metric.meaning,
            })
        };
        let value = json!({
            "command": self.command,
            "vcpu": self.vcpu,
            "by": word(self.by),
            "count": word(self.part),
            "cpu": self.cpu.name,
            "status": self.status,
            "events": self.counted.iter().map(event).collect::<Vec<Value>>(),
            "metrics": self.computed().map(metric).collect::<Vec<Value>>(),
            "seconds": {
                "elapsed": spread(self.seconds(|sample| sample.elapsed)),
                "user": spread(self.seconds(|sample| sample.user)),
                "system": spread(self.seconds(|sample| sample.system)),
            },
        });
        format!("{value:#}\n")
    }
}
