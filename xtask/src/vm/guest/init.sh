#!/bin/busybox sh
# The first process of a guest: runs each script of /job in a directory of its own, and writes an archive of their files to its disk. All
# kernels have the disk's driver built in, and a serial port would take a minute: each byte is an exit of the emulator. /job/list has the names
# of the scripts, each with its time limit in seconds.
/bin/busybox --install -s /bin
export PATH=/opt/bin:/bin HOME=/root WORK=/work
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm /work /out /root /tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /work
mount -t tmpfs tmpfs /out
mount -t tmpfs tmpfs /tmp
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount -t securityfs securityfs /sys/kernel/security
ip link set lo up
while read -r name seconds; do
    echo "klock-vm: $name"
    mkdir -p /out/$name
    cd /out/$name
    timeout -s KILL $seconds sh -x /job/$name > log 2>&1
    echo $? > status
    cut -d ' ' -f 1 /proc/uptime > uptime
    dmesg > dmesg
done < /job/list
cd /out
echo "klock-vm: sending"
until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
tar c . > /dev/nvme0n1
sync
echo "klock-vm: done"
# Setting the line waits until everything is written; powering off does not.
stty -F /dev/ttyS0 -echo
sleep 1
poweroff -f
