//! The rights that a race needs, as roles of RBAC.

use serde_json::{Value, json};

use super::manifests::LEASE;
use super::pull_secret::PullSecret;

/// The rights that a race needs in a cluster, and no more; in a namespace that is there, those in it, beside listing
/// the nodes. Namespaces are in the last rules because only a holder of a right can grant it. A Secret that is copied
/// is read where it is, and that one alone.
pub(super) fn rights(namespace: Option<&str>, pull_secret: Option<&PullSecret>) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    let nodes = rule("", &["nodes"], &["list"]);
    let mut rules = vec![
        rule("", &["pods"], &["get", "list", "create"]),
        rule("", &["pods/exec", "pods/attach"], &["get", "create"]),
        rule("", &["services"], &["get", "list", "create"]),
        rule("batch", &["jobs"], &["get", "create", "delete"]),
        rule("networking.k8s.io", &["networkpolicies"], &["create"]),
    ];
    let of = |kind: &str, metadata: Value, rules: Vec<Value>| json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules });
    if let Some(namespace) = namespace {
        let role = of("Role", json!({ "name": LEASE, "namespace": namespace }), rules);
        return vec![role, of("ClusterRole", json!({ "name": LEASE }), vec![nodes])];
    }
    rules.insert(0, nodes);
    rules.extend([
        rule("", &["serviceaccounts"], &["create"]),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], &["create"]),
        rule("", &["namespaces"], &["get", "create", "delete"]),
    ]);
    let copied = pull_secret.and_then(|secret| Some((secret, secret.copied_from.as_deref()?)));
    rules.extend(copied.map(|_| rule("", &["secrets"], &["create"])));
    let read = copied.map(|(secret, from)| {
        let mut get = rule("", &["secrets"], &["get"]);
        get["resourceNames"] = json!([secret.name]);
        of("Role", json!({ "name": LEASE, "namespace": from }), vec![get])
    });
    std::iter::once(of("ClusterRole", json!({ "name": LEASE }), rules)).chain(read).collect()
}
