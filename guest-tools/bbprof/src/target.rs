//! The target under ptrace: started, stopped at its function and after it, and made to run a few
//! instructions of this program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{Error, Phase};
use crate::machine;
use crate::memory::Memory;
use crate::program::{Binary, Facts};
use crate::registers::Registers;
use crate::signals;
use nix::errno::Errno;
use nix::sys::personality::{self, Persona};
use nix::sys::prctl;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// `brk #0`.
const BREAK: u32 = 0xd420_0000;
/// `svc #0`.
const SUPERVISOR_CALL: u32 = 0xd400_0001;
/// `str xzr, [x0]`.
const STORE_ZERO: u32 = 0xf900_001f;
/// Number of `mlockall`, and its flags: what is there now, and other pages when they are touched.
const MLOCKALL: u64 = 230;
const LOCK_PRESENT: u64 = 1 | 4;

/// Who becomes the parent of a process that has lost its own.
const INIT: Pid = Pid::from_raw(1);

/// How to start a program.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Its file.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables for its allocator.
    pub environment: Vec<(String, String)>,
    /// Without randomized addresses.
    pub fixed: bool,
    /// SCHED_FIFO.
    pub real_time: bool,
    /// Its output goes nowhere.
    pub quiet: bool,
}

/// Replaces this process by the program, as a process that its parent traces. Returns only the
/// error.
pub fn become_target(launch: &Launch) -> Error {
    let prepare = || {
        // The option to end it with its tracer comes later, and a tracer that is killed before that
        // would leave it.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        if getppid() == INIT {
            return Err(Errno::ESRCH);
        }
        if launch.fixed {
            let persona = personality::get()?;
            personality::set(persona | Persona::ADDR_NO_RANDOMIZE)?;
        }
        if launch.real_time {
            machine::become_real_time(machine::Role::Target)?;
        }
        ptrace::traceme()
    };
    if let Err(errno) = prepare() {
        return Error::system("prepare the program")(errno);
    }
    let error = Command::new(&launch.program).args(&launch.arguments).exec();
    Error::Start {
        path: launch.program.clone(),
        reason: error.to_string(),
    }
}

/// Where the function is.
#[derive(Clone, Debug)]
pub enum Place {
    /// At this address of the program's file, before it is moved.
    Program(u64),
    /// A function of a shared library, by a part of its file's name.
    Library(String, String),
}

/// A stopped process.
pub struct Target {
    pid: Pid,
    /// A process that it has started, which ends with it.
    child: Option<Pid>,
    ended: bool,
}

/// Starts the program, and stops it before its first instruction.
pub fn start(launch: &Launch) -> Result<Target, Error> {
    let failed = |reason: String| Error::Start {
        path: launch.program.clone(),
        reason,
    };
    let mut command = Command::new("/proc/self/exe");
    command.arg("exec-target");
    command
        .args(launch.fixed.then_some("--fixed"))
        .args(launch.real_time.then_some("--real-time"));
    command
        .arg("--")
        .arg(&launch.program)
        .args(&launch.arguments);
    command
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null());
    if launch.quiet {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    }
    let child = command.spawn().map_err(|error| failed(error.to_string()))?;
    // The standard library does not wait for a child that is dropped; `Target` does.
    let pid = Pid::from_raw(child.id() as i32);
    signals::set_target(Some(pid));
    let mut target = Target {
        pid,
        child: None,
        ended: false,
    };
    match target.wait()? {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
        WaitStatus::Exited(..) => {
            return Err(failed(
                "it is no program that this machine can execute".into(),
            ));
        }
        other => return Err(failed(format!("{other:?}"))),
    }
    let options = Options::PTRACE_O_EXITKILL
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEFORK
        | Options::PTRACE_O_TRACEVFORK
        | Options::PTRACE_O_TRACEEXEC;
    ptrace::setoptions(pid, options).map_err(Error::system("trace the program"))?;
    Ok(target)
}

/// A breakpoint, and the instruction that it replaced.
#[derive(Clone, Copy, Debug)]
pub struct Breakpoint {
    /// Its address.
    pub address: u64,
    instruction: u32,
}

impl Target {
    /// Returns its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    fn wait(&mut self) -> Result<WaitStatus, Error> {
        loop {
            match waitpid(self.pid, Some(WaitPidFlag::__WALL)) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Error::system("wait for the program")(errno)),
                Ok(status) => {
                    self.ended =
                        matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
                    return Ok(status);
                }
            }
        }
    }

    fn read(&self, address: u64) -> Result<i64, Error> {
        let read = ptrace::read(self.pid, address as ptrace::AddressType);
        read.map_err(|_| Error::Address(address))
    }

    fn write(&self, address: u64, word: i64) -> Result<(), Error> {
        let written = ptrace::write(self.pid, address as ptrace::AddressType, word);
        written.map_err(|_| Error::Address(address))
    }

    /// Reads the registers.
    pub fn registers(&self) -> Result<Registers, Error> {
        Registers::read(self.pid).map_err(Error::system("read the program's registers"))
    }

    fn set_registers(&self, registers: Registers) -> Result<(), Error> {
        registers
            .write(self.pid)
            .map_err(Error::system("write the program's registers"))
    }

    /// Replaces one instruction, and returns what was there. The kernel gives the process its own
    /// copy of the page.
    fn replace(&self, address: u64, instruction: u32) -> Result<u32, Error> {
        let word = self.read(address)? as u64;
        self.write(
            address,
            ((word & !u64::from(u32::MAX)) | u64::from(instruction)) as i64,
        )?;
        Ok(word as u32)
    }

    /// Sets a breakpoint.
    pub fn set(&self, address: u64) -> Result<Breakpoint, Error> {
        if !address.is_multiple_of(4) {
            return Err(Error::Address(address));
        }
        Ok(Breakpoint {
            address,
            instruction: self.replace(address, BREAK)?,
        })
    }

    /// Removes a breakpoint.
    pub fn clear(&self, breakpoint: Breakpoint) -> Result<(), Error> {
        self.replace(breakpoint.address, breakpoint.instruction)
            .map(drop)
    }

    /// Continues until the breakpoint, passing on all signals. Returns the number of signals.
    pub fn run_to(&mut self, breakpoint: Breakpoint, phase: Phase) -> Result<u32, Error> {
        let mut signal = None;
        let mut signals = 0;
        loop {
            ptrace::cont(self.pid, signal.take()).map_err(Error::system("continue the program"))?;
            match self.wait()? {
                WaitStatus::Stopped(_, Signal::SIGTRAP)
                    if self.registers()?.pc == breakpoint.address =>
                {
                    return Ok(signals);
                }
                WaitStatus::Stopped(_, other) => {
                    signals += 1;
                    signal = Some(other);
                }
                status => return Err(self.end(status, phase)),
            }
        }
    }

    /// Returns what the end of the process, or an event, means.
    fn end(&mut self, status: WaitStatus, phase: Phase) -> Error {
        if let Err(interrupted) = signals::check() {
            return interrupted;
        }
        match status {
            WaitStatus::Exited(_, status) => Error::Exited { status, phase },
            WaitStatus::Signaled(_, signal, _) => Error::Killed { signal, phase },
            WaitStatus::PtraceEvent(_, _, event) if event == libc::PTRACE_EVENT_EXEC => {
                Error::Executes(phase)
            }
            WaitStatus::PtraceEvent(_, _, event) => {
                self.child = ptrace::getevent(self.pid)
                    .ok()
                    .map(|child| Pid::from_raw(child as i32));
                let is_thread = event == libc::PTRACE_EVENT_CLONE;
                let what = if is_thread {
                    "started a thread"
                } else {
                    "started another process"
                };
                Error::Several { what, phase }
            }
            other => Error::System {
                what: "follow the program",
                source: std::io::Error::other(format!("unexpected state {other:?}")),
            },
        }
    }

    /// Runs to the function that `place` names, and stops at its first instruction. The breakpoint
    /// is left there.
    pub fn run_to_function(&mut self, facts: &Facts, place: &Place) -> Result<Breakpoint, Error> {
        let memory = Memory::open(self.pid)?;
        let layout = memory.layout()?;
        // The program is what is mapped first of its file; the stop is before the dynamic linker
        // has run.
        let program = std::fs::read_link(format!("/proc/{}/exe", self.pid)).unwrap_or_default();
        let start = memory
            .file(&program.to_string_lossy())?
            .map(|(start, _)| start);
        let moved = start.unwrap_or(facts.base).wrapping_sub(facts.base);
        let address = match place {
            Place::Program(address) => address.wrapping_add(moved),
            Place::Library(name, symbol) => {
                let at = self.set(facts.entry.wrapping_add(moved))?;
                self.run_to(at, Phase::Before)?;
                self.clear(at)?;
                let (start, path) = memory
                    .file(name)?
                    .ok_or_else(|| Error::Library(name.clone()))?;
                let library = Binary::open(&path)?;
                library
                    .function(symbol)?
                    .wrapping_add(start)
                    .wrapping_sub(library.facts()?.base)
            }
        };
        let layout = if matches!(place, Place::Library(..)) {
            memory.layout()?
        } else {
            layout
        };
        let is_code = |mapping: &&cloison_profile::Mapping| {
            mapping.access.execute && (mapping.start..mapping.end()).contains(&address)
        };
        layout.iter().find(is_code).ok_or(Error::Address(address))?;
        let entry = self.set(address)?;
        self.run_to(entry, Phase::Before)?;
        Ok(entry)
    }

    /// Executes one instruction of ours at the entry breakpoint, with `x0` and `x8` as given, and
    /// undoes all but its effect. Returns `x0` after it.
    fn execute(&mut self, at: u64, instruction: u32, x0: u64, x8: u64) -> Result<u64, Error> {
        let registers = self.registers()?;
        let word = self.read(at)?;
        self.write(at, (u64::from(BREAK) << 32 | u64::from(instruction)) as i64)?;
        let mut changed = registers;
        (changed.x[0], changed.x[8], changed.pc) = (x0, x8, at);
        self.set_registers(changed)?;
        self.run_to(
            Breakpoint {
                address: at + 4,
                instruction: 0,
            },
            Phase::Before,
        )?;
        let result = self.registers()?.x[0];
        self.write(at, word)?;
        self.set_registers(registers)?;
        Ok(result)
    }

    /// Locks the pages that exist now and later ones, as the process itself would (mlockall).
    pub fn lock_pages(&mut self, at: Breakpoint) -> Result<(), Error> {
        let result = self.execute(at.address, SUPERVISOR_CALL, LOCK_PRESENT, MLOCKALL)? as i64;
        match i32::try_from(-result) {
            Ok(0) => Ok(()),
            Ok(errno) => Err(Error::system("lock the program's pages")(Errno::from_raw(
                errno,
            ))),
            Err(_) => Err(Error::system("lock the program's pages")(Errno::EINVAL)),
        }
    }

    /// Stores to an address, which makes the stack grow to it.
    pub fn touch(&mut self, at: Breakpoint, address: u64) -> Result<(), Error> {
        self.execute(at.address, STORE_ZERO, address, 0).map(drop)
    }

    /// Lets the process run on without being traced, and returns its exit status. Until then,
    /// `meanwhile` is called at this interval.
    pub fn release(
        mut self,
        interval: Duration,
        mut meanwhile: impl FnMut(),
    ) -> Result<i32, Error> {
        ptrace::detach(self.pid, None).map_err(Error::system("release the program"))?;
        let target = &mut self;
        let ended = thread::scope(|scope| {
            let (sender, ended) = mpsc::channel();
            // If nobody receives, nobody wants to know.
            scope.spawn(move || sender.send(target.wait()));
            loop {
                match ended.recv_timeout(interval) {
                    Ok(ended) => break ended,
                    Err(RecvTimeoutError::Timeout) => meanwhile(),
                    Err(RecvTimeoutError::Disconnected) => unreachable!("it sends before it ends"),
                }
            }
        });
        match ended? {
            WaitStatus::Exited(_, status) => Ok(status),
            WaitStatus::Signaled(_, signal, _) => {
                signals::check()?;
                // As shells report it.
                Ok(128 + signal as i32)
            }
            other => Err(self.end(other, Phase::Before)),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        for pid in self
            .child
            .into_iter()
            .chain((!self.ended).then_some(self.pid))
        {
            // What has ended by itself cannot be killed; whatever it is, its state is collected.
            let _ = kill(pid, Signal::SIGKILL);
            while let Ok(status) = waitpid(pid, Some(WaitPidFlag::__WALL)) {
                if matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {
                    break;
                }
            }
        }
        signals::set_target(None);
    }
}
