//! The scene of a case: a node with a link to the outside, containers, and what was done with them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cni::Version;
use ipnet::IpNet;
use linux::netlink::{LinkInfo, RouteInfo};
use linux::view::{Own, View};
use linux::{IfName, Netlink, Netns, NetnsName};
use plan::{Journal, Kernel, Place, Plan, Step, apply};

use crate::Subject;
use crate::node;
use crate::outcome::{Judged, Stop};
use crate::state::State;
use crate::transcript::Transcript;

/// What a runtime calls the first interface of a container.
pub(crate) const IFNAME: &str = "eth0";
/// For the kernel to end a namespace, on a busy machine. Only a plugin that leaves something waits so long.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);
/// The files of a scene, in the `/run` that it has to itself.
const DIRECTORY: &str = "/run/hostgap-conformance";
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
        scene.make(&node::plan()?)?;
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

    /// Makes what a plan says, and notes its commands. Nothing is held open afterwards, so that a namespace whose
    /// name is deleted ends.
    pub(crate) fn make(&self, plan: &Plan) -> Judged {
        let mut journal = Journal::create(&self.file("journal"))?;
        apply(plan, &mut journal, &mut Kernel::new()?)?;
        let mut transcript = self.transcript();
        plan.commands().into_iter().for_each(|command| transcript.command(command));
        Ok(())
    }

    /// What stands in the node's namespace.
    pub(crate) fn node(&self) -> Judged<State> {
        State::of(&Netns::open(&node::name()?)?)
    }

    /// Fails if the node is not as before, when the kernel has ended a namespace that lost its name: that takes it a
    /// moment, and the node's end of a pair goes with it.
    pub(crate) fn node_must_become(&self, before: &State, when: &str) -> Judged {
        let begun = Instant::now();
        while self.node()? != *before && begun.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        self.node()?.must_be(before, "the node", when)
    }

    /// The names of the node's links.
    pub(crate) fn node_links(&self) -> Judged<BTreeSet<String>> {
        let links = Netlink::open_in(&Netns::open(&node::name()?)?)?.links()?;
        Ok(links.into_iter().map(|link| link.name.to_string()).collect())
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
    /// The path of the network namespace, for `CNI_NETNS`.
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
