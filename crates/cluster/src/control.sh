# The first process of the cluster's PID namespace, in mount and network namespaces of its own: the switch between the
# nodes, the control plane, and the nodes. When its input ends, or has a line, all processes of the cluster end, and
# their control groups go.
# arguments: the folder of the cluster, the name of its control groups, and for each node its name, its IPv4 and its IPv6
# address
set -eu
cd "$1"
group=$2
shift 2
. ./api.sh

# However it ends.
clean_up() {
	kill -KILL -1 || true
	for directory in $(find /sys/fs/cgroup -depth -type d \( -path "*/$group" -o -path "*/$group/*" \)); do
		for _ in $(seq 100); do
			rmdir "$directory" && break
			sleep 0.05
		done
	done
}
trap clean_up EXIT

mount -t tmpfs none /run
mount -t tmpfs none /var/lib
ip link set lo up
ip link add switch type bridge
ip link set switch up
ip addr add 192.0.2.1/24 dev switch
ip addr add 2001:db8::1/64 dev switch nodad

start_etcd
start_api_server 6443
kube-controller-manager --kubeconfig=kube-controller-manager.kubeconfig \
	--authentication-kubeconfig=kube-controller-manager.kubeconfig \
	--authorization-kubeconfig=kube-controller-manager.kubeconfig --authentication-skip-lookup --leader-elect=false \
	--use-service-account-credentials --service-account-private-key-file=accounts.key \
	--root-ca-file=pki/apiserver.crt --allocate-node-cidrs --cluster-cidr=10.244.0.0/16,fd00:244::/48 \
	--node-cidr-mask-size-ipv4=24 --node-cidr-mask-size-ipv6=64 >kube-controller-manager.log 2>&1 &
kube-scheduler --kubeconfig=kube-scheduler.kubeconfig --authentication-kubeconfig=kube-scheduler.kubeconfig \
	--authorization-kubeconfig=kube-scheduler.kubeconfig --authentication-skip-lookup --leader-elect=false \
	>kube-scheduler.log 2>&1 &

while [ $# -gt 0 ]; do
	unshare --mount --net --propagation slave sh "$PWD/node.sh" "$PWD" "$group" "$1" "$2" "$3" >"$1.log" 2>&1 &
	echo $! >"$1.pid"
	shift 3
done
echo started
read -r _ || true
