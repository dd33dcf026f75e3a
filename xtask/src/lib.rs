//! Cloison's host side as a library: the command line and the system tests share it.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`workspace`] | where things are |
//! | [`setup`] | finds out what is missing on this machine and installs it |
//! | [`config`] | reads and checks system configurations, boards, events and profiles |
//! | [`consoles`] | takes the console's stream apart by VM |
//! | [`build`] | builds the EL2 image and the guests |
//! | [`image`] | lays out the system image: hypervisor, configuration, guests |
//! | [`boot_media`] | writes what goes on an SD card |
//! | [`qemu`] | runs a board in QEMU, console and telemetry included |
//! | [`inspect`] | draws the color map of a configuration |
//! | [`inspect_command`] | the color map on the terminal, and the live proof |
//! | [`run`] | a board on this terminal |
//! | [`telemetry`] | reads what comes out of the second UART |
//! | [`live`] | judges the stage-2 tables of a running system |
//! | [`hem`] | the HEM log as CSV and Parquet |
//! | [`much`] | plans which events to count together, and merges their counts |
//! | [`campaign`] | runs for each of several sets of events, merged and compared with the truth |
//! | [`model`] | boards with the board model |
//! | [`experiment`] | interference experiments: declared in TOML, run, reported |
//! | [`demo`] | the main job from end to end |
//! | [`bench`](mod@bench) | how many instructions the hypervisor's own paths take |
//! | [`linux`] | kernels, RAM disks and device trees for Linux VMs |
//! | [`lines`] | how much source runs at EL2 |
//! | [`lint`] | the house rules that clippy and the compiler do not check |
//! | [`report`] | tables and the HTML page of a run |
//! | [`test`](mod@test) | every check and test, in order |
//! | [`figures`] | the `--json` files: named numbers and where they come from |

pub mod bench;
pub mod boot_media;
pub mod build;
pub mod campaign;
pub mod config;
pub mod consoles;
pub mod demo;
pub mod experiment;
pub mod figures;
pub mod hem;
pub mod image;
pub mod inspect;
pub mod inspect_command;
pub mod lines;
pub mod lint;
pub mod linux;
pub mod live;
pub mod model;
pub mod much;
pub mod qemu;
pub mod report;
pub mod rules;
pub mod run;
pub mod setup;
pub mod telemetry;
pub mod test;
pub mod top;
pub mod workspace;
