#!/bin/busybox sh
# The first process of a kernel that has virtio as modules: loads them and goes on with init.sh in the real root.
# Beside this file lies settings.sh with: init (its path in the real root).
# Whatever fails here ends process 1, and so the guest, with busybox's message on the console.

. /settings.sh
for module in /modules/*; do
	/bin/busybox insmod "$module" || exit 1
done
/bin/busybox mount -t virtiofs -o ro root-of-host /root || exit 1
exec /bin/busybox switch_root /root "$init"
