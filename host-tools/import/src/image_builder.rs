//! Reads configurations of Xen's ImageBuilder: assignments of a shell, `KEY="value"` and
//! `KEY[number]="value"`.
//!
//! No shell runs. Of other commands, and of assignments that a condition guards, only their number
//! is reported.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::cores;
use crate::draft::{Cores, Draft, DraftImage, DraftVm};
use crate::fields::IMAGE_BUILDER;
use crate::source::{Failure, Place, Sources};
use crate::xen_domain::{self, CommandLine, Kernel};
use cloison_abi::map;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The memory of a domain for which the file names none, and of a dom0.
const DOMU_MIB: u64 = 512;
/// The most domains that are looked at.
const MOST_DOMAINS: u64 = 64;
/// The longest value, with what it refers to.
const LONGEST_VALUE: usize = 64 << 10;

/// A value and its place.
#[derive(Clone, Debug)]
struct Value {
    text: String,
    place: Place,
}

/// The assignments of a file, by key and index.
struct Assignments {
    values: BTreeMap<(String, String), Value>,
    /// Lines that are no assignments, and the first of these.
    others: Vec<Place>,
}

/// Reads a configuration.
///
/// # Errors
///
/// Returns the first value that is not what its key wants.
pub fn read(sources: &Sources, file: u16) -> Result<Draft, Failure> {
    let assignments = Assignments::read(sources, file)?;
    let stem = sources.path(file).file_stem().unwrap_or_default();
    let mut draft = Draft {
        name: stem.to_string_lossy().into_owned(),
        ..Draft::default()
    };
    if let Some(first) = assignments.others.first() {
        let reason = format!(
            "{} of a shell are not run, with those that depend on them",
            cloison_config::problem::count(assignments.others.len(), "line")
        );
        draft.note(*first, "shell", reason, "import what the script writes");
    }
    let mut noted: Vec<&str> = Vec::new();
    for ((key, index), value) in &assignments.values {
        let shown = if index.is_empty() {
            key.clone()
        } else {
            format!("{key}[{index}]")
        };
        let is_none = value.text.is_empty()
            || matches!(
                key.as_str(),
                "DOMU_ENHANCED" | "DOMU_NOBOOT" | "DOMU_DIRECT_MAP" | "NUM_CPUPOOLS"
            ) && value.text == "0";
        // Others are variables of the file itself.
        let is_its = ["DOM0_", "DOMU_", "XEN"]
            .iter()
            .any(|prefix| key.starts_with(prefix));
        let is_none = is_none || !is_its && IMAGE_BUILDER.row(key).is_none();
        if !is_none && !noted.contains(&shown.as_str()) {
            draft.note_field(&IMAGE_BUILDER, key, value.place, &shown);
            noted.push(key);
        }
    }
    let reader = Reader {
        sources,
        assignments,
    };
    reader.dom0(&mut draft)?;
    let count = reader
        .number("NUM_DOMUS", "")?
        .unwrap_or_else(|| reader.domains());
    if count > MOST_DOMAINS {
        let place = reader.place("NUM_DOMUS", "");
        let message = format!("{count} domains");
        return Err(sources
            .error(place, "NUM_DOMUS", message)
            .help("a system has at most 8 VMs")
            .into());
    }
    for number in 0..count {
        let vm = reader.domain(number)?;
        draft.vms.push(vm);
    }
    if draft.vms.is_empty() {
        let place = Place {
            file,
            start: 0,
            end: 1,
        };
        return Err(sources
            .error(
                place,
                "NUM_DOMUS",
                "it describes neither a domain nor a dom0",
            )
            .help("a domain has DOMU_KERNEL[0], and NUM_DOMUS says how many there are")
            .into());
    }
    Ok(draft)
}

impl Assignments {
    fn read(sources: &Sources, file: u16) -> Result<Self, Failure> {
        let mut found = Self {
            values: BTreeMap::new(),
            others: Vec::new(),
        };
        let text = sources.text(file);
        let (mut start, mut depth) = (0, 0_usize);
        let mut lines = text.split_inclusive('\n').peekable();
        while let Some(line) = lines.next() {
            let mut whole = line.to_owned();
            let begin = start;
            start += line.len();
            // A value may have line ends in its quotes, or after a backslash.
            let mut quote = None;
            follow(&mut quote, line);
            let may = is_value(line);
            while quote.is_some() && may || whole.trim_end_matches('\n').ends_with('\\') {
                let Some(more) = lines.next() else { break };
                follow(&mut quote, more);
                start += more.len();
                whole.push_str(more);
                if whole.len() > LONGEST_VALUE {
                    let place = span(file, begin, begin + 1);
                    let failure = sources.error(place, "shell", "a quotation without an end");
                    return Err(failure.help("close the quotation marks").into());
                }
            }
            let place = span(file, begin, begin + whole.trim_end().len());
            let statement = whole.trim();
            if statement.is_empty() || statement.starts_with('#') {
                continue;
            }
            match statement.split_whitespace().next().unwrap_or_default() {
                "if" | "for" | "while" | "case" | "until" => depth += 1,
                "fi" | "done" | "esac" => depth = depth.saturating_sub(1),
                _ => {
                    if depth == 0 && found.assign(sources, statement, place)? {
                        continue;
                    }
                }
            }
            found.others.push(place);
        }
        Ok(found)
    }

    /// Carries out an assignment; returns whether it is one. Several in quotes, as `echo` gets
    /// them, are a text that a script writes, and are carried out too.
    fn assign(
        &mut self,
        sources: &Sources,
        statement: &str,
        place: Place,
    ) -> Result<bool, Failure> {
        if let Some(quoted) = statement
            .strip_prefix("echo '")
            .and_then(|rest| rest.split_once('\''))
        {
            let mut any = false;
            let mut start = place.start + 6;
            for line in quoted.0.split_inclusive('\n') {
                let place = Place {
                    start,
                    end: start + line.trim_end().len() as u32,
                    ..place
                };
                start += line.len() as u32;
                any |= self.assign(sources, line.trim(), place)?;
            }
            return Ok(any);
        }
        let statement = statement.strip_prefix("export ").unwrap_or(statement);
        let Some((target, value)) = statement.split_once('=') else {
            return Ok(false);
        };
        let (target, appends) = match target.strip_suffix('+') {
            Some(target) => (target, true),
            None => (target, false),
        };
        let (key, index) = match target.split_once('[') {
            Some((key, index)) => match index.strip_suffix(']') {
                Some(index) => (key, index.replace(' ', "")),
                None => return Ok(false),
            },
            None => (target, String::new()),
        };
        let is_key = !key.is_empty()
            && key.chars().all(|letter| {
                letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_'
            });
        if !is_key {
            return Ok(false);
        }
        // KEY=("a" "b") is KEY[0] and KEY[1].
        if let Some(list) = value
            .trim()
            .strip_prefix('(')
            .and_then(|list| list.strip_suffix(')'))
        {
            for (number, word) in words(list).into_iter().enumerate() {
                let text = self.text(sources, &word, place)?;
                self.values
                    .insert((key.to_owned(), number.to_string()), Value { text, place });
            }
            return Ok(true);
        }
        let mut text = match self.text(sources, value, place) {
            Ok(text) => text,
            // A variable of the script itself.
            Err(_) if IMAGE_BUILDER.row(key).is_none() => return Ok(false),
            Err(failure) => return Err(failure),
        };
        let at = (key.to_owned(), index);
        if appends && let Some(before) = self.values.get(&at) {
            text = format!("{}{text}", before.text);
        }
        if text.len() > LONGEST_VALUE {
            let failure = sources.error(place, key, "a value that is too long");
            return Err(failure.help("write it without variables in it").into());
        }
        self.values.insert(at, Value { text, place });
        Ok(true)
    }

    /// Returns a value without quotes, with its variables replaced.
    fn text(&self, sources: &Sources, value: &str, place: Place) -> Result<String, Failure> {
        let mut text = String::new();
        let mut quote = None;
        let mut letters = value.trim().chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\'' | '"' if quote.is_none() => quote = Some(letter),
                _ if quote == Some(letter) => quote = None,
                '#' if quote.is_none() && text.ends_with(' ') => break,
                '\\' if quote != Some('\'') => text.extend(letters.next()),
                '`' if quote != Some('\'') => return Err(substitution(sources, place)),
                '$' if quote != Some('\'') => {
                    if letters.peek() == Some(&'(') {
                        return Err(substitution(sources, place));
                    }
                    let mut name = String::new();
                    let braces = letters.next_if_eq(&'{').is_some();
                    let fits = |letter: &char| {
                        letter.is_ascii_alphanumeric() || *letter == '_' || braces && *letter != '}'
                    };
                    while let Some(letter) = letters.next_if(fits) {
                        name.push(letter);
                    }
                    if braces {
                        letters.next();
                    }
                    let (key, index) = name.split_once('[').unwrap_or((&name, ""));
                    let at = (key.to_owned(), index.trim_end_matches(']').to_owned());
                    let known = self.values.get(&at).map_or("", |value| value.text.as_str());
                    text.push_str(known);
                }
                ';' | '|' | '&' | '>' | '<' if quote.is_none() => break,
                _ => text.push(letter),
            }
            if text.len() > LONGEST_VALUE {
                break;
            }
        }
        Ok(text.trim().to_owned())
    }
}

fn substitution(sources: &Sources, place: Place) -> Failure {
    sources
        .error(place, "shell", "a command in a value: no shell runs here")
        .help("write its result")
        .into()
}

fn span(file: u16, start: usize, end: usize) -> Place {
    let [start, end] = [start, end].map(|at| u32::try_from(at).unwrap_or(u32::MAX));
    Place { file, start, end }
}

/// Follows quotation marks to the end of a line. `quote` is the mark that is open before and after.
fn follow(quote: &mut Option<char>, line: &str) {
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' if *quote != Some('\'') => {
                letters.next();
            }
            '#' if quote.is_none() => return,
            '\'' | '"' if quote.is_none() => *quote = Some(letter),
            _ if *quote == Some(letter) => *quote = None,
            _ => {}
        }
    }
}

/// Returns whether a line of this start can be continued by the next one: an apostrophe in prose
/// opens no value.
fn is_value(line: &str) -> bool {
    line.contains('=') || line.trim_start().starts_with("echo '")
}

/// Splits at spaces that are not in quotes.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in text.chars() {
        match letter {
            '\'' | '"' if quote.is_none() => quote = Some(letter),
            _ if quote == Some(letter) => quote = None,
            _ if letter.is_whitespace() && quote.is_none() => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = words.last_mut() {
            last.push(letter);
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

struct Reader<'a> {
    sources: &'a Sources,
    assignments: Assignments,
}

impl Reader<'_> {
    fn value(&self, key: &str, index: &str) -> Option<&Value> {
        let at = (key.to_owned(), index.to_owned());
        self.assignments
            .values
            .get(&at)
            .filter(|value| !value.text.is_empty())
    }

    fn place(&self, key: &str, index: &str) -> Place {
        self.value(key, index)
            .map(|value| value.place)
            .unwrap_or_default()
    }

    fn text(&self, key: &str, index: &str) -> Option<String> {
        self.value(key, index).map(|value| value.text.clone())
    }

    fn number(&self, key: &str, index: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.value(key, index) else {
            return Ok(None);
        };
        number(&value.text).map(Some).ok_or_else(|| {
            self.sources
                .error(
                    value.place,
                    key,
                    format!("`{}` is not a number", value.text),
                )
                .help("write a whole number")
                .into()
        })
    }

    /// Returns how many domains have a kernel, if the file does not say.
    fn domains(&self) -> u64 {
        let indices = self.assignments.values.keys();
        indices
            .filter(|(key, _)| key == "DOMU_KERNEL")
            .filter_map(|(_, index)| index.parse::<u64>().ok())
            .map(|index| index.saturating_add(1))
            .max()
            .unwrap_or(0)
    }

    fn dom0(&self, draft: &mut Draft) -> Result<(), Failure> {
        let line = self.value("XEN_CMD", "").cloned();
        let (text, place) = line.map(|line| (line.text, line.place)).unwrap_or_default();
        let mut xen = CommandLine::read(draft, self.sources, &text, place)?;
        if let Some(value) = self.value("XEN_COLORS", "") {
            draft.hypervisor_colors =
                Some(xen_domain::colors(self.sources, &value.text, value.place)?);
        }
        let Some(kernel) = self.value("DOM0_KERNEL", "") else {
            return Ok(());
        };
        if let Some(value) = self.value("DOM0_COLORS", "") {
            xen.colors = Some(xen_domain::colors(self.sources, &value.text, value.place)?);
        }
        if let Some(size) = self.number("DOM0_MEM", "")? {
            xen.memory = size.checked_mul(1 << 20);
        }
        xen.vcpus = self.number("DOM0_VCPUS", "")?.or(xen.vcpus);
        let modules = Kernel {
            kernel: PathBuf::from(&kernel.text),
            ramdisk: self.text("DOM0_RAMDISK", "").map(PathBuf::from),
        };
        xen.push_dom0(draft, modules, self.text("DOM0_CMD", ""), kernel.place);
        Ok(())
    }

    fn domain(&self, number: u64) -> Result<DraftVm, Failure> {
        let index = number.to_string();
        let index = index.as_str();
        let name = format!("domU{number}");
        let Some(kernel) = self.value("DOMU_KERNEL", index) else {
            let place = self.place("NUM_DOMUS", "");
            let message = format!("domain {number} has no DOMU_KERNEL[{number}]");
            return Err(self
                .sources
                .error(place, "NUM_DOMUS", message)
                .help("name its kernel, or correct NUM_DOMUS")
                .into());
        };
        let colors = match self.value("DOMU_COLORS", index) {
            Some(value) => Some(xen_domain::colors(self.sources, &value.text, value.place)?),
            None => None,
        };
        let count = self.number("DOMU_VCPUS", index)?.unwrap_or(1);
        let place = kernel.place;
        let regions = match self.value("DOMU_STATIC_MEM", index) {
            Some(value) => self.static_memory(value, index, colors)?,
            None => {
                let size = self.number("DOMU_MEM", index)?.unwrap_or(DOMU_MIB);
                let size = size.saturating_mul(1 << 20);
                let at = self
                    .value("DOMU_MEM", index)
                    .map_or(place, |value| value.place);
                vec![xen_domain::memory(at, map::RAM, size, colors)]
            }
        };
        Ok(DraftVm {
            // A kernel finds it in its device tree.
            distributor: None,
            name,
            place,
            cores: self.affinity(index, count)?,
            regions,
            interrupts: Vec::new(),
            image: DraftImage::Kernel {
                path: PathBuf::from(&kernel.text),
                initrd: self.text("DOMU_RAMDISK", index).map(PathBuf::from),
                cmdline: self.text("DOMU_CMD", index).unwrap_or_default(),
            },
            remarks: Vec::new(),
        })
    }

    /// Returns the cores that `DOMU_VCPU_HARD_AFFINITY[domain,vCPU]` names.
    fn affinity(&self, index: &str, count: u64) -> Result<Cores, Failure> {
        let mut mask = 0;
        for vcpu in 0..count.min(64) {
            if let Some(value) = self.value("DOMU_VCPU_HARD_AFFINITY", &format!("{index},{vcpu}")) {
                mask |= xen_domain::colors(self.sources, &value.text, value.place)?.mask;
            }
        }
        let named = cores::bits(mask).count();
        Ok(if named == 0 {
            Cores::Some(count)
        } else {
            Cores::SomeOf(count, mask)
        })
    }

    fn static_memory(
        &self,
        value: &Value,
        index: &str,
        colors: Option<crate::draft::Colors>,
    ) -> Result<Vec<crate::draft::DraftRegion>, Failure> {
        let numbers: Option<Vec<u64>> = value.text.split_whitespace().map(number).collect();
        let Some(numbers) = numbers.filter(|numbers| numbers.len() % 2 == 0) else {
            let message = format!("`{}` is not pairs of address and size", value.text);
            return Err(self
                .sources
                .error(value.place, "DOMU_STATIC_MEM", message)
                .help("write \"0x50000000 0x10000000\"")
                .into());
        };
        let is_direct = self
            .text("DOMU_DIRECT_MAP", index)
            .is_some_and(|text| text != "0");
        let mut next = map::RAM;
        Ok(numbers
            .chunks_exact(2)
            .map(|pair| {
                let ipa = if is_direct { pair[0] } else { next };
                next = next.saturating_add(pair[1]);
                xen_domain::memory(value.place, ipa, pair[1], colors)
            })
            .collect())
    }
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}
