/* A root cell with colors in its regions: 4 private and 12 shared. */
#include <jailhouse/types.h>
#include <jailhouse/cell-config.h>

#define RAM_FLAGS (JAILHOUSE_MEM_READ | JAILHOUSE_MEM_WRITE | JAILHOUSE_MEM_EXECUTE)

struct {
	struct jailhouse_system header;
	__u64 cpus[1];
	struct jailhouse_memory mem_regions[9];
	struct jailhouse_irqchip irqchips[1];
	struct jailhouse_pci_device pci_devices[1];
} __attribute__((packed)) config = {
	.header = {
		.signature = JAILHOUSE_SYSTEM_SIGNATURE,
		.revision = JAILHOUSE_CONFIG_REVISION,
		.hypervisor_memory = { .phys_start = 0x7e000000, .size = 0x01000000 },
		.platform_info = {
			.color = { .root_map_offset = 0x0C000000000 },
			.arm = { .gic_version = 2, .gicd_base = 0xf9010000 },
			.memguard = { .num_irqs = 188, .pmu_cpu_irq = { 175, 176, 177, 178 } },
		},
		.root_cell = {
			.name = "Board " "PVT+SH",
			.cpu_set_size = sizeof(config.cpus),
			.num_memory_regions = ARRAY_SIZE(config.mem_regions),
		},
	},
	.cpus = { 0xf },
	.mem_regions = {
		JAILHOUSE_SHMEM_NET_REGIONS(0x7d000000, 0),
		/* MMIO */ {
			.phys_start = 0xff0a0000,
			.virt_start = 0xff0a0000,
			.size = 0x1000,
			.flags = JAILHOUSE_MEM_READ | JAILHOUSE_MEM_WRITE | JAILHOUSE_MEM_IO,
		},
		/* shared */ {
			.phys_start = 0x0,
			.virt_start = 0x10000000,
			.size = 0x20000000,
			.flags = RAM_FLAGS | JAILHOUSE_MEM_COLORED,
			.colors = 0x0fff,
		},
		/* private */ {
			.phys_start = 0x0,
			.virt_start = 0x60000000,
			.size = 0x08000000,
			.flags = RAM_FLAGS | JAILHOUSE_MEM_COLORED | JAILHOUSE_MEM_COLORED_NO_COPY,
			.colors = 0xf000,
		},
	},
	.irqchips = {
		{ .address = 0xf9010000, .pin_base = 32, .pin_bitmap = { [0 ... 3] = 0xffffffff } },
	},
	.pci_devices = {
		{ .type = JAILHOUSE_PCI_TYPE_IVSHMEM, .shmem_regions_start = 0, .shmem_peers = 2 },
	},
};
