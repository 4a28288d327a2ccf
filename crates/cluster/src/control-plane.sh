# The first process of the PID namespace of a control plane without nodes, in mount and network namespaces of its own.
# Each line of its input is a command, and is answered with a line. When its input ends, so do etcd and the API server.
# arguments: the folder
set -eu
cd "$1"
. ./api.sh

mount -t tmpfs none /run
mount -t tmpfs none /var/lib
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
start_etcd
while read -r command port; do
	case $command in
	start)
		start_api_server "$port"
		;;
	stop)
		kill -KILL "$apiserver"
		wait "$apiserver" || true
		;;
	pause)
		kill -STOP "$apiserver"
		;;
	resume)
		kill -CONT "$apiserver"
		;;
	esac
	echo done
done
