//! The plugin: QEMU's callbacks, the model between them, and guest time.
//!
//! All vCPUs share one thread (`-accel tcg,thread=single`), and all callbacks run on it, so the
//! model needs no lock. QEMU's main loop and a small thread of the plugin only read the clock,
//! which consists of atomic words.
// SPDX-License-Identifier: MIT OR Apache-2.0

#![allow(unsafe_code)]

mod bounds;
mod count;
mod counters;
mod ffi;
mod handles;
mod internals;
mod monitors;
mod qemu;
mod regions;
mod registers;
mod state;
mod time;
mod translation;
mod visits;

use crate::board::Board;
use crate::clock::MAX_CORES;
use crate::decode::{Special, decode, is_store_exclusive};
use crate::issue::{Issue, issue, stored_bytes};
use crate::statistics;
use ffi::{Api, PluginId, RegisterDescriptor, UserData};
use internals::Internals;
use libc::{c_char, c_int, c_uint, c_void};
use qemu::{QEMU, Qemu, qemu};
use state::{Access, Block, Options, Plugin};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};
use time::{TIME, get_clock, is_hooked, is_main_thread, is_vcpu_thread, set_clock, skip_idle_time};

/// The plugin API version of the bindings, read by QEMU.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 4;

static PLUGIN: AtomicPtr<Plugin> = AtomicPtr::new(std::ptr::null_mut());

/// Returns the plugin's state.
///
/// # Safety
/// To be called on the vCPUs' thread, in a callback, and not while another borrow is alive: no
/// function that is called with the borrow alive calls back.
#[inline]
unsafe fn plugin() -> &'static mut Plugin {
    // SAFETY: set at load, before the first callback, and never freed; exclusive, as the caller
    // promises.
    unsafe { &mut *PLUGIN.load(Relaxed) }
}

extern "C" fn on_reset(_id: PluginId) {
    // SAFETY: QEMU resets plugins while no vCPU executes, so no other borrow is alive.
    let plugin = unsafe { plugin() };
    for block in plugin.blocks.drain(..) {
        // SAFETY: made by Box::into_raw; the translations that referred to it are gone.
        drop(unsafe { Box::from_raw(block) });
    }
    register();
}

fn register() {
    let qemu = qemu();
    // SAFETY: the ID is ours, and the callbacks have the API's signatures.
    unsafe {
        (qemu.api.on_translate)(qemu.id, on_translate);
        (qemu.api.on_exit)(qemu.id, on_exit, std::ptr::null_mut());
    }
}

extern "C" fn on_exit(_id: PluginId, _data: UserData) {
    // SAFETY: the vCPUs have stopped.
    let plugin = unsafe { plugin() };
    let file = plugin.options.statistics.take();
    let statistics = plugin.statistics();
    statistics.print();
    if let Some(path) = file
        && let Err(error) = statistics::write(&statistics, &path)
    {
        eprintln!("board-model: cannot write {}: {error}", path.display());
    }
}

extern "C" fn on_vcpu(_id: PluginId, index: c_uint) {
    // SAFETY: on the vCPUs' thread, before the vCPU runs.
    let plugin = unsafe { plugin() };
    let (api, internals) = (&qemu().api, &qemu().internals);
    plugin.cpus[index as usize] = internals.cpu(index);
    TIME.learn(index as usize, plugin.cpus[index as usize]);
    plugin.clocks.add_core();
    if index != 0 {
        return;
    }
    is_vcpu_thread();
    plugin.slot = Internals::current_cpu_slot();
    if let Err(error) = internals.hook_clock(get_clock, set_clock, is_hooked) {
        ffi::fail(&error);
    }
    // SAFETY: on a vCPU's thread; the list and its descriptors are as declared, and names end with
    // a zero.
    unsafe {
        plugin.bytes = (api.byte_array)();
        let list = (api.registers)();
        let descriptors = std::slice::from_raw_parts(
            (*list).data.cast::<RegisterDescriptor>(),
            (*list).len as usize,
        );
        for descriptor in descriptors
            .iter()
            .filter(|descriptor| !descriptor.name.is_null())
        {
            let name = CStr::from_ptr(descriptor.name).to_bytes();
            let number = name
                .strip_prefix(b"x")
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            if name == b"cpsr" {
                plugin.cpsr = descriptor.handle;
            }
            plugin.monitors.learn(name, descriptor.handle);
            plugin.translation_handles.learn(name, descriptor.handle);
            if let Some(place) = number.and_then(|number| plugin.x.get_mut(number)) {
                *place = descriptor.handle;
            }
        }
    }
    TIME.base_own.store(internals.own_clock(), Relaxed);
    let translation = plugin
        .translates
        .then(|| plugin.translation_handles.missing())
        .flatten();
    if let Some(missing) = plugin.monitors.missing().or(translation) {
        ffi::fail(&format!(
            "this QEMU's CPU has no {missing}: start it with -cpu cortex-a53"
        ));
    }
    if plugin.options.always {
        plugin.switch_on();
    }
    std::thread::spawn(skip_idle_time);
}

extern "C" fn on_translate(_id: PluginId, block: *mut c_void) {
    let api = &qemu().api;
    // SAFETY: on the vCPUs' thread; nothing below calls back.
    let plugin = unsafe { plugin() };
    // SAFETY: the block is QEMU's and valid during this callback; indices are below the number of
    // instructions.
    unsafe {
        let count = (api.instructions)(block);
        let address = |at| (api.address)((api.instruction)(block, at));
        let word = |at| {
            let mut word = [0u8; 4];
            (api.bytes)((api.instruction)(block, at), word.as_mut_ptr().cast(), 4);
            u32::from_le_bytes(word)
        };
        let timing = &plugin.board.timing;
        let issue = if plugin.active {
            issue(
                &mut (0..count).map(word),
                timing.instruction,
                timing.load_to_use,
            )
        } else {
            Issue::default()
        };
        if plugin.active {
            let known = plugin.describe(count as u64, issue.end, address(0), address(count - 1));
            let known = Box::into_raw(Box::new(known));
            plugin.blocks.push(known);
            (api.on_block)(block, on_block, ffi::WRITES_REGISTERS, known.cast());
        }
        for at in 0..count {
            let instruction = (api.instruction)(block, at);
            let word = word(at);
            if plugin.active {
                let access = Access::new(
                    address(at),
                    stored_bytes(word),
                    issue.at[at],
                    issue.used[at],
                );
                let data = |access: Access| std::ptr::without_provenance_mut(access.0);
                if !is_store_exclusive(word) {
                    (api.on_memory)(
                        instruction,
                        on_access,
                        ffi::NO_REGISTERS,
                        ffi::LOADS,
                        data(access),
                    );
                }
                (api.on_memory)(
                    instruction,
                    on_access,
                    ffi::NO_REGISTERS,
                    ffi::STORES,
                    data(access.store()),
                );
            }
            let Some(special) = decode(word)
                .filter(|special| plugin.active || matches!(special, Special::Magic(_)))
            else {
                continue;
            };
            if special.is_monitor_access() && at + 1 != count {
                // Its effect is added at the start of the next block.
                ffi::fail(&format!(
                    "this QEMU does not end a block at {word:#010x}: {}",
                    ffi::KNOWN_QEMU
                ));
            }
            // The instruction word, above the low 32 bits of its address.
            let word = usize::try_from(u64::from(word) << 32 | address(at) & 0xffff_ffff)
                .unwrap_or_default();
            let word = std::ptr::without_provenance_mut(word);
            (api.on_instruction)(instruction, on_special, ffi::READS_REGISTERS, word);
        }
    }
}

extern "C" fn on_block(_vcpu: c_uint, block: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back except the clock, which reads atomic
    // words only.
    let plugin = unsafe { plugin() };
    if plugin.active {
        // SAFETY: made when the block was translated, and only freed when all translations are
        // gone.
        plugin.block(unsafe { &*block.cast::<Block>() });
    }
}

extern "C" fn on_access(_vcpu: c_uint, info: u32, address: u64, instruction: UserData) {
    // SAFETY: on the vCPUs' thread; nothing in it calls back.
    unsafe { plugin() }.access(info, address, Access(instruction.addr()));
}

extern "C" fn on_special(_vcpu: c_uint, word: UserData) {
    let word = word.addr() as u64;
    if let Some(special) = decode((word >> 32) as u32) {
        // SAFETY: on the vCPUs' thread; nothing in it calls back except the clock, which reads
        // atomic words only.
        unsafe { plugin() }.special(special, word & 0xffff_ffff);
    }
}

/// The first members of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    target: *const c_char,
    version_min: c_int,
    version_current: c_int,
    system: bool,
    vcpus: c_int,
    most_vcpus: c_int,
}

/// Reads the GIC IDs of the cores' overflow interrupts, shared ones.
fn overflows(text: &str) -> Result<Vec<u32>, String> {
    let numbers: Result<Vec<u32>, _> = text.split('+').map(str::parse).collect();
    let numbers = numbers.map_err(|error| format!("overflow={text}: {error}"))?;
    if numbers.iter().any(|number| !(32..256).contains(number)) {
        return Err(format!("overflow={text}: 32 to 255 are shared interrupts"));
    }
    Ok(numbers)
}

/// Reads the arguments with which visits to EL2 are followed.
fn visits_wanted(arguments: &[&str]) -> Result<visits::Wanted, String> {
    let mut wanted = visits::Wanted {
        turn: 100,
        ..visits::Wanted::default()
    };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    for argument in arguments {
        let bad = |error| format!("{argument}: {error}");
        match argument.split_once('=') {
            Some(("visits", file)) => wanted.file = PathBuf::from(file),
            Some(("acknowledge", text)) => wanted.acknowledge = number(text).map_err(bad)?,
            Some(("overflow", text)) => wanted.overflows = overflows(text)?,
            Some(("turn", text)) => wanted.turn = number(text).map_err(bad)?,
            Some(("mark", text)) => {
                let (address, cause) = text
                    .split_once(':')
                    .ok_or_else(|| format!("{argument}: give ADDRESS:CAUSE"))?;
                wanted
                    .marks
                    .push((number(address).map_err(bad)?, cause.to_owned()));
            }
            _ => {
                return Err(format!(
                    "unknown argument `{argument}`: with visits=FILE there are \
                     acknowledge=ADDRESS, turn=NUMBER, overflow=ID+ID..., mark=ADDRESS:CAUSE"
                ));
            }
        }
    }
    Ok(wanted)
}

fn install(id: PluginId, info: &Info, arguments: &[&str]) -> Result<(), String> {
    let missing = |name| {
        format!(
            "this QEMU has no `{name}`; Debian's qemu-system-arm 1:10.0 (trixie, \
             bookworm-backports) has it"
        )
    };
    let api = Api::find().map_err(missing)?;
    if let [argument] = arguments
        && let Some(file) = argument.strip_prefix("count=")
    {
        return count::install(id, api, PathBuf::from(file));
    }
    if arguments
        .iter()
        .any(|argument| argument.starts_with("visits="))
    {
        return visits::install(
            id,
            api,
            info.most_vcpus.max(info.vcpus) as usize,
            visits_wanted(arguments)?,
        );
    }
    let internals = Internals::find().map_err(missing)?;
    // SAFETY: QEMU passes its target as a zero-terminated string.
    let target = unsafe { CStr::from_ptr(info.target) };
    if target != c"aarch64" || !info.system {
        return Err("the model is for qemu-system-aarch64".into());
    }
    let cores = info.most_vcpus.max(info.vcpus);
    if !(1..=MAX_CORES as c_int).contains(&cores) {
        return Err(format!("{cores} cores: 1 to {MAX_CORES} are supported"));
    }
    let mut board = None;
    let mut options = Options::default();
    for argument in arguments {
        match argument.split_once('=') {
            Some(("board", path)) => {
                board =
                    Some(Board::load(path.as_ref()).map_err(|error| format!("{path}: {error}"))?);
            }
            Some(("roi", "always")) => options.always = true,
            Some(("roi", "hint")) => options.always = false,
            Some(("caches", "cold")) => options.cold = Some(true),
            Some(("caches", "warm")) => options.cold = Some(false),
            Some(("seed", text)) => {
                let number = text
                    .parse()
                    .map_err(|error| format!("seed={text}: {error}"));
                options.seed = number?;
            }
            Some(("stats", path)) => options.statistics = Some(PathBuf::from(path)),
            Some(("overflow", text)) => options.overflow_interrupts = overflows(text)?,
            _ => {
                return Err(format!(
                    "unknown argument `{argument}`: there are board=FILE, roi=hint|always, \
                     caches=warm|cold, seed=NUMBER, stats=FILE, overflow=ID+ID...; or count=FILE \
                     alone; or visits=FILE"
                ));
            }
        }
    }
    let mut board = board.ok_or("no board: give board=configs/models/zcu102.toml")?;
    board.reseed(options.seed);
    let plugin = Plugin::new(board, cores as usize, options);
    if QEMU
        .set(Qemu {
            api,
            internals,
            id,
            on_reset,
        })
        .is_err()
    {
        return Err("loaded twice".into());
    }
    PLUGIN.store(Box::into_raw(Box::new(plugin)), Relaxed);
    is_main_thread();
    // SAFETY: the ID is ours, and the callback has the API's signature.
    unsafe { (api.on_vcpu)(id, on_vcpu) };
    register();
    Ok(())
}

/// The plugin's entry point.
///
/// # Safety
/// QEMU calls it once, with its own description and `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    texts: *const *const c_char,
) -> c_int {
    let text = |at: usize| {
        // SAFETY: as QEMU promises: `count` zero-terminated strings that live as long as QEMU.
        unsafe { CStr::from_ptr(*texts.add(at)) }.to_str()
    };
    let texts: Result<Vec<&str>, _> = (0..count as usize).map(text).collect();
    // SAFETY: QEMU passes a pointer to its description, which lives until this function returns.
    let info = unsafe { &*info };
    match texts
        .map_err(|error| error.to_string())
        .and_then(|texts| install(id, info, &texts))
    {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("board-model: {error}");
            1
        }
    }
}
