#!/bin/bash
# In a guest: a tuning is kept, systemd starts as process 1 of a namespace of its own with udev beside it, and the link
# comes, goes and comes anew. Each line of stdout is a state; what went wrong is on stderr.
# usage: boot.sh HOSTGAP FOLDER...    the folders are unpacked packages: what the guest lacks to run systemd and udev

hostgap=$1
shift
# A name that systemd escapes.
link=eth-9
unit='hostgap-tune@eth\x2d9.service'

give_up() {
	echo "boot: $1" >&2
	control status --no-pager --full "$unit" >&2
	control list-jobs --no-pager >&2
	control --failed --no-pager >&2
	dmesg | tail -n 100 >&2
	exit 1
}

# systemctl, where systemd is: it knows no caller from outside its namespace of processes.
control() {
	nsenter --target "$systemd" --pid --mount systemctl "$@"
}

lay() {
	ip link add "$link" type dummy && ip link set "$link" up || give_up "could not make the link"
}

show_values() {
	echo "$1: somaxconn $(cat /proc/sys/net/core/somaxconn)" \
		"mtu $(cat /sys/class/net/$link/mtu) txqueuelen $(cat /sys/class/net/$link/tx_queue_len)"
}

# Waits until the state of the unit $1 is $2, in another run than $3.
until_unit() {
	local deadline=$((SECONDS + 90))
	while [ $SECONDS -lt $deadline ]; do
		run=$(control show --property InvocationID --value "$1" 2>/dev/null)
		[ "$(control is-active "$1" 2>/dev/null)" = "$2" ] && [ "$run" != "$3" ] && return
		sleep 0.3
	done
	give_up "$1 is not $2"
}

for folder; do
	tar -C "$folder" -c . | tar -C / -x --keep-directory-symlink --no-overwrite-dir || give_up "could not unpack $folder"
done
# Nothing is mounted, the questions of a first start are not asked, and nothing is cleared away: programs may lie in /tmp.
: >/etc/fstab
echo 0123456789abcdef0123456789abcdef >/etc/machine-id
ln -sf /dev/null /etc/systemd/system/systemd-tmpfiles-setup.service

modprobe dummy
lay
set=(--set somaxconn=8192 --set mtu=1400 --set txqueuelen=77)
"$hostgap" tune apply --dev "$link" "${set[@]}" >&2 && "$hostgap" tune confirm >&2 || give_up "could not apply"
"$hostgap" tune keep >&2 || give_up "could not keep"
show_values kept
systemd-analyze verify --man=no --recursive-errors=no /etc/systemd/system/hostgap-tune@.service || give_up "the unit is not sound"
echo "verified: $(systemd-analyze --version | head -n 1)"

# As a restart leaves it: a link with the kernel's own values, and parameters too.
"$hostgap" tune rollback >&2 || give_up "could not roll back"
ip link del "$link"
lay
show_values restarted
unshare --pid --fork --mount-proc /lib/systemd/systemd --unit=sysinit.target --log-target=kmsg </dev/null >&2 &
until [ -n "$systemd" ]; do
	sleep 0.1
	read -r systemd <"/proc/$!/task/$!/children"
done
until_unit sysinit.target active x
until_unit "$unit" active x
show_values booted

booted=$run
ip link del "$link"
until_unit "$unit" inactive x
echo "gone: inactive"
lay
until_unit "$unit" active "$booted"
show_values anew
# Before systemd has seen that it went.
anew=$run
ip link del "$link"
lay
until_unit "$unit" active "$anew"
show_values "at once"
echo "status: $("$hostgap" tune status --json)"
"$hostgap" tune rollback >&2 || give_up "could not roll back on the new link"
show_values "rolled back"
