//! Accounts of edited copies of the shipped experiments, and words that no text of theirs may have.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::super::cyclictest::Latencies;
use super::super::measured::{Measure, QuotaOutcome, Segment};
use super::super::overrides::Value as Toml;
use super::super::profiled::tests::profile;
use super::super::shows::Form;
use super::super::spec::{self, Experiment, Point};
use super::*;
use cloison_config::problem::SourceFile;
use cloison_engine::installation;
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::path::{Path, PathBuf};

/// The beginning of what an experiment's file says of its report.
const REPORT: &str = "# What the report says.";

/// Returns results that a run of a point could have. Their numbers are like none of the shipped
/// systems.
fn measured(experiment: &Experiment, index: usize, point: &Point, system: &Toml) -> Measured {
    let mut run = point.example(Some(system), &experiment.victim);
    let number = 77_777_000 / (index as u64 + 1);
    let events = run.segments[0].events.keys().cloned();
    run.segments = vec![Segment {
        cycles: number,
        events: events.map(|event| (event, number / 7)).collect(),
    }];
    run.quotas = vec![QuotaOutcome {
        core: 1,
        by_interrupt: true,
        periods: 977,
        throttled_periods: 888,
        events: number,
        max_overshoot: 77,
        overshoot: 7_777,
    }];
    match experiment.measure {
        Measure::Cyclictest => {
            run.latencies = Some(Latencies {
                histogram: [(77, 777), (87 + index as u64, 1)].into(),
                cycles: 778,
                min: 77,
                max: 87 + index as u64,
                avg: 77.7,
            });
        }
        Measure::Profile => run.profile = Some(profile([771, 772, 773, 774, 775])),
        Measure::Printed => {
            let names = [
                "alone",
                "interf",
                "top",
                "random",
                "half_top",
                "half_random",
                "pages",
                "none",
                "all",
                "k",
                "runs",
                "rank_1",
                "rank_7",
                "other_pages",
                "other_interf",
                "other_own",
                "other_theirs",
            ];
            let numbers = |at: usize| vec![777.0 + at as f64, 787.0 + at as f64];
            let all = names.iter().enumerate();
            run.printed = Some(
                all.map(|(at, name)| ((*name).to_owned(), numbers(at)))
                    .collect(),
            );
        }
        Measure::Segments => {}
    }
    run
}

/// Writes the account of runs that an experiment could have.
fn written(experiment: &Experiment) -> Result<Findings, Vec<Problem>> {
    let systems = experiment.systems(&experiment.points).expect("systems");
    let points = experiment.points.iter().zip(&systems).enumerate();
    let runs: Vec<Measured> = points
        .map(|(index, (point, system))| measured(experiment, index, point, system))
        .collect();
    let model = Board::zcu102();
    let subject = experiment.subject(Runs(&runs), &systems, &model);
    let written = experiment.account.write(subject);
    let problems = written.problems(&experiment.source);
    match problems.is_empty() {
        true => Ok(written.findings),
        false => Err(problems),
    }
}

/// Returns all that an experiment says in words: titles, notes, and the account.
fn said(path: &Path) -> Vec<String> {
    let experiment = spec::load(path, Form::Full).unwrap_or_else(|errors| panic!("{errors:?}"));
    let findings = written(&experiment).unwrap_or_else(|problems| panic!("{path:?}: {problems:?}"));
    let charts = findings.charts.iter();
    let charts = charts.flat_map(|chart| [chart.title.clone(), chart.x.clone(), chart.y.clone()]);
    let maps = findings.heatmaps.iter();
    let maps = maps.flat_map(|map| [map.title.clone(), map.x.clone(), map.y.clone()]);
    // Without the cells, which are numbers of the runs.
    let tables = findings.tables.iter().map(|table| {
        let text = table.to_text();
        let lines = text.lines().filter(|line| !line.starts_with(['|', '+']));
        lines.collect::<Vec<_>>().join("\n")
    });
    let plots = charts.chain(maps);
    tables.chain(plots).chain(findings.account).collect()
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory").flatten() {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).expect("a copy");
        }
    }
}

/// The numbers of the shipped systems, and what an edited copy has instead.
const EDITS: [(&str, &str); 6] = [
    ("420", "52"),
    ("64", "66"),
    ("65", "67"),
    ("105", "103"),
    ("315", "206"),
    ("[4, 20]", "[4, 17]"),
];

/// Returns a text with each number replaced that stands alone.
fn edited(text: &str) -> String {
    let mut text = text.to_owned();
    for (old, new) in EDITS {
        let mut at = 0;
        while let Some(found) = text[at..].find(old).map(|found| at + found) {
            let end = found + old.len();
            let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit() || c == '.');
            let inside = digit(text[..found].chars().next_back())
                || text[end..].starts_with(|c: char| c.is_ascii_digit());
            at = if inside {
                end
            } else {
                text.replace_range(found..end, new);
                found + new.len()
            };
        }
    }
    text
}

/// Edits a copy of the shipped experiments: one neighbor less, other buffers, calls and pages, and
/// fewer private colors. Only what runs is edited, and not its report.
fn edit(experiments: &Path) {
    for entry in std::fs::read_dir(experiments).expect("files").flatten() {
        let path = entry.path();
        if path.is_file() {
            let text = std::fs::read_to_string(&path).expect("a file");
            let (runs, report) = text.split_once(REPORT).unwrap_or((&text, ""));
            let text = format!("{}{REPORT}{report}", edited(runs));
            std::fs::write(&path, text).expect("written");
        }
    }
    for entry in std::fs::read_dir(experiments.join("systems"))
        .expect("systems")
        .flatten()
    {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let text = edited(&text).replace("\"12-15\"", "\"12-13\"");
        let mut system: toml::Table = text.parse().expect("a system");
        let vms = system
            .get_mut("vm")
            .and_then(Toml::as_array_mut)
            .expect("VMs");
        vms.retain(|vm| vm.get("name").and_then(Toml::as_str) != Some("interf-2"));
        std::fs::write(&path, system.to_string()).expect("written");
    }
}

/// Returns the words and numbers of a text, outside of what it says of a paper.
fn words(text: &str) -> Vec<&str> {
    let sentences = text.split(['\n', ';']).flat_map(|part| part.split(". "));
    sentences
        .filter(|sentence| !sentence.contains("paper"))
        .flat_map(|sentence| sentence.split(|c: char| !c.is_alphanumeric()))
        .collect()
}

#[test]
fn an_edited_copy_says_nothing_of_the_shipped_system() {
    let directory = tempfile::tempdir().expect("a directory");
    let configs = installation::root().join("configs");
    for part in ["experiments", "models"] {
        copy(
            &configs.join(part),
            &directory.path().join("configs").join(part),
        );
    }
    let experiments = directory.path().join("configs/experiments");
    edit(&experiments);
    let mut told = vec![];
    for name in spec::names().expect("experiments") {
        let shipped = said(&configs.join(format!("experiments/{name}.toml"))).join("\n");
        let copy = said(&experiments.join(format!("{name}.toml"))).join("\n");
        for old in ["three", "420", "64", "105", "315"] {
            assert!(
                !words(&copy).contains(&old),
                "{name} still says {old}: {copy}"
            );
            if words(&shipped).contains(&old) {
                told.push(format!("{name}: {old}"));
            }
        }
        for (of, new) in [
            ("demo", "two cores that each store over 52 KiB"),
            (
                "demo",
                "66 most important pages have moved to two private colors",
            ),
            ("demo", "a run of 17 calls"),
            ("cyclictest", "two cores that each store over 52 KiB"),
            (
                "interf-migration",
                "with 103 pages of each Interf moved away",
            ),
            ("rank-apps", "two cores that store over 52 KiB each"),
            ("c2is", "up to 32 pages"),
        ] {
            assert!(
                of != name || copy.contains(new),
                "{name} does not say `{new}`: {copy}"
            );
        }
    }
    // Otherwise the copies had nothing to get wrong.
    for old in ["demo: three", "demo: 420", "demo: 64", "cyclictest: three"] {
        assert!(told.iter().any(|it| it == old), "{old}: {told:?}");
    }
}

/// Numbers as words. `one` has other meanings.
const NUMBER_WORDS: [&str; 11] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];

/// Returns the first number in a sentence, outside of placeholders.
fn number_in(sentence: &str) -> Option<String> {
    let mut bare = String::new();
    let mut depth = 0_u32;
    for c in sentence.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    let mut words = bare.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.'));
    let is_number = |word: &&str| {
        NUMBER_WORDS.contains(&word.to_lowercase().as_str())
            || word.contains(|c: char| c.is_ascii_digit()) && !word.contains(char::is_alphabetic)
    };
    // A sentence has several words.
    let found = words.find(is_number).map(str::to_owned);
    found.filter(|_| bare.split_whitespace().count() > 3)
}

/// Adds the texts of a file's tokens, without those of tests and of attributes, such as comments.
fn texts(tokens: TokenStream, found: &mut Vec<String>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                // An attribute of the whole file.
                tokens.next_if(|next| next.to_string() == "!");
                let Some(TokenTree::Group(group)) = tokens.next() else {
                    continue;
                };
                if group.stream().to_string().replace(' ', "") == "cfg(test)" {
                    // The item ends with its body or a semicolon.
                    for token in tokens.by_ref() {
                        let ends = match token {
                            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                            TokenTree::Punct(punct) => punct.as_char() == ';',
                            _ => false,
                        };
                        if ends {
                            break;
                        }
                    }
                }
            }
            TokenTree::Group(group) => texts(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                if text.contains('"') {
                    found.push(text.trim_matches('"').replace("\\\n", ""));
                }
            }
            _ => {}
        }
    }
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in std::fs::read_dir(directory).expect("sources").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_sentence_with_a_number_is_compiled_in() {
    let example = "Next to three cores that each store over 420 KiB";
    assert_eq!(number_in(example), Some("three".to_owned()));
    assert_eq!(number_in("With {} pages the L2 holds {:.2} of them"), None);
    let mut found = vec![];
    for path in rust_files(&installation::root().join("host-tools/lab/src/experiment")) {
        let source = std::fs::read_to_string(&path).expect("a source");
        let mut all = vec![];
        texts(source.parse().expect("Rust"), &mut all);
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        // What Linux guests print when their command has succeeded.
        all.retain(|text| text != "cloison: the command ended with status 0");
        let numbers = all.into_iter().filter(|text| number_in(text).is_some());
        found.extend(numbers.map(|text| (name.clone(), text)));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What a shipped file says has numbers of the run alone, or of a paper.
#[test]
fn no_shipped_text_has_a_number_of_its_own() {
    let mut found = vec![];
    for name in spec::names().expect("experiments") {
        let path = spec::directory().join(format!("{name}.toml"));
        let file = std::fs::read_to_string(&path).expect("a file");
        let file: toml::Table = file.parse().expect("TOML");
        let mut all = vec![];
        let paragraphs = file.get("account").and_then(Toml::as_array);
        for paragraph in paragraphs.into_iter().flatten() {
            let parts = ["text", "otherwise"].map(|part| paragraph.get(part));
            all.extend(parts.into_iter().flatten().filter_map(Toml::as_str));
        }
        let tables = file.get("table").and_then(Toml::as_array);
        for table in tables.into_iter().flatten() {
            let parts = ["title", "note"].map(|part| table.get(part));
            all.extend(parts.into_iter().flatten().filter_map(Toml::as_str));
        }
        for sentence in all.iter().flat_map(|text| text.split(". ")) {
            if number_in(sentence).is_some() && !sentence.contains("paper") {
                found.push(format!("{name}: {sentence}"));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns the problems of the shipped demo with another text in its report: the line's text that is
/// marked, and the message.
fn mistakes(old: &str, new: &str) -> Vec<(String, usize, String)> {
    let directory = tempfile::tempdir().expect("a directory");
    let configs = installation::root().join("configs");
    for part in ["experiments", "models"] {
        copy(
            &configs.join(part),
            &directory.path().join("configs").join(part),
        );
    }
    let path = directory.path().join("configs/experiments/demo.toml");
    let text = std::fs::read_to_string(&path).expect("the demo");
    assert!(text.contains(old), "{old}");
    std::fs::write(&path, text.replacen(old, new, 1)).expect("written");
    let errors = spec::load(&path, Form::Quick).expect_err("a mistake");
    let problem = |problem: &Problem| {
        (
            problem.field().to_owned(),
            problem.line_and_column().0,
            problem.message().to_owned(),
        )
    };
    errors.problems().iter().map(problem).collect()
}

#[test]
fn a_name_without_a_meaning_is_found_when_the_file_is_read() {
    let path = spec::directory().join("demo.toml");
    let text = std::fs::read_to_string(path).expect("the demo");
    let line = |part: &str| {
        text.lines()
            .position(|line| line.contains(part))
            .expect("a line")
            + 1
    };
    for (old, new, field, message) in [
        (
            "{interf.slowdown:.2}",
            "{intref.slowdown:.2}",
            "account.text",
            "there is no variant or table `intref`",
        ),
        (
            "{interf.slowdown:.2}",
            "{interf.slowdwon:.2}",
            "account.text",
            "there is no quantity `slowdwon`",
        ),
        (
            "{interf:vm.interf-*.args.0:size}",
            "{interf:vm.interf-*.args.7:size}",
            "account.text",
            "the system has no `vm.interf-*.args.7`",
        ),
        (
            "{interf.slowdown:.2}",
            "{interf.slowdown:2}",
            "account.text",
            "there is no format `2`",
        ),
        (
            "{interf.slowdown:.2}",
            "{interf.slowdown:.2",
            "account.text",
            "there is no format `.2 times as long as alone. If a budget limits what each of them \
             may do ({quota:vm.interf-*.quota.0.budget`",
        ),
        (
            "value = \"L2D_CACHE_REFILL\"",
            "value = \"L2D_CACHE_REFIL\"",
            "table.columns.value",
            "VM `victim` does not count `L2D_CACHE_REFIL`",
        ),
        (
            "rows = [\"solo\", ",
            "rows = [\"sole\", ",
            "table.rows",
            "there is no variant `sole`",
        ),
    ] {
        let expected = (field.to_owned(), line(old), message.to_owned());
        assert_eq!(mistakes(old, new), [expected], "{new}");
    }
    // All mistakes are reported at once.
    let two = mistakes("{quota.slowdown:.2}", "{quota.slow} {what}");
    assert_eq!(two.len(), 1, "of one text the first: {two:?}");
}

#[test]
fn a_plot_over_two_expressions_is_a_heatmap() {
    let path = spec::directory().join("strict-colors.toml");
    let experiment = spec::load(&path, Form::Full).expect("an experiment");
    let findings = written(&experiment).unwrap_or_else(|problems| panic!("{problems:?}"));
    let [map] = findings.heatmaps.as_slice() else {
        panic!("{} heatmaps", findings.heatmaps.len())
    };
    let colors = experiment.points.iter().filter_map(|point| {
        let own = point.variant == "colored-interf";
        own.then(|| point.axes["colors"].clone())
    });
    let colors: std::collections::BTreeSet<String> = colors.collect();
    assert_eq!(map.columns.len(), colors.len(), "{:?}", map.columns);
    assert!(map.rows.len() > 1);
    for (row, values) in &map.rows {
        let known = values.iter().flatten().count();
        assert_eq!(known, colors.len(), "{row}");
    }
    // The demo's bars have no axis.
    let found = mistakes("marks = [", "y = \"slowdown\"\nmarks = [");
    let message = "a heatmap has an `x` and one mark, and nothing else";
    let [(field, _, said)] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(
        (field.as_str(), said.as_str()),
        ("table[cases].chart[0].y", message)
    );
}

/// Returns the account of a file with one table, whose column is this expression.
fn account_of(expression: &str) -> Account {
    let text = format!("table = [{{ name = 'all', columns = [{{ name = '{expression}' }}] }}]");
    let file = SourceFile::new(Path::new("mine.toml"), text);
    document::read(&file, Account::read).expect("an account")
}

#[test]
fn some_of_the_runs_know_the_names_of_all_and_no_other() {
    let mut axes = 0;
    for name in spec::names().expect("experiments") {
        let path = spec::directory().join(format!("{name}.toml"));
        let mut experiment = spec::load(&path, Form::Quick).expect("an experiment");
        let problems = written(&experiment).err();
        assert!(problems.is_none(), "{name}: {problems:?}");
        let first = experiment.points[0].variant.clone();
        experiment.points.retain(|point| point.variant == first);
        let examples = experiment.account.examples.clone();
        let mut messages = |expression: &str| -> Vec<String> {
            experiment.account = Account {
                titles: experiment.account.titles.clone(),
                examples: examples.clone(),
                ..account_of(expression)
            };
            let problems = written(&experiment).err().unwrap_or_default();
            let messages = problems.iter().map(|problem| problem.message().to_owned());
            messages.collect()
        };
        for axis in Runs(&examples).axes() {
            assert!(messages(axis).is_empty(), "{name}: {axis}");
            axes += 1;
        }
        let unknown = "there is no quantity `no_axis`";
        assert_eq!(messages("no_axis"), [unknown], "{name}");
    }
    assert!(axes > 0, "no shipped experiment has axes");
}

/// The complete example of the documentation.
#[test]
fn the_documented_example_is_written() {
    let page = installation::root().join("docs/experiments.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let section = page
        .split("## What an experiment reports")
        .nth(1)
        .expect("a section");
    let example = section
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .expect("an example");
    let directory = tempfile::tempdir().expect("a directory");
    let neighbor = |number: u32| format!("[[vm]]\nname = 'interf-{number}'\nargs = ['96K', 0]\n");
    let system = format!(
        "ends_with = 'victim'\n[[vm]]\nname = 'victim'\nargs = ['512K', 50, 0, 5]\n\
         hems = ['L2D_CACHE_REFILL']\n{}{}",
        neighbor(1),
        neighbor(2)
    );
    std::fs::write(directory.path().join("system.toml"), system).expect("a system");
    let path = directory.path().join("mine.toml");
    std::fs::write(&path, example).expect("an experiment");
    assert_eq!(
        said(&path),
        [
            "A victim in two cases\n  Median cycles of a segment, of which there are 5 with the \
             warm-up.",
            "Runtime (modelled)",
            "",
            "runtime / alone",
            "Next to two cores that each store over 96 KiB, the victim takes 0.50 times as long. \
             That is hardly more.",
        ]
    );
}
