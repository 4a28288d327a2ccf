//! What can be done to a machine: a closed list of steps, each of which knows its place.

use std::path::PathBuf;

use ipnet::IpNet;
use linux::{
    FdbEntry, IfName, Link, Mac, Neighbour, RdmaLink, Route, UserNet, WireGuardPeer, XfrmPolicy, XfrmState,
    nft,
};
use serde::{Deserialize, Serialize};

use crate::forwarding::{
    Endpoint, Guard, Guarded, Member, ProgramAttachment, Programs, ServiceAttachment, ServiceEntry,
    ServicePrograms, Splice, Tunnel, Uplink,
};
use crate::switching::{OvsBridge, OvsPort, OvsSwitch};
use crate::{Place, Set};

/// An ordered list of steps. Making one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// The steps in the order in which they are done; undo goes backwards.
    pub steps: Vec<Placed>,
}

/// A step and the network namespace in which it acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The namespace in which it is done.
    pub place: Place,
    /// What is done there.
    pub step: Step,
}

/// One change of the kernel's state.
///
/// `Add…` steps refuse to touch what is already there, `Ensure…` steps use it, `Replace…` steps take its place; `Set…`
/// steps keep the old value for undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Make the step's own place; it must be a named namespace. Brings up its loopback.
    AddNetns,
    /// Make a link, down; a veth pair with both ends.
    AddLink(Link),
    /// Make a link, down, whose parent is in another namespace. It never stands there: to move it costs tens
    /// of milliseconds, since the kernel waits for readers of a link that goes. Its name must be free in
    /// both before Linux 6.14.
    AddLinkOn {
        /// The link, in the step's place.
        link: Link,
        /// Where its parent is.
        parent_in: Place,
    },
    /// Make a link, down, unless one of its name and kind is there: that is used as it is, and undo leaves it. One of
    /// another kind is refused. A link that the step made is not taken from ports that another program has added to it:
    /// as long as there is one, nothing of the journal is undone.
    EnsureLink(Link),
    /// Move a link to another namespace; it loses its addresses. It changes its name in the same request; in the
    /// namespace where it is that is all that happens.
    MoveLink {
        /// The link, in the step's place.
        link: IfName,
        /// The namespace into which it is moved.
        to: Place,
        /// The name that it gets in that namespace.
        name: IfName,
    },
    /// Give a link an address. IPv6 addresses are usable at once: no duplicate address detection.
    AddAddress {
        /// The link that gets the address.
        link: IfName,
        /// The address with its prefix length.
        address: IpNet,
    },
    /// The same, unless the link has the address already; undo leaves it then. Refused where the link has another
    /// address whose subnet overlaps.
    EnsureAddress {
        /// The link that is to have the address.
        link: IfName,
        /// The address with its prefix length.
        address: IpNet,
    },
    /// Make a route in the main table.
    AddRoute(Route),
    /// Make a route in the main table. One that is there to the same destination with the same metric gives way in the
    /// same moment, and undo puts it back. The kernel's own routes and those that expire are refused.
    ReplaceRoute(Route),
    /// Make a permanent or a proxy neighbour entry.
    AddNeighbour(Neighbour),
    /// Make a permanent neighbour entry. Another permanent one for the address gives way, and undo puts it back.
    ReplaceNeighbour(Neighbour),
    /// Make a forwarding entry of a tunnel device.
    AddFdb(FdbEntry),
    /// The same. Another one for the Ethernet address gives way, and undo puts it back. Not for the all-zero address.
    ReplaceFdb(FdbEntry),
    /// Add a peer to a WireGuard device.
    #[serde(rename = "add_wireguard_peer")]
    AddWireGuardPeer(WireGuardPeer),
    /// Add a security association of IPsec.
    AddXfrmState {
        /// What it is known by.
        state: XfrmState,
        /// The file with its key, as [`linux::EspKey::keep`] writes it.
        key_file: PathBuf,
    },
    /// Add a policy of IPsec.
    AddXfrmPolicy(XfrmPolicy),
    /// Make an RDMA device of software RoCE on a link. The name is the machine's: it must be free in all namespaces.
    AddRdmaLink(RdmaLink),
    /// Lead all that arrives at a link to another one, which sends it: an ingress qdisc with a single filter. Refused
    /// where the link has an ingress or a clsact qdisc.
    AddRedirect {
        /// The link at which it arrives.
        from: IfName,
        /// The link of the same namespace that gets it, an ifb to hold it back a while.
        to: IfName,
    },
    /// Make an nftables table with all its chains and rules.
    AddNftTable(nft::Table),
    /// Add an element to a map or a set of an nftables table. Where it leads UDP elsewhere, what goes on as it was
    /// before is no longer tracked when the plan is applied, and when it is undone, so that clients follow it.
    AddNftElement(nft::Element),
    /// Start an Open vSwitch of the node's own: its daemons in the step's place, its database and sockets in a
    /// directory. Refused where the place has one.
    StartOvs(OvsSwitch),
    /// Make a bridge of it, down.
    AddOvsBridge(OvsBridge),
    /// Make a link or a tunnel to another node a port of such a bridge.
    AddOvsPort(OvsPort),
    /// Start a process in the step's place, a node, that makes a tap link in a pod and carries the pod's connections by
    /// sockets of its own. Refused where the pod has a link of that name, or its loopback is down.
    StartUserNet(Box<UserNet>),
    /// Do a step that several units want: the first does it, later ones find it so, and the last that is undone takes
    /// it back. Two that want it differently: an error that names the other. A value that is so already is not written.
    /// Not for [`Step::AddNetns`] and [`Step::MoveLink`].
    Share(Box<Step>),
    /// Load the programs of a node and pin them in a bpffs of their own.
    LoadPrograms(Programs),
    /// Attach a program of a node to a link.
    AttachProgram(ProgramAttachment),
    /// Add a pod to the maps of a node's programs.
    AddEndpoint(Endpoint),
    /// Add a tunnel to another node to the maps of a node's programs.
    AddTunnel(Tunnel),
    /// Let a node's programs send by a link beside the wire.
    AddUplink(Uplink),
    /// Make the control group of a node, whose tasks' sockets may be spliced.
    AddCgroup(Splice),
    /// Load the programs that splice the sockets of a node's pods, and pin them beside the forwarding programs.
    LoadSplice(Splice),
    /// Attach them to the node's control group.
    AttachSplice(Splice),
    /// Let the sockets of a pod be spliced. The step's place is the pod's namespace.
    AddMember(Member),
    /// Load the program that checks what the pods of a node send, and pin it in a bpffs of its own.
    LoadGuard(Guard),
    /// Give it the addresses that an interface of a pod has.
    AddGuarded(Guarded),
    /// Load the programs that lead sockets' calls of Services to backends, and pin them in a bpffs of their own.
    LoadServices(ServicePrograms),
    /// Attach them to a control group.
    AttachServices(ServiceAttachment),
    /// Lead calls of a Service to its backends. Another Service at the same address and port gives way in the same
    /// moment, and undo puts it back.
    ReplaceService(ServiceEntry),
    /// Write a register; each setting has a word of its own in files.
    #[serde(untagged)]
    Set(Set),
}

impl Step {
    /// The step that takes the place of what is there, where there is such a step; else the step itself.
    #[must_use]
    pub fn replacing(self) -> Step {
        match self {
            Step::AddRoute(route) => Step::ReplaceRoute(route),
            Step::AddNeighbour(neighbour) if neighbour.mac.is_some() => Step::ReplaceNeighbour(neighbour),
            Step::AddFdb(entry) if entry.mac != Mac([0; 6]) => Step::ReplaceFdb(entry),
            other => other,
        }
    }

    /// The link of the step's place that it makes, or finds there.
    pub fn link(&self) -> Option<&Link> {
        match self {
            Step::AddLink(link) | Step::AddLinkOn { link, .. } | Step::EnsureLink(link) => Some(link),
            _ => None,
        }
    }
}

impl Plan {
    /// A plan without steps.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Adds a step at the end.
    pub fn push(&mut self, place: &Place, step: impl Into<Step>) {
        self.steps.push(Placed { place: place.clone(), step: step.into() });
    }

    /// Adds another plan's steps at the end.
    pub fn extend(&mut self, other: Plan) {
        self.steps.extend(other.steps);
    }

    /// The plan in which routes, neighbours and forwarding entries take the place of what is there; see
    /// [`Step::replacing`].
    #[must_use]
    pub fn replacing(self) -> Plan {
        let replacing = |placed: Placed| Placed { step: placed.step.replacing(), ..placed };
        Plan { steps: self.steps.into_iter().map(replacing).collect() }
    }

    /// True if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}
