//! The forms in which flannel writes leases: keys of etcd, and JSON, of which Kubernetes' annotations hold parts.
//!
//! What is read may have been written by flannel, by hand, or by anything else that can reach the store.

use std::net::{Ipv4Addr, Ipv6Addr};

use datapath::{Addresses, Family, Prefixes};
use ipnet::{IpNet, Ipv4Net};
use linux::{Mac, PublicKey};
use serde_json::{Map, Value, json};

use crate::backend::BackendKind;
use crate::lease::{Announcement, TunnelData, VxlanEnd};

/// Why a text is no lease.
#[derive(Debug, thiserror::Error, PartialEq)]
pub(crate) enum FormError {
    #[error("the key is not of the form `10.5.52.0-24` or `10.5.52.0-24&fc00::-64`")]
    Key,
    #[error("the value is not JSON: {0}")]
    Json(String),
    #[error("the value is {0}, and a JSON object is expected")]
    NoObject(Value),
    #[error("`{key}` is {found}, and {expected} is expected")]
    Unexpected { key: &'static str, found: Value, expected: &'static str },
    #[error("`{within}` has no `{key}`")]
    Missing { within: &'static str, key: &'static str },
}

/// The name of a lease in etcd: `10.5.52.0-24`, or with both families `10.5.52.0-24&fc00::-64`. With IPv6 alone it is
/// `0.0.0.0-0&fc00::-64`, since flannel reads no key without an IPv4 part.
pub(crate) fn subnet_key(pods: &Prefixes) -> String {
    let part = |family| pods.of(family).next().map(|net| format!("{}-{}", net.network(), net.prefix_len()));
    let v4 = part(Family::V4).unwrap_or_else(|| "0.0.0.0-0".to_owned());
    match part(Family::V6) {
        None => v4,
        Some(v6) => format!("{v4}&{v6}"),
    }
}

/// Reads the name of a lease. `fc00::-64` is read too. Bits behind the length, which some write by hand, do not count.
pub(crate) fn parse_subnet_key(key: &str) -> Result<Prefixes, FormError> {
    let part = |part: &str| -> Option<IpNet> {
        let (address, len) = part.split_once('-')?;
        let len = Some(len).filter(|len| len.bytes().all(|byte| byte.is_ascii_digit()))?;
        IpNet::new(address.parse().ok()?, len.parse().ok()?).ok()
    };
    let parts: Option<Vec<IpNet>> = key.split('&').map(part).collect();
    let parts = parts.filter(|parts| match parts[..] {
        [one] => one.prefix_len() > 0,
        [IpNet::V4(_), IpNet::V6(v6)] => v6.prefix_len() > 0,
        _ => false,
    });
    let is_there = |net: &IpNet| *net != IpNet::from(Ipv4Net::default());
    Ok(parts.ok_or(FormError::Key)?.into_iter().filter(is_there).collect())
}

/// What a node says of itself, as the value of its lease.
pub(crate) fn announcement_value(node: &Announcement) -> Value {
    // flannel always writes both addresses: those that are absent as 0.0.0.0 and null.
    let mut object = json!({
        "PublicIP": node.public.v4.unwrap_or(Ipv4Addr::UNSPECIFIED),
        "PublicIPv6": node.public.v6,
        "BackendType": node.backend,
    });
    for (key, data) in [("BackendData", node.data), ("BackendV6Data", node.data_v6)] {
        if let Some(data) = data {
            object[key] = tunnel_value(data);
        }
    }
    object
}

/// Reads the value of a lease. A reservation that an administrator wrote may name no backend; its name is empty then.
///
/// # Errors
/// The first thing that is wrong. A backend that is not ours may have any data.
pub(crate) fn parse_announcement(value: &[u8]) -> Result<Announcement, FormError> {
    let value: Value = serde_json::from_slice(value).map_err(|error| FormError::Json(error.to_string()))?;
    let Value::Object(object) = value else { return Err(FormError::NoObject(value)) };
    let v4 = text(&object, "PublicIP", "an IPv4 address", |text| text.parse::<Ipv4Addr>().ok())?;
    let v6 = text(&object, "PublicIPv6", "an IPv6 address", |text| text.parse::<Ipv6Addr>().ok())?;
    let public = Addresses {
        v4: v4.filter(|address| !address.is_unspecified()),
        v6: v6.filter(|address| !address.is_unspecified()),
    };
    let backend = text(&object, "BackendType", "a text", |text| Some(text.to_owned()))?.unwrap_or_default();
    let data =
        |key| object.get(key).map_or(Ok(None), |data| parse_tunnel(BackendKind::find(&backend), key, data));
    Ok(Announcement { public, data: data("BackendData")?, data_v6: data("BackendV6Data")?, backend })
}

/// What a node says of its end of a tunnel, as JSON.
pub(crate) fn tunnel_value(data: TunnelData) -> Value {
    match data {
        TunnelData::Vxlan(VxlanEnd { vni: None, mac }) => json!({ "VtepMAC": mac }),
        TunnelData::Vxlan(VxlanEnd { vni: Some(vni), mac }) => json!({ "VNI": vni, "VtepMAC": mac }),
        TunnelData::WireGuard(key) => json!({ "PublicKey": key }),
    }
}

/// Reads it; `within` is the key that has it. `null`, and what a backend without tunnels says, or one that is not ours,
/// is `None`. Keys that are unknown are no error.
pub(crate) fn parse_tunnel(
    backend: Option<BackendKind>,
    within: &'static str,
    value: &Value,
) -> Result<Option<TunnelData>, FormError> {
    let Some(kind) = backend.filter(|kind| kind.has_tunnels() && !value.is_null()) else { return Ok(None) };
    let Value::Object(object) = value else {
        return Err(FormError::Unexpected { key: within, found: value.clone(), expected: "an object" });
    };
    if kind == BackendKind::WireGuard {
        let expected = "a public key of 32 bytes in 44 characters of base64";
        let key = text(object, "PublicKey", expected, |text| text.parse::<PublicKey>().ok())?;
        let key = key.ok_or(FormError::Missing { within, key: "PublicKey" })?;
        return Ok(Some(TunnelData::WireGuard(key)));
    }
    let mac = text(object, "VtepMAC", "an Ethernet address", |text| text.parse::<Mac>().ok())?;
    let vni = object.get("VNI").filter(|vni| !vni.is_null()).map(|vni| {
        let number = vni.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| FormError::Unexpected { key: "VNI", found: vni.clone(), expected: "a number" })
    });
    let mac = mac.ok_or(FormError::Missing { within, key: "VtepMAC" })?;
    Ok(Some(TunnelData::Vxlan(VxlanEnd { vni: vni.transpose()?, mac })))
}

/// The text of a key, read. A key that is absent or `null` is `None`.
fn text<T>(
    object: &Map<String, Value>,
    key: &'static str,
    expected: &'static str,
    reader: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, FormError> {
    let Some(found) = object.get(key).filter(|found| !found.is_null()) else { return Ok(None) };
    let unexpected = || FormError::Unexpected { key, found: found.clone(), expected };
    found.as_str().and_then(reader).ok_or_else(unexpected).map(Some)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(texts: &[&str]) -> Prefixes {
        texts.iter().map(|text| text.parse::<IpNet>().unwrap()).collect()
    }

    #[test]
    fn names_are_flannels() {
        let check = |key: &str, pods: &[&str]| {
            assert_eq!(parse_subnet_key(key).unwrap(), nets(pods), "{key}");
            assert_eq!(subnet_key(&nets(pods)), key);
        };
        check("10.5.52.0-24", &["10.5.52.0/24"]);
        check("10.5.52.0-24&fc00::-64", &["10.5.52.0/24", "fc00::/64"]);
        check("0.0.0.0-0&fc00:0:0:5::-64", &["fc00:0:0:5::/64"]);
        assert_eq!(parse_subnet_key("fc00::-64").unwrap(), nets(&["fc00::/64"]));
        assert_eq!(parse_subnet_key("10.5.52.9-24").unwrap(), nets(&["10.5.52.0/24"]));
        let garbage = "|10.5.52.0|10.5.52.0-|10.5.52.0-33|10.5.52.0-+4|10.5.52.0/24|fc00::-64&10.5.52.0-24|\
            10.5.52.0-24&|10.5.52.0-24&10.6.52.0-24|0.0.0.0-0|::-0|10.5.52.0-24&fc00::-64&fc01::-64|a-24";
        for key in garbage.split('|') {
            assert_eq!(parse_subnet_key(key), Err(FormError::Key), "{key}");
        }
    }

    #[test]
    fn what_flannel_writes_is_read() {
        let text = r#"{"PublicIP":"192.168.1.7","PublicIPv6":null,"BackendType":"vxlan",
            "BackendData":{"VNI":1,"VtepMAC":"4e:1c:9e:00:0a:0b"}}"#;
        let node = parse_announcement(text.as_bytes()).unwrap();
        let mac = "4e:1c:9e:00:0a:0b".parse().unwrap();
        assert_eq!(node.public, Addresses { v4: Some("192.168.1.7".parse().unwrap()), v6: None });
        let data = Some(TunnelData::Vxlan(VxlanEnd { vni: Some(1), mac }));
        assert_eq!((node.data, node.data_v6), (data, None));
        assert_eq!(announcement_value(&node), serde_json::from_str::<Value>(text).unwrap());
        let other =
            br#"{"PublicIP":"0.0.0.0","PublicIPv6":"fd00::7","BackendType":"ipsec","BackendData":"x"}"#;
        let other = parse_announcement(other).unwrap();
        assert_eq!(other.public, Addresses { v4: None, v6: Some("fd00::7".parse().unwrap()) });
        assert_eq!((other.backend.as_str(), other.data), ("ipsec", None));
        assert_eq!(parse_announcement(br#"{"PublicIP":"192.168.1.7"}"#).unwrap().backend, "");
    }

    /// As flannel writes it with both families (`wireguardLeaseAttrs` in pkg/backend/wireguard): the key is all that it
    /// says, and the port is the network's.
    #[test]
    fn a_key_that_flannel_writes_is_read() {
        let text = r#"{"PublicIP":"192.168.1.7","PublicIPv6":"fd00::7","BackendType":"wireguard",
            "BackendData":{"PublicKey":"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="},
            "BackendV6Data":{"PublicKey":"3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="}}"#;
        let node = parse_announcement(text.as_bytes()).unwrap();
        let key = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08=".parse().unwrap();
        assert_eq!((node.data, node.data_v6), (Some(TunnelData::WireGuard(key)), node.data));
        assert_eq!(announcement_value(&node), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_is_wrong_with_a_value_is_said() {
        let check = |text: &str, says: &str| {
            let error = parse_announcement(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{says:?} is not in {error:?}");
        };
        check("", "the value is not JSON: EOF");
        check("[]", "the value is [], and a JSON object");
        check(r#"{"PublicIP":"fd00::1"}"#, "`PublicIP` is \"fd00::1\", and an IPv4 address");
        check(r#"{"PublicIP":7}"#, "`PublicIP` is 7, and an IPv4 address");
        check(r#"{"BackendType":"vxlan","BackendData":[]}"#, "`BackendData` is [], and an object");
        check(r#"{"BackendType":"vxlan","BackendV6Data":{}}"#, "`BackendV6Data` has no `VtepMAC`");
        check(
            r#"{"BackendType":"vxlan","BackendData":{"VtepMAC":"4e"}}"#,
            "`VtepMAC` is \"4e\", and an Ethernet",
        );
        let vni = r#"{"BackendType":"vxlan","BackendData":{"VNI":-1,"VtepMAC":"4e:1c:9e:00:0a:0b"}}"#;
        check(vni, "`VNI` is -1, and a number");
        let key = |data: &str| format!(r#"{{"BackendType":"wireguard","BackendData":{data}}}"#);
        check(&key("{}"), "`BackendData` has no `PublicKey`");
        check(&key(r#"{"PublicKey":"3p7b"}"#), "`PublicKey` is \"3p7b\", and a public key of 32 bytes");
        let zero = r#"{"PublicKey":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}"#;
        check(&key(zero), "and a public key of 32 bytes");
    }

    fn end() -> impl Strategy<Value = TunnelData> {
        let data = (any::<Option<u32>>(), any::<[u8; 6]>());
        data.prop_map(|(vni, mac)| TunnelData::Vxlan(VxlanEnd { vni, mac: Mac(mac) }))
    }

    fn key() -> impl Strategy<Value = TunnelData> {
        let key = any::<[u8; 32]>().prop_filter("no device has it", |key| *key != [0; 32]);
        key.prop_map(|key| TunnelData::WireGuard(PublicKey(key)))
    }

    fn announcement() -> impl Strategy<Value = Announcement> {
        let public =
            (prop::option::of(1..=u32::MAX), prop::option::of(1..=u128::MAX)).prop_map(|(v4, v6)| {
                Addresses { v4: v4.map(Ipv4Addr::from_bits), v6: v6.map(Ipv6Addr::from_bits) }
            });
        let of = |kind: BackendKind, data: BoxedStrategy<TunnelData>| {
            let data = [(); 2].map(|()| prop::option::of(data.clone()));
            let [data, data_v6] = data;
            (public.clone(), data, data_v6).prop_map(move |(public, data, data_v6)| Announcement {
                public,
                backend: kind.name().to_owned(),
                data,
                data_v6,
            })
        };
        let vxlan = of(BackendKind::Vxlan, end().boxed());
        let wireguard = of(BackendKind::WireGuard, key().boxed());
        let other = (public, ".*").prop_filter_map("a backend with tunnels", |(public, backend)| {
            let has_tunnels = BackendKind::find(&backend).is_some_and(BackendKind::has_tunnels);
            (!has_tunnels).then_some(Announcement { public, backend, data: None, data_v6: None })
        });
        prop_oneof![vxlan, wireguard, other]
    }

    fn pods() -> impl Strategy<Value = Prefixes> {
        let v4 = (any::<u32>(), 1..=32_u8)
            .prop_map(|(bits, len)| IpNet::new(Ipv4Addr::from_bits(bits).into(), len));
        let v6 = (any::<u128>(), 1..=128_u8)
            .prop_map(|(bits, len)| IpNet::new(Ipv6Addr::from_bits(bits).into(), len));
        let families = (prop::option::of(v4), prop::option::of(v6));
        families
            .prop_map(|(v4, v6)| [v4, v6].into_iter().flatten().map(Result::unwrap).collect::<Prefixes>())
            .prop_filter("no prefix", |pods| pods.iter().next().is_some())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(pods in pods(), node in announcement()) {
            prop_assert_eq!(parse_subnet_key(&subnet_key(&pods)).unwrap(), pods);
            let text = serde_json::to_vec(&announcement_value(&node)).unwrap();
            prop_assert_eq!(parse_announcement(&text).unwrap(), node);
        }

        #[test]
        fn nothing_panics(key in "[-&:.0-9a-f]*|.*", value in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_subnet_key(&key);
            let _ = parse_announcement(&value);
        }

        #[test]
        fn nothing_panics_of_what_is_almost_a_value(
            key in "PublicIP|PublicIPv6|BackendType|BackendData|BackendV6Data",
            found in "null|7|\"vxlan\"|\"::\"|\\{\"(VtepMAC|PublicKey)\":(7|\"a:b\")\\}|\\{\"VNI\":[0-9]{0,12}\\}",
            kind in "vxlan|wireguard",
        ) {
            let _ = parse_announcement(format!(r#"{{"BackendType":"{kind}","{key}":{found}}}"#).as_bytes());
        }
    }
}
