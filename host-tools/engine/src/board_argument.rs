//! The option `--board`: the name of a board file, or the path of one.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::configuration;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// Accepts any text, and lists the shipped boards in `--help`. The check of the configuration finds
/// out whether the board exists: a configuration may have its own boards.
#[derive(Clone, Copy, Debug)]
pub struct BoardArgument;

impl TypedValueParser for BoardArgument {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(
            configuration::boards().into_iter().map(PossibleValue::new),
        ))
    }
}
