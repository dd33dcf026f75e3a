//! Finds the programs and libraries that this machine lacks for building and running Cloison, and
//! installs them.
//!
//! Every command looks only for what it needs. If everything is present, there is no network access
//! and no output. Missing parts are reported first; only some commands install them
//! ([`consent`]).
//!
//! | module | what it gets |
//! | --- | --- |
//! | [`core_library`](mod@core_library) | Rust's libraries for AArch64 |
//! | [`consent`] | which commands install |
//! | [`emulator`] | QEMU |
//! | [`firmware`] | U-Boot and EDK II, for tests |
//! | [`debian`], `apt` | packages that are unpacked without being installed |
//! | [`system`] | a minimal system of a Debian release, for tests in it |
//! | [`programs`] | the compiler of programs for Linux guests, and make |
//! | `process` | runs other programs |
// SPDX-License-Identifier: MIT OR Apache-2.0

mod apt;
pub mod consent;
pub mod core_library;
pub mod debian;
pub mod emulator;
pub mod firmware;
mod process;
pub mod programs;
pub mod system;

pub use core_library::{CoreLibrary, Source as CoreLibrarySource};
pub use core_library::{compiler_directories, core_library, core_library_from, standard_library};
pub use emulator::{qemu, qemu_help};
pub use firmware::Firmware;
pub use process::Missing;
pub(crate) use process::run_limited;
pub use programs::{LINKER, MAKE};
