//! `rank-apps`: what it is worth to put the pages that a profile ranks first into private cache, for programs that nobody built for it.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::findings::{Cell, Findings, Runs, Series, columns, falls};
use super::measured::Measured;
use super::numbers;
use super::plot::{Chart, Line, Marks};
use super::printed::{self, Printed};
use miette::{Result, miette};

/// By how much a point of a curve may exceed the one before it: two runs of one program differ by that much.
const NOISE: f64 = 0.05;

/// Which pages are private in a case: the name of what was printed, and a title.
const PRIVATE: [(&str, &str); 4] = [
    ("top", "top k* private"),
    ("random", "random k* private"),
    ("half_top", "top k*/2 private"),
    ("half_random", "random k*/2 private"),
];

/// What was measured of one program.
struct Program<'a> {
    name: &'a str,
    printed: &'a Printed,
    /// The rank curve: numbers of cacheable pages, and cycles.
    curve: Vec<(f64, f64)>,
}

impl<'a> Program<'a> {
    fn new(run: &'a Measured) -> Result<Self> {
        let missing = || {
            miette!(
                "run `{}` has no numbers: measure = \"printed\"",
                run.variant
            )
        };
        let printed = run.printed.as_ref().ok_or_else(missing)?;
        let point = |name: &String| {
            let k: u32 = name.strip_prefix("rank_")?.parse().ok()?;
            Some((f64::from(k), printed::mean(printed, name)?))
        };
        let mut curve: Vec<(f64, f64)> = printed.keys().filter_map(point).collect();
        curve.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(Self {
            name: &run.variant,
            printed,
            curve,
        })
    }

    fn mean(&self, name: &str) -> Result<f64> {
        printed::mean(self.printed, name)
            .ok_or_else(|| miette!("the run of `{}` has not printed `{name}`", self.name))
    }

    /// Returns which part of what Interf costs is gone when these pages are private.
    fn gain(&self, private: &str) -> Result<f64> {
        let (alone, interf) = (self.mean("alone")?, self.mean("interf")?);
        Ok((interf - self.mean(private)?) / (interf - alone))
    }

    /// Returns in how many repetitions the function was shorter with the first pages private than with the second.
    fn wins(&self, one: &str, other: &str) -> u32 {
        let numbers = |what: &str| self.printed.get(what).into_iter().flatten();
        numbers(one)
            .zip(numbers(other))
            .map(|(one, other)| u32::from(one < other))
            .sum()
    }

    fn curve_falls(&self) -> bool {
        let cycles: Vec<f64> = self.curve.iter().map(|(_, cycles)| *cycles).collect();
        falls(&cycles, NOISE)
    }

    /// Returns the row of its pages, and of how many are enough.
    fn pages(&self) -> Result<Vec<Cell>> {
        let falls = Cell::Text(if self.curve_falls() { "yes" } else { "no" }.to_owned());
        let [pages, none, all, k, runs] =
            ["pages", "none", "all", "k", "runs"].map(|what| self.count(what));
        Ok(vec![self.name(), pages?, none?, all?, k?, falls, runs?])
    }

    /// Returns its cycles next to Interf relative to those alone: nothing moved, and then each of [`PRIVATE`].
    fn slowdowns(&self) -> Result<Vec<f64>> {
        let alone = self.mean("alone")?;
        let cases = ["interf"].into_iter().chain(PRIVATE.map(|(what, _)| what));
        cases.map(|what| Ok(self.mean(what)? / alone)).collect()
    }

    /// Returns the row of the other input and which part of the gain is kept, if some number of pages could be moved with it.
    fn other_input(&self) -> Option<(Vec<Cell>, f64)> {
        let [interf, own, theirs] =
            ["other_interf", "other_own", "other_theirs"].map(|what| self.mean(what).ok());
        let kept = (interf? - theirs?) / (interf? - own?);
        let cells = ["other_pages", "other_interf", "other_own", "other_theirs"]
            .map(|what| self.count(what).ok());
        let mut row = vec![self.name()];
        row.extend(cells.into_iter().collect::<Option<Vec<_>>>()?);
        row.push(Cell::Value(kept));
        Some((row, kept))
    }

    /// Returns its curve, relative to its first point.
    fn line(&self) -> Line {
        let one = self.curve.first().map_or(1.0, |first| first.1);
        Line {
            name: self.name.to_owned(),
            points: self
                .curve
                .iter()
                .map(|(k, cycles)| (*k, cycles / one))
                .collect(),
        }
    }

    fn name(&self) -> Cell {
        Cell::Text(self.name.to_owned())
    }

    fn count(&self, what: &str) -> Result<Cell> {
        self.mean(what).map(|value| Cell::Count(value as u64))
    }
}

/// Evaluates the runs.
pub fn find(runs: Runs<'_>) -> Result<Findings> {
    let mut found = Findings::default();
    let programs = runs
        .0
        .iter()
        .map(Program::new)
        .collect::<Result<Vec<_>>>()?;
    for program in &programs {
        for name in program
            .printed
            .keys()
            .filter(|name| !name.starts_with("rank_"))
        {
            found.figure(format!("{}_{name}", program.name), program.mean(name)?);
        }
        for (what, _) in PRIVATE {
            found.figure(format!("{}_{what}_gain", program.name), program.gain(what)?);
        }
        found.figure(
            format!("{}_wins", program.name),
            f64::from(program.wins("top", "random")),
        );
    }
    found.series.extend(numbers::all(runs));
    ranked(&programs, &mut found)?;
    beside_interf(&programs, &mut found)?;
    exchanged(&programs, &mut found);
    say(&programs, &mut found)?;
    Ok(found)
}

/// How many pages are enough, alone.
fn ranked(programs: &[Program<'_>], found: &mut Findings) -> Result<()> {
    let rows = programs.iter().map(Program::pages).collect::<Result<_>>()?;
    let names = [
        "program",
        "pages",
        "none_cacheable",
        "all_cacheable",
        "k_star",
        "curve_falls",
        "runs",
    ];
    let series = Series {
        name: "ranked".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "Pages, and how many are enough",
        "Cycles of the function with none of the profiled pages cacheable, and with all; k*: how many of the most important ones are \
         enough, by `bbprof rank`. Whether each point of the curve is at most 5 % above the one before it. Runs of the program that its \
         profile took.",
    ));
    found.series.push(series);
    let point = |program: &Program<'_>, (k, cycles): &(f64, f64)| {
        vec![program.name(), Cell::Count(*k as u64), Cell::Value(*cycles)]
    };
    let rows = programs
        .iter()
        .flat_map(|program| program.curve.iter().map(move |it| point(program, it)))
        .collect();
    found.series.push(Series {
        name: "curves".into(),
        columns: columns(["program", "pages", "cycles"]),
        rows,
    });
    found.charts.push(Chart {
        title: "The k most important pages cacheable (modelled)".into(),
        x: "cacheable pages".into(),
        y: "cycles / none cacheable".into(),
        log: true,
        log_x: false,
        marks: Marks::Lines(programs.iter().map(Program::line).collect()),
    });
    Ok(())
}

/// What private pages are worth.
fn beside_interf(programs: &[Program<'_>], found: &mut Findings) -> Result<()> {
    let (mut rows, mut bars) = (vec![], vec![]);
    for program in programs {
        let slowdowns = program.slowdowns()?;
        let mut row = vec![program.name(), program.count("alone")?];
        row.extend(slowdowns.iter().map(|slowdown| Cell::Value(*slowdown)));
        rows.push(row);
        bars.push((program.name.to_owned(), slowdowns));
    }
    let names = ["program", "alone", "interf"]
        .into_iter()
        .chain(PRIVATE.map(|(what, _)| what));
    let series = Series {
        name: "interf".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "Next to Interf",
        "Cycles alone; relative to that, next to three cores that store over 420 KiB each: with all pages in the pool that they share, \
         with the k* most important ones in private colors, with k* chosen at random of all that were profiled, and with half as many \
         of both kinds. Means of five.",
    ));
    found.series.push(series);
    let names = ["nothing moved"]
        .into_iter()
        .chain(PRIVATE.map(|(_, title)| title));
    found.charts.push(Chart {
        title: "Next to Interf (modelled)".into(),
        x: String::new(),
        y: "cycles / alone".into(),
        log: false,
        log_x: false,
        marks: Marks::Bars(names.map(str::to_owned).collect(), bars),
    });
    Ok(())
}

/// What the profile of one input is worth for another.
fn exchanged(programs: &[Program<'_>], found: &mut Findings) {
    let mut rows = vec![];
    for program in programs {
        if let Some((row, kept)) = program.other_input() {
            found.figure(format!("{}_gain_kept", program.name), kept);
            rows.push(row);
        }
    }
    let names = [
        "program",
        "private_pages",
        "interf",
        "own_profile",
        "other_profile",
        "gain_kept",
    ];
    let series = Series {
        name: "inputs".into(),
        columns: columns(names),
        rows,
    };
    found.tables.push(series.table(
        "With another input",
        "Cycles of the function with the other input next to Interf: nothing moved; with so many pages private, by a profile of this \
         input; by that of the first one; which part of the gain is kept. Means of three.",
    ));
    found.series.push(series);
}

fn say(programs: &[Program<'_>], found: &mut Findings) -> Result<()> {
    let (mut wins, mut clear) = (0_u32, 0_u32);
    for program in programs {
        wins += u32::from(program.mean("top")? < program.mean("random")?);
        let repetitions = program.printed.get("top").map_or(0, Vec::len);
        clear += u32::from(program.wins("top", "random") as usize == repetitions);
    }
    found.figure("profile_wins", f64::from(wins));
    found.figure("profile_clear_wins", f64::from(clear));
    found.say(format!(
        "By their means, the k* pages that the profile ranks first are a better choice for the private pool than as many at random for \
         {wins} of {} programs; in every repetition for {clear}. Only the latter is more than noise. Where k* is nearly all pages, both are \
         nearly the same pages.",
        programs.len()
    ));
    found.say(
        "The programs are Debian's, and were not built for this; the pages are those of heap and stack, which are the program's own. \
         What Interf costs the pages of libraries, of files and of the kernel stays. Modelled, not measured: the caches and the timing of the model, within the function alone (roi = \"hint\").",
    );
    Ok(())
}
