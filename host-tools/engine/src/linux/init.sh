#!/bin/busybox sh
# The first process of Cloison's Linux VMs: what a shell needs, then the configuration's command or a shell on the
# console, again and again.
# SPDX-License-Identifier: MIT OR Apache-2.0
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmp /tmp
mkdir /dev/shm
mount -t tmpfs shm /dev/shm
export PATH=/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TERM=vt100 PS1='\h:\w# '
# The kernel's later messages would tear what programs print; dmesg has them.
dmesg -n 4
# Kernels before 5.19 know no hostname= of their own.
hostname "$(sed -n 's/.*hostname=\([^ ]*\).*/\1/p' /proc/cmdline)"
# The console's device, by the kind of the VM's UART.
for tty in /dev/ttyAMA0 /dev/ttyPS0; do [ -c $tty ] && break; done
# What is written to the console waits in the kernel, and turning the VM off would lose it. Setting a terminal's modes waits
# until it is out.
off() {
    stty -F $tty sane
    poweroff -f
}
# Drivers of the VM's links and channels.
for module in /lib/modules/*.ko; do [ -e "$module" ] && insmod "$module"; done
cd /root
echo "cloison: $(hostname) is up: Linux $(uname -r), $(nproc) vCPUs"
# The kernel goes on with a part of the RAM disk. What is missing then would be missed later, and not understood.
if dmesg | grep -q 'Initramfs unpacking failed'; then
    echo "cloison: the RAM disk does not fit: it may fill half of the memory. Give the VM more, or fewer packages."
    off
fi
# `root=` of the command line: the first process of a device's root file system takes over.
root=$(sed -n 's/^\(.* \)*root=\([^ ]*\).*/\2/p' /proc/cmdline)
if [ "$root" ]; then
    # A card is found some time after its driver is loaded.
    for wait in $(seq 50); do [ -b "$root" ] && break; sleep 0.1; done
    mkdir /mnt
    if mount "$root" /mnt && [ -x /mnt/sbin/init ]; then
        for place in dev proc sys; do mount --move /$place /mnt/$place; done
        exec switch_root /mnt /sbin/init
    fi
    umount /mnt 2>/dev/null
    echo "cloison: $root has no root file system with /sbin/init: this is the RAM disk"
fi
# A command of the configuration, in place of the shell.
if [ -e /exec ]; then
    sh /exec </dev/null
    echo "cloison: the command ended with status $?"
    off
fi
while :; do
    setsid -c sh -i <$tty >$tty 2>&1
done
