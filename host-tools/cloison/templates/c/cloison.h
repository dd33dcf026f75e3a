/* Cloison's interface for guests in C: constants, hypercalls, the console. `cloison new` generates this file from the
 * hypervisor's own definitions; docs/guests.md explains it. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef CLOISON_H
#define CLOISON_H

#include <stdint.h>

@CONSTANTS@
/* Accesses to device registers: one plain load or store each. A compiler may turn a loop over volatile pointers into
 * accesses with write-back, such as `ldr w0, [x1], #4`. When such an access traps, the processor does not say what it reads
 * or writes (Arm ARM DDI 0487, ESR_EL2.ISV). */
#define CLOISON_ACCESS(bits, suffix, form)                                             \
    static inline uint##bits##_t cloison_read##bits(uintptr_t address)                  \
    {                                                                                   \
        uint##bits##_t value;                                                           \
        __asm__ volatile("ldr" suffix " %" form "0, [%1]"                               \
                         : "=r"(value) : "r"(address) : "memory");                      \
        return value;                                                                   \
    }                                                                                   \
    static inline void cloison_write##bits(uintptr_t address, uint##bits##_t value)     \
    {                                                                                   \
        __asm__ volatile("str" suffix " %" form "0, [%1]"                               \
                         : : "r"(value), "r"(address) : "memory");                      \
    }
CLOISON_ACCESS(8, "b", "w")
CLOISON_ACCESS(16, "h", "w")
CLOISON_ACCESS(32, "", "w")
CLOISON_ACCESS(64, "", "x")
#undef CLOISON_ACCESS

/* What a call returns in x0 to x3. */
struct cloison_reply {
    uint64_t x[4];
};

/* Makes a call: SMC Calling Convention, function in w0, arguments in x1 to x3. */
static inline struct cloison_reply cloison_call(uint32_t function, uint64_t a1, uint64_t a2, uint64_t a3)
{
    register uint64_t x0 __asm__("x0") = function;
    register uint64_t x1 __asm__("x1") = a1;
    register uint64_t x2 __asm__("x2") = a2;
    register uint64_t x3 __asm__("x3") = a3;
    __asm__ volatile("hvc #0" : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3) : : "memory");
    return (struct cloison_reply){{x0, x1, x2, x3}};
}

/* The VM and vCPU that call. `services` has the bits CLOISON_SERVICE_*. */
struct cloison_identity {
    uint64_t version, services, vm, vcpu;
};

static inline struct cloison_identity cloison_identify(void)
{
    struct cloison_reply reply = cloison_call(CLOISON_CALL_IDENTIFY, 0, 0, 0);
    return (struct cloison_identity){reply.x[0], reply.x[1], reply.x[2], reply.x[3]};
}

/* Starts an observation segment, which is also a region of interest of the board model. Returns 0 or CLOISON_ERROR_*. */
static inline int64_t cloison_segment_begin(uint32_t workload, uint32_t sub_experiment, uint32_t run)
{
    __asm__ volatile("hint %0\n\tisb" : : "i"(CLOISON_MODEL_BEGIN_WARM) : "memory");
    return (int64_t)cloison_call(CLOISON_CALL_SEGMENT_BEGIN, workload, sub_experiment, run).x[0];
}

/* Ends the segment and stores its cycles. Returns 0 or CLOISON_ERROR_*. */
static inline int64_t cloison_segment_end(uint64_t *cycles)
{
    struct cloison_reply reply = cloison_call(CLOISON_CALL_SEGMENT_END, 0, 0, 0);
    __asm__ volatile("hint %0\n\tisb" : : "i"(CLOISON_MODEL_END) : "memory");
    *cycles = reply.x[1];
    return (int64_t)reply.x[0];
}

/* Returns the nanoseconds since reset. */
static inline uint64_t cloison_time(void)
{
    return cloison_call(CLOISON_CALL_TIME, 0, 0, 0).x[1];
}

/* Turns the VM off. */
static inline void cloison_system_off(void)
{
    cloison_call(CLOISON_PSCI_SYSTEM_OFF, 0, 0, 0);
}

/* Prints one byte on the VM's console. */
static inline void cloison_putc(char byte)
{
    while (cloison_read32(CLOISON_MAP_UART + CLOISON_UART_FR) & CLOISON_UART_FR_TXFF)
        ;
    cloison_write32(CLOISON_MAP_UART + CLOISON_UART_DR, (unsigned char)byte);
}

static inline void cloison_puts(const char *text)
{
    while (*text)
        cloison_putc(*text++);
}

/* Prints a number in a base up to 16. */
static inline void cloison_putn(uint64_t number, unsigned base)
{
    char digits[64];
    unsigned length = 0;
    do {
        digits[length++] = "0123456789abcdef"[number % base];
        number /= base;
    } while (number > 0);
    while (length > 0)
        cloison_putc(digits[--length]);
}

static inline void cloison_putu(uint64_t number)
{
    cloison_putn(number, 10);
}

static inline void cloison_putx(uint64_t number)
{
    cloison_putn(number, 16);
}

#endif
