//! The user's settings of an agent.

use std::path::{self, PathBuf};
use std::time::Duration;

use datapath::{ATTACHES, Attach, Prefixes};
use linux::IfName;
use node::Home;
use node::install::RuntimeDirs;
use plan::forwarding::ServicePrograms;

use crate::backend::BackendKind;
use crate::cloud::CloudSettings;
use crate::desired::ServicesPlace;
use crate::network::NetworkConfig;
use crate::{AgentError, Endpoint};

/// The user's settings of an agent.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The network's name, which container runtimes see.
    pub network: String,
    /// The link to other nodes; `None`: that of the default route.
    pub wire: Option<IfName>,
    /// How pods reach the node, one of [`datapath::ATTACHES`] by name.
    pub attach: String,
    /// Whether what pods send out of the network gets the node's address.
    pub masquerade: bool,
    /// Where container runtimes look for a configuration; `None`: none is written.
    pub runtime: Option<RuntimeDirs>,
    /// Whether this program, too, is copied to where the plugin is.
    pub installs_cli: bool,
    /// flannel's environment file: `/run/flannel/subnet.env`.
    pub subnet_env: PathBuf,
    /// The directory of the file with the agent's state: `/run/hostgap/agent-status`.
    pub status: PathBuf,
    /// Where health and metrics are served over HTTP.
    pub listen: Vec<Endpoint>,
    /// How often it is found out how large packets the ways to other nodes carry.
    pub path_mtu_period: Duration,
    /// Whether it is tried if what tunnels leave to the card comes out right.
    pub tests_offload: bool,
    /// The control group whose sockets' calls of Services are led to backends; `None`: those of none.
    pub services: Option<PathBuf>,
    /// The directory of the file with this node's private key, where the network's tunnels are encrypted:
    /// `/var/lib/hostgap/agent`.
    pub keys: PathBuf,
    /// How a cloud's route tables are kept, where the network has them.
    pub cloud: CloudSettings,
    /// Whether to wait while another process keeps the network. Otherwise that is an error.
    pub waits: bool,
    /// The version of this program, for its metrics.
    pub version: String,
}

impl Settings {
    /// The network as container runtimes on this node have it. `wire` is the link to other nodes: pods that need one
    /// are on that, though the default route may be another one's when the first of them comes.
    pub(crate) fn pods(
        &self,
        home: &Home,
        own: &Prefixes,
        network: &NetworkConfig,
        mtu: u32,
        wire: &IfName,
    ) -> node::Network {
        let needs_wire = self.attach().is_some_and(Attach::needs_wire);
        let pods = node::Network {
            name: self.network.clone(),
            attach: self.attach.clone(),
            subnets: own.iter().collect(),
            prefixes: network.networks.iter().map(|one| one.prefix).collect(),
            wire: self.wire.clone().or_else(|| needs_wire.then(|| wire.clone())),
            mtu: Some(mtu),
            masquerade: self.masquerade,
            anti_spoofing: None,
            host_link: self.attach().is_some_and(Attach::takes_host_link),
            // It is written before the configuration, and stays when the agent ends.
            readiness_file: path::absolute(&self.subnet_env).ok(),
        };
        pods.beside_attached(home, self.wire.is_some())
    }

    /// Where calls of Services are led to backends, and under which name.
    pub(crate) fn services_place(&self) -> Option<ServicesPlace> {
        let cgroup = self.services.clone()?;
        Some(ServicesPlace { node: self.service_programs().node, cgroup })
    }

    /// The programs that lead Services, whether or not they are to.
    fn service_programs(&self) -> ServicePrograms {
        ServicePrograms { node: format!("{}-services", self.network) }
    }

    /// Refuses to leave Services alone that the agent before led, or to lead them a second time.
    ///
    /// # Errors
    /// They were led and what leads them is not to be seen; or the kernel cannot be asked.
    pub(crate) fn check_services(&self, were_led: bool) -> Result<(), AgentError> {
        let programs = self.service_programs();
        if !were_led || plan::has_services(&programs) {
            return Ok(());
        }
        let is_led_still = match &self.services {
            // Where its control group is not known, nor is what happens there.
            None => true,
            Some(cgroup) => plan::leads_services(cgroup).map_err(AgentError::Services)?,
        };
        if is_led_still { Err(AgentError::UnseenServices(programs.node)) } else { Ok(()) }
    }

    fn attach(&self) -> Option<&'static dyn Attach> {
        attach_of(&self.attach)
    }

    /// Refuses a way between nodes that pods on the nodes' own link do not take.
    pub(crate) fn check_backend(&self, network: &NetworkConfig) -> Result<(), String> {
        let Some(attach) = self.attach().filter(|attach| attach.leaves_by_wire()) else { return Ok(()) };
        let backend = &network.backend;
        // What leads to a router does so by the same link, for those whose default route is the node's.
        if backend.is(BackendKind::HostGw) || attach.leads_out() && backend.is(BackendKind::AwsVpc) {
            return Ok(());
        }
        Err(format!(
            "what pods of {} send leaves by the nodes' own link, and with `Backend.Type` {} the way to other nodes is another; with \
             host-gw it is that link, and --attach ptp takes every way",
            self.attach, backend.kind
        ))
    }
}

/// The attach of a name; `None`: there is none.
pub(crate) fn attach_of(name: &str) -> Option<&'static dyn Attach> {
    ATTACHES.iter().find(|path| path.name == name).map(|path| path.attach)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cloud::Login;

    fn settings(attach: &str, services: Option<&str>) -> Settings {
        Settings {
            // Nothing of this name is pinned.
            network: "hgt-unseen".to_owned(),
            wire: None,
            attach: attach.to_owned(),
            masquerade: false,
            runtime: None,
            installs_cli: false,
            subnet_env: PathBuf::new(),
            status: PathBuf::new(),
            listen: Vec::new(),
            path_mtu_period: Duration::from_secs(60),
            tests_offload: true,
            services: services.map(PathBuf::from),
            keys: PathBuf::new(),
            cloud: CloudSettings {
                record: PathBuf::new(),
                period: Duration::from_secs(60),
                routes_max: 500,
                login: Login::default(),
            },
            waits: true,
            version: String::new(),
        }
    }

    #[test]
    fn pods_that_need_a_link_are_on_the_one_that_the_agent_has_found() {
        let network = NetworkConfig::parse(&json!({ "Network": "10.244.0.0/16" })).unwrap();
        let [found, named] = ["eth0", "eth1"].map(|name| IfName::new(name).unwrap());
        let (home, own) = (Home::at("/nowhere", "/nowhere"), Prefixes::default());
        let wire = |attach: &str, wire: Option<&IfName>| {
            let settings = Settings { wire: wire.cloned(), ..settings(attach, None) };
            settings.pods(&home, &own, &network, 1500, &found).wire
        };
        for attach in ["macvlan", "ipvlan-l3", "ebpf", "netkit"] {
            assert_eq!(wire(attach, None), Some(found.clone()), "{attach}");
            assert_eq!(wire(attach, Some(&named)), Some(named.clone()), "{attach}");
        }
        // The routes of the node lead out of the others.
        assert_eq!((wire("ptp", None), wire("bridge", None)), (None, None));
    }

    #[test]
    fn services_that_were_led_are_not_left_where_they_cannot_be_seen() {
        let settings = |services| settings("ebpf", services);
        let refused = settings(None).check_services(true).unwrap_err();
        assert!(refused.to_string().ends_with("there are no programs hgt-unseen-services in a bpffs here"));
        assert!(refused.remedy().unwrap().contains("hostgap agent down"));
        assert!(settings(None).check_services(false).is_ok());
    }
}
