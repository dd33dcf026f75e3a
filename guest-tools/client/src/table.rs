//! Tables on the terminal.
// SPDX-License-Identifier: MIT OR Apache-2.0

/// Prints a table, or what it means that it has no row.
pub fn print_table(header: &str, rows: &[String], none: &str) {
    if rows.is_empty() {
        println!("{none}");
        return;
    }
    println!("{header}");
    for row in rows {
        println!("{row}");
    }
}
