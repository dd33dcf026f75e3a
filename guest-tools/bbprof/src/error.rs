//! Errors, with advice.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_profile::document::DocumentError;
use cloison_profile::raw::RawError;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use thiserror::Error;

/// The errors of the tool.
#[derive(Debug, Error)]
pub enum Error {
    /// The hypervisor refused, or is not there.
    #[error(transparent)]
    Hypervisor(#[from] cloison_client::Error),
    /// Another profiler runs in this VM.
    #[error("another bbprof runs in this VM")]
    Busy,
    /// The lease was too short.
    #[error("the function took longer than the {} s for which the lease of the VM's pages was taken: it has changed in the middle", .0.as_secs())]
    Expired(std::time::Duration),
    /// A file cannot be used.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The attempt, as a verb.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A file is no profile.
    #[error("{}{}: {source}", path.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    Profile {
        /// The file.
        path: PathBuf,
        /// The line at which the fault is, if it is at one.
        line: Option<usize>,
        /// The mistake in it.
        source: DocumentError,
    },
    /// A file is none of BBProf's profiler.
    #[error("{}: {source}", path.display())]
    Raw {
        /// The file.
        path: PathBuf,
        /// The mistake in it.
        source: RawError,
    },
    /// The program is no ELF file.
    #[error("{} is no ELF file that can be read: {reason}", path.display())]
    NotElf {
        /// The program.
        path: PathBuf,
        /// The mistake that the reader found.
        reason: String,
    },
    /// The program is for another machine.
    #[error("{} is made for {machine}, and this is AArch64", path.display())]
    Machine {
        /// The program.
        path: PathBuf,
        /// The machine it is made for.
        machine: String,
    },
    /// The program has no such function.
    #[error("{} has no function `{symbol}`{}", path.display(), if *stripped { ": it has no symbols at all" } else { "" })]
    Symbol {
        /// The program or library.
        path: PathBuf,
        /// The function.
        symbol: String,
        /// There are no symbols.
        stripped: bool,
    },
    /// The symbol is chosen when the program starts.
    #[error(
        "`{0}` is chosen among several functions when the program starts (an indirect function)"
    )]
    Indirect(String),
    /// The program has not mapped a file that has the function.
    #[error("the program has not loaded a library called `{0}` when it starts")]
    Library(String),
    /// An address is not in the program's code.
    #[error("{0:#x} is not in the program's code")]
    Address(u64),
    /// The segment has no instructions.
    #[error("the segment ends where it begins, at {0:#x}")]
    Empty(u64),
    /// The program cannot be started.
    #[error("cannot start {}: {reason}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What is at the stack pointer is not what Linux puts there.
    #[error("the program's stack is not as Linux leaves it for a program that starts")]
    Vectors,
    /// The program ended.
    #[error("the program ended with status {status} {phase}")]
    Exited {
        /// Its status.
        status: i32,
        /// When.
        phase: Phase,
    },
    /// The program was killed.
    #[error("the program was killed by {signal} {phase}")]
    Killed {
        /// The signal.
        signal: Signal,
        /// When.
        phase: Phase,
    },
    /// The program did what cannot be profiled.
    #[error(
        "the program {what} {phase}; only programs of one process with one thread can be profiled"
    )]
    Several {
        /// The way in which it ended.
        what: &'static str,
        /// When.
        phase: Phase,
    },
    /// The program replaced itself.
    #[error("the program executed another one {0}")]
    Executes(Phase),
    /// The segment does not end where it should.
    #[error("the segment ended with another stack pointer than it must; the sample is of no use")]
    Stack,
    /// The segment's layout is not fixed.
    #[error("the memory of the program changes in the segment: {0}")]
    Layout(String),
    /// Two runs do not have the same layout.
    #[error("the program's memory is not the same in two runs: {0}")]
    Unsteady(String),
    /// The kernel moved pages in every attempt.
    #[error("the frames of the program's pages changed in the segment, {0} times in a row: {1}")]
    Moved(u32, String),
    /// There is nothing to profile.
    #[error("no page of the selected kinds is the program's alone: {0}")]
    Nothing(String),
    /// A letter is no kind of mapping.
    #[error("`{0}` is no kind of memory")]
    Kind(char),
    /// The pool is too small.
    #[error("the private pool has {free} free pages, and {wanted} are to move")]
    Pool {
        /// Free pages of the pool.
        free: u64,
        /// Pages to move.
        wanted: u64,
    },
    /// The profile has fewer pages.
    #[error("the profile has {0} pages, and {1} are asked for")]
    Top(usize, usize),
    /// The profile is of something else.
    #[error("the profile does not fit: {0}")]
    Other(String),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempt, as a verb.
        what: &'static str,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The user ended the tool.
    #[error("interrupted")]
    Interrupted,
}

/// When something happened to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before the function was called.
    Before,
    /// In the observation segment.
    Inside,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Before => "before it called the function",
            Self::Inside => "inside the segment",
        })
    }
}

impl Error {
    /// Returns advice on how to fix the problem, if there is any.
    pub fn help(&self) -> Option<String> {
        let help = |text: &str| Some(text.to_owned());
        match self {
            Self::Hypervisor(error) => error.help(),
            Self::Busy => help("wait until it has ended: both would change the same VM's pages"),
            Self::Expired(_) => help(
                "its pages are back in all caches; profile a function that takes less than a \
                 hundredth of an hour with its caches",
            ),
            Self::Symbol { stripped: true, .. } => help(
                "give the function's address in the file with --at, or build the program without \
                 stripping it",
            ),
            Self::Symbol { .. } => help(
                "`nm PROGRAM` lists functions; one of a shared library needs --library, an \
                 inlined one has no symbol",
            ),
            Self::Indirect(_) => {
                help("profile the function that calls it, or give its address with --at")
            }
            Self::Library(_) => {
                help("--library takes a part of the file's name, such as libz; it must be linked")
            }
            Self::Several { .. } => help("profile a program that does its work in one thread"),
            Self::Layout(_) => help(
                "an allocator other than glibc's ignores the environment that bbprof sets; let \
                 the program allocate before the function, or profile a function that does not \
                 allocate",
            ),
            Self::Unsteady(_) => help(
                "the program must do the same in each run: same input, no time, no random \
                 numbers",
            ),
            Self::Nothing(_) => help(
                "select other kinds with -f: t text, h heap, s stack, b data, r rodata, a \
                 anonymous",
            ),
            Self::Kind(_) => help(
                "the kinds are t text, r rodata, b data, h heap, s stack, a and A anonymous, c \
                 libraries, m libm, f files",
            ),
            Self::Pool { .. } => help("move fewer pages, or give the VM's pool more colors"),
            Self::Top(pages, _) => Some(format!("ask for at most {pages}")),
            Self::Profile {
                source: DocumentError::Checksum { .. },
                ..
            } => help("make the profile again"),
            _ => None,
        }
    }

    /// Returns a function that makes an error of a system call.
    pub fn system<E: Into<Cause>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System {
            what,
            source: source.into().0,
        }
    }
}

/// Why a system call failed, from any of the libraries that make some.
pub struct Cause(std::io::Error);

impl From<Errno> for Cause {
    fn from(errno: Errno) -> Self {
        Self(errno.into())
    }
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Self {
        Self(error)
    }
}

impl From<procfs::ProcError> for Cause {
    fn from(error: procfs::ProcError) -> Self {
        Self(std::io::Error::other(error.to_string()))
    }
}
