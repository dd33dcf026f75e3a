//! The output of a command in a Linux guest: whether it has succeeded, and numbers, each with a
//! name.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_engine::linux::COMMAND_ENDED;
use miette::{Result, miette};
use std::collections::BTreeMap;

/// How a line starts that gives a number: `printed NAME NUMBER`.
const MARK: &str = "printed ";
/// Maximum number of numbers, over all names.
const MOST: usize = 100_000;

/// Maximum length of a name.
const LONGEST: usize = 40;

/// The numbers by name, in the order in which they were printed.
pub type Printed = BTreeMap<String, Vec<f64>>;

/// Returns the command's output, without the VM's output after its end.
///
/// # Errors
///
/// If it has failed.
pub fn before_success(said: &str) -> Result<&str> {
    let mut at = 0;
    for line in said.split_inclusive('\n') {
        if line.trim_end().strip_prefix(COMMAND_ENDED) == Some("0") {
            return Ok(&said[..at]);
        }
        at += line.len();
    }
    Err(miette!("the command in the VM did not succeed"))
}

/// Returns the numbers that the command printed.
///
/// # Errors
///
/// If it has failed, has printed none, or has printed a line that starts like a number's and is
/// none.
pub fn numbers(said: &str) -> Result<Printed> {
    let mut printed = Printed::new();
    let mut count = 0;
    for line in before_success(said)?.lines() {
        let Some(rest) = line.trim_end().strip_prefix(MARK) else {
            continue;
        };
        let mut words = rest.split(' ');
        let number = |word: &str| word.parse::<f64>().ok().filter(|number| number.is_finite());
        let (Some(name), Some(number), None) =
            (words.next(), words.next().and_then(number), words.next())
        else {
            return Err(miette!(
                help = "write `printed NAME NUMBER`",
                "the command printed `{line}`"
            ));
        };
        count += 1;
        if !is_name(name) || count > MOST {
            let help = format!(
                "a name has small letters, digits and _, at most {LONGEST}; there may be {MOST} \
                 numbers"
            );
            return Err(miette!(help = help, "the command printed `{line}`"));
        }
        printed.entry(name.to_owned()).or_default().push(number);
    }
    if printed.is_empty() {
        return Err(miette!(
            help = "it prints each in a line: `printed NAME NUMBER`",
            "the command printed no numbers"
        ));
    }
    Ok(printed)
}

/// Returns whether this may be a number's name.
pub fn is_name(name: &str) -> bool {
    let is_letter =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    (1..=LONGEST).contains(&name.len()) && name.chars().all(is_letter)
}

/// Returns the mean of the numbers of a name.
pub fn mean(printed: &Printed, name: &str) -> Option<f64> {
    let numbers = printed.get(name)?;
    Some(numbers.iter().sum::<f64>() / numbers.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: &str = "cloison: the command ended with status 0";

    #[test]
    fn numbers_are_found_between_what_else_is_said() {
        let said = format!(
            "up\r\nprinted top 3\r\nhello\nprinted rank_2 1.5\nprinted top 5\n{ENDED}\n\
             printed top 7\n"
        );
        let found = numbers(&said).unwrap();
        assert_eq!(
            found,
            [
                ("rank_2".to_owned(), vec![1.5]),
                ("top".to_owned(), vec![3.0, 5.0])
            ]
            .into()
        );
        assert_eq!(
            (mean(&found, "top"), mean(&found, "random")),
            (Some(4.0), None)
        );
    }

    #[test]
    fn what_is_no_number_is_an_error_and_not_left_out() {
        let message = |line: &str| {
            numbers(&format!("printed top 3\n{line}\n{ENDED}\n"))
                .unwrap_err()
                .to_string()
        };
        for line in [
            "printed top",
            "printed top x",
            "printed top 1 2",
            "printed top inf",
            "printed  3",
            "printed Top 1",
        ] {
            assert_eq!(message(line), format!("the command printed `{line}`"));
        }
        assert_eq!(
            message(&format!("printed {} 1", "n".repeat(41))).len(),
            "the command printed ``".len() + 51
        );
        assert!(
            numbers("printed top 3\n")
                .unwrap_err()
                .to_string()
                .contains("did not succeed")
        );
        assert!(
            numbers(&format!("{ENDED}\n"))
                .unwrap_err()
                .to_string()
                .contains("no numbers")
        );
        assert!(numbers(&format!("{}{ENDED}\n", "printed top 3\n".repeat(MOST + 1))).is_err());
    }
}
