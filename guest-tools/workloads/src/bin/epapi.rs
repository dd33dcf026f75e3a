//! ePAPI: measures what the library adds to its counts, compared with counters that are read
//! without it (ePAPI paper, table 4).
// SPDX-License-Identifier: MIT OR Apache-2.0
#![deny(unsafe_code)]
#![cfg_attr(target_os = "none", no_std, no_main)]
#![cfg_attr(not(target_arch = "aarch64"), allow(unused, unreachable_code))]

use assembly::{Kernel, Way, flush, sequence};
use cloison_epapi::preset::{self, PAPI_TOT_CYC, PAPI_TOT_INS};
use cloison_epapi::query::Info;
use cloison_epapi::{EventId, Library, Pmuv3};
use cloison_guest::ram::{LINE, Ram};
use cloison_guest::{entry, pmu, println, timer};
use cloison_workloads::PROFILED;
use core::hint::black_box;

entry!(main);

/// Bytes of the buffer: half of the L1 data cache of a Cortex-A53, whose choice of what to replace
/// then plays no part.
const BUFFER: u64 = 16 << 10;
/// Pages of which one word each is loaded.
const PAGES: u64 = 16;
/// Native events beside cycles that one run can count.
const MOST: usize = 6;

/// The code that is measured, and the sequence around it. All is in assembly, so that the three
/// ways to count differ in the functions that they call and in nothing else.
#[allow(unsafe_code)]
mod assembly {
    use cloison_guest::global_asm;

    // sequence(start, kernel, stop, arguments): calls the three with two arguments each. What is
    // between the end of the first and the beginning of the last accesses memory only in
    // the kernel. bare_start(counters), bare_stop(counters): the least that a program
    // can do.
    global_asm!(
        r#"
    .section .text.epapi_bench, "ax"
    .balign 4096
    .global epapi_sequence
epapi_sequence:
    stp     x29, x30, [sp, #-64]!
    mov     x29, sp
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    mov     x19, x1
    mov     x20, x2
    ldp     x21, x22, [x3, #16]
    ldp     x23, x24, [x3, #32]
    mov     x4, x0
    ldp     x0, x1, [x3]
    blr     x4
    mov     x0, x21
    mov     x1, x22
    blr     x19
    mov     x0, x23
    mov     x1, x24
    blr     x20
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x29, x30, [sp], #64
    ret

    // In a page of the program that is not the sequence's, as the library is.
    .balign 4096
    .global epapi_bare_start
epapi_bare_start:
    msr     pmcntenset_el0, x0
    isb
    mov     x0, #0
    ret

    .balign 64
    .global epapi_bare_stop
epapi_bare_stop:
    msr     pmcntenclr_el0, x0
    isb
    mov     x0, #0
    ret

    .balign 4096
    .global epapi_loads
epapi_loads:
    ldr     x2, [x0], #64
    subs    x1, x1, #1
    b.ne    epapi_loads
    ret

    // flush(address, end): no cache has these lines afterwards, nor an instruction from them.
    .balign 64
    .global epapi_flush
epapi_flush:
    dc      civac, x0
    ic      ivau, x0
    add     x0, x0, #64
    cmp     x0, x1
    b.lo    epapi_flush
    dsb     ish
    isb
    ret

    .balign 64
    .global epapi_stores
epapi_stores:
    str     xzr, [x0], #64
    subs    x1, x1, #1
    b.ne    epapi_stores
    ret

    .balign 64
    .global epapi_pages
epapi_pages:
    ldr     x2, [x0]
    add     x0, x0, #4096
    subs    x1, x1, #1
    b.ne    epapi_pages
    ret

    .balign 64
    .global epapi_branches
epapi_branches:
    tbz     x1, #0, 1f
    nop
1:  subs    x1, x1, #1
    b.ne    epapi_branches
    ret

    .balign 64
    .global epapi_code
epapi_code:                             // 16 KiB: half of the L1 instruction cache
    .rept   4094
    nop
    .endr
    subs    x1, x1, #1
    b.ne    epapi_code
    ret
    .balign 64
    .global epapi_end
epapi_end:
    .text
    "#
    );

    unsafe extern "C" {
        fn epapi_sequence(
            start: usize,
            kernel: usize,
            stop: usize,
            arguments: *const [u64; 6],
        ) -> i32;
        fn epapi_bare_start();
        fn epapi_bare_stop();
        fn epapi_loads();
        fn epapi_stores();
        fn epapi_pages();
        fn epapi_branches();
        fn epapi_code();
        fn epapi_flush(address: usize, end: usize);
        fn epapi_end();
    }

    /// Removes the benchmarks and their data from all caches.
    pub fn flush(work: [u64; 2], bytes: u64) {
        let code =
            [epapi_loads, epapi_end].map(|function: unsafe extern "C" fn()| function as usize);
        // SAFETY: lines are written back before they are dropped, so that memory has the same
        // contents.
        unsafe {
            epapi_flush(code[0], code[1]);
            epapi_flush(work[0] as usize, (work[0] + bytes) as usize);
        }
    }

    /// Code to be measured, by its function and its second argument.
    #[derive(Clone, Copy)]
    pub enum Kernel {
        Loads,
        Stores,
        Pages,
        Branches,
        Code,
    }

    impl Kernel {
        pub fn name(self) -> &'static str {
            match self {
                Self::Loads => "loads",
                Self::Stores => "stores",
                Self::Pages => "pages",
                Self::Branches => "branches",
                Self::Code => "code",
            }
        }

        fn function(self) -> usize {
            let function: unsafe extern "C" fn() = match self {
                Self::Loads => epapi_loads,
                Self::Stores => epapi_stores,
                Self::Pages => epapi_pages,
                Self::Branches => epapi_branches,
                Self::Code => epapi_code,
            };
            function as usize
        }
    }

    /// How counters are started and stopped.
    #[derive(Clone, Copy)]
    pub enum Way {
        Bare,
        Read,
        Accum,
    }

    impl Way {
        fn functions(self) -> (usize, usize) {
            let start = epapi::high::ePAPI_start_counters as *const () as usize;
            match self {
                Self::Bare => (
                    epapi_bare_start as *const () as usize,
                    epapi_bare_stop as *const () as usize,
                ),
                Self::Read => (
                    start,
                    epapi::high::ePAPI_read_counters as *const () as usize,
                ),
                Self::Accum => (
                    start,
                    epapi::high::ePAPI_accum_counters as *const () as usize,
                ),
            }
        }
    }

    /// Starts counting, runs a benchmark on `work`, and stops or reads. Returns the result of the
    /// last function.
    pub fn sequence(
        way: Way,
        kernel: Kernel,
        start_with: [u64; 2],
        work: [u64; 2],
        stop_with: [u64; 2],
    ) -> i32 {
        let (start, stop) = way.functions();
        let arguments = [
            start_with[0],
            start_with[1],
            work[0],
            work[1],
            stop_with[0],
            stop_with[1],
        ];
        // SAFETY: the functions keep the calling convention. Pointers among the arguments are those
        // of arrays that the caller still has, and the kernels write to the guest's buffer
        // only.
        unsafe { epapi_sequence(start, kernel.function(), stop, &arguments) }
    }

    /// Stops the library's counters.
    pub fn stop_counters(values: &mut [i64]) -> i32 {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { epapi::high::ePAPI_stop_counters(values.as_mut_ptr(), values.len() as i32) }
    }

    /// Starts the library's counters.
    pub fn start_counters(events: &[i32]) -> i32 {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { epapi::high::ePAPI_start_counters(events.as_ptr(), events.len() as i32) }
    }

    /// Reads them.
    pub fn read_counters(values: &mut [i64]) -> i32 {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { epapi::high::ePAPI_read_counters(values.as_mut_ptr(), values.len() as i32) }
    }

    /// Adds them.
    pub fn accum_counters(values: &mut [i64]) -> i32 {
        // SAFETY: the pointer and the length are those of a slice.
        unsafe { epapi::high::ePAPI_accum_counters(values.as_mut_ptr(), values.len() as i32) }
    }
}

/// Chooses code in which a preset's event occurs.
fn kernel_of(name: &str) -> (Kernel, u64) {
    let is = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if is(&["_IC", "TLB_IM", "L1_TC", "TLB_TL"]) {
        (Kernel::Code, 8)
    } else if is(&["_SR_INS", "MEM_WCY", "LST_INS"]) {
        (Kernel::Stores, BUFFER / LINE)
    } else if is(&["TLB"]) {
        (Kernel::Pages, PAGES)
    } else if is(&["_BR", "TOT_", "HW_INT"]) {
        (Kernel::Branches, 10_000)
    } else {
        (Kernel::Loads, BUFFER / LINE)
    }
}

/// The counts of one way: the event, cycles and instructions.
type Counted = [i64; 3];

/// Counts without the library: the native events of the preset on counters from 0 up, instructions
/// on the next.
fn bare(info: &Info, kernel: Kernel, work: [u64; 2]) -> Counted {
    // The first time brings the functions into the caches.
    bare_once(info, kernel, work);
    bare_once(info, kernel, work)
}

fn bare_once(info: &Info, kernel: Kernel, work: [u64; 2]) -> Counted {
    let terms = info.terms.as_slice();
    let events = terms
        .iter()
        .map(|term| term.event)
        .filter(|event| *event != EventId::CPU_CYCLES);
    let mut counters = 0;
    for (counter, event) in (0..).zip(events.chain([EventId::INST_RETIRED])) {
        pmu::configure(counter, event, 0);
        counters = counter;
    }
    pmu::set_cycles(0);
    pmu::enable();
    let mask = pmu::CYCLES | ((2 << counters) - 1);
    flush(work, PAGES * 4096);
    sequence(Way::Bare, kernel, [mask, 0], work, [mask, 0]);
    let cycles = pmu::cycles() as i64;
    let mut next = 0;
    let mut event = 0;
    for term in terms {
        let count = if term.event == EventId::CPU_CYCLES {
            cycles
        } else {
            next += 1;
            i64::from(pmu::count(next - 1))
        };
        event += if term.minus { -count } else { count };
    }
    [event, cycles, pmu::count(counters).into()]
}

/// Counts with the library.
fn library(way: Way, code: i32, kernel: Kernel, work: [u64; 2]) -> Counted {
    library_once(way, code, kernel, work);
    library_once(way, code, kernel, work)
}

fn library_once(way: Way, code: i32, kernel: Kernel, work: [u64; 2]) -> Counted {
    let all = [code, PAPI_TOT_CYC, PAPI_TOT_INS];
    // An event cannot be in a set twice.
    let mut events = [0; 3];
    let mut number = 0;
    for (at, event) in all.into_iter().enumerate() {
        if at == 0 || event != code {
            (events[number], number) = (event, number + 1);
        }
    }
    let mut values = [0_i64; 3];
    let pointers = [events.as_ptr() as u64, values.as_mut_ptr() as u64].map(black_box);
    let length = number as u64;
    flush(work, PAGES * 4096);
    let status = sequence(
        way,
        kernel,
        [pointers[0], length],
        work,
        [pointers[1], length],
    );
    let mut rest = [0_i64; 3];
    let stopped = assembly::stop_counters(&mut rest);
    assert!(status == 0 && stopped == 0, "{status}, {stopped}");
    let values = black_box(&values);
    all.map(|event| {
        events[..number]
            .iter()
            .position(|other| *other == event)
            .map_or(-1, |at| values[at])
    })
}

/// Measures how long calls take, in ticks: under `-icount` instructions of all exception levels.
fn costs() {
    let events = [PAPI_TOT_INS, preset::PAPI_L1_DCA, PAPI_TOT_CYC];
    for number in 1..=events.len() {
        let mut values = [0_i64; 3];
        let values = &mut values[..number];
        let started = assembly::start_counters(&events[..number]);
        // The first calls bring code and data into the caches.
        let (mut read, mut accum) = (0, 0);
        for _ in 0..4 {
            let begin = timer::now();
            assembly::read_counters(values);
            read = timer::now() - begin;
            let begin = timer::now();
            assembly::accum_counters(values);
            accum = timer::now() - begin;
        }
        assembly::stop_counters(values);
        let begin = timer::now();
        let nothing = timer::now() - begin;
        println!(
            "epapi: cost events={number} read={} accum={} started={started}",
            read - nothing,
            accum - nothing
        );
    }
}

fn main() {
    let mut papi = Library::new(Pmuv3, 0);
    if let Err(error) = papi.library_init() {
        println!("epapi: {error}");
        return;
    }
    let mut memory = Ram::behind_image();
    let buffer = memory.take_words_at(PROFILED, (PAGES * 1024) as usize);
    let at = buffer.as_ptr() as u64;
    for known in preset::ALL {
        let Ok(info) = papi.event_info(known.code) else {
            continue;
        };
        let natives = info
            .terms
            .as_slice()
            .iter()
            .filter(|term| term.event != EventId::CPU_CYCLES)
            .count();
        let runs = if natives < MOST {
            info.runs
        } else {
            info.runs.max(2)
        };
        if runs != 1 {
            println!("epapi: skipped {} runs={runs}", known.name);
            continue;
        }
        let (kernel, turns) = kernel_of(known.name);
        let work = [at, turns];
        for (way, [event, cycles, instructions]) in [
            ("bare", bare(&info, kernel, work)),
            ("read", library(Way::Read, known.code, kernel, work)),
            ("accum", library(Way::Accum, known.code, kernel, work)),
        ] {
            println!(
                "epapi: preset {} kernel={} way={way} event={event} cycles={cycles} \
                 instructions={instructions} derived={} closeness={}",
                known.name,
                kernel.name(),
                u8::from(info.terms.is_derived()),
                info.terms.closeness.word(),
            );
        }
    }
    costs();
    println!("epapi: done");
}
