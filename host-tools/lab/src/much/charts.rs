//! Heatmaps and curves as SVG.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_much::evaluate::Outcome;
use maud::{Markup, html};
use nalgebra::DMatrix;

/// Colors of curves that are distinguishable without red and green.
const COLORS: [&str; 8] = [
    "#666666", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#000000", "#cc79a7",
];
/// Dashes of curves, so that overlapping ones are both visible.
const DASHES: [&str; 4] = ["", "7 4", "2 3", ""];

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
const NAMED: usize = 32;

/// Draws matrices of the same events side by side, each with its title and the value of the full color. The first one
/// shows the events' names.
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
    let cell = (220 / size.max(1)).clamp(4, 26);
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    let left = if labeled { longest * 7 + 12 } else { 0 };
    let wide = size * cell;
    // The columns' names are below, upright, in every matrix of few events: side by side, rows share their names.
    let below = if names.len() <= NAMED {
        longest * 7 + 10
    } else {
        0
    };
    let letters = cell.clamp(6, 11);
    let legend = wide + below;
    let (width, height) = (left + wide.max(170) + 2, legend + 30);
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
                text x=(left) y=(legend + 21) { (format!("−{scale}")) }
                @for step in 0..=20_usize {
                    rect x=(left + 36 + step * 4) y=(legend + 12) width="4" height="10" fill=(color(step as f64 / 10.0 - 1.0)) {}
                }
                text x=(left + 126) y=(legend + 21) { (format!("+{scale}")) }
            }
            figcaption { (title) }
        }
    }
}

/// A curve of a chart.
pub struct Curve<'a> {
    /// Name in the legend.
    pub name: &'a str,
    /// The points, in drawing order.
    pub points: Vec<(f64, f64)>,
    /// For each point the lower and upper end of its band; may be empty.
    pub bands: Vec<(f64, f64)>,
    /// Single measurements.
    pub dots: Vec<(f64, f64)>,
}

/// The axes of a chart.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Label below.
    pub x: &'a str,
    /// Label on the left.
    pub y: &'a str,
    /// Whether both axes are logarithmic.
    pub logarithmic: bool,
    /// Positions of the ticks below; by default at round numbers.
    pub ticks: &'a [f64],
}

/// Widths of a chart in pixels: on most windows, and on one of 500. Letters keep their size.
const WIDE: f64 = 720.0;
const NARROW: f64 = 440.0;
/// Pixels from one label below the axis to the next.
const APART: f64 = 30.0;
const PLOT: f64 = 260.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 24.0;
/// Height of a line of the legend, and the approximate width of a letter.
const LINE: f64 = 17.0;
const LETTER: f64 = 8.4;

/// Returns about `count` round numbers within a range.
fn round_ticks(from: f64, to: f64, count: f64) -> Vec<(f64, String)> {
    let rough = (to - from) / count;
    let decade = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * decade)
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let first = (from / step).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last)
        .map(|at| at as f64 * step)
        .map(|value| (value, format!("{value:.digits$}")))
        .collect()
}

/// Draws curves over common axes, once for each width: the reports' style shows the one that fits the window.
pub fn chart(title: &str, axes: Axes<'_>, curves: &[Curve<'_>]) -> Markup {
    html! {
        figure.chart {
            div.plot {
                div.wide { (drawn(title, axes, curves, WIDE)) }
                div.narrow { (drawn(title, axes, curves, NARROW)) }
            }
            figcaption { (title) }
        }
    }
}

/// Draws curves over common axes in this width.
fn drawn(title: &str, axes: Axes<'_>, curves: &[Curve<'_>], width: f64) -> Markup {
    let along = |value: f64| {
        if axes.logarithmic {
            value.max(1e-12).log10()
        } else {
            value
        }
    };
    let bands = || {
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().zip(&curve.bands))
    };
    let band_ends = || bands().flat_map(|(point, band)| [(point.0, band.0), (point.0, band.1)]);
    let all = || {
        curves
            .iter()
            .flat_map(|curve| curve.points.iter().chain(&curve.dots))
            .copied()
            .chain(band_ends())
    };
    let range = |pick: fn((f64, f64)) -> f64, margin: f64| {
        let values = || all().map(pick).map(along);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let low = if axes.logarithmic { low } else { low.min(0.0) };
        if high > low {
            (
                low - if low == 0.0 {
                    0.0
                } else {
                    margin * (high - low)
                },
                high + margin * (high - low),
            )
        } else {
            (low, low + 1.0)
        }
    };
    let (from_x, to_x) = range(|point| point.0, 0.02);
    let (from_y, to_y) = range(|point| point.1, 0.04);
    let bottom = TOP + PLOT;
    let x = |value: f64| LEFT + (along(value) - from_x) / (to_x - from_x) * (width - LEFT - RIGHT);
    let y = |value: f64| bottom - (along(value) - from_y) / (to_y - from_y) * PLOT;
    let line = |points: &[(f64, f64)]| {
        points
            .iter()
            .map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let band = |curve: &Curve<'_>| {
        let up = curve
            .points
            .iter()
            .zip(&curve.bands)
            .map(|(point, band)| (point.0, band.1));
        let down = curve
            .points
            .iter()
            .zip(&curve.bands)
            .rev()
            .map(|(point, band)| (point.0, band.0));
        line(&up.chain(down).collect::<Vec<_>>())
    };
    let ticks = |from: f64, to: f64| -> Vec<(f64, String)> {
        if !axes.logarithmic {
            return round_ticks(from, to, (width / 110.0).floor().min(6.0));
        }
        let digits: &[f64] = if to - from > 1.6 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let decades = from.floor() as i32..=to.ceil() as i32;
        let values =
            decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)));
        values
            .filter(|value| (from..=to).contains(&value.log10()))
            .map(|value| (value, format!("{value}")))
            .collect()
    };
    let below = if axes.ticks.is_empty() {
        ticks(from_x, to_x)
    } else {
        axes.ticks
            .iter()
            .map(|&value| (value, format!("{value}")))
            .collect()
    };
    let mut free = f64::NEG_INFINITY;
    let below = below.into_iter().map(|(value, label)| {
        let has_room = x(value) >= free;
        if has_room {
            free = x(value) + APART.max(LETTER * label.len() as f64 + 6.0);
        }
        (value, if has_room { label } else { String::new() })
    });
    // The legend, in as many lines of text as it needs.
    let (mut legend, mut at, mut row) = (vec![], LEFT, 0.0);
    for curve in curves {
        let wide = 34.0 + LETTER * curve.name.len() as f64;
        if at + wide > width && at > LEFT {
            (at, row) = (LEFT, row + LINE);
        }
        legend.push((at, bottom + 52.0 + row));
        at += wide + 12.0;
    }
    let height = bottom + 60.0 + row;
    let styles = || COLORS.iter().cycle().zip(DASHES.iter().cycle());
    html! {
            svg width=(width) height=(height) viewBox={ "0 0 " (width) " " (height) } role="img" aria-label=(title) {
                text x="4" y="12" { (axes.y) }
                @for (value, label) in ticks(from_y, to_y) {
                    line x1=(LEFT) x2=(width - RIGHT) y1=(y(value)) y2=(y(value)) stroke="#e4e4e4" {}
                    text x=(LEFT - 6.0) y=(y(value) + 4.0) text-anchor="end" { (label) }
                }
                @for (value, label) in below {
                    line x1=(x(value)) x2=(x(value)) y1=(bottom) y2=(bottom + 4.0) stroke="#999" {}
                    text x=(x(value)) y=(bottom + 16.0) text-anchor="middle" { (label) }
                }
                line x1=(LEFT) x2=(width - RIGHT) y1=(bottom) y2=(bottom) stroke="#999" {}
                text x=((LEFT + width - RIGHT) / 2.0) y=(bottom + 34.0) text-anchor="middle" { (axes.x) }
                @for (curve, (color, dash)) in curves.iter().zip(styles()) {
                    @if !curve.bands.is_empty() {
                        polygon points=(band(curve)) fill=(color) fill-opacity="0.13" {}
                    }
                    @for &(a, b) in &curve.dots { circle cx=(format!("{:.1}", x(a))) cy=(format!("{:.1}", y(b))) r="1.8" fill=(color) fill-opacity="0.45" {} }
                    polyline points=(line(&curve.points)) fill="none" stroke=(color) stroke-width="1.8" stroke-dasharray=(dash) {}
                }
                @for ((curve, (color, dash)), (at, row)) in curves.iter().zip(styles()).zip(legend) {
                    @if curve.points.is_empty() {
                        circle cx=(at + 12.0) cy=(row - 4.0) r="3" fill=(color) {}
                    } @else {
                        line x1=(at) x2=(at + 24.0) y1=(row - 4.0) y2=(row - 4.0) stroke=(color) stroke-width="2.5" stroke-dasharray=(dash) {}
                    }
                    text x=(at + 30.0) y=(row) { (curve.name) }
                }
            }
    }
}

/// Draws the errors of all pairs, each kind in ascending order (the paper's figure 5).
pub fn sorted_errors(title: &str, kinds: &[(&str, &[f64])]) -> Markup {
    let curves: Vec<_> = kinds
        .iter()
        .map(|(name, errors)| {
            let mut sorted = errors.to_vec();
            sorted.sort_by(f64::total_cmp);
            let points = sorted
                .into_iter()
                .enumerate()
                .map(|(at, error)| (at as f64 + 1.0, error))
                .collect();
            Curve {
                name,
                points,
                bands: vec![],
                dots: vec![],
            }
        })
        .collect();
    let axes = Axes {
        x: "pairs, in the order of their error",
        y: "error of the correlation",
        logarithmic: false,
        ticks: &[],
    };
    chart(title, axes, &curves)
}

/// Draws every pair's measured correlation, in ascending order with its band, and the merged one.
pub fn pairs_with_bands(
    title: &str,
    measured: &[f64],
    bands: &[(f64, f64)],
    merged: &[f64],
) -> Markup {
    let mut order: Vec<usize> = (0..measured.len()).collect();
    order.sort_by(|&a, &b| measured[a].total_cmp(&measured[b]));
    let along = |values: &[f64]| {
        order
            .iter()
            .enumerate()
            .map(|(at, &pair)| (at as f64 + 1.0, values[pair]))
            .collect()
    };
    let curves = [
        Curve {
            name: "as measured, with the band of 95 %",
            points: along(measured),
            bands: order.iter().map(|&pair| bands[pair]).collect(),
            dots: vec![],
        },
        Curve {
            name: "merged",
            points: vec![],
            bands: vec![],
            dots: along(merged),
        },
    ];
    let axes = Axes {
        x: "pairs, in the order of their correlation",
        y: "correlation",
        logarithmic: false,
        ticks: &[],
    };
    chart(title, axes, &curves)
}

/// Draws errors over runs, with every sample and the 95 % band (the paper's figure 6).
pub fn over_runs(title: &str, outcomes: &[Outcome], which: usize) -> Markup {
    let (mut methods, mut runs): (Vec<_>, Vec<f64>) = (vec![], vec![]);
    for outcome in outcomes {
        if !methods.contains(&outcome.method) {
            methods.push(outcome.method);
        }
        if !runs.contains(&(outcome.runs as f64)) {
            runs.push(outcome.runs as f64);
        }
    }
    let curves: Vec<_> = methods
        .iter()
        .map(|&method| {
            let of_method = || {
                outcomes
                    .iter()
                    .filter(move |outcome| outcome.method == method)
            };
            let at = |outcome: &Outcome| outcome.runs as f64;
            Curve {
                name: method.title(),
                points: of_method()
                    .map(|outcome| (at(outcome), outcome.mean(which)))
                    .collect(),
                bands: of_method().map(|outcome| outcome.band(which)).collect(),
                dots: of_method()
                    .flat_map(|outcome| {
                        outcome
                            .errors
                            .iter()
                            .map(move |errors| (at(outcome), errors[which]))
                    })
                    .collect(),
            }
        })
        .collect();
    let axes = Axes {
        x: "runs of each of MUCH's sub-experiments",
        y: "mean square error of the correlations",
        logarithmic: true,
        ticks: &runs,
    };
    chart(title, axes, &curves)
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
    fn a_chart_has_a_narrow_form_whose_letters_do_not_overlap() {
        let runs: Vec<f64> = (1..=20).map(|number| f64::from(number) * 20.0).collect();
        let points: Vec<(f64, f64)> = runs.iter().map(|&run| (run, 1.0 / run)).collect();
        let curve = |name| Curve {
            name,
            points: points.clone(),
            bands: vec![],
            dots: vec![],
        };
        let names = [
            "MUCH, with its pairs",
            "HRM, with an anchor",
            "a blind merge of all",
        ];
        let axes = Axes {
            x: "runs",
            y: "error",
            logarithmic: true,
            ticks: &runs,
        };
        let html = chart("errors", axes, &names.map(curve)).into_string();
        let narrow = html
            .split("class=\"narrow\"")
            .nth(1)
            .expect("a narrow form");
        assert!(
            html.contains("class=\"wide\"") && narrow.contains("width=\"440\""),
            "{html}"
        );
        let number = |text: &str, key: &str| -> f64 {
            let value = text
                .split(&format!("{key}=\""))
                .nth(1)
                .and_then(|rest| rest.split('"').next());
            value
                .and_then(|value| value.parse().ok())
                .expect("a number")
        };
        // The labels below, in their order; each has about 8 pixels a digit.
        let labels: Vec<(f64, usize)> = narrow
            .split("<text ")
            .filter(|text| text.contains("text-anchor=\"middle\"") && !text.contains(">runs<"))
            .map(|text| {
                (
                    number(text, "x"),
                    text.split(['>', '<']).nth(1).map_or(0, str::len),
                )
            })
            .filter(|(_, length)| *length > 0)
            .collect();
        assert!((4..=15).contains(&labels.len()), "{labels:?}");
        for pair in labels.windows(2) {
            assert!(
                pair[1].0 - pair[0].0 >= 8.0 * pair[0].1 as f64,
                "{labels:?}"
            );
        }
        let letters = narrow.split("<text ").skip(1).map(|text| number(text, "x"));
        assert!(letters.into_iter().all(|x| (0.0..440.0).contains(&x)));
    }

    #[test]
    fn ticks_are_round_and_within() {
        let labels = |from, to| {
            round_ticks(from, to, 6.0)
                .into_iter()
                .map(|(_, label)| label)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            labels(0.0, 120.0),
            ["0", "20", "40", "60", "80", "100", "120"]
        );
        assert_eq!(labels(0.0, 0.099), ["0.00", "0.02", "0.04", "0.06", "0.08"]);
        assert_eq!(labels(-0.3, 1.0), ["0.0", "0.5", "1.0"]);
    }
}
