//! What a runtime or a user asks for one container, beside what the network's configuration says.

mod ports;

use std::net::IpAddr;

use cni::{Attachment, Failure, Request};
use datapath::{DEVICE, Limits, PublishedPort, RateLimit, ReceiveLimit};
use linux::Mac;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::ports::ports;
pub(crate) use self::ports::ports_at;
use crate::conf::Conf;
use crate::failures::{invalid_conf, unsupported};

/// What is asked for one container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContainerArgs {
    /// Addresses that it is to have; those of other range sets are chosen.
    pub(crate) ips: Vec<IpAddr>,
    /// The Ethernet address of its interface; `None`: one that is derived from numbers.
    pub(crate) mac: Option<Mac>,
    /// Ports of the node that lead to it.
    pub(crate) ports: Vec<PublishedPort>,
    /// How it resolves names, instead of what the configuration says.
    pub(crate) dns: Option<Value>,
    /// What it may send and receive.
    pub(crate) limits: Limits,
    /// The address of the device that it gets, for the attach that hands one over.
    pub(crate) device: Option<String>,
}

/// Capabilities of the conventions that are other plugins' work, with what to do instead.
const OF_OTHERS: [(&str, &str); 1] = [("infinibandGUID", "an attach has no InfiniBand device")];

/// The value of `bandwidth`: rates in bits a second and bursts in bits, 0 where nothing is limited. Ingress is what the
/// container receives.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bandwidth {
    ingress_rate: u64,
    ingress_burst: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl ContainerArgs {
    /// Reads what is asked for: by a capability (`runtimeConfig`), else by the configuration's `args.cni`, else by
    /// `CNI_ARGS`.
    ///
    /// # Errors
    /// Code 7 for a value that makes no sense, 2 for what the network's attach cannot do; the message names it.
    pub(crate) fn read(
        request: &Request,
        attachment: &Attachment,
        conf: &Conf,
    ) -> Result<ContainerArgs, Failure> {
        for (name, instead) in OF_OTHERS {
            if let Some(value) = request.runtime(name) {
                return Err(unsupported(format!("`runtimeConfig.{name}` is {value}; {instead}")));
            }
        }
        let named = asked(request, attachment, "mac", "MAC");
        let wanted = ContainerArgs {
            ips: asked_addresses(request, attachment)?,
            mac: named.map(|(name, value)| mac(&name, &value)).transpose()?,
            ports: request.runtime("portMappings").map_or(Ok(Vec::new()), |value| ports(&value))?,
            dns: request.runtime("dns").map_or(Ok(None), dns)?,
            limits: request.runtime("bandwidth").map_or(Ok(Limits::default()), |value| limits(&value))?,
            device: match request.runtime("deviceID") {
                None => conf.device.clone(),
                Some(value) => Some(device_id(&value)?),
            },
        };
        wanted.check(conf)?;
        Ok(wanted)
    }

    fn check(&self, conf: &Conf) -> Result<(), Failure> {
        let name = conf.path.name;
        match (&self.device, name == DEVICE.name) {
            (Some(device), false) => {
                let why =
                    format!("`runtimeConfig.deviceID` is {device:?}; {name} takes no device of its own");
                return Err(unsupported(why));
            }
            (None, true) => {
                let why = format!("`deviceID` is not set, and {name} hands over the device that it names");
                return Err(invalid_conf(why));
            }
            (Some(_), true) | (None, false) => {}
        }
        if let Some(port) = self.ports.first().filter(|_| !conf.path.attach.publishes_ports()) {
            return Err(unsupported(format!(
                "`runtimeConfig.portMappings` publishes port {}, and pods of {name} are reached past the rules that \
                 would translate it; those of bridge and ptp are not",
                port.node
            )));
        }
        if self.limits.receive.is_some()
            && let ReceiveLimit::Nowhere(why) = conf.path.attach.receive_limit()
        {
            return Err(unsupported(format!(
                "`runtimeConfig.bandwidth` has an `ingressRate`, which pods of {name} cannot have: {why}; \
                 `egressRate` works with all"
            )));
        }
        if let Some(mac) = self.mac.filter(|_| !conf.path.attach.has_own_mac()) {
            return Err(unsupported(format!(
                "the container's Ethernet address is to be {mac}, and pods of {name} have that of the node's wire or device"
            )));
        }
        Ok(())
    }
}

/// The addresses that a container is to have.
///
/// # Errors
/// Code 7: they are none.
pub(crate) fn asked_addresses(request: &Request, attachment: &Attachment) -> Result<Vec<IpAddr>, Failure> {
    let asked = asked(request, attachment, "ips", "IP");
    asked.map_or(Ok(Vec::new()), |(name, value)| addresses(&name, &value))
}

/// A wish, with the place where it was found.
fn asked(request: &Request, attachment: &Attachment, key: &str, variable: &str) -> Option<(String, Value)> {
    let in_environment = || {
        let (_, text) = attachment.args.iter().find(|(name, _)| name == variable)?;
        Some((format!("`{variable}` of CNI_ARGS"), Value::from(text.as_str())))
    };
    let capability = request.runtime(key).map(|value| (format!("`runtimeConfig.{key}`"), value));
    let argument = || request.argument(key).map(|value| (format!("`args.cni.{key}`"), value.clone()));
    capability.or_else(argument).or_else(in_environment)
}

/// How names are resolved, as a result has it. The conventions have other names for two of its keys, and a runtime in
/// Go writes `null` for a list that it does not have. `None`: nothing is said.
fn dns(value: Value) -> Result<Option<Value>, Failure> {
    let Value::Object(object) = value else {
        return Err(invalid_conf(format!("`runtimeConfig.dns` is {value}; an object is expected")));
    };
    let said = object.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| match &*key {
        "servers" => ("nameservers".to_owned(), value),
        "searches" => ("search".to_owned(), value),
        _ => (key, value),
    });
    let said: Map<String, Value> = said.collect();
    Ok((!said.is_empty()).then(|| said.into()))
}

/// A list of texts, or one text with commas. A prefix length is allowed and not used: it is that of the range.
fn addresses(name: &str, value: &Value) -> Result<Vec<IpAddr>, Failure> {
    let wrong = || invalid_conf(format!("{name} is {value}; a list of IP addresses is expected"));
    let texts: Vec<&str> = match value {
        Value::String(text) => text.split(',').map(str::trim).collect(),
        Value::Array(list) => list.iter().map(Value::as_str).collect::<Option<_>>().ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    let address = |text: &str| text.split('/').next().and_then(|text| text.parse().ok()).ok_or_else(wrong);
    texts.into_iter().map(address).collect()
}

fn mac(name: &str, value: &Value) -> Result<Mac, Failure> {
    let mac: Option<Mac> = value.as_str().and_then(|text| text.parse().ok());
    // The lowest bit of the first byte marks a group's address (IEEE 802).
    let single = mac.filter(|mac| mac.0[0] & 1 == 0 && mac.0 != [0; 6]);
    single.ok_or_else(|| {
        invalid_conf(format!("{name} is {value}; the Ethernet address of one interface is expected"))
    })
}

fn device_id(value: &Value) -> Result<String, Failure> {
    let text = value.as_str().filter(|text| !text.is_empty());
    let wrong = || format!("`runtimeConfig.deviceID` is {value}; the address of a device is expected");
    text.map(str::to_owned).ok_or_else(|| invalid_conf(wrong()))
}

fn limits(value: &Value) -> Result<Limits, Failure> {
    let asked: Bandwidth = serde_json::from_value(value.clone())
        .map_err(|error| invalid_conf(format!("`runtimeConfig.bandwidth` is {value}: {error}")))?;
    let Bandwidth { ingress_rate, ingress_burst, egress_rate, egress_burst } = asked;
    Ok(Limits {
        send: limit("egress", egress_rate, egress_burst)?,
        receive: limit("ingress", ingress_rate, ingress_burst)?,
    })
}

fn limit(direction: &str, rate: u64, burst: u64) -> Result<Option<RateLimit>, Failure> {
    let wrong = |why: String| invalid_conf(format!("`runtimeConfig.bandwidth` has {why}"));
    match (rate / 8, u32::try_from(burst / 8)) {
        (0, Ok(0)) => Ok(None),
        (0, _) => Err(wrong(format!(
            "an `{direction}Burst` of {burst} bits and an `{direction}Rate` of {rate} bits a second; \
             a rate of 8 is the lowest"
        ))),
        (_, Ok(0)) => Err(wrong(format!(
            "an `{direction}Rate` and an `{direction}Burst` of {burst} bits; a burst is at least as long as a packet"
        ))),
        (_, Err(_)) => Err(wrong(format!(
            "an `{direction}Burst` of {burst} bits; {} is the most",
            (u64::from(u32::MAX) + 1) * 8 - 1
        ))),
        (rate_bytes_per_s, Ok(burst_bytes)) => Ok(Some(RateLimit { rate_bytes_per_s, burst_bytes })),
    }
}

#[cfg(test)]
mod tests {
    use datapath::Protocol;
    use serde_json::json;

    use super::*;

    fn read(attach: &str, more: &Value, args: &[(&str, &str)]) -> Result<ContainerArgs, Failure> {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "pods", "type": "hostgap", "attach": attach,
            "ipam": { "type": "hostgap", "ranges": [[{ "subnet": "10.244.1.0/24" }]] },
        });
        conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let request = Request::read(&conf.to_string()).unwrap();
        let attachment = Attachment {
            container_id: "c1".into(),
            ifname: "eth0".into(),
            netns: None,
            args: args.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            path: Vec::new(),
        };
        ContainerArgs::read(&request, &attachment, &Conf::read(&request, "hostgap").unwrap())
    }

    #[track_caller]
    fn refused(attach: &str, runtime: &Value, code: u32, says: &str) {
        let failure = read(attach, &json!({ "runtimeConfig": runtime }), &[]).unwrap_err();
        assert_eq!(failure.code.unwrap().0, code, "{failure}");
        assert!(failure.message.contains(says), "{failure}");
    }

    #[test]
    fn a_capability_comes_before_an_argument_and_that_before_the_environment() {
        let environment = [("IgnoreUnknown", "1"), ("IP", "10.244.1.9"), ("MAC", "02:00:00:00:00:03")];
        let wanted = read("ptp", &json!({}), &environment).unwrap();
        assert_eq!(
            (wanted.ips, wanted.mac),
            (vec!["10.244.1.9".parse().unwrap()], Some(Mac([2, 0, 0, 0, 0, 3])))
        );
        let argument = json!({ "args": { "cni": { "ips": ["10.244.1.8/24"], "mac": "02:00:00:00:00:02" } } });
        let wanted = read("ptp", &argument, &environment).unwrap();
        assert_eq!(
            (wanted.ips, wanted.mac),
            (vec!["10.244.1.8".parse().unwrap()], Some(Mac([2, 0, 0, 0, 0, 2])))
        );
        let capability = json!({
            "args": argument["args"],
            "runtimeConfig": { "ips": ["10.244.1.7", "fd00::7/64"] },
        });
        let wanted = read("ptp", &capability, &environment).unwrap();
        assert_eq!(wanted.ips, ["10.244.1.7", "fd00::7"].map(|text| text.parse::<IpAddr>().unwrap()));
    }

    #[test]
    fn name_servers_are_handed_on_as_a_result_has_them() {
        let dns = |dns: Value| read("ptp", &json!({ "runtimeConfig": { "dns": dns } }), &[]).unwrap().dns;
        let conventions =
            json!({ "servers": ["10.96.0.10"], "searches": ["a.test"], "options": ["ndots:5"] });
        let expected = json!({ "nameservers": ["10.96.0.10"], "search": ["a.test"], "options": ["ndots:5"] });
        assert_eq!(dns(conventions), Some(expected));
        let containerds = json!({ "Servers": ["10.96.0.10"], "Searches": null, "Options": null });
        assert_eq!(dns(containerds), Some(json!({ "nameservers": ["10.96.0.10"] })));
        assert_eq!(dns(json!({ "Servers": null, "Searches": null, "Options": null })), None);
        refused("ptp", &json!({ "dns": ["10.96.0.10"] }), 7, "`runtimeConfig.dns`");
    }

    #[test]
    fn ports_are_those_of_the_conventions() {
        let mappings = json!([
            { "hostPort": 8080, "containerPort": 80 },
            // As containerd writes it.
            { "HostPort": 53, "ContainerPort": 1053, "Protocol": "UDP", "HostIP": "192.0.2.1" },
        ]);
        let wanted = read("bridge", &json!({ "runtimeConfig": { "portMappings": mappings } }), &[]).unwrap();
        let at = Some("192.0.2.1".parse().unwrap());
        let expected = [
            PublishedPort { node: 8080, address: None, pod: 80, protocol: Protocol::Tcp },
            PublishedPort { node: 53, address: at, pod: 1053, protocol: Protocol::Udp },
        ];
        assert_eq!(wanted.ports, expected);
    }

    #[test]
    fn rates_are_given_in_bits() {
        let limits = |bandwidth: Value| {
            read("bridge", &json!({ "runtimeConfig": { "bandwidth": bandwidth } }), &[]).unwrap().limits
        };
        let limit = |rate_bytes_per_s, burst_bytes| Some(RateLimit { rate_bytes_per_s, burst_bytes });
        let both =
            json!({ "ingressRate": 80_000, "ingressBurst": 160_000, "egressRate": 8, "egressBurst": 24_000 });
        assert_eq!(limits(both), Limits { receive: limit(10_000, 20_000), send: limit(1, 3000) });
        // As containerd asks for one direction: with a burst that never ends a slow start early.
        let egress =
            json!({ "IngressRate": 0, "IngressBurst": 0, "EgressRate": 1_000_000, "EgressBurst": u32::MAX });
        assert_eq!(limits(egress), Limits { send: limit(125_000, u32::MAX / 8), receive: None });
        assert_eq!(limits(json!({})), Limits::default());
    }

    #[test]
    fn rates_that_make_no_sense_are_refused() {
        let asked = |bandwidth: Value| json!({ "bandwidth": bandwidth });
        refused(
            "ptp",
            &asked(json!({ "ingressRate": 8000 })),
            7,
            "an `ingressRate` and an `ingressBurst` of 0 bits",
        );
        refused("ptp", &asked(json!({ "egressBurst": 8000 })), 7, "an `egressRate` of 0 bits a second");
        let long = json!({ "egressRate": 8000, "egressBurst": 1_u64 << 35 });
        refused("ptp", &asked(long), 7, "of 34359738368 bits; 34359738367 is the most");
        refused(
            "ptp",
            &asked(json!({ "egressRate": -1 })),
            7,
            "`runtimeConfig.bandwidth` is {\"egressRate\":-1}",
        );
        let ingress = asked(json!({ "ingressRate": 8_000_000, "ingressBurst": 80_000 }));
        let says = "which pods of ipvlan-l3s cannot have: what comes by the wire passes the node's netfilter, and not";
        refused("ipvlan-l3s", &ingress, 2, says);
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_name() {
        let port = json!({ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }] });
        refused("macvlan", &port, 2, "publishes port 8080, and pods of macvlan");
        let sctp = json!({ "portMappings": [{ "hostPort": 1, "containerPort": 1, "protocol": "sctp" }] });
        refused("ptp", &sctp, 2, "protocol \"sctp\"");
        refused(
            "ptp",
            &json!({ "portMappings": [{ "hostPort": 0, "containerPort": 80 }] }),
            7,
            "the port 0 for 80",
        );
        refused(
            "ptp",
            &json!({ "portMappings": [{ "hostPort": 70000, "containerPort": 80 }] }),
            7,
            "portMappings",
        );
        let wrong = json!({ "portMappings": [{ "hostPort": 1, "containerPort": 1, "hostIP": "me" }] });
        refused("ptp", &wrong, 7, "`hostIP` \"me\"");
        refused("ptp", &json!({ "ips": ["10.244.1"] }), 7, "`runtimeConfig.ips` is [\"10.244.1\"]");
        refused("ptp", &json!({ "mac": "01:00:00:00:00:00" }), 7, "Ethernet address of one interface");
        refused("ipvlan-l3", &json!({ "mac": "02:00:00:00:00:01" }), 2, "that of the node's wire");
        assert_eq!(
            read("ptp", &json!({ "runtimeConfig": { "aliases": ["a"] } }), &[]).unwrap(),
            ContainerArgs::default()
        );
    }
}
