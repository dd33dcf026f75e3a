//! The target under ptrace: started, stopped at its function and after it, and made to run a few
//! instructions of this program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::error::{Error, Phase};
use crate::machine;
use crate::memory::Memory;
use crate::program::{Binary, Facts};
use crate::registers::{Registers, VectorRegisters};
use crate::{signals, stack};
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
    /// All its environment: another one could move what is in its heap and its stack.
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
        // Pages are treated one by one, and a huge page would have frames for untouched ones.
        prctl::set_thp_disable(true)?;
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

/// Where the observation segment begins and ends.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// It begins at the first instruction of this function.
    pub place: Place,
    /// It ends before this instruction of the function's file, or where the function returns to.
    pub end: Option<u64>,
}

/// The observation segment in a stopped process.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The breakpoint at which the process is.
    pub entry: Breakpoint,
    /// The address that ends the segment.
    pub end: u64,
}

/// A stopped process.
pub struct Target {
    pid: Pid,
    /// A process that it has started, which ends with it.
    child: Option<Pid>,
    ended: bool,
}

/// Starts the program, and stops it before its first instruction, with its stack in place.
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
        .env_clear()
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
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_TRACESYSGOOD;
    ptrace::setoptions(pid, options).map_err(Error::system("trace the program"))?;
    let mut registers = target.registers()?;
    registers.sp = stack::settle(&Memory::open(pid)?, registers.sp)?;
    target.set_registers(registers)?;
    Ok(target)
}

/// What a process asked the kernel for, or got from it, on its way to a breakpoint: a process that
/// did has a state outside its own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// The number of its first system call.
    Call(u64),
    /// A signal.
    Signal(Signal),
}

impl std::fmt::Display for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Call(number) => write!(f, "it makes system calls, first number {number}"),
            Self::Signal(signal) => write!(f, "it gets {signal}"),
        }
    }
}

/// The state of a process at its function, beside its memory.
#[derive(Clone, Copy)]
pub struct Context {
    registers: Registers,
    vectors: VectorRegisters,
}

/// A breakpoint, and the instruction that it replaced.
#[derive(Clone, Copy, Debug)]
pub struct Breakpoint {
    /// Its address.
    pub address: u64,
    instruction: u32,
}

/// What is watched while a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Nothing.
    Nothing,
    /// Its dealings with the kernel: system calls and signals. While there are none, this costs no
    /// time.
    Kernel,
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

    /// Continues until the breakpoint, passing on all signals.
    pub fn run_to(&mut self, breakpoint: Breakpoint, phase: Phase) -> Result<(), Error> {
        self.run_watched(breakpoint, phase, Watch::Nothing)
            .map(drop)
    }

    /// Continues until the breakpoint, passing on all signals. Returns the first dealing of the
    /// process with the kernel, of those that are watched. The process is stopped for that one; the
    /// time until the breakpoint is then of no use.
    pub fn run_watched(
        &mut self,
        breakpoint: Breakpoint,
        phase: Phase,
        watch: Watch,
    ) -> Result<Option<Kernel>, Error> {
        let mut signal = None;
        let mut found = None;
        loop {
            let continued = if watch == Watch::Kernel && found.is_none() {
                ptrace::syscall(self.pid, signal.take())
            } else {
                ptrace::cont(self.pid, signal.take())
            };
            continued.map_err(Error::system("continue the program"))?;
            match self.wait()? {
                WaitStatus::Stopped(_, Signal::SIGTRAP)
                    if self.registers()?.pc == breakpoint.address =>
                {
                    return Ok(found);
                }
                WaitStatus::Stopped(_, other) => {
                    found = found.or(Some(Kernel::Signal(other)));
                    signal = Some(other);
                }
                WaitStatus::PtraceSyscall(_) => {
                    found = Some(Kernel::Call(self.registers()?.call()));
                }
                status => return Err(self.end(status, phase)),
            }
        }
    }

    /// Returns the state of the process, to which it can go back.
    pub fn context(&self) -> Result<Context, Error> {
        let vectors = VectorRegisters::read(self.pid);
        Ok(Context {
            registers: self.registers()?,
            vectors: vectors.map_err(Error::system("read the program's registers"))?,
        })
    }

    /// Makes the process continue from an earlier state.
    pub fn return_to(&self, context: &Context) -> Result<(), Error> {
        let vectors = context.vectors.write(self.pid);
        vectors.map_err(Error::system("write the program's registers"))?;
        self.set_registers(context.registers)
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

    /// Runs to the start of the segment, and stops at its first instruction. The breakpoint is left
    /// there.
    pub fn run_to_segment(&mut self, facts: &Facts, bounds: &Bounds) -> Result<Segment, Error> {
        let memory = Memory::open(self.pid)?;
        let layout = memory.layout()?;
        // The program is what is mapped first of its file; the stop is before the dynamic linker
        // has run.
        let program = std::fs::read_link(format!("/proc/{}/exe", self.pid)).unwrap_or_default();
        let start = memory
            .file(&program.to_string_lossy())?
            .map(|(start, _)| start);
        let moved = start.unwrap_or(facts.base).wrapping_sub(facts.base);
        let (address, moved) = match &bounds.place {
            Place::Program(address) => (*address, moved),
            Place::Library(name, symbol) => {
                let at = self.set(facts.entry.wrapping_add(moved))?;
                self.run_to(at, Phase::Before)?;
                self.clear(at)?;
                let (start, path) = memory
                    .file(name)?
                    .ok_or_else(|| Error::Library(name.clone()))?;
                let library = Binary::open(&path)?;
                let moved = start.wrapping_sub(library.facts()?.base);
                (library.function(symbol)?, moved)
            }
        };
        let layout = if matches!(bounds.place, Place::Library(..)) {
            memory.layout()?
        } else {
            layout
        };
        let in_code = |address: u64| {
            let is_code = |mapping: &cloison_profile::Mapping| {
                mapping.access.execute && (mapping.start..mapping.end()).contains(&address)
            };
            let found = layout.iter().any(is_code);
            found.then_some(address).ok_or(Error::Address(address))
        };
        let end = bounds.end.map(|end| in_code(end.wrapping_add(moved)));
        let end = end.transpose()?;
        let address = address.wrapping_add(moved);
        if end == Some(address) {
            return Err(Error::Empty(address));
        }
        let entry = self.set(in_code(address)?)?;
        self.run_to(entry, Phase::Before)?;
        let end = match end {
            Some(end) => end,
            None => self.registers()?.link(),
        };
        Ok(Segment { entry, end })
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
