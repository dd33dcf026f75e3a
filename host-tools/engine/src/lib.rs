//! Cloison's host side as a library: builds system images, boots them, listens to them, and reports. The command line,
//! the experiments and the system tests share it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`installation`], [`bundle`], [`parts`] | finds what a system is put together from: in a checkout, or in a bundle |
//! | [`cargo`] | builds the parts in a checkout |
//! | [`setup`] | finds out what is missing on this machine and installs it |
//! | [`configuration`] | reads configurations with this installation's boards and events |
//! | [`board_argument`] | the option `--board` of commands |
//! | [`image`] | lays out the system image: hypervisor, configuration, guests |
//! | [`linux`] | kernels, RAM disks and device trees for Linux VMs |
//! | [`qemu`] | runs a board in QEMU, console and telemetry included |
//! | [`model`] | boards with the board model |
//! | [`consoles`] | takes the console's stream apart by VM |
//! | [`telemetry`] | reads what comes out of the second UART |
//! | [`hem`] | the HEM log as a table, as CSV and as Parquet |
//! | [`figures`] | the `--json` files: named numbers and where they come from |
//! | [`report`], [`text`] | tables and the HTML page of a run |
//! | [`progress`] | what a command shows while it works |
//! | [`files`] | files that appear whole or not at all |
#![forbid(unsafe_code)]

pub mod board_argument;
pub mod bundle;
pub mod cargo;
pub mod configuration;
pub mod consoles;
pub mod figures;
pub mod files;
pub mod hem;
pub mod image;
pub mod installation;
pub mod linux;
pub mod model;
pub mod parts;
pub mod progress;
pub mod qemu;
pub mod report;
pub mod setup;
pub mod telemetry;
pub mod text;
