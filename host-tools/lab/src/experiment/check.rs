//! Conditions on an experiment's results, such as `private.slowdown <= 1.1`: parsed, typed,
//! evaluated.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::Runs;
use super::measured::{Measure, Measured, QuotaOutcome};
use super::{printed, profiled};
use cloison_config::document::Field;
use cloison_config::suggest;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A condition that every matching run must fulfill.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// As its author wrote it.
    pub text: String,
    /// Its position in the experiment's file.
    pub span: Range<usize>,
    left: Operand,
    relation: Relation,
    right: Operand,
}

/// A mistake in a check: its position in the text, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Position in the check's text.
    pub at: Range<usize>,
    /// The mistake.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

/// A side of the comparison.
#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Number(f64),
    /// A multiple of a quantity.
    Scaled(f64, Selector),
}

/// A quantity of some runs.
#[derive(Clone, Debug, PartialEq)]
struct Selector {
    variant: String,
    /// Labels on axes that a run must have.
    axes: Vec<(String, String)>,
    quantity: Quantity,
    /// Position in the check's text.
    at: Range<usize>,
}

/// A quantity to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Median cycles of a segment.
    Cycles,
    /// The least of the samples' median cycles.
    LeastCycles,
    /// Their mean.
    MeanCycles,
    /// The greatest.
    MostCycles,
    /// Median, or mean latency, relative to the baseline.
    Slowdown,
    /// Difference of the longest and the shortest segment, relative to the median.
    Spread,
    /// Number of segments after the warm-up.
    Segments,
    /// Pages that moved to a private pool.
    PagesMoved,
    /// Periods in which a core was held by its budget, over all cores.
    ThrottledPeriods,
    /// Periods of all budgets, over all cores.
    Periods,
    /// Maximum number of events beyond a budget in one period of one core.
    OvershootMax,
    /// Events of all quotas in a period, on average.
    EventsPerPeriod,
    /// A latency of cyclictest in microseconds, by its name.
    Latency(&'static str),
    /// Importance of a group of the staircase's pages relative to that of its first, by its index.
    Group(usize),
    /// Median count of an event of the victim, by its name.
    Event(String),
    /// Mean of the numbers that the victim's command printed with this name.
    Printed(String),
}

/// Quantities of one kind can be compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Cycles,
    Ratio,
    Events,
    Number,
    Microseconds,
    Printed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cycles => "cycles",
            Self::Ratio => "a ratio",
            Self::Events => "a number of events",
            Self::Number => "a number of pages, periods or segments",
            Self::Microseconds => "microseconds",
            Self::Printed => "printed numbers",
        })
    }
}

/// Latencies that cyclictest's results have.
const LATENCIES: [&str; 7] = [
    "min_us",
    "median_us",
    "avg_us",
    "p999_us",
    "max_us",
    "wakeups",
    "beyond_histogram",
];

/// The groups of a profile.
const GROUPS: [&str; profiled::GROUPS] = ["group_1", "group_2", "group_3", "group_4", "group_5"];

const NAMED: [(&str, Quantity); 12] = [
    ("cycles", Quantity::Cycles),
    ("least_cycles", Quantity::LeastCycles),
    ("mean_cycles", Quantity::MeanCycles),
    ("most_cycles", Quantity::MostCycles),
    ("slowdown", Quantity::Slowdown),
    ("spread", Quantity::Spread),
    ("segments", Quantity::Segments),
    ("pages_moved", Quantity::PagesMoved),
    ("throttled_periods", Quantity::ThrottledPeriods),
    ("periods", Quantity::Periods),
    ("overshoot_max", Quantity::OvershootMax),
    ("events_per_period", Quantity::EventsPerPeriod),
];

impl Quantity {
    /// Returns the names of all but events and printed numbers.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let named = NAMED.iter().map(|(name, _)| *name);
        named.chain(LATENCIES).chain(GROUPS)
    }

    /// Returns those that have a column in every report of a run with any of it, with their names.
    pub fn reported() -> impl Iterator<Item = (&'static str, Self)> {
        NAMED.into_iter().filter(|(_, quantity)| {
            matches!(
                quantity,
                Self::PagesMoved
                    | Self::ThrottledPeriods
                    | Self::OvershootMax
                    | Self::EventsPerPeriod
            )
        })
    }

    /// Returns whether it is a whole number in any run.
    pub fn is_whole(&self) -> bool {
        !matches!(
            self,
            Self::MeanCycles
                | Self::Slowdown
                | Self::Spread
                | Self::EventsPerPeriod
                | Self::Latency("avg_us")
                | Self::Group(_)
                | Self::Printed(_)
        )
    }

    /// Returns the quantity of this name.
    pub fn named(name: &str) -> Option<Self> {
        let event = |name: &str| {
            name.chars()
                .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        NAMED
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, quantity)| quantity.clone())
            .or_else(|| {
                LATENCIES
                    .iter()
                    .find(|known| **known == name)
                    .map(|known| Self::Latency(known))
            })
            .or_else(|| {
                GROUPS
                    .iter()
                    .position(|known| *known == name)
                    .map(Self::Group)
            })
            .or_else(|| {
                name.strip_prefix("printed_")
                    .filter(|name| printed::is_name(name))
                    .map(|name| Self::Printed(name.to_owned()))
            })
            .or_else(|| event(name).then(|| Self::Event(name.to_owned())))
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Cycles | Self::LeastCycles | Self::MeanCycles | Self::MostCycles => Kind::Cycles,
            Self::Slowdown | Self::Spread | Self::Group(_) => Kind::Ratio,
            Self::Segments | Self::PagesMoved | Self::ThrottledPeriods | Self::Periods => {
                Kind::Number
            }
            Self::Latency("wakeups" | "beyond_histogram") => Kind::Number,
            Self::OvershootMax | Self::EventsPerPeriod | Self::Event(_) => Kind::Events,
            Self::Latency(_) => Kind::Microseconds,
            Self::Printed(_) => Kind::Printed,
        }
    }

    /// Returns what has to be measured for it, if that is one thing alone.
    fn needs(&self) -> Option<Measure> {
        match self {
            Self::Latency(_) => Some(Measure::Cyclictest),
            Self::Group(_) => Some(Measure::Profile),
            Self::Printed(_) => Some(Measure::Printed),
            _ => None,
        }
    }

    /// Returns its value in a run, if the run has it.
    pub fn of(&self, run: &Measured, runs: Runs<'_>, baseline: &str) -> Option<f64> {
        let cycles = || run.segments.iter().map(|segment| segment.cycles);
        Some(match self {
            Self::Cycles => cycles().next().map(|_| run.cycles() as f64)?,
            Self::LeastCycles => *run.sample_cycles().iter().min()? as f64,
            Self::MostCycles => *run.sample_cycles().iter().max()? as f64,
            Self::MeanCycles => {
                let samples = run.sample_cycles();
                let sum = samples.iter().sum::<u64>() as f64;
                (!samples.is_empty()).then_some(sum / samples.len() as f64)?
            }
            Self::Slowdown => runs.slowdown(run, baseline)?,
            Self::Spread => (cycles().max()? - cycles().min()?) as f64 / run.cycles().max(1) as f64,
            Self::Segments => run.segments.len() as f64,
            Self::PagesMoved => run.pages_moved as f64,
            Self::ThrottledPeriods => run
                .quotas
                .iter()
                .map(|quota| quota.throttled_periods)
                .sum::<u64>() as f64,
            Self::Periods => run.quotas.iter().map(|quota| quota.periods).sum::<u64>() as f64,
            Self::OvershootMax => run
                .quotas
                .iter()
                .map(|quota| quota.max_overshoot)
                .max()
                .unwrap_or(0) as f64,
            Self::EventsPerPeriod => {
                let mean = |quota: &QuotaOutcome| quota.events as f64 / quota.periods.max(1) as f64;
                run.quotas.iter().map(mean).sum()
            }
            Self::Latency(which) => {
                let found = run.latencies.as_ref()?;
                match *which {
                    "min_us" => found.min as f64,
                    "median_us" => found.permille(500) as f64,
                    "avg_us" => found.avg,
                    "p999_us" => found.permille(999) as f64,
                    "wakeups" => found.cycles as f64,
                    "beyond_histogram" => found.beyond() as f64,
                    _ => found.max as f64,
                }
            }
            Self::Group(group) => profiled::relative(run.profile.as_ref()?, *group)?,
            Self::Printed(name) => printed::mean(run.printed.as_ref()?, name)?,
            Self::Event(name) => {
                run.segments.first()?.events.get(name)?;
                run.event(name) as f64
            }
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    AtMost,
    Less,
    AtLeast,
    Greater,
    Equal,
    Unequal,
}

/// The longer ones first, so that `<=` is not read as `<`.
const RELATIONS: [(&str, Relation); 6] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("==", Relation::Equal),
    ("!=", Relation::Unequal),
    ("<", Relation::Less),
    (">", Relation::Greater),
];

impl Relation {
    fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::AtMost => left <= right,
            Self::Less => left < right,
            Self::AtLeast => left >= right,
            Self::Greater => left > right,
            Self::Equal => left == right,
            Self::Unequal => left != right,
        }
    }
}

/// How a check came out.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It holds in every matching run: the run that is closest to the limit, with both sides.
    Holds(String, f64, f64),
    /// It does not hold in some run: the one that is farthest beyond the limit, with both sides.
    Fails(String, f64, f64),
    /// No matching run has been performed: `--quick` left them out.
    NotRun,
    /// A run lacks the quantity.
    Missing(String),
}

/// The labels of one run on its axes.
pub type Axes = BTreeMap<String, String>;

impl Check {
    /// Parses a check; `span` is its position in the file.
    ///
    /// # Errors
    /// Returns the first mistake: the syntax, the name of a quantity, or two sides that cannot be
    /// compared.
    pub fn parse(text: &str, span: Range<usize>) -> Result<Self, Mistake> {
        let mut parser = Parser { text, at: 0 };
        let left = parser.operand()?;
        let relation = parser.relation()?;
        let right = parser.operand()?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.mistake(parser.at..text.len(), "more follows after the comparison"));
        }
        match (&left, &right) {
            (Operand::Number(_), Operand::Number(_)) => {
                return Err(parser.mistake(0..text.len(), "both sides are numbers"));
            }
            (Operand::Scaled(_, one), Operand::Scaled(_, other))
                if one.quantity.kind() != other.quantity.kind() =>
            {
                let (one, kinds) = (
                    other.at.clone(),
                    (one.quantity.kind(), other.quantity.kind()),
                );
                return Err(Mistake {
                    at: one,
                    message: format!("{} cannot be compared with {}", kinds.0, kinds.1),
                    help: "compare quantities of one kind, or a quantity with a number".into(),
                });
            }
            _ => {}
        }
        Ok(Self {
            text: text.to_owned(),
            span,
            left,
            relation,
            right,
        })
    }

    /// Reads a check of runs with these names and labels, by which `measure` is measured, as far as
    /// both are known; nothing if it has a mistake, which is recorded.
    pub fn read(
        field: &Field<'_>,
        points: Option<&[(&str, &Axes)]>,
        measure: Option<Measure>,
    ) -> Option<Self> {
        let text = field.string("a condition: \"A.cycles < B.cycles\"")?;
        let wrong = |mistake: Mistake| {
            let place = match mistake.at.is_empty() {
                true => field.span(),
                false => field.part(mistake.at),
            };
            let error = field.error(mistake.message).at(place);
            field.push(error.label("here").help(mistake.help));
        };
        let check = Self::parse(text, field.span());
        let resolved = check.and_then(|check| {
            points.map_or(Ok(()), |points| check.resolve(points))?;
            measure.map_or(Ok(()), |measure| check.measured_by(measure))?;
            Ok(check)
        });
        resolved.map_err(wrong).ok()
    }

    /// Refuses a quantity that such a measurement does not have.
    fn measured_by(&self, measure: Measure) -> Result<(), Mistake> {
        if let Some((needed, at)) = self.needs().find(|(needed, _)| *needed != measure) {
            let (name, message) = match needed {
                Measure::Profile => ("profile", "only a profile has groups of pages"),
                Measure::Printed => ("printed", "only a command prints numbers"),
                _ => ("cyclictest", "only cyclictest measures latencies"),
            };
            return Err(Mistake {
                at,
                message: message.into(),
                help: format!("write measure = \"{name}\", or compare cycles"),
            });
        }
        if measure == Measure::Segments {
            return Ok(());
        }
        let Some((_, event, at)) = self.events().next() else {
            return Ok(());
        };
        let (what, help) = match measure {
            Measure::Profile => ("a profile", "groups, such as steps.group_2"),
            Measure::Printed => (
                "a printed number",
                "printed numbers, such as solo.printed_time",
            ),
            _ => ("cyclictest", "latencies, such as alone.avg_us"),
        };
        Err(Mistake {
            at,
            message: format!("{what} does not count event `{event}`"),
            help: format!("compare {help}"),
        })
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        [&self.left, &self.right]
            .into_iter()
            .filter_map(|side| match side {
                Operand::Scaled(_, selector) => Some(selector),
                Operand::Number(_) => None,
            })
    }

    /// Checks that these runs have the variants, axes and labels that it names.
    ///
    /// # Errors
    ///
    /// Returns the first name that no run has.
    pub fn resolve(&self, points: &[(&str, &Axes)]) -> Result<(), Mistake> {
        for selector in self.selectors() {
            let mistake = |message: String, help: String| {
                Err(Mistake {
                    at: selector.at.clone(),
                    message,
                    help,
                })
            };
            let of: Vec<&Axes> = points
                .iter()
                .filter(|(name, _)| *name == selector.variant)
                .map(|(_, axes)| *axes)
                .collect();
            let Some(first) = of.first() else {
                let mut known: Vec<&str> = points.iter().map(|(name, _)| *name).collect();
                known.dedup();
                let message = format!("there is no variant `{}`", selector.variant);
                return mistake(message, suggest(&selector.variant, "variants", known));
            };
            for (axis, label) in &selector.axes {
                if !first.contains_key(axis) {
                    let message = format!("variant `{}` has no axis `{axis}`", selector.variant);
                    return mistake(
                        message,
                        suggest(axis, "axes", first.keys().map(String::as_str)),
                    );
                }
                if !of.iter().any(|axes| axes.get(axis) == Some(label)) {
                    let mut known: Vec<&str> = of
                        .iter()
                        .filter_map(|axes| axes.get(axis))
                        .map(String::as_str)
                        .collect();
                    known.dedup();
                    let message = format!(
                        "axis `{axis}` of variant `{}` has no value `{label}`",
                        selector.variant
                    );
                    return mistake(message, suggest(label, "values", known));
                }
            }
        }
        Ok(())
    }

    /// Returns the events that it names, each with the variant and its position in the text.
    pub fn events(&self) -> impl Iterator<Item = (&str, &str, Range<usize>)> {
        self.selectors()
            .filter_map(|selector| match &selector.quantity {
                Quantity::Event(event) => Some((
                    selector.variant.as_str(),
                    event.as_str(),
                    selector.at.clone(),
                )),
                _ => None,
            })
    }

    /// Returns the events of a run that it names.
    pub fn events_in(&self, variant: &str, axes: &Axes) -> impl Iterator<Item = &str> {
        let fits = move |selector: &&Selector| {
            selector.variant == variant
                && selector
                    .axes
                    .iter()
                    .all(|(axis, label)| axes.get(axis) == Some(label))
        };
        self.selectors()
            .filter(fits)
            .filter_map(|selector| match &selector.quantity {
                Quantity::Event(event) => Some(event.as_str()),
                _ => None,
            })
    }

    /// Returns the measurements that it needs, where only one kind of run has them, each with its
    /// position in the text.
    pub fn needs(&self) -> impl Iterator<Item = (Measure, Range<usize>)> {
        self.selectors()
            .filter_map(|selector| Some((selector.quantity.needs()?, selector.at.clone())))
    }

    /// Returns whether it holds in all runs that its sides select. If both sides select runs, it
    /// compares runs with the same labels on the axes that both have, except on axes for which both
    /// sides name a label.
    pub fn judge(&self, runs: Runs<'_>, baseline: &str) -> Verdict {
        let select = |selector: &Selector| -> Vec<&Measured> {
            let fits = |run: &&Measured| {
                selector
                    .axes
                    .iter()
                    .all(|(axis, label)| run.label(axis) == label)
            };
            runs.of(&selector.variant).filter(fits).collect()
        };
        let mut pairs: Vec<(&Measured, f64, f64)> = vec![];
        let value = |side: &Operand, run: &Measured| match side {
            Operand::Number(number) => Some(*number),
            Operand::Scaled(factor, selector) => {
                Some(factor * selector.quantity.of(run, runs, baseline)?)
            }
        };
        match (&self.left, &self.right) {
            (Operand::Scaled(_, left), Operand::Scaled(_, right)) => {
                let names = |selector: &Selector, axis: &String| {
                    selector.axes.iter().any(|(named, _)| named == axis)
                };
                let agree = |one: &Measured, other: &Measured| {
                    let mut shared = one
                        .axes
                        .iter()
                        .filter(|(axis, _)| !(names(left, axis) && names(right, axis)));
                    shared.all(|(axis, label)| {
                        other.axes.get(axis).is_none_or(|theirs| theirs == label)
                    })
                };
                for one in select(left) {
                    for other in select(right).into_iter().filter(|other| agree(one, other)) {
                        match (value(&self.left, one), value(&self.right, other)) {
                            (Some(left), Some(right)) => pairs.push((one, left, right)),
                            (None, _) => return Verdict::Missing(one.key()),
                            (_, None) => return Verdict::Missing(other.key()),
                        }
                    }
                }
            }
            (Operand::Scaled(_, selector), _) | (_, Operand::Scaled(_, selector)) => {
                for run in select(selector) {
                    match (value(&self.left, run), value(&self.right, run)) {
                        (Some(left), Some(right)) => pairs.push((run, left, right)),
                        _ => return Verdict::Missing(run.key()),
                    }
                }
            }
            (Operand::Number(_), Operand::Number(_)) => {}
        }
        let closeness = |pair: &&(&Measured, f64, f64)| (pair.1 - pair.2).abs();
        if let Some((run, left, right)) = pairs
            .iter()
            .filter(|(_, left, right)| !self.relation.holds(*left, *right))
            .max_by(|one, other| closeness(one).total_cmp(&closeness(other)))
        {
            return Verdict::Fails(run.key(), *left, *right);
        }
        match pairs
            .iter()
            .min_by(|one, other| closeness(one).total_cmp(&closeness(other)))
        {
            Some((run, left, right)) => Verdict::Holds(run.key(), *left, *right),
            None => Verdict::NotRun,
        }
    }
}

/// Reads a check from left to right.
struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn mistake(&self, at: Range<usize>, message: impl Into<String>) -> Mistake {
        let help = "write QUANTITY <= NUMBER or QUANTITY <= NUMBER * QUANTITY with <=, <, >=, >, \
                    == or !=; a quantity is VARIANT.NAME or VARIANT[AXIS=VALUE].NAME"
            .to_owned();
        Mistake {
            at,
            message: message.into(),
            help,
        }
    }

    fn space(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }

    fn eat(&mut self, token: &str) -> bool {
        self.space();
        let found = self.text[self.at..].starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Returns the longest piece of such letters from here on.
    fn piece(&mut self, of: impl Fn(char) -> bool) -> (String, Range<usize>) {
        self.space();
        let rest = &self.text[self.at..];
        let end = self.at + rest.find(|c| !of(c)).unwrap_or(rest.len());
        let range = self.at..end;
        self.at = end;
        (self.text[range.clone()].to_owned(), range)
    }

    fn relation(&mut self) -> Result<Relation, Mistake> {
        for (text, relation) in RELATIONS {
            if self.eat(text) {
                return Ok(relation);
            }
        }
        Err(self.mistake(self.at..self.text.len(), "a comparison is missing here"))
    }

    fn operand(&mut self) -> Result<Operand, Mistake> {
        self.space();
        if !self.text[self.at..].starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Operand::Scaled(1.0, self.selector()?));
        }
        let (digits, at) = self.piece(|c| c.is_ascii_digit() || matches!(c, '_' | '.'));
        let number = digits.replace('_', "").parse::<f64>();
        let number = number.map_err(|_| self.mistake(at, format!("`{digits}` is not a number")))?;
        let number = if self.eat("%") {
            number / 100.0
        } else {
            number
        };
        if self.eat("*") {
            Ok(Operand::Scaled(number, self.selector()?))
        } else {
            Ok(Operand::Number(number))
        }
    }

    fn selector(&mut self) -> Result<Selector, Mistake> {
        let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
        let (variant, start) = self.piece(is_name);
        if variant.is_empty() {
            return Err(self.mistake(
                start.start..self.text.len(),
                "a number or the name of a variant is missing here",
            ));
        }
        let mut axes = vec![];
        if self.eat("[") {
            loop {
                let (axis, at) = self.piece(is_name);
                if axis.is_empty() || !self.eat("=") {
                    return Err(self.mistake(
                        at.start..self.at.max(at.start + 1).min(self.text.len()),
                        "write [AXIS=VALUE]",
                    ));
                }
                let (label, _) = self.piece(|c| !matches!(c, ',' | ']'));
                axes.push((axis, label.trim().to_owned()));
                if self.eat("]") {
                    break;
                }
                if !self.eat(",") {
                    return Err(
                        self.mistake(at.start..self.text.len(), "a closing bracket is missing")
                    );
                }
            }
        }
        if !self.eat(".") {
            let message = format!("the quantity of variant `{variant}` is missing");
            return Err(self.mistake(start.start..self.at, message));
        }
        let (name, at) = self.piece(is_name);
        let Some(quantity) = Quantity::named(&name) else {
            let help = format!(
                "{}; or the name of an event, such as L2D_CACHE_REFILL",
                suggest(&name, "quantities", Quantity::names())
            );
            return Err(Mistake {
                at,
                message: format!("there is no quantity `{name}`"),
                help,
            });
        };
        Ok(Selector {
            variant,
            axes,
            quantity,
            at: start.start..at.end,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::measured::tests::run;

    fn parse(text: &str) -> Result<Check, Mistake> {
        Check::parse(text, 0..text.len())
    }

    fn mistake(text: &str) -> (String, String) {
        let mistake = parse(text).expect_err("a mistake");
        (text[mistake.at].to_owned(), mistake.message)
    }

    #[test]
    fn mistakes_are_marked_where_they_are() {
        for (text, at, message) in [
            ("private.slowdown", "", "a comparison is missing here"),
            (
                "private.slowdon <= 1",
                "slowdon",
                "there is no quantity `slowdon`",
            ),
            (
                "private <= 1",
                "private ",
                "the quantity of variant `private` is missing",
            ),
            (
                "<= 1",
                "<= 1",
                "a number or the name of a variant is missing here",
            ),
            (
                "a.slowdown <= b.cycles",
                "b.cycles",
                "a ratio cannot be compared with cycles",
            ),
            ("1 < 2", "1 < 2", "both sides are numbers"),
            ("a.cycles < 1.2.3", "1.2.3", "`1.2.3` is not a number"),
            (
                "a.cycles < 1 and b",
                "and b",
                "more follows after the comparison",
            ),
            (
                "a[pages=4.cycles < 1",
                "pages=4.cycles < 1",
                "a closing bracket is missing",
            ),
        ] {
            assert_eq!(mistake(text), (at.to_owned(), message.to_owned()), "{text}");
        }
        assert!(
            parse("private.slowdon <= 1")
                .expect_err("a mistake")
                .help
                .contains("did you mean `slowdown`?")
        );
    }

    #[test]
    fn names_that_no_run_has_are_found() {
        let runs = [run("solo", &[], 100), run("sweep", &[("pages", "4")], 300)];
        let points: Vec<_> = runs
            .iter()
            .map(|run| (run.variant.as_str(), &run.axes))
            .collect();
        let message = |text: &str| {
            parse(text)
                .expect("a check")
                .resolve(&points)
                .map_err(|mistake| mistake.message)
        };
        assert_eq!(message("solo.cycles < 1"), Ok(()));
        assert_eq!(
            message("sole.cycles < 1"),
            Err("there is no variant `sole`".into())
        );
        assert_eq!(
            message("sweep[page=4].cycles < 1"),
            Err("variant `sweep` has no axis `page`".into())
        );
        assert_eq!(
            message("sweep[pages=5].cycles < 1"),
            Err("axis `pages` of variant `sweep` has no value `5`".into())
        );
    }

    #[test]
    fn a_check_holds_in_every_run_or_fails_in_a_named_one() {
        let runs = [
            run("solo", &[], 100),
            run("sweep", &[("pages", "4")], 300),
            run("sweep", &[("pages", "8")], 110),
        ];
        let judge = |text: &str| parse(text).expect("a check").judge(Runs(&runs), "solo");
        assert_eq!(
            judge("sweep.slowdown <= 3"),
            Verdict::Holds("sweep-pages=4".into(), 3.0, 3.0)
        );
        assert_eq!(
            judge("sweep.slowdown < 3"),
            Verdict::Fails("sweep-pages=4".into(), 3.0, 3.0)
        );
        assert_eq!(
            judge("sweep.slowdown < 1.05"),
            Verdict::Fails("sweep-pages=4".into(), 3.0, 1.05),
            "the worst of those that fail"
        );
        assert_eq!(
            judge("sweep.slowdown > 4"),
            Verdict::Fails("sweep-pages=8".into(), 1.1, 4.0)
        );
        assert_eq!(
            judge("sweep[pages=8].slowdown <= 1.1"),
            Verdict::Holds("sweep-pages=8".into(), 1.1, 1.1)
        );
        assert_eq!(
            judge("sweep[pages=8].cycles <= 1.05 * solo.cycles"),
            Verdict::Fails("sweep-pages=8".into(), 110.0, 105.0)
        );
        assert_eq!(
            judge("sweep[pages=8].cycles < sweep[pages=4].cycles"),
            Verdict::Holds("sweep-pages=8".into(), 110.0, 300.0),
            "labels that both sides name may differ"
        );
        assert_eq!(
            judge("solo.spread <= 5 %"),
            Verdict::Fails("solo".into(), 0.1, 0.05)
        );
        assert_eq!(
            judge("solo.L2D_CACHE_REFILL == 7"),
            Verdict::Holds("solo".into(), 7.0, 7.0)
        );
        assert_eq!(
            judge("solo.BUS_ACCESS > 0"),
            Verdict::Missing("solo".into())
        );
        assert_eq!(judge("sweep[pages=12].cycles > 0"), Verdict::NotRun);
    }
}
