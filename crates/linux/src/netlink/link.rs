//! Links: made, changed, moved, listed.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{
    InfoBridgePort, InfoPortData, InfoPortKind, LinkAttribute, LinkFlags, LinkInfo as Info, LinkMessage,
    LinkXdp, Prop,
};

use super::link_message::{self, Resolved, indexed, without_statistics};
use super::{LinkInfo, Netlink, PortFlag};
use crate::{IfName, Link, LinkKind, Mac, Netns, Result, Vxlan};

/// A question for one link.
fn asking(index: u32) -> LinkMessage {
    let mut message = without_statistics();
    message.header.index = index;
    message
}

impl Netlink {
    /// Makes a link, down. Its parent and its peer's namespace are found by name. `EEXIST` if the name is taken.
    pub fn link_add(&self, link: &Link) -> Result<()> {
        let attempted = format!("create {} link {}", link.kind.name(), link.name);
        let found = self.resolve(&link.kind)?;
        let message = link_message::creation(link, &found);
        // `found` keeps the peer's namespace open until the kernel has answered.
        self.change(Message::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, attempted)
    }

    /// Makes a link of another namespace, on a parent in this one. It never stands here, and nothing waits for it
    /// to be moved. Before Linux 6.14 its name must be free here too.
    pub fn link_add_in(&self, there: &Netns, link: &Link) -> Result<()> {
        let attempted = format!("create {} link {} in {}", link.kind.name(), link.name, there.describe());
        let found = self.resolve(&link.kind)?;
        let mut message = link_message::creation(link, &found);
        message.attributes.push(LinkAttribute::NetNsFd(there.as_fd().as_raw_fd()));
        self.change(Message::NewLink(message), NLM_F_CREATE | NLM_F_EXCL, attempted)
    }

    /// Removes a link, and the other end if it is one of a pair. `ENODEV` if there is none.
    pub fn link_del(&self, index: u32) -> Result<()> {
        self.change(Message::DelLink(indexed(index)), 0, format!("delete link {index}"))
    }

    /// A link by name; `None` if there is none.
    pub fn link(&self, name: &IfName) -> Result<Option<LinkInfo>> {
        let mut message = without_statistics();
        message.attributes.push(LinkAttribute::IfName(name.to_string()));
        self.link_of(message, format!("look at link {name}"))
    }

    /// A link by index; `None` if there is none.
    pub fn link_at(&self, index: u32) -> Result<Option<LinkInfo>> {
        self.link_of(asking(index), format!("look at link {index}"))
    }

    fn link_of(&self, question: LinkMessage, attempted: String) -> Result<Option<LinkInfo>> {
        match self.get(Message::GetLink(question)) {
            Ok(answer) => self.one(&answer, attempted).map(Some),
            Err(error) => {
                let error = self.error(attempted, error);
                if error.is(libc::ENODEV) { Ok(None) } else { Err(error) }
            }
        }
    }

    /// Every link of the namespace, by index.
    pub fn links(&self) -> Result<Vec<LinkInfo>> {
        let answers = self.dump(&Message::GetLink(without_statistics()), "list links")?;
        let mut links = self.infos(&answers, "list links")?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// Brings a link up or down.
    pub fn link_set_up(&self, index: u32, up: bool) -> Result<()> {
        let mut message = indexed(index);
        message.header.change_mask = LinkFlags::Up;
        message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        self.change(
            Message::SetLink(message),
            0,
            format!("bring link {index} {}", if up { "up" } else { "down" }),
        )
    }

    /// Sets the MTU in bytes.
    pub fn link_set_mtu(&self, index: u32, mtu: u32) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(Message::SetLink(message), 0, format!("set the MTU of link {index} to {mtu}"))
    }

    /// Gives a link another Ethernet address. Many drivers refuse it with `EBUSY` while the link is up.
    pub fn link_set_mac(&self, index: u32, mac: Mac) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::Address(mac.0.to_vec()));
        self.change(Message::SetLink(message), 0, format!("give link {index} the Ethernet address {mac}"))
    }

    /// Sets the most segments, at least 1, in a packet that a link accepts. Larger packets, both local and forwarded,
    /// are segmented before they reach it (`gso_features_check` in net/core/dev.c).
    pub fn link_set_gso_max_segs(&self, index: u32, segments: u32) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::GsoMaxSegs(segments));
        let attempted = format!("let link {index} take packets of up to {segments} segments");
        self.change(Message::SetLink(message), 0, attempted)
    }

    /// Makes a link a port of a bridge, or takes it out.
    pub fn link_set_master(&self, index: u32, master: Option<u32>) -> Result<()> {
        let attempted = match master {
            Some(master) => format!("make link {index} a port of link {master}"),
            None => format!("take link {index} off its bridge"),
        };
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::Controller(master.unwrap_or(0)));
        self.change(Message::SetLink(message), 0, attempted)
    }

    /// Takes away the XDP program that a link was given by itself, without a bpf link. None is no error.
    pub fn link_clear_xdp(&self, index: u32) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(-1)]));
        self.change(Message::SetLink(message), 0, format!("take the XDP program off link {index}"))
    }

    /// Switches a flag of a bridge port on or off.
    pub fn link_set_port_flag(&self, index: u32, flag: PortFlag, on: bool) -> Result<()> {
        let state = if on { "on" } else { "off" };
        let attempted = format!("turn flag {} of bridge port {index} {state}", flag.word());
        let data = match flag {
            PortFlag::Hairpin => InfoBridgePort::HairpinMode(on),
            PortFlag::Isolated => InfoBridgePort::Isolated(on),
        };
        let (kind, port) = (InfoPortKind::Bridge, InfoPortData::BridgePort(vec![data]));
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::LinkInfo(vec![Info::PortKind(kind), Info::PortData(port)]));
        // Port data is read from RTM_NEWLINK alone; RTM_SETLINK ignores it.
        self.change(Message::NewLink(message), 0, attempted)
    }

    /// Moves a link to another namespace, where it gets a name. It goes down and loses its addresses and routes.
    pub fn link_move(&self, index: u32, to: &Netns, name: &IfName) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::NetNsFd(to.as_fd().as_raw_fd()));
        message.attributes.push(LinkAttribute::IfName(name.to_string()));
        let attempted = format!("move link {index} to {} as {name}", to.describe());
        self.change(Message::SetLink(message), 0, attempted)
    }

    /// The other names of a link (Linux 5.5), beside the one that it is called by.
    pub fn link_other_names(&self, index: u32) -> Result<Vec<String>> {
        let attempted = format!("look at link {index}");
        let answer =
            self.get(Message::GetLink(asking(index))).map_err(|error| self.error(attempted, error))?;
        let Message::NewLink(message) = answer else { return Ok(Vec::new()) };
        let properties = message.attributes.into_iter().filter_map(|attribute| match attribute {
            LinkAttribute::PropList(properties) => Some(properties),
            _ => None,
        });
        let names = properties.flatten().filter_map(|property| match property {
            Prop::AltIfName(name) => Some(name),
            _ => None,
        });
        Ok(names.collect())
    }

    /// Takes one of its other names from a link.
    pub fn link_other_name_del(&self, index: u32, name: &str) -> Result<()> {
        let mut message = indexed(index);
        message.attributes.push(LinkAttribute::PropList(vec![Prop::AltIfName(name.to_owned())]));
        self.change(Message::DelLinkProp(message), 0, format!("take the name {name} from link {index}"))
    }

    /// Brings the loopback of a new namespace up.
    pub(crate) fn loopback_up(&self) -> Result<()> {
        let lo = IfName::new("lo").expect("lo is a valid name");
        self.link_set_up(self.index_of(&lo)?, true)
    }

    /// Finds what a kind names: the link below, the namespace of the peer.
    fn resolve(&self, kind: &LinkKind) -> Result<Resolved> {
        let lower = match kind {
            LinkKind::Veth { .. }
            | LinkKind::Netkit { .. }
            | LinkKind::Bridge
            | LinkKind::Ifb
            | LinkKind::WireGuard
            | LinkKind::VxlanExternal { .. } => None,
            LinkKind::Vxlan(Vxlan { parent, .. })
            | LinkKind::Macvlan { parent, .. }
            | LinkKind::Ipvlan { parent, .. } => Some(self.index_of(parent)?),
        };
        let peer_netns = kind.peer().and_then(|peer| peer.netns.as_ref()).map(Netns::find).transpose()?;
        Ok(Resolved { lower, peer_netns })
    }

    fn one(&self, answer: &Message, attempted: String) -> Result<LinkInfo> {
        let mut links = self.infos(std::slice::from_ref(answer), &attempted)?;
        links.pop().ok_or_else(|| self.invalid(attempted, "the kernel answered with something else"))
    }

    fn infos(&self, answers: &[Message], attempted: &str) -> Result<Vec<LinkInfo>> {
        let messages = answers.iter().filter_map(|answer| match answer {
            Message::NewLink(message) => Some(message),
            _ => None,
        });
        messages
            .map(|message| link_message::read(message).map_err(|why| self.invalid(attempted, why)))
            .collect()
    }
}
