//! Cloison's host side as a library: builds system images, boots them, reads their output, and
//! reports. The command line, the experiments and the system tests share it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`installation`], [`bundle`], [`parts`] | finds the parts of a system in a checkout or in a bundle |
//! | [`cargo`] | builds the parts in a checkout |
//! | [`setup`] | finds out what is missing on this machine and installs it |
//! | [`configuration`] | reads configurations with this installation's boards and events |
//! | [`board_argument`] | the option `--board` of commands |
//! | [`image`] | lays out the system image: hypervisor, configuration, guests |
//! | [`hello`] | the image that compares a new board with its file, and its log |
//! | [`linux`] | kernels, RAM disks and device trees for Linux VMs |
//! | [`qemu`], `lines` | runs a board in QEMU, console and telemetry included |
//! | [`model`] | runs boards with the board model |
//! | [`kept`], [`store`] | runs that are kept to be repeated, and the files that they share |
//! | [`capture`] | reads what a board sends, from its serial ports |
//! | [`u_boot`] | scripts for U-Boot |
//! | [`counting`] | which events a machine counts, and a warning about those that it does not |
//! | [`consoles`] | splits the console's stream by VM |
//! | [`telemetry`] | reads the stream of the second UART, or takes it out of the console's |
//! | [`hem`] | the HEM log as a table, as CSV and as Parquet |
//! | [`figures`] | the `--json` files: named numbers and their provenance |
//! | [`report`], [`text`] | tables and the HTML page of a run |
//! | [`progress`], [`interrupted`] | shows the progress of a command; keeps what boots have sent if it is interrupted |
//! | [`files`] | writes files atomically |
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

pub mod board_argument;
pub mod bundle;
pub mod capture;
pub mod cargo;
pub mod configuration;
pub mod consoles;
pub mod counting;
pub mod figures;
pub mod files;
pub mod hello;
pub mod hem;
pub mod image;
pub mod installation;
pub mod interrupted;
pub mod kept;
mod lines;
pub mod linux;
pub mod model;
pub mod oracle;
pub mod parts;
pub mod progress;
pub mod qemu;
pub mod report;
pub mod setup;
pub mod store;
pub mod telemetry;
pub mod text;
pub mod u_boot;
