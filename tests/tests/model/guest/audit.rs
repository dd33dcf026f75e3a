//! A guest without an operating system: small programs whose counts and times are known.
//!
//! The 64-bit word at 0x4300_0000 chooses the program; results are at 0x4300_0100. Everything runs
//! at EL2 with the MMU off, where every address is its own physical one, except the parts of
//! `levels` and of the programs from 15 on that run at EL1: the latter behind tables of stage 2,
//! which map each address to itself.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![no_std]
#![no_main]

core::arch::global_asm!(
    r#"
    .arch_extension fp
    .arch_extension simd
    .macro goto number, label
    cmp     x21, #\number
    b.eq    \label
    .endm
    .macro region_begin
    hint    #112
    isb
    .endm
    .macro region_end
    hint    #113
    isb
    .endm

    .global _start
_start:
    movz    x20, #0x4300, lsl #16
    add     x28, x20, #0x100
    movz    x24, #0x4400, lsl #16
    ldr     x21, [x20]
    adr     x0, vectors
    msr     vbar_el2, x0
    isb
    // Counter 0 counts LD_RETIRED, at EL2 too.
    movz    x0, #0x0800, lsl #16
    movk    x0, #0x06
    msr     pmevtyper0_el0, x0
    mov     x0, #1
    msr     pmcntenset_el0, x0
    mrs     x1, pmcr_el0
    orr     x1, x1, #1
    msr     pmcr_el0, x1
    isb
    goto    0, branches
    goto    1, second_region
    goto    2, instructions
    goto    3, interrupted
    goto    4, faults
    goto    5, devices
    goto    6, levels
    goto    7, messages
    goto    8, deadlines
    goto    9, polite
    goto    10, nested
    goto    11, clock
    goto    12, mechanisms
    goto    13, shared_line
    goto    14, separate_lines
    goto    15, pages
    goto    16, blocks
    goto    17, both_stages
    goto    18, pages
off:
    movz    x0, #0x8400, lsl #16
    movk    x0, #8
    smc     #0
1:  wfi
    b       1b

// Reads of a counter with a branch target right after them.
branches:
    mov     x5, #0
    .rept 50
    ldr     x3, [x24]
    .endr
    mov     x0, #1
    msr     pmcntenclr_el0, x0
    isb
    mov     x0, #7
    mov     x1, #0
    bl      read_c
    mov     x1, #1
    bl      read_c
    str     x5, [x28]
    mov     x1, #1
    bl      read_d
    str     x5, [x28, #8]
    mov     x1, #1
    mov     x0, #0
    bl      read_c
    mov     x0, #0x1234
    mov     x1, #0
    bl      read_d
    str     x5, [x28, #16]
    b       off
    .balign 64
read_c:
    cbz     x1, 1f
    mrs     x0, pmevcntr0_el0
1:  mov     x5, x0
    ret
    .balign 64
read_d:
    cbz     x1, 1f
    mrs     x0, pmevcntr0_el0
1:  mov     x5, x0
    ret

// Two regions, and a write between them.
second_region:
    region_begin
    .rept 1000
    ldr     x3, [x24]
    .endr
    isb
    region_end
    mov     x0, #100
    msr     pmevcntr0_el0, x0
    isb
    region_begin
    .rept 7
    ldr     x3, [x24]
    .endr
    isb
    mrs     x7, pmevcntr0_el0
    isb
    region_end
    str     x7, [x28]
    b       off

// A hundred of each, a region each.
    .macro hundred instruction:vararg
    region_begin
    .rept 100
    \instruction
    .endr
    region_end
    .endm
instructions:
    hundred nop
    hundred ldp x2, x3, [x24]
    hundred ldr q0, [x24]
    hundred ldp q0, q1, [x24]
    hundred stp q0, q1, [x24]
    hundred ld1 {{v0.16b-v3.16b}}, [x24]
    hundred st1 {{v0.16b-v3.16b}}, [x24]
    hundred ld4 {{v0.16b-v3.16b}}, [x24]
    hundred st4 {{v0.4s-v3.4s}}, [x24]
    region_begin
    .rept 100
    ldxr    x2, [x24]
    stxr    w3, x2, [x24]
    .endr
    region_end
    clrex
    hundred stxr w3, x2, [x24]
    b       off

// Reads and writes of counters while timer interrupts arrive.
interrupted:
    .rept 50
    ldr     x3, [x24]
    .endr
    mov     x0, #1
    msr     pmcntenclr_el0, x0
    movz    x0, #0x0800, lsl #16
    movk    x0, #0x06
    msr     pmevtyper1_el0, x0
    mov     x0, #2
    msr     pmcntenset_el0, x0
    isb
    bl      open_gic
    movz    w6, #0x400, lsl #16
    str     w6, [x4, #0x100]
    mov     x0, #0x10
    msr     hcr_el2, x0
    mov     x25, #0
    mov     x26, #0
    mov     x27, #0
    mov     x0, #23
    msr     cnthp_tval_el2, x0
    mov     x0, #1
    msr     cnthp_ctl_el2, x0
    isb
    msr     daifclr, #2
    mov     x22, #20000
1:  mrs     x0, pmevcntr0_el0
    cmp     x0, #50
    cinc    x25, x25, ne
    .rept 40
    ldr     x3, [x24]
    .endr
    add     x1, x22, #1000
    msr     pmevcntr1_el0, x1
    mrs     x2, pmevcntr1_el0
    sub     x2, x2, x1
    cmp     x2, #40
    cinc    x26, x26, hs
    subs    x22, x22, #1
    b.ne    1b
    msr     daifset, #2
    stp     x25, x26, [x28]
    str     x27, [x28, #16]
    b       off

// Every tenth of a hundred instructions is a load that faults: unaligned, with the MMU off. The
// handler skips it.
faults:
    add     x25, x24, #1
    region_begin
    .rept 10
    .rept 9
    nop
    .endr
    ldr     x3, [x25]
    .endr
    region_end
    b       off

// Every tenth of a hundred instructions reads a device.
devices:
    movz    x4, #0x0800, lsl #16
    region_begin
    .rept 10
    .rept 5
    nop
    .endr
    ldr     w5, [x4]
    .rept 4
    nop
    .endr
    .endr
    region_end
    b       off

// Counter 1 is EL2's (HPMN = 1). It counts and interrupts by HPME alone, and PMCR_EL0.P at EL1 does
// not reset it.
levels:
    mov     x0, #0x81
    msr     mdcr_el2, x0
    movz    x0, #0x0800, lsl #16
    movk    x0, #0x06
    msr     pmevtyper1_el0, x0
    mov     x0, #2
    msr     pmcntenset_el0, x0
    mrs     x1, pmcr_el0
    bic     x1, x1, #1
    msr     pmcr_el0, x1
    bl      open_gic
    movz    w6, #0x80, lsl #16
    str     w6, [x4, #0x100]
    mov     x0, #0x28
    msr     hcr_el2, x0
    mov     x0, #-10
    and     x0, x0, #0xffffffff
    msr     pmevcntr1_el0, x0
    mov     x0, #2
    msr     pmintenset_el1, x0
    isb
    mov     x22, #2000
1:  ldr     x3, [x24]
    subs    x22, x22, #1
    b.ne    1b
    mrs     x5, pmovsclr_el0
    mrs     x6, isr_el1
    stp     x5, x6, [x28]
    mov     x0, #2
    msr     pmintenclr_el1, x0
    msr     pmovsclr_el0, x0
    msr     pmcntenclr_el0, x0
    mov     x0, #984
    msr     pmevcntr1_el0, x0
    mov     x0, #55
    msr     pmevcntr0_el0, x0
    isb
    movz    x0, #0x8000, lsl #16
    msr     hcr_el2, x0
    adr     x0, 2f
    msr     elr_el2, x0
    mov     x0, #0x3c5
    msr     spsr_el2, x0
    isb
    eret
2:  mrs     x0, pmcr_el0
    orr     x0, x0, #2
    msr     pmcr_el0, x0
    isb
    hvc     #0
levels_return:
    mrs     x5, pmevcntr1_el0
    mrs     x6, pmevcntr0_el0
    stp     x5, x6, [x28, #16]
    // Counter 3 counts the overflows of counter 2, and both are about to overflow.
    movz    x0, #0x0800, lsl #16
    movk    x0, #0x06
    msr     pmevtyper2_el0, x0
    movk    x0, #0x1e
    msr     pmevtyper3_el0, x0
    mov     w0, #-10
    msr     pmevcntr2_el0, x0
    mov     w0, #-1
    msr     pmevcntr3_el0, x0
    mov     x0, #12
    msr     pmcntenset_el0, x0
    isb
    .rept 25
    ldr     x3, [x24]
    .endr
    isb
    mrs     x5, pmevcntr2_el0
    mrs     x6, pmevcntr3_el0
    mrs     x7, pmovsclr_el0
    stp     x5, x6, [x28, #32]
    str     x7, [x28, #48]
    b       off

// Wake-up latency of core 1 in WFI, woken by core 0.
messages:
    bl      open_gic
    add     x26, x20, #0x200
    movz    x0, #0xc400, lsl #16
    movk    x0, #3
    mov     x1, #1
    adr     x2, sleeper
    mov     x3, #0
    smc     #0
1:  ldr     x0, [x26]
    cbz     x0, 1b
    mov     x22, #200
    mov     x25, #0
    mov     x27, #0
2:  mov     x0, #4000
3:  subs    x0, x0, #1
    b.ne    3b
    str     xzr, [x26, #8]
    mov     w6, #0x20000
    mrs     x23, cntpct_el0
    str     w6, [x4, #0xf00]
4:  ldr     x0, [x26, #8]
    cbz     x0, 4b
    subs    x0, x0, x23
    csel    x0, xzr, x0, lo
    add     x25, x25, x0
    cmp     x0, x27
    csel    x27, x0, x27, hi
    subs    x22, x22, #1
    b.ne    2b
    stp     x25, x27, [x28]
    b       off
sleeper:
    movz    x20, #0x4300, lsl #16
    add     x26, x20, #0x200
    movz    x7, #0x0801, lsl #16
    mov     w6, #0xff
    str     w6, [x7, #4]
    mov     w5, #1
    str     w5, [x7]
    mov     x0, #0x10
    msr     hcr_el2, x0
    isb
    str     x5, [x26]
1:  wfi
    mrs     x0, cntpct_el0
    ldr     w6, [x7, #0xc]
    str     w6, [x7, #0x10]
    str     x0, [x26, #8]
    b       1b

// How late a core that runs alone sees its timer.
deadlines:
    bl      open_gic
    movz    w6, #0x400, lsl #16
    str     w6, [x4, #0x100]
    mov     x0, #0x10
    msr     hcr_el2, x0
    mov     x22, #200
    mov     x25, #0
    mov     x27, #0
1:  mov     x0, #2000
2:  subs    x0, x0, #1
    b.ne    2b
    mrs     x23, cntpct_el0
    add     x23, x23, #20
    add     x23, x23, x22
    msr     cnthp_cval_el2, x23
    mov     x0, #1
    msr     cnthp_ctl_el2, x0
    isb
3:  mrs     x0, isr_el1
    cbz     x0, 3b
    mrs     x0, cntpct_el0
    sub     x0, x0, x23
    add     x25, x25, x0
    cmp     x0, x27
    csel    x27, x0, x27, hi
    msr     cnthp_ctl_el2, xzr
    isb
    subs    x22, x22, #1
    b.ne    1b
    stp     x25, x27, [x28]
    b       off

// Core 0 computes; core 1 waits by WFE, then by YIELD.
polite:
    add     x26, x20, #0x200
    movz    x0, #0xc400, lsl #16
    movk    x0, #3
    mov     x1, #1
    adr     x2, 3f
    mov     x3, #0
    smc     #0
1:  ldr     x0, [x26]
    cbz     x0, 1b
    region_begin
    movz    x22, #2, lsl #16
2:  subs    x22, x22, #1
    b.ne    2b
    region_end
    str     x22, [x26]
    region_begin
    movz    x22, #2, lsl #16
4:  subs    x22, x22, #1
    b.ne    4b
    region_end
    b       off
3:  movz    x26, #0x4300, lsl #16
    add     x26, x26, #0x200
    mov     x0, #1
    str     x0, [x26]
5:  wfe
    ldr     x0, [x26]
    cbnz    x0, 5b
6:  yield
    b       6b

// A region that is begun twice.
nested:
    region_begin
    .rept 10
    ldr     x3, [x24]
    .endr
    region_begin
    .rept 5
    ldr     x3, [x24]
    .endr
    region_end
    b       off

// Times of code in the L1, of a pass over lines in the L2, and of one over lines in memory, in
// ticks of the timer; and the first again in cycles, by the cycle counter and by counter 0.
    .macro pass_over lines
    mov     x1, x24
    movz    x2, #\lines
    ldr     x3, [x1], #64
    subs    x2, x2, #1
    b.ne    . - 8
    .endm
clock:
    movz    x0, #0x0800, lsl #16
    msr     pmccfiltr_el0, x0
    movk    x0, #0x11
    msr     pmevtyper0_el0, x0
    movz    x0, #0x8000, lsl #16
    movk    x0, #1
    msr     pmcntenset_el0, x0
    movz    x0, #1000
    msr     pmevcntr0_el0, x0
    msr     pmccntr_el0, x0
    isb
    mrs     x10, cntpct_el0
    movz    x2, #0x4, lsl #16
1:  subs    x2, x2, #1
    b.ne    1b
    mrs     x11, cntpct_el0
    mrs     x12, pmccntr_el0
    mrs     x13, pmevcntr0_el0
    sub     x11, x11, x10
    sub     x12, x12, #1000
    sub     x13, x13, #1000
    stp     x11, x12, [x28]
    pass_over 4096
    pass_over 4096
    mrs     x10, cntpct_el0
    pass_over 4096
    mrs     x11, cntpct_el0
    sub     x11, x11, x10
    stp     x13, x11, [x28, #16]
    movz    x2, #0x10, lsl #16
    add     x24, x24, x2
    mrs     x10, cntpct_el0
    pass_over 32768
    mrs     x11, cntpct_el0
    sub     x11, x11, x10
    str     x11, [x28, #32]
    b       off

// What cores overlap, a region each: a chain in the L1; loads that nobody uses; a stream of loads;
// loads that are independent, too far apart for a stream; whole lines written; a word of each line
// written; code, from memory and from the L2.
mechanisms:
    str     x24, [x24]
    mov     x0, x24
    mov     x2, #1000
    region_begin
1:  .rept   8
    ldr     x0, [x0]
    .endr
    subs    x2, x2, #1
    b.ne    1b
    region_end
    mov     x2, #1000
    region_begin
1:  .rept   8
    ldr     x0, [x24]
    .endr
    subs    x2, x2, #1
    b.ne    1b
    region_end
    movz    x3, #0x10, lsl #16
    add     x9, x24, x3
    mov     x2, #4096
    region_begin
1:  ldr     x0, [x9], #64
    add     x4, x4, x0
    subs    x2, x2, #1
    b.ne    1b
    region_end
    add     x9, x9, x3
    mov     x2, #1024
    region_begin
1:  ldr     x0, [x9]
    ldr     x5, [x9, #320]
    ldr     x6, [x9, #640]
    ldr     x7, [x9, #960]
    add     x4, x0, x5
    add     x4, x4, x6
    add     x4, x4, x7
    add     x9, x9, #1280
    subs    x2, x2, #1
    b.ne    1b
    region_end
    add     x9, x9, x3
    mov     x2, #4096
    region_begin
1:  stp     xzr, xzr, [x9]
    stp     xzr, xzr, [x9, #16]
    stp     xzr, xzr, [x9, #32]
    stp     xzr, xzr, [x9, #48]
    add     x9, x9, #64
    subs    x2, x2, #1
    b.ne    1b
    region_end
    add     x9, x9, x3
    mov     x2, #4096
    region_begin
1:  str     xzr, [x9], #64
    subs    x2, x2, #1
    b.ne    1b
    region_end
    region_begin
    bl      long
    region_end
    region_begin
    bl      long
    region_end
    b       off

// Two cores that each add to a word: of one line, or of two.
shared_line:
    mov     x27, #8
    b       1f
separate_lines:
    mov     x27, #4096
1:  add     x26, x20, #0x2000
    str     x27, [x26, #0x100]
    movz    x0, #0xc400, lsl #16
    movk    x0, #3
    mov     x1, #1
    adr     x2, adds_too
    mov     x3, #0
    smc     #0
1:  ldr     x0, [x26, #0x108]
    cbz     x0, 1b
    movz    x2, #20000
    region_begin
1:  ldr     x0, [x26]
    add     x0, x0, #1
    str     x0, [x26]
    subs    x2, x2, #1
    b.ne    1b
    region_end
    b       off
adds_too:
    movz    x20, #0x4300, lsl #16
    add     x26, x20, #0x2000
    ldr     x27, [x26, #0x100]
    mov     x0, #1
    str     x0, [x26, #0x108]
1:  ldr     x0, [x26, x27]
    add     x0, x0, #1
    str     x0, [x26, x27]
    b       1b

// Loads from pages at EL1, behind stage 2 by pages of 4 KiB or blocks of 2 MiB; program 17: behind
// stage 1 by pages of 4 KiB as well. A region each: 8, 64 and 2048 pages, a load each, four times;
// then 64 pages after TLBI.
    .macro tour pages
    mov     x3, #4
1:  movz    x9, #0x4400, lsl #16
    mov     x2, #\pages
2:  ldr     x0, [x9]
    add     x9, x9, #0x1000
    add     x9, x9, #64
    subs    x2, x2, #1
    b.ne    2b
    subs    x3, x3, #1
    b.ne    1b
    .endm
blocks:
    mov     x22, #1
    b       1f
both_stages:
    mov     x22, #2
    b       1f
pages:
    mov     x22, #0
1:  movz    x19, #0x4600, lsl #16
    // Level 1: the second GiB.
    add     x0, x19, #0x1000
    orr     x0, x0, #3
    str     x0, [x19, #8]
    // Level 2: 64 blocks, or tables from x19 + 0x10000 on, whose 32768 pages follow each other.
    movz    x4, #0x4000, lsl #16
    add     x4, x4, #0x7fd
    add     x5, x19, #0x10, lsl #12
    orr     x5, x5, #3
    add     x6, x19, #0x1000
    mov     x2, #64
2:  cmp     x22, #1
    csel    x0, x4, x5, eq
    str     x0, [x6], #8
    add     x4, x4, #0x200, lsl #12
    add     x5, x5, #0x1000
    subs    x2, x2, #1
    b.ne    2b
    movz    x4, #0x4000, lsl #16
    add     x4, x4, #0x7ff
    add     x5, x19, #0x10, lsl #12
    mov     x2, #0x8000
3:  str     x4, [x5], #8
    add     x4, x4, #0x1000
    subs    x2, x2, #1
    b.ne    3b
    // Stage 1: the same addresses, by a level 1 of its own and a level 2 at x19 + 0x3000 with the
    // tables of stage 2.
    add     x0, x19, #0x3000
    orr     x0, x0, #3
    add     x6, x19, #0x2000
    str     x0, [x6, #8]
    add     x6, x19, #0x3000
    add     x5, x19, #0x60, lsl #12
    orr     x5, x5, #3
    mov     x2, #64
4:  str     x5, [x6], #8
    add     x5, x5, #0x1000
    subs    x2, x2, #1
    b.ne    4b
    movz    x4, #0x4000, lsl #16
    add     x4, x4, #0x703
    add     x5, x19, #0x60, lsl #12
    mov     x2, #0x8000
5:  str     x4, [x5], #8
    add     x4, x4, #0x1000
    subs    x2, x2, #1
    b.ne    5b
    dsb     ish
    movz    x0, #0x8002, lsl #16
    movk    x0, #0x3559
    msr     vtcr_el2, x0
    movz    x0, #1, lsl #48
    orr     x0, x0, x19
    msr     vttbr_el2, x0
    movz    x0, #0x8000, lsl #16
    orr     x0, x0, #1
    msr     hcr_el2, x0
    // Stage 1: 39 bits, write-back walks; all memory is write-back.
    mov     x0, #0xff
    msr     mair_el1, x0
    movz    x0, #2, lsl #32
    movk    x0, #0x80, lsl #16
    movk    x0, #0x3519
    msr     tcr_el1, x0
    add     x0, x19, #0x2000
    msr     ttbr0_el1, x0
    movz    x0, #0x30d0, lsl #16
    movk    x0, #0x0800
    cmp     x22, #2
    cinc    x0, x0, eq
    msr     sctlr_el1, x0
    adr     x0, 6f
    msr     elr_el2, x0
    mov     x0, #0x3c5
    msr     spsr_el2, x0
    isb
    eret
6:  cmp     x21, #18
    b.eq    7f
    region_begin
    tour    8
    region_end
    region_begin
    tour    64
    region_end
    region_begin
    tour    2048
    region_end
    tour    64
    region_begin
    tlbi    vmalle1is
    dsb     ish
    isb
    tour    64
    region_end
    b       off
    // Program 18, for the benchmark: 2048 pages as often as the word after the program's number
    // says.
7:  ldr     x22, [x20, #8]
    region_begin
8:  cbz     x22, 9f
    tour    2048
    sub     x22, x22, #1
    b       8b
9:  region_end
    b       off

open_gic:
    movz    x4, #0x0800, lsl #16
    mov     w5, #1
    str     w5, [x4]
    movz    x7, #0x0801, lsl #16
    mov     w6, #0xff
    str     w6, [x7, #4]
    str     w5, [x7]
    ret

    .balign 0x800
vectors:
    .space  0x200
    // A fault at EL2: skip its instruction.
    mrs     x10, elr_el2
    add     x10, x10, #4
    msr     elr_el2, x10
    eret
    .balign 0x80
    // An interrupt at EL2: the next one comes soon, at another distance.
    ldr     w10, [x7, #0xc]
    add     x27, x27, #1
    and     x11, x27, #31
    add     x11, x11, #17
    msr     cnthp_tval_el2, x11
    str     w10, [x7, #0x10]
    eret
    .balign 0x400
    // A call from EL1.
    b       levels_return
    .balign 0x400
    // 64 KiB.
long:
    .rept   16383
    nop
    .endr
    ret
    "#
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
