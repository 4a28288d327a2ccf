//! The configuration of a network as a container runtime reads it: written for a runtime, and read as
//! the plugin reads it.

use std::path::{Path, PathBuf};

use cni::{Conflist, Failure, Request, Version};
use datapath::{ATTACHES, DataPath, GuardHook};
use ipnet::IpNet;
use linux::IfName;
use linux::features::{Facts, Feature, Unmet};
use serde::Serialize;
use serde_json::Value;

use crate::Home;
use crate::conf::{AddressSource, Conf};
use crate::dropin::OWN_IPAM;
use crate::failures::invalid_conf;
use crate::network::{self, Difference, Hindrance};
use crate::network_unit::NetworkUnit;
use crate::node_spec;

/// The name of the plugin: its `type` in a configuration, and the name of its executable.
pub const PLUGIN: &str = "hostgap";

/// What a runtime's configuration is to say of a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Its name, which is that of the directory of its addresses too.
    pub name: String,
    /// One of [`datapath::ATTACHES`], by name.
    pub attach: String,
    /// From which containers get their addresses, one of each family. Several of one family are used in their order.
    pub subnets: Vec<IpNet>,
    /// The prefixes of all nodes' containers; empty: the subnets.
    pub prefixes: Vec<IpNet>,
    /// The link to other nodes; `None`: that of the default route.
    pub wire: Option<IfName>,
    /// The containers' MTU in bytes; `None`: the wire's.
    pub mtu: Option<u32>,
    /// Whether what containers send out of the network gets the node's address.
    pub masquerade: bool,
    /// How what a container sends with other addresses than its own is dropped; `None`: by a filter, where that can be.
    pub anti_spoofing: Option<SenderCheck>,
    /// Whether the node has a link of its own beside the containers', for the attaches that take one: without it the
    /// node and its containers do not reach each other.
    pub host_link: bool,
    /// The absolute path of a file that an agent or routing daemon writes when it has made the ways to other nodes;
    /// in a directory that is empty after a restart of the machine. `STATUS` fails without it. `None`: it waits for
    /// no file.
    pub readiness_file: Option<PathBuf>,
}

/// A check of what containers send that is not the usual one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "Value")]
pub enum SenderCheck {
    /// Containers may send from any address.
    Off,
    /// At tcx, which leaves the ingress qdisc of a container's link to other programs (Linux 6.6).
    Tcx,
}

impl From<SenderCheck> for Value {
    fn from(check: SenderCheck) -> Value {
        match check {
            SenderCheck::Off => false.into(),
            SenderCheck::Tcx => "tcx".into(),
        }
    }
}

/// The keys in the order in which they are written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenList<'a> {
    cni_version: Version,
    cni_versions: [Version; 2],
    name: &'a str,
    plugins: [WrittenPlugin<'a>; 1],
}

#[derive(Serialize)]
struct WrittenPlugin<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    attach: &'a str,
    capabilities: WrittenCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    wire: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    masquerade: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    anti_spoofing: Option<SenderCheck>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    host_link: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    readiness_file: Option<&'a Path>,
    #[serde(skip_serializing_if = "<[IpNet]>::is_empty")]
    prefixes: &'a [IpNet],
    ipam: WrittenIpam,
}

/// What a runtime may ask for one container. It asks for nothing that is not here.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenCapabilities {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    port_mappings: bool,
    /// Also where the attach limits what a container sends alone: a container that asks for the other is to fail rather
    /// than to be without limit.
    bandwidth: bool,
}

#[derive(Serialize)]
struct WrittenIpam {
    #[serde(rename = "type")]
    kind: &'static str,
    ranges: Vec<Vec<WrittenRange>>,
}

#[derive(Serialize)]
struct WrittenRange {
    subnet: IpNet,
}

impl Network {
    /// This network, or the same with the MTU that it stands with, and on the link where it stands unless the user has
    /// named its link, where `ADD` would not follow another one: containers are attached, and what they share was made
    /// for those. Those that come join them.
    pub fn beside_attached(self, home: &Home, is_wire_named: bool) -> Network {
        let is_followed = |network: &&Network| {
            let read = Configured::read(&network.conflist()).ok().and_then(|read| read.into_iter().next());
            let hindrance = read.map(|configured| configured.hindrance(home));
            matches!(hindrance, Some(Ok(None | Some(Hindrance { differs: Difference::Subnets, .. }))))
        };
        let Some(standing) = network::standing(home, &self.name) else { return self };
        let (mtu, wire) = (standing.mtu.or(self.mtu), self.wire.clone().filter(|_| is_wire_named));
        let with_mtu = Network { mtu, ..self.clone() };
        let candidates =
            [with_mtu.clone(), Network { wire: wire.clone(), ..self.clone() }, Network { wire, ..with_mtu }];
        let followed = if is_followed(&&self) { None } else { candidates.iter().find(is_followed) };
        followed.cloned().unwrap_or(self)
    }

    /// The text of the configuration, as a list of one plugin. Nothing is checked; [`Configured::read`] does that.
    ///
    /// Runtimes that know 1.1.0 speak it; to others the plugin speaks 1.0.0 (`cniVersions`).
    pub fn conflist(&self) -> String {
        let family = |is_v4: bool| -> Vec<WrittenRange> {
            let own = self.subnets.iter().filter(|subnet| subnet.addr().is_ipv4() == is_v4);
            own.map(|subnet| WrittenRange { subnet: *subnet }).collect()
        };
        let ranges = [family(true), family(false)].into_iter().filter(|set| !set.is_empty()).collect();
        let path = ATTACHES.iter().find(|path| path.name == self.attach);
        let publishes_ports = path.is_some_and(|path| path.attach.publishes_ports());
        let plugin = WrittenPlugin {
            kind: PLUGIN,
            attach: &self.attach,
            capabilities: WrittenCapabilities { port_mappings: publishes_ports, bandwidth: true },
            wire: self.wire.as_ref().map(IfName::as_str),
            mtu: self.mtu,
            masquerade: self.masquerade,
            anti_spoofing: self.anti_spoofing,
            host_link: self.host_link,
            readiness_file: self.readiness_file.as_deref(),
            prefixes: &self.prefixes,
            ipam: WrittenIpam { kind: OWN_IPAM, ranges },
        };
        let list = WrittenList {
            cni_version: Version::V1_0_0,
            cni_versions: [Version::V1_0_0, Version::V1_1_0],
            name: &self.name,
            plugins: [plugin],
        };
        let mut text = serde_json::to_string_pretty(&list).expect("its keys are texts");
        text.push('\n');
        text
    }
}

/// A network of ours in a runtime's configuration, as the plugin understands it.
#[derive(Debug, Clone)]
pub struct Configured {
    name: String,
    conf: Conf,
}

impl Configured {
    /// Reads the text of a configuration; each part of it that is for this plugin.
    ///
    /// # Errors
    /// As of the plugin: code 2 for a key or value that is not supported, 7 for one that makes no sense;
    /// the message names it.
    pub fn read(text: &str) -> Result<Vec<Configured>, Failure> {
        let list = Conflist::parse(text).map_err(|error| invalid_conf(error.to_string()))?;
        let own = list.plugins.iter().filter(|plugin| plugin.kind == PLUGIN);
        own.map(|plugin| {
            let request = Request::new(plugin.conf.clone(), &list, serde_json::Map::new());
            Ok(Configured { name: request.name()?.to_owned(), conf: Conf::read(&request, PLUGIN)? })
        })
        .collect()
    }

    /// The name of the network, which its file and its state are called after.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its containers reach the node, one of [`datapath::ATTACHES`].
    pub fn path(&self) -> &'static DataPath {
        self.conf.path
    }

    /// What it needs of the machine, for its attach and for the check of what containers send.
    pub(crate) fn needs(&self) -> Vec<Feature> {
        let mut needs = self.conf.path.needs();
        needs.extend(self.conf.anti_spoofing.is_some().then_some(Feature::BpfTc));
        needs
    }

    /// What this machine lacks for its attach.
    pub fn unmet(&self, facts: &Facts) -> Vec<Unmet> {
        self.conf.path.unmet(facts)
    }

    /// What it lacks for the check of what containers send, where the network wants one.
    pub fn unmet_of_anti_spoofing(&self, facts: &Facts) -> Vec<Unmet> {
        if self.conf.anti_spoofing.is_some() { facts.unmet(&[Feature::BpfTc]) } else { Vec::new() }
    }

    /// Whether it wants that check at tcx.
    pub fn checks_at_tcx(&self) -> bool {
        self.conf.anti_spoofing == Some(GuardHook::Tcx)
    }

    /// Whether an `ADD` could make the network, in the calling thread's namespace: the link to other nodes is there, a
    /// plan can be made, the file of name servers can be read, and no attachment rests on the network as another
    /// configuration has it. Nothing is written.
    ///
    /// # Errors
    /// Why it could not.
    pub fn check(&self, home: &Home) -> Result<(), Failure> {
        self.check_but_for_awaited(home)?.map_or(Ok(()), Err)
    }

    /// The same where attachments may have addresses of other subnets, or share what has another MTU, for which an
    /// `ADD` has to wait: why it would fail until they are gone.
    ///
    /// # Errors
    /// Why it could not even then.
    pub fn check_but_for_awaited(&self, home: &Home) -> Result<Option<Failure>, Failure> {
        match self.hindrance(home)? {
            Some(Hindrance { failure, differs: Difference::Other }) => Err(failure),
            hindrance => Ok(hindrance.map(|Hindrance { failure, .. }| failure)),
        }
    }

    /// What an `ADD` has to wait for.
    fn hindrance(&self, home: &Home) -> Result<Option<Hindrance>, Failure> {
        self.conf.name_resolution()?;
        let network = NetworkUnit::of(&self.name, &self.conf);
        // Another plugin says at ADD which subnets there are.
        if matches!(self.conf.addresses, AddressSource::Delegate(_)) {
            return node_spec::spec(home, &network, &self.conf, (1, "")).map(|_| None);
        }
        let node = network::could_be_made(home, &network, &self.conf)?;
        network::hindrance(home, &network, &self.conf, &node)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn network(attach: &str, subnets: &[&str]) -> Network {
        Network {
            name: "pods".to_owned(),
            attach: attach.to_owned(),
            subnets: subnets.iter().map(|subnet| subnet.parse().unwrap()).collect(),
            prefixes: vec![],
            wire: None,
            mtu: None,
            masquerade: false,
            anti_spoofing: None,
            host_link: false,
            readiness_file: None,
        }
    }

    #[test]
    fn what_is_written_is_what_the_plugin_reads() {
        for path in ATTACHES {
            let read = Configured::read(&network(path.name, &["10.1.0.0/24", "fd00::/64"]).conflist());
            let read = read.unwrap();
            assert_eq!((read.len(), read[0].name(), read[0].path().name), (1, "pods", path.name));
        }
        let whole = Network {
            prefixes: vec!["10.1.0.0/16".parse().unwrap()],
            wire: Some(IfName::new("eth1").unwrap()),
            mtu: Some(1400),
            masquerade: true,
            anti_spoofing: Some(SenderCheck::Off),
            readiness_file: Some("/run/flannel/subnet.env".into()),
            ..network("bridge", &["10.1.0.0/24"])
        };
        let read = Configured::read(&whole.conflist()).unwrap().remove(0).conf;
        assert_eq!((read.wire, read.mtu, read.masquerade), (whole.wire.clone(), Some(1400), true));
        assert!(read.anti_spoofing.is_none());
        let at_tcx = Network { anti_spoofing: Some(SenderCheck::Tcx), ..whole };
        assert!(Configured::read(&at_tcx.conflist()).unwrap().remove(0).checks_at_tcx());
        let prefixes: Vec<String> = read.prefixes.iter().map(|net| net.to_string()).collect();
        assert_eq!(prefixes, ["10.1.0.0/16"]);
    }

    #[test]
    fn subnets_of_one_family_are_one_set() {
        let text = network("ptp", &["10.1.0.0/24", "fd00::/64", "10.2.0.0/24"]).conflist();
        let list: Value = serde_json::from_str(&text).unwrap();
        let ranges = json!([
            [{ "subnet": "10.1.0.0/24" }, { "subnet": "10.2.0.0/24" }], [{ "subnet": "fd00::/64" }],
        ]);
        assert_eq!(list["plugins"][0]["ipam"]["ranges"], ranges);
        assert!(Configured::read(&text).is_ok());
    }

    #[test]
    fn what_the_plugin_would_refuse_is_refused() {
        let refused = |network: &Network, says: &str| {
            let failure = Configured::read(&network.conflist()).unwrap_err().to_string();
            assert!(failure.contains(says), "{failure}");
        };
        refused(&network("brigde", &["10.1.0.0/24"]), "`attach` is \"brigde\"");
        refused(&network("ptp", &["10.1.0.7/24"]), "it has host bits set; the network is 10.1.0.0/24");
        refused(&network("ptp", &["10.1.0.0/31"]), "it is too small");
        refused(&network("ptp", &[]), "no range");
        refused(
            &Network { masquerade: true, ..network("macvlan", &["10.1.0.0/24"]) },
            "`masquerade` is true",
        );
        refused(&Network { name: "../etc".to_owned(), ..network("ptp", &["10.1.0.0/24"]) }, "`name`");
    }

    #[test]
    fn a_runtime_may_publish_ports_where_the_attach_can() {
        for path in ATTACHES {
            let list: Value = serde_json::from_str(&network(path.name, &["10.1.0.0/24"]).conflist()).unwrap();
            let capabilities = &list["plugins"][0]["capabilities"];
            let is_offered = capabilities["portMappings"] == true;
            assert_eq!(is_offered, path.attach.publishes_ports(), "{}", path.name);
            assert_eq!(capabilities["bandwidth"], true);
        }
    }

    #[test]
    fn older_runtimes_are_spoken_to_in_their_version() {
        let text = network("ptp", &["10.1.0.0/24"]).conflist();
        assert_eq!(Conflist::parse(&text).unwrap().version, Version::V1_1_0);
        assert!(text.starts_with("{\n  \"cniVersion\": \"1.0.0\",\n"), "{text}");
    }
}
