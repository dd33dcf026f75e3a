//! The instructions beside an image: what a board needs, how to boot it, what follows, what can fail.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison_config::BoardFile;
use cloison_config::boot_files::GENERATED;
use cloison_formats::image::{Board, System, Uart, UartKind};
use std::fmt::Write;

/// What is seen if something is wrong, and what it means. The hypervisor's messages are those of
/// `hypervisor/src/start`.
const FAILURES: [(&str, &str); 12] = [
    (
        "nothing at all on the console",
        "the wrong port of the cable, another baud rate, no power, or boot switches for another device",
    ),
    (
        "`BootROM` or FSBL messages, then nothing",
        "the boot loader's files are damaged or for another board",
    ),
    (
        "another system starts",
        "remove its boot.scr, extlinux folder or EFI loader from the card, or its PXE configuration from the server",
    ),
    (
        "`TFTP error: 'File not found'`, or `T T T T`",
        "this folder is not the server's top directory, or a firewall drops UDP port 69",
    ),
    (
        "`Bad Linux ARM64 Image magic!`",
        "`Image` is damaged or another file, or was loaded to another address than the one given to `booti`",
    ),
    (
        "nothing after `Starting kernel ...`",
        "U-Boot is not at EL2 (its banner must say so), or the image is for another board",
    ),
    (
        "`no system image after the hypervisor`",
        "`Image` was truncated",
    ),
    (
        "`... is damaged: CRC ...`, `... is truncated ...`",
        "the copy of `Image` is damaged: copy it again",
    ),
    (
        "`board ... promises a last-level cache of ...`",
        "the board file does not describe this board: colors would be wrong",
    ),
    (
        "`core 1 does not start: PSCI CPU_ON says ...`",
        "the firmware rejects the call; -2 and -9 mean invalid arguments",
    ),
    (
        "`the firmware left CPUECTLR_EL1.SMPEN ... clear`",
        "the firmware is not one for this CPU: caches would not be coherent",
    ),
    (
        "a register dump",
        "a fault in the hypervisor: please report it, with `Image` and the folder of the capture",
    ),
];

/// The same, of the hello image. Its messages are those of `guest-tools/hello`.
const HELLO_FAILURES: [(&str, &str); 4] = [
    (
        "`cloison hello: started at EL1` or `at EL3`",
        "U-Boot is not at EL2 (its banner must say so): the firmware has to enter it there",
    ),
    (
        "`cloison hello: stopped: ...`",
        "the copy of `Image` is damaged: copy it again; with `exception`, please report the line",
    ),
    (
        "a line with `wrong`",
        "the board file does not describe this board: `cloison board compare` says what to write",
    ),
    (
        "no line with `end`",
        "an access hangs: the last line says after which check; please report it",
    ),
];

/// Returns the instructions for an image of this system, of `length` bytes, on a board.
pub fn readme(system: &System, length: u64, file: &BoardFile) -> String {
    let title = format!("Cloison system image \"{}\"", system.name);
    let image = "hypervisor, configuration and guests (arm64 Image format)";
    let mut text = before_boot(&title, image, file);
    text.push_str(&boot(&system.board, length, length));
    text.push_str(&capture(system, file));
    line(&mut text, "\n6. IF NOT\n");
    for (seen, meaning) in FAILURES {
        line(&mut text, &format!("  {seen}\n      {meaning}"));
    }
    text
}

/// Returns the instructions for the hello image of a board, of `length` bytes.
pub fn hello_readme(length: u64, file: &BoardFile) -> String {
    let image = "the hello image: compares this board with its board file (arm64 Image format)";
    let mut text = before_boot("Cloison hello image", image, file);
    // Its block, and the buffer of its benchmarks.
    text.push_str(&boot(&file.board, length, 6 << 20));
    line(
        &mut text,
        &format!(
            "
4. LISTEN

  console    {}, 115200 baud, 8 data bits, no parity, 1 stop bit

Before the board is switched on:

  cloison capture --hello --console /dev/ttyUSB0 --telemetry /dev/ttyUSB1 -o DIR

It shows the console, says if the two ports are exchanged, ends after the image's last line, and keeps DIR/hello.log.
Any terminal program's log will do, too. Without a second UART, leave --telemetry out.

5. WHAT YOU SHOULD SEE

U-Boot's banner, then `Cloison: loading Image`, `Starting kernel ...`, and lines such as

  hello 6 cache.ways expected=16 found=16 right (CCSIDR_EL1 of level 2) #e469e7d9

The last one has `end`; then the board turns itself off. The second UART sends one line with `cloison hello`. Then

  cloison board compare DIR/hello.log -o {}-new.toml

names each field of the board file that is wrong, and writes the file with the right values. If the board file is not a
shipped one, add --board FILE.toml.

6. IF NOT
",
            named(&file.board.console),
            file.board.name
        ),
    );
    let shared = FAILURES.iter().filter(|(seen, _)| !is_of_hypervisor(seen));
    for (seen, meaning) in HELLO_FAILURES.iter().chain(shared) {
        line(&mut text, &format!("  {seen}\n      {meaning}"));
    }
    text
}

/// Returns whether only the hypervisor prints a text of [`FAILURES`].
fn is_of_hypervisor(seen: &str) -> bool {
    FAILURES[6..].iter().any(|(own, _)| *own == seen)
}

/// Returns the instructions up to those for booting: what the folder has, and what else is needed.
fn before_boot(title: &str, image: &str, file: &BoardFile) -> String {
    let mut text = format!(
        "{title} for board {}: {}\n\n1. FILES\n\n",
        file.board.name, file.description
    );
    let purposes = [
        image,
        "U-Boot's boot script as text",
        "the same in U-Boot's format, for a card",
        "the same, under the name that U-Boot asks a TFTP server for",
        "this file",
    ];
    let own = file.boot_files.iter();
    let all = GENERATED
        .into_iter()
        .zip(purposes)
        .chain(own.map(|file| (file.name.as_str(), file.purpose.as_str())));
    for (name, purpose) in all {
        line(&mut text, &format!("  {name:<15}{purpose}"));
    }
    line(&mut text, "\n2. WHAT ELSE THE BOARD NEEDS\n");
    let card = file.card.trim();
    line(
        &mut text,
        if card.is_empty() {
            "The board file says nothing of it."
        } else {
            card
        },
    );
    text
}

/// Adds a line.
fn line(text: &mut String, line: &str) {
    // Writing to a text cannot fail.
    let _ = writeln!(text, "{line}");
}

/// Returns how an image of `length` bytes is booted, which with what follows it needs `room` bytes.
fn boot(board: &Board, length: u64, room: u64) -> String {
    let ram = board.ram.first().map_or(0, |range| range.start.0);
    let need = room.next_multiple_of(0x20_0000);
    format!(
        "
3. BOOT

From a card: copy all files to its first partition (FAT). U-Boot finds boot.scr by itself.

From the network, without a card or beside it: make this folder the top directory of a TFTP server. U-Boot finds
boot.scr.uimg by itself if its boot order has the network and its variable boot_script_dhcp names the file, as it did
in 2023.01; else, once, `setenv boot_script_dhcp boot.scr.uimg; saveenv`. By hand, at its prompt:

  setenv autoload no; dhcp
  setenv serverip SERVER; tftpboot ${{kernel_addr_r}} Image
  booti ${{kernel_addr_r}} - ${{fdtcontroladdr}}

By hand from a card:

  load mmc 0:1 ${{kernel_addr_r}} Image
  booti ${{kernel_addr_r}} - ${{fdtcontroladdr}}

Load address: any multiple of 0x200000 in RAM (RAM starts at {ram:#x}); U-Boot's own kernel_addr_r is one. The image
({length} bytes) and what follows it need {need:#x} bytes there. U-Boot must run at EL2: its banner says so.
Card and network were tried with Debian's U-Boot 2023.01 and 2025.01 on QEMU's virt, on no board.
"
    )
}

/// Returns how the board's output is captured, and what should be seen.
fn capture(system: &System, file: &BoardFile) -> String {
    let board = &system.board;
    let mut text = "\n4. LISTEN\n\n".to_owned();
    let ports = [
        ("console", Some(&board.console)),
        ("telemetry", board.telemetry.as_ref()),
    ];
    let is_mixed = board.is_mixed();
    for (what, uart) in ports {
        let words = uart.map_or_else(
            || "none: a run has no tables".to_owned(),
            |uart| {
                format!(
                    "{}, 115200 baud, 8 data bits, no parity, 1 stop bit",
                    named(uart)
                )
            },
        );
        line(&mut text, &format!("  {what:<11}{words}"));
    }
    if is_mixed {
        line(
            &mut text,
            "\nThe telemetry goes between the lines of the console: `cloison capture` takes it out, another program shows it.",
        );
    }
    let telemetry = if board.telemetry.is_some() && !is_mixed {
        " --telemetry /dev/ttyUSB1"
    } else {
        ""
    };
    line(
        &mut text,
        &format!(
            "
Before the board is switched on, with the configuration of this image:

  cloison capture CONFIG --board {} --console /dev/ttyUSB0{telemetry}

It shows the console, says if the two ports are exchanged, and leaves what `cloison run` leaves. Where `cloison
image` needed --allow-untrusted or --machine, it needs them too.

5. WHAT YOU SHOULD SEE

U-Boot's banner, then `Cloison: loading Image`, `Starting kernel ...`, and

  [core 0] Cloison {} on {}: {}, {} colors, own colors {}, {} VMs

then lines of the VMs, each with its name, and at the end `all VMs are off; turning the machine off`. How long that
takes on a board has not been measured.",
            board.name,
            env!("CARGO_PKG_VERSION"),
            board.name,
            system.name,
            file.colors,
            system.hypervisor_colors,
            system.vms.len(),
        ),
    );
    text
}

/// Returns a UART in words.
fn named(uart: &Uart) -> String {
    let kind = match uart.kind {
        UartKind::Pl011 => "PL011",
        UartKind::Cadence => "Cadence UART",
        UartKind::Mini => "mini UART",
    };
    format!("{kind} at {}, interrupt {}", uart.base, uart.irq.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloison_engine::configuration;
    use std::path::Path;

    #[test]
    fn the_hello_image_has_the_failures_that_it_can_have() {
        let board = configuration::board("zcu102").expect("it is shipped");
        let text = hello_readme(1_000_000, &board);
        for seen in [
            "nothing at all on the console",
            "TFTP error",
            "started at EL1",
        ] {
            assert!(text.contains(seen), "{seen}: {text}");
        }
        for other in ["promises a last-level cache", "CPU_ON says", "VMs are off"] {
            assert!(!text.contains(other), "{other}: {text}");
        }
    }

    #[test]
    fn the_instructions_name_each_file_both_lines_and_the_banner() {
        for board in configuration::boards() {
            let kit = Path::new("configs/kit/kit.toml");
            let checked = configuration::load(kit, Some(&board)).expect("it is valid");
            let text = readme(&checked.system, 1_000_000, &checked.board);
            let own = checked.board.boot_files.iter();
            for name in GENERATED
                .into_iter()
                .chain(own.map(|file| file.name.as_str()))
            {
                assert!(text.contains(&format!("\n  {name} ")), "{name}\n{text}");
            }
            let uarts = [
                Some(checked.system.board.console),
                checked.system.board.telemetry,
            ];
            for uart in uarts.into_iter().flatten() {
                assert!(text.contains(&named(&uart)), "{text}");
            }
            let banner = format!(" on {board}: kit, 16 colors, own colors ");
            assert!(text.contains(&banner), "{text}");
            let hello = hello_readme(1_000_000, &checked.board);
            assert!(
                hello.contains(&named(&checked.board.board.console)),
                "{hello}"
            );
            // A terminal at the board is 120 columns wide.
            for line in text.lines().chain(hello.lines()) {
                assert!(line.len() <= 120, "{line}");
            }
        }
    }
}
