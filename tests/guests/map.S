// A bare-metal program that is linked for one machine and knows nothing of Cloison: where its devices are is fixed when it is
// assembled. It prints on its UART, takes the UART's transmit interrupt through its GICv2, and turns the machine off.
// MAP, GICD, GICC, UART and IRQ are defined on the command line, and CADENCE for that kind of UART.
// SPDX-License-Identifier: MIT OR Apache-2.0

#ifdef CADENCE
#define DATA 0x30       // TX_RX_FIFO (UG1087, module UART)
#define STATUS 0x2c     // Channel_sts
#define FULL 4          // TFUL
#define ENABLE 0x08     // Intrpt_en
#define DISABLE 0x0c    // Intrpt_dis
#define EMPTY 0x8       // TEMPTY
#else
#define DATA 0x00       // UARTDR (Arm DDI 0183, 3.3)
#define STATUS 0x18     // UARTFR
#define FULL 5          // TXFF
#define ENABLE 0x38     // UARTIMSC
#define EMPTY 0x20      // TXIM
#endif

// Prints the text at x0, which a zero ends. The MMU is off: nothing is stored in memory.
.macro print text
    adr     x0, \text
1:  ldrb    w1, [x0], #1
    cbz     w1, 3f
2:  ldr     w2, [x20, #STATUS]
    tbnz    w2, #FULL, 2b
    str     w1, [x20, #DATA]
    b       1b
3:
.endm

    .text
    .global _start
_start:
    ldr     x20, =UART
    ldr     x21, =GICD
    ldr     x22, =GICC
    print   hello

    // The UART's interrupt on (GICD_ISENABLER), at a middle priority, to CPU 0; distributor and interface on.
    mov     w1, #(1 << (IRQ % 32))
    str     w1, [x21, #(0x100 + IRQ / 32 * 4)]
    mov     w1, #0x80
    add     x2, x21, #0x400
    strb    w1, [x2, #IRQ]
    mov     w1, #1
    add     x2, x21, #0x800
    strb    w1, [x2, #IRQ]
    str     w1, [x21]
    mov     w2, #0xff
    str     w2, [x22, #4]
    str     w1, [x22]

    // Bytes were sent, so it comes as soon as it may. It is acknowledged without being taken.
    mov     w1, #EMPTY
    str     w1, [x20, #ENABLE]
4:  ldr     w3, [x22, #0xc]
    and     w4, w3, #0x3ff
    cmp     w4, #IRQ
    b.ne    4b
#ifdef CADENCE
    str     w1, [x20, #DISABLE]
#else
    str     wzr, [x20, #ENABLE]
#endif
    str     w3, [x22, #0x10]
    print   interrupt

    // PSCI SYSTEM_OFF.
    movz    w0, #0x0008
    movk    w0, #0x8400, lsl #16
    hvc     #0
    b       .

hello:      .asciz  "built for " MAP "\n"
interrupt:  .asciz  "interrupt taken\n"
