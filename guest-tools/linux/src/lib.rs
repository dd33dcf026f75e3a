//! Small static programs for a guest's Linux, without any library: they are built like bare-metal guests, and Linux runs
//! them as they are.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`process`] | the start and the end of a program, and text |
//! | [`perf`] | counters that the kernel lets a program read by itself |
#![no_std]

pub mod perf;
pub mod process;
