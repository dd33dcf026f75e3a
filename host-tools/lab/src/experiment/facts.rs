//! The facts of a run's system and of the model that an account can use.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::expression::{Refusal, Value};
use super::limits::{limits, memory_wait, stall_implied};
use cloison_board_model::Board;

/// The facts of a model.
const NAMES: [&str; 8] = [
    "clock_mhz",
    "dram_cycles",
    "l2_cycles",
    "l1d_lines",
    "limits",
    "memory_wait",
    "pages_a_color",
    "stall_implied",
];

/// Returns a fact of the model.
///
/// # Errors
/// If there is none of this name.
pub fn of_model(model: &Board, name: &str) -> Result<Value, Refusal> {
    Ok(match name {
        "clock_mhz" => Value::Count(model.clock_mhz),
        "dram_cycles" => Value::Count(model.timing.dram),
        "l2_cycles" => Value::Count(model.timing.l2),
        // A color is those pages that share their sets, of which each way has one.
        "pages_a_color" => Value::Count(model.l2.geometry.ways() as u64),
        "l1d_lines" => {
            let geometry = &model.l1d.geometry;
            Value::Count(geometry.sets() * geometry.ways() as u64)
        }
        "limits" => Value::Text(limits(model)),
        "memory_wait" => Value::Text(memory_wait(model)),
        "stall_implied" => Value::Number(stall_implied(model)),
        _ => return Err(Refusal::unknown("fact of the model", name, "facts", NAMES)),
    })
}

/// Returns a value of a system's file; a table by its name.
pub fn of_toml(value: &toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::Text(text.clone()),
        toml::Value::Integer(number) => {
            u64::try_from(*number).map_or(Value::Number(*number as f64), Value::Count)
        }
        toml::Value::Float(number) => Value::Number(*number),
        toml::Value::Array(all) => Value::List(all.iter().map(of_toml).collect()),
        toml::Value::Table(table) => {
            let name = table.get("name").and_then(toml::Value::as_str);
            Value::Text(name.unwrap_or("a table").to_owned())
        }
        other => Value::Text(other.to_string()),
    }
}
