//! Services and their endpoints as a real API server has them.

use agent::lease::Snapshot;
use cluster::ControlPlane;
use serde_json::{Value, json};

use crate::control::Scene;
use crate::kubernetes::{own, with_pods};

const PORT: u16 = ControlPlane::PORT;

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "ports": [{ "name": "http", "port": 80 }] },
    })
}

/// An EndpointSlice of a Service, as a user writes it, with one endpoint.
fn slice(name: &str, service: &str, address: &str, port: i64) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "ports": [{ "name": "http", "port": port, "protocol": "TCP" }],
        "endpoints": [{ "addresses": [address] }],
    })
}

/// Where calls of a Service are led.
fn backends(snapshot: &Snapshot, service: &str) -> Option<String> {
    let led = snapshot.services.as_ref()?.get(&format!("default/{service}"))?;
    Some(led[0].backends.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

/// The API server does not look at the number of an endpoint's port.
#[test]
fn a_slice_that_makes_no_sense_keeps_no_other_from_being_read() {
    let Some(scene) = Scene::new() else { return };
    scene.give_rights_for_services();
    let strange = [("web-a", 70_000), ("web-b", 0), ("web-c", -1)];
    let strange = strange.map(|(name, port)| slice(name, "web", "10.1.2.9", port));
    scene.create(PORT, &[with_pods("own", &["10.1.2.0/24"]), service("web"), service("db")]);
    scene.create(PORT, &[&strange[..], &[slice("web-d", "web", "10.1.2.5", 8080)]].concat());
    // It is listed,
    let mut following = scene.follow_services("own", own([192, 0, 2, 100]));
    let snapshot = following.until_whole();
    assert_eq!(backends(&snapshot, "web").as_deref(), Some("10.1.2.5:8080"));
    // and it comes by the watch.
    scene.create(PORT, &[slice("db-a", "db", "10.1.2.9", 70_000), slice("db-b", "db", "10.1.2.6", 5432)]);
    following.until(|snapshot| backends(snapshot, "db").as_deref() == Some("10.1.2.6:5432"));
}
