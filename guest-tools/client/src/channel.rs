//! `cloisonctl channel` and `cloisonctl link`: how this VM talks to others.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::failure::Failure;
use crate::table::print_table;
use clap::{Args, Subcommand};
use cloison_abi::virtio::FIRST_CID;
use cloison_abi::{CallError, doorbell};
use cloison_client::{Direction, Error, Services};
use std::time::{Duration, Instant};

/// How often to look at the doorbell.
const LOOK: Duration = Duration::from_millis(1);
/// Size of a page in KiB.
const PAGE_KIB: u32 = 4;

/// `cloisonctl channel`.
#[derive(Debug, Args)]
pub struct Channel {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the channels: address, size, rights and VMs, with the life of each; an odd life runs
    /// (the default)
    List,
    /// Set a bit of the doorbell of a VM of a channel
    Call {
        /// The VM's number
        vm: u64,
        /// The bit
        #[arg(value_parser = clap::value_parser!(u64).range(..doorbell::BITS))]
        bit: u64,
    },
    /// Take the bits that others have set in this VM's doorbell, and print them: `bit 3` for a
    /// call, `vm 1` for a VM that has started or ended
    Take {
        /// Wait until there is one, at most this long
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u64,
    },
}

/// Runs `cloisonctl channel`.
pub fn channel(services: &mut Services, wanted: &Channel) -> Result<(), Failure> {
    match wanted.action {
        None | Some(Action::List) => list(services),
        Some(Action::Call { vm, bit }) => services.ring(vm, bit).map_err(|error| called(error, vm)),
        Some(Action::Take { wait }) => take(services, Duration::from_secs(wait)),
    }
}

/// Adds to a refused call what would let it pass.
fn called(error: Error, vm: u64) -> Failure {
    match error {
        Error::Refused {
            error: CallError::Denied | CallError::Absent,
            ..
        } => Failure::new(
            format!("this VM has no channel with VM {vm}"),
            "`cloisonctl channel` lists the VMs of each channel; [[channel.member]] adds one",
        ),
        error => error.into(),
    }
}

fn list(services: &mut Services) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (index, channel) in services.channels()?.into_iter().enumerate() {
        let rights = match (channel.is_readable(), channel.is_writable()) {
            (_, true) => "read, write",
            (true, false) => "read",
            (false, false) => "none",
        };
        let address = if channel.is_readable() {
            format!("{:#x}", channel.ipa)
        } else {
            "-".to_owned()
        };
        let own = services.identify().vm;
        let mut vms = Vec::new();
        for vm in (0..u64::from(u8::BITS)).filter(|&vm| channel.has(vm)) {
            vms.push(if vm == own {
                format!("{vm} (this one)")
            } else {
                format!("{vm} (life {})", services.peer_life(vm)?)
            });
        }
        rows.push(format!(
            "{index:>7} {address:>12} {:>8} {rights:<11} {}",
            format!("{} KiB", channel.pages * PAGE_KIB),
            vms.join(", ")
        ));
    }
    let header = format!(
        "{:>7} {:>12} {:>8} {:<11} VMs",
        "channel", "address", "size", "rights"
    );
    print_table(&header, &rows, "this VM has no channel");
    Ok(())
}

/// Takes all bits that wait, and waits for the first ones.
fn take(services: &mut Services, wait: Duration) -> Result<(), Failure> {
    let until = Instant::now() + wait;
    while services.waiting() == 0 && Instant::now() < until {
        std::thread::sleep(LOOK);
    }
    let bits = services.take_bits(doorbell::ALL)?;
    for bit in (0..u64::from(u64::BITS)).filter(|bit| bits >> bit & 1 == 1) {
        match bit.checked_sub(doorbell::PEERS.into()) {
            Some(vm) => println!("vm {vm}"),
            None => println!("bit {bit}"),
        }
    }
    Ok(())
}

/// Runs `cloisonctl link`.
pub fn links(services: &mut Services) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (index, link) in (0..).zip(services.links()?) {
        // The fields of `Link::flags`.
        let [kind, peer, drivers, _] = link.flags.to_le_bytes();
        let state = match drivers {
            0b11 => "up",
            0b01 => "no peer",
            _ => "no driver",
        };
        let kind = match kind {
            1 => "net",
            3 => "console",
            19 => "vsock",
            _ => "other",
        };
        // The peer's address for sockets.
        let cid = match kind {
            "vsock" => format!(", CID {}", FIRST_CID + u64::from(peer)),
            _ => String::new(),
        };
        for (direction, word) in [(Direction::Out, "to"), (Direction::In, "from")] {
            let traffic = services.traffic(index, direction)?;
            rows.push(format!(
                "{index:>4} {kind:<8} {:>#12x} {state:<9} {:<16} {:>12} {:>16} {:>8}",
                link.ipa,
                format!("{word} VM {peer}{cid}"),
                traffic.frames,
                traffic.bytes,
                traffic.lost
            ));
        }
    }
    let header = format!(
        "{:>4} {:<8} {:>12} {:<9} {:<16} {:>12} {:>16} {:>8}",
        "link", "kind", "address", "state", "", "frames", "bytes", "lost"
    );
    print_table(&header, &rows, "this VM has no link");
    Ok(())
}
