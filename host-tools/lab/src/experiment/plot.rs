//! Plots as SVG.
// SPDX-License-Identifier: MIT OR Apache-2.0

use miette::{Result, miette};
use plotters::prelude::*;

/// Colors that are easy to tell apart, also for color-blind readers (after Okabe and Ito).
const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x8a, 0x8a, 0x00),
];

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
    /// What to draw.
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
#[derive(Clone, Debug)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// The points, in drawing order.
    pub points: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (860, 380);

impl Chart {
    /// Returns the plot as an SVG element. The y axis starts at zero, so that noise does not look like an effect, or is
    /// logarithmic.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.draw(&mut text).map_err(|error| miette!("cannot draw `{}`: {error}", self.title))?;
        Ok(text)
    }

    /// Returns the range of the y axis; for a logarithmic axis, of the logarithms.
    fn range(&self, values: &[f64]) -> (f64, f64) {
        let highest = values.iter().copied().fold(0.0, f64::max);
        if !self.log {
            return (0.0, if highest > 0.0 { highest * 1.08 } else { 1.0 });
        }
        let lowest = values.iter().copied().filter(|&value| value > 0.0).fold(f64::INFINITY, f64::min);
        match lowest.is_finite() {
            true => (lowest.log10().floor() - 0.25, highest.log10().ceil().max(lowest.log10().floor() + 1.0)),
            false => (0.0, 1.0),
        }
    }

    fn draw(&self, text: &mut String) -> std::result::Result<(), Box<dyn std::error::Error>> {
        let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let values: Vec<f64> = match &self.marks {
            Marks::Lines(lines) => lines.iter().flat_map(|line| &line.points).map(|point| point.1).collect(),
            Marks::Bars(_, groups) => groups.iter().flat_map(|group| &group.1).copied().collect(),
        };
        let (bottom, highest) = self.range(&values);
        // Logarithmic bars are all long, so the legend is above them.
        let is_crowded = self.log && matches!(self.marks, Marks::Bars(..));
        let top = if is_crowded { highest + 0.45 * (highest - bottom) } else { highest };
        let height = |value: f64| if self.log { value.log10().max(bottom) } else { value };
        let (first, last) = match &self.marks {
            Marks::Lines(lines) => {
                let xs = || lines.iter().flat_map(|line| &line.points).map(|point| point.0);
                (xs().fold(f64::INFINITY, f64::min), xs().fold(f64::NEG_INFINITY, f64::max))
            }
            Marks::Bars(_, groups) => (-0.5, groups.len() as f64 - 0.5),
        };
        // An axis needs a length even with a single point or none.
        let (first, last) = match first.is_finite() {
            true if first < last => (first, last),
            true => (first - 0.5, first + 0.5),
            false => (0.0, 1.0),
        };
        let mut chart = ChartBuilder::on(&area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(10)
            .x_label_area_size(42)
            .y_label_area_size(60)
            .build_cartesian_2d(first..last, bottom..top)?;
        let decades = if self.log { (top - bottom).ceil() as usize + 1 } else { 10 };
        let y_label = |y: &f64| match (self.log, y.fract() == 0.0) {
            (false, _) => format!("{y}"),
            (true, _) if *y > highest => String::new(),
            (true, true) if (0.0..6.0).contains(y) => format!("{}", 10f64.powf(*y)),
            (true, true) => format!("1e{y}"),
            (true, false) => String::new(),
        };
        let group_at = |x: &f64| match &self.marks {
            Marks::Bars(_, groups) if x.fract() == 0.0 => {
                groups.get(x.round() as usize).map_or_else(String::new, |group| group.0.clone())
            }
            _ => String::new(),
        };
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(&self.x).y_desc(&self.y).y_labels(decades).y_label_formatter(&y_label).light_line_style(WHITE);
        if let Marks::Bars(_, groups) = &self.marks {
            mesh.disable_x_mesh().x_labels(groups.len() * 2 + 1).x_label_formatter(&group_at);
        }
        mesh.draw()?;
        match &self.marks {
            Marks::Lines(lines) => {
                for (line, color) in lines.iter().zip(PALETTE.iter().cycle()) {
                    let points = || line.points.iter().map(|&(x, y)| (x, height(y)));
                    chart
                        .draw_series(LineSeries::new(points(), color.stroke_width(2)))?
                        .label(&line.name)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
                    chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
                }
            }
            Marks::Bars(names, groups) => {
                let width = 0.8 / names.len().max(1) as f64;
                for (bar, (label, color)) in names.iter().zip(PALETTE.iter().cycle()).enumerate() {
                    let left = |group: usize| group as f64 - 0.4 + bar as f64 * width;
                    let bars = groups.iter().enumerate().filter_map(|(group, (_, values))| {
                        let value = height(*values.get(bar)?);
                        let (from, to) = (left(group), left(group) + width * 0.92);
                        Some(Rectangle::new([(from, bottom), (to, value)], color.filled()))
                    });
                    chart
                        .draw_series(bars)?
                        .label(label)
                        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
                }
            }
        }
        // Where it hides the least in the shipped plots.
        let corner = match &self.marks {
            Marks::Lines(_) => SeriesLabelPosition::UpperRight,
            Marks::Bars(..) => SeriesLabelPosition::UpperLeft,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(0xcc, 0xcc, 0xcc))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_say_what_they_are_given() {
        let points = vec![(0.0, 2.0), (4.0, 1.0)];
        let lines = Marks::Lines(vec![Line { name: "under <Interf>".into(), points }]);
        let chart = Chart { title: "c2is".into(), x: "pages".into(), y: "slowdown".into(), log: false, marks: lines };
        let svg = chart.svg().expect("an SVG");
        assert!(svg.starts_with("<svg") && svg.contains("under &lt;Interf&gt;") && svg.contains("pages"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        let bars = Marks::Bars(vec!["solo".into(), "interf".into()], vec![("a".into(), vec![1.0, 2.0])]);
        let svg = Chart { marks: bars, ..chart }.svg().expect("an SVG");
        assert!(svg.contains("solo") && svg.contains("interf"), "{svg}");
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let chart =
            Chart { title: "none".into(), x: "x".into(), y: "y".into(), log: false, marks: Marks::Lines(vec![]) };
        assert!(chart.svg().expect("an SVG").contains("none"));
        assert!(Chart { log: true, ..chart }.svg().expect("an SVG").contains("none"));
    }

    #[test]
    fn a_logarithmic_axis_names_powers_of_ten() {
        let bars = Marks::Bars(
            vec!["a".into()],
            vec![("x".into(), vec![0.0002]), ("y".into(), vec![30.0]), ("z".into(), vec![0.0])],
        );
        let chart = Chart { title: "t".into(), x: "x".into(), y: "y".into(), log: true, marks: bars };
        assert_eq!(chart.range(&[0.0002, 30.0, 0.0]), (-4.25, 2.0));
        let svg = chart.svg().expect("an SVG");
        for label in ["1e-4", "1e-1", ">\n1\n<", ">\n100\n<"] {
            assert!(svg.contains(label), "{label}: {svg}");
        }
    }
}
