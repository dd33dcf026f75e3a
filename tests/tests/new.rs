//! `cloison new`: its projects build, boot and print the expected lines; the C header agrees with
//! the Rust definitions.
// SPDX-License-Identifier: MIT OR Apache-2.0

use cloison::new::header::{self, Value};
use cloison_abi::{Call, CallError, irq, map, page, psci, services};
use cloison_engine::setup::LINKER;
use cloison_engine::{image, installation};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs `cloison` in the checkout.
fn cloison(args: &[&str]) -> Output {
    let mut command = Command::new(cloison_tests::program());
    command
        .args(args)
        .current_dir(installation::root())
        .stdin(Stdio::null());
    command.output().expect("it starts")
}

/// Creates a guest, then builds and boots it with one command. Returns its console.
fn console(language: &str, name: &str, command: &[&str]) -> String {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    // A shell, make and cargo all see this path.
    let project = scratch.path().join("my guests").join(name);
    let path = project.display().to_string();
    let made = cloison(&["new", "guest", &path, language]);
    let text = |output: &Output| {
        [&output.stdout, &output.stderr]
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .concat()
    };
    assert!(
        made.status.success() && text(&made).contains(command[0]),
        "{}",
        text(&made)
    );
    let mut run = Command::new(command[0]);
    run.args(&command[1..])
        .current_dir(&project)
        .stdin(Stdio::null());
    // What cargo sets for the tests is not set for a user.
    for variable in [
        "CARGO_MANIFEST_DIR",
        "CARGO_TARGET_DIR",
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
    ] {
        run.env_remove(variable);
    }
    let output = run.output().expect("it starts");
    assert!(output.status.success(), "{}", text(&output));
    // The name is taken now.
    let again = cloison(&["new", "guest", &path, language]);
    assert!(
        !again.status.success() && text(&again).contains("exists already"),
        "{}",
        text(&again)
    );
    text(&output)
}

/// Checks what both guests print: who they are, and three segments whose cycles the model counted.
fn check(console: &str, name: &str) {
    assert!(
        console.contains(&format!(
            "[{name}] hello from {name}: VM 0, vCPU 0, interface 1"
        )),
        "{console}"
    );
    let cycles = console.lines().filter_map(|line| {
        line.split_once("cycles=")?
            .1
            .split(' ')
            .next()?
            .trim()
            .parse()
            .ok()
    });
    let cycles: Vec<u64> = cycles.collect();
    // 512 KiB have 8192 lines, each of which costs some cycles.
    assert!(
        cycles.len() == 3 && cycles.iter().all(|&cycles| cycles > 10 * 8_192),
        "{cycles:?}\n{console}"
    );
    assert!(!console.contains("does not count"), "{console}");
}

#[test]
fn a_new_guest_in_c_builds_and_runs() {
    let console = console("--c", "my-c", &["make", "run"]);
    check(&console, "my-c");
    assert!(!console.contains("warning:"), "{console}");
}

#[test]
fn a_new_guest_in_rust_builds_and_runs() {
    check(
        &console("--rust", "my-rust", &["cargo", "run", "--offline"]),
        "my-rust",
    );
}

/// A program that looks at what x0 points to.
const READER: &str = r#"
#include "cloison.h"

static uint32_t word(const volatile unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void find(const volatile unsigned char *tree, uint32_t size, const char *text)
{
    uint32_t length = 0, count = 0;
    while (text[length])
        length++;
    for (uint32_t at = 0; at + length < size; at++) {
        uint32_t same = 0;
        while (same < length && tree[at + same] == (unsigned char)text[same])
            same++;
        count += same == length && tree[at + same] == 0;
    }
    cloison_puts("tree: ");
    cloison_puts(text);
    cloison_puts(" times=");
    cloison_putu(count);
    cloison_puts("\n");
}

int main(uint64_t x0)
{
    const volatile unsigned char *tree = (const volatile unsigned char *)x0;
    uint32_t size = word(tree + 4);
    cloison_puts("tree: at=");
    cloison_putu(x0);
    cloison_puts(word(tree) == 0xd00dfeed ? " good\n" : " bad\n");
    find(tree, size, "one two");
    find(tree, size, "arm,psci-1.0");
    find(tree, size, "arm,pl011");
    find(tree, size, "memory@40000000");
    find(tree, size, "cpu@0");
    find(tree, size, "cpu@1");
    return 0;
}
"#;

/// As ELF file and as raw image.
#[test]
fn a_guest_gets_a_device_tree_if_it_wants_one() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = guest(scratch.path(), "reader", READER);
    let file = guest.join("system.toml");
    let system = std::fs::read_to_string(&file)
        .expect("it was made")
        .replace("args = [3]", "");
    build(&guest);
    let flat = image::flatten(&guest.join("guest.elf")).expect("an executable");
    std::fs::write(guest.join("guest.bin"), &flat.bytes).expect("it can be written");
    let raw = format!(
        "file = \"guest.bin\", load = {:#x}, entry = {:#x}",
        flat.base, flat.entry
    );
    // The last 64 KiB of 16 MiB at 1 GiB, unless it says another address.
    let last = 0x4000_0000 + (16 << 20) - (64 << 10);
    let chosen = 0x4080_0000;
    let elf = "file = \"guest.elf\"";
    let placed = format!("{elf}, device_tree_at = {chosen:#x}");
    for (image, at) in [(elf, last), (&raw, last), (&placed, chosen)] {
        let image = format!("{image}, device_tree = true, cmdline = \"one two\"");
        let text = system.replace("file = \"guest.elf\"", &image);
        assert!(text.contains(&image), "{text}");
        std::fs::write(&file, text).expect("it can be written");
        let console = good(&["run", file.to_str().expect("a plain path"), "--icount"]);
        assert!(
            console.contains(&format!("[reader] tree: at={at} good")),
            "{console}"
        );
        for (what, times) in [
            ("one two", 1),
            ("arm,psci-1.0", 1),
            ("arm,pl011", 1),
            ("memory@40000000", 1),
            ("cpu@0", 1),
            ("cpu@1", 0),
        ] {
            assert!(
                console.contains(&format!("tree: {what} times={times}")),
                "{what}\n{console}"
            );
        }
    }
    // Room for the image, and not for the tree; and a tree where the image is.
    let size = format!("\"{}K\"", (flat.bytes.len() / 4096 + 2) * 4);
    let small = system
        .replace("\"16M\"", &size)
        .replace(elf, &format!("{elf}, device_tree = true"));
    let over = format!(
        "{elf}, device_tree = true, device_tree_at = {:#x}",
        flat.base
    );
    let refusals = [
        (small, "its device tree would begin at"),
        (system.replace(elf, &over), "image has 0x40"),
    ];
    for (text, message) in refusals {
        std::fs::write(&file, text).expect("it can be written");
        let refused = cloison(&["run", file.to_str().expect("a plain path"), "--icount"]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && error.contains(message),
            "{error}"
        );
    }
}

/// Creates a guest in C with this program. Returns its directory.
fn guest(scratch: &Path, name: &str, program: &str) -> PathBuf {
    let guest = scratch.join(name);
    good(&["new", "guest", guest.to_str().expect("a plain path"), "--c"]);
    std::fs::write(guest.join("main.c"), program).expect("it can be written");
    guest
}

#[track_caller]
fn build(guest: &Path) {
    let made = Command::new("make")
        .arg("guest.elf")
        .current_dir(guest)
        .output()
        .expect("make starts");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    assert!(
        made.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Atomic operations of all widths, and each function of the header that reads or writes a device.
const ATOMICS: &str = r#"
#include "cloison.h"

static uint64_t wide = 40;
static uint32_t word = 40;
static uint8_t byte = 40;
static uint64_t cell;

int main(void)
{
    __atomic_fetch_add(&wide, 2, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&word, 2, __ATOMIC_ACQ_REL);
    __atomic_fetch_add(&byte, 2, __ATOMIC_RELAXED);
    uint64_t expected = 42;
    int swapped = __atomic_compare_exchange_n(&wide, &expected, 7, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    cloison_puts("atomics: ");
    cloison_putu(word + byte + wide + (uint64_t)swapped);
    uintptr_t at = (uintptr_t)&cell;
    cloison_write64(at, 0x1111222233334444);
    cloison_write32(at + 4, 0x55556666);
    cloison_write16(at + 2, 0x7777);
    cloison_write8(at + 1, 0x88);
    cloison_puts(" cell=");
    cloison_putx(cloison_read64(at));
    cloison_puts(" parts=");
    cloison_putx(cloison_read32(at + 4));
    cloison_puts(",");
    cloison_putx(cloison_read16(at + 2));
    cloison_puts(",");
    cloison_putx(cloison_read8(at + 1));
    cloison_puts("\n");
    return 0;
}
"#;

#[test]
fn a_guest_in_c_can_use_atomics_and_the_accessors() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = guest(scratch.path(), "atomics", ATOMICS);
    build(&guest);
    let console = good(&[
        "run",
        guest.join("system.toml").to_str().expect("a plain path"),
        "--icount",
    ]);
    assert!(
        console.contains("[atomics] atomics: 92 cell=5555666677778844 parts=55556666,7777,88"),
        "{console}"
    );
}

/// A program with its code in one region, and its data and stack in another.
const BANKS: &str = r#"
#include "cloison.h"

static volatile uint64_t table[4] = {11, 22, 33, 44};
static volatile uint64_t zeros[1024];

int main(void)
{
    uint64_t sum = 0, set = 0;
    for (int at = 0; at < 4; at++)
        sum += table[at]++;
    for (int at = 0; at < 1024; at++)
        set += zeros[at]++ != 0;
    cloison_puts("banks: code=");
    cloison_putx((uint64_t)main >> 28);
    cloison_puts(" data=");
    cloison_putx((uint64_t)table);
    cloison_puts(" sum=");
    cloison_putu(sum);
    cloison_puts(" set=");
    cloison_putu(set);
    cloison_puts("\n");
    return 0;
}
"#;

/// Loaded into its regions; and refused by everything in the same words if it does not fit there,
/// or cannot start.
#[test]
fn each_segment_of_a_guest_is_loaded_into_its_region_or_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let guest = guest(scratch.path(), "banks", BANKS);
    let script = std::fs::read_to_string(guest.join("guest.ld")).expect("it was made");
    let moved = script.replace(
        "    .data : ALIGN(4K)",
        "    . = 0x50000000;\n    .data : ALIGN(4K)",
    );
    assert_ne!(script, moved);
    std::fs::write(guest.join("guest.ld"), moved).expect("it can be written");
    build(&guest);
    let file = guest.join("system.toml");
    let path = file.to_str().expect("a plain path");
    let one = std::fs::read_to_string(&file).expect("it was made");
    let with_second = |size: &str| {
        let region = "\n[[vm.region]]\nname = \"ram2\"\nipa = 0x5000_0000\npool = \"own\"\n";
        std::fs::write(&file, format!("{one}{region}size = \"{size}\"\n"))
            .expect("it can be written");
    };
    let refused = |message: &str| {
        for command in ["check", "image", "run"] {
            let output = cloison(&[command, path]);
            let text = String::from_utf8_lossy(&output.stderr).replace('│', " ");
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                !output.status.success() && text.contains(message),
                "{command}: {message}\n{text}"
            );
        }
    };

    with_second("1M");
    let console = good(&["run", path, "--icount"]);
    assert!(
        console.contains("[banks] banks: code=4 data=50000000 sum=110 set=0"),
        "{console}"
    );

    std::fs::write(&file, &one).expect("it can be written");
    refused("no RAM of the VM is there");
    refused("the nearest region of RAM is `ram` at 0x40000000 to 0x41000000");
    // The data of 8 KiB with 4 KiB of RAM.
    with_second("4K");
    refused("bytes beyond the end of region `ram2` at 0x50001000");
    with_second("1M");
    let elf = std::fs::read(guest.join("guest.elf")).expect("it was built");
    let with_entry = |entry: u64| {
        let mut elf = elf.clone();
        elf[24..32].copy_from_slice(&entry.to_le_bytes());
        std::fs::write(guest.join("guest.elf"), elf).expect("it can be written");
    };
    with_entry(0x4123_4560);
    refused("its entry 0x41234560 is in none of its segments");
    with_entry(0x4000_0002);
    refused("its entry 0x40000002 is not a multiple of 4");
    with_entry(0x5000_0000);
    refused("which is not executable");
}

/// Runs `cloison`, which must succeed. Returns what it printed.
#[track_caller]
fn good(args: &[&str]) -> String {
    let output = cloison(args);
    let text = [output.stdout, output.stderr]
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .concat();
    assert!(output.status.success(), "cloison {args:?}\n{text}");
    text
}

/// With a victim of one's own, the pages of the documentation do it (`walks`).
#[test]
fn a_new_experiment_is_ready_without_a_victim_of_ones_own() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let scratch = scratch.path();
    let path = scratch.join("trial");
    let path = path.to_str().expect("a plain path");
    let made = good(&["new", "experiment", path]);
    assert!(made.contains("trial/experiment.toml"), "{made}");
    let checked = good(&["check", &format!("{path}/system.toml")]);
    assert!(!checked.contains("warning"), "{checked}");
    let out = scratch.join("results");
    let out = out.to_str().expect("a plain path");
    let report = good(&[
        "experiment",
        &format!("{path}/experiment.toml"),
        "--quick",
        "--out",
        out,
    ]);
    assert!(Path::new(out).join("report.html").is_file(), "{report}");
    // All four variants, and that the neighbors cost something.
    for variant in ["solo", "interf", "colors", "budget"] {
        assert!(report.contains(variant), "no {variant} in\n{report}");
    }
}

/// Both can then be committed, or copied to another machine.
#[test]
fn a_new_experiment_names_a_guest_beside_it_by_a_relative_path() {
    let [here, elsewhere] = [(); 2].map(|()| tempfile::tempdir().expect("a scratch directory"));
    let written = |guest: &Path, name: &str| {
        let path = here.path().join(name).display().to_string();
        let guest = guest.display().to_string();
        good(&["new", "experiment", &path, "--guest", &guest]);
        std::fs::read_to_string(here.path().join(name).join("system.toml")).expect("its system")
    };
    let beside = here.path().join("filter");
    std::fs::create_dir(&beside).expect("a directory");
    let system = written(&beside, "trial");
    assert!(system.contains("\"../filter/guest.elf\""), "{system}");
    let system = written(elsewhere.path(), "other");
    let whole = elsewhere.path().canonicalize().expect("it is there");
    let whole = format!("\"{}/guest.elf\"", whole.display());
    assert!(system.contains(&whole), "{whole}: {system}");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for name in ["Großer", "9lives", "a-name-of-17-chars", "a b", ".."] {
        let path = scratch.path().join(name).display().to_string();
        let output = cloison(&["new", "guest", &path, "--c"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains("cannot be the name"),
            "{name}: {error}"
        );
    }
    assert_eq!(
        std::fs::read_dir(scratch.path())
            .expect("it is there")
            .count(),
        0,
        "nothing was written"
    );
    let missing = cloison(&["new", "experiment", "never", "--linux", "/no/such/program"]);
    assert!(!missing.status.success() && !Path::new("never").exists());
    let neither = cloison(&["new", "guest", "some"]);
    assert!(!neither.status.success() && !Path::new("some").exists());
}

/// Each definition of the header as the cross compiler sees it, against the Rust constant.
#[test]
fn the_header_says_what_the_hypervisor_says() {
    let compiler = LINKER.ensure().expect("Linux guests need it too");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    std::fs::write(scratch.path().join("cloison.h"), header::header()).expect("it can be written");
    let compiles = |asserts: &str| {
        let file = scratch.path().join("asserts.c");
        std::fs::write(&file, format!("#include \"cloison.h\"\n{asserts}"))
            .expect("it can be written");
        let mut command = Command::new(&compiler);
        let flags = [
            "-std=gnu11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-Wno-unused-function",
            "-fsyntax-only",
        ];
        command.args(flags).arg(&file);
        let output = command.output().expect("it starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let mut asserts = String::new();
    let mut equal = |name: &str, value: i128| {
        let _ = writeln!(
            asserts,
            "_Static_assert((long long)CLOISON_{name} == {value}LL, \"{name}\");"
        );
    };
    for id in 0xC600_0000..0xC600_1000 {
        if let Some(call) = Call::from_id(id) {
            equal(
                &format!("CALL_{}", screaming(&format!("{call:?}"))),
                id.into(),
            );
        }
    }
    for code in -100..0 {
        if let Ok(error) = CallError::try_from(code) {
            equal(
                &format!("ERROR_{}", screaming(&format!("{error:?}"))),
                code.into(),
            );
        }
    }
    let addresses = [
        ("GICD", map::GICD),
        ("GICC", map::GICC),
        ("UART", map::UART),
        ("SERVICES", map::SERVICES),
    ];
    addresses
        .iter()
        .for_each(|(name, at)| equal(&format!("MAP_{name}"), (*at).into()));
    equal("MAP_RAM", map::RAM.into());
    equal("IRQ_VTIMER", irq::VTIMER.into());
    equal("PSCI_CPU_ON", psci::CPU_ON_64.into());
    equal("PSCI_SYSTEM_OFF", psci::SYSTEM_OFF.into());
    equal("SERVICE_PROFILE", services::PROFILE.into());
    equal("SERVICES_PAGE_MAGIC_VALUE", page::MAGIC_VALUE.into());
    // The PL011's manual (Arm DDI 0183, 3.2 and 3.3.3).
    equal("UART_DR", 0);
    equal("UART_FR", 0x18);
    equal("UART_FR_TXFF", 1 << 5);
    equal("UART_FR_RXFE", 1 << 4);
    let (ok, messages) = compiles(&asserts);
    assert!(ok, "{messages}");
    // The compiler does look.
    let (ok, messages) = compiles("_Static_assert(CLOISON_MAP_UART == 1, \"wrong\");");
    assert!(!ok && messages.contains("wrong"), "{messages}");
    // Every constant with a number compiles to that number.
    let mut asserts = String::new();
    let mut count = 0;
    for (name, value) in header::constants() {
        let number = match value {
            Value::Number(number) => i128::from(number),
            Value::Function(number) | Value::Plain(number) => i128::from(number),
            Value::Signed(number) => i128::from(number),
            Value::Text(_) => continue,
        };
        let number = number as i64;
        let _ = writeln!(
            asserts,
            "_Static_assert((long long){name} == (long long){number:#x}ULL, \"{name}\");"
        );
        count += 1;
    }
    let (ok, messages) = compiles(&asserts);
    assert!(ok && count > 100, "{count} constants: {messages}");
    // Constants in assembly operands must be plain numbers.
    let mut all = header::constants();
    assert!(
        all.any(|it| it == ("CLOISON_MODEL_BEGIN_WARM".to_owned(), Value::Plain(112))),
        "an operand of HINT"
    );
}

/// Returns `PoolFull` as `POOL_FULL`.
fn screaming(name: &str) -> String {
    let letters = name.chars().map(|letter| match letter {
        'A'..='Z' => format!("_{letter}"),
        _ => letter.to_ascii_uppercase().to_string(),
    });
    letters
        .collect::<String>()
        .trim_start_matches('_')
        .to_owned()
}
