//! A pod's attachment to a network: the chain of its plugins, there and back.

use std::fs;
use std::path::{Path, PathBuf};

use ::cni::{AddResult, Command, Request, Version};
use datapath::{NodeSpec, Pod};
use ipnet::IpNet;
use plan::quoted;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::call::Subject;
use super::{CniNetwork, NodeValues, pins};
use crate::{ByRole, LabError};

/// The file in which a topology that is left standing keeps its attachments.
const FILE: &str = "cni.json";

/// One pod and the plugins that join it to its node, with the configuration of each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attachment {
    /// For messages: "the server's pod".
    what: String,
    name: String,
    version: Version,
    subject: Subject,
    #[serde(rename = "links")]
    plugins: Vec<ChainedPlugin>,
    /// What the last plugin answered at ADD.
    result: Option<AddResult>,
    /// ADD was tried, so DEL is due.
    begun: bool,
}

/// One plugin of the chain, with its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct ChainedPlugin {
    kind: String,
    program: PathBuf,
    conf: Request,
}

impl Attachment {
    /// The attachment of a pod on a node. Nothing is done.
    pub(crate) fn plan(network: &CniNetwork, node: &NodeSpec, pod: &Pod, what: &str) -> Attachment {
        let values = NodeValues::of(node);
        let netns = node.place.name().expect("the lab's nodes have names");
        let list = &network.configuration.list;
        let plugins = list.plugins.iter().zip(&network.programs).map(|(plugin, program)| ChainedPlugin {
            kind: plugin.kind.clone(),
            program: program.clone(),
            conf: Request::new(values.fill(&plugin.conf), list, offered(&values.pod_cidrs())),
        });
        Attachment {
            what: what.to_owned(),
            name: list.name.clone(),
            version: list.version,
            subject: Subject {
                node: netns.clone(),
                pod: pod.place.name().expect("the lab's pods have names").clone(),
                ifname: pod.ifname.clone(),
                cni_path: network.dirs.to_string(),
            },
            plugins: plugins.collect(),
            result: None,
            begun: false,
        }
    }

    /// For messages: "the server's pod".
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Calls ADD of all plugins in their order; the pod's addresses. On failure it is for the caller to
    /// [`Attachment::del`].
    pub(crate) fn add(&mut self, candidate: &str, dir: &Path) -> Result<Vec<IpNet>, LabError> {
        self.begun = true;
        pins::provide(&self.subject.node);
        let dir = self.dir(dir);
        let mut previous = None;
        for plugin in &self.plugins {
            let failed = |why| self.failed(candidate, plugin, Command::Add, why);
            let request = plugin.conf.after(previous.as_ref());
            let printed = self.subject.call(Command::Add, &plugin.program, &request, &dir).map_err(failed)?;
            previous = Some(AddResult::read(&printed).map_err(|error| failed(error.to_string()))?);
        }
        let last = self.plugins.last().expect("a network has a plugin");
        let answer = previous.as_ref().expect("a network has a plugin");
        let addresses = answer
            .addresses(&self.subject.netns_path())
            .map_err(|error| self.failed(candidate, last, Command::Add, error.to_string()))?;
        self.result = previous;
        Ok(addresses)
    }

    /// Calls DEL of all plugins in the opposite order, if ADD was tried. One that fails does not stop the others.
    pub(crate) fn del(&mut self, candidate: &str, dir: &Path) -> Vec<LabError> {
        if !std::mem::take(&mut self.begun) {
            return Vec::new();
        }
        let dir = self.dir(dir);
        let result = self.result.take().filter(|_| self.version.hands_result_to_del());
        let mut failures = Vec::new();
        for plugin in self.plugins.iter().rev() {
            let request = plugin.conf.after(result.as_ref());
            if let Err(why) = self.subject.call(Command::Del, &plugin.program, &request, &dir) {
                failures.push(self.failed(candidate, plugin, Command::Del, why));
            }
        }
        failures
    }

    /// Ends the programs that plugins pinned on the pod's node, after DEL for all its pods.
    pub(crate) fn forget_pins(&self) -> Result<(), LabError> {
        pins::take_back(&self.subject.node)
    }

    /// The calls of ADD as a person would type them into a POSIX shell as root.
    ///
    /// `ip netns exec` begins a mount namespace; with memory over `/var/lib` in it, leases are forgotten with each
    /// call, and to remove the namespaces takes back all that was done.
    pub fn commands(&self) -> Vec<String> {
        let environment = self.subject.environment(Command::Add).map(assignment);
        let call = |plugin: &ChainedPlugin| {
            format!(
                "ip netns exec {} env {} sh -c 'mount -t tmpfs none /var/lib && exec \"$0\"' {}",
                self.subject.node,
                environment.join(" "),
                quoted(&plugin.program.display().to_string()),
            )
        };
        let chained = self.plugins.len() > 1;
        let command = |(index, plugin): (usize, &ChainedPlugin)| {
            let text = plugin.conf.to_string();
            let call = call(plugin);
            match index {
                _ if !chained => format!("{call} <<'EOF'\n{text}\nEOF"),
                0 => format!("result=$({call} <<'EOF'\n{text}\nEOF\n)"),
                // The shell puts the result in: what else it would take for its own is escaped.
                _ => {
                    let text = text.replace('\\', "\\\\").replace('`', "\\`").replace('$', "\\$");
                    let open = text.strip_suffix('}').expect("an object ends with a brace");
                    format!("result=$({call} <<EOF\n{open},\"prevResult\":$result}}\nEOF\n)")
                }
            }
        };
        let head = format!("# CNI network {}: ADD for {}", self.name, self.what);
        std::iter::once(head).chain(self.plugins.iter().enumerate().map(command)).collect()
    }

    /// Writes the attachments of a topology down, for another process to take back.
    pub(crate) fn save(all: ByRole<&Attachment>, dir: &Path) -> Result<(), LabError> {
        let path = dir.join(FILE);
        let text = serde_json::to_string(&all.both()).expect("texts and JSON values can be written as JSON");
        fs::write(&path, text).map_err(LabError::file("write", &path))
    }

    /// Reads what [`Attachment::save`] wrote into a directory; nothing where it wrote nothing.
    pub(crate) fn saved(dir: &Path) -> Result<Vec<Attachment>, LabError> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(LabError::file("read", &path))?,
        };
        serde_json::from_str(&text).map_err(|error| LabError::file("read", &path)(error.into()))
    }

    /// Each node has a directory for its plugins' state, as two machines have.
    fn dir(&self, dir: &Path) -> PathBuf {
        dir.join("cni").join(self.subject.node.as_str())
    }

    fn failed(&self, candidate: &str, plugin: &ChainedPlugin, command: Command, why: String) -> LabError {
        LabError::Plugin {
            candidate: candidate.to_owned(),
            call: format!("{command} of {} for {}", plugin.kind, self.what),
            why,
        }
    }
}

/// Of what a runtime may offer to plugins with a capability for it, a node has its pods' prefixes. Ports, bandwidths
/// or fixed addresses are never requested.
fn offered(pod_cidrs: &[&str]) -> Map<String, Value> {
    let ranges: Vec<Value> = pod_cidrs.iter().map(|cidr| json!([{ "subnet": cidr }])).collect();
    Map::from_iter([("ipRanges".to_owned(), json!(ranges))])
}

fn assignment((name, value): (&str, String)) -> String {
    format!("{name}={}", if value.is_empty() { value } else { quoted(&value) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::{Configuration, PluginDirs};
    use crate::{NodeCpus, Shape, Topology, family};

    /// A topology of plugins that are never called.
    fn topology(conf: &str) -> Topology {
        let configuration = Configuration::parse(conf).unwrap();
        let programs =
            configuration.list.plugins.iter().map(|plugin| format!("/opt/c n i/{}", plugin.kind).into());
        let network = CniNetwork { programs: programs.collect(), dirs: PluginDirs::default(), configuration };
        let shape = Shape {
            prefix: "hg-x".to_owned(),
            path: &datapath::CNI,
            placement: record::Placement::TwoNodes,
            in_container: record::Side::Both,
            cni: Some(network.into()),
            mtu_bytes: 1400,
            cpus: NodeCpus::split(&"0-1".parse().unwrap()),
            spare: linux::CpuSet::default(),
            family: family(false),
            families: &datapath::Family::BOTH,
            steered: false,
            cards: None,
            wires: crate::Wires::default(),
            settings: tune::Settings::default(),
            proxies: record::Proxies::default(),
            stack: record::Stack::default(),
            filter: None,
            rdma: None,
            flood: None,
            protocol: datapath::Protocol::Tcp,
            machines: None,
        };
        Topology::plan(shape).unwrap()
    }

    #[test]
    fn each_node_has_its_own_values_and_nothing_is_left_of_capabilities() {
        let topology = topology(
            r#"{"cniVersion":"0.4.0","name":"a","plugins":[{"type":"x","mtu":"${MTU}",
                "capabilities":{"ipRanges":true,"portMappings":true},"ipam":{"subnet":"usePodCidr"}}]}"#,
        );
        let confs =
            topology.attachments.unwrap().map(|pod| serde_json::to_value(&pod.plugins[0].conf).unwrap());
        for (conf, node) in confs.both().iter().zip([1, 2]) {
            let (v4, v6) = (format!("10.244.{node}.0/24"), format!("fd00:244:0:{node}::/64"));
            let ranges = json!([[{"subnet": v4}], [{"subnet": v6}]]);
            let expected = json!({
                "cniVersion": "0.4.0", "name": "a", "type": "x", "mtu": 1400,
                "runtimeConfig": {"ipRanges": ranges}, "ipam": {"subnet": v4},
            });
            assert_eq!(*conf, expected);
        }
    }

    #[test]
    fn a_chain_is_shown_with_each_result_handed_on() {
        let topology = topology(
            r#"{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"x"},{"type":"y","z":"`$5\\"}]}"#,
        );
        let shown = topology.attachments.unwrap().server.commands();
        let call = |plugin: &str| {
            format!(
                "result=$(ip netns exec hg-x-n2 env CNI_COMMAND=ADD CNI_CONTAINERID=hg-x-server \
                 CNI_NETNS=/run/netns/hg-x-server CNI_IFNAME=eth0 CNI_ARGS= CNI_PATH=/opt/cni/bin:/usr/lib/cni \
                 sh -c 'mount -t tmpfs none /var/lib && exec \"$0\"' '/opt/c n i/{plugin}'"
            )
        };
        let first = r#"{"cniVersion":"1.0.0","name":"a","type":"x"}"#;
        let second = r#"{"cniVersion":"1.0.0","name":"a","type":"y","z":"\`\$5\\\\","prevResult":$result}"#;
        let expected = [
            "# CNI network a: ADD for the server's pod".to_owned(),
            format!("{} <<'EOF'\n{first}\nEOF\n)", call("x")),
            format!("{} <<EOF\n{second}\nEOF\n)", call("y")),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_file_of_attachments_that_is_damaged_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Attachment::saved(dir.path()).unwrap(), []);
        let whole = topology(r#"{"cniVersion":"1.0.0","name":"a","type":"x"}"#).attachments.unwrap();
        Attachment::save(whole.as_ref(), dir.path()).unwrap();
        assert_eq!(Attachment::saved(dir.path()).unwrap(), whole.both());
        fs::write(dir.path().join(FILE), "[{}]").unwrap();
        let error = Attachment::saved(dir.path()).unwrap_err().to_string();
        assert!(error.contains(FILE) && error.contains("missing field"), "{error}");
    }
}
