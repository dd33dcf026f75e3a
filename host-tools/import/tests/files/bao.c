/* Two VMs on a ZCU102: 4 private colors for the first one. */
#include <config.h>
#include <stdint.h>

#define MB(number)      ((number) * 1024 * 1024UL)
#define QUARTER         0xf
#define COLORS(quarter) (QUARTER << (4 * (quarter)))
#if defined(WITH_NETWORK) && WITH_NETWORK > 0
#define DEVICES 2
#else
#define DEVICES 1
#endif

VM_IMAGE(control_image, XSTR(IMAGES/control.bin))
VM_IMAGE(vision_image, XSTR(IMAGES/vision.bin))

static struct vm_mem_region vision_memory[] = {
    { .base = 0x40000000, .size = MB(96) },
};

struct config config = {
    CONFIG_HEADER
    .shmemlist_size = 1,
    .shmemlist = (struct shmem[]) { [0] = { .size = 0x1000 } },
    .vmlist_size = 2,
    .vmlist = (struct vm_config[]) {
        {
            .image = {
                .base_addr = 0x20000000,
                .load_addr = VM_IMAGE_OFFSET(control_image),
                .size = VM_IMAGE_SIZE(control_image),
            },
            .entry = 0x20000040,
            .cpu_affinity = 1 << 2,
            .colors = COLORS(0),
            .platform = {
                .cpu_num = 1,
                .region_num = 1,
                .regions = (struct vm_mem_region[]) {
                    { .base = 0x20000000, .size = MB(16), .place_phys = true, .phys = 0x20000000 },
                },
                .dev_num = DEVICES,
                .devs = (struct vm_dev_region[]) {
                    { .pa = 0xff000000, .va = 0xff000000, .size = 0x10000,
                      .interrupt_num = 1, .interrupts = (irqid_t[]) { 53 } },
                    { .interrupt_num = 1, .interrupts = (irqid_t[]) { 27 } },
                    { .pa = 0xff110000, .va = 0x10000000, .size = 0x1000,
                      .interrupt_num = 2, .interrupts = (irqid_t[]) { 68, 69 }, .id = 0x874 },
                },
                .ipc_num = 1,
                .ipcs = (struct ipc[]) { { .base = 0x70000000, .size = 0x1000 } },
                .arch.gic = { .gicd_addr = 0xF9010000, .gicc_addr = 0xF9020000 },
            },
        },
        {
            .image = {
                .base_addr = 0x40000000,
                .load_addr = VM_IMAGE_OFFSET(vision_image),
                .size = VM_IMAGE_SIZE(vision_image),
            },
            .entry = 0x40000000,
            .colors = COLORS(1) | COLORS(2),
            .platform = {
                .cpu_num = 2,
                .region_num = 1,
                .regions = vision_memory,
                .arch = { .gic = { .gicd_addr = 0xF9010000 } },
            },
        },
    },
};
