//! The parts of a namespace that a plan may change, as text lines. Outside programs read them where such
//! programs exist: a reader that shares a mistake with the writer would not notice it. Tests that check
//! hundreds of times read them in this process in between.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv6Addr;

use linux::ethtool::{Ethtool, FlowType, NicFeature, NicParameter};
use linux::interrupts::Interrupts;
use linux::sysfs::{LinkAttribute, NetSysfs, Queue};
use linux::{Mac, Netlink, Netns, sysctl};
use serde_json::Value;

use crate::judge::{run, run_with_input};

/// The state of a namespace without its volatile parts. If two dumps are equal, no change is left and no
/// object is missing.
#[derive(Clone, PartialEq, Eq)]
pub struct Dump {
    /// Lines, and how often each occurs.
    lines: BTreeMap<String, usize>,
}

/// Names in the programs' JSON for counters, timers, states that settle later, and numbers that the kernel
/// assigns in sequence.
const VOLATILE: &[&str] = &[
    "age",
    "bytes",
    "carrier",
    "expires",
    "forward_delay_timer",
    "gc_timer",
    "handle",
    "hello_timer",
    "hold_timer",
    "ifindex",
    "link_index",
    "link_netnsid",
    "message_age_timer",
    "metainfo",
    "operstate",
    "packets",
    "preferred_life_time",
    "tcn_timer",
    "tentative",
    "topology_change",
    "topology_change_detected",
    "topology_change_timer",
    // A bridge takes these from its ports, and keeps them when the ports are gone.
    "tso_max_segs",
    "tso_max_size",
    "used",
    "valid_life_time",
];

/// Flags of links and routes that follow the carrier after a while.
const OF_CARRIER: &[&str] = &["NO-CARRIER", "LOWER_UP", "RUNNING", "linkdown"];

/// Kernel parameters that change by themselves, by the last part of their names.
const VOLATILE_PARAMETERS: &[&str] = &["nf_conntrack_count", "stable_secret", "tcp_fastopen_key"];

/// Parameters of modules that a plan may change, below `/sys/module`.
const PARAMETERS_OF_MODULES: &[&str] =
    &["tcp_cubic/parameters/hystart", "tcp_cubic/parameters/hystart_detect"];

/// The files of a link that a plan may change.
const ATTRIBUTES: &[LinkAttribute] = &[
    LinkAttribute::GroFlushTimeout,
    LinkAttribute::NapiDeferHardIrqs,
    LinkAttribute::Threaded,
    LinkAttribute::TxQueueLen,
];

/// The numbers of a card that a plan may change.
const PARAMETERS: &[NicParameter] = &[
    NicParameter::RingRx,
    NicParameter::RingTx,
    NicParameter::Channels,
    NicParameter::CoalesceRxUsecs,
    NicParameter::CoalesceTxUsecs,
    NicParameter::CoalesceAdaptiveRx,
    NicParameter::Feature(NicFeature::Gro),
    NicParameter::Feature(NicFeature::Gso),
    NicParameter::Feature(NicFeature::TsoIpv4),
    NicParameter::Feature(NicFeature::TsoIpv6),
    NicParameter::Feature(NicFeature::GroHw),
    NicParameter::Feature(NicFeature::RxChecksum),
];

/// For each run of `ip` its option, and for each command of its batch the kind of its rows.
const IP_BATCHES: [(&str, &[(&str, &str)]); 3] = [
    ("-d", &[(LINK, "address"), ("neighbour", "neighbour show nud permanent")]),
    ("-4", &[("route", "route show table all"), ("rule", "rule"), ("proxy", "neighbour show proxy")]),
    ("-6", &[("route6", "route show table all"), ("rule6", "rule"), ("proxy6", "neighbour show proxy")]),
];
const LINK: &str = "link";

/// Reads the state of a namespace.
///
/// # Panics
/// If a program or the kernel refuses.
pub fn dump(netns: &Netns) -> Dump {
    let mut dump = Dump { lines: BTreeMap::new() };
    dump.add_tables(netns);
    for row in list_nft(netns) {
        dump.add(format!("nft {row}"));
    }
    dump.add_filters(netns);
    dump.add_rest(netns);
    dump
}

/// Like [`dump`], but starts no program: this process reads links, addresses, routes, policy rules,
/// neighbours, forwarding entries, queueing disciplines and filters, and leaves the rules of nftables out.
/// The result cannot be compared with that of [`dump`].
///
/// # Panics
/// As [`dump`] does.
pub fn quick_dump(netns: &Netns) -> Dump {
    let mut dump = Dump { lines: BTreeMap::new() };
    let standing = Netlink::open_in(netns).and_then(|netlink| netlink.standing());
    for line in standing.expect("the kernel lists what a test's own namespace holds") {
        dump.add(line);
    }
    dump.add_rest(netns);
    dump
}

impl Dump {
    /// The differences, one on each line: `-` occurs only in this dump, `+` only in `later`.
    pub fn diff(&self, later: &Dump) -> Vec<String> {
        let missing = self.lines.iter().filter(|(line, count)| later.lines.get(*line) != Some(count));
        let extra = later.lines.iter().filter(|(line, count)| self.lines.get(*line) != Some(count));
        let mut lines: Vec<String> = missing.map(|(line, _)| format!("- {line}")).collect();
        lines.extend(extra.map(|(line, _)| format!("+ {line}")));
        lines
    }

    /// Fails the test with the differences if there are any.
    ///
    /// # Panics
    /// If the dumps differ.
    #[track_caller]
    pub fn assert_same(&self, later: &Dump, when: &str) {
        let diff = self.diff(later);
        assert!(diff.is_empty(), "{when}, the namespace differs:\n{}", diff.join("\n"));
    }

    /// The lines, each as often as it occurs.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().flat_map(|(line, count)| std::iter::repeat_n(line.as_str(), *count))
    }

    fn add(&mut self, line: String) {
        *self.lines.entry(line).or_default() += 1;
    }

    /// Adds what [`dump`] and [`quick_dump`] read in the same way.
    fn add_rest(&mut self, netns: &Netns) {
        self.add_parameters(netns);
        self.add_modules();
        self.add_queues(netns);
        self.add_cards(netns);
        self.add_programs(netns);
    }

    /// Adds links, addresses, routes, rules, neighbours, forwarding entries and qdiscs.
    fn add_tables(&mut self, netns: &Netns) {
        let has_ipv6 = linux::features::has_ipv6();
        for (option, commands) in IP_BATCHES.into_iter().filter(|(option, _)| has_ipv6 || *option != "-6") {
            let batch: String = commands.iter().map(|(_, command)| format!("{command}\n")).collect();
            let text = run_with_input(netns, "ip", &[option, "-j", "-batch", "-"], &batch);
            let tables = json_arrays(&text);
            assert_eq!(tables.len(), commands.len(), "`ip` prints an array for each command: {text}");
            for ((kind, _), rows) in commands.iter().zip(tables) {
                self.add_rows(kind, rows);
            }
        }
        // In text: `ip` has no JSON for these, and prints nothing where the kernel has no IPsec.
        for what in ["state", "policy"] {
            let text = run(netns, "ip", &["xfrm", what]);
            text.lines().for_each(|line| self.add(format!("xfrm {what} {}", line.trim())));
        }
        self.add_rows("fdb", list(netns, "bridge", &["-j", "fdb"]));
        self.add_rows("qdisc", list(netns, "tc", &["-j", "qdisc"]));
    }

    fn add_rows(&mut self, kind: &str, rows: Vec<Value>) {
        for row in rows {
            if kind == LINK {
                self.add_link(&row);
            } else if is_lasting(kind, &row) {
                self.add(format!("{kind} {row}"));
            }
        }
    }

    fn add_link(&mut self, link: &Value) {
        let name = link["ifname"].as_str().expect("`ip` names every link");
        let mut link = link.clone();
        let own = link["address"].as_str().and_then(link_local);
        if let Some(addresses) = link["addr_info"].as_array_mut() {
            // The kernel adds it when the link gets its carrier, up to a second after the link was set up.
            addresses.retain(|address| own.is_none() || parsed(&address["local"]) != own);
        }
        for (path, value) in flat("", &link) {
            self.add(format!("link {name}{path} {value}"));
        }
    }

    fn add_parameters(&mut self, netns: &Netns) {
        let parameters = netns.run(|| sysctl::list("net")).expect("tests may enter their own namespaces");
        for (key, value) in parameters.expect("kernel parameters are readable") {
            let leaf = key.as_str().rsplit('/').next().unwrap_or_default();
            if !VOLATILE_PARAMETERS.contains(&leaf) {
                self.add(format!("sysctl {key} {value}"));
            }
        }
    }

    /// Adds the parameters of modules that a plan may change. All namespaces share them.
    fn add_modules(&mut self) {
        for parameter in PARAMETERS_OF_MODULES {
            if let Ok(value) = std::fs::read_to_string(format!("/sys/module/{parameter}")) {
                self.add(format!("module {parameter} {}", value.trim()));
            }
        }
    }

    fn add_queues(&mut self, netns: &Netns) {
        let sysfs = NetSysfs::open(netns).expect("root can mount sysfs");
        for link in sysfs.links().expect("sysfs lists links") {
            for queue in sysfs.queues(&link).expect("a link has queues") {
                // A link with a single send queue has no CPUs to read.
                if let Queue::Rx(rx) = queue
                    && let Ok(flows) = sysfs.read_queue_flows(&link, rx)
                {
                    self.add(format!("queue {link} {queue} flows {flows}"));
                }
                if let Ok(cpus) = sysfs.read_queue_cpus(&link, queue) {
                    self.add(format!("queue {link} {queue} {}", cpus.to_mask()));
                }
            }
        }
    }
}

impl Dump {
    /// Adds the settings of cards and the files of links. It does not use `ethtool`, which is not installed
    /// everywhere.
    fn add_cards(&mut self, netns: &Netns) {
        let sysfs = NetSysfs::open(netns).expect("root can mount sysfs");
        let ethtool = Ethtool::open_in(netns).expect("every kernel has ethtool's netlink");
        for link in sysfs.links().expect("sysfs lists links") {
            for attribute in ATTRIBUTES {
                if let Ok(value) = sysfs.read_attribute(&link, *attribute) {
                    self.add(format!("attribute {link} {attribute} {value}"));
                }
            }
            for parameter in PARAMETERS {
                if let Ok(Some(value)) = ethtool.read(&link, *parameter) {
                    self.add(format!("card {link} {parameter} {} {}", value.now, value.wanted));
                }
            }
            if let Ok(Some(table)) = ethtool.read_indirection(&link) {
                self.add(format!("card {link} table {table:?}"));
            }
            for flow in FlowType::ALL {
                if let Ok(Some(fields)) = ethtool.read_hash_fields(&link, flow) {
                    self.add(format!("card {link} hash {flow} {fields}"));
                }
            }
            if let Ok(Some(key)) = ethtool.read_hash_key(&link) {
                self.add(format!("card {link} key {key}"));
            }
            let numbers = sysfs.interrupts(&link).unwrap_or_default();
            for irq in numbers {
                if let Ok(Some(cpus)) = Interrupts::kernel().read_cpus(irq) {
                    self.add(format!("card {link} interrupt {irq} {cpus}"));
                }
            }
        }
    }

    /// Adds the programs at links, by name. It does not use `bpftool`, which is not everywhere and whose
    /// older versions do not know tcx.
    fn add_programs(&mut self, netns: &Netns) {
        let netlink = Netlink::open_in(netns).expect("a socket can be opened in a test's own namespace");
        for link in netlink.links().expect("links can be listed") {
            let programs = netns.run(|| bpf::programs_at(link.index));
            let programs = programs.expect("tests may enter their own namespaces");
            for (hook, name) in programs.expect("root may ask for programs") {
                self.add(format!("program {} {hook} {name}", link.name));
            }
        }
    }

    /// Adds the filters at links, as `tc` lists them.
    fn add_filters(&mut self, netns: &Netns) {
        let netlink = Netlink::open_in(netns).expect("a socket can be opened in a test's own namespace");
        for link in netlink.links().expect("links can be listed") {
            let hooks: &[&str] =
                match netlink.ingress_kind(link.index).expect("qdiscs can be looked at").as_deref() {
                    None => &[],
                    Some("clsact") => &["ingress", "egress"],
                    Some(_) => &["ingress"],
                };
            for hook in hooks {
                for filter in list(netns, "tc", &["-j", "filter", "show", "dev", link.name.as_str(), hook]) {
                    let options = &filter["options"];
                    let leads_to = &options["actions"][0]["to_dev"];
                    let name = options["bpf_name"].as_str().or(leads_to.as_str()).unwrap_or_default();
                    self.add(format!(
                        "filter {} {hook} {} {} {name}",
                        link.name, filter["pref"], filter["kind"]
                    ));
                }
            }
        }
    }
}

impl fmt::Debug for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lines()).finish()
    }
}

/// The rows that a program prints as a JSON array. No output counts as an empty array.
fn list(netns: &Netns, program: &str, arguments: &[&str]) -> Vec<Value> {
    json_arrays(&run(netns, program, arguments)).pop().unwrap_or_default()
}

/// The rows of each JSON array in `text`.
fn json_arrays(text: &str) -> Vec<Vec<Value>> {
    let values = serde_json::Deserializer::from_str(text).into_iter();
    values
        .map(|value| match value.expect("asked for JSON") {
            Value::Array(rows) => rows
                .into_iter()
                .map(steady)
                .filter(|row| row.as_object().is_none_or(|fields| !fields.is_empty()))
                .collect(),
            row => vec![steady(row)],
        })
        .collect()
}

fn list_nft(netns: &Netns) -> Vec<Value> {
    let ruleset = list(netns, "nft", &["-j", "list", "ruleset"]);
    let rows = ruleset.into_iter().filter_map(|mut ruleset| ruleset.get_mut("nftables").map(Value::take));
    rows.flat_map(|rows| rows.as_array().cloned().unwrap_or_default()).collect()
}

/// The value without its volatile parts.
fn steady(value: Value) -> Value {
    match value {
        Value::Object(mut fields) => {
            if let Some(Value::Array(flags)) = fields.get_mut("flags") {
                flags.retain(|flag| !flag.as_str().is_some_and(|flag| OF_CARRIER.contains(&flag)));
            }
            let lasting = fields.into_iter().filter(|(name, _)| !VOLATILE.contains(&name.as_str()));
            Value::Object(lasting.map(|(name, value)| (name, steady(value))).collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(steady).collect()),
        plain => plain,
    }
}

/// False for rows that the kernel adds later by itself. These are the local routes of IPv6, which follow the
/// check of an address (`addrconf_dad_work`, even without duplicate address detection), and the routes of a
/// link's own address and of multicast, which follow the carrier. Forwarding entries of multicast groups come
/// and go with addresses, and others are learnt from packets. An address that was left behind still shows
/// among the addresses of its link.
fn is_lasting(kind: &str, row: &Value) -> bool {
    let starts = |field: &str, prefix| row[field].as_str().is_some_and(|text| text.starts_with(prefix));
    match kind {
        "fdb" => row["state"] == "permanent" && !starts("mac", "33:33:") && !starts("mac", "01:00:5e:"),
        "route6" if row["protocol"] == "kernel" => row["table"] != "local" && row["dst"] != "fe80::/64",
        _ => true,
    }
}

/// The link-local address that the kernel derives from an Ethernet address (RFC 4291, appendix A).
fn link_local(mac: &str) -> Option<Ipv6Addr> {
    let Mac([a, b, c, d, e, f]) = mac.parse().ok()?;
    Some(Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]))
}

fn parsed(address: &Value) -> Option<Ipv6Addr> {
    address.as_str()?.parse().ok()
}

/// The leaves of a value with their paths, so that a diff shows the one field that differs. A link's arrays,
/// such as its addresses, become rows.
fn flat(path: &str, value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| flat(&format!("{path}.{name}"), value)).collect()
        }
        Value::Array(rows) => rows.iter().map(|row| (path.to_owned(), row.to_string())).collect(),
        plain => vec![(path.to_owned(), plain.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volatile_fields_are_left_out_at_any_depth() {
        let value = serde_json::json!({"ifindex": 3, "a": [{"handle": 7, "b": 1}]});
        assert_eq!(steady(value), serde_json::json!({"a": [{"b": 1}]}));
    }

    #[test]
    fn what_follows_the_carrier_is_left_out_and_nothing_else() {
        let route = |fields: &str| -> Value { serde_json::from_str(fields).unwrap() };
        let route6 = |fields: &str| is_lasting("route6", &route(fields));
        assert!(!route6(r#"{"type":"local","dst":"fd00::1","table":"local","protocol":"kernel"}"#));
        assert!(!route6(r#"{"type":"multicast","dst":"ff00::/8","table":"local","protocol":"kernel"}"#));
        assert!(!route6(r#"{"dst":"fe80::/64","protocol":"kernel"}"#));
        assert!(route6(r#"{"dst":"fd00::/64","protocol":"kernel"}"#));
        assert!(route6(r#"{"dst":"fe80::/64"}"#), "a user added it");
        assert!(route6(r#"{"type":"local","dst":"fd00::1","table":"local"}"#), "a user added it");
        let flags = serde_json::json!({"flags": ["UP", "LOWER_UP", "linkdown", "onlink"]});
        assert_eq!(steady(flags), serde_json::json!({"flags": ["UP", "onlink"]}));
        let own = link_local("66:c1:8e:b5:49:be").unwrap();
        assert_eq!(own.to_string(), "fe80::64c1:8eff:feb5:49be");
    }

    #[test]
    fn a_diff_names_the_one_field() {
        let of = |mtu: u32| {
            let mut dump = Dump { lines: BTreeMap::new() };
            dump.add_link(&serde_json::json!({"ifname": "x", "mtu": mtu, "flags": ["UP"]}));
            dump
        };
        assert_eq!(of(1500).diff(&of(1400)), ["- link x.mtu 1500", "+ link x.mtu 1400"]);
        assert_eq!(of(1500).diff(&of(1500)), Vec::<String>::new());
    }
}
