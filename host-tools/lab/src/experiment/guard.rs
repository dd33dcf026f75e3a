//! Guards: conditions on our own results, which fail if something has changed, and their limits.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::{Axes, Check, Verdict};
use super::findings::shown;
use super::measured::Measure;
use cloison_config::document::{Field, Presence};
use cloison_engine::report::Section;
use cloison_engine::text::grouped;

/// A condition on our own results. The command fails if it does not hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Guard {
    /// The condition.
    pub check: Check,
    /// The limit before this one, if it was moved.
    pub moved: Option<MovedLimit>,
}

/// The earlier limit of a guard, and why it was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedLimit {
    /// The limit before, as text; the check has the one now.
    pub was: String,
    /// What has changed, or what the limit wrongly asked for.
    pub because: String,
}

impl Guard {
    /// Reads a guard: a condition, or a table of a `check`, the limit that it `was`, and `because`
    /// of what it was moved. Returns nothing if it has a mistake, which is recorded.
    pub fn read(
        field: &Field<'_>,
        points: Option<&[(&str, &Axes)]>,
        measure: Option<Measure>,
    ) -> Option<Self> {
        if field.is_string() {
            let check = Check::read(field, points, measure)?;
            return Some(Self { check, moved: None });
        }
        let table = field.table()?;
        let help = "write the condition: check = \"A.cycles < B.cycles\"";
        let check =
            table.required_value("check", help, |field| Check::read(field, points, measure));
        let was = table.value("was", Field::text);
        let because = table.value("because", Field::text);
        match (&was, &because) {
            (Presence::Given(was), Presence::Absent) => {
                let error = was.field.error("a limit was moved without a reason");
                let help = "say why it was moved: because = \"…\"";
                was.field.push(error.label("the limit before").help(help));
                return None;
            }
            (Presence::Absent, Presence::Given(because)) => {
                let error = because.field.error("a reason without the limit before");
                let help = "say what the limit was: was = \"…\"";
                because.field.push(error.label("the reason").help(help));
                return None;
            }
            _ => {}
        }
        table.finish();
        let moved = was.optional()?.zip(because.optional()?);
        Some(Self {
            check: check?.value,
            moved: moved.map(|(was, because)| MovedLimit {
                was: was.to_owned(),
                because: because.to_owned(),
            }),
        })
    }
}

/// Returns the verdicts on guards as a table, if there are any.
pub fn table(guards: &[Guard], verdicts: &[Verdict]) -> Option<Section> {
    let mut section = Section::new(
        "Guards",
        &["guard", "result", "run", "left side", "right side"],
    );
    for (guard, verdict) in guards.iter().zip(verdicts) {
        let (result, run, sides) = match verdict {
            Verdict::Holds(run, left, right) => ("holds", run.clone(), Some((left, right))),
            Verdict::Fails(run, left, right) => ("FAILS", run.clone(), Some((left, right))),
            Verdict::Missing(run) => ("FAILS: not measured", run.clone(), None),
            Verdict::NotRun => ("not run", String::new(), None),
        };
        let side = |pick: fn((&f64, &f64)) -> f64| {
            sides.map_or_else(String::new, |both| number(pick(both)))
        };
        section.row([
            guard.check.text.clone(),
            result.to_owned(),
            run,
            side(|both| *both.0),
            side(|both| *both.1),
        ]);
    }
    let note = "What was found here before, to notice change; no result of a paper. Of the runs \
                that a guard selects, the one that fails by most, or else the one closest to the limit.";
    (!guards.is_empty()).then(|| section.note(note))
}

/// Returns the guards whose limit was moved, if there are any.
pub fn moved(guards: &[Guard]) -> Option<Section> {
    let mut section = Section::new("Limits that were moved", &["guard", "before", "because"]);
    for guard in guards {
        if let Some(MovedLimit { was, because }) = &guard.moved {
            section.row([guard.check.text.clone(), was.clone(), because.clone()]);
        }
    }
    (!section.rows.is_empty()).then_some(section)
}

/// Formats a side of a comparison: a whole number as such.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && (0.0..1e15).contains(&value) {
        grouped(value as u64)
    } else {
        shown(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::shows::Form;
    use crate::experiment::spec;
    use cloison_engine::installation;

    #[test]
    fn a_moved_limit_has_a_reason() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("system.toml"), "ends_with = 'vic'")
            .expect("a system");
        let path = directory.path().join("mine.toml");
        let read = |guards: &str| {
            let text = format!("system = 'system.toml'\n{guards}\n[[variant]]\nname = 'solo'\n");
            std::fs::write(&path, text).expect("an experiment");
            spec::load(&path, Form::Full)
                .map_err(|errors| errors.problems()[0].message().to_owned())
        };
        let guard = "check = 'solo.cycles < 9', was = '7'";
        let right = read(&format!(
            "guards = ['solo.cycles > 1', {{ {guard}, because = 'why' }}]"
        ));
        let guards = right.expect("right").guards;
        let section = moved(&guards).expect("one was moved");
        assert_eq!(section.rows, [["solo.cycles < 9", "7", "why"]]);
        assert!(moved(&guards[..1]).is_none());
        assert_eq!(
            read(&format!("guards = [{{ {guard} }}]")).expect_err("no reason"),
            "a limit was moved without a reason"
        );
        assert_eq!(
            read("guards = [{ check = 'solo.cycles < 9', because = 'why' }]")
                .expect_err("no limit before"),
            "a reason without the limit before"
        );
        assert_eq!(
            read("checks = ['solo.cycles < 9']").expect_err("an earlier name"),
            "an experiment has guards and [[shows]], and no checks"
        );
    }

    /// The page lists each limit of a shipped file that was moved, with the one before.
    #[test]
    fn moved_limits_are_on_the_page() {
        let page = installation::root().join("docs/results/limits.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let mut moved = 0;
        for name in spec::names().expect("experiments") {
            let path = spec::directory().join(format!("{name}.toml"));
            let experiment = spec::load(&path, Form::Full).expect("an experiment");
            for guard in experiment.guards {
                let Some(limit) = guard.moved else { continue };
                moved += 1;
                let row = |line: &&str| {
                    line.starts_with(&format!("| `{name}` |"))
                        && line.contains(&format!("| {} |", limit.was))
                };
                assert!(page.lines().any(|line| row(&line)), "{}", guard.check.text);
            }
        }
        assert!(moved > 0);
    }
}
