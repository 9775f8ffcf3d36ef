# Takes away one facility or privilege at a time. The setpriv of busybox cannot do this.
record='klock record -a -d 1s -f -o t.parquet'
[ $contention = true ] || try contention_begin $record --locks kernel --contended-only

echo 2 > /proc/sys/kernel/kptr_restrict
try kptr_restrict $record --locks kernel
echo 0 > /proc/sys/kernel/kptr_restrict

mount -o bind /dev/null /sys/kernel/btf/vmlinux
try BTF $record --locks kernel
umount /sys/kernel/btf/vmlinux

for capability in bpf perfmon syslog sys_ptrace; do
    try CAP_$(echo $capability | tr a-z A-Z) /opt/bin/setpriv --bounding-set -$capability,-sys_admin $record
done
