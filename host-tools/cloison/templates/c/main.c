/* @NAME@: sums a buffer in observation segments and prints what each cost. */
#include "cloison.h"

enum { WORDS = 64 * 1024 };
static volatile uint64_t buffer[WORDS];

/* The arguments are those of the configuration: x0 to x3 of the first instruction. */
int main(uint64_t runs)
{
    struct cloison_identity self = cloison_identify();
    cloison_puts("hello from @NAME@: VM ");
    cloison_putu(self.vm);
    cloison_puts(", vCPU ");
    cloison_putu(self.vcpu);
    cloison_puts(", interface ");
    cloison_putu(self.version);
    cloison_puts("\n");
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t cycles = 0;
        int64_t error = cloison_segment_begin(/* workload */ 100, /* sub-experiment */ 0, (uint32_t)run);
        for (int word = 0; word < WORDS; word++)
            buffer[word] += 1;
        if (error == 0)
            error = cloison_segment_end(&cycles);
        cloison_puts("@NAME@: run=");
        cloison_putu(run);
        cloison_puts(error == 0 ? " cycles=" : " no segment: error -");
        cloison_putu(error == 0 ? cycles : (uint64_t)-error);
        cloison_puts("\n");
    }
    return 0; /* The VM is turned off. */
}
