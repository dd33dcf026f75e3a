//! Plots as SVG: lines through points, with bands and single measurements, and groups of bars.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod axis;
mod heatmap;

use axis::{Axis, Start};
use cloison_engine::report::PALETTE;
pub use heatmap::Heatmap;
use maud::{Markup, PreEscaped, html};
use miette::{Result, miette};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// A plot.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Label of the x axis.
    pub x: String,
    /// Label of the y axis.
    pub y: String,
    /// Whether the y axis is logarithmic. Zeros are drawn at its foot.
    pub log: bool,
    /// Whether the x axis is logarithmic. Only for positive values.
    pub log_x: bool,
    /// The shapes to draw.
    pub marks: Marks,
}

/// The content of a plot.
#[derive(Clone, Debug)]
pub enum Marks {
    /// Lines through points.
    Lines(Vec<Line>),
    /// Groups of bars: names of the bars, then each group's name and values.
    Bars(Vec<String>, Vec<(String, Vec<f64>)>),
}

/// A line through points.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// The points, in drawing order.
    pub points: Vec<(f64, f64)>,
    /// For each point the lower and the upper end of its band; may be empty.
    pub bands: Vec<(f64, f64)>,
    /// Single measurements.
    pub dots: Vec<(f64, f64)>,
}

impl Line {
    /// Returns a line without bands and single measurements.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            points,
            ..Self::default()
        }
    }

    /// Returns the corners of its bands.
    fn outline(&self) -> Vec<(f64, f64)> {
        let ends = || self.points.iter().zip(&self.bands);
        let lower = ends().map(|(point, band)| (point.0, band.0));
        let upper = ends().map(|(point, band)| (point.0, band.1));
        lower.chain(upper.rev()).collect()
    }
}

/// The result of drawing.
type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;
/// The area between the axes.
type Area<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Returns the color of each series, in their order.
fn colors() -> impl Iterator<Item = RGBColor> {
    let part = |color: &str, at: usize| u8::from_str_radix(&color[at..at + 2], 16).unwrap_or(0);
    let color = move |color: &&str| RGBColor(part(color, 1), part(color, 3), part(color, 5));
    PALETTE.iter().cycle().map(color)
}

/// Lines of more points have no circle at each.
const MOST_CIRCLES: usize = 100;
/// Dashes and the gaps between them in pixels, for every second line without circles, so that
/// overlapping ones are both visible.
const DASH: (i32, i32) = (7, 4);

/// Width and height, and the numbers of ticks that fit. A page shows the one that fits its window,
/// so that the letters of neither are scaled down.
#[derive(Clone, Copy)]
struct Size {
    width: u32,
    height: u32,
    x_ticks: usize,
    y_ticks: usize,
}

/// On a wide window, alone or with a legend beside it.
const WIDE: [Size; 2] = [
    Size {
        width: 960,
        height: 380,
        x_ticks: 12,
        y_ticks: 8,
    },
    Size {
        width: 760,
        height: 380,
        x_ticks: 9,
        y_ticks: 8,
    },
];
const NARROW: Size = Size {
    width: 460,
    height: 300,
    x_ticks: 6,
    y_ticks: 6,
};
/// The size of all letters in pixels, as in the reports' style, and the width of one.
const LETTERS: i32 = 14;
const LETTER: i32 = 8;

impl Chart {
    /// Returns the plot with its title, and with a legend beside it if there are several series.
    /// The y axis starts at zero, so that noise does not look like an effect, or is
    /// logarithmic.
    ///
    /// # Errors
    /// If it cannot be drawn.
    pub fn figure(&self) -> Result<Markup> {
        let names = self.names();
        let has_legend = names.len() > 1;
        let (wide, narrow) = (self.svg(WIDE[usize::from(has_legend)])?, self.svg(NARROW)?);
        Ok(html! {
            figure.chart {
                figcaption { (self.title) }
                div.plot {
                    div.wide { (PreEscaped(wide)) }
                    div.narrow { (PreEscaped(narrow)) }
                    @if has_legend {
                        ul.legend {
                            @for (name, color) in names.iter().zip(PALETTE.iter().cycle()) {
                                li { span style={ "background:" (color) } {} (name) }
                            }
                        }
                    }
                }
            }
        })
    }

    /// Returns the names of its series.
    fn names(&self) -> Vec<&str> {
        match &self.marks {
            Marks::Lines(lines) => lines.iter().map(|line| line.name.as_str()).collect(),
            Marks::Bars(names, _) => names.iter().map(String::as_str).collect(),
        }
    }

    /// Returns the plot as an SVG element, without title and legend.
    fn svg(&self, size: Size) -> Result<String> {
        let mut text = String::new();
        self.draw(&mut text, size)
            .map_err(|error| miette!("cannot draw `{}`: {error}", self.title))?;
        Ok(text)
    }

    /// Returns both axes.
    fn axes(&self, size: Size) -> (Axis, Axis) {
        let (xs, ys): (Vec<f64>, Vec<f64>) = match &self.marks {
            Marks::Lines(lines) => {
                let of = |line: &Line| [line.points.clone(), line.dots.clone(), line.outline()];
                lines.iter().flat_map(of).flatten().unzip()
            }
            Marks::Bars(_, groups) => (
                vec![],
                groups.iter().flat_map(|group| &group.1).copied().collect(),
            ),
        };
        let x = match &self.marks {
            Marks::Bars(_, groups) => Axis::groups(groups.len()),
            Marks::Lines(_) if self.log_x && !xs.is_empty() && xs.iter().all(|&x| x > 0.0) => {
                Axis::at_values(&xs, size.x_ticks)
            }
            Marks::Lines(_) => Axis::linear(&xs, Start::Lowest, size.x_ticks),
        };
        let y = if self.log {
            Axis::decades(&ys, size.y_ticks)
        } else {
            Axis::linear(&ys, Start::Zero, size.y_ticks)
        };
        (x, y)
    }

    fn draw(&self, text: &mut String, size: Size) -> Drawn {
        let area = SVGBackend::with_string(text, (size.width, size.height)).into_drawing_area();
        area.fill(&WHITE)?;
        let (x, y) = self.axes(size);
        let bottom = y.low();
        let letters = ("sans-serif", LETTERS);
        let label_lines = match &self.marks {
            Marks::Bars(_, groups) => self
                .group_labels(groups, size)
                .iter()
                .map(Vec::len)
                .max()
                .unwrap_or(1) as u32,
            Marks::Lines(_) => 1,
        };
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(20)
            .x_label_area_size(26 + 17 * label_lines)
            .y_label_area_size(y.letters() as i32 * LETTER + 34)
            .build_cartesian_2d(x, y)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x)
            .y_desc(&self.y)
            .label_style(letters)
            .axis_desc_style(letters)
            .light_line_style(WHITE);
        if matches!(self.marks, Marks::Bars(..)) {
            mesh.disable_x_mesh();
        }
        mesh.draw()?;
        match &self.marks {
            Marks::Lines(lines) => draw_lines(&mut chart, lines)?,
            Marks::Bars(names, groups) => {
                draw_bars(&mut chart, names.len(), groups, bottom)?;
                let places: Vec<(i32, i32)> = (0..groups.len())
                    .map(|group| chart.backend_coord(&(group as f64, bottom)))
                    .collect();
                self.draw_group_labels(&area, &places, groups, size)?;
            }
        }
        area.present()?;
        Ok(())
    }

    /// Returns the lines of each group's label, as many letters wide as there is room for.
    fn group_labels(&self, groups: &[(String, Vec<f64>)], size: Size) -> Vec<Vec<String>> {
        let room = (size.width as usize - 90) / groups.len().max(1) / LETTER as usize;
        groups
            .iter()
            .map(|(name, _)| wrap(name, room.max(3)))
            .collect()
    }

    fn draw_group_labels(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
        places: &[(i32, i32)],
        groups: &[(String, Vec<f64>)],
        size: Size,
    ) -> Drawn {
        let style = anchored(VPos::Top);
        for (lines, (x, y)) in self.group_labels(groups, size).iter().zip(places) {
            for (row, line) in lines.iter().enumerate() {
                area.draw(&Text::new(
                    line.clone(),
                    (*x, y + 8 + 17 * row as i32),
                    style.clone(),
                ))?;
            }
        }
        Ok(())
    }
}

/// Returns the style of a text that is centered at a point, below it (its top is there) or above.
fn anchored(end: VPos) -> TextStyle<'static> {
    let style = TextStyle::from(("sans-serif", LETTERS).into_font());
    style.pos(Pos::new(HPos::Center, end))
}

/// Draws lines with their bands, their single measurements, and circles at points that are few.
fn draw_lines(chart: &mut Area<'_, '_>, lines: &[Line]) -> Drawn {
    for (at, (line, color)) in lines.iter().zip(colors()).enumerate() {
        let outline = line.outline();
        if !outline.is_empty() {
            chart.draw_series([Polygon::new(outline, color.mix(0.13).filled())])?;
        }
        let dot = |point: &(f64, f64)| Circle::new(*point, 2, color.mix(0.45).filled());
        chart.draw_series(line.dots.iter().map(dot))?;
        let points = line.points.iter();
        let has_circles = points.len() <= MOST_CIRCLES;
        let style = color.stroke_width(2);
        if has_circles || at % 2 == 0 {
            chart.draw_series(LineSeries::new(points.clone().copied(), style))?;
        } else {
            let (dash, gap) = DASH;
            let points = points.clone().copied();
            chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?;
        }
        if has_circles {
            let circle = |point: &(f64, f64)| Circle::new(*point, 3, color.filled());
            chart.draw_series(points.map(circle))?;
        }
    }
    Ok(())
}

/// Draws groups of this many bars, from the bottom of the plot, and above each its value if there
/// is room.
fn draw_bars(
    chart: &mut Area<'_, '_>,
    bars: usize,
    groups: &[(String, Vec<f64>)],
    bottom: f64,
) -> Drawn {
    let width = 0.8 / bars.max(1) as f64;
    let above = anchored(VPos::Bottom);
    for (bar, color) in (0..bars).zip(colors()) {
        for (group, (_, values)) in groups.iter().enumerate() {
            let Some(&value) = values.get(bar) else {
                continue;
            };
            let from = group as f64 - 0.4 + bar as f64 * width;
            let to = from + width * 0.92;
            let top = value.max(bottom);
            let rectangle = Rectangle::new([(from, bottom), (to, top)], color.filled());
            chart.draw_series([rectangle])?;
            let pixel = |x: f64| chart.backend_coord(&(x, bottom)).0;
            let label = bar_label(value);
            if label.len() as i32 * LETTER <= pixel(to) - pixel(from) {
                let text = Text::new(label, (0, -4), above.clone());
                let element = EmptyElement::at((f64::midpoint(from, to), top)) + text;
                chart.draw_series([element])?;
            }
        }
    }
    Ok(())
}

/// Returns what is written above a bar.
fn bar_label(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.01 => format!("{value:.1e}"),
        ..100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

/// Breaks a label at spaces and after hyphens, and cuts what is still too long.
fn wrap(label: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for word in label.split_inclusive([' ', '-', '_', '/']) {
        let fits = |line: &String| line.chars().count() + word.trim_end().chars().count() <= room;
        match lines.last_mut().filter(|line| fits(line)) {
            Some(line) => line.push_str(word),
            None => lines.push(word.to_owned()),
        }
    }
    for line in &mut lines {
        *line = line.trim_end().to_owned();
        if line.chars().count() > room {
            *line = line
                .chars()
                .take(room.saturating_sub(1))
                .chain(['…'])
                .collect();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(marks: Marks) -> Chart {
        Chart {
            title: "c2is".into(),
            x: "pages".into(),
            y: "slowdown".into(),
            log: false,
            log_x: false,
            marks,
        }
    }

    fn figure(marks: Marks) -> String {
        chart(marks).figure().expect("a figure").into_string()
    }

    #[test]
    fn plots_say_what_they_are_given() {
        let line = |name: &str| Line::new(name, vec![(0.0, 2.0), (4.0, 1.0)]);
        let html = figure(Marks::Lines(vec![line("under <Interf>"), line("solo")]));
        assert!(
            html.contains("<svg")
                && html.contains("under &lt;Interf&gt;")
                && html.contains("pages"),
            "{html}"
        );
        assert_eq!(
            html.matches("<circle").count(),
            2 * 4,
            "once for each width"
        );
        let html = figure(Marks::Bars(
            vec!["solo".into(), "interf".into()],
            vec![("a".into(), vec![1.0, 2.0])],
        ));
        assert!(html.contains("solo") && html.contains("interf"), "{html}");
        assert!(
            html.contains("1.00") && html.contains("2.00"),
            "values: {html}"
        );
        let many = (0..80).map(|at| (at.to_string(), vec![1.25])).collect();
        let html = figure(Marks::Bars(vec![String::new()], many));
        assert!(!html.contains("1.25"), "no room for values: {html}");
    }

    #[test]
    fn bands_and_single_measurements_are_drawn_and_long_lines_are_told_apart() {
        let band = |low: f64| Line {
            bands: vec![(low, 3.0), (0.5, 1.5)],
            dots: vec![(2.0, 1.0)],
            ..Line::new("errors", vec![(0.0, 2.0), (4.0, 1.0)])
        };
        let html = figure(Marks::Lines(vec![band(1.0)]));
        assert_eq!(html.matches("<polygon").count(), 2, "once for each width");
        assert_eq!(html.matches("<circle").count(), 2 * 3);
        let low = figure(Marks::Lines(vec![band(-100.0)]));
        assert!(
            low.contains(">\n-100\n<"),
            "a band is inside the plot: {low}"
        );
        let long = |at: f64| Line::new("a", (0..=100).map(|x| (f64::from(x), at)).collect());
        let html = figure(Marks::Lines(vec![long(1.0), long(1.0)]));
        assert_eq!(html.matches("<circle").count(), 0);
        let solid = figure(Marks::Lines(vec![long(1.0)]));
        let lines = |html: &str| html.matches("<polyline").count();
        assert!(lines(&html) > lines(&solid) + 20, "the second has dashes");
    }

    #[test]
    fn a_legend_is_beside_the_data_and_only_for_several_series() {
        let line = |name: &str| Line::new(name, vec![(0.0, 2.0), (4.0, 1.0)]);
        let one = figure(Marks::Lines(vec![line("victim")]));
        assert!(!one.contains("victim") && !one.contains("legend"), "{one}");
        let two = figure(Marks::Lines(vec![line("victim"), line("neighbor")]));
        for svg in two
            .split("<svg")
            .skip(1)
            .map(|rest| rest.split("</svg>").next().unwrap_or_default())
        {
            assert!(
                !svg.contains("victim"),
                "the plot itself has no legend: {svg}"
            );
        }
        assert!(two.contains("<ul class=\"legend\">"), "{two}");
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let none = chart(Marks::Lines(vec![]));
        assert!(
            none.figure()
                .expect("a figure")
                .into_string()
                .contains("c2is")
        );
        for (log, log_x) in [(true, false), (false, true)] {
            assert!(
                Chart {
                    log,
                    log_x,
                    ..none.clone()
                }
                .figure()
                .is_ok()
            );
        }
    }

    #[test]
    fn a_logarithmic_axis_names_real_values() {
        let points = vec![(200.0, 1.0), (1000.0, 30.0), (4000.0, 0.0002)];
        let lines = Marks::Lines(vec![Line::new("a", points)]);
        let html = Chart {
            log: true,
            log_x: true,
            ..chart(lines)
        }
        .figure()
        .expect("a figure")
        .into_string();
        for label in ["200", "1\u{202f}000", "4\u{202f}000", "0.0001", "100"] {
            assert!(html.contains(&format!(">\n{label}\n<")), "{label}: {html}");
        }
    }

    #[test]
    fn labels_of_groups_are_broken_and_cut() {
        assert_eq!(
            wrap("the victim's pages are private", 12),
            ["the victim's", "pages are", "private"]
        );
        assert_eq!(wrap("disparity-small", 10), ["disparity-", "small"]);
        assert_eq!(wrap("abcdefgh", 5), ["abcd…"]);
    }
}
