/* What the compiler expects of every program, and what happens at an exception. */
#include "cloison.h"
#include <stddef.h>

void *memset(void *to, int value, size_t count)
{
    for (unsigned char *byte = to; count-- > 0; byte++)
        *byte = (unsigned char)value;
    return to;
}

void *memmove(void *to, const void *from, size_t count)
{
    unsigned char *target = to;
    const unsigned char *source = from;
    if (target < source)
        for (size_t at = 0; at < count; at++)
            target[at] = source[at];
    else
        while (count-- > 0)
            target[count] = source[count];
    return to;
}

void *memcpy(void *to, const void *from, size_t count)
{
    return memmove(to, from, count);
}

int memcmp(const void *one, const void *other, size_t count)
{
    const unsigned char *left = one, *right = other;
    for (size_t at = 0; at < count; at++)
        if (left[at] != right[at])
            return left[at] < right[at] ? -1 : 1;
    return 0;
}

/* start.S calls this and then turns the VM off. */
void cloison_exception(uint64_t esr, uint64_t elr, uint64_t far)
{
    cloison_puts("unexpected exception: ESR_EL1=0x");
    cloison_putx(esr);
    cloison_puts(" at 0x");
    cloison_putx(elr);
    cloison_puts(", FAR_EL1=0x");
    cloison_putx(far);
    cloison_puts("\n");
}
