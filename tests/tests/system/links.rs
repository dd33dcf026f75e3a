//! Links: unmodified kernels reach each other by devices of virtio, with the hypervisor as the wire.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::running::{Running, authorize};
use cloison_config::ImageSource;
use cloison_config::guest_linux::Release;
use cloison_engine::telemetry::End;
use cloison_engine::{cargo, configuration};
use cloison_formats::ids::VmId;
use cloison_formats::link::LinkKind;
use cloison_formats::telemetry::{Totals, VmState};
use cloison_formats::units::{Events, Nanos};
use cloison_tests::{
    Clock, Run, VIRT, VIRT_GICV3, ZCU102, config, load, number, run, with_release,
};
use miette::Result;

/// Takes the console of a link as it is, and keeps it open: otherwise it would echo.
const OPEN_CONSOLE: &str = "(stty raw -echo; touch /tmp/open; exec sleep 9999) < /dev/hvc0 & \
                            while [ ! -e /tmp/open ]; do sleep 0.1; done";

/// Waits until what listens in the left VM has ended. Prints what that has said, and its status.
const HEARD: &str = "until [ -e /tmp/ended ]; do sleep 0.1; done; cat /tmp/talk /tmp/ended";

/// Has the left VM listen for a connection.
#[track_caller]
fn listen(linux: &mut Running, how: &str) {
    let command = format!("sockets listen {how} 2> /tmp/talk; echo $? > /tmp/status");
    let end = "mv /tmp/status /tmp/ended";
    linux.output("left", &format!("rm -f /tmp/ended; ({command}; {end}) &"));
}

/// A file of 1 MiB passes each way on one connection between the VMs.
#[track_caller]
fn talk_by_sockets(linux: &mut Running) {
    for vm in ["left", "right"] {
        // Random numbers take long after a start.
        let make = "head -c 1048576 /bin/busybox > /tmp/said && wc -c < /tmp/said";
        assert_eq!(linux.number(vm, make), 1 << 20);
    }
    listen(linux, "5000 < /tmp/said > /tmp/heard");
    let connect = "until sockets connect 3 5000 < /tmp/said > /tmp/heard; do sleep 0.1; done";
    linux.output("right", connect);
    assert_eq!(linux.output("left", HEARD), "sockets: 3 from 4\n0\n");
    for (vm, peer) in [("left", "right"), ("right", "left")] {
        let said = linux.output(vm, "md5sum < /tmp/said");
        assert_eq!(linux.output(peer, "md5sum < /tmp/heard"), said);
    }
}

/// What the left VM says on its console, and what the right VM types then.
const LOGIN: [(&str, &str); 3] = [
    ("left login: ", "root"),
    ("Password: ", "by the wire"),
    ("# ", "hostname; tty; exit"),
];

/// The right VM logs in at the left one, whose console is a terminal with `getty` and `login`.
#[track_caller]
fn log_in_over_a_console(linux: &mut Running) {
    // By `openssl passwd -1 -salt link "by the wire"`.
    let password = "$1$link$F13gSMnKuu2JYehvKMKHV/";
    let terminal = format!(
        "mkdir -p /etc && echo 'root:{password}:0:0::/root:/bin/sh' > /etc/passwd && \
         echo root:x:0: > /etc/group && (setsid getty -L 115200 hvc0 vt100 &)"
    );
    linux.output("right", "(cat /dev/hvc0 > /tmp/terminal) &");
    linux.output("left", &terminal);
    for (said, typed) in LOGIN {
        let wait = format!("until grep -q '{said}' /tmp/terminal; do sleep 0.1; done");
        linux.output("right", &format!("{wait}; echo '{typed}' > /dev/hvc0"));
    }
    let wait = "until grep -q /dev/hvc0 /tmp/terminal; do sleep 0.1; done; cat /tmp/terminal";
    let said = linux.output("right", wait);
    let lines: Vec<&str> = said.lines().map(str::trim_end).collect();
    assert!(lines.ends_with(&["left", "/dev/hvc0"]), "{said}");
    // The password is not echoed.
    assert!(!said.contains(LOGIN[1].1), "{said}");
}

/// Two drivers that follow no rule, on a link of this kind, and a neighbor.
#[track_caller]
fn drivers_hurt_themselves(kind: LinkKind, board: &str) -> Result<()> {
    let mut checked = load(&config("rings"), board)?;
    checked.system.links[0].kind = kind;
    let run = run(&checked, board, Clock::Counted)?.whole();
    for vm in ["left", "right"] {
        let done = run.line(vm, "rings: done");
        assert_eq!(number(done, "wrong"), 0, "{run}");
        for figure in ["back", "broken"] {
            assert!(number(done, figure) > 500, "{vm}: {done}");
        }
        let warned = format!("VM {vm}: link wire: ");
        assert!(run.outcome.console.contains(&warned), "{run}");
        assert_eq!(run.end_of(vm), End::Off);
    }
    assert_eq!(run.end_of("heart"), End::Off);
    Ok(())
}

#[test]
fn drivers_that_follow_no_rule_hurt_themselves() -> Result<()> {
    drivers_hurt_themselves(LinkKind::Net, VIRT)
}

#[test]
fn drivers_of_sockets_that_follow_no_rule_hurt_themselves() -> Result<()> {
    drivers_hurt_themselves(LinkKind::Vsock, VIRT)
}

/// Either sends to the other: their headers differ in length.
fn a_legacy_driver_and_a_modern_one(board: &str) -> Result<()> {
    for legacy in [0, 1] {
        let mut checked = load(&config("frames"), board)?;
        for vm in &mut checked.system.vms {
            vm.args[3] = u64::from(vm.args[0] == legacy);
        }
        let run = run(&checked, board, Clock::Counted)?.whole();
        assert_eq!(number(run.line("left", "frames: done"), "sent"), 500);
        let sent = run.telemetry.traffic()[&(0, VmId(0))];
        // Those sent before the other driver had started are lost, as on a cable.
        assert_eq!((sent.frames + sent.lost), 500, "{run}");
        assert!(
            sent.frames > 400 && sent.bytes == sent.frames * 1000,
            "{sent:?}"
        );
    }
    Ok(())
}

#[test]
fn a_legacy_driver_and_a_modern_one_reach_each_other() -> Result<()> {
    a_legacy_driver_and_a_modern_one(VIRT)
}

/// Has another VM stop, start and restart both ends of a link by random calls, while one sends
/// without end. Returns how many of their lives have ended.
fn ends_are_stopped(calls: u64, board: &str) -> Result<usize> {
    let mut checked = load(&config("ends"), board)?;
    checked.system.vms[2].args[0] = calls;
    // QEMU's counted clock has all other cores wait for each page that a restart cleans.
    let run = run(&checked, board, Clock::Real)?.whole();
    let done = run.line("manager", "manager: done");
    let counts = ["calls", "wrong"].map(|what| number(done, what));
    assert_eq!(counts, [calls, 0], "{run}");
    let heart = run.line("heart", "heartbeat: done");
    let counts = ["beats", "corrupt"].map(|what| number(heart, what));
    assert_eq!(counts, [100, 0], "{heart}");
    let ends = [VmState::Stopped, VmState::Restarted];
    let of_ends = |(_, vm, state): &(_, VmId, VmState)| vm.0 < 2 && ends.contains(state);
    let ends = run.telemetry.vm_states().filter(of_ends).count();
    // The counts span all lives. A frame of which an end has seen a part alone has its bytes counted.
    let sent = run.telemetry.traffic()[&(0, VmId(0))];
    // How many pass depends on how fast this machine starts the ends again.
    assert!(sent.frames > 0 && sent.lost > 0, "{sent:?}");
    let parts = sent.bytes.checked_sub(sent.frames * 1000);
    assert!(
        parts.is_some_and(|bytes| bytes <= ends as u64 * 1000),
        "{sent:?}"
    );
    Ok(ends)
}

#[test]
fn ends_of_a_link_are_stopped_while_it_carries() -> Result<()> {
    assert!(ends_are_stopped(80, VIRT)? > 20);
    Ok(())
}

#[test]
#[ignore = "on demand: takes a minute"]
fn ends_of_a_link_are_stopped_two_hundred_times() -> Result<()> {
    let ends = ends_are_stopped(1000, VIRT)?;
    println!("{ends} lives ended");
    assert!(ends >= 200);
    Ok(())
}

/// Numbered frames of many lengths pass from the left to the right, until the pages of the left VM
/// have moved so often. Those of the right VM move too: at each end all of the rings, and most of the
/// buffers, to private pages and back. Returns how many frames.
fn pages_move_under_frames(
    kind: LinkKind,
    rounds: u64,
    board: &str,
    clock: Clock,
) -> Result<(u64, [u64; 2])> {
    let mut checked = load(&config("moving"), board)?;
    checked.system.links[0].kind = kind;
    let packets = if kind == LinkKind::Vsock { 4 } else { 0 };
    for vm in &mut checked.system.vms {
        vm.args[3] = rounds << 32 | 2 | packets;
    }
    let run = run(&checked, board, clock)?.whole();
    let sent = run.line("left", "frames: done sent=");
    let taken = run.line("right", "frames: done taken=");
    let frames = number(sent, "sent");
    // Each arrived once, whole and in its turn, and the count of the log is the same.
    let counts = ["taken", "wrong", "missing"].map(|what| number(taken, what));
    assert_eq!(counts, [frames, 0, 0], "{run}");
    let logged = run.telemetry.traffic()[&(0, VmId(0))];
    assert_eq!((logged.frames, logged.lost), (frames, 0), "{run}");
    let moves = [sent, taken].map(|line| {
        assert_eq!(number(line, "failed"), 0, "{run}");
        number(line, "rounds")
    });
    assert!(moves[0] >= rounds, "{run}");
    for vm in ["left", "right"] {
        assert_eq!(run.end_of(vm), End::Off);
    }
    Ok((frames, moves))
}

#[test]
fn pages_of_rings_and_buffers_move_while_a_link_carries() -> Result<()> {
    for kind in [LinkKind::Net, LinkKind::Vsock] {
        let (frames, moves) = pages_move_under_frames(kind, 200, VIRT, Clock::Counted)?;
        println!("{frames} frames, {moves:?} moves");
        assert!(moves[1] >= 200 && frames >= 400, "{frames} {moves:?}");
    }
    Ok(())
}

/// Boots a sender whose budget is so many instructions per millisecond, and a receiver, with these
/// arguments. The receiver is never held, and nothing is lost. Returns the run and the sender's totals.
fn held(
    board: &str,
    budget: u64,
    [sends, takes]: [[u64; 4]; 2],
    ends_with: Option<VmId>,
) -> Result<(Run, Totals)> {
    let mut checked = load(&config("held"), board)?;
    let vms = &mut checked.system.vms;
    vms[0].quotas[0].budget = Events(budget);
    (vms[0].args, vms[1].args) = (sends, takes);
    checked.system.ends_with = ends_with;
    let run = run(&checked, board, Clock::Counted)?.whole();
    let of = |vm: u8| {
        let mut totals = run.telemetry.quota_totals().map(|(_, total)| total);
        *totals.find(|total| total.vm.0 == vm).expect("its totals")
    };
    let (sender, receiver) = (of(0), of(1));
    assert_eq!(receiver.throttled, Nanos(0), "{run}");
    assert_eq!(run.telemetry.traffic()[&(0, VmId(0))].lost, 0, "{run}");
    Ok((run, sender.totals))
}

/// The least budget is less than a frame costs.
#[test]
fn a_senders_budget_bounds_what_passes_and_loses_nothing() -> Result<()> {
    const FRAMES: u64 = 100;
    let mut all = vec![];
    for budget in [2_000, 20_000, 40_000, 80_000] {
        let args = [[1, 1504, FRAMES, 2], [0, 1504, 0, 2]];
        let (run, totals) = held(VIRT, budget, args, None)?;
        let taken = run.line("right", "frames: done taken=");
        let counts = ["taken", "wrong", "missing"].map(|what| number(taken, what));
        assert_eq!(counts, [FRAMES, 0, 0], "{run}");
        // A neighbor is not held with the sender.
        let heart = run.line("heart", "heartbeat: done");
        let counts = ["beats", "corrupt", "late"].map(|what| number(heart, what));
        assert_eq!(counts, [40, 0, 0], "{run}");
        // Each period was spent, and the sender waited for the next.
        assert_eq!(totals.spent_periods, totals.periods, "{totals:?}");
        // While the sender is held, the receiver gives buffers back, for which waiting frames are
        // copied later. It pays for its calls alone, which are charged when they are as much as a page's
        // work: each frame costs the sender as much.
        let paid = number(taken, "paid");
        assert!((100..4_500).contains(&paid), "{taken}");
        assert!(totals.events.0 > FRAMES * 2_000, "{totals:?}");
        println!("{budget}: {FRAMES} frames in {} periods", totals.periods);
        all.push((budget, totals.events.0));
    }
    // The same frames cost as much in few large budgets as in many small ones. The last period, which
    // is not over, is not in the totals.
    let least = all[0].1;
    for (budget, events) in &all {
        let range = events * 10..(events + budget) * 10;
        let near = least * 9..least * 11;
        let is_near = range.start < near.end && near.start < range.end;
        assert!(is_near, "{all:?}");
    }
    Ok(())
}

/// By what the configuration of the board says that a page's 128 lines cost.
#[test]
fn each_byte_that_is_copied_costs_the_sender() -> Result<()> {
    const FRAMES: u64 = 80;
    let costs = [64, 4000].map(|bytes| {
        let args = [[4, bytes, FRAMES / 2, 1 << 32], [0, bytes, 0, 0]];
        held(VIRT, 3_000, args, Some(VmId(0))).map(|(_, totals)| totals.events.0)
    });
    let [small, large] = costs;
    let (small, large) = (small?, large?);
    // Each line is read and written: 63 of a frame and its header, or two.
    let lines = 2 * (63 - 2);
    let expected = FRAMES * lines * 2000 / 128;
    let difference = large - small;
    println!("{small} and {large} events, {expected} more expected");
    // To a period, and what the sender executes in each more.
    let off = difference.abs_diff(expected);
    assert!(off <= expected / 10, "{small}, {large}");
    Ok(())
}

#[test]
fn links_carry_on_zcu102() -> Result<()> {
    let (frames, moves) = pages_move_under_frames(LinkKind::Net, 20, ZCU102, Clock::Counted)?;
    println!("{frames} frames, {moves:?} moves");
    let args = [[1, 1504, 100, 2], [0, 1504, 0, 2]];
    let (run, totals) = held(ZCU102, 40_000, args, None)?;
    let taken = run.line("right", "frames: done taken=");
    let counts = ["taken", "wrong", "missing"].map(|what| number(taken, what));
    assert_eq!(counts, [100, 0, 0], "{run}");
    assert!(totals.spent_periods > 3, "{totals:?}");
    Ok(())
}

#[test]
#[ignore = "on demand: another board's do it each time"]
fn links_hold_on_zcu102_against_drivers_that_follow_no_rule() -> Result<()> {
    for kind in [LinkKind::Net, LinkKind::Vsock] {
        drivers_hurt_themselves(kind, ZCU102)?;
    }
    a_legacy_driver_and_a_modern_one(ZCU102)?;
    assert!(ends_are_stopped(80, ZCU102)? > 20);
    Ok(())
}

#[test]
#[ignore = "on demand: takes minutes"]
fn pages_of_rings_and_buffers_move_thousands_of_times() -> Result<()> {
    // Where the cores really run in parallel, a move takes long.
    for (clock, rounds) in [(Clock::Real, 200), (Clock::Counted, 1000)] {
        for kind in [LinkKind::Net, LinkKind::Vsock] {
            let (frames, moves) = pages_move_under_frames(kind, rounds, VIRT, clock)?;
            println!("{clock:?}: {frames} frames, {moves:?} moves");
            assert!(moves[1] >= rounds / 2, "{moves:?}");
        }
    }
    Ok(())
}

/// Debian 12 on the left, 13 on the right.
fn two_kernels_reach_each_other(board: &str) -> Result<()> {
    let mut checked = load(&config("links"), board)?;
    for (image, release) in checked.images.iter_mut().zip(Release::ALL) {
        if let ImageSource::Linux(linux) = image {
            linux.release = release;
            linux.programs.push(cargo::linux_tool("sockets")?);
        }
    }
    let mut linux = Running::start(&checked, board, Clock::Counted)?;
    for vm in ["left", "right"] {
        linux.open(vm)?;
    }
    for (vm, number) in [("left", 0), ("right", 1)] {
        let mac = linux.output(vm, "cat /sys/class/net/eth0/address");
        assert_eq!(mac.trim_end(), format!("02:63:6c:00:00:0{number}"));
        linux.set_address(vm, &format!("10.0.0.{}", number + 1));
        assert_eq!(linux.number(vm, "cat /sys/class/net/eth0/carrier"), 1);
    }
    linux.ping("left", "10.0.0.2", "");
    linux.ping("right", "10.0.0.1", "-s 1472");
    // Hundreds of frames in one direction, acknowledgments in the other.
    let make = "mkdir /www && dd if=/dev/urandom of=/www/file bs=64k count=8 && httpd -h /www";
    linux.output("right", make);
    let sent = linux.output("right", "md5sum < /www/file");
    let received = linux.output("left", "wget -q -O - http://10.0.0.2/file | md5sum");
    assert_eq!(sent, received);
    // A server's frames: the sender's count is the receiver's.
    let table = |linux: &mut Running, vm| linux.output(vm, "cloisonctl link");
    let row = |table: &str, direction: &str| -> Vec<u64> {
        let line = table.lines().find(|line| {
            line.contains(" net ") && line.contains(" up ") && line.contains(direction)
        });
        let (_, counts) = line
            .and_then(|line| line.split_once(direction))
            .expect("a row");
        counts
            .split_whitespace()
            .map(|word| word.parse().expect("a number"))
            .collect()
    };
    let (left, right) = (table(&mut linux, "left"), table(&mut linux, "right"));
    let (from, to) = (row(&left, "from VM 1"), row(&right, "to VM 0"));
    assert_eq!(from, to, "{left}{right}");
    assert!(from[0] > 300 && from[1] > 512 << 10, "{left}");
    // The console: both ways.
    for vm in ["left", "right"] {
        linux.output(vm, OPEN_CONSOLE);
    }
    for (vm, peer) in [("left", "right"), ("right", "left")] {
        linux.output(vm, &format!("echo 'from {vm}' > /dev/hvc0"));
        let line = linux.output(peer, "head -n 1 < /dev/hvc0");
        assert_eq!(line.trim_end(), format!("from {vm}"));
    }
    log_in_over_a_console(&mut linux);
    // The channel: memory, with the driver that the kernels have, and doorbells.
    for vm in ["left", "right"] {
        let list = linux.output(vm, "cloisonctl channel");
        assert!(list.contains("0x60000000 2048 KiB read, write"), "{list}");
    }
    linux.output(
        "left",
        "dd if=/dev/urandom of=/root/said bs=4k count=16 2> /dev/null && \
         dd if=/root/said of=/dev/pmem0 bs=4k oflag=direct 2> /dev/null && \
         cloisonctl channel call 1 3",
    );
    let bits = linux.output("right", "cloisonctl channel take --wait 5");
    assert!(bits.lines().any(|line| line == "bit 3"), "{bits}");
    let said = linux.output("left", "md5sum < /root/said");
    let heard = "dd if=/dev/pmem0 bs=4k count=16 iflag=direct 2> /dev/null | md5sum";
    assert_eq!(linux.output("right", heard), said);
    talk_by_sockets(&mut linux);
    // One side ends in the middle and starts again.
    let downs = "cat /sys/class/net/eth0/carrier_down_count";
    let before = linux.number("left", downs);
    linux.type_in("left", "ping 10.0.0.2 > /dev/null &\n")?;
    listen(&mut linux, "7 < /dev/null");
    linux.output("right", "(sleep 9999 | sockets connect 3 7) & sleep 0.2");
    linux.type_in("right", "reboot -f\n")?;
    linux.open("right")?;
    linux.set_address("right", "10.0.0.2");
    // The connection that waited has ended, and new ones begin.
    let ended = linux.output("left", HEARD);
    let is_reset = ended.contains("reset by peer") && ended.ends_with("\n1\n");
    assert!(is_reset, "{ended}");
    talk_by_sockets(&mut linux);
    linux.ping("right", "10.0.0.1", "");
    assert_eq!(linux.number("left", downs), before + 1, "the link was down");
    let run = linux.stop()?;
    assert!(!run.outcome.console.contains("needs a reset"), "{run}");
    let logged = run.telemetry.traffic();
    let [wire, line] = [0, 1].map(|link| logged[&(link, VmId(1))]);
    assert!(wire.frames > from[0] && wire.bytes > from[1], "{wire:?}");
    let typed = "from right\n".len()
        + LOGIN
            .map(|(_, typed)| typed.len() + 1)
            .iter()
            .sum::<usize>();
    assert_eq!(line.bytes, typed as u64, "{line:?}");
    Ok(())
}

#[test]
fn two_debian_kernels_reach_each_other() -> Result<()> {
    two_kernels_reach_each_other(VIRT)
}

#[test]
#[ignore = "on demand: another board's do it each time"]
fn two_debian_kernels_reach_each_other_with_a_gicv3() -> Result<()> {
    two_kernels_reach_each_other(VIRT_GICV3)
}

#[test]
#[ignore = "on demand: another board's do it each time"]
fn two_debian_kernels_reach_each_other_on_zcu102() -> Result<()> {
    two_kernels_reach_each_other(ZCU102)
}

/// The programs that people use: a throughput test, a shell on the other VM, and sockets.
#[test]
#[ignore = "downloads iperf3, dropbear and socat, and takes minutes"]
fn debian_programs_use_a_link() -> Result<()> {
    Release::ALL.into_iter().try_for_each(programs_use_a_link)
}

/// Both VMs are of this release.
fn programs_use_a_link(release: Release) -> Result<()> {
    let mut checked = with_release(load(&config("links"), VIRT)?, release);
    for image in &mut checked.images {
        if let ImageSource::Linux(linux) = image {
            linux.packages = ["iperf3", "dropbear-bin", "socat"]
                .map(str::to_owned)
                .to_vec();
        }
    }
    let mut linux = Running::start(&checked, VIRT, Clock::Counted)?;
    for (vm, last) in [("left", 1), ("right", 2)] {
        linux.open(vm)?;
        linux.set_address(vm, &format!("10.0.0.{last}"));
        linux.output(vm, "ip link set lo up");
    }
    linux.output("right", "iperf3 -s -D -1");
    let said = linux.output("left", "iperf3 -c 10.0.0.2 -n 4M -f m");
    let received = said.lines().find(|line| line.ends_with("receiver"));
    println!("{said}");
    assert!(
        received.is_some_and(|line| !line.contains(" 0.00 ")),
        "{said}"
    );
    let key = linux.output(
        "left",
        "dropbearkey -t ed25519 -f /root/key 2>&1 | grep '^ssh-ed25519'",
    );
    let serve = format!("{} && dropbear -R", authorize(&key));
    linux.output("right", &serve);
    let shell = "timeout 20 dbclient -y -y -i /root/key root@10.0.0.2 hostname 2> /dev/null";
    assert_eq!(linux.output("left", shell).trim_end(), "right");
    linux.output("left", "(socat -u VSOCK-LISTEN:9 CREATE:/tmp/heard) &");
    let said = "until echo hello | socat -u - VSOCK-CONNECT:3:9; do sleep 0.1; done";
    linux.output("right", said);
    let heard = linux.output(
        "left",
        "until [ -s /tmp/heard ]; do sleep 0.1; done; cat /tmp/heard",
    );
    assert_eq!(heard.trim_end(), "hello");
    linux.stop()?;
    Ok(())
}

/// NuttX and a Debian kernel, both where QEMU's `virt` has what they expect.
const WITH_NUTTX: &str = "
name = 'nuttx'
hypervisor = { colors = '15' }
pool = [{ name = 'shared', kind = 'SH', colors = '0-14' }]

[[link]]
name = 'wire'
kind = 'net'
end = [
    { vm = 'nuttx', ipa = 0x0a00_0000, interrupt = 48 },
    { vm = 'linux', ipa = 0x0a00_0000, interrupt = 48 },
]

[[vm]]
name = 'nuttx'
cores = [0]
map = 'qemu-virt'
image = { file = 'nuttx', device_tree = true, device_tree_at = 0x4000_0000 }
region = [{ name = 'ram', ipa = 0x4000_0000, size = '128M', pool = 'shared' }]

[[vm]]
name = 'linux'
cores = [1]
image = { linux = 'cloud' }
region = [{ name = 'ram', ipa = 0x4000_0000, size = '160M', pool = 'shared' }]
";

/// Returns what NuttX's shell prints after a command, which it repeats first.
fn nsh(linux: &mut Running, command: &str) -> Result<String> {
    linux.type_in("nuttx", &format!("{command}\n"))?;
    linux.expect("nuttx", command)?;
    let said = linux.expect("nuttx", "nsh> ")?;
    println!("{command}{said}");
    Ok(said)
}

/// NuttX's own board configuration `qemu-armv8a:netnsh`, as docs/results/linux.md builds it.
#[test]
#[ignore = "needs NuttX: CLOISON_NUTTX names its ELF file"]
fn nuttx_reaches_a_debian_kernel() -> Result<()> {
    let nuttx = std::env::var_os("CLOISON_NUTTX").expect("CLOISON_NUTTX names NuttX's ELF file");
    let scratch = tempfile::tempdir().expect("a directory");
    std::fs::copy(nuttx, scratch.path().join("nuttx")).expect("NuttX's ELF file");
    let file = scratch.path().join("system.toml");
    std::fs::write(&file, WITH_NUTTX).expect("it is written");
    // The configuration wants a GICv3.
    let checked = configuration::load(&file, Some(VIRT_GICV3))?;
    let mut linux = Running::start(&checked, VIRT_GICV3, Clock::Counted)?;
    linux.open("linux")?;
    linux.set_address("linux", "10.0.2.2");
    linux.ping("linux", "10.0.2.15", "");
    let said = nsh(&mut linux, "ping -c 3 -s 1000 10.0.2.2")?;
    let all = "3 packets transmitted, 3 received, 0% packet loss";
    assert!(said.contains(all), "{said}");
    // A file by TCP, to a RAM disk.
    let make = "mkdir /www && head -c 200000 /bin/busybox > /www/file && httpd -h /www";
    linux.output("linux", make);
    let sum = linux.output("linux", "md5sum < /www/file");
    for command in [
        "mkrd -m 1 -s 512 2048",
        "mkfatfs /dev/ram1",
        "mount -t vfat /dev/ram1 /mnt",
        "cd /mnt",
        "wget http://10.0.2.2/file",
    ] {
        nsh(&mut linux, command)?;
    }
    let said = nsh(&mut linux, "md5 -f /mnt/file")?;
    assert!(said.contains(&sum[..32]), "{said} is not {sum}");
    let said = nsh(&mut linux, "ostest")?;
    assert!(said.contains("ostest_main: Exiting with status 0"));
    let run = linux.stop()?;
    assert!(!run.outcome.console.contains("needs a reset"), "{run}");
    let sent = run.telemetry.traffic()[&(0, VmId(1))];
    assert!(sent.frames > 140 && sent.lost == 0, "{sent:?}");
    Ok(())
}
