//! Heatmaps as SVG, and plots of correlations and their errors.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::evaluate::{Method, Outcome};
use cloison_plot::{Chart, Line, Marks};
use maud::{Markup, html};
use miette::Result;
use nalgebra::DMatrix;

/// Returns the color of a correlation: blue below 0, red above, white at 0.
fn color(value: f64) -> String {
    let strength = value.clamp(-1.0, 1.0);
    let fade = |from: f64| (255.0 - (255.0 - from) * strength.abs()).round() as u8;
    let (r, g, b) = if strength < 0.0 {
        (fade(5.0), fade(80.0), fade(170.0))
    } else {
        (fade(190.0), fade(30.0), fade(30.0))
    };
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Maximum number of events for which a heatmap shows names.
const NAMED: usize = 64;
/// Width and height in pixels of the cells of a heatmap that shows names, at least, so that the
/// names can be read; and of another one.
const LEAST: [usize; 2] = [9, 4];

/// Draws matrices of the same events side by side, each with its title and the value of the full
/// color. The first one shows the events' names.
pub fn heatmaps(names: &[String], maps: &[(&str, &DMatrix<f64>, f64)]) -> Markup {
    html! {
        div {
            @for (at, (title, matrix, scale)) in maps.iter().enumerate() {
                (heatmap(title, matrix, names, *scale, at == 0 && names.len() <= NAMED))
            }
        }
    }
}

fn heatmap(
    title: &str,
    matrix: &DMatrix<f64>,
    names: &[String],
    scale: f64,
    labeled: bool,
) -> Markup {
    let size = matrix.nrows();
    let least = LEAST[usize::from(size > NAMED)];
    let cell = (220 / size.max(1)).clamp(least, 26);
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    let left = if labeled { longest * 7 + 12 } else { 0 };
    let wide = size * cell;
    // The columns' names are below, upright, in every matrix of few events: side by side, rows
    // share their names.
    let below = if names.len() <= NAMED {
        longest * 7 + 10
    } else {
        0
    };
    let letters = cell.clamp(6, 11);
    let legend = wide + below;
    let (width, height) = (left + wide.max(184) + 2, legend + 30);
    html! {
        figure {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(title) {
                @for row in 0..size {
                    @if labeled {
                        text x=(left - 6) y=(row * cell + cell / 2 + 4) text-anchor="end"
                            style={ "font-size:" (letters) "px" } { (names[row]) }
                    }
                    @if below > 0 {
                        @let x = left + row * cell + cell / 2 + 4;
                        text x=(x) y=(wide + 6) text-anchor="end" transform={ "rotate(-90 " (x) " " (wide + 6) ")" }
                            style={ "font-size:" (letters) "px" } { (names[row]) }
                    }
                    @for column in 0..size {
                        rect x=(left + column * cell) y=(row * cell) width=(cell) height=(cell) fill=(color(matrix[(row, column)] / scale)) {
                            // Names as tooltips, if that does not make the page huge.
                            @if size <= NAMED {
                                title { (names[row]) " and " (names[column]) ": " (format!("{:.3}", matrix[(row, column)])) }
                            }
                        }
                    }
                }
                rect x=(left) y="0" width=(wide) height=(wide) fill="none" stroke="#999" {}
                // Legend of the colors.
                text x=(left + 42) y=(legend + 21) text-anchor="end" { (format!("−{scale}")) }
                @for step in 0..=20_usize {
                    rect x=(left + 46 + step * 4) y=(legend + 12) width="4" height="10" fill=(color(step as f64 / 10.0 - 1.0)) {}
                }
                text x=(left + 136) y=(legend + 21) { (format!("+{scale}")) }
            }
            figcaption { (title) }
        }
    }
}

/// Draws the errors of all pairs, each kind in ascending order (the paper's figure 5).
///
/// # Errors
///
/// If they cannot be drawn.
pub fn sorted_errors(title: &str, kinds: &[(&str, &[f64])]) -> Result<Markup> {
    let line = |(name, errors): &(&str, &[f64])| {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        Line::new(*name, in_order(sorted))
    };
    let chart = Chart {
        title: title.to_owned(),
        x: "pairs, in the order of their error".to_owned(),
        y: "error of the correlation".to_owned(),
        log: false,
        log_x: false,
        marks: Marks::Lines(kinds.iter().map(line).collect()),
    };
    chart.figure()
}

/// Returns points at 1, 2, 3 and so on.
fn in_order(values: impl IntoIterator<Item = f64>) -> Vec<(f64, f64)> {
    let values = values.into_iter().enumerate();
    values.map(|(at, value)| (at as f64 + 1.0, value)).collect()
}

/// Draws every pair's measured correlation, in ascending order with its band, and the merged one.
///
/// # Errors
///
/// If they cannot be drawn.
pub fn pairs_with_bands(
    title: &str,
    measured: &[f64],
    bands: &[(f64, f64)],
    merged: &[f64],
) -> Result<Markup> {
    let mut order: Vec<usize> = (0..measured.len()).collect();
    order.sort_by(|&a, &b| measured[a].total_cmp(&measured[b]));
    let along = |values: &[f64]| in_order(order.iter().map(|&pair| values[pair]));
    let lines = vec![
        Line {
            bands: order.iter().map(|&pair| bands[pair]).collect(),
            ..Line::new("as measured, with the band of 95 %", along(measured))
        },
        Line {
            dots: along(merged),
            ..Line::new("merged", vec![])
        },
    ];
    let chart = Chart {
        title: title.to_owned(),
        x: "pairs, in the order of their correlation".to_owned(),
        y: "correlation".to_owned(),
        log: false,
        log_x: false,
        marks: Marks::Lines(lines),
    };
    chart.figure()
}

/// Draws errors over runs, with every sample and the 95 % band (the paper's figure 6).
///
/// # Errors
///
/// If they cannot be drawn.
pub fn over_runs(title: &str, outcomes: &[Outcome], which: usize) -> Result<Markup> {
    let mut methods = vec![];
    for outcome in outcomes {
        if !methods.contains(&outcome.method) {
            methods.push(outcome.method);
        }
    }
    let line = |method: Method| {
        let of_method = || outcomes.iter().filter(move |one| one.method == method);
        let at = |outcome: &Outcome| outcome.runs as f64;
        let points = of_method().map(|one| (at(one), one.mean(which)));
        let dots = |one: &Outcome| {
            let errors = one.errors.iter().map(|errors| (at(one), errors[which]));
            errors.collect::<Vec<_>>()
        };
        Line {
            bands: of_method().map(|one| one.band(which)).collect(),
            dots: of_method().flat_map(dots).collect(),
            ..Line::new(method.title(), points.collect())
        }
    };
    let chart = Chart {
        title: title.to_owned(),
        x: "runs of each of MUCH's sub-experiments".to_owned(),
        y: "mean square error of the correlations".to_owned(),
        log: true,
        log_x: true,
        marks: Marks::Lines(methods.into_iter().map(line).collect()),
    };
    chart.figure()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_have_their_names() {
        let names = ["L1D_CACHE".to_owned(), "BUS_ACCESS".to_owned()];
        let matrix = DMatrix::identity(2, 2);
        let html =
            heatmaps(&names, &[("one", &matrix, 1.0), ("other", &matrix, 1.0)]).into_string();
        let labels = html.matches(">BUS_ACCESS<").count();
        assert_eq!(
            labels, 3,
            "a row of the first, and a column of each: {html}"
        );
        assert_eq!(html.matches("rotate(-90").count(), 4);
    }

    #[test]
    fn forty_events_have_names_too() {
        let names: Vec<String> = (0..40).map(|event| format!("E{event}")).collect();
        let matrix = DMatrix::identity(40, 40);
        let html = heatmaps(&names, &[("one", &matrix, 1.0)]).into_string();
        assert_eq!(html.matches(">E11<").count(), 2, "a row and a column");
        assert!(html.contains("<title>E11 and E39: 0.000</title>"));
    }
}
