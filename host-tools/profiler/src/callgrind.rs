//! A profile in the format of Callgrind, as KCachegrind and `callgrind_annotate` read it.
//!
//! The format is described in Valgrind's manual, "Callgrind Format Specification".
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::costs::{Costs, Function, Table};
use cloison_board_model::profile::{EVENTS, Values};
use std::collections::HashMap;
use std::fmt::Write;

/// Name of an unknown file, as Callgrind has it.
const UNKNOWN: &str = "???";

/// Names with numbers, written in full where they are first.
#[derive(Default)]
struct Numbers(HashMap<String, usize>);

impl Numbers {
    fn of(&mut self, name: &str) -> String {
        // A name ends with its line.
        let name = name.replace(['\n', '\r'], " ");
        let next = self.0.len() + 1;
        match self.0.get(&name) {
            Some(number) => format!("({number})"),
            None => {
                let text = format!("({next}) {name}");
                self.0.insert(name, next);
                text
            }
        }
    }
}

/// Writes a file part by part.
struct Writer {
    text: String,
    files: Numbers,
    functions: Numbers,
}

/// Returns a part of a run as a file. `what` is one line about it.
pub fn file(table: &Table, what: &str) -> String {
    let mut writer = Writer {
        text: String::new(),
        files: Numbers::default(),
        functions: Numbers::default(),
    };
    let events = EVENTS.map(|event| event.name()).join(" ");
    let totals = numbers(&table.totals);
    writer.line(format_args!("# callgrind format"));
    writer.line(format_args!("version: 1"));
    writer.line(format_args!("creator: cloison profile"));
    writer.line(format_args!("cmd: {}", what.replace('\n', " ")));
    writer.line(format_args!("desc: Trigger: end of the run, modelled"));
    writer.line(format_args!("positions: instr line"));
    writer.line(format_args!("events: {events}"));
    writer.line(format_args!("summary: {totals}"));
    writer.line(format_args!(""));
    writer.line(format_args!("ob={}", table.object));
    for (function, costs) in &table.functions {
        writer.function(function, costs);
    }
    writer.line(format_args!("totals: {totals}"));
    writer.text
}

fn numbers(values: &Values) -> String {
    values.map(|value| value.to_string()).join(" ")
}

impl Writer {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn function(&mut self, function: &Function, costs: &Costs) {
        let own = function.file.as_deref().unwrap_or(UNKNOWN);
        let file = self.files.of(own);
        self.line(format_args!("fl={file}"));
        let name = self.functions.of(&function.name);
        self.line(format_args!("fn={name}"));
        let mut current = own.to_owned();
        for line in &costs.lines {
            self.change_file(&mut current, own, line.file.as_deref());
            let values = numbers(&line.values);
            self.line(format_args!("{:#x} {} {values}", line.address, line.line));
        }
        for call in &costs.calls {
            self.change_file(&mut current, own, call.file.as_deref());
            let file = self
                .files
                .of(call.callee.file.as_deref().unwrap_or(UNKNOWN));
            self.line(format_args!("cfi={file}"));
            let name = self.functions.of(&call.callee.name);
            self.line(format_args!("cfn={name}"));
            let (calls, to, line) = (call.calls, call.callee_address, call.callee_line);
            self.line(format_args!("calls={calls} {to:#x} {line}"));
            let values = numbers(&call.values);
            self.line(format_args!("{:#x} {} {values}", call.address, call.line));
        }
        self.line(format_args!(""));
    }

    /// Begins lines of another file, of code that is inlined, or returns to the function's own.
    fn change_file(&mut self, current: &mut String, own: &str, next: Option<&str>) {
        let next = next.unwrap_or(own);
        if current == next {
            return;
        }
        next.clone_into(current);
        let file = self.files.of(next);
        let key = if next == own { "fe" } else { "fi" };
        self.line(format_args!("{key}={file}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::costs::{Call, Line};
    use super::*;
    use std::rc::Rc;

    #[test]
    fn functions_lines_and_calls_are_written_as_the_format_has_them() {
        let file = |name: &str| Some(Rc::<str>::from(name));
        let line = |address, name: &str, line, cycles| Line {
            address,
            file: file(name),
            line,
            values: [cycles, 1, 0, 0, 0, 0, 0, 0],
        };
        let main = Function {
            name: "main".into(),
            file: file("main.c"),
        };
        let callee = Function {
            name: "copy".into(),
            file: None,
        };
        let call = Call {
            address: 0x1008,
            line: 5,
            file: file("main.c"),
            callee: callee.clone(),
            callee_address: 0x2000,
            callee_line: 0,
            calls: 3,
            values: [30, 6, 0, 0, 0, 1, 0, 4],
        };
        let lines = vec![line(0x1000, "main.c", 4, 7), line(0x1004, "swap.h", 2, 2)];
        let mut table = Table {
            object: "guest".into(),
            totals: [9, 2, 0, 0, 0, 0, 0, 0],
            ..Table::default()
        };
        let costs = Costs {
            lines,
            calls: vec![call],
            ..Costs::default()
        };
        table.functions.insert(main, costs);
        let text = super::file(&table, "VM a");
        let body = text.split_once("ob=guest\n").unwrap().1;
        assert_eq!(
            body,
            "fl=(1) main.c\nfn=(1) main\n0x1000 4 7 1 0 0 0 0 0 0\nfi=(2) swap.h\n\
             0x1004 2 2 1 0 0 0 0 0 0\nfe=(1)\ncfi=(3) ???\ncfn=(2) copy\ncalls=3 0x2000 0\n\
             0x1008 5 30 6 0 0 0 1 0 4\n\ntotals: 9 2 0 0 0 0 0 0\n"
        );
        assert!(text.contains("\npositions: instr line\nevents: CPU_CYCLES INST_RETIRED "));
    }
}
