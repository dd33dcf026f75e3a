//! The report of an experiment's file: figures, tables, plots and an account, as expressions over
//! its runs and their systems.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::check::{Mistake, Quantity};
use super::expression::{self, Refusal, Selection, Value};
use super::facts;
use super::findings::{Cell, Findings, Runs, Series};
use super::measured::{Measured, figure_name};
use super::{overrides, splits};
use cloison_board_model::Board;
use cloison_config::document::{self, Field, Table as Entry};
use cloison_config::problem::{Problem, SourceFile};
use cloison_plot::{Chart, Heatmap, Line, Marks};
use std::cell::{Cell as Slot, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use toml::Spanned;

/// A text of the file: an expression, or a text with placeholders.
pub type Text = Spanned<String>;

/// The report of a file.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Named values for other expressions.
    pub values: BTreeMap<String, Text>,
    /// Figures.
    pub figures: BTreeMap<String, Text>,
    /// Tables and series.
    pub tables: Vec<Table>,
    /// Paragraphs.
    pub paragraphs: Vec<Paragraph>,
    /// The title of each variant.
    pub titles: BTreeMap<String, String>,
    /// An example of each run, also of those that a quick look leaves out. A name that none of
    /// them has is a mistake.
    pub examples: Vec<Measured>,
}

/// A paragraph, or a part of one.
#[derive(Clone, Debug)]
pub struct Paragraph {
    text: Text,
    /// The condition under which it belongs to the account.
    when: Option<Text>,
    /// The text otherwise.
    otherwise: Option<Text>,
    /// The table for whose every row it is repeated.
    each: Option<Text>,
    /// Whether it continues the paragraph before it.
    continues: bool,
}

/// A table, which is also a series.
#[derive(Clone, Debug)]
pub struct Table {
    name: Text,
    /// Without one it is not shown.
    title: Option<Text>,
    note: Option<Text>,
    /// The variants whose runs are its rows.
    rows: Option<Vec<Text>>,
    /// Rows of fixed values; a text that starts with `=` is an expression.
    row: Vec<BTreeMap<String, Spanned<toml::Value>>>,
    /// The part of each run that is a row.
    per: Option<Text>,
    /// The condition under which a row is there.
    when: Option<Text>,
    /// By what rows are ordered, the least first.
    order: Option<Text>,
    columns: Vec<Column>,
    /// Whether it is written as a series, too.
    series: bool,
    chart: Vec<ChartFile>,
}

#[derive(Clone, Debug)]
struct Column {
    name: Text,
    /// By default what has its name.
    value: Option<Text>,
    /// A text with placeholders instead.
    text: Option<Text>,
    /// Without it the cell is empty.
    when: Option<Text>,
    /// The name of a figure of each row.
    figure: Option<Text>,
    /// Whether other expressions alone use it.
    hidden: bool,
}

#[derive(Clone, Debug)]
struct ChartFile {
    title: Text,
    x: Option<Text>,
    /// With it, the plot is a heatmap of its one mark over `x` and this.
    y: Option<Text>,
    x_label: String,
    y_label: String,
    log: bool,
    log_x: bool,
    /// Lines over `x`, or, without it, bars for each row, named by its first column.
    marks: Vec<Mark>,
    /// For each of whose values there is such a plot.
    each: Option<Text>,
    /// For each of whose values there is such a line.
    by: Option<Text>,
}

#[derive(Clone, Debug)]
struct Mark {
    name: String,
    value: Text,
}

fn text(field: &Field<'_>) -> Option<Text> {
    Some(Spanned::new(field.span(), field.text()?.to_owned()))
}

/// Reads texts by name.
fn texts(field: &Field<'_>) -> Option<BTreeMap<String, Text>> {
    let entries = field.table()?.entries();
    let named = entries
        .into_iter()
        .map(|(name, _, field)| Some((name.to_owned(), text(&field)?)));
    Some(document::all(named)?.into_iter().collect())
}

/// Reads the fixed values of a row by column.
fn fixed_row(row: Entry<'_>) -> Option<BTreeMap<String, Spanned<toml::Value>>> {
    let values = row
        .entries()
        .into_iter()
        .map(|(name, _, field)| Some((name.to_owned(), Spanned::new(field.span(), field.any()?))));
    Some(document::all(values)?.into_iter().collect())
}

fn all_of<'a, T>(
    table: &Entry<'a>,
    key: &'static str,
    read: impl Fn(Entry<'a>) -> Option<T>,
) -> Option<Vec<T>> {
    document::all(table.tables(key).into_iter().map(read))
}

impl Paragraph {
    fn read(table: Entry<'_>) -> Option<Self> {
        let said = table.required_value("text", "write the text", text);
        let when = table.value("when", text);
        let otherwise = table.value("otherwise", text);
        let each = table.value("each", text);
        let continues = table.value("continues", Field::boolean);
        table.finish();
        Some(Self {
            text: said?.value,
            when: when.optional()?,
            otherwise: otherwise.optional()?,
            each: each.optional()?,
            continues: continues.or(false)?,
        })
    }
}

impl Table {
    fn read(mut table: Entry<'_>) -> Option<Self> {
        let name = table.required_value("name", "name the table", text);
        if let Some(name) = &name {
            table.rename(name.value.get_ref());
        }
        let title = table.value("title", text);
        let note = table.value("note", text);
        let rows = table.value("rows", |field| field.each(text));
        let row = all_of(&table, "row", fixed_row);
        let per = table.value("per", text);
        let when = table.value("when", text);
        let order = table.value("order", text);
        let columns = all_of(&table, "columns", Column::read);
        if columns.as_ref().is_some_and(Vec::is_empty) {
            let error = table.error("columns", table.span(), "the table has no columns");
            table.push(error.help("name at least one: columns = [{ name = \"…\" }]"));
        }
        let series = table.value("series", Field::boolean);
        let chart = all_of(&table, "chart", ChartFile::read);
        table.finish();
        Some(Self {
            name: name?.value,
            title: title.optional()?,
            note: note.optional()?,
            rows: rows.optional()?,
            row: row?,
            per: per.optional()?,
            when: when.optional()?,
            order: order.optional()?,
            columns: columns.filter(|columns| !columns.is_empty())?,
            series: series.or(true)?,
            chart: chart?,
        })
    }
}

impl Column {
    fn read(table: Entry<'_>) -> Option<Self> {
        let name = table.required_value("name", "name the column", text);
        let value = table.value("value", text);
        let filled = table.value("text", text);
        let when = table.value("when", text);
        let figure = table.value("figure", text);
        let hidden = table.value("hidden", Field::boolean);
        table.finish();
        Some(Self {
            name: name?.value,
            value: value.optional()?,
            text: filled.optional()?,
            when: when.optional()?,
            figure: figure.optional()?,
            hidden: hidden.or(false)?,
        })
    }
}

impl ChartFile {
    fn read(table: Entry<'_>) -> Option<Self> {
        let title = table.required_value("title", "name the plot", text);
        let x = table.value("x", text);
        let y = table.value("y", text);
        let x_label = table.value("x_label", Field::text);
        let y_label = table.value("y_label", Field::text);
        let log = table.value("log", Field::boolean);
        let log_x = table.value("log_x", Field::boolean);
        let marks = all_of(&table, "marks", Mark::read);
        let each = table.value("each", text);
        let by = table.value("by", text);
        let read = Self {
            title: title?.value,
            x: x.optional()?,
            y: y.optional()?,
            x_label: x_label.or("")?.to_owned(),
            y_label: y_label.or("")?.to_owned(),
            log: log.or(false)?,
            log_x: log_x.or(false)?,
            marks: marks?,
            each: each.optional()?,
            by: by.optional()?,
        };
        if let Some(y) = &read.y
            && !read.is_map()
        {
            let error = table.error(
                "y",
                y.span(),
                "a heatmap has an `x` and one mark, and nothing else",
            );
            table.push(
                error.help("leave `y` out for lines, or `by`, `log` and `log_x` for a heatmap"),
            );
        }
        table.finish();
        Some(read)
    }

    /// Whether nothing is set that a heatmap does not have.
    const fn is_map(&self) -> bool {
        self.x.is_some() && self.marks.len() == 1 && self.by.is_none() && !self.log && !self.log_x
    }
}

impl Mark {
    fn read(table: Entry<'_>) -> Option<Self> {
        let name = table.value("name", Field::text);
        let value = table.required_value("value", "write an expression", text);
        table.finish();
        Some(Self {
            name: name.or("")?.to_owned(),
            value: value?.value,
        })
    }
}

/// A row of a table: the run that it is of, and its values by name.
#[derive(Debug, Default)]
struct Row {
    run: Option<usize>,
    fields: Vec<(String, Value)>,
}

impl Row {
    fn field(&self, name: &str) -> Option<&Value> {
        let mut fields = self.fields.iter().rev();
        fields.find(|(known, _)| known == name).map(|(_, it)| it)
    }
}

/// The facts from which an account is written: runs, systems and model.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its runs.
    pub runs: Runs<'a>,
    /// The system of each run.
    pub systems: &'a [toml::Value],
    /// The variant to which slowdowns refer.
    pub baseline: &'a str,
    /// Name of the VM that is measured.
    pub victim: &'a str,
    /// The model.
    pub model: &'a Board,
}

/// A mistake in a text of the file.
struct Flaw {
    field: &'static str,
    text: Text,
    mistake: Mistake,
}

/// An account that is written.
struct Writer<'a> {
    account: &'a Account,
    subject: Subject<'a>,
    tables: RefCell<BTreeMap<String, Rc<Vec<Row>>>>,
    flaws: RefCell<Vec<Flaw>>,
    depth: Slot<usize>,
    reads_regions: Slot<bool>,
}

/// So deep expressions refer to others; deeper ones refer to themselves.
const DEPTH: usize = 24;

/// The position of an expression: its writer, and a row of a table.
struct Here<'a> {
    writer: &'a Writer<'a>,
    row: Option<&'a Row>,
}

/// The results of an account.
pub struct AccountResult {
    /// The results.
    pub findings: Findings,
    /// Whether it needs the model's counts of each segment.
    pub reads_regions: bool,
    /// What is wrong with its texts: the field, the text, and the mistake in it.
    flaws: Vec<Flaw>,
}

impl AccountResult {
    /// Returns the mistakes as problems of a file.
    pub fn problems(&self, source: &SourceFile) -> Vec<Problem> {
        problems(&self.flaws, source)
    }
}

/// The values of expressions that belong to no part of an account.
pub struct Numbers {
    /// The values, in the expressions' order; nothing where a run was left out.
    pub values: Vec<Option<f64>>,
    /// Whether they need the model's counts of each segment.
    pub reads_regions: bool,
    flaws: Vec<Flaw>,
}

impl Numbers {
    /// Returns the mistakes as problems of a file.
    pub fn problems(&self, source: &SourceFile) -> Vec<Problem> {
        problems(&self.flaws, source)
    }
}

fn problems(flaws: &[Flaw], source: &SourceFile) -> Vec<Problem> {
    let problem = |flaw: &Flaw| {
        let span = place(source.text(), &flaw.text, &flaw.mistake.at);
        Problem::error(source, flaw.field, span, &flaw.mistake.message)
            .label("here")
            .help(flaw.mistake.help.clone())
    };
    flaws.iter().map(problem).collect()
}

/// Returns the position in the file of a position in one of its strings.
fn place(file: &str, text: &Text, at: &Range<usize>) -> Range<usize> {
    let span = text.span();
    // Without escapes, a position in the string is one in the file.
    let inside = file
        .get(span.clone())
        .and_then(|raw| raw.find(text.get_ref().as_str()));
    match inside.filter(|_| !at.is_empty()) {
        Some(start) => span.start + start + at.start..span.start + start + at.end,
        None => span,
    }
}

impl Account {
    /// Reads what an experiment's file reports; nothing if something is wrong, which has been
    /// recorded. Variants have no titles and no examples yet.
    pub fn read(root: &Entry<'_>) -> Option<Self> {
        let values = root.value("values", texts);
        let figures = root.value("figures", texts);
        let tables = all_of(root, "table", Table::read);
        let paragraphs = all_of(root, "account", Paragraph::read);
        Some(Self {
            values: values.or(BTreeMap::new())?,
            figures: figures.or(BTreeMap::new())?,
            tables: tables?,
            paragraphs: paragraphs?,
            titles: BTreeMap::new(),
            examples: vec![],
        })
    }

    /// Returns whether the file has no report.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty() && self.paragraphs.is_empty() && self.figures.is_empty()
    }

    fn writer<'a>(&'a self, subject: Subject<'a>) -> Writer<'a> {
        Writer {
            account: self,
            subject,
            tables: RefCell::default(),
            flaws: RefCell::default(),
            depth: Slot::new(0),
            reads_regions: Slot::new(false),
        }
    }

    /// Evaluates expressions with the account's names; `field` is where the file has them.
    pub fn numbers<'t>(
        &self,
        field: &'static str,
        texts: impl Iterator<Item = &'t Text>,
        subject: Subject<'_>,
    ) -> Numbers {
        let writer = self.writer(subject);
        let number = |text: &Text| writer.value(field, text, None).number();
        Numbers {
            values: texts.map(number).collect(),
            reads_regions: writer.reads_regions.get(),
            flaws: writer.flaws.into_inner(),
        }
    }

    /// Writes the account of these runs.
    pub fn write(&self, subject: Subject<'_>) -> AccountResult {
        let writer = self.writer(subject);
        let mut findings = Findings::default();
        for (name, text) in &self.figures {
            if let Some(number) = writer.value("figures", text, None).number() {
                findings.figure(name.clone(), number);
            }
        }
        for text in self.values.values() {
            writer.value("values", text, None);
        }
        for table in &self.tables {
            writer.add_table(table, &mut findings);
        }
        for paragraph in &self.paragraphs {
            writer.say(paragraph, &mut findings);
        }
        AccountResult {
            findings,
            reads_regions: writer.reads_regions.get(),
            flaws: writer.flaws.into_inner(),
        }
    }
}

impl Writer<'_> {
    /// Evaluates an expression of the file; nothing if it has a mistake, which is kept.
    fn value(&self, field: &'static str, text: &Text, row: Option<&Row>) -> Value {
        let value = expression::evaluate(text.get_ref(), &Here { writer: self, row });
        self.kept(field, text, value).unwrap_or(Value::Missing)
    }

    /// Fills in a text of the file; nothing if something that it says is missing.
    fn text(&self, field: &'static str, text: &Text, row: Option<&Row>) -> Option<String> {
        let filled = expression::fill(text.get_ref(), &Here { writer: self, row });
        self.kept(field, text, filled).flatten()
    }

    fn kept<T>(&self, field: &'static str, text: &Text, result: Result<T, Mistake>) -> Option<T> {
        result
            .map_err(|mistake| {
                let mut flaws = self.flaws.borrow_mut();
                if flaws.iter().all(|flaw| flaw.text.span() != text.span()) {
                    flaws.push(Flaw {
                        field,
                        text: text.clone(),
                        mistake,
                    });
                }
            })
            .ok()
    }

    /// Returns the rows of a table with their columns.
    fn table(&self, table: &Table) -> Rc<Vec<Row>> {
        let name = table.name.get_ref();
        if let Some(known) = self.tables.borrow().get(name) {
            return Rc::clone(known);
        }
        let mut rows: Vec<Row> = self.bare_rows(table);
        if let Some(when) = &table.when {
            rows.retain(|row| self.value("table.when", when, Some(row)).holds());
        }
        if let Some(order) = &table.order {
            let key = |row: &Row| self.value("table.order", order, Some(row)).number();
            rows.sort_by(|one, other| {
                let keys = [one, other].map(|row| key(row).unwrap_or(f64::INFINITY));
                keys[0].total_cmp(&keys[1])
            });
        }
        for row in &mut rows {
            for column in &table.columns {
                let value = self.cell(column, row);
                row.fields.push((column.name.get_ref().clone(), value));
            }
        }
        let rows = Rc::new(rows);
        self.tables
            .borrow_mut()
            .insert(name.clone(), Rc::clone(&rows));
        rows
    }

    /// Returns the rows of a table without its columns.
    fn bare_rows(&self, table: &Table) -> Vec<Row> {
        let mut rows = vec![];
        for fixed in &table.row {
            let mut row = Row::default();
            for (name, value) in fixed {
                let value = self.fixed(value);
                row.fields.push((name.clone(), value));
            }
            rows.push(row);
        }
        if !table.row.is_empty() {
            return rows;
        }
        let runs = self.subject.runs.0;
        let mut chosen: Vec<usize> = vec![];
        match &table.rows {
            None => chosen.extend(0..runs.len()),
            Some(variants) => {
                for variant in variants {
                    let of = |index: &usize| runs[*index].variant == *variant.get_ref();
                    chosen.extend((0..runs.len()).filter(of));
                    if !self.account.titles.contains_key(variant.get_ref()) {
                        let _: Option<()> =
                            self.kept("table.rows", variant, Err(self.no_variant(variant)));
                    }
                }
            }
        }
        let Some(per) = &table.per else {
            let row = |run| Row {
                run: Some(run),
                fields: vec![],
            };
            return chosen.into_iter().map(row).collect();
        };
        let measured: Vec<(usize, &Measured)> =
            chosen.into_iter().map(|run| (run, &runs[run])).collect();
        match splits::split(per.get_ref(), &measured) {
            Ok(parts) => parts
                .into_iter()
                .map(|(run, fields)| Row { run, fields })
                .collect(),
            Err(refusal) => {
                let mistake = whole_text(per, refusal);
                let _: Option<()> = self.kept("table.per", per, Err(mistake));
                vec![]
            }
        }
    }

    fn no_variant(&self, variant: &Text) -> Mistake {
        let known = self.account.titles.keys().map(String::as_str);
        whole_text(
            variant,
            Refusal::unknown("variant", variant.get_ref(), "variants", known),
        )
    }

    /// Returns a value that the file gives a row.
    fn fixed(&self, value: &Spanned<toml::Value>) -> Value {
        if let toml::Value::String(text) = value.get_ref()
            && let Some(formula) = text.strip_prefix('=')
        {
            let text = Spanned::new(value.span(), formula.to_owned());
            return self.value("table.row", &text, None);
        }
        facts::of_toml(value.get_ref())
    }

    fn cell(&self, column: &Column, row: &Row) -> Value {
        let is_there = column
            .when
            .as_ref()
            .is_none_or(|when| self.value("table.columns.when", when, Some(row)).holds());
        let value = match &column.text {
            Some(text) => self
                .text("table.columns.text", text, Some(row))
                .map_or(Value::Missing, Value::Text),
            None => {
                let value = column.value.as_ref().unwrap_or(&column.name);
                self.value("table.columns.value", value, Some(row))
            }
        };
        if is_there { value } else { Value::Missing }
    }

    /// Adds a table, its series, its figures and its plots.
    fn add_table(&self, table: &Table, found: &mut Findings) {
        let rows = self.table(table);
        let shown = || table.columns.iter().filter(|column| !column.hidden);
        for row in rows.iter() {
            for column in &table.columns {
                let Some(figure) = &column.figure else {
                    continue;
                };
                let name = self.text("table.columns.figure", figure, Some(row));
                let number = row.field(column.name.get_ref()).and_then(Value::number);
                if let (Some(name), Some(number)) = (name, number) {
                    found.figure(figure_name(&name), number);
                }
            }
        }
        let cells = |row: &Row| {
            shown()
                .map(|column| cell(row.field(column.name.get_ref())))
                .collect()
        };
        let series = Series {
            name: table.name.get_ref().clone(),
            columns: shown()
                .map(|column| column.name.get_ref().clone())
                .collect(),
            rows: rows.iter().map(cells).collect(),
        };
        if let Some(title) = &table.title {
            let title = self.text("table.title", title, None).unwrap_or_default();
            let note = table.note.as_ref();
            let note = note.and_then(|note| self.text("table.note", note, None));
            found
                .tables
                .push(series.table(&title, &note.unwrap_or_default()));
        }
        if table.series {
            found.series.push(series);
        }
        for chart in &table.chart {
            self.add_charts(chart, &rows, found);
        }
    }

    /// Adds a plot of the rows, or one for each value by which they are told apart.
    fn add_charts(&self, chart: &ChartFile, rows: &[Row], found: &mut Findings) {
        let all: Vec<&Row> = rows.iter().collect();
        let plots = match &chart.each {
            None => vec![all],
            Some(each) => {
                let groups = self.grouped("table.chart.each", each, &all);
                groups.into_iter().map(|(_, rows)| rows).collect()
            }
        };
        for rows in plots {
            match &chart.y {
                None => found.charts.push(self.chart(chart, &rows)),
                Some(y) => found.heatmaps.push(self.heatmap(chart, y, &rows)),
            }
        }
    }

    /// Returns a map of the one mark of a plot.
    fn heatmap(&self, chart: &ChartFile, y: &Text, rows: &[&Row]) -> Heatmap {
        let title = self.chart_title(chart, rows);
        let mut map = Heatmap::new(title, &chart.x_label, &chart.y_label);
        for row in rows {
            let label =
                |field, text: &Text| cell(Some(&self.value(field, text, Some(row)))).shown();
            let x = chart.x.as_ref().map(|x| label("table.chart.x", x));
            let value = chart.marks.first().and_then(|mark| {
                self.value("table.chart.marks", &mark.value, Some(row))
                    .number()
            });
            if let (Some(x), Some(value)) = (x, value) {
                map.set(&x, &label("table.chart.y", y), value);
            }
        }
        map
    }

    fn chart_title(&self, chart: &ChartFile, rows: &[&Row]) -> String {
        let title = self.text("table.chart.title", &chart.title, rows.first().copied());
        title.unwrap_or_default()
    }

    /// Returns the rows by the values of an expression, in their order.
    fn grouped<'r>(
        &self,
        field: &'static str,
        by: &Text,
        rows: &[&'r Row],
    ) -> Vec<(Value, Vec<&'r Row>)> {
        let mut groups: Vec<(Value, Vec<&Row>)> = vec![];
        for row in rows {
            let value = self.value(field, by, Some(row));
            match groups.iter_mut().find(|(known, _)| *known == value) {
                Some((_, rows)) => rows.push(row),
                None => groups.push((value, vec![row])),
            }
        }
        groups
    }

    fn chart(&self, chart: &ChartFile, rows: &[&Row]) -> Chart {
        let value =
            |text: &Text, row: &Row| self.value("table.chart.marks", text, Some(row)).number();
        let marks = match &chart.x {
            Some(x) => {
                let line = |name: String, value_of: &Text, rows: &[&Row]| {
                    let point = |row: &&Row| Some((value(x, row)?, value(value_of, row)?));
                    Line::new(name, rows.iter().filter_map(point).collect())
                };
                let mut lines = vec![];
                for mark in &chart.marks {
                    match &chart.by {
                        None => lines.push(line(mark.name.clone(), &mark.value, rows)),
                        Some(by) => {
                            let groups = self.grouped("table.chart.by", by, rows);
                            lines.extend(groups.into_iter().map(|(value, rows)| {
                                line(cell(Some(&value)).shown(), &mark.value, &rows)
                            }));
                        }
                    }
                }
                Marks::Lines(lines)
            }
            None => {
                let group = |row: &&Row| {
                    let name = row
                        .fields
                        .iter()
                        .find(|(_, value)| *value != Value::Missing);
                    let bars = chart
                        .marks
                        .iter()
                        .map(|mark| value(&mark.value, row).unwrap_or(0.0));
                    (cell(name.map(|(_, value)| value)).text(), bars.collect())
                };
                Marks::Bars(
                    chart.marks.iter().map(|mark| mark.name.clone()).collect(),
                    rows.iter().map(group).collect(),
                )
            }
        };
        Chart {
            title: self.chart_title(chart, rows),
            x: chart.x_label.clone(),
            y: chart.y_label.clone(),
            log: chart.log,
            log_x: chart.log_x,
            marks,
        }
    }

    fn say(&self, paragraph: &Paragraph, found: &mut Findings) {
        let mut said = vec![];
        match &paragraph.each {
            None => said.extend(self.sentence(paragraph, None)),
            Some(each) => {
                let table = self.account.tables.iter().find(|table| table.name == *each);
                match table {
                    Some(table) => {
                        for row in self.table(table).iter() {
                            said.extend(self.sentence(paragraph, Some(row)));
                        }
                    }
                    None => {
                        let known = self
                            .account
                            .tables
                            .iter()
                            .map(|it| it.name.get_ref().as_str());
                        let refusal = Refusal::unknown("table", each.get_ref(), "tables", known);
                        let mistake = whole_text(each, refusal);
                        let _: Option<()> = self.kept("account.each", each, Err(mistake));
                    }
                }
            }
        }
        let said = said.join(" ");
        match found.account.last_mut().filter(|_| paragraph.continues) {
            _ if said.is_empty() => {}
            Some(before) => {
                before.push(' ');
                before.push_str(&said);
            }
            None => found.say(said),
        }
    }

    fn sentence(&self, paragraph: &Paragraph, row: Option<&Row>) -> Option<String> {
        let holds = paragraph
            .when
            .as_ref()
            .is_none_or(|when| self.value("account.when", when, row).holds());
        // Both are filled in, so that a mistake in either is found.
        let text = self.text("account.text", &paragraph.text, row);
        let otherwise = paragraph.otherwise.as_ref();
        let otherwise = otherwise.and_then(|text| self.text("account.otherwise", text, row));
        if holds { text } else { otherwise }
    }
}

/// Refuses a whole text.
fn whole_text(text: &Text, refusal: Refusal) -> Mistake {
    Mistake {
        at: 0..text.get_ref().len(),
        message: refusal.message,
        help: refusal.help,
    }
}

/// Returns a value as a cell of a series; empty if it is missing.
fn cell(value: Option<&Value>) -> Cell {
    match value {
        None | Some(Value::Missing) => Cell::Missing,
        Some(Value::Text(text)) => Cell::Text(text.clone()),
        Some(Value::Count(count)) => Cell::Count(*count),
        Some(Value::Number(number)) => Cell::Value(*number),
        Some(Value::List(all)) => {
            let all: Vec<String> = all.iter().map(|one| cell(Some(one)).text()).collect();
            Cell::Text(all.join(", "))
        }
    }
}

impl Here<'_> {
    fn run(&self) -> Option<&Measured> {
        let runs = self.writer.subject.runs.0;
        self.row?.run.and_then(|run| runs.get(run))
    }

    /// Returns the runs that a selection means here: those with its labels that agree with the
    /// row's run on the other axes that both have.
    fn runs(&self, of: &Selection) -> Result<Vec<usize>, Refusal> {
        let all = self.writer.subject.runs.0;
        if of.variant.is_empty() {
            let own = self.row.map_or(Some(0), |row| row.run);
            return Ok(own.filter(|run| *run < all.len()).into_iter().collect());
        }
        let titles = &self.writer.account.titles;
        if !titles.contains_key(&of.variant) {
            let tables = self
                .writer
                .account
                .tables
                .iter()
                .map(|it| it.name.get_ref());
            let known = titles.keys().chain(tables).map(String::as_str);
            return Err(Refusal::unknown(
                "variant or table",
                &of.variant,
                "names",
                known,
            ));
        }
        let own = self.run();
        let named = |axis: &String| of.axes.iter().any(|(other, _)| other == axis);
        let fits = |run: &Measured| {
            let agrees = |(axis, label): (&String, &String)| {
                named(axis)
                    || own.is_none_or(|own| own.axes.get(axis).is_none_or(|other| other == label))
            };
            run.variant == of.variant
                && of.axes.iter().all(|(axis, label)| run.label(axis) == label)
                && run.axes.iter().all(agrees)
        };
        let examples = &self.writer.account.examples;
        if !of.axes.is_empty() && !examples.iter().any(fits) {
            return Err(Refusal {
                message: format!("variant `{}` has no run with these labels", of.variant),
                help: "name axes of the variant, and values that they have".into(),
            });
        }
        Ok((0..all.len()).filter(|run| fits(&all[*run])).collect())
    }

    /// Returns a quantity of a run.
    fn quantity(&self, run: &Measured, name: &str) -> Result<Value, Refusal> {
        let Subject { runs, baseline, .. } = self.writer.subject;
        let of_event = |prefix: &str| name.strip_prefix(prefix).filter(|event| is_event(event));
        if let Some(name) = name.strip_prefix("numbers_") {
            let printed = run.printed.as_ref().and_then(|printed| printed.get(name));
            let all = printed.into_iter().flatten().map(|it| Value::Number(*it));
            return Ok(Value::List(all.collect()));
        }
        if let Some(event) = of_event("fewest_") {
            self.counted(event)?;
            return Ok(Value::Count(run.fewest(event)));
        }
        if let Some(event) = of_event("model_") {
            self.writer.reads_regions.set(true);
            let region = run.regions.first();
            let core = region.and_then(|region| region.cores.first());
            return Ok(core.map_or(Value::Missing, |core| Value::Count(core.event(event))));
        }
        if let Some(start) = name.strip_prefix("curve_") {
            let points = splits::points(run, &format!("{start}_")).into_iter();
            return Ok(Value::List(
                points.map(|(_, mean)| Value::Number(mean)).collect(),
            ));
        }
        if splits::OF_PROFILE.contains(&name) {
            return Ok(splits::of_profile(run, name).unwrap_or(Value::Missing));
        }
        let Some(quantity) = Quantity::named(name) else {
            let known = Quantity::names();
            return Err(Refusal::unknown("quantity", name, "quantities", known));
        };
        if let Quantity::Event(event) = &quantity {
            self.counted(event)?;
        }
        let value = quantity.of(run, runs, baseline);
        Ok(
            value.map_or(Value::Missing, |value| match quantity.is_whole() {
                true => Value::Count(value as u64),
                false => Value::Number(value),
            }),
        )
    }

    /// Refuses an event that no run's victim counts.
    fn counted(&self, event: &str) -> Result<(), Refusal> {
        let runs = self.writer.subject.runs.0.iter();
        let segments = runs
            .chain(&self.writer.account.examples)
            .flat_map(|run| &run.segments);
        if segments
            .clone()
            .any(|segment| segment.events.contains_key(event))
        {
            return Ok(());
        }
        let known = segments.flat_map(|segment| segment.events.keys());
        let help = cloison_config::suggest(event, "its `hems`", known.map(String::as_str));
        Err(Refusal {
            message: format!(
                "VM `{}` does not count `{event}`",
                self.writer.subject.victim
            ),
            help,
        })
    }
}

fn is_event(name: &str) -> bool {
    name.chars()
        .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

impl expression::Scope for Here<'_> {
    fn name(&self, name: &str) -> Result<Value, Refusal> {
        if let Some(value) = self.row.and_then(|row| row.field(name)) {
            return Ok(value.clone());
        }
        let account = self.writer.account;
        if let Some(run) = self.run() {
            match name {
                "variant" => return Ok(Value::Text(run.variant.clone())),
                "title" => {
                    let title = account.titles.get(&run.variant).unwrap_or(&run.variant);
                    return Ok(Value::Text(title.clone()));
                }
                _ => {}
            }
            if Runs(&account.examples).axes().contains(name) {
                return Ok(match Cell::label(run, name) {
                    Cell::Count(count) => Value::Count(count),
                    cell if run.axes.contains_key(name) => Value::Text(cell.text()),
                    _ => Value::Missing,
                });
            }
        }
        // In a row, a quantity is that of its run.
        let of_run = self.run().filter(|_| Quantity::named(name).is_some());
        let named = account.figures.get(name).or(account.values.get(name));
        let named = named.filter(|_| of_run.is_none());
        if let Some(text) = named {
            let depth = self.writer.depth.get();
            if depth >= DEPTH {
                return Err(Refusal {
                    message: format!("`{name}` refers to itself"),
                    help: "give it an expression without its own name".into(),
                });
            }
            self.writer.depth.set(depth + 1);
            let value = self.writer.value("figures", text, None);
            self.writer.depth.set(depth);
            return Ok(value);
        }
        match self.run() {
            Some(run) => self.quantity(run, name),
            None => {
                let known = account.figures.keys().chain(account.values.keys());
                let known = known.map(String::as_str);
                Err(Refusal::unknown("figure or value", name, "figures", known))
            }
        }
    }

    fn member(&self, of: &Selection, name: &str) -> Result<Value, Refusal> {
        let writer = self.writer;
        if of.variant == "model" {
            return facts::of_model(writer.subject.model, name);
        }
        let mut tables = writer.account.tables.iter();
        if let Some(table) = tables.find(|table| *table.name.get_ref() == of.variant) {
            let known = || table.columns.iter().map(|it| it.name.get_ref().as_str());
            if !known().any(|column| column == name) {
                return Err(Refusal::unknown("column", name, "columns", known()));
            }
            let rows = writer.table(table);
            let value = |row: &Row| row.field(name).cloned().unwrap_or(Value::Missing);
            return Ok(Value::List(rows.iter().map(value).collect()));
        }
        let runs = writer.subject.runs.0;
        let values = self.runs(of)?.into_iter();
        let values = values.map(|run| self.quantity(&runs[run], name));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        Ok(Value::list(values))
    }

    fn setting(&self, of: &Selection, path: &str) -> Result<Value, Refusal> {
        let systems = self.writer.subject.systems;
        let (mut all, mut runs): (Vec<Vec<Value>>, usize) = (vec![], 0);
        for system in self.runs(of)?.iter().filter_map(|run| systems.get(*run)) {
            let found: Vec<Value> = overrides::get(system, path).map(facts::of_toml).collect();
            runs += 1;
            if !found.is_empty() && !all.contains(&found) {
                all.push(found);
            }
        }
        if all.is_empty() && runs > 0 {
            return Err(Refusal {
                message: format!("the system has no `{path}`"),
                help: "paths start at the root of the system's file: vm.NAME.args.0".into(),
            });
        }
        Ok(Value::list(all.into_iter().flatten().collect()))
    }

    fn of_event(&self, _: &str, event: &str, factor: f64) -> Result<Value, Refusal> {
        self.writer.reads_regions.set(true);
        let Subject {
            systems,
            victim,
            model,
            ..
        } = self.writer.subject;
        let (Some(run), Some(index)) = (self.run(), self.row.and_then(|row| row.run)) else {
            return Err(Refusal {
                message: "only a run has other cores".into(),
                help: "use `others` in a column of a table of runs".into(),
            });
        };
        let path = format!("vm.{victim}.cores");
        let mut cores = systems
            .get(index)
            .into_iter()
            .flat_map(|it| overrides::get(it, &path));
        let core = cores.next().and_then(|cores| cores.get(0)?.as_integer());
        let core = core
            .and_then(|core| usize::try_from(core).ok())
            .unwrap_or(0);
        Ok(Value::Number(run.others_bytes_per_second(
            core,
            event,
            factor as u64,
            model.clock_mhz,
        )))
    }
}

#[cfg(test)]
mod tests;
