//! Hypotheses: the event that a counter may really count, if it is not the documented one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::manifest::Manifest;
use crate::document::{self, Table, suggest};
use crate::problem::Errors;
use cloison_metrics::Formula;
use std::path::Path;

/// The claim of a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The event counts what it should; the expectation was derived wrongly.
    Expectation,
    /// The event counts something else, by a mechanism that the source describes.
    Mechanism,
    /// The event counts in proportion; nobody knows why.
    Factor,
}

impl Kind {
    const WORDS: [(&str, Self); 3] = [
        ("expectation", Self::Expectation),
        ("mechanism", Self::Mechanism),
        ("factor", Self::Factor),
    ];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or("", |(word, _)| word)
    }
}

/// A formula that an event may count.
#[derive(Clone, Debug)]
pub struct Hypothesis {
    /// The event's name.
    pub event: String,
    /// Its count, as arithmetic with the benchmarks' quantities and the counts of other events.
    pub counts: Formula,
    /// Its claim.
    pub kind: Kind,
    /// The mechanism, or why the expectation was wrong.
    pub because: String,
    /// Where that is described; a factor has none.
    pub source: String,
}

impl Hypothesis {
    /// Reads and validates the hypotheses about a manifest's events.
    ///
    /// # Errors
    ///
    /// Returns all errors of the file with their positions.
    pub fn load(path: &Path, manifest: &Manifest) -> Result<Vec<Self>, Errors> {
        document::load(path, "name a file of hypotheses", |root| {
            let tables = root.tables("hypothesis");
            if tables.is_empty() {
                let error = root
                    .error("hypothesis", 0..0, "there is no hypothesis")
                    .label("in this file");
                root.push(error.help(
                    "add a [[hypothesis]] with `event`, `kind`, `counts`, `because` and `source`",
                ));
            }
            let all: Vec<Self> = tables
                .into_iter()
                .filter_map(|mut table| read(&mut table, manifest))
                .collect();
            root.finish_ref();
            Some(all)
        })
    }
}

fn read(table: &mut Table<'_>, manifest: &Manifest) -> Option<Hypothesis> {
    let event = table.required("event", "name the event: event = \"L2D_CACHE\"")?;
    let name = event.string("an event's name")?.to_owned();
    table.rename(&name);
    let known = manifest
        .events
        .iter()
        .map(|expectation| expectation.event.as_str());
    if manifest.event(&name).is_none() {
        let error = event
            .error(format!("the manifest has no event `{name}`"))
            .label("unknown event");
        event.push(error.help(suggest(&name, "events", known)));
    }
    let kind = table.required(
        "kind",
        "say what it claims: \"expectation\", \"mechanism\" or \"factor\"",
    );
    let kind = kind.and_then(|field| field.one_of("kind", &Kind::WORDS));
    let counts = table.required(
        "counts",
        "say what it counts: counts = \"lookups + evictions\"",
    );
    let counts = counts.and_then(|field| {
        let counts = manifest.formula(&field, &name)?;
        let documented = manifest
            .event(&name)
            .is_some_and(|expectation| expectation.counts == counts);
        if documented {
            let error = field
                .error(format!("`{counts}` is what {name} counts by the manifest"))
                .label("the same");
            field.push(error.help("say what it counts instead"));
        }
        Some(counts)
    });
    let because = table.required(
        "because",
        "name the mechanism: because = \"the L1 writes evicted lines to the L2\"",
    );
    let because = because.and_then(|field| field.string("a text").map(str::to_owned));
    let source = table
        .optional("source")
        .and_then(|field| field.string("a text"))
        .unwrap_or_default()
        .to_owned();
    if source.is_empty() && kind.is_some_and(|kind| kind != Kind::Factor) {
        let error = table
            .error("source", table.span(), "a mechanism needs a source")
            .label("`source` belongs here");
        let help = "cite who describes it: source = \"Cortex-A53 manual, 7.6\"; without one it is \
                    kind = \"factor\"";
        table.push(error.help(help));
    }
    table.finish_ref();
    Some(Hypothesis {
        event: name,
        counts: counts?,
        kind: kind?,
        because: because?,
        source,
    })
}
