# Two domains and a dom0, with colors
MEMORY_START="0x0"
MEMORY_END="0x80000000"
DIR="images"
DEVICE_TREE="mpsoc.dtb"
XEN="xen"
XEN_CMD="console=dtuart dom0_mem=1G sched=credit2"
XEN_COLORS="15"
DOM0_KERNEL="$DIR/Image-dom0"
DOM0_RAMDISK="${DIR}/dom0.cpio"
DOM0_VCPUS=1
DOM0_COLORS="0-3"

NUM_DOMUS=2
DOMU_KERNEL[0]="${DIR}/Image-domU"
DOMU_RAMDISK[0]="domU.cpio"   # the first one's
DOMU_CMD[0]="console=ttyAMA0 rdinit=/sbin/init"
DOMU_COLORS[0]="4-9"
DOMU_MEM[0]=256
DOMU_PASSTHROUGH_PATHS[0]="/axi/ethernet@ff0e0000"
DOMU_KERNEL[1]='Image-domU'
DOMU_VCPUS[1]=2
DOMU_VCPU_HARD_AFFINITY[1,0]="1"
DOMU_VCPU_HARD_AFFINITY[1,1]="3"
DOMU_COLORS[1]="10-14"
DOMU_STATIC_MEM[1]="0x50000000 0x10000000"
DOMU_DIRECT_MAP[1]=1
DOMU_ENHANCED[1]=0
if test "$WITH_SHARED"; then
  DOMU_SHARED_MEM[0]="a 0x60000000 0x4000000 0x1000"
fi
UBOOT_SOURCE="boot.source"
UBOOT_SCRIPT="boot.scr"
