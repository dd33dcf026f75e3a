//! Devices that access memory by themselves, in a colored VM: they find its memory for DMA, and
//! nothing else.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::{PATIENCE, Running, authorize};
use cloison::live;
use cloison::network::{self, Forward};
use cloison_config::guest_linux::{Release, Shown};
use cloison_config::{Checked, ImageSource};
use cloison_formats::image::Backing;
use cloison_tests::{Clock, VIRT, ZCU102, load, machine, number, run, shipped};
use miette::{IntoDiagnostic, Result};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// The VM's address in the network of QEMU's user.
const ADDRESS: &str = "10.0.2.15";
/// Bytes of the card: a power of two, as QEMU asks.
const CARD: usize = 64 << 20;
/// Where the test's bytes are on the card: the first half is a file system's.
const COPIED: usize = 48 << 20;
/// Bytes that the guest copies on the card.
const LENGTH: usize = 4 << 20;

/// Returns bytes that do not repeat within a page.
fn pattern(len: usize) -> Vec<u8> {
    let word = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7).to_le_bytes();
    (0..len as u64 / 8).flat_map(word).collect()
}

/// Starts the system with a network, that of QEMU's user, which has a file and an echo, and a card.
fn start(card: &Path, shared: &Path) -> Result<Running> {
    let drive = format!("if=sd,index=0,format=raw,file={}", card.display());
    let network = format!(
        "user,tftp={},guestfwd=tcp:10.0.2.100:7-cmd:cat",
        shared.display()
    );
    let given = ["-nic", &network, "-drive", &drive];
    let mut checked = devices(ZCU102)?;
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.tree.cmdline.push_str(" root=/dev/mmcblk0");
        }
    }
    Running::start_on(&checked, |file| {
        Ok(machine(ZCU102, file, Clock::Counted)?.args(given))
    })
}

/// Loads the shipped system with devices of a board.
fn devices(board: &str) -> Result<Checked> {
    load(&shipped(&format!("devices/{board}")), board)
}

/// Returns the checksum of what a command prints.
fn sum(linux: &mut Running, command: &str) -> String {
    linux.output("linux", &format!("{command} | md5sum"))
}

/// The first process of the card's root file system: a shell, as the RAM disk has it.
const CARDS_INIT: &str = "#!/bin/busybox sh\n\
     export PATH=/bin PS1='\\h:\\w# '\n\
     /bin/busybox --install -s /bin\n\
     while :; do setsid -c sh -i < /dev/ttyAMA0 > /dev/ttyAMA0 2>&1; done\n";

/// Moves each 64th page of all the VM's memory, the kernel's too, and back; not at once, so that
/// devices work meanwhile.
const MOVES: &str = "seq 0 64 65535 | \
     while read n; do printf '0x%x ' $((0x80000000 + n * 4096)); done | \
     xargs -n 64 sh -c 'sleep 0.01; cloisonctl migrate page \"$@\"' sh && cloisonctl migrate restore";

/// Ethernet and card of Debian's kernel, with buffers in pages of the pool, which are scattered.
/// Meanwhile pages move to other frames and back.
#[test]
fn debian_uses_ethernet_and_a_card_in_a_colored_vm() -> Result<()> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let (card, shared) = (scratch.path().join("card"), scratch.path().join("shared"));
    let mut contents = vec![0; CARD];
    contents[COPIED..COPIED + LENGTH].copy_from_slice(&pattern(LENGTH));
    fs::write(&card, &contents).into_diagnostic()?;
    fs::create_dir(&shared).into_diagnostic()?;
    fs::write(shared.join("file"), pattern(1 << 20)).into_diagnostic()?;

    let mut linux = start(&card, &shared)?;
    linux.open("linux")?;
    linux.join("linux", ADDRESS);
    linux.ping("linux", "10.0.2.2", "-s 1400");
    linux.output("linux", "tftp -g -r file -l /root/file 10.0.2.2");
    let file = sum(&mut linux, "cat /root/file");
    let direct = "dd if=/dev/mmcblk0 bs=64k skip=768 count=64 iflag=direct 2> /dev/null";
    let copied = sum(&mut linux, direct);
    // Both devices work for as long as pages move, and all that they bring is right.
    let moves = format!("((({MOVES}) && echo done || echo failed) > /root/moved 2>&1) &");
    linux.output("linux", &moves);
    let again = "tftp -g -r file -l /root/again 10.0.2.2; md5sum < /root/again";
    let rounds =
        format!("until grep -qE '^(done|failed)' /root/moved; do {direct} | md5sum; {again}; done");
    let rounds = linux.output("linux", &rounds);
    let moved = linux.output("linux", "cat /root/moved");
    assert!(moved.ends_with("done\n"), "{moved}");
    let lines: Vec<&str> = rounds.lines().collect();
    assert!(lines.len() >= 4, "{rounds}");
    for round in lines.chunks(2) {
        assert_eq!(round, [copied.trim_end(), file.trim_end()], "{rounds}");
    }
    let echo = "(cat /root/file; sleep 1) | timeout 60 nc 10.0.2.100 7 | head -c 1048576";
    assert_eq!(sum(&mut linux, echo), file, "by TCP, there and back");
    // From the card to its first half, by a file system.
    linux.output("linux", "busybox mke2fs /dev/mmcblk0 32768 2> /dev/null");
    linux.output(
        "linux",
        "mkdir -p /card && mount -t ext4 /dev/mmcblk0 /card",
    );
    let copy =
        "dd if=/dev/mmcblk0 of=/card/copy bs=64k skip=768 count=64 iflag=direct 2> /dev/null";
    linux.output("linux", copy);
    let whole = format!(
        "cd /card && mkdir bin dev proc sbin sys && cp /bin/busybox bin && cp /root/file . && \
         cat > sbin/init << 'END'\n{CARDS_INIT}END\nchmod +x sbin/init; cd /; umount /card; sync"
    );
    linux.output("linux", &whole);
    let used = linux.output("linux", "cat /proc/interrupts");
    assert!(used.contains("eth0") && used.contains("mmc0"), "{used}");
    // The VM's next life has the card as its root.
    linux.type_in("linux", "reboot -f\n")?;
    linux.open("linux")?;
    let root = linux.output("linux", "sed -n 's|^\\([^ ]*\\) / .*|\\1|p' /proc/mounts");
    assert!(
        root.ends_with("/dev/mmcblk0\n") || root == "/dev/root\n",
        "{root}"
    );
    assert_eq!(sum(&mut linux, "cat /file"), file, "with the card as root");
    let back = "dd if=/copy of=/dev/mmcblk0 bs=64k seek=896 conv=fsync 2> /dev/null";
    linux.output("linux", back);
    linux.output("linux", "mount -o remount,ro /; sync");
    linux.await_last_beat("neighbor")?;
    let run = linux.stop()?;
    // There was nothing on the card at first.
    run.line("linux", "cloison: /dev/mmcblk0 has no root file system");
    let now = fs::read(&card).into_diagnostic()?;
    assert!(
        now[56 << 20..][..LENGTH] == pattern(LENGTH),
        "what the card has after two copies"
    );
    let moves = run.telemetry.migrations().count() as u64 + run.telemetry.dropped();
    assert!(moves >= 2 * 1000, "{moves} moves");
    let done = run.line("neighbor", "heartbeat: done");
    assert_eq!(number(done, "corrupt"), 0, "{done}");
    Ok(())
}

/// Where the Ethernet's first register is for the VM: its control.
const CONTROL: &str = "0x0b000000";
/// Receiver and transmitter on, and the registers of the PHY (UG1087, GEM network_control).
const RUNNING: &str = "0x0000001C";

/// Has a device that nobody drives receive, restarts the VM, and returns what the device does then.
fn after_a_restart(stops: bool) -> Result<String> {
    let mut checked = devices(ZCU102)?;
    if !stops {
        checked.system.vms[0].stops.clear();
    }
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            for shown in &mut linux.tree.shown {
                if let Shown::Device(_) = shown {
                    *shown = Shown::Hidden;
                }
            }
        }
    }
    let mut linux = Running::start(&checked, ZCU102, Clock::Counted)?;
    linux.open("linux")?;
    let read = format!("devmem {CONTROL} 32");
    linux.output("linux", &format!("devmem {CONTROL} 32 {RUNNING}"));
    assert_eq!(linux.output("linux", &read).trim_end(), RUNNING);
    linux.type_in("linux", "reboot -f\n")?;
    linux.open("linux")?;
    let after = linux.output("linux", &read);
    linux.stop()?;
    Ok(after.trim_end().to_owned())
}

/// A device that went on would follow descriptors that the VM's next life has overwritten.
#[test]
fn a_device_stops_with_its_vms_life() -> Result<()> {
    assert_eq!(after_a_restart(true)?, "0x00000000");
    assert_eq!(after_a_restart(false)?, RUNNING, "nothing else stops it");
    Ok(())
}

/// Every page of the memory for DMA is where the device looks for it; one that is not is found.
#[test]
fn memory_for_dma_is_at_its_own_addresses() -> Result<()> {
    let mut checked = devices(ZCU102)?;
    checked.system.audit = true;
    let run = run(&checked, ZCU102, Clock::Counted)?;
    let audit = live::judge(&run.system, &run.telemetry);
    audit.verdict()?;
    let linux = &run.system.vms[0];
    let memory = linux
        .regions
        .iter()
        .find(|it| it.backing == Backing::Direct);
    let memory = memory.expect("the configuration has some");
    assert!(audit.checked > u64::from(memory.pages));
    let mut other = run.telemetry.clone();
    let runs = &mut other.passes[0].stage2;
    let found = runs.iter_mut().find(|run| run.ipa == memory.ipa);
    found.expect("its first pages").frames.swap(0, 1);
    let audit = live::judge(&run.system, &other);
    assert_eq!((audit.outside, audit.shared), (2, 0));
    let message = audit.verdict().expect_err("two pages").to_string();
    assert!(message.contains("2"), "{message}");
    Ok(())
}

/// Returns the page that a web server behind a port of this machine has.
fn page(port: u16) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).into_diagnostic()?;
    stream.set_read_timeout(Some(PATIENCE)).into_diagnostic()?;
    stream
        .write_all(b"GET /page HTTP/1.0\r\n\r\n")
        .into_diagnostic()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).into_diagnostic()?;
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer");
    Ok(body.to_owned())
}

/// Returns a port of this machine that nobody has; the listener is gone before QEMU takes it.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").into_diagnostic()?;
    Ok(listener.local_addr().into_diagnostic()?.port())
}

/// From this machine into a VM, and from the VM out.
fn a_vm_joins_the_network(board: &str, release: Release) -> Result<()> {
    let port = free_port()?;
    let mut checked = devices(board)?;
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.release = release;
        }
    }
    let forward = Forward::read(&format!("{port}:80")).expect("two ports");
    let arguments = network::join(&checked, "linux", &[forward])?;
    let mut linux = Running::start_on(&checked, |file| {
        Ok(machine(board, file, Clock::Counted)?.args(arguments))
    })?;
    linux.open("linux")?;
    linux.join("linux", ADDRESS);
    linux.ping("linux", "10.0.2.2", "-s 1400");
    linux.output(
        "linux",
        "mkdir /www && seq 100000 > /www/page && httpd -h /www",
    );
    let expected: String = (1..=100_000).map(|n| format!("{n}\n")).collect();
    // The VM runs while this machine waits for it.
    assert!(page(port)? == expected, "the page as the VM has it");
    linux.stop()?;
    Ok(())
}

#[test]
fn a_vm_joins_the_network_of_this_machine_on_virt() -> Result<()> {
    a_vm_joins_the_network(VIRT, Release::Bookworm)
}

#[test]
fn a_vm_joins_the_network_of_this_machine_on_zcu102() -> Result<()> {
    a_vm_joins_the_network(ZCU102, Release::Trixie)
}

/// Runs a program of this machine, and returns what it prints.
#[track_caller]
fn here(command: &mut Command) -> String {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}\n{said}");
    said
}

/// A throughput test and a shell, through the Ethernet of a colored VM.
#[test]
#[ignore = "downloads iperf3 and dropbear, and needs iperf3 and ssh here"]
fn iperf3_and_ssh_of_this_machine_reach_a_vm() -> Result<()> {
    let (throughput, shell) = (free_port()?, free_port()?);
    let mut checked = devices(ZCU102)?;
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.packages = ["iperf3", "dropbear-bin"].map(str::to_owned).to_vec();
        }
    }
    let forwards = [format!("{throughput}:5201"), format!("{shell}:22")];
    let forwards = forwards.map(|ports| Forward::read(&ports).expect("two ports"));
    let arguments = network::join(&checked, "linux", &forwards)?;
    // A counted clock jumps while the VM waits for this machine, and programs give up.
    let mut linux = Running::start_on(&checked, |file| {
        Ok(machine(ZCU102, file, Clock::Real)?.args(arguments))
    })?;
    linux.open("linux")?;
    linux.join("linux", ADDRESS);
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let key = scratch.path().join("key");
    let mut make = Command::new("ssh-keygen");
    here(make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
    let public = fs::read_to_string(key.with_extension("pub")).into_diagnostic()?;
    linux.output("linux", &authorize(&public));
    linux.output("linux", "dropbear -R");
    // Into the VM, where the sender ends as soon as QEMU has taken the last byte, and out of it.
    for way in [&[][..], &["--reverse"]] {
        let serve = "while pidof iperf3 > /dev/null; do sleep 0.1; done; iperf3 -s -D -1";
        linux.output("linux", serve);
        let mut iperf = Command::new("iperf3");
        iperf.args(["-c", "127.0.0.1", "-n", "4M", "-f", "m", "-p"]);
        let said = here(iperf.arg(throughput.to_string()).args(way));
        println!("{said}");
        let received = said.lines().find(|line| line.ends_with("receiver"));
        let received = received.unwrap_or_else(|| panic!("{said}"));
        assert!(!received.contains(" 0.00 "), "{said}");
        assert!(
            way.is_empty() || received.contains(" 4.00 MBytes"),
            "{said}"
        );
    }
    let mut ssh = Command::new("ssh");
    ssh.args([
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
    ])
    .args(["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-i"])
    .arg(&key)
    .args(["-p", &shell.to_string(), "root@127.0.0.1", "hostname"]);
    assert_eq!(here(&mut ssh).trim_end(), "linux");
    linux.stop()?;
    Ok(())
}
