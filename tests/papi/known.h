/* Code whose instructions and accesses are known, and output. */
/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdint.h>
#if __STDC_HOSTED__
#include <stdio.h>
#else
#include "cloison.h"
#endif

/* Executes 2 * turns instructions. */
#define INSTRUCTIONS(turns)                                                                                    \
    do {                                                                                                       \
        uint64_t left = (turns);                                                                               \
        __asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(left) : : "cc");                               \
    } while (0)

/* Loads one word from each of so many lines from `from` on: 3 * lines instructions. */
#define LOADS(from, lines)                                                                                     \
    do {                                                                                                       \
        uint64_t left = (lines), word;                                                                         \
        const volatile void *at = (from);                                                                      \
        __asm__ volatile("1: ldr %2, [%0], #64\n\tsubs %1, %1, #1\n\tb.ne 1b"                                  \
                         : "+r"(at), "+r"(left), "=&r"(word)                                                   \
                         :                                                                                     \
                         : "cc", "memory");                                                                    \
    } while (0)

/* Prints `known: what=number`, less than zero too. */
static inline void say(const char *what, long long number)
{
#if __STDC_HOSTED__
    printf("known: %s=%lld\n", what, number);
#else
    cloison_puts("known: ");
    cloison_puts(what);
    cloison_puts(number < 0 ? "=-" : "=");
    cloison_putu((uint64_t)(number < 0 ? -number : number));
    cloison_puts("\n");
#endif
}
