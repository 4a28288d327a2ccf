//! Data path drivers: pure functions from a specification to a [`Plan`].
//!
//! A data path is how a pod reaches its node ([`Attach`]) times how nodes reach each other's pods ([`Transport`]):
//! the field's own seam (CNI plugins and flannel's backends). Nothing here opens a socket or changes anything.
//! [`ALL`] is the one list of them; command line, documentation and tests are derived from it.

mod addresses;
mod attach;
mod check;
mod draft;
mod limit;
mod links;
mod path;
mod rules;
mod spec;
mod trace;
mod transport;

pub use addresses::{Addresses, Family, Prefixes, gateway_in};
pub use links::vhost_user_socket;
pub use path::{ALL, ATTACHES, BACKENDS, Between, CNI, DEVICE, DataPath, Enters, Reach, find};
pub use spec::{
    Association, Device, GuardHook, Limits, Network, NodeSpec, Peer, Pod, PodRoute, Protocol, PublishedPort,
    RateLimit, Router, SpecError, TunnelAssociations, TunnelKey,
};
pub use trace::{End, PacketCounter, PacketDirection, SocketRole, Talk, Trace, With};

use linux::features::Feature;
use plan::Plan;

/// How a pod's interface reaches its node.
///
/// [`DataPath`] checks every specification before it asks a driver, so a driver may rely on what
/// [`NodeSpec::check`] and [`Pod::check`] promise.
pub trait Attach: Sync {
    /// The name, unique among attaches.
    fn name(&self) -> &'static str;
    /// What it needs of the machine.
    fn needs(&self) -> &'static [Feature];
    /// What is done once a node (a bridge, forwarding), often nothing. `mtu` is the pods' MTU in bytes.
    fn node(&self, node: &NodeSpec, mtu: u32) -> Result<Plan, SpecError>;
    /// What is done for one pod.
    fn pod(&self, node: &NodeSpec, pod: &Pod, mtu: u32) -> Result<Plan, SpecError>;
    /// What a pod's packets leave at counters of the pod and its node, up to the wire.
    fn traces(&self, node: &NodeSpec, pod: &Pod, talk: Talk) -> Vec<Trace>;
    /// Whether it can lead ports of the node to a pod's ([`Pod::published`]).
    fn publishes_ports(&self) -> bool {
        false
    }
    /// Where what a pod receives can be held to a rate ([`Limits::receive`]).
    fn receive_limit(&self) -> ReceiveLimit {
        ReceiveLimit::Nowhere("it comes by no interface that is the pod's alone")
    }
    /// Present: a process of the node takes what pods send and sends it anew by sockets of its own, so that no packet
    /// of theirs leaves the pod. It is the MTU of their interfaces in bytes, which the underlay's does not bound.
    fn relay_mtu(&self) -> Option<u32> {
        None
    }
    /// Why clients cannot call a pod over a family; `None`: they can.
    fn refuses_callers(&self, _family: Family) -> Option<&'static str> {
        None
    }
    /// Whether its links hang on the node's wire. Others work on a node without one.
    fn needs_wire(&self) -> bool {
        true
    }
    /// Whether a program with a stack of its own can have a pod's place ([`Pod::vhost_user`]).
    fn takes_vhost_user(&self) -> bool {
        false
    }
    /// Whether the node can have a link of its own beside its pods' ([`Network::host_link`]).
    fn takes_host_link(&self) -> bool {
        false
    }
    /// Whether a pod's interface has an Ethernet address of its own ([`Pod::mac`]).
    fn has_own_mac(&self) -> bool {
        true
    }
    /// Whether what pods send out of the network gets the node's address where the network says so.
    fn masquerades(&self) -> bool {
        false
    }
    /// Whether the set-up that it stands for does so by default.
    fn usually_masquerades(&self) -> bool {
        self.masquerades()
    }
    /// Whether a pod's default route needs nothing but its interface. A neighbour on the node's wire needs
    /// a gateway there ([`Pod::gateways`]).
    fn leads_out(&self) -> bool {
        true
    }
    /// Whether what pods send to other nodes leaves by the node's wire, whatever the node's routes say:
    /// no tunnel takes it.
    fn leaves_by_wire(&self) -> bool {
        !self.leads_out()
    }
    /// Whether other machines than the node are neighbours on a pod's link, so that a route of the pod can go by one
    /// ([`PodRoute::via`]).
    fn has_neighbours(&self) -> bool {
        !self.leads_out()
    }
    /// Whether a pod can send by its interface from the addresses of that interface alone.
    fn binds_pods(&self) -> bool {
        false
    }
    /// Whether a pod's packets are checked for addresses that are not its own.
    fn anti_spoofing(&self) -> AntiSpoofing {
        AntiSpoofing::Never
    }
    /// Whether a pod can ask a machine on the wire which address it is to have: its interface is on the wire itself,
    /// with an Ethernet address by which the answer comes.
    fn can_ask_wire(&self) -> bool {
        false
    }
    /// The beginning of [`Attach::pod`], by which a pod asks: its interface, up and without addresses. Nothing where
    /// [`Attach::can_ask_wire`] is false.
    fn interface(&self, _node: &NodeSpec, _pod: &Pod, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }
    /// Why a pod that has this part cannot talk with another node's own address, or would do so by a way that is not
    /// this attach's; `None`: it can.
    fn refuses_nodes(&self, _part: SocketRole) -> Option<&'static str> {
        None
    }
    /// What more it takes so that a pod and the own address of another node find each other: steps on that node, which
    /// has no pod, and in the pod. Mostly nothing, as routes of the transport lead there.
    fn toward_node(&self, _pod: &Pod, _bare: &NodeSpec, _mtu: u32) -> Result<Plan, SpecError> {
        Ok(Plan::new())
    }
}

/// Whether the node checks that a pod's packets have the pod's own addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AntiSpoofing {
    /// It does: the programs that forward check first.
    Always,
    /// If the network says so ([`Network::anti_spoofing`]).
    Optional,
    /// The sources of a pod's packets are not checked.
    Never,
}

/// Where what a pod receives waits, if it is held to a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveLimit {
    /// At the node's end of its link: all of it passes the queue there, or does so if it is to be limited.
    NodeEnd,
    /// In the pod: all that arrives at its interface is led through one more link.
    Pod,
    /// What a pod receives cannot be held to a rate, for this reason.
    Nowhere(&'static str),
}

/// How one node's packets reach another node's pods. As with [`Attach`], specifications come checked.
pub trait Transport: Sync {
    /// The name, unique among transports.
    fn name(&self) -> &'static str;
    /// What it needs of the machine.
    fn needs(&self) -> &'static [Feature];
    /// Bytes that it takes from an underlay's MTU when the outer packets are of the given family.
    fn overhead_bytes(&self, outer: Family, underlay_mtu: u32) -> u32;
    /// Whether it wraps packets of pods in UDP, in the clear: a card then sees a tunnel, and is asked for the checksums
    /// in it.
    fn is_open_tunnel(&self) -> bool;
    /// The UDP port that its tunnels usually have ([`Network::port`]): Linux's and flannel's for VXLAN, unless it says
    /// otherwise.
    fn usual_port(&self) -> u16 {
        8472
    }
    /// What is done once a node (the tunnel device), often nothing.
    fn node(&self, node: &NodeSpec) -> Result<Plan, SpecError>;
    /// What keeps the node's pods from writing packets of its tunnel themselves, in addition to [`Transport::node`];
    /// nothing where there is no tunnel, or one whose packets are authenticated.
    fn port_guard(&self, _node: &NodeSpec) -> Plan {
        Plan::new()
    }
    /// What is done for each other node (route, neighbour, fdb entry).
    fn peer(&self, node: &NodeSpec, peer: &Peer) -> Result<Plan, SpecError>;
    /// What the packets of a node's pod leave at counters on their way to another node.
    fn traces(&self, node: &NodeSpec, talk: Talk) -> Vec<Trace>;
    /// Why a pod that has this part cannot talk with another node's own address by this transport; `None`: it can.
    fn refuses_nodes(&self, _part: SocketRole) -> Option<&'static str> {
        None
    }
}
