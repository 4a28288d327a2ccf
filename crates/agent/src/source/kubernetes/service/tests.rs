//! What follows from objects as an API server has them.

use serde_json::{Value, json};

use super::*;

/// The Service of a cluster's DNS, as `kubectl get --output json` shows it.
fn dns() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "annotations": { "prometheus.io/port": "9153", "prometheus.io/scrape": "true" },
            "creationTimestamp": "2026-11-26T10:00:00Z",
            "labels": { "k8s-app": "kube-dns", "kubernetes.io/cluster-service": "true" },
            "name": "kube-dns", "namespace": "kube-system", "resourceVersion": "271",
            "uid": "0b9b0a4e-9f0a-4cfa-a3a5-8d2f9d6f2f1d"
        },
        "spec": {
            "clusterIP": "10.96.0.10", "clusterIPs": ["10.96.0.10", "fd00:96::a"],
            "internalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "PreferDualStack",
            "ports": [
                { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
                { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": "dns-tcp" },
                { "name": "sctp", "port": 54, "protocol": "SCTP", "targetPort": 54 }
            ],
            "selector": { "k8s-app": "kube-dns" }, "sessionAffinity": "None", "type": "ClusterIP"
        },
        "status": { "loadBalancer": {} }
    })
}

/// An endpoint on a node, with its conditions: ready, serving, terminating.
fn endpoint(address: &str, node: &str, conditions: [Option<bool>; 3]) -> Value {
    let [ready, serving, terminating] = conditions;
    json!({
        "addresses": [address],
        "conditions": { "ready": ready, "serving": serving, "terminating": terminating },
        "nodeName": node,
        "targetRef": { "kind": "Pod", "name": "coredns-1", "namespace": "kube-system", "uid": "1c" }
    })
}

const READY: [Option<bool>; 3] = [Some(true), Some(true), Some(false)];
const UNREADY: [Option<bool>; 3] = [Some(false), Some(false), Some(false)];
const LEAVING: [Option<bool>; 3] = [Some(false), Some(true), Some(true)];
const GONE: [Option<bool>; 3] = [Some(false), Some(false), Some(true)];
const UNSAID: [Option<bool>; 3] = [None; 3];

fn slice(address_type: &str, endpoints: &[Value]) -> Value {
    json!({
        "addressType": address_type, "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "endpoints": endpoints,
        "metadata": {
            "generateName": "kube-dns-", "name": "kube-dns-x2x7b", "namespace": "kube-system",
            "labels": {
                "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
                "k8s-app": "kube-dns", "kubernetes.io/service-name": "kube-dns"
            },
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Service", "name": "kube-dns", "uid": "0b" }],
            "resourceVersion": "502"
        },
        "ports": [
            { "name": "dns-tcp", "port": 5353, "protocol": "TCP" },
            { "name": "dns", "port": 5353, "protocol": "UDP" },
            { "name": null, "port": 1, "protocol": "UDP" },
            { "name": "dns", "port": null, "protocol": "UDP" }
        ]
    })
}

fn kept(service: Value) -> Option<KeptService> {
    KeptService::of(serde_json::from_value(service).unwrap())
}

fn kept_slice(slice: Value) -> Option<KeptSlice> {
    KeptSlice::of(serde_json::from_value(slice).unwrap(), "own")
}

/// Where calls of a Service's addresses and ports are led, in words.
fn led(service: Value, slices: Vec<Value>) -> Vec<String> {
    let slices: Vec<KeptSlice> = slices.into_iter().filter_map(kept_slice).collect();
    let led = kept(service).unwrap().led(&slices.iter().collect::<Vec<_>>());
    led.into_iter()
        .map(|LedService { at, affinity_s, backends }| {
            let backends: Vec<String> = backends.iter().map(ToString::to_string).collect();
            let affinity = if affinity_s > 0 { format!(" for {affinity_s} s") } else { String::new() };
            format!("{at} to {}{affinity}", backends.join(" "))
        })
        .collect()
}

/// The backends of the Service's first address and port.
fn backends(service: Value, endpoints: &[Value]) -> String {
    let first = led(service, vec![slice("IPv4", endpoints)]).remove(0);
    first.split_once(" to ").unwrap().1.to_owned()
}

#[test]
fn each_address_and_port_has_the_endpoints_of_its_family_and_name() {
    let endpoints = [endpoint("10.244.1.2", "own", READY), endpoint("10.244.2.2", "other", UNSAID)];
    let v6 = slice("IPv6", &[endpoint("fd00:244:1::2", "own", READY)]);
    let names = slice("FQDN", &[endpoint("dns.example", "own", READY)]);
    let mut second = slice("IPv4", &[endpoint("10.244.3.2", "other", READY), endpoints[0].clone()]);
    second["metadata"]["name"] = json!("kube-dns-second");
    assert_eq!(
        led(dns(), vec![slice("IPv4", &endpoints), v6, names, second]),
        [
            "10.96.0.10:53/udp to 10.244.1.2:5353 10.244.2.2:5353 10.244.3.2:5353",
            "10.96.0.10:53/tcp to 10.244.1.2:5353 10.244.2.2:5353 10.244.3.2:5353",
            "[fd00:96::a]:53/udp to [fd00:244:1::2]:5353",
            "[fd00:96::a]:53/tcp to [fd00:244:1::2]:5353",
        ]
    );
    assert_eq!(kept_slice(slice("IPv4", &[])).unwrap().service, "kube-system/kube-dns");
    let none = [
        "10.96.0.10:53/udp to ",
        "10.96.0.10:53/tcp to ",
        "[fd00:96::a]:53/udp to ",
        "[fd00:96::a]:53/tcp to ",
    ];
    assert_eq!(led(dns(), vec![]), none);
}

#[test]
fn leaving_endpoints_answer_as_long_as_none_is_ready() {
    let [a, b, c, d] = [1, 2, 3, 4].map(|last| format!("10.244.1.{last}"));
    let of = |conditions: &[(&str, [Option<bool>; 3])]| {
        let endpoints: Vec<Value> =
            conditions.iter().map(|(address, conditions)| endpoint(address, "own", *conditions)).collect();
        backends(dns(), &endpoints)
    };
    assert_eq!(of(&[(&a, READY), (&b, LEAVING), (&c, UNREADY)]), "10.244.1.1:5353");
    assert_eq!(of(&[(&a, GONE), (&b, LEAVING), (&c, UNREADY)]), "10.244.1.2:5353");
    assert_eq!(of(&[(&a, GONE), (&c, UNREADY)]), "");
    // What is not said is so: ready, and serving as it is ready.
    assert_eq!(of(&[(&d, UNSAID)]), "10.244.1.4:5353");
    assert_eq!(of(&[(&d, [None, None, Some(true)]), (&b, LEAVING)]), "10.244.1.4:5353");
    assert_eq!(of(&[(&d, [Some(false), None, Some(true)])]), "");
}

#[test]
fn a_local_service_has_the_endpoints_of_this_node_alone() {
    let mut service = dns();
    service["spec"]["internalTrafficPolicy"] = json!("Local");
    let (own, other) = (endpoint("10.244.1.2", "own", READY), endpoint("10.244.2.2", "other", READY));
    assert_eq!(backends(service.clone(), &[own.clone(), other.clone()]), "10.244.1.2:5353");
    assert_eq!(backends(service.clone(), std::slice::from_ref(&other)), "");
    let leaving = endpoint("10.244.1.3", "own", LEAVING);
    assert_eq!(backends(service.clone(), &[other, leaving.clone()]), "10.244.1.3:5353");
    assert_eq!(backends(service, &[own, leaving]), "10.244.1.2:5353");
}

#[test]
fn a_port_of_the_node_has_all_endpoints() {
    let mut service = dns();
    service["spec"]["type"] = json!("NodePort");
    service["spec"]["internalTrafficPolicy"] = json!("Local");
    service["spec"]["externalTrafficPolicy"] = json!("Local");
    service["spec"]["ports"][1]["nodePort"] = json!(30053);
    let v6 = slice("IPv6", &[endpoint("fd00:244:2::2", "other", READY)]);
    assert_eq!(
        led(service, vec![slice("IPv4", &[endpoint("10.244.2.2", "other", READY)]), v6]),
        [
            "10.96.0.10:53/udp to ",
            "10.96.0.10:53/tcp to ",
            "[fd00:96::a]:53/udp to ",
            "[fd00:96::a]:53/tcp to ",
            "0.0.0.0:30053/tcp to 10.244.2.2:5353",
            "[::]:30053/tcp to [fd00:244:2::2]:5353",
        ]
    );
}

#[test]
fn addresses_outside_have_all_endpoints_unless_calls_must_come_as_they_are_sent() {
    let mut service = dns();
    service["spec"]["ports"] = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }]);
    service["spec"]["internalTrafficPolicy"] = json!("Local");
    service["spec"]["externalIPs"] = json!(["198.51.100.7", "2001:db8::7", "dns.example"]);
    service["status"]["loadBalancer"] = json!({ "ingress": [
        { "ip": "203.0.113.1", "ipMode": "VIP" }, { "ip": "203.0.113.2" },
        { "ip": "203.0.113.3", "ipMode": "Proxy" }, { "hostname": "lb.example" },
        { "ip": "0.0.0.0" }, { "ip": "127.0.0.1" }
    ] });
    let endpoints = slice("IPv4", &[endpoint("10.244.2.2", "other", READY)]);
    let outside = |service: &Value| led(service.clone(), vec![endpoints.clone()])[2..].join("\n");
    let all = [
        "198.51.100.7:53/udp to 10.244.2.2:5353",
        "203.0.113.1:53/udp to 10.244.2.2:5353",
        "203.0.113.2:53/udp to 10.244.2.2:5353",
        "[2001:db8::7]:53/udp to ",
    ];
    assert_eq!(outside(&service), all.join("\n"));
    service["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]);
    assert_eq!(outside(&service), [all[0], all[3]].join("\n"));
    // A Service of IPv4 alone.
    service["spec"]["clusterIPs"] = json!(["10.96.0.10"]);
    assert_eq!(led(service, vec![]), ["10.96.0.10:53/udp to ", "198.51.100.7:53/udp to "]);
}

#[test]
fn affinity_lasts_as_long_as_is_said() {
    let first = |service: Value| led(service, vec![]).remove(0);
    let mut service = dns();
    service["spec"]["sessionAffinity"] = json!("ClientIP");
    assert!(first(service.clone()).ends_with("for 10800 s"));
    service["spec"]["sessionAffinityConfig"] = json!({ "clientIP": { "timeoutSeconds": 7 } });
    assert!(first(service.clone()).ends_with("for 7 s"));
    service["spec"]["sessionAffinity"] = json!("None");
    assert!(first(service).ends_with("to "));
}

#[test]
fn what_has_no_address_is_left_out() {
    let with = |key: &str, value: Value| {
        let mut service = dns();
        service["spec"][key] = value;
        service
    };
    let mut headless = with("clusterIPs", json!(["None"]));
    headless["spec"]["clusterIP"] = json!("None");
    assert_eq!(kept(headless), None);
    assert_eq!(kept(with("type", json!("ExternalName"))), None);
    let external = json!({
        "metadata": { "name": "db", "namespace": "default", "resourceVersion": "7" },
        "spec": { "externalName": "db.example", "type": "ExternalName", "sessionAffinity": "None" }
    });
    assert_eq!(kept(external), None);
    let single = json!({
        "metadata": { "name": "kubernetes", "namespace": "default", "resourceVersion": "7" },
        "spec": { "clusterIP": "10.96.0.1", "ports": [{ "name": "https", "port": 443, "targetPort": 6443 }] }
    });
    assert_eq!(led(single, vec![]), ["10.96.0.1:443/tcp to "]);
    // A slice that somebody made for no Service.
    let mut strange = slice("IPv4", &[]);
    strange["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(kept_slice(strange), None);
    let mut empty = slice("IPv4", &[]);
    empty["endpoints"] = Value::Null;
    empty["ports"] = Value::Null;
    assert_eq!(kept_slice(empty).unwrap().endpoints, []);
}

/// The API server takes any number, and kube-proxy leaves such a port out.
#[test]
fn a_number_that_is_no_port_is_no_backend() {
    let with_port = |number: i64| {
        let mut slice = slice("IPv4", &[endpoint("10.244.1.2", "own", READY)]);
        slice["ports"][0]["port"] = json!(number);
        led(dns(), vec![slice])
    };
    assert_eq!(with_port(5353)[1], "10.96.0.10:53/tcp to 10.244.1.2:5353");
    for number in [70_000, 65_536, 0, -1] {
        assert_eq!(with_port(number)[..2], ["10.96.0.10:53/udp to 10.244.1.2:5353", "10.96.0.10:53/tcp to "]);
    }
}
