/* First instructions of the guest: MMU, caches and floating point on, stack set, then main(x0, x1, x2, x3). */

/* Nothing is written to memory before the caches are on: an earlier store would bypass them and could be overwritten by
   a line that the VM's previous life left there. */
    .section .text.start, "ax"
    .global _start
_start:
    mov     x19, x0
    mov     x20, x1
    mov     x21, x2
    mov     x22, x3
    mov     x0, #(3 << 20)              // CPACR_EL1.FPEN: no trap of floating point
    msr     cpacr_el1, x0
    ldr     x0, =0xff04                 // attribute 0: Device-nGnRE; 1: Normal write-back
    msr     mair_el1, x0
    ldr     x0, =0x200803519            // 39-bit addresses, 4 KiB granule, cacheable table walks, no TTBR1
    msr     tcr_el1, x0
    adrp    x0, tables
    msr     ttbr0_el1, x0
    adrp    x0, vectors
    add     x0, x0, :lo12:vectors
    msr     vbar_el1, x0
    isb
    tlbi    vmalle1
    ic      iallu
    dsb     nsh
    isb
    ldr     x0, =0x30d0180d             // the bits that are always one, instruction and data cache, MMU
    msr     sctlr_el1, x0
    isb
    adrp    x0, __bss_start
    add     x0, x0, :lo12:__bss_start
    adrp    x1, __bss_end
    add     x1, x1, :lo12:__bss_end
1:  cmp     x0, x1
    b.hs    2f
    stp     xzr, xzr, [x0], #16
    b       1b
2:  adrp    x0, __stack_top
    add     sp, x0, :lo12:__stack_top
    mov     x29, xzr
    mov     x30, xzr
    mov     x0, x19
    mov     x1, x20
    mov     x2, x21
    mov     x3, x22
    bl      main
off:
    ldr     w0, =0x84000008             // PSCI SYSTEM_OFF
    hvc     #0
    b       off
    .ltorg

/* All exceptions: print a line and turn the VM off. Interrupts are masked until the program unmasks them. */
    .balign 2048
vectors:
    .rept   16
    .balign 128
    b       exception
    .endr
exception:
    mrs     x0, esr_el1
    mrs     x1, elr_el1
    mrs     x2, far_el1
    bl      cloison_exception
    b       off

/* Identity map in blocks of 1 GiB: the first holds the devices, the others RAM. */
    .section .rodata.tables, "a"
    .balign 4096
tables:
    .quad   0x0060000000000401          // device, never executed
    .set    gib, 1
    .rept   511
    .quad   (gib << 30) | 0x0040000000000705
    .set    gib, gib + 1
    .endr
