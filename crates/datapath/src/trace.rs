//! What packets leave behind at the counters of the namespaces that they pass, by which it is known that
//! they took a path.
//!
//! That a path stands is no proof that packets take it: a more specific route, a rule or a program that is added leads
//! them past it. Each driver says which counters its packets must show at, and at which they must not. Counters of
//! links and of a namespace's routing are exact, cheap to read, and not to be had without the packets.

use linux::IfName;
use plan::Place;
use plan::forwarding::Splice;

use crate::{NodeSpec, Pod, Protocol};

/// What a counter has to show of the packets between two pods.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Trace {
    pub place: Place,
    pub counter: PacketCounter,
    /// What it counts of them.
    pub packets: PacketDirection,
}

/// What counts packets on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PacketCounter {
    /// What a link received.
    Received(IfName),
    /// What a link sent.
    Sent(IfName),
    /// What the namespace forwarded from one link to another by its routes, of both families.
    Forwarded,
    /// What the namespace's own stack took for a socket, or answered itself, of both families.
    Delivered,
    /// Messages that went past TCP from one socket of a node to another.
    Spliced(Splice),
}

/// Which packets of a conversation between a client and a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDirection {
    /// Those from the client to the server.
    Requests,
    /// Those from the server to the client.
    Answers,
    /// Those of both directions.
    Both,
    /// None: what is counted there took another way.
    None,
}

/// An end of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End<'a> {
    /// The node of this end.
    pub node: &'a NodeSpec,
    /// The pod that has this part; `None`: the node's own namespace has it.
    pub pod: Option<&'a Pod>,
}

/// A conversation, as the driver of one pod sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Talk {
    /// The pod's part in it.
    pub part: SocketRole,
    /// Where the other pod is.
    pub with: With,
    /// The transport protocol of the conversation.
    pub protocol: Protocol,
}

/// A pod's part in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketRole {
    /// The end that sends requests.
    Client,
    /// The end that answers them.
    Server,
}

/// Where the other pod of a conversation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum With {
    /// On the same node.
    Neighbour,
    /// On another node, so that packets go over the wire between them.
    Remote,
}

impl SocketRole {
    /// "client" or "server", as messages and names of objects have it.
    pub fn name(self) -> &'static str {
        match self {
            SocketRole::Client => "client",
            SocketRole::Server => "server",
        }
    }
}

impl Talk {
    /// What the pod sends.
    pub(crate) fn sent(self) -> PacketDirection {
        match self.part {
            SocketRole::Client => PacketDirection::Requests,
            SocketRole::Server => PacketDirection::Answers,
        }
    }

    /// What the pod receives.
    pub(crate) fn received(self) -> PacketDirection {
        match self.part {
            SocketRole::Client => PacketDirection::Answers,
            SocketRole::Server => PacketDirection::Requests,
        }
    }
}

/// Traces in the making: the vocabulary in which drivers say what counts their packets.
#[derive(Default)]
pub(crate) struct Traces(Vec<Trace>);

impl Traces {
    pub(crate) fn into_list(self) -> Vec<Trace> {
        self.0
    }

    /// A link by which the pod's packets leave and come.
    pub(crate) fn outward(&mut self, place: &Place, link: &IfName, talk: Talk) {
        self.count(place, PacketCounter::Sent(link.clone()), talk.sent());
        self.count(place, PacketCounter::Received(link.clone()), talk.received());
    }

    /// A link by which the pod's packets come in, and by which they reach it.
    pub(crate) fn inward(&mut self, place: &Place, link: &IfName, talk: Talk) {
        self.count(place, PacketCounter::Received(link.clone()), talk.sent());
        self.count(place, PacketCounter::Sent(link.clone()), talk.received());
    }

    pub(crate) fn forwarded(&mut self, place: &Place, packets: PacketDirection) {
        self.count(place, PacketCounter::Forwarded, packets);
    }

    pub(crate) fn count(&mut self, place: &Place, counter: PacketCounter, packets: PacketDirection) {
        self.0.push(Trace { place: place.clone(), counter, packets });
    }
}
