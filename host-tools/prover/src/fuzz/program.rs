//! A program of a puppet: calls in it, and its text, one operation a line with comments after `#`.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_abi::Call;
use cloison_abi::reply::Change;
use cloison_puppet::Op;
use std::fmt::Write;

/// A program of a puppet's vCPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The VM's number.
    pub vm: u64,
    /// The vCPU's number.
    pub vcpu: u64,
    /// What is typed on the console before.
    pub typed: Vec<u8>,
    /// What it executes.
    pub ops: Vec<Op>,
}

/// HVC #0 (Arm ARM, C4.1.66, "Exception generation").
const HVC: u32 = 0xd400_0002;

/// Returns a call of the hypervisor.
pub fn call(function: Call, [first, second, third]: [u64; 3]) -> Op {
    Op::Execute {
        word: HVC,
        x: [function as u64, first, second, third],
    }
}

/// Returns an order to a VM.
pub fn order(vm: u64, change: Change) -> Op {
    call(Call::VmOrder, [vm, change as u64, 0])
}

/// Writes inputs in the order in which they began.
pub fn print<'a>(inputs: impl IntoIterator<Item = &'a Input>) -> String {
    let mut text = String::new();
    for input in inputs {
        // Writing to a string does not fail.
        let _ = write!(text, "input vm={} vcpu={}", input.vm, input.vcpu);
        for byte in &input.typed {
            let _ = write!(text, " typed={byte}");
        }
        text.push('\n');
        for op in &input.ops {
            let _ = writeln!(text, "    {op}");
        }
    }
    text
}

/// Reads what [`print()`] has written.
///
/// # Errors
///
/// The number of the line, from 1, and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Input>, String> {
    let mut inputs: Vec<Input> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}: `{}`", at + 1, line.trim());
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        if let Some(rest) = line.strip_prefix("input ") {
            let mut input = Input::default();
            for part in rest.split_whitespace() {
                let wrong_number = || wrong("a number is expected after `=`");
                let number = |text: &str| text.parse().map_err(|_| wrong_number());
                match part.split_once('=') {
                    Some(("vm", text)) => input.vm = number(text)?,
                    Some(("vcpu", text)) => input.vcpu = number(text)?,
                    Some(("typed", text)) => {
                        let byte = text.parse().map_err(|_| wrong_number());
                        input.typed.push(byte?);
                    }
                    _ => return Err(wrong("an input has `vm=`, `vcpu=` and `typed=` only")),
                }
            }
            inputs.push(input);
            continue;
        }
        let op = line.parse().map_err(|error| wrong(&format!("{error}")))?;
        let input = inputs
            .last_mut()
            .ok_or_else(|| wrong("an operation before the first `input vm=.. vcpu=..`"))?;
        if input.ops.len() == cloison_puppet::LONGEST {
            return Err(wrong("the input has too many operations"));
        }
        input.ops.push(op);
    }
    Ok(inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_survive_text() {
        let text = "# found\ninput vm=1 vcpu=0\n    hvc 0xc6000003 4\n    delay 3\ninput vm=0 vcpu=1 typed=20 typed=63\n";
        let inputs = parse(text).unwrap();
        assert_eq!(inputs.len(), 2);
        assert_eq!((inputs[0].vm, inputs[1].vcpu), (1, 1));
        assert_eq!(inputs[1].typed, [20, 63]);
        assert_eq!(parse(&print(&inputs)), Ok(inputs));
    }

    #[test]
    fn wrong_lines_are_named() {
        assert!(
            parse("hvc")
                .unwrap_err()
                .starts_with("line 1: an operation before")
        );
        assert!(
            parse("input vm=1\njump")
                .unwrap_err()
                .starts_with("line 2: no operation")
        );
        assert!(parse("input vm=x").unwrap_err().contains("a number"));
        assert!(parse("input typed=256").unwrap_err().contains("a number"));
        assert!(parse("input core=1").unwrap_err().contains("only"));
    }
}
