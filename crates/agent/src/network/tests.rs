use ipnet::IpNet;
use serde_json::{Value, json};

use super::NetworkConfig;

fn parsed(conf: &Value) -> NetworkConfig {
    NetworkConfig::parse(conf).unwrap()
}

/// The first and the last prefix that nodes may take.
#[track_caller]
fn check(conf: &Value, first: &str, last: &str) {
    let subnets = parsed(conf).subnets().unwrap().pop().unwrap();
    assert_eq!(subnets.free(&[], 1), [first.parse::<IpNet>().unwrap()]);
    let (first, last): (IpNet, IpNet) = (first.parse().unwrap(), last.parse().unwrap());
    assert_eq!((subnets.len, subnets.min), (last.prefix_len(), super::bits(first.network())));
    assert_eq!(super::address(subnets.family(), subnets.max), last.network());
    assert!(subnets.has(first) && subnets.has(last));
}

#[track_caller]
fn refused(conf: &Value, says: &str) {
    let error = NetworkConfig::parse(conf).and_then(|config| config.subnets()).unwrap_err().to_string();
    assert_eq!(error, says);
}

#[test]
fn a_network_is_divided_as_by_flannel() {
    check(&json!({"Network": "10.5.0.0/16"}), "10.5.1.0/24", "10.5.255.0/24");
    check(&json!({"Network": "10.5.7.9/22"}), "10.5.5.0/24", "10.5.7.0/24");
    check(&json!({"Network": "10.5.0.0/23"}), "10.5.0.128/25", "10.5.1.128/25");
    check(&json!({"Network": "10.5.0.0/28"}), "10.5.0.4/30", "10.5.0.12/30");
    check(&json!({"Network": "10.0.0.0/8", "SubnetLen": 20}), "10.0.16.0/20", "10.255.240.0/20");
    check(&json!({"Network": "240.0.0.0/4"}), "240.0.1.0/24", "255.255.255.0/24");
    let bounds = json!({"Network": "10.0.0.0/8", "SubnetMin": "10.0.0.0", "SubnetMax": "10.2.3.0"});
    check(&bounds, "10.0.0.0/24", "10.2.3.0/24");
    let unset = json!({"Network": "10.5.0.0/16", "SubnetLen": 0, "SubnetMin": "0.0.0.0", "SubnetMax": null});
    check(&unset, "10.5.1.0/24", "10.5.255.0/24");
    let both = json!({"Network": "10.5.0.0/16", "EnableIPv6": true, "IPv6Network": "fc00::/48"});
    check(&both, "fc00:0:0:1::/64", "fc00:0:0:ffff::/64");
    let alone = |net: &str| json!({"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": net});
    check(&alone("fc00::/63"), "fc00:0:0:0:8000::/65", "fc00:0:0:1:8000::/65");
    check(&alone("ffff::/16"), "ffff:0:0:1::/64", "ffff:ffff:ffff:ffff::/64");
    check(&alone("fc00::/124"), "fc00::4/126", "fc00::c/126");
}

#[test]
fn the_bounds_of_a_division_are_flannels() {
    refused(
        &json!({"Network": "10.5.0.0/29"}),
        "`Network` is 10.5.0.0/29; it is too small: /28 is the smallest network",
    );
    let with = |key: &str, value: Value| {
        let mut conf = json!({"Network": "10.5.0.0/16", "SubnetLen": 24});
        conf[key] = value;
        conf
    };
    refused(&with("SubnetLen", json!(31)), "`SubnetLen` is 31; 30 is the longest");
    refused(
        &with("SubnetLen", json!(17)),
        "`SubnetLen` is 17; four of them must fit into `Network`, 10.5.0.0/16",
    );
    refused(&with("SubnetLen", json!("24")), "`SubnetLen` is \"24\", and a length of a prefix is expected");
    refused(
        &with("SubnetMin", json!("10.6.0.0")),
        "`SubnetMin` is 10.6.0.0; it lies outside of `Network`, 10.5.0.0/16",
    );
    refused(
        &with("SubnetMax", json!("10.5.7.1")),
        "`SubnetMax` is 10.5.7.1; no prefix of length 24 begins there",
    );
    refused(
        &with("SubnetMin", json!("fc00::")),
        "`SubnetMin` is \"fc00::\", and an IPv4 address is expected",
    );
    let crossed = json!({"Network": "10.5.0.0/16", "SubnetMin": "10.5.9.0", "SubnetMax": "10.5.8.0"});
    refused(&crossed, "`SubnetMin` is 10.5.9.0; `SubnetMax` is 10.5.8.0, before it");
    let v6 = |len: u8| json!({"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fc00::/64", "IPv6SubnetLen": len});
    refused(&v6(127), "`IPv6SubnetLen` is 127; 126 is the longest");
    refused(&v6(65), "`IPv6SubnetLen` is 65; four of them must fit into `IPv6Network`, fc00::/64");
}

#[test]
fn what_is_wrong_is_said() {
    refused(&json!("{"), "the network's configuration is \"{\", and a JSON object is expected");
    refused(&json!({}), "`Network` is missing, the prefix of all pods' IPv4 addresses");
    refused(
        &json!({"Network": "10.5.0.0"}),
        "`Network` is \"10.5.0.0\", and an IPv4 prefix such as \"10.5.0.0/16\" is expected",
    );
    refused(
        &json!({"Network": "10.5.0.0/16", "EnableIPv6": true}),
        "`IPv6Network` is missing, the prefix of all pods' IPv6 addresses",
    );
    refused(
        &json!({"Network": "10.5.0.0/16", "EnableIPv4": "yes"}),
        "`EnableIPv4` is \"yes\", and true or false is expected",
    );
    refused(
        &json!({"Network": "10.5.0.0/16", "EnableIPv4": false}),
        "`EnableIPv4` and `EnableIPv6` are both false",
    );
    let backend = |backend: Value| json!({"Network": "10.5.0.0/16", "Backend": backend});
    refused(&backend(json!({})), "`Backend.Type` is missing");
    refused(&backend(json!("vxlan")), "`Backend` is \"vxlan\", and an object is expected");
    refused(
        &backend(json!({"Type": "vxlan", "VNI": 1 << 24})),
        "`Backend.VNI` is 16777216, and a number from 0 to 16777215 is expected",
    );
    refused(
        &backend(json!({"Type": "vxlan", "Port": 65536})),
        "`Backend.Port` is 65536, and a port from 0 to 65535 is expected",
    );
}

#[test]
fn a_backend_is_read_with_flannels_defaults() {
    let backend = |backend: Value| parsed(&json!({"Network": "10.5.0.0/16", "Backend": backend})).backend;
    assert_eq!(parsed(&json!({"Network": "10.5.0.0/16"})).backend.kind, "udp");
    let default = backend(json!({"Type": "VXLAN", "Port": 0, "MTU": 0}));
    assert_eq!((default.kind.as_str(), default.vni, default.port), ("vxlan", 1, 8472));
    assert_eq!((default.direct_routing, default.mtu_bytes, default.ignored.len()), (false, None, 0));
    let other = backend(
        json!({"type": "vxlan", "vni": 7, "port": 4789, "directRouting": true, "MTU": 1400, "GBP": true}),
    );
    assert_eq!((other.vni, other.port, other.direct_routing, other.mtu_bytes), (7, 4789, true, Some(1400)));
    assert_eq!(other.ignored, ["GBP"]);
}

#[test]
fn keys_are_found_in_any_case() {
    let conf = parsed(&json!({"network": "10.5.0.0/16", "enablenftables": true}));
    assert_eq!((conf.networks[0].prefix.to_string().as_str(), conf.nftables), ("10.5.0.0/16", true));
}

#[test]
fn free_prefixes_overlap_nothing_that_is_taken() {
    let free = |conf: &Value, taken: &[&str], limit| {
        let taken: Vec<IpNet> = taken.iter().map(|net| net.parse().unwrap()).collect();
        let free = parsed(conf).subnets().unwrap()[0].free(&taken, limit);
        free.iter().map(IpNet::to_string).collect::<Vec<_>>()
    };
    let small = json!({"Network": "10.5.0.0/21"});
    let taken = ["10.5.1.0/24", "10.5.3.7/32", "10.5.4.0/23", "10.5.4.0/24", "fc00::/64"];
    assert_eq!(free(&small, &taken, 9), ["10.5.2.0/24", "10.5.6.0/24", "10.5.7.0/24"]);
    assert_eq!(free(&small, &taken, 2), ["10.5.2.0/24", "10.5.6.0/24"]);
    assert_eq!(free(&small, &["10.0.0.0/8"], 9), [""; 0]);
    let large = json!({"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "fc00::/8"});
    // As many prefixes as would take years to try one after the other.
    assert_eq!(free(&large, &["fc00::/9", "fcff::/16"], 1), ["fc80::/64"]);
    let last = json!({"EnableIPv4": false, "EnableIPv6": true, "IPv6Network": "ff00::/8"});
    assert_eq!(free(&last, &["ff00::/8"], 1), [""; 0]);
}
