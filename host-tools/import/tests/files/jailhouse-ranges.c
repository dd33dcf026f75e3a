/* A cell whose colors are ranges for all of its colored regions. */
#include <jailhouse/cell-config.h>
#include "ranges.h"

struct {
	struct jailhouse_cell_desc cell;
	__u64 cpus[1];
	struct jailhouse_memory mem_regions[1];
	struct jailhouse_cache cache_regions[2];
	struct jailhouse_irqchip irqchips[1];
} __attribute__((packed)) config = {
	.cell = {
		.name = "ranges-" STRING(CELL),
		.cpu_reset_address = 0x100,
	},
	.cpus = { 1 << (CELL + 1) },
	.mem_regions = {
		{
			.phys_start = 0x50000000,
			.virt_start = 0x0,
			.size = 4 * MEBIBYTE,
			.flags = JAILHOUSE_MEM_READ | JAILHOUSE_MEM_WRITE | JAILHOUSE_MEM_EXECUTE |
				JAILHOUSE_MEM_LOADABLE | JAILHOUSE_MEM_COLORED,
		},
	},
	.cache_regions = {
		{ .start = 0, .size = 2 },
		{ .start = 8, .size = 3 },
	},
	.irqchips = {
		{ .address = 0xf9010000, .pin_base = 64, .pin_bitmap = { 0x6 } },
	},
};
