//! The objects that a race makes in a cluster.
//!
//! All of them are in one namespace. Pods, Services and policies are owned by a Job, whose one pod waits for the end of
//! its input: when this side dies, it ends, Kubernetes deletes the Job at once (`ttlSecondsAfterFinished`) and all that
//! it owns after it. Where the race has made the namespace, that pod deletes it first; it may do nothing else.

use datapath::SocketRole;
use serde_json::{Map, Value, json};

use super::path::{By, Pods};
use super::sidecar::SidecarMark;

/// What all objects have in common.
pub(super) struct Manifests<'a> {
    pub(super) namespace: &'a str,
    /// Whether the race makes the namespace and deletes it.
    pub(super) owns_namespace: bool,
    /// The number of this run, by which it knows its own Job and namespace from another's.
    pub(super) run: u64,
    pub(super) image: &'a str,
    /// The name of the Secret with which it is pulled.
    pub(super) pull_secret: Option<&'a str>,
    /// Whether the program is copied into the pods, as the image does not have it.
    pub(super) copies: bool,
    /// Whole CPUs of a pod.
    pub(super) cpus: u32,
    /// Whether pods have these for themselves.
    pub(super) guaranteed: bool,
    /// What the server listens at; on a node, what is not taken there.
    pub(super) port: u16,
    pub(super) is_udp: bool,
    pub(super) ipv6: bool,
    /// Whether pods go to nodes that keep others away, since the user has named them.
    pub(super) tolerates: bool,
    /// By which label and annotation the cluster adds its proxy.
    pub(super) sidecar: Option<&'a SidecarMark>,
}

/// The container, the Job and the account of each race.
pub(super) const CONTAINER: &str = "hostgap";
pub(super) const LEASE: &str = "hostgap-race";
/// The place in the ground of what the first pod needs in a namespace that the race makes.
pub(super) const AFTER_NAMESPACE: usize = 1;
/// Where a copied program and files of its own are.
pub(super) const DIRECTORY: &str = "/hostgap";
/// The longest race, in seconds: what is forgotten goes after a day.
const LONGEST_S: u32 = 86_400;
/// The annotation of what owns everything, with the number of the run that has made it.
const RUN: &str = "hostgap/run";
/// How long a pod waits for the program that is copied into it, in seconds.
pub(super) const COPIED_S: u32 = 300;
/// By which meshes are asked to keep their proxies out of a pod, whatever its namespace asks for.
const MESHES: [(&str, &str); 2] = [("sidecar.istio.io/inject", "false"), ("linkerd.io/inject", "disabled")];
/// By which autoscalers leave a pod where it is.
const STAYS: [(&str, &str); 2] =
    [("cluster-autoscaler.kubernetes.io/safe-to-evict", "false"), ("karpenter.sh/do-not-disrupt", "true")];
/// The user id of the pods' processes (`nobody`), which owns no files.
const NOBODY: u32 = 65_534;

/// A node on which pods of a race are, and what the names of its objects end with, where several nodes have the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seat<'a> {
    pub(super) node: &'a str,
    /// Empty, or as "-2".
    pub(super) tag: &'a str,
}

/// The name of a pod.
pub(super) fn pod_name(part: SocketRole, pods: &Pods, tag: &str) -> String {
    format!("{}-{}{tag}", part.name(), pods.name())
}

/// The name of a pod that looks at a node. Names of nodes are names of the DNS, as those of pods are.
pub(super) fn node_pod_name(node: &str) -> String {
    format!("look-{node}")
}

/// The name of a Service before a server.
pub(super) fn service_name(by: By, pods: &Pods, tag: &str) -> String {
    let by = match by {
        By::Address | By::Service => "service",
        By::NodePort => "nodeport",
        By::Name => "headless",
    };
    format!("{by}-{}{tag}", pods.name())
}

impl Manifests<'_> {
    /// The program in a pod.
    pub(super) fn program(&self) -> String {
        if self.copies { format!("{DIRECTORY}/hostgap") } else { "hostgap".to_owned() }
    }

    /// The namespace, where the race makes it, with what may delete it, and the Job that owns the rest; its pod is on a
    /// node that has the image.
    pub(super) fn ground(&self, node: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        if self.owns_namespace {
            // Pods of the nodes' own network are in it.
            let labels = json!({
                "app.kubernetes.io/managed-by": "hostgap",
                "pod-security.kubernetes.io/enforce": "privileged",
            });
            objects.push(json!({ "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": self.namespace, "labels": labels, "annotations": self.run_note() } }));
            objects
                .push(json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.named(LEASE) }));
            objects.push(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
                "metadata": self.named(LEASE),
                "rules": [{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"],
                    "resourceNames": [self.namespace] }] }));
            objects.push(json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                "metadata": self.named(LEASE),
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": LEASE },
                "subjects": [{ "kind": "ServiceAccount", "name": LEASE, "namespace": self.namespace }] }));
        }
        objects.push(self.lease(node));
        objects
    }

    /// The resource of what owns everything, as rules of RBAC name it.
    pub(super) fn owner_resource(&self) -> &'static str {
        if self.owns_namespace { "namespaces" } else { "jobs" }
    }

    /// Whether this run has made what owns everything, as the API server describes it.
    pub(super) fn is_own(&self, owner: &Value) -> bool {
        owner["metadata"]["annotations"][RUN] == self.run_note()[RUN]
    }

    fn run_note(&self) -> Value {
        json!({ RUN: self.run.to_string() })
    }

    /// The Job whose pod waits for the end of this side.
    fn lease(&self, node: &str) -> Value {
        let mut arguments = vec!["remote".to_owned(), "--lease".to_owned()];
        if self.owns_namespace {
            arguments.push(format!("--namespace={}", self.namespace));
        }
        let mut container = self.container(&arguments);
        container["stdin"] = json!(true);
        // The first to attach is the last.
        container["stdinOnce"] = json!(true);
        // With limits, since a namespace with a quota of them lets no pod begin that has none.
        container["resources"] = json!({ "requests": { "cpu": "10m", "memory": "32Mi" },
            "limits": { "cpu": "100m", "memory": "64Mi" } });
        let mut spec = self.pod_spec(&container, node);
        // Where its node is drained it has a namespace to delete.
        spec["terminationGracePeriodSeconds"] = json!(60);
        if self.owns_namespace {
            spec["serviceAccountName"] = json!(LEASE);
            spec["automountServiceAccountToken"] = json!(true);
        }
        let mut metadata = self.named(LEASE);
        metadata["annotations"] = self.run_note();
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {
            // No process attaches to the successor of a pod that failed, which deletes everything.
            "backoffLimit": 2, "ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": LONGEST_S,
            "template": {
                "metadata": { "labels": { "app": LEASE }, "annotations": no_sidecars_and_stays() },
                "spec": spec,
            } } })
    }

    /// A pod of a pair, on a node.
    pub(super) fn pod(&self, part: SocketRole, pods: &Pods, Seat { node, tag }: Seat<'_>) -> Value {
        let mut labels: Map<String, Value> = [("app", LEASE), ("side", part.name())]
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .into_iter()
            .collect();
        labels.insert("pods".to_owned(), json!(pods.name()));
        labels.insert("seat".to_owned(), json!(tag.trim_start_matches('-')));
        let mut annotations = no_sidecars_and_stays();
        match (pods, self.sidecar) {
            (Pods::Sidecar, Some(SidecarMark { key, value })) => {
                MESHES.iter().for_each(|(mesh, _)| drop(annotations.remove(*mesh)));
                labels.insert(key.clone(), json!(value));
                annotations.insert(key.clone(), json!(value));
            }
            (Pods::Network(name), _) => {
                annotations.insert("k8s.v1.cni.cncf.io/networks".to_owned(), json!(name));
            }
            _ => {}
        }
        let mut container = self.container(&["remote".to_owned(), "--wait".to_owned()]);
        let amount = json!({ "cpu": self.cpus.to_string(), "memory": MEMORY });
        container["resources"] = if self.guaranteed {
            // Whole CPUs, and as much as it may have: the kubelet's static policy gives such pods CPUs of their own.
            json!({ "requests": amount, "limits": amount })
        } else {
            json!({})
        };
        let mut spec = self.pod_spec(&container, node);
        spec["hostNetwork"] = json!(pods.are_of_nodes());
        let mut metadata = self.named(&pod_name(part, pods, tag));
        metadata["labels"] = Value::Object(labels);
        metadata["annotations"] = Value::Object(annotations);
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    }

    /// A pod that looks at its node: in the node's network, and as root with the right to ask its links and sockets.
    pub(super) fn node_pod(&self, node: &str) -> Value {
        let mut container = self.container(&["remote".to_owned(), "--wait".to_owned()]);
        container["resources"] = json!({ "requests": { "cpu": "10m", "memory": "32Mi" } });
        container["securityContext"] = json!({ "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"], "add": ["NET_ADMIN", "DAC_READ_SEARCH"] } });
        let mut spec = self.pod_spec(&container, node);
        spec["hostNetwork"] = json!(true);
        spec["securityContext"] = json!({ "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } });
        let mut metadata = self.named(&node_pod_name(node));
        metadata["labels"]["app"] = json!(LEASE);
        metadata["annotations"] = Value::Object(no_sidecars_and_stays());
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    }

    /// A Service before the server of a pair.
    pub(super) fn service(&self, by: By, pods: &Pods, tag: &str) -> Value {
        let protocol = if self.is_udp { "UDP" } else { "TCP" };
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        let mut spec = json!({
            "selector": { "app": LEASE, "side": SocketRole::Server.name(), "pods": pods.name(),
                "seat": tag.trim_start_matches('-') },
            "ports": [{ "port": self.port, "targetPort": self.port, "protocol": protocol }],
            "ipFamilies": [family], "ipFamilyPolicy": "SingleStack",
        });
        match by {
            By::Address | By::Service => {}
            By::NodePort => spec["type"] = json!("NodePort"),
            By::Name => spec["clusterIP"] = json!("None"),
        }
        let mut metadata = self.named(&service_name(by, pods, tag));
        metadata["labels"]["app"] = json!(LEASE);
        json!({ "apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec })
    }

    /// What lets only clients of its pairs to their servers, and that by the raced port.
    pub(super) fn policy(&self) -> Value {
        let protocol = if self.is_udp { "UDP" } else { "TCP" };
        let of =
            |part: SocketRole| json!({ "matchLabels": { "side": part.name(), "pods": Pods::Policy.name() } });
        json!({ "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": self.named(&Pods::Policy.name()),
            "spec": { "podSelector": of(SocketRole::Server), "policyTypes": ["Ingress"], "ingress": [{
                "from": [{ "podSelector": of(SocketRole::Client) }],
                "ports": [{ "port": self.port, "protocol": protocol }] }] } })
    }

    pub(super) fn named(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace,
            "labels": { "app.kubernetes.io/managed-by": "hostgap" } })
    }

    /// A container that meets the `restricted` standard of pod security.
    fn container(&self, arguments: &[String]) -> Value {
        let program = self.program();
        let mut command = vec![program.clone()];
        command.extend(arguments.iter().cloned());
        if self.copies {
            // If the race is killed before it has copied the program, the pod ends by itself.
            let wait = format!(
                "for i in $(seq {COPIED_S}); do test -x {program} && exec {}; sleep 1; done; exit 1",
                command.join(" ")
            );
            command = vec!["sh".to_owned(), "-c".to_owned(), wait];
        }
        json!({
            "name": CONTAINER, "image": self.image, "imagePullPolicy": "IfNotPresent", "command": command,
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [{ "name": CONTAINER, "mountPath": DIRECTORY }],
        })
    }

    fn pod_spec(&self, container: &Value, node: &str) -> Value {
        // By the scheduler, which says why a pod has no place; a name in spec.nodeName would pass it by.
        let is_node = json!({ "key": "metadata.name", "operator": "In", "values": [node] });
        let secrets: Vec<Value> = self.pull_secret.iter().map(|name| json!({ "name": name })).collect();
        let tolerations = if self.tolerates { json!([{ "operator": "Exists" }]) } else { json!([]) };
        json!({
            "restartPolicy": "Never",
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{ "matchFields": [is_node] }] } } },
            "tolerations": tolerations,
            "containers": [container], "volumes": [{ "name": CONTAINER, "emptyDir": {} }],
            "imagePullSecrets": secrets,
            "automountServiceAccountToken": false, "enableServiceLinks": false,
            // All that it does can be done again.
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsNonRoot": true, "runAsUser": NOBODY, "runAsGroup": NOBODY,
                "seccompProfile": { "type": "RuntimeDefault" } },
        })
    }
}

fn no_sidecars_and_stays() -> Map<String, Value> {
    MESHES.iter().chain(&STAYS).map(|(key, value)| ((*key).to_owned(), json!(value))).collect()
}

/// For some ten thousand connections and the histograms of a trial.
const MEMORY: &str = "512Mi";

/// Makes an object go with its owner.
pub(super) fn owned(mut object: Value, job_uid: &str) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": LEASE, "uid": job_uid }]);
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifests(sidecar: Option<&SidecarMark>) -> Manifests<'_> {
        Manifests {
            namespace: "hostgap-race-1",
            owns_namespace: true,
            run: 42,
            image: "localhost/hostgap:latest",
            pull_secret: None,
            copies: false,
            cpus: 2,
            guaranteed: true,
            port: 8080,
            is_udp: false,
            ipv6: false,
            tolerates: false,
            sidecar,
        }
    }

    #[test]
    fn a_pod_has_whole_cpus_for_itself_and_no_rights() {
        let seat = |node| Seat { node, tag: "" };
        let pod = manifests(None).pod(SocketRole::Server, &Pods::Plain, seat("node-2"));
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["resources"]["requests"], container["resources"]["limits"]);
        assert_eq!(container["resources"]["limits"]["cpu"], "2");
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false);
        assert_eq!(pod["spec"]["hostNetwork"], false);
        assert_eq!(
            manifests(None).pod(SocketRole::Client, &Pods::Host, seat("node-1"))["spec"]["hostNetwork"],
            true
        );
    }

    #[test]
    fn a_service_finds_the_server_of_its_node_alone() {
        let manifests = manifests(None);
        let labels = |tag: &str| {
            let pod = manifests.pod(SocketRole::Server, &Pods::Plain, Seat { node: "node", tag });
            pod["metadata"]["labels"].clone()
        };
        for tag in ["", "-1", "-2"] {
            let service = manifests.service(By::Service, &Pods::Plain, tag);
            let selector = service["spec"]["selector"].as_object().unwrap();
            let finds = |labels: &Value| selector.iter().all(|(key, value)| labels[key] == *value);
            let found: Vec<&str> = ["", "-1", "-2"].into_iter().filter(|tag| finds(&labels(tag))).collect();
            assert_eq!(found, [tag]);
        }
    }

    #[test]
    fn the_lease_may_delete_its_namespace_alone() {
        let ground = manifests(None).ground("node-1");
        let role = ground.iter().find(|object| object["kind"] == "Role").unwrap();
        let rule = json!([{ "apiGroups": [""], "resources": ["namespaces"], "verbs": ["delete"],
            "resourceNames": ["hostgap-race-1"] }]);
        assert_eq!(role["rules"], rule);
        let given = Manifests { owns_namespace: false, ..manifests(None) }.ground("node-1");
        assert_eq!(given.len(), 1);
        assert_eq!(given[0]["spec"]["template"]["spec"]["automountServiceAccountToken"], false);
    }

    #[test]
    fn a_run_knows_what_it_has_made() {
        let (own, other) = (manifests(None), Manifests { run: 43, ..manifests(None) });
        for owns_namespace in [true, false] {
            let ground = Manifests { owns_namespace, ..manifests(None) }.ground("node-1");
            assert!(own.is_own(&ground[0]) && !other.is_own(&ground[0]));
        }
        assert!(!own.is_own(&json!({ "metadata": { "name": LEASE } })));
    }

    #[test]
    fn a_sidecar_is_asked_for_in_its_pods_alone() {
        let mark = SidecarMark { key: "sidecar.istio.io/inject".to_owned(), value: "true".to_owned() };
        let manifests = manifests(Some(&mark));
        let seat = Seat { node: "node-1", tag: "" };
        let marked = manifests.pod(SocketRole::Client, &Pods::Sidecar, seat);
        assert_eq!(marked["metadata"]["labels"]["sidecar.istio.io/inject"], "true");
        assert_eq!(marked["metadata"]["annotations"]["sidecar.istio.io/inject"], "true");
        let plain = manifests.pod(SocketRole::Client, &Pods::Plain, seat);
        assert_eq!(plain["metadata"]["annotations"]["sidecar.istio.io/inject"], "false");
    }
}
