//! How connections get into the proxies: rules in the namespaces of client and server; and the short cut between the
//! server's proxy and the server.

use datapath::{Family, PacketCounter, PacketDirection, SocketRole, Trace};
use linux::nft::priority::DSTNAT;
use linux::nft::{self, Base, Chain, ChainKind, Hook, Match, Rule, Statement};
use plan::forwarding::{Member, Splice};
use plan::{Place, Plan, Step};

use super::ifname;
use crate::family::loopback;
use crate::ports::{PROXIED_PORT, SERVER_PORT};
use crate::{ByRole, Shape, proxy};

/// The name of the tables.
const TABLE: &str = "hgproxy";

/// The rules of each end that has a proxy.
pub(super) fn plan(shape: &Shape, processes: &ByRole<Place>, plan: &mut Plan) {
    for (part, proxy) in
        [(SocketRole::Client, shape.proxies.client), (SocketRole::Server, shape.proxies.server)]
    {
        if proxy.is_some() {
            plan.push(processes.of(part), Step::AddNftTable(table(part, shape.family)));
        }
    }
    if shape.proxies.splice {
        splice(shape, &processes.server, plan);
    }
}

fn hop(shape: &Shape) -> Splice {
    Splice { node: format!("{}-hop", shape.prefix) }
}

/// What has to be counted of requests and answers where there are proxies: on the loopback links by which they reach
/// the proxies and leave them, or by the short cut that replaces the server's.
pub(super) fn traces(shape: &Shape, processes: &ByRole<Place>) -> Vec<Trace> {
    let loopback = PacketCounter::Received(ifname("lo"));
    let server = match shape.proxies.splice {
        true => PacketCounter::Spliced(hop(shape)),
        false => loopback.clone(),
    };
    let ends = [
        (shape.proxies.client, &processes.client, loopback),
        (shape.proxies.server, &processes.server, server),
    ];
    let there = ends.into_iter().filter(|(proxy, ..)| proxy.is_some());
    let both = PacketDirection::Both;
    there.map(|(_, at, counter)| Trace { place: at.clone(), counter, packets: both }).collect()
}

/// The programs that pass on between sockets, for those of the loopback address of the server's namespace.
fn splice(shape: &Shape, place: &Place, plan: &mut Plan) {
    let splice = hop(shape);
    let member = Member { node: splice.node.clone(), addresses: vec![loopback(shape.family)] };
    plan.push(place, Step::LoadSplice(splice.clone()));
    plan.push(place, Step::AddCgroup(splice.clone()));
    plan.push(place, Step::AttachSplice(splice));
    plan.push(place, Step::AddMember(member));
}

/// What the client sends to the proxied port, and what comes to the server's port from outside.
fn table(part: SocketRole, family: Family) -> nft::Table {
    let (hook, matches) = match part {
        SocketRole::Client => (Hook::Output, vec![Match::TcpDport(PROXIED_PORT)]),
        SocketRole::Server => {
            let from_outside = Match::Iifname { not: true, name: ifname("lo") };
            (Hook::Prerouting, vec![from_outside, Match::TcpDport(SERVER_PORT)])
        }
    };
    let then = Statement::Redirect { port: proxy::port(part) };
    let base = Some(Base { kind: ChainKind::Nat, hook, priority: DSTNAT });
    let chain = Chain { name: "into-proxy".to_owned(), base, rules: vec![Rule { matches, then }] };
    let family = match family {
        Family::V4 => nft::Family::Ip,
        Family::V6 => nft::Family::Ip6,
    };
    nft::Table { family, name: TABLE.to_owned(), maps: Vec::new(), chains: vec![chain] }
}
