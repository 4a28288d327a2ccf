#!/bin/bash
# Process 1 of the guest. Its root is the host's, read-only: this loads the overlay module, puts an overlay in memory
# over the root, and goes on in there with the second stage.
# Beside this file lies settings.sh with: folder (of the run), release and modules (of the kernel), kmod, libraries.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
. "${0%/*}/settings.sh"

give_up() {
	echo "guest init: $1" >/dev/ttyS0
	echo o >/proc/sysrq-trigger
	sleep 60
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev

# The module of the overlay is needed before /lib/modules can be made, so it is named by its own root.
(export LD_LIBRARY_PATH=$libraries && exec -a modprobe "$kmod" --dirname "$modules" overlay) ||
	give_up "could not load the overlay module"

mount -t tmpfs -o size=75% memory /run && mkdir /run/upper /run/work /run/root || give_up "could not make a tmpfs"
mount -t overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work overlay /run/root ||
	give_up "could not put the overlay over the root"
cd /run/root && mkdir -p .host && pivot_root . .host || give_up "could not change the root"
mount --move .host/proc proc
mount --move .host/sys sys
mount --move .host/dev dev
exec chroot . "$folder/stage" <dev/console >dev/console 2>&1
