//! The scene of a case: a node with a link to the outside, containers, and what was done with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cni::{Command, Version};
use ipnet::IpNet;
use linux::netlink::{LinkInfo, RouteInfo};
use linux::view::{Own, View};
use linux::{IfName, Link, LinkKind, Netlink, Netns, NetnsName, Route, VethPeer, sysctl};
use plan::{Journal, Kernel, Place, Plan, SetLinkUp, SetSysctl, Step, apply};
use serde_json::Value;

use crate::Subject;
use crate::answer::Answer;
use crate::ask::Ask;
use crate::outcome::{Judged, Stop};
use crate::state::State;
use crate::transcript::Transcript;

/// The node's link to the outside, and its other end. Containers' interfaces are called as runtimes call them.
pub(crate) const LINK: &str = "eth0";
const FAR_LINK: &str = "eth0";
/// What a runtime calls the first interface of a container.
pub(crate) const IFNAME: &str = "eth0";
/// For the kernel to end a namespace, on a busy machine. Only a plugin that leaves something waits so long.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// The files of a scene, in the `/run` that it has to itself.
const DIRECTORY: &str = "/run/hostgap-conformance";
/// Addresses of the node and of the machine outside, from networks for documentation.
const UNDERLAY: [(&str, &str); 2] = [("192.0.2.1/24", "192.0.2.2/24"), ("2001:db8::1/64", "2001:db8::2/64")];

/// The namespaces of one case, and what was done in them.
pub(crate) struct Scene<'s> {
    pub(crate) subject: &'s Subject,
    /// The version in which the plugin is spoken to unless a case says otherwise: the newest that it speaks.
    pub(crate) version: Version,
    /// All versions that the plugin says it speaks.
    pub(crate) supported: &'s [String],
    pub(crate) transcript: Mutex<Transcript>,
    files: AtomicU32,
}

/// A container: a namespace with a name.
pub(crate) struct Container {
    pub(crate) name: NetnsName,
}

/// What a scene's threads see of the machine's files: all of them, read-only, with empty directories where plugins keep
/// state. What is in `/run` otherwise, sockets of services among it, is hidden.
pub(crate) fn view() -> View {
    let own = |at: &str, name: &str| Own::new(at, Path::new(DIRECTORY).join(name), &["cni"]);
    View { empty: vec!["/run".into()], own: vec![own("/var/lib", "var-lib"), own("/var/log", "var-log")] }
}

impl<'s> Scene<'s> {
    /// Makes the node. The calling thread has [`view`].
    pub(crate) fn new(subject: &'s Subject, version: Version, supported: &'s [String]) -> Judged<Scene<'s>> {
        std::fs::create_dir_all(DIRECTORY)
            .map_err(|error| Stop::undecided(&format!("create {DIRECTORY}: {error}")))?;
        let transcript = Mutex::new(Transcript::default());
        let scene = Scene { subject, version, supported, transcript, files: AtomicU32::new(0) };
        scene.make(&node_plan()?)?;
        Ok(scene)
    }

    /// Makes a container's namespace.
    pub(crate) fn container(&self, name: &str) -> Judged<Container> {
        let name = NetnsName::new(name)?;
        let mut plan = Plan::new();
        plan.push(&Place::Netns(name.clone()), Step::AddNetns);
        self.make(&plan)?;
        Ok(Container { name })
    }

    /// Makes what a plan says, and notes its commands. Nothing is held open afterwards, so that a namespace whose name is
    /// deleted ends.
    pub(crate) fn make(&self, plan: &Plan) -> Judged {
        let mut journal = Journal::create(&self.file("journal"))?;
        apply(plan, &mut journal, &mut Kernel::new()?)?;
        let mut transcript = self.transcript();
        plan.commands().into_iter().for_each(|command| transcript.command(command));
        Ok(())
    }

    /// A call of the plugin, as a runtime makes it for a container in its network.
    pub(crate) fn ask(&self, command: Command, container: &Container) -> Ask<'_> {
        Ask::of_container(self, &command.to_string(), container)
    }

    /// ADD, behind the plugins that are called before.
    pub(crate) fn ask_add(&self, container: &Container) -> Judged<Ask<'_>> {
        let mut ask = self.ask(Command::Add, container);
        for (program, plugin) in &self.subject.before {
            let before = ask.for_predecessor(program, plugin);
            let result = before.send()?.result().map_err(|stop| match stop {
                Stop::Failed { why, .. } => {
                    Stop::undecided(&format!("{} is called before: {why}", plugin.kind))
                }
                other => other,
            })?;
            ask = ask.key("prevResult", result);
        }
        Ok(ask)
    }

    /// ADD, which must work.
    pub(crate) fn added(&self, container: &Container) -> Judged<Added> {
        Added::of(self.ask_add(container)?.send()?)
    }

    /// DEL with the result of ADD, which must work.
    pub(crate) fn deleted(&self, container: &Container, added: &Added) -> Judged {
        self.ask(Command::Del, container).previous(added).send()?.succeeded()
    }

    /// What stands in the node's namespace.
    pub(crate) fn node(&self) -> Judged<State> {
        State::of(&Netns::open(&node_name()?)?)
    }

    /// Fails if the node is not as before, when the kernel has ended a namespace that lost its name: that takes it a moment,
    /// and the node's end of a pair goes with it.
    pub(crate) fn node_must_become(&self, before: &State, when: &str) -> Judged {
        let begun = Instant::now();
        while self.node()? != *before && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        self.node()?.must_be(before, "the node", when)
    }

    /// The names of the node's links.
    pub(crate) fn node_links(&self) -> Judged<BTreeSet<String>> {
        let links = Netlink::open_in(&Netns::open(&node_name()?)?)?.links()?;
        Ok(links.into_iter().map(|link| link.name.to_string()).collect())
    }

    /// What stands in the node's namespace when a first container has come and gone. What containers share, a bridge or
    /// rules, is made by the first and may stay.
    pub(crate) fn settled_node(&self) -> Judged<State> {
        let first = self.container("first")?;
        let added = self.added(&first)?;
        self.deleted(&first, &added)?;
        self.node()
    }

    /// Whether the plugin says that it speaks a version.
    pub(crate) fn speaks(&self, version: &str) -> bool {
        self.supported.iter().any(|supported| supported == version)
    }

    pub(crate) fn transcript(&self) -> MutexGuard<'_, Transcript> {
        self.transcript.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A path for a new file of the scene.
    pub(crate) fn file(&self, kind: &str) -> PathBuf {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        Path::new(DIRECTORY).join(format!("{number}.{kind}"))
    }
}

impl Container {
    /// `CNI_NETNS`.
    pub(crate) fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
    }

    pub(crate) fn place(&self) -> Place {
        Place::Netns(self.name.clone())
    }

    pub(crate) fn netns(&self) -> Judged<Netns> {
        Ok(Netns::open(&self.name)?)
    }

    pub(crate) fn state(&self) -> Judged<State> {
        State::of(&self.netns()?)
    }

    /// An interface; `None` if there is none of that name.
    pub(crate) fn link(&self, ifname: &str) -> Judged<Option<LinkInfo>> {
        Ok(Netlink::open_in(&self.netns()?)?.link(&IfName::new(ifname)?)?)
    }

    /// The addresses of an interface, without those that the kernel gives it.
    pub(crate) fn addresses(&self, ifname: &str) -> Judged<BTreeSet<IpNet>> {
        let netlink = Netlink::open_in(&self.netns()?)?;
        let Some(link) = netlink.link(&IfName::new(ifname)?)? else { return Ok(BTreeSet::new()) };
        let addresses = netlink.addresses_of(link.index)?.into_iter().map(|info| info.address);
        let is_given =
            |address: &IpNet| matches!(address, IpNet::V6(v6) if v6.addr().is_unicast_link_local());
        Ok(addresses.filter(|address| !is_given(address)).collect())
    }

    /// The routes of the main table.
    pub(crate) fn routes(&self) -> Judged<Vec<RouteInfo>> {
        let routes = Netlink::open_in(&self.netns()?)?.routes()?;
        Ok(routes.into_iter().filter(|route| route.table == RouteInfo::MAIN).collect())
    }
}

/// What ADD printed.
pub(crate) struct Added {
    pub(crate) result: Value,
    pub(crate) answer: Answer,
}

impl Added {
    pub(crate) fn of(answer: Answer) -> Judged<Added> {
        Ok(Added { result: answer.result()?, answer })
    }

    /// The entries of a list in the result; none if there is no such list.
    pub(crate) fn list(&self, key: &str) -> Vec<Value> {
        self.result.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    }

    /// The container's addresses.
    pub(crate) fn addresses(&self) -> Judged<Vec<IpNet>> {
        let texts =
            self.list("ips").into_iter().map(|ip| ip["address"].as_str().unwrap_or_default().to_owned());
        let parsed = texts.map(|text| {
            let wrong = || {
                self.answer.fault(format!("`ips` has the address {text:?}, which is not in CIDR notation"))
            };
            text.parse().map_err(|_| wrong())
        });
        parsed.collect()
    }
}

fn node_name() -> Judged<NetnsName> {
    Ok(NetnsName::new("node")?)
}

/// The node, a machine at the other end of its link, addresses of both families, and default routes.
fn node_plan() -> Judged<Plan> {
    let (node, far) = (Place::Netns(node_name()?), Place::Netns(NetnsName::new("far")?));
    let (link, far_link) = (IfName::new(LINK)?, IfName::new(FAR_LINK)?);
    let mut plan = Plan::new();
    plan.push(&node, Step::AddNetns);
    plan.push(&far, Step::AddNetns);
    let peer = VethPeer { name: far_link.clone(), netns: far.netns(), mtu: None, mac: None };
    plan.push(
        &node,
        Step::AddLink(Link { name: link.clone(), kind: LinkKind::Veth { peer }, mtu: None, mac: None }),
    );
    let families = if linux::features::has_ipv6() { 2 } else { 1 };
    for (place, link) in [(&node, &link), (&far, &far_link)] {
        if families == 2 {
            // Without this a link-local address is tentative for a second or two.
            let key = sysctl::Key::new(format!("net/ipv6/conf/{link}/accept_dad"))?;
            plan.push(place, SetSysctl { key, value: "0".to_owned() });
        }
        plan.push(place, SetLinkUp { link: link.clone() });
    }
    for (near, other) in &UNDERLAY[..families] {
        let [near, other] =
            [near, other].map(|text| text.parse::<IpNet>().expect("constant addresses are sound"));
        plan.push(&node, Step::AddAddress { link: link.clone(), address: near });
        plan.push(&far, Step::AddAddress { link: far_link.clone(), address: other });
        let everything = if near.addr().is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        let everything = everything.parse().expect("constant prefixes are sound");
        plan.push(&node, Step::AddRoute(Route::via(everything, other.addr(), link.clone())));
    }
    Ok(plan)
}
