//! The parts of a namespace that a plan may change, as text lines. Outside programs read them where such
//! programs exist: a reader that shares a mistake with the writer would not notice it. Tests that check
//! hundreds of times read them in this process in between.

mod rows;

use std::collections::BTreeMap;
use std::fmt;

use linux::ethtool::{Ethtool, FlowType, NicFeature, NicParameter};
use linux::interrupts::Interrupts;
use linux::sysfs::{LinkAttribute, NetSysfs, Queue};
use linux::{Netlink, Netns, sysctl};
use serde_json::Value;

use self::rows::{flat, is_lasting, json_arrays, link_local, list, list_nft, parsed};
use crate::judge::{run, run_with_input};

/// The state of a namespace without its volatile parts. If two dumps are equal, no change is left and no
/// object is missing.
#[derive(Clone, PartialEq, Eq)]
pub struct Dump {
    /// Lines, and how often each occurs.
    lines: BTreeMap<String, usize>,
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
