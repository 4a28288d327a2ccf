//! The diagnoses of several hosts, nodes of a cluster or machines of a race: what is the same on all of
//! them is said once.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::text::{counted, labelled};

/// What was seen of a host.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// Its name.
    pub(crate) host: String,
    /// The diagnosis that the program printed there, or why it did not.
    pub(crate) printed: Result<Value, String>,
}

impl Seen {
    /// The parts of the network of which its diagnosis says nothing.
    fn not_judged(&self) -> Vec<&str> {
        let parts = self.printed.as_ref().ok().and_then(|diagnosis| diagnosis["not_judged"].as_array());
        parts.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Whether there are such parts.
    pub(super) fn is_blind(&self) -> bool {
        !self.not_judged().is_empty()
    }

    /// How many warnings there are; `None` without a diagnosis.
    pub(super) fn warnings(&self) -> Option<u64> {
        self.printed.as_ref().ok()?["warnings"].as_u64()
    }
}

/// Diagnoses of hosts of one kind.
#[derive(Debug)]
pub(crate) struct Diagnoses {
    /// What one of the hosts is called: a node, a machine.
    pub(crate) kind: &'static str,
    /// The hosts in their order.
    pub(crate) seen: Vec<Seen>,
}

/// A finding on some hosts.
struct Shared<'a> {
    /// As the first host has it.
    finding: &'a Value,
    /// What was seen, by host.
    saw: BTreeMap<&'a str, String>,
}

impl Diagnoses {
    /// Everything, as text: what all have, then what each has.
    pub(crate) fn text(&self) -> String {
        let all = self.shared();
        let mut text = format!("{}\n", self.headline());
        for one in &self.seen {
            let line = match &one.printed {
                Ok(_) if !one.is_blind() => continue,
                Ok(_) => format!("{} is not judged for {}", one.host, one.not_judged().join(", ")),
                Err(why) => format!("{} could not be looked at: {why}", one.host),
            };
            text += &format!("\n{}", labelled("", &line));
        }
        let everywhere = |one: &&Shared<'_>| one.saw.len() == self.looked() && self.looked() > 1;
        let common: Vec<&Shared<'_>> = all.iter().filter(everywhere).collect();
        if !common.is_empty() {
            text += &format!("\nOn {}\n", self.all_hosts());
            common.iter().for_each(|one| text += &shown(one, None));
        }
        for Seen { host, .. } in &self.seen {
            let own = all.iter().filter(|one| !everywhere(one) && one.saw.contains_key(host.as_str()));
            let own: Vec<&Shared<'_>> = own.collect();
            if !own.is_empty() {
                text += &format!("\nOn {host}\n");
                own.iter().for_each(|one| text += &shown(one, Some(host)));
            }
        }
        text + &self.unseen()
    }

    /// Everything, as JSON: the diagnosis of each, or why there is none.
    pub(crate) fn json(&self) -> Value {
        let object = |one: &Seen| {
            let (diagnosis, failed) = (one.printed.as_ref().ok(), one.printed.as_ref().err());
            json!({ self.kind: one.host, "diagnosis": diagnosis, "failed": failed })
        };
        let all: Vec<Value> = self.seen.iter().map(object).collect();
        json!({ "schema": 1, format!("{}s", self.kind): all })
    }

    /// "20 nodes: 1 warning, 3 worth knowing".
    pub(crate) fn headline(&self) -> String {
        let all = self.shared();
        let warnings = all.iter().filter(|one| one.is_warning()).count();
        let known = all.len() - warnings;
        match (self.looked(), warnings) {
            (0, _) => format!("no {} could be looked at", self.kind),
            (_, 0) if self.seen.iter().any(Seen::is_blind) => {
                format!("{}: not fully judged, {known} worth knowing", self.hosts())
            }
            (_, 0) => format!("{}: no warning, {known} worth knowing", self.hosts()),
            (_, some) => format!("{}: {}, {known} worth knowing", self.hosts(), counted(some, "warning")),
        }
    }

    /// Each warning, and whatever else not all hosts have, in a line with the hosts that have it.
    pub(crate) fn differences(&self) -> Vec<String> {
        let line = |one: &Shared<'_>| {
            let hosts: Vec<&str> = one.saw.keys().copied().collect();
            let severity = if one.is_warning() { "warning: " } else { "" };
            format!("{severity}{} {}, on {}", one.word("code"), one.title(), hosts.join(" and "))
        };
        let differs = |one: &&Shared<'_>| one.is_warning() || one.saw.len() < self.looked();
        self.shared().iter().filter(differs).map(line).collect()
    }

    /// Findings of the same code about the same subject and of the same severity, in the order of the first
    /// host that has them.
    fn shared(&self) -> Vec<Shared<'_>> {
        let mut all: Vec<Shared<'_>> = Vec::new();
        for Seen { host, printed } in &self.seen {
            let findings = printed.as_ref().ok().and_then(|diagnosis| diagnosis["findings"].as_array());
            for finding in findings.into_iter().flatten() {
                let is_same = |other: &&mut Shared<'_>| {
                    ["code", "subject", "severity"].iter().all(|key| other.finding[key] == finding[key])
                };
                let saw = saw(finding);
                match all.iter_mut().find(is_same) {
                    Some(one) => drop(one.saw.insert(host, saw)),
                    None => all.push(Shared { finding, saw: BTreeMap::from([(host.as_str(), saw)]) }),
                }
            }
        }
        all
    }

    /// How many hosts were looked at.
    fn looked(&self) -> usize {
        self.seen.iter().filter(|one| one.printed.is_ok()).count()
    }

    /// "20 nodes", or "18 of 20 nodes" if two could not be looked at.
    fn hosts(&self) -> String {
        let all = counted(self.seen.len(), self.kind);
        let looked = self.looked();
        if looked == self.seen.len() { all } else { format!("{looked} of {all}") }
    }

    /// The hosts of what was seen on each of them.
    fn all_hosts(&self) -> String {
        let which = if self.looked() == self.seen.len() { "" } else { " that were looked at" };
        format!("all {}s{which}", self.kind)
    }

    /// What could not be read, with the hosts where it could not.
    fn unseen(&self) -> String {
        let mut all: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for Seen { host, printed } in &self.seen {
            let parts = printed.as_ref().ok().and_then(|diagnosis| diagnosis["unseen"].as_array());
            for part in parts.into_iter().flatten().filter_map(Value::as_str) {
                all.entry(part).or_default().push(host);
            }
        }
        if all.is_empty() {
            return String::new();
        }
        let line = |(part, hosts): (&str, Vec<&str>)| {
            let on = if hosts.len() == self.looked() { self.all_hosts() } else { hosts.join(", ") };
            labelled("", &format!("{part} (on {on})"))
        };
        format!("\nNot seen\n{}", all.into_iter().map(line).collect::<String>())
    }
}

impl Shared<'_> {
    fn word(&self, key: &str) -> &str {
        self.finding[key].as_str().unwrap_or_default()
    }

    fn is_warning(&self) -> bool {
        self.word("severity") == "warning"
    }

    /// The title, with what it is about.
    fn title(&self) -> String {
        match self.word("subject") {
            "" => self.word("title").to_owned(),
            subject => format!("{} ({subject})", self.word("title")),
        }
    }
}

fn saw(finding: &Value) -> String {
    let evidence = finding["evidence"].as_array().into_iter().flatten();
    let each = evidence.map(|one| {
        format!(
            "{} [{}]",
            one["saw"].as_str().unwrap_or_default(),
            one["read_from"].as_str().unwrap_or_default()
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A finding, with what one host saw, or all of them.
fn shown(shared: &Shared<'_>, host: Option<&str>) -> String {
    let mut text = format!("\n{}", labelled(shared.word("code"), &shared.title()));
    let saw: Vec<(&str, &String)> = match host {
        Some(host) => vec![("", &shared.saw[host])],
        None => shared.saw.iter().map(|(host, saw)| (*host, saw)).collect(),
    };
    let same = saw.iter().all(|(_, each)| *each == saw[0].1);
    for (at, (host, each)) in saw.iter().take(if same { 1 } else { saw.len() }).enumerate() {
        let label = if at == 0 { "  saw" } else { "" };
        let line = if same { (*each).clone() } else { format!("{host}: {each}") };
        text += &labelled(label, &line);
    }
    if shared.is_warning() {
        text += &labelled("  why", shared.word("why"));
    }
    text += &labelled("  do", shared.word("remedy"));
    text + &labelled("  verify", shared.word("verify"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, severity: &str, findings: &[(&str, &str, &str)]) -> Seen {
        let finding = |(code, subject, saw): &(&str, &str, &str)| {
            json!({ "code": code, "subject": subject, "severity": severity, "title": format!("title of {code}"),
                "evidence": [{ "saw": saw, "read_from": "/proc/x" }], "why": "w", "remedy": "r", "verify": "v" })
        };
        let findings: Vec<Value> = findings.iter().map(finding).collect();
        let unseen = ["/proc/y", name];
        let printed = Ok(json!({ "findings": findings, "warnings": 0, "not_judged": [], "unseen": unseen }));
        Seen { host: name.to_owned(), printed }
    }

    fn nodes(seen: &[Seen]) -> Diagnoses {
        Diagnoses { kind: "node", seen: seen.to_vec() }
    }

    #[test]
    fn what_all_nodes_have_is_said_once() {
        let first = [("HG020", "eth0", "1 queue"), ("HG045", "eth0", "bbr"), ("HG001", "", "CPU 3")];
        let second = [("HG045", "eth0", "bbr"), ("HG020", "eth0", "2 queues")];
        let seen = [node("a", "information", &first), node("b", "information", &second)];
        let text = nodes(&seen).text();
        assert!(text.starts_with("2 nodes: no warning, 3 worth knowing\n\nOn all nodes\n"), "{text}");
        assert_eq!(text.matches("bbr").count(), 1);
        assert!(text.contains("saw     a: 1 queue") && text.contains("          b: 2 queues"), "{text}");
        assert!(text.contains("\nOn a\n\nHG001") && !text.contains("On b"), "{text}");
        assert!(text.contains("/proc/y (on all nodes)") && text.contains("b (on b)"), "{text}");
        assert_eq!(nodes(&seen).differences(), ["HG001 title of HG001, on a"]);
    }

    #[test]
    fn a_warning_is_a_difference_even_if_all_hosts_have_it() {
        let seen = [
            node("a", "warning", &[("HG121", "tcp_sack", "0"), ("HG060", "", "9")]),
            node("b", "warning", &[("HG121", "tcp_sack", "0")]),
        ];
        let machines = Diagnoses { kind: "machine", seen: seen.to_vec() };
        assert_eq!(machines.headline(), "2 machines: 2 warnings, 0 worth knowing");
        let lines =
            ["warning: HG121 title of HG121 (tcp_sack), on a and b", "warning: HG060 title of HG060, on a"];
        assert_eq!(machines.differences(), lines);
    }

    #[test]
    fn a_node_that_could_not_be_looked_at_is_named() {
        let lost = Seen { host: "c".to_owned(), printed: Err("no route".to_owned()) };
        let with = |name, saw| node(name, "information", &[("HG020", "eth0", saw)]);
        let text = nodes(&[with("a", "1 queue"), with("b", "2 queues"), lost.clone()]).text();
        assert!(text.starts_with("2 of 3 nodes: no warning, 1 worth knowing\n"), "{text}");
        assert!(text.contains("c could not be looked at: no route"), "{text}");
        assert!(text.contains("\nOn all nodes that were looked at\n\nHG020"), "{text}");
        assert!(text.contains("/proc/y (on all nodes that were looked at)"), "{text}");
        assert!(nodes(&[lost]).text().starts_with("no node could be looked at\n"));
    }
}
