//! Devices behind the SMMU: they reach the memory of their VM, and nothing else.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::Running;
use cloison::inspect::{InspectArgs, inspect};
use cloison::live;
use cloison_config::guest_linux::{Flavor, KernelSource};
use cloison_config::{Checked, ImageSource};
use cloison_engine::telemetry::Telemetry;
use cloison_formats::addr::{PAGE_SIZE, PhysAddr};
use cloison_formats::color::color_of;
use cloison_formats::ids::VmId;
use cloison_formats::image::Streams;
use cloison_tests::{Clock, Run, VIRT, config, image, load, machine_of, number, run, shipped};
use miette::{IntoDiagnostic, Result};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// First byte of the board's RAM.
const RAM: u64 = 0x4000_0000;
/// What the device writes.
const MARK: &[u8; 8] = b"edu-mark";
/// The device: the first function of slot 1, for addresses of 40 bits.
const EDU: [&str; 2] = ["-device", "edu,addr=1,dma_mask=0xffffffffff"];

fn edu() -> Result<Checked> {
    load(&config("smmu/edu"), VIRT)
}

/// Boots a system with the device, and keeps the board's RAM in a file.
fn boot(checked: &Checked, memory: &Path) -> Result<Run> {
    let image = image(checked)?;
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let file = scratch.path().join("Image");
    image.write(&file)?;
    let backend = format!(
        "memory-backend-file,id=ram,size=1G,share=on,mem-path={}",
        memory.display()
    );
    let outcome = machine_of(checked.emulation()?, &file, Clock::Counted)?
        .args(EDU)
        .args(["-object", &backend, "-machine", "memory-backend=ram"])
        .run()?;
    Ok(Run {
        system: image.system,
        telemetry: Telemetry::parse(&outcome.telemetry),
        outcome,
    })
}

/// Returns the frames that have two marks in a row, from a file with the board's RAM. A program that
/// compares words has one on its stack.
fn marked(memory: &Path) -> Result<Vec<PhysAddr>> {
    let mut file = File::open(memory).into_diagnostic()?;
    let mut chunk = vec![0; 16 << 20];
    let mut found = Vec::new();
    let mut base = RAM;
    let twice = MARK.repeat(2);
    loop {
        let mut len = 0;
        while len < chunk.len() {
            match file.read(&mut chunk[len..]).into_diagnostic()? {
                0 => break,
                more => len += more,
            }
        }
        if len == 0 {
            return Ok(found);
        }
        let has_mark = |page: &[u8]| page.chunks(16).any(|words| words == twice);
        for (page, number) in chunk[..len].chunks(PAGE_SIZE as usize).zip(0..) {
            if has_mark(page) {
                found.push(PhysAddr(base).page(number));
            }
        }
        base += len as u64;
    }
}

/// Sends the device to as many addresses outside of its VM.
fn none_of(rounds: u64, seed: u64) -> Result<()> {
    let mut checked = edu()?;
    checked.system.vms[0].args[1..3].copy_from_slice(&[rounds, seed]);
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let memory = scratch.path().join("ram");
    let run = boot(&checked, &memory)?.whole();
    let done = run.line("edu", "edu: done");
    assert_eq!(number(done, "rounds"), rounds, "{run}");
    for none in ["late", "wrong", "leaked"] {
        assert_eq!(number(done, none), 0, "{none}: {done}");
    }
    // The mark is in the VM's own frames, and in none with another color: those of the neighbor, of
    // the hypervisor, and of nobody.
    let own = run.system.pools[0].colors;
    let marked = marked(&memory)?;
    let is_own = |at: &PhysAddr| own.contains(color_of(*at, 16));
    assert!(!marked.is_empty());
    assert!(marked.iter().all(is_own), "{marked:?}");
    let done = run.line("heart", "heartbeat: done");
    assert_eq!(number(done, "corrupt"), 0, "{done}");
    // Each transfer is refused; only a few of them become messages.
    let messages = run
        .outcome
        .console
        .lines()
        .filter(|line| line.contains("VM edu: stream 8 was refused"));
    let last = messages.clone().next_back().expect("messages");
    let words: Vec<&str> = last.split_whitespace().collect();
    let at = words
        .iter()
        .position(|word| word.starts_with("in"))
        .expect("a count");
    let all: u64 = words[at - 1].parse().expect("a number");
    assert!(all >= rounds, "{last}");
    assert!(
        (2..=8 + rounds / 5).contains(&(messages.count() as u64)),
        "{run}"
    );
    Ok(())
}

#[test]
fn no_address_that_a_device_is_given_is_outside_its_vm() -> Result<()> {
    none_of(512, 7)
}

#[test]
#[ignore = "takes minutes: 100,000 addresses"]
fn no_address_of_a_hundred_thousand_is_outside_its_vm() -> Result<()> {
    none_of(100_000, 11)
}

/// Has the VM's life end during a transfer, and returns the words that the next one finds.
fn after_a_reset(change: impl FnOnce(&mut Checked)) -> Result<u64> {
    let mut checked = edu()?;
    checked.system.vms[0].args[0] = 2;
    change(&mut checked);
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let run = boot(&checked, &scratch.path().join("ram"))?.whole();
    Ok(number(run.line("edu", "edu: the next life"), "words"))
}

/// A transfer that is due after the reset writes nothing: the function no longer accesses memory, and
/// its stream is cut while the memory is prepared.
#[test]
fn a_transfer_ends_with_its_vms_life() -> Result<()> {
    assert_eq!(after_a_reset(|_| {})?, 0);
    let lost = after_a_reset(|checked| checked.system.vms[0].stops.clear())?;
    assert_eq!(lost, 8, "nothing else stops the function");
    Ok(())
}

/// The stream of a VM that is off is cut, whatever its devices do.
#[test]
fn a_vm_that_is_off_has_no_transfers() -> Result<()> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let memory = scratch.path().join("ram");
    let mut checked = edu()?;
    checked.system.vms[0].args[0] = 3;
    checked.system.vms[0].stops.clear();
    let run = boot(&checked, &memory)?.whole();
    // The neighbor runs on for ten seconds, and a transfer takes a tenth of one.
    let left = run.position("edu: leaving");
    assert!(
        run.said("heart").filter(|(line, _)| *line > left).count() > 5,
        "{run}"
    );
    assert_eq!(marked(&memory)?, []);
    Ok(())
}

/// The audit reads the SMMU's table and the tables below it back, and finds what is wrong with them.
#[test]
fn the_audit_finds_a_wrong_stream() -> Result<()> {
    let mut checked = edu()?;
    checked.system.audit = true;
    let run = run(&checked, VIRT, Clock::Counted)?;
    let audit = live::judge(&run.system, &run.telemetry);
    audit.verdict()?;
    // RAM alone: the devices and the CPU interface are in the first GiB.
    assert_eq!((audit.streams, audit.reached), (1, 4096));
    let finds = |change: fn(&mut Telemetry), what: &str| {
        let mut other = run.telemetry.clone();
        change(&mut other);
        let verdict = live::judge(&run.system, &other).verdict();
        let message = format!("{:?}", verdict.expect_err(what));
        assert!(message.contains(what), "{message}");
    };
    finds(|it| it.passes[0].streams[0].stream = 9, "stream 9");
    finds(|it| it.passes[1].streams[0].words[0] = 0b1001, "stream 8");
    finds(|it| it.passes[0].streams[0].words[2] ^= 3, "stream 8");
    finds(|it| it.passes[2].streams.clear(), "stream 8");
    finds(|it| it.passes[0].devices[0].frames[3] += 1, "devices");
    finds(|it| it.passes[0].devices[0].attributes ^= 1 << 7, "devices");
    finds(|it| _ = it.passes[0].devices.pop(), "devices");
    let page = |it: &mut Telemetry| {
        let mut gicv = it.passes[0].stage2[0].clone();
        assert_eq!(gicv.vm, VmId(0));
        gicv.frames.truncate(1);
        it.passes[0].devices.push(gicv);
    };
    finds(page, "devices");
    Ok(())
}

/// The same with tables that give the device too much.
#[test]
fn the_audit_finds_a_device_that_reaches_too_much() {
    let args = InspectArgs {
        config: config("smmu/edu"),
        live: true,
        board: Some(VIRT.to_owned()),
        json: None,
        fault_injection: true,
    };
    let error = format!("{:?}", inspect(&args).expect_err("a planted fault"));
    assert!(error.contains("the devices of `edu`"), "{error}");
}

/// A system in which no VM has a stream does not touch the SMMU, and its machine has none.
#[test]
fn a_system_without_streams_has_no_smmu() -> Result<()> {
    let plain = load(&config("passthrough/virt"), VIRT)?;
    assert_eq!(plain.system.board.smmu, None);
    assert!(!plain.emulation()?.machine.contains("smmu"));
    let edu = edu()?;
    assert_eq!(edu.system.vms[0].streams, Streams(1 << 8));
    assert!(edu.emulation()?.machine.ends_with(",iommu=smmuv3"));
    Ok(())
}

/// Bytes of a disk.
const DISK: usize = 32 << 20;

/// Debian's own drivers copy 8 MiB on a disk, to scattered pages of a colored VM and back.
fn a_disk(device: &str, name: &str) -> Result<()> {
    let scratch = tempfile::tempdir().into_diagnostic()?;
    let disk = scratch.path().join("disk");
    let word = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 7).to_le_bytes();
    let mut contents: Vec<u8> = (0..(8 << 20) / 8).flat_map(word).collect();
    let pattern = contents.clone();
    contents.resize(DISK, 0);
    fs::write(&disk, &contents).into_diagnostic()?;
    let drive = format!("if=none,id=disk,format=raw,file={}", disk.display());
    let mut checked = load(&shipped("devices/virt-pcie"), VIRT)?;
    // Beats of the neighbor: a second.
    checked.system.vms[1].args[2] = 1000;
    let mut linux = Running::start_on(&checked, |file| {
        let machine = machine_of(checked.emulation()?, file, Clock::Counted)?;
        Ok(machine.args(["-drive", &drive, "-device", device]))
    })?;
    linux.open("linux")?;
    let sum = |linux: &mut Running, from: &str| {
        linux.output(
            "linux",
            &format!("dd if={from} bs=64k count=128 2> /dev/null | md5sum"),
        )
    };
    linux.output(
        "linux",
        &format!("dd if=/dev/{name} of=/root/copy bs=64k count=128"),
    );
    let expected = sum(&mut linux, &format!("/dev/{name}"));
    assert_eq!(sum(&mut linux, "/root/copy"), expected);
    let back = format!("dd if=/root/copy of=/dev/{name} bs=64k seek=256 conv=fsync");
    linux.output("linux", &back);
    // The VM restarts while its device works, and its next life finds device and disk as they are.
    let endless =
        format!("(while :; do dd if=/dev/{name} of=/dev/null bs=64k; done) 2> /dev/null &");
    linux.output("linux", &endless);
    linux.type_in("linux", "reboot -f\n")?;
    linux.open("linux")?;
    assert_eq!(sum(&mut linux, &format!("/dev/{name}")), expected);
    linux.await_last_beat("neighbor")?;
    let run = linux.stop()?;
    let now = fs::read(&disk).into_diagnostic()?;
    assert!(
        now[16 << 20..][..pattern.len()] == pattern,
        "what the disk has"
    );
    assert!(!run.outcome.console.contains("was refused"), "{run}");
    let done = run.line("neighbor", "heartbeat: done");
    assert_eq!(number(done, "corrupt"), 0, "{done}");
    Ok(())
}

#[test]
fn debian_uses_a_virtio_disk_in_a_colored_vm() -> Result<()> {
    let device = "virtio-blk-pci,drive=disk,addr=1,iommu_platform=on,disable-legacy=on";
    a_disk(device, "vda")
}

#[test]
#[ignore = "on demand: takes 15 seconds, and the disk of virtio is tested each time"]
fn debian_uses_an_nvme_disk_in_a_colored_vm() -> Result<()> {
    a_disk("nvme,drive=disk,addr=2,serial=1", "nvme0n1")
}

/// The driver of an e1000 interrupts by its line, and has ports besides memory.
#[test]
#[ignore = "on demand: takes 15 seconds, and the disk of virtio is tested each time"]
fn debian_uses_an_e1000_in_a_colored_vm() -> Result<()> {
    let mut checked = load(&shipped("devices/virt-pcie"), VIRT)?;
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            // The other kernel has no driver of it.
            linux.kernel = KernelSource::Debian(Flavor::Rt);
        }
    }
    checked.system.vms[1].args[2] = 1000;
    let network = "user,id=net,guestfwd=tcp:10.0.2.100:7-cmd:cat";
    let mut linux = Running::start_on(&checked, |file| {
        let machine = machine_of(checked.emulation()?, file, Clock::Counted)?;
        Ok(machine.args([
            "-netdev",
            network,
            "-device",
            "e1000,netdev=net,addr=2,romfile=",
        ]))
    })?;
    linux.open("linux")?;
    linux.join("linux", "10.0.2.15");
    linux.ping("linux", "10.0.2.2", "-s 1400");
    linux.output("linux", "head -c 1048576 /dev/urandom > /root/file");
    let echo = "(cat /root/file; sleep 1) | timeout 60 nc 10.0.2.100 7 | head -c 1048576 | md5sum";
    let sum = linux.output("linux", "md5sum < /root/file");
    assert_eq!(linux.output("linux", echo), sum, "by TCP, there and back");
    // The next life finds the device as it is.
    linux.type_in(
        "linux",
        "ping -A 10.0.2.2 > /dev/null & sleep 1; reboot -f\n",
    )?;
    linux.open("linux")?;
    linux.join("linux", "10.0.2.15");
    linux.ping("linux", "10.0.2.2", "-s 1400");
    linux.await_last_beat("neighbor")?;
    let run = linux.stop()?;
    assert!(!run.outcome.console.contains("was refused"), "{run}");
    let done = run.line("neighbor", "heartbeat: done");
    assert_eq!(number(done, "corrupt"), 0, "{done}");
    Ok(())
}
