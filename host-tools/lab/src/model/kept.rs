//! The kept results of the validation: the page agrees with the file of measurements and with itself,
//! and no family of points has become worse than its limit.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::compare::{self, Comparison};
use super::{MODEL, POINTS, points};
use cloison_board_model::Board;
use cloison_engine::installation;
use std::collections::BTreeMap;

/// Each family with the number of its predicted points and the most that their mean error may be,
/// in percent. A limit that is raised, and a point that is left out, is a change to be explained.
const LIMITS: [(&str, usize, f64); 8] = [
    ("contention", 8, 40.0),
    ("random reads in the L2", 25, 7.0),
    ("chains in the L2", 10, 32.5),
    ("strides in the L2", 4, 10.0),
    ("memory", 6, 3.0),
    ("streams of one core", 12, 17.5),
    ("L1", 3, 1.0),
    ("counts", 7, 0.5),
];

/// Mean errors of the page are of rounded results: by how much they may differ, in percent.
const ROUNDING: f64 = 0.15;

/// Returns the cells of a table's row, without the marks of code and of bold type.
fn cells(line: &str) -> Option<Vec<String>> {
    let row = line.strip_prefix("| ")?.strip_suffix(" |")?;
    let plain = |cell: &str| cell.trim_matches(['`', '*']).to_owned();
    Some(row.split(" | ").map(plain).collect())
}

fn number(text: &str) -> f64 {
    let text = text.trim_end_matches(" %");
    text.parse().unwrap_or_else(|_| panic!("{text}: no number"))
}

#[test]
fn the_page_has_every_points_result_and_every_familys_error() {
    let page = installation::root().join("docs/results/validation.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let rows: Vec<_> = page.lines().filter_map(cells).collect();
    let measured = points::load(&installation::root().join(POINTS)).expect("the measurements");
    let model = Board::load(&installation::root().join(MODEL)).expect("the model");

    let row_of: BTreeMap<&str, &Vec<String>> = rows
        .iter()
        .filter(|row| row.len() == 8)
        .map(|row| (row[0].as_str(), row))
        .collect();
    let compared: Vec<_> = measured
        .points
        .iter()
        .map(|point| {
            let row = row_of.get(point.name.as_str());
            let row = row.unwrap_or_else(|| panic!("{} is not on the page", point.name));
            let ours = number(&row[4]);
            Comparison { point, ours }
        })
        .collect();
    for (one, cells) in compared.iter().zip(compare::table(&compared).rows) {
        let row = row_of[one.point.name.as_str()];
        let [name, board, usage, _, value, _, unit, error, ..] = cells.as_slice() else {
            panic!("{cells:?}")
        };
        let found = [&row[0], &row[1], &row[2], &row[3], &row[5]];
        assert_eq!(found, [name, board, usage, value, unit]);
        // Results of two decimals give errors of so many digits.
        let rounding = 0.5 / number(value) + ROUNDING;
        assert!(
            (number(&row[6]) - number(error)).abs() <= rounding,
            "{name}: {error} by its result, {} on the page",
            row[6]
        );
    }

    let families = compare::families(&compared, &model);
    assert_eq!(families.len(), LIMITS.len());
    for family in families {
        let name = family.family.name();
        let row = rows.iter().find(|row| row.len() == 4 && row[0] == name);
        let row = row.unwrap_or_else(|| panic!("{name} is not on the page"));
        assert_eq!(row[1], family.points.to_string(), "{name}");
        assert_eq!(row[2], family.agreeing.to_string(), "{name}");
        let error = number(&row[3]);
        assert!(
            (error - family.mean_abs_error * 100.0).abs() <= ROUNDING,
            "{name}: {:.2} % by the rows, {error} % on the page",
            family.mean_abs_error * 100.0
        );
        let (_, points, limit) = LIMITS
            .into_iter()
            .find(|(limited, ..)| *limited == name)
            .unwrap_or_else(|| panic!("{name} has no limit"));
        assert_eq!(
            family.points, points,
            "{name}: points were added or left out"
        );
        assert!(error <= limit, "{name}: {error} % is more than {limit} %");
    }
}
