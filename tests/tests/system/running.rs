//! A running system with Linux guests, and their shells.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::Checked;
use cloison_engine::linux::shell::{CommandResult, Shells};
use cloison_engine::qemu::{Machine, Session};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::ids::VmId;
use cloison_tests::{Clock, Run, image, machine_of};
use miette::{Result, miette};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Time after which the system is considered hung. Nothing else depends on it.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the command by which a shell lets the owner of a public key in by dropbear.
pub fn authorize(key: &str) -> String {
    format!(
        "mkdir -p /etc/dropbear /root/.ssh && echo '{}' > /root/.ssh/authorized_keys && \
         chown 0:0 /root && chmod 700 /root /root/.ssh && echo /bin/sh > /etc/shells && \
         echo root:x:0:0::/root:/bin/sh > /etc/passwd",
        key.trim_end()
    )
}

/// A running system with Linux guests.
pub struct Running {
    pub session: Session,
    pub shells: Shells,
    pub checked: Checked,
    _scratch: TempDir,
}

impl Running {
    pub fn start(checked: &Checked, board: &str, clock: Clock) -> Result<Self> {
        assert_eq!(checked.system.board.name, board);
        Self::start_on(checked, |file| {
            machine_of(checked.emulation()?, file, clock)
        })
    }

    /// Starts the system on a machine provided by the caller.
    pub fn start_on(
        checked: &Checked,
        machine: impl FnOnce(&Path) -> Result<Machine>,
    ) -> Result<Self> {
        let scratch = tempfile::tempdir().map_err(|error| miette!("{error}"))?;
        let file = scratch.path().join("Image");
        let image = image(checked)?;
        image.write(&file)?;
        let session = machine(&file)?.limit(3 * PATIENCE).start()?;
        let shells = Shells::new(checked.system.vms.iter().map(|vm| vm.name.as_str()));
        let checked = Checked {
            system: image.system,
            ..checked.clone()
        };
        Ok(Self {
            session,
            shells,
            checked,
            _scratch: scratch,
        })
    }

    #[track_caller]
    pub fn vm(&self, name: &str) -> VmId {
        self.checked
            .system
            .vms
            .iter()
            .position(|vm| vm.name == name)
            .map(|vm| VmId(vm as u8))
            .expect("a VM of the configuration")
    }

    pub fn open(&mut self, vm: &str) -> Result<()> {
        let vm = self.vm(vm);
        self.shells.open(&mut self.session, vm, PATIENCE)
    }

    pub fn ask(&mut self, vm: &str, command: &str) -> Result<CommandResult> {
        let vm = self.vm(vm);
        self.shells.run(&mut self.session, vm, command, PATIENCE)
    }

    /// Returns the output of a command that must succeed.
    #[track_caller]
    pub fn output(&mut self, vm: &str, command: &str) -> String {
        let done = self
            .ask(vm, command)
            .unwrap_or_else(|error| panic!("{vm}: {command}: {error:?}"));
        assert_eq!(done.status, 0, "{vm}: {command}: {}", done.output);
        done.output
    }

    /// Gives a VM's network device an address.
    #[track_caller]
    pub fn set_address(&mut self, vm: &str, address: &str) {
        let command = format!("ip addr add {address}/24 dev eth0 && ip link set eth0 up");
        self.output(vm, &command);
    }

    /// Gives a VM's network device an address, and waits until it can send.
    #[track_caller]
    pub fn join(&mut self, vm: &str, address: &str) {
        self.set_address(vm, address);
        let command = "while [ \"$(cat /sys/class/net/eth0/carrier)\" != 1 ]; do sleep 0.1; done";
        self.output(vm, command);
    }

    /// Has a VM ask another machine whether it is there.
    #[track_caller]
    pub fn ping(&mut self, vm: &str, address: &str, options: &str) {
        let said = self.output(vm, &format!("ping -c 3 -W 5 {options} {address}"));
        assert!(said.contains("3 packets received"), "{said}");
    }

    /// Returns the number that a command prints.
    #[track_caller]
    pub fn number(&mut self, vm: &str, command: &str) -> u64 {
        let output = self.output(vm, command);
        output
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{vm}: {command} printed {output:?}"))
    }

    /// Waits until a VM prints `text`.
    pub fn expect(&mut self, vm: &str, text: &str) -> Result<String> {
        let vm = self.vm(vm);
        self.shells.expect(
            &mut self.session,
            vm,
            &format!("say {text:?}"),
            text,
            PATIENCE,
        )
    }

    /// Waits until a neighbor has printed what its last beat has found.
    pub fn await_last_beat(&mut self, vm: &str) -> Result<()> {
        self.expect(vm, "heartbeat: done")?;
        self.expect(vm, " ticks").map(drop)
    }

    /// Waits until the bare-metal VM has printed that its next beats are correct.
    pub fn hear_the_heart(&mut self) -> Result<()> {
        let vm = self.vm("heart");
        self.shells.pass_over(&self.session, vm);
        self.expect("heart", " ok\n").map(drop)
    }

    pub fn type_in(&mut self, vm: &str, line: &str) -> Result<()> {
        let vm = self.vm(vm);
        self.shells.send(&mut self.session, vm, line)
    }

    /// Waits until the board turns itself off.
    pub fn finish(self) -> Result<Run> {
        let outcome = self.session.finish()?;
        let telemetry = Telemetry::parse(&outcome.telemetry);
        Ok(Run {
            system: self.checked.system,
            telemetry,
            outcome,
        })
    }

    /// Stops the board, which would otherwise run on.
    pub fn stop(self) -> Result<Run> {
        let outcome = self.session.stop()?;
        let telemetry = Telemetry::parse(&outcome.telemetry);
        Ok(Run {
            system: self.checked.system,
            telemetry,
            outcome,
        })
    }
}
