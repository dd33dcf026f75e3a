//! Each function, case by case, against PAPI's documentation and sources; docs/papi-cases.md has
//! the list.
//!
//! With `UPDATE_DOCS=1` in the environment, the list in the page is written instead of compared.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod cases;

use cases::{Case, HIGH, LOW};
use std::fmt::Write;
use std::path::Path;

const HEADER: &str = "| function | case | returns | PAPI |\n| --- | --- | --- | --- |\n";

fn all() -> impl Iterator<Item = &'static Case> {
    HIGH.iter().chain(LOW)
}

#[test]
fn every_case_returns_what_papi_returns() {
    let wrong: Vec<String> = all()
        .filter_map(|case| {
            let found = (case.run)();
            (found != case.returns).then(|| {
                format!(
                    "{} {}: {found}, not {}",
                    case.function, case.when, case.returns
                )
            })
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The functions of the ePAPI paper's table 3.
const TABLE_3: [&str; 24] = [
    "start_counters",
    "read_counters",
    "accum_counters",
    "stop_counters",
    "num_counters",
    "epc",
    "ipc",
    "start",
    "read",
    "accum",
    "stop",
    "reset",
    "create_eventset",
    "add_event",
    "add_events",
    "add_named_event",
    "remove_event",
    "remove_events",
    "remove_named_event",
    "cleanup_eventset",
    "event_name_to_code",
    "list_events",
    "num_events",
    "state",
];

#[test]
fn every_function_of_the_paper_has_a_case_that_succeeds_and_one_that_does_not() {
    for function in TABLE_3 {
        let cases: Vec<&Case> = all().filter(|case| case.function == function).collect();
        assert!(
            cases.iter().any(|case| case.returns >= 0),
            "{function} never succeeds"
        );
        let never_fails = function == "num_counters";
        assert!(
            never_fails || cases.iter().any(|case| case.returns < 0),
            "{function} never fails"
        );
    }
}

fn name(code: i32) -> String {
    match cloison_epapi::Error::ALL
        .iter()
        .find(|(error, _)| error.code() == code)
    {
        Some((_, name)) => format!("`{name}`"),
        None if code == 0 => "`PAPI_OK`".to_owned(),
        None => code.to_string(),
    }
}

#[test]
fn the_page_lists_the_cases() {
    let mut table = HEADER.to_owned();
    for case in all() {
        let papi = if case.differs.is_empty() {
            "same"
        } else {
            case.differs
        };
        writeln!(
            table,
            "| `PAPI_{}` | {} | {} | {papi} |",
            case.function,
            case.when,
            name(case.returns)
        )
        .unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/papi-cases.md");
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let (head, found) = page.split_at(page.find(HEADER).expect("the page has the list"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{head}{table}")).expect("the page can be written");
    } else {
        assert_eq!(
            found, table,
            "docs/papi-cases.md: run this test with UPDATE_DOCS=1"
        );
    }
}
