#!/bin/bash
# Second stage, inside the overlay: what a booted Linux has, then the command, then its results, then off.

. "${0%/*}/settings.sh"

mount -t tmpfs -o mode=755 run /run
# devtmpfs has devices alone; programs expect these names too (nft reads /dev/stdin).
ln -s /proc/self/fd /dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do
	ln -s "/proc/self/fd/${stream%:*}" "/dev/${stream#*:}"
done
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t tracefs trace /sys/kernel/tracing
umount -l /.host

# Modules where the kernel and other programs look for them. The kernel starts modprobe with an environment of its
# own, so the libraries that kmod needs are named in a script.
mkdir -p /lib/modules /run/kmod
ln -sfn "$modules/lib/modules/$release" "/lib/modules/$release"
ln -s "$kmod" /run/kmod/modprobe
printf '#!/bin/sh\nLD_LIBRARY_PATH="%s" exec /run/kmod/modprobe "$@"\n' "$libraries" >/run/modprobe
chmod 755 /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
[ -x /sbin/modprobe ] || ln -sf /run/modprobe /sbin/modprobe

command -v ip >/dev/null && ip link set lo up
ulimit -n 65536
mkdir -p /out /dev/virtio-ports
for port in /sys/class/virtio-ports/*; do
	read -r name <"$port/name" && ln -s "../${port##*/}" "/dev/virtio-ports/$name"
done

# Opened before the command runs: it may start a udev, which replaces the names of ports.
exec 3>/dev/virtio-ports/files 4>/dev/virtio-ports/status
echo begun >&4
"$folder/command" </dev/null >/dev/virtio-ports/stdout 2>/dev/virtio-ports/stderr 3>&- 4>&-
status=$?
tar -C /out -cf - . >&3
# Last, because a status vouches for everything before it.
echo "$status" >&4
echo o >/proc/sysrq-trigger
sleep 60
