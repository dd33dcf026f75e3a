//! The model at QEMU's callbacks.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::profile::is_firmware_call;
use super::state::{Access, Block, Plugin};
use super::time::{TIME, get_clock, is_hooked, is_vcpu_thread, set_clock, skip_idle_time};
use crate::decode::{Special, decode, is_store_exclusive};
use crate::issue::{Issue, issue, stored_bytes};
use crate::statistics;
use cloison_qemu::cpu::Running;
use cloison_qemu::ffi::{KNOWN_QEMU, fail};
use cloison_qemu::guest::{General, Start};
use cloison_qemu::listener::{Accesses, Home, Listener, MemoryAccess, NewBlock, Registers};
use cloison_qemu::machine;
use std::sync::atomic::Ordering::Relaxed;

/// The plugin's state, and the blocks of QEMU's translations.
pub struct Model {
    plugin: Plugin,
    /// By the data of their callbacks.
    blocks: Vec<Block>,
    /// QEMU's memory and registers have been tested.
    is_checked: bool,
}

static MODEL: Home<Model> = Home::empty();

impl Model {
    /// Returns the model before the first callback.
    pub const fn of(plugin: Plugin) -> Self {
        Self {
            plugin,
            blocks: Vec::new(),
            is_checked: false,
        }
    }

    /// Learns QEMU's handles of registers, and ends the run if one is missing.
    fn learn_registers(&mut self, start: &Start) {
        let plugin = &mut self.plugin;
        for (name, register) in start.registers() {
            let number = name
                .strip_prefix(b"x")
                .and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
            if name == b"cpsr" {
                plugin.cpsr = Some(register);
            }
            plugin.monitors.learn(name, register);
            plugin.translation_handles.learn(name, register);
            if let Some(place) = number.and_then(|number| plugin.x.get_mut(number)) {
                *place = Some(register);
            }
        }
        let translation = plugin
            .translates
            .then(|| plugin.translation_handles.missing())
            .flatten();
        let general = plugin.x.iter().any(Option::is_none).then_some("x0 to x30");
        let missing = plugin.monitors.missing().or(translation).or(general);
        if let Some(missing) = missing {
            fail(&format!(
                "this QEMU's CPU has no {missing}: start it with -cpu cortex-a53"
            ));
        }
    }

    /// Tests that memory and registers read as the code that the first block shows.
    fn check(&self, block: &NewBlock<'_, Self>) {
        let plugin = &self.plugin;
        let running = plugin.slot.and_then(Running::cpu);
        if let (Some(cpu), Some(register)) = (running, plugin.x[0]) {
            let first = General {
                number: 0,
                register,
            };
            let code = (block.address(0), block.word(0));
            if let Err(error) = machine::check(&*plugin.machine, cpu, first, code) {
                fail(&error);
            }
        }
    }

    /// Asks for the callbacks of a load or store.
    fn follow_accesses(block: &NewBlock<'_, Self>, at: usize, word: u32, issue: &Issue) {
        let access = Access::new(
            block.address(at),
            stored_bytes(word),
            issue.at[at],
            issue.used[at],
        );
        if !is_store_exclusive(word) {
            block.on_memory(at, Accesses::Loads, access.0);
        }
        block.on_memory(at, Accesses::Stores, access.store().0);
    }
}

impl Listener for Model {
    fn home() -> &'static Home<Self> {
        &MODEL
    }

    fn starts(&mut self, start: &Start) {
        let plugin = &mut self.plugin;
        let internals = plugin.internals;
        let Some(cpu) = internals.cpu(start.core) else {
            fail(&format!("QEMU has no CPU {}", start.core));
        };
        plugin.cpus[start.core] = Some(cpu);
        TIME.learn(start.core, cpu);
        plugin.clocks.add_core();
        if start.core != 0 {
            return;
        }
        is_vcpu_thread();
        plugin.slot = Some(start.running());
        if let Err(error) = internals.hook_clock(get_clock, set_clock, is_hooked) {
            fail(&error);
        }
        internals.keep_turns_whole();
        self.learn_registers(start);
        TIME.base_own.store(internals.own_clock(), Relaxed);
        if self.plugin.options.always {
            self.plugin.switch_on();
        }
        std::thread::spawn(move || skip_idle_time(internals));
    }

    fn translates(&mut self, block: &NewBlock<'_, Self>) {
        if !std::mem::replace(&mut self.is_checked, true) {
            self.check(block);
        }
        let plugin = &mut self.plugin;
        let count = block.instructions;
        let timing = &plugin.board.timing;
        let issue = if plugin.active {
            issue(
                &mut (0..count).map(|at| block.word(at)),
                timing.instruction,
                timing.load_to_use,
            )
        } else {
            Issue::default()
        };
        if plugin.active {
            let (start, end) = (block.address(0), block.address(count - 1));
            block.on_block(Registers::Written, self.blocks.len());
            let mut described = plugin.describe(count as u64, issue.end, start, end);
            if let Some(recorder) = &mut plugin.profile.recorder {
                let words: Vec<u32> = (0..count).map(|at| block.word(at)).collect();
                described.site = recorder.site(
                    described.level,
                    described.address,
                    &words,
                    &issue.at,
                    described.cycles,
                );
            }
            self.blocks.push(described);
        }
        for at in 0..count {
            let word = block.word(at);
            if plugin.active {
                Self::follow_accesses(block, at, word, &issue);
            }
            // The instruction word, above the low 32 bits of its address.
            let data = u64::from(word) << 32 | block.address(at) & 0xffff_ffff;
            if plugin.profile.is_on() && is_firmware_call(word) {
                block.on_instruction(at, Registers::Read, data as usize);
            }
            let Some(special) = decode(word)
                .filter(|special| plugin.active || matches!(special, Special::Magic(_)))
            else {
                continue;
            };
            if special.is_monitor_access() && at + 1 != count {
                // Its effect is added at the start of the next block.
                fail(&format!(
                    "this QEMU does not end a block at {word:#010x}: {KNOWN_QEMU}"
                ));
            }
            block.on_instruction(at, Registers::Read, data as usize);
        }
    }

    #[inline]
    fn block(&mut self, number: usize) {
        if self.plugin.active {
            self.plugin.block(&self.blocks[number]);
        }
    }

    #[inline]
    fn memory(&mut self, access: &MemoryAccess<'_>, instruction: usize) {
        self.plugin.access(access, Access(instruction));
    }

    fn instruction(&mut self, data: usize) {
        let data = data as u64;
        let word = (data >> 32) as u32;
        if let Some(special) = decode(word) {
            self.plugin.special(special, data & 0xffff_ffff);
        } else if is_firmware_call(word) {
            self.plugin.firmware_call();
        }
    }

    fn forgets(&mut self) {
        self.blocks.clear();
    }

    fn ends(&mut self) {
        if let (Some(profile), Some(path)) =
            (self.plugin.take_profile(), &self.plugin.options.profile)
            && let Err(error) = statistics::write_compact(&profile, path)
        {
            eprintln!("board-model: cannot write {}: {error}", path.display());
        }
        let file = self.plugin.options.statistics.take();
        let statistics = self.plugin.statistics();
        statistics.print();
        if let Some(path) = file
            && let Err(error) = statistics::write(&statistics, &path)
        {
            eprintln!("board-model: cannot write {}: {error}", path.display());
        }
    }
}
