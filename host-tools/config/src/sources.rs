//! Sources of VM images, and the shipped workloads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::guest_linux::{Described, Linux};
use std::path::PathBuf;

/// The numbers of the shipped workloads' observation segments in the HEM log.
pub const SEGMENTS: &[(u32, &str)] = &[
    (1, "interf"),
    (2, "staircase"),
    (3, "c2is"),
    (4, "matrix-copy"),
    (5, "latency"),
    (6, "disparity"),
    (7, "segmentation"),
    (8, "matmul"),
    (9, "cacheability-check"),
    (10, "memory"),
    (11, "known-counts"),
    (12, "arithmetic"),
    (13, "frames"),
    (14, "channel"),
];

/// Returns a workload of the HEM log as `c2is (3)`, or only its number if it is none of the shipped
/// ones.
pub fn segment_name(workload: u32) -> String {
    let known = SEGMENTS.iter().find(|(number, _)| *number == workload);
    known.map_or_else(
        || workload.to_string(),
        |(number, name)| format!("{name} ({number})"),
    )
}

/// The shipped workloads with their purpose.
pub const WORKLOADS: &[(&str, &str)] = &[
    (
        "arithmetic",
        "computes with operands from a level of the memory; args: benchmark, steps, seed, runs \
         (0: forever)",
    ),
    ("bench", "measures the hypervisor's own paths"),
    (
        "c2is",
        "runs a function over 65 pages of text, again and again",
    ),
    (
        "cacheability-check",
        "writes and checks its pages while they go in and out of the caches",
    ),
    (
        "channel",
        "sends messages and calls to another VM, and tries what it may not; args: 0 to ask, 1 to \
         answer, 2 to call without end",
    ),
    (
        "chaos",
        "makes random calls and accesses on three vCPUs over many lives; args: seed, lives, steps \
         per life",
    ),
    (
        "counters-check",
        "counts by calls, and looks for counters that it should not have; args: vCPUs, calls, \
         turns",
    ),
    (
        "disparity",
        "finds depth in two images; args: size 1 to 3, runs, seed",
    ),
    ("echo", "writes back what it reads from its UART"),
    (
        "edu",
        "sends a device's DMA to its own memory and elsewhere; args: what (1 to 3), rounds, seed",
    ),
    (
        "eemi",
        "asks the firmware about any clock, reset and power; args: calls, seed",
    ),
    (
        "encodings",
        "tries every encoding of a system register, and prints which are open",
    ),
    (
        "epapi",
        "counts every preset with PAPI and without it, on its own PMU",
    ),
    (
        "epapi-check",
        "counts with PAPI on all vCPUs at once; args: vCPUs, rounds, the PMU's interrupt",
    ),
    (
        "flood",
        "prints without end; args: lines (0: forever), letters per line, moves of two pages \
         first, 1: titles",
    ),
    (
        "frames",
        "sends frames on a link, or takes them; args: 1 to send, bytes of a frame, how many (0: \
         forever)",
    ),
    (
        "gic-check",
        "does random steps with its interrupt controller; args: seed, lives, steps per life",
    ),
    (
        "gicv3-check",
        "accesses every register of its GICv3, and checks that it has only its own interrupts; args: vCPUs, sweeps",
    ),
    (
        "heartbeat",
        "counts timer interrupts and checksums its memory",
    ),
    ("hostile", "tries everything that it must not do"),
    (
        "interf",
        "stores over a buffer; args: bytes, iterations (0: forever), ms to sleep first",
    ),
    (
        "known-counts",
        "runs benchmarks whose event counts are known; args: runs of each",
    ),
    ("latency", "follows a chain of pointers through a buffer"),
    (
        "leases",
        "lets leases run out where its core is held or off; args: what (0 to 5), microseconds of \
         a lease, of the run",
    ),
    (
        "lives",
        "restarts from either of two vCPUs, turns them off and on; args: lives, life from which \
         on it is killed",
    ),
    (
        "manager",
        "stops, starts and restarts other VMs; args: calls, resets of itself, its VM, a shared VM",
    ),
    (
        "matmul",
        "multiplies matrices; args: size 1 to 3, runs, seed",
    ),
    ("matrix-copy", "copies a matrix"),
    (
        "memory",
        "reads, writes or copies a buffer; args: operation (0 to 5), bytes, passes in each run, \
         runs (0: forever)",
    ),
    (
        "migrate-check",
        "writes and checks its pages while they migrate",
    ),
    (
        "mmio",
        "accesses its devices in every way that compilers do, and by an instruction that changes; \
         args: times",
    ),
    (
        "payer",
        "makes each call again and again; args: first kind, microseconds for each, a budget, how \
         many kinds",
    ),
    (
        "pmu-check",
        "counts with its own PMU, and looks for counters that it should not have",
    ),
    ("quota-check", "watches its own quota"),
    (
        "reach",
        "keeps words in its own pages, and tries to reach others; args: address and number of each",
    ),
    (
        "regulator",
        "sets the quota of another VM, and checks that it holds; args: its VM, calls, ceiling",
    ),
    (
        "remains",
        "restarts once and looks for what its first life left",
    ),
    ("restart", "resets itself and checks that it starts again"),
    (
        "rings",
        "drives a link's device and follows no rule; args: seed, rounds",
    ),
    (
        "rtc",
        "drives a passed-through clock by its interrupts, or tries to reach one",
    ),
    (
        "segmentation",
        "divides an image into regions; args: size 1 to 3, runs, seed",
    ),
    (
        "siege",
        "two vCPUs interrupt a third without end, which turns itself off; args: turns (0: forever)",
    ),
    ("smp", "brings up its other vCPUs"),
    (
        "spender",
        "tries to gain budget by stops, restarts and the hypervisor's work; args: turns, what to \
         try (0 to 8)",
    ),
    (
        "staircase",
        "touches 100 pages, each one more often than the one before",
    ),
    ("stuck", "dies before its first output; args: how (0 to 3)"),
    (
        "uptime",
        "works at once and after a long sleep; args: seconds, turns of its loop",
    ),
];

/// Source of a VM's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A workload that comes with Cloison.
    Workload(String),
    /// An ELF file, or a raw image whose load address and entry are in the VM's
    /// [`cloison_formats::image::Image`].
    File(PathBuf),
    /// The same, for a guest that gets a device tree in `x0`.
    FileWithTree(PathBuf, Described),
    /// A Linux guest.
    Linux(Linux),
}
