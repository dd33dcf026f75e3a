//! Heatmaps and curves as SVG.

use cloison_much::evaluate::Outcome;
use maud::{Markup, html};
use nalgebra::DMatrix;

/// Colors of curves, distinguishable without red and green.
const COLORS: [&str; 7] = ["#888888", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#000000"];

/// A color for a correlation: blue below 0, red above, white at 0.
fn color(value: f64) -> String {
    let strength = value.clamp(-1.0, 1.0);
    let fade = |from: f64| (255.0 - (255.0 - from) * strength.abs()).round() as u8;
    let (r, g, b) =
        if strength < 0.0 { (fade(5.0), fade(80.0), fade(170.0)) } else { (fade(190.0), fade(30.0), fade(30.0)) };
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A matrix as colored cells; `scale` is the value that has the full color.
pub fn heatmap(title: &str, matrix: &DMatrix<f64>, names: &[String], scale: f64) -> Markup {
    let size = matrix.nrows();
    let cell = (280 / size.max(1)).clamp(4, 20);
    let width = size * cell;
    html! {
        figure {
            svg width=(width) height=(width) viewBox={ "0 0 " (width) " " (width) } role="img" aria-label=(title) {
                @for row in 0..size {
                    @for column in 0..size {
                        rect x=(column * cell) y=(row * cell) width=(cell) height=(cell) fill=(color(matrix[(row, column)] / scale)) {
                            // Names under the pointer, where that does not make the page huge.
                            @if size <= 24 {
                                title { (names[row]) " and " (names[column]) ": " (format!("{:.3}", matrix[(row, column)])) }
                            }
                        }
                    }
                }
                rect x="0" y="0" width=(width) height=(width) fill="none" stroke="#999" {}
            }
            figcaption { (title) " (full color: ±" (format!("{scale}")) ")" }
        }
    }
}

/// A curve of a chart.
pub struct Curve<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// For each point the lower and upper end of its band; may be empty.
    pub bands: Vec<(f64, f64)>,
    /// Single measurements.
    pub dots: Vec<(f64, f64)>,
}

/// Axes of a chart.
#[derive(Clone, Copy)]
pub struct Axes<'a> {
    /// Below.
    pub x: &'a str,
    /// On the left.
    pub y: &'a str,
    /// Whether both go by powers of ten.
    pub logarithmic: bool,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const MARGIN: f64 = 56.0;

/// Curves over common axes.
pub fn chart(title: &str, axes: Axes<'_>, curves: &[Curve<'_>]) -> Markup {
    let along = |value: f64| if axes.logarithmic { value.max(1e-12).log10() } else { value };
    let all = || curves.iter().flat_map(|curve| curve.points.iter().chain(&curve.dots));
    let range = |pick: fn(&(f64, f64)) -> f64| {
        let values = || all().map(pick).map(along);
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        let low = if axes.logarithmic { low } else { low.min(0.0) };
        if high > low { (low, high) } else { (low, low + 1.0) }
    };
    let (from_x, to_x) = range(|point| point.0);
    let (from_y, to_y) = range(|point| point.1);
    let x = |value: f64| MARGIN + (along(value) - from_x) / (to_x - from_x) * (WIDTH - 2.0 * MARGIN);
    let y = |value: f64| HEIGHT - MARGIN - (along(value) - from_y) / (to_y - from_y) * (HEIGHT - 1.6 * MARGIN);
    let line = |points: &[(f64, f64)]| {
        points.iter().map(|&(a, b)| format!("{:.1},{:.1}", x(a), y(b))).collect::<Vec<_>>().join(" ")
    };
    let band = |curve: &Curve<'_>| {
        let up = curve.points.iter().zip(&curve.bands).map(|(point, band)| (point.0, band.1));
        let down = curve.points.iter().zip(&curve.bands).rev().map(|(point, band)| (point.0, band.0));
        line(&up.chain(down).collect::<Vec<_>>())
    };
    let ticks = |from: f64, to: f64| -> Vec<(f64, String)> {
        if axes.logarithmic {
            let within = |value: &f64| (from..=to).contains(&value.log10());
            let decades = from.floor() as i32..=to.ceil() as i32;
            let values = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(decade)));
            return values.filter(within).map(|value| (value, format!("{value}"))).collect();
        }
        (0..=4)
            .map(|part| from + (to - from) * f64::from(part) / 4.0)
            .map(|value| (value, format!("{value:.3}")))
            .collect()
    };
    html! {
        figure {
            svg width=(WIDTH) height=(HEIGHT) viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(title) {
                @for (value, label) in ticks(from_y, to_y) {
                    line x1=(MARGIN) x2=(WIDTH - MARGIN) y1=(y(value)) y2=(y(value)) stroke="#eee" {}
                    text x=(MARGIN - 4.0) y=(y(value) + 4.0) text-anchor="end" { (label) }
                }
                @for (value, label) in ticks(from_x, to_x) {
                    text x=(x(value)) y=(HEIGHT - MARGIN + 16.0) text-anchor="middle" { (label) }
                }
                line x1=(MARGIN) x2=(WIDTH - MARGIN) y1=(HEIGHT - MARGIN) y2=(HEIGHT - MARGIN) stroke="#999" {}
                text x=(WIDTH / 2.0) y=(HEIGHT - 22.0) text-anchor="middle" { (axes.x) }
                text x="4" y="14" { (axes.y) }
                @for (curve, color) in curves.iter().zip(COLORS.iter().cycle()) {
                    @if !curve.bands.is_empty() {
                        polygon points=(band(curve)) fill=(color) fill-opacity="0.12" {}
                    }
                    @for &(a, b) in &curve.dots { circle cx=(format!("{:.1}", x(a))) cy=(format!("{:.1}", y(b))) r="1.5" fill=(color) fill-opacity="0.4" {} }
                    polyline points=(line(&curve.points)) fill="none" stroke=(color) stroke-width="1.8" {}
                }
                @for (at, (curve, color)) in curves.iter().zip(COLORS.iter().cycle()).enumerate() {
                    rect x=(MARGIN + 88.0 * at as f64) y=(HEIGHT - 14.0) width="8" height="8" fill=(color) {}
                    text x=(MARGIN + 88.0 * at as f64 + 11.0) y=(HEIGHT - 6.0) { (curve.name) }
                }
            }
            figcaption { (title) }
        }
    }
}

/// Errors of all pairs, each kind in ascending order (the paper's figure 5).
pub fn sorted_errors(title: &str, kinds: &[(&str, &[f64])]) -> Markup {
    let curve = |(name, errors): &(&'static str, &[f64])| {
        let mut sorted = errors.to_vec();
        sorted.sort_by(f64::total_cmp);
        let points = sorted.into_iter().enumerate().map(|(at, error)| (at as f64 + 1.0, error)).collect();
        Curve { name, points, bands: vec![], dots: vec![] }
    };
    let named: Vec<(&'static str, &[f64])> =
        kinds.iter().map(|(name, errors)| (if *name == "Pearson" { "Pearson" } else { "Spearman" }, *errors)).collect();
    let curves: Vec<_> = named.iter().map(curve).collect();
    chart(title, Axes { x: "pairs, each kind by its error", y: "error", logarithmic: false }, &curves)
}

/// Errors over runs, with every sample and the band of 95 % (the paper's figure 6).
pub fn over_runs(title: &str, outcomes: &[Outcome], which: usize) -> Markup {
    let mut methods: Vec<_> = vec![];
    for outcome in outcomes {
        if !methods.contains(&outcome.method) {
            methods.push(outcome.method);
        }
    }
    let curves: Vec<_> = methods
        .iter()
        .map(|&method| {
            let of_method = || outcomes.iter().filter(move |outcome| outcome.method == method);
            let at = |outcome: &Outcome| outcome.runs as f64;
            Curve {
                name: method.name(),
                points: of_method().map(|outcome| (at(outcome), outcome.mean(which))).collect(),
                bands: of_method().map(|outcome| outcome.band(which)).collect(),
                dots: of_method()
                    .flat_map(|outcome| outcome.errors.iter().map(move |errors| (at(outcome), errors[which])))
                    .collect(),
            }
        })
        .collect();
    chart(
        title,
        Axes { x: "runs of each of MUCH's sub-experiments", y: "mean square error", logarithmic: true },
        &curves,
    )
}
