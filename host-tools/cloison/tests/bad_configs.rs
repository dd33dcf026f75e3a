//! The messages on wrong configurations; the shipped ones have none.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod common {
    pub mod messages;
    pub mod snapshots;
}

use cloison::color_map;
use cloison_config::Errors;
use cloison_config::document;
use cloison_config::problem::Problem;
use cloison_engine::{configuration, installation};
use cloison_lab::experiment::shows::Form;
use cloison_lab::model::points;
use cloison_lab::{campaign, experiment};
use common::messages::render;
use std::path::{Path, PathBuf};

/// The `.toml` files of a directory of the checkout, sorted, relative to the checkout, which
/// becomes the current one.
fn configurations(dir: &str) -> Vec<PathBuf> {
    std::env::set_current_dir(installation::root()).expect("the checkout is there");
    let entries = std::fs::read_dir(dir).expect("the directory is there");
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a directory entry").path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    files
}

fn refused(path: &Path) -> Errors {
    configuration::load(path, None)
        .err()
        .unwrap_or_else(|| panic!("{} was accepted", path.display()))
}

#[test]
fn every_bad_configuration_has_its_message() {
    let files = configurations("tests/bad-configs");
    assert!(files.len() >= 30, "{} bad configurations", files.len());
    let settings =
        common::snapshots::settings(installation::root().join("tests/bad-configs/expected"));
    settings.bind(|| {
        for path in &files {
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("a plain file name");
            insta::assert_snapshot!(name, render(&refused(path)));
        }
    });
}

/// Compares the messages on all files of a directory, which `load` refuses, with the expected ones.
fn check_messages<T>(directory: &str, load: impl Fn(&Path) -> Result<T, Errors>) {
    let files = configurations(directory);
    assert!(!files.is_empty(), "{directory} has no files");
    let expected = installation::root().join(directory).join("expected");
    common::snapshots::settings(expected).bind(|| {
        for path in &files {
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .expect("a plain file name");
            let errors = load(path)
                .err()
                .unwrap_or_else(|| panic!("{} was accepted", path.display()));
            let shown = render(&errors);
            for problem in errors.problems() {
                let (line, column) = problem.line_and_column();
                assert!(
                    shown.contains(&format!("[{}:{line}:{column}]", problem.file())),
                    "{shown}"
                );
                assert!(!problem.field().is_empty(), "{shown}");
                assert!(miette::Diagnostic::help(problem).is_some(), "{shown}");
            }
            insta::assert_snapshot!(name, shown);
        }
    });
}

#[test]
fn every_bad_file_of_measurements_has_its_message() {
    check_messages("tests/bad-points", points::load);
}

#[test]
fn every_bad_campaign_has_its_message() {
    check_messages("tests/bad-campaigns", campaign::spec::load);
}

#[test]
fn every_bad_experiment_has_its_message() {
    check_messages("tests/bad-experiments", |path| {
        experiment::spec::load(path, Form::Full)
    });
}

fn changes(path: &Path) -> Result<usize, Errors> {
    let source = document::open(path, "name a model")?;
    Ok(experiment::changes::changes(&source)?.len())
}

#[test]
fn every_bad_model_without_what_is_known_has_its_message() {
    check_messages("tests/bad-models", changes);
}

/// Each `four.toml` has four mistakes in different places, in lines that end with `# wrong`.
#[test]
fn all_mistakes_of_a_file_are_reported_in_their_order() {
    let wrong_lines = |path: &Path| -> Vec<usize> {
        let text = std::fs::read_to_string(path).expect("it is there");
        let lines = (1..).zip(text.lines());
        lines
            .filter_map(|(number, line)| line.ends_with("# wrong").then_some(number))
            .collect()
    };
    let reported = |errors: Option<Errors>| -> Vec<usize> {
        let errors = errors.expect("it is refused");
        let problems = errors.problems().iter();
        problems
            .map(|problem| problem.line_and_column().0)
            .collect()
    };
    configurations("tests/bad-configs");
    type Load = fn(&Path) -> Option<Errors>;
    let kinds: [(&str, Load); 5] = [
        ("tests/bad-configs", |path| {
            configuration::load(path, None).err()
        }),
        ("tests/bad-points", |path| points::load(path).err()),
        ("tests/bad-campaigns", |path| {
            campaign::spec::load(path).err()
        }),
        ("tests/bad-experiments", |path| {
            experiment::spec::load(path, Form::Full).err()
        }),
        ("tests/bad-models", |path| changes(path).err()),
    ];
    for (directory, load) in kinds {
        let path = Path::new(directory).join("four.toml");
        let expected = wrong_lines(&path);
        assert_eq!(expected.len(), 4, "{directory}");
        assert_eq!(reported(load(&path)), expected, "{directory}");
    }
}

#[test]
fn the_shipped_measurements_are_right() {
    configurations("configs/models");
    let shipped = points::load(Path::new("configs/models/zcu102-public.toml"));
    let shipped = shipped.unwrap_or_else(|errors| panic!("{}", render(&errors)));
    assert!(
        shipped.points.len() >= 40,
        "{} points",
        shipped.points.len()
    );
    let page =
        std::fs::read_to_string("docs/results/validation.md").expect("the page with the results");
    for point in &shipped.points {
        assert!(
            page.contains(&format!("| `{}` | {} |", point.name, point.board)),
            "{} is not on the page",
            point.name
        );
    }
}

#[test]
fn every_expected_message_has_its_configuration() {
    let files = configurations("tests/bad-configs");
    for entry in std::fs::read_dir("tests/bad-configs/expected").expect("the directory is there") {
        let name = entry.expect("a directory entry").file_name();
        let name = name.to_str().expect("a plain file name");
        let stem = name.split('.').next().unwrap_or_default();
        let used = files
            .iter()
            .any(|path| path.file_stem().is_some_and(|file| file == stem));
        assert!(used, "{name} is left over");
    }
}

#[test]
fn every_problem_says_where_and_how_to_mend_it() {
    for path in configurations("tests/bad-configs") {
        let errors = refused(&path);
        assert!(
            errors.problems().iter().any(Problem::is_error),
            "{}",
            path.display()
        );
        for problem in errors.problems() {
            let shown = render(&errors);
            let (line, column) = problem.line_and_column();
            let place = format!("[{}:{line}:{column}]", problem.file());
            assert!(shown.contains(&place), "{place} is not in\n{shown}");
            assert!(
                Path::new(problem.file()).is_relative(),
                "{}",
                problem.file()
            );
            assert!(
                !problem.field().is_empty() && !problem.message().is_empty(),
                "{place}"
            );
            assert!(shown.contains("help: "), "{shown}");
        }
    }
}

#[test]
fn a_missing_configuration_is_an_error() {
    configurations("configs");
    let errors = refused(Path::new("configs/nowhere.toml"));
    assert!(
        errors.problems()[0]
            .message()
            .contains("cannot read configs/nowhere.toml")
    );
}

#[test]
fn the_command_line_chooses_the_board() {
    configurations("configs");
    let path = Path::new("configs/demo.toml");
    assert_eq!(
        configuration::load(path, None)
            .expect("a good one")
            .board
            .board
            .name,
        "virt"
    );
    assert_eq!(
        configuration::load(path, Some("zcu102"))
            .expect("a good one")
            .board
            .board
            .name,
        "zcu102"
    );
    let file = "configs/boards/zcu102.toml";
    assert_eq!(
        configuration::load(path, Some(file))
            .expect("a good one")
            .board
            .board
            .name,
        "zcu102"
    );
    let errors =
        configuration::load(path, Some("../boards/virt")).expect_err("no path is a board's name");
    assert_eq!(errors.problems()[0].field(), "board");
}

#[test]
fn shipped_configurations_are_right_on_every_board() {
    let files: Vec<PathBuf> = ["configs", "tests/configs"]
        .into_iter()
        .flat_map(configurations)
        .collect();
    assert!(files.len() >= 10, "{} configurations", files.len());
    let boards = configuration::emulated_boards().expect("the shipped boards are right");
    assert!(boards.len() >= 2, "{boards:?}");
    for path in &files {
        for board in &boards {
            let checked = match configuration::load(path, Some(board)) {
                Ok(checked) => checked,
                // Guests of a machine with a GICv2 do not run elsewhere.
                Err(errors) if path.ends_with("maps.toml") && board.starts_with("virt-gicv3") => {
                    assert!(render(&errors).contains("the map has no GICv3"));
                    continue;
                }
                Err(errors) => panic!("{board}:\n{}", render(&errors)),
            };
            assert_eq!(checked.system.validate(0), Ok(()));
            assert_eq!(checked.images.len(), checked.system.vms.len());
            let warnings: Vec<&str> = checked.warnings.iter().map(Problem::message).collect();
            assert!(
                warnings.is_empty(),
                "{} on {board}: {warnings:?}",
                path.display()
            );
        }
    }
}

#[test]
fn workloads_are_those_that_are_built() {
    configurations("configs");
    let dir = installation::root().join("guest-tools/workloads/src/bin");
    for (name, _) in cloison_config::sources::WORKLOADS {
        let (file, folder) = (
            dir.join(format!("{name}.rs")),
            dir.join(name).join("main.rs"),
        );
        assert!(
            file.is_file() || folder.is_file(),
            "there is no source of the workload {name}"
        );
    }
    for entry in std::fs::read_dir(&dir).expect("the workloads are there") {
        let path = entry.expect("a directory entry").path();
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        assert!(
            cloison_config::sources::WORKLOADS
                .iter()
                .any(|(known, _)| *known == name),
            "the checker does not know {name}"
        );
    }
}

/// The guests define the numbers of their segments; the reports' names for them are the same.
#[test]
fn segments_have_the_names_of_their_workloads() {
    let path = installation::root().join("guest-tools/workloads/src/lib.rs");
    let text = std::fs::read_to_string(path).expect("the workloads are there");
    let constants = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("pub const ")?
            .split_once(": u32 = ")
    });
    let constants: Vec<(u32, String)> = constants
        .map(|(name, number)| {
            let number = number.trim_end_matches(';').parse().expect("a number");
            (number, name.to_lowercase().replace('_', "-"))
        })
        .collect();
    let known = cloison_config::sources::SEGMENTS
        .iter()
        .map(|(number, name)| (*number, (*name).to_owned()));
    assert_eq!(constants, known.collect::<Vec<_>>());
    assert_eq!(cloison_config::sources::segment_name(3), "c2is (3)");
    assert_eq!(cloison_config::sources::segment_name(77), "77");
}

#[test]
fn the_color_map_of_the_demonstration() {
    configurations("configs");
    let checked = configuration::load(Path::new("configs/demo.toml"), None).expect("a good one");
    insta::with_settings!({ omit_expression => true }, {
        insta::assert_snapshot!("color-map", color_map::color_map(&checked));
    });
    let figures = color_map::figures(&checked);
    assert_eq!(figures["colors"], 16.0);
    assert_eq!(figures["colors_unused"], 0.0);
    assert_eq!(figures["pool_shared_pages_needed"], 4.0 * 4096.0);
    assert_eq!(figures["pool_victim-pvt_pages_needed"], 16.0);
    assert_eq!(figures["vm_victim_colors_alone"], 3.0);
}

/// The demo's configuration with texts replaced, in a separate directory.
fn changed(changes: &[(&str, &str)]) -> Result<cloison_config::Checked, Errors> {
    let profiles = installation::root().join("profiles").display().to_string();
    let mut text = std::fs::read_to_string("configs/demo.toml")
        .expect("it is there")
        .replace("../profiles", &profiles);
    for (from, to) in changes {
        assert!(text.contains(from), "{from} is not in the configuration");
        text = text.replace(from, to);
    }
    let dir = tempfile::tempdir().expect("a scratch directory");
    let path = dir.path().join("changed.toml");
    std::fs::write(&path, text).expect("it can be written");
    configuration::load(&path, None)
}

#[test]
fn warnings_do_not_refuse() {
    configurations("configs");
    for (from, to, field, message) in [
        (
            "colors = \"0-11\"",
            "colors = \"0-10\"",
            "hypervisor.colors",
            "nobody has the colors 11",
        ),
        (
            "after = \"5 ms\"",
            "",
            "vm[victim].profile.top",
            "no page moves on its own",
        ),
        (
            "[[vm]]\nname = \"victim\"",
            "[[pool]]\nname = \"more\"\nkind = \"SH\"\ncolors = \"0\"\n\n[[vm]]\nname = \"victim\"",
            "pool[more].name",
            "no VM uses pool `more`",
        ),
    ] {
        let checked = changed(&[(from, to)]).unwrap_or_else(|errors| panic!("{}", render(&errors)));
        let found = checked
            .warnings
            .iter()
            .any(|warning| warning.field() == field && warning.message().starts_with(message));
        assert!(
            found && checked.warnings.iter().all(|warning| !warning.is_error()),
            "{field}: {:?}",
            checked.warnings
        );
    }
}

#[test]
fn the_cache_holds_on_chip_memory_in_private_colors_too() {
    std::env::set_current_dir(installation::root()).expect("the checkout is there");
    let path = Path::new("configs/experiments/systems/ocm.toml");
    let checked = configuration::load(path, None).expect("it is right");
    let found = checked.warnings.iter().any(|warning| {
        warning.field() == "pool[chip].memory"
            && warning.message() == "the cache holds pages of `ocm` in sets of every color"
    });
    assert!(found, "{:?}", checked.warnings);
    let figures = color_map::figures(&checked);
    assert_eq!(figures["pool_chip_pages_available"], 64.0);
    assert_eq!(figures["vm_victim_colors"], 11.0, "of the cache");
    let map = color_map::color_map(&checked);
    assert!(map.contains("64 pages, 64 asked for, in ocm"), "{map}");
}

/// Which events count depends on the machine that runs the system, so the file itself is right.
#[test]
fn events_of_the_model_are_no_fault_of_the_configuration() {
    configurations("configs");
    let checked =
        changed(&[("[\"INST_RETIRED\", \"CPU_CYCLES\"]", "[\"L2D_CACHE\"]")]).expect("a good one");
    assert_eq!(
        checked
            .warnings
            .iter()
            .map(Problem::message)
            .collect::<Vec<_>>(),
        [""; 0]
    );
}

/// Gives the demo's first neighbor a quota on each of `events`. Returns the warnings that no quota
/// bounds its traffic, as they are shown.
fn warnings_about_bounds(events: &[&str]) -> Vec<String> {
    let text = std::fs::read_to_string("configs/demo.toml").expect("it is there");
    let start = text.find("[[vm.quota]]").expect("the neighbor has a quota");
    let end = start + text[start..].find("[[vm]]").expect("the next neighbor");
    let quota = |event: &&str| {
        let rest = "budget = \"20000 events / 1 ms\"\nallow_untrusted = true";
        format!("[[vm.quota]]\nevent = \"{event}\"\n{rest}\n\n")
    };
    let quotas: String = events.iter().map(quota).collect();
    let checked = changed(&[(&text[start..end], &quotas)])
        .unwrap_or_else(|errors| panic!("{}", render(&errors)));
    let about = checked
        .warnings
        .into_iter()
        .filter(|warning| warning.message().contains("bounds the memory traffic"));
    about
        .map(|warning| {
            assert_eq!(warning.field(), "vm[interf-1].quota[0].event");
            let line = text[..start].lines().count() + 2;
            assert_eq!(warning.line_and_column(), (line, 9), "{warning:?}");
            render(&Errors::new("demo", vec![warning]))
        })
        .collect()
}

#[test]
fn a_core_whose_quotas_bound_no_memory_traffic_is_warned_about() {
    configurations("configs");
    for (events, label) in [
        (
            vec!["L2D_CACHE_REFILL"],
            "a guest can reach memory without L2D_CACHE_REFILL",
        ),
        (
            vec!["L2D_CACHE_REFILL", "L2D_CACHE_WB"],
            "without L2D_CACHE_REFILL and L2D_CACHE_WB",
        ),
        (
            vec!["MEM_ACCESS"],
            "a guest can reach memory without MEM_ACCESS",
        ),
        (
            vec!["BUS_ACCESS_LD"],
            "BUS_ACCESS_LD bounds only what the guest reads",
        ),
        (
            vec!["BUS_ACCESS_ST"],
            "BUS_ACCESS_ST bounds only what the guest writes",
        ),
    ] {
        let warnings = warnings_about_bounds(&events);
        let [warning] = &warnings[..] else {
            panic!("{events:?}: {warnings:?}")
        };
        assert!(
            warning.contains(label) && warning.contains("help: add a quota on BUS_ACCESS ("),
            "{warning}"
        );
    }
    for events in [
        vec!["BUS_ACCESS"],
        vec!["L2D_CACHE_REFILL", "BUS_ACCESS"],
        vec!["BUS_ACCESS_LD", "BUS_ACCESS_ST"],
        vec!["INST_RETIRED"],
        vec!["CPU_CYCLES"],
        vec![],
    ] {
        assert_eq!(warnings_about_bounds(&events), [""; 0], "{events:?}");
    }
}

/// The table in the reference and the event tables say the same.
#[test]
fn the_reference_lists_the_events_that_bound() {
    let text = std::fs::read_to_string(installation::root().join("docs/configuration.md"))
        .expect("the reference");
    let table = text
        .split("### Which events bound a hostile guest")
        .nth(1)
        .expect("a section on bounds");
    let rows: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .collect();
    for board in ["virt", "virt-a72"] {
        let events = configuration::load(Path::new("configs/demo.toml"), Some(board))
            .expect("a good one")
            .board
            .events;
        for event in &events.events {
            let named = format!("`{}` ", event.name);
            let row = rows
                .iter()
                .find(|row| row.starts_with(&format!("| {named}")));
            let word = row.map(|row| row.split('|').nth(2).unwrap_or_default().trim());
            let bounds = event
                .bounds
                .map(|bounds| format!("{bounds:?}").to_lowercase());
            assert_eq!(
                word,
                bounds.as_deref().or(word.map(|_| "nothing")),
                "{}",
                event.name
            );
        }
    }
    assert!(rows.len() > 8, "{rows:?}");
}

#[test]
fn defaults_are_those_of_the_reference() {
    configurations("configs");
    let checked = changed(&[("top = 16\n", ""), ("\"256K\"", "\"65 pages\"")])
        .unwrap_or_else(|errors| panic!("{}", render(&errors)));
    let victim = &checked.system.vms[0];
    let profile = victim.profile.as_ref().expect("the victim has one");
    assert_eq!(
        (profile.top, profile.pages.len()),
        (65, 65),
        "with `after`, all pages"
    );
    assert_eq!((victim.args, victim.services), ([10, 20, 0, 0], 0b11));
    let quota = checked.system.vms[1].quotas[0];
    assert_eq!(
        (quota.poll.0, quota.trace, quota.vcpu.0),
        (20_000, false, 0),
        "a fiftieth of the period"
    );
    let checked = changed(&[(
        "pool = \"shared\"\n\n[vm.profile]",
        "pool = \"shared\"\n\n[[vm.region]]\nname = \"dma\"\nipa = 0x6000_0000\nsize = \"3M\"\n\
         contiguous = true\n\n[vm.profile]",
    )]);
    let checked = checked.unwrap_or_else(|errors| panic!("{}", render(&errors)));
    assert_eq!(checked.system.contiguous, 4 << 20, "a power of two");
}

/// Writes `text` to `path` again and again, each time with another value replaced by an odd one or
/// another line missing, and loads `config`; says how many variants there were and how many were
/// refused.
fn try_variants(text: &str, path: &Path, config: &Path) -> (u32, u32) {
    const ODD: [&str; 10] = [
        "-1",
        "0",
        "\"\"",
        "[]",
        "{}",
        "true",
        "1e9",
        "9223372036854775807",
        "\"18446744073709551615\"",
        "[[1]]",
    ];
    let lines: Vec<&str> = text.lines().collect();
    let (mut tried, mut refused) = (0, 0);
    for (index, line) in lines.iter().enumerate() {
        let key = line
            .split_once('=')
            .map(|(key, _)| key)
            .filter(|key| !key.starts_with('#'));
        let values = key
            .into_iter()
            .flat_map(|key| ODD.iter().map(move |value| format!("{key}= {value}")));
        for replacement in values.chain([String::new()]) {
            let mut variant: Vec<&str> = lines.clone();
            variant[index] = &replacement;
            std::fs::write(path, variant.join("\n")).expect("it can be written");
            tried += 1;
            if let Err(errors) = configuration::load(config, None) {
                refused += 1;
                assert!(!render(&errors).is_empty());
            }
        }
    }
    std::fs::write(path, text).expect("it can be written");
    (tried, refused)
}

/// Whatever replaces a value, and whichever line is missing: there is an answer, and it is not a
/// panic.
#[test]
fn no_value_and_no_missing_line_panics() {
    configurations("configs");
    let read = |path: &str| std::fs::read_to_string(path).expect("it is there");
    let dir = tempfile::tempdir().expect("a scratch directory");
    let (path, board, profile) = (
        dir.path().join("odd.toml"),
        dir.path().join("boards/odd.toml"),
        dir.path().join("c2is.toml"),
    );
    let verdicts = dir.path().join("verdicts/odd-icount.toml");
    for name in ["boards", "verdicts"] {
        std::fs::create_dir(dir.path().join(name)).expect("a scratch directory");
    }
    let text = read("configs/demo.toml").replace("../profiles/c2is.toml", "c2is.toml");
    let text = text.replace("name = \"demo\"", "name = \"demo\"\nboard = \"odd\"");
    let board_text =
        read("configs/boards/zcu102.toml").replace("name = \"zcu102\"", "name = \"odd\"");
    let profile_text =
        read("profiles/c2is.toml") + "\n[[page]]\nregion = \"ram\"\npage = 3\nimportance = 1\n";
    std::fs::write(&path, &text).expect("it can be written");
    std::fs::write(&board, &board_text).expect("it can be written");
    std::fs::write(&profile, &profile_text).expect("it can be written");
    let shipped =
        read("configs/validation/verdicts/zcu102-icount.toml").replace("\"zcu102\"", "\"odd\"");
    let mut parts = shipped.split("\n[[verdict]]");
    let (head, own) = (
        parts.next(),
        parts.find(|verdict| verdict.contains("\"INST_RETIRED\"")),
    );
    let verdicts_text = [head, own]
        .map(|part| part.expect("a verdict on instructions"))
        .join("\n[[verdict]]");
    std::fs::write(&verdicts, &verdicts_text).expect("it can be written");
    if let Err(errors) = configuration::load(&path, None) {
        panic!("{}", render(&errors));
    }
    for (text, file) in [
        (&text, &path),
        (&board_text, &board),
        (&profile_text, &profile),
        (&verdicts_text, &verdicts),
    ] {
        let (tried, refused) = try_variants(text, file, &path);
        assert!(
            tried > 40 && refused > tried / 2,
            "{}: {refused} of {tried} refused",
            file.display()
        );
    }
}
