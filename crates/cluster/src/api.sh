# What keeps a cluster's objects: functions for the first process, whose working directory is the cluster's folder.

start_etcd() {
	etcd --data-dir /var/lib/etcd --unsafe-no-fsync >etcd.log 2>&1 &
}

# Starts an API server on a port, and waits until it answers. Its number is in $apiserver.
start_api_server() {
	kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port="$1" --cert-dir=pki \
		--advertise-address=192.0.2.1 --token-auth-file=tokens.csv --authorization-mode=Node,RBAC \
		--service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.key \
		--service-account-signing-key-file=accounts.key --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112 \
		--allow-privileged=true --kubelet-preferred-address-types=InternalIP >>kube-apiserver.log 2>&1 &
	apiserver=$!
	until kubectl --kubeconfig admin.kubeconfig --server "https://192.0.2.1:$1" get --raw /readyz >kubectl.log 2>&1; do
		kill -0 $apiserver
		sleep 0.1
	done
}
