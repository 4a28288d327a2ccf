# A node: its wire, directories that stand in for the machine's, and its daemons.
# arguments: the folder of the cluster, the name of its control groups, and the node's name, IPv4 and IPv6 address
set -eu
cd "$1"
group=$2 node=$3 ipv4=$4 ipv6=$5

ip link set lo up
ip link add eth0 type veth peer name "$node" netns 1
nsenter --net=/proc/1/ns/net ip link set "$node" master switch up
ip link set eth0 up
ip addr add "$ipv4/24" dev eth0
ip addr add "$ipv6/64" dev eth0 nodad
ip route add default via 192.0.2.1
ip -6 route add default via 2001:db8::1
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding

# As systemd has it: what is mounted on the node is mounted in containers that ask for it. All that is mounted here was a
# slave or private, and does not propagate.
mount --make-rshared /
mount -t tmpfs none /run
mount -t tmpfs none /var/lib
mount -t tmpfs none /var/log
mount -t tmpfs none /opt
mkdir /run/etc /run/work
mount -t overlay none -o lowerdir=/etc,upperdir=/run/etc,workdir=/run/work /etc
mkdir -p /etc/cni
mount -t tmpfs none /etc/cni
mkdir -p /etc/cni/net.d /opt/cni/bin /run/netns /run/sockets /var/lib/kubelet
# As systemd has it on a machine that is a node.
mount -t bpf none /sys/fs/bpf
# containerd calls it for each pod.
ln -s /usr/lib/cni/loopback /opt/cni/bin/
# Volumes that the kubelet mounts must reach containerd's containers.
mount --bind /var/lib/kubelet /var/lib/kubelet

# The kubelet wants these values on the machine, and writes those that differ. It reads files that have them.
mkdir /run/sysctl
for want in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 \
	kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	name=${want%=*}
	file=/run/sysctl/$(echo "$name" | tr / .)
	echo "${want#*=}" >"$file"
	mount --bind "$file" "/proc/sys/$name"
done

# Pods are in control groups below one of the node's own.
groups=/sys/fs/cgroup
if [ -e $groups/cgroup.controllers ]; then
	sockets=$groups/$group/$node
	mkdir -p "$sockets"
	for above in $groups "$groups/$group"; do
		sed 's/[^ ]*/+&/g' "$above/cgroup.controllers" >"$above/cgroup.subtree_control"
	done
else
	for hierarchy in $groups/*/; do
		# One of version 2 beside them has no such file.
		[ -e "$hierarchy/tasks" ] || continue
		mkdir -p "$hierarchy$group/$node"
		# A cpuset of version 1 begins without CPUs.
		for below in "$group" "$group/$node"; do
			for file in cpuset.cpus cpuset.mems; do
				[ ! -e "$hierarchy$file" ] || cat "$hierarchy$file" >"$hierarchy$below/$file"
			done
		done
	done
	# In a hierarchy of version 2 beside them, pods stay in the group of whoever started them.
	sockets=$groups/unified/$group/$node
	if [ -e $groups/unified/cgroup.procs ]; then
		mkdir -p "$sockets"
		echo $$ >"$sockets/cgroup.procs"
	fi
fi
# By one name on all nodes: the group of version 2 in which the sockets of the node's pods are. A machine that is one node
# has its root there.
[ ! -e "$sockets" ] || mount --bind "$sockets" /run/sockets

containerd --config "$PWD/containerd.toml" >"$node.containerd.log" 2>&1 &
until ctr version >/dev/null 2>&1; do
	kill -0 $!
	sleep 0.1
done
ctr --namespace k8s.io images import busybox.tar
kube-proxy --kubeconfig=kube-proxy.kubeconfig --hostname-override="$node" --proxy-mode=nftables \
	--cluster-cidr=10.244.0.0/16,fd00:244::/48 --conntrack-max-per-core=0 \
	--conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0 >"$node.kube-proxy.log" 2>&1 &
exec kubelet --config="$node.kubelet.yaml" --kubeconfig="$node.kubeconfig" --hostname-override="$node" \
	--node-ip="$ipv4,$ipv6" >"$node.kubelet.log" 2>&1
