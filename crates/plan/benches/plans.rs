//! The time of a plan's step by the number of steps. The time of each apply, look and undo must not grow with
//! the plan.
//!
//! `cargo bench -p plan`; two minutes, as root. A node in a namespace of its own gets peers, each with a
//! route, a permanent neighbour and a forwarding entry of a vxlan device. Separate plans add links, MTUs of
//! links, routes that units share, and elements of an nftables map. The journal lies in memory, because the
//! time of a disk is not measured here. Nothing is asserted: the figures are for readers, and what counts is
//! that a column stays the same.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linux::nft::{self, Datum, Element, Map, PacketField, Table};
use linux::{FdbEntry, IfName, Link, LinkKind, Mac, Neighbour, Route, VethPeer, Vxlan};
use plan::{
    Journal, Kernel, Made, Place, Plan, SetLinkMtu, SetLinkUp, Step, StepState, Undone, apply, look, undo,
};
use testkit::World;

type Failure = Box<dyn Error>;

/// Plans of one kind, of several sizes.
struct Case {
    name: &'static str,
    /// How many peers, links or other objects a plan has.
    sizes: &'static [u32],
    /// What exists in the namespace before a plan of this size.
    ground: fn(&Place, u32) -> Result<Plan, Failure>,
    plan: fn(&Place, u32) -> Result<Plan, Failure>,
}

const PEERS: &[u32] = &[100, 1_000, 10_000];
/// For objects that take the kernel a millisecond, or that start a program.
const FEWER: &[u32] = &[30, 100, 300];

const CASES: [Case; 6] = [
    Case {
        name: "peers, IPv4",
        sizes: PEERS,
        ground: node,
        plan: |place, peers| peers_of(place, Family::Ipv4, peers),
    },
    Case {
        name: "peers, IPv6",
        sizes: PEERS,
        ground: node,
        plan: |place, peers| peers_of(place, Family::Ipv6, peers),
    },
    Case { name: "links", sizes: FEWER, ground: node, plan: links },
    Case { name: "MTUs", sizes: FEWER, ground: links, plan: mtus },
    Case { name: "shared routes", sizes: FEWER, ground: node, plan: shared },
    Case { name: "nft elements", sizes: FEWER, ground: map, plan: elements },
];

fn main() -> Result<(), Failure> {
    // Cargo runs this program with the tests too, and then without this argument.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("microseconds for each step");
    println!(
        "{:>16} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "plan", "size", "apply", "look", "all", "read", "undo"
    );
    for case in CASES {
        for size in case.sizes {
            let Figures { steps, apply, look, all, read, undo } = measure(&case, *size)?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(steps);
            let [apply, look, all, read, undo] = [apply, look, all, read, undo].map(each);
            println!(
                "{:>16} {size:>8} {apply:>8.1} {look:>8.1} {all:>8.1} {read:>8.1} {undo:>8.1}",
                case.name
            );
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy)]
enum Family {
    Ipv4,
    Ipv6,
}

/// The times of one plan.
struct Figures {
    steps: u32,
    apply: Duration,
    /// A look at each step by itself.
    look: Duration,
    /// Two looks at all steps and everything beside them.
    all: Duration,
    /// Reading the journal from its file.
    read: Duration,
    undo: Duration,
}

fn measure(case: &Case, size: u32) -> Result<Figures, Failure> {
    let world = World::new();
    world.add("node");
    let place = world.place("node");
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let mut kernel = Kernel::new()?.with_claims(directory.path().join("claims"));
    let ground = directory.path().join("ground");
    apply(&(case.ground)(&place, size)?, &mut Journal::create(&ground)?, &mut kernel)?;

    let (plan, path) = ((case.plan)(&place, size)?, directory.path().join("journal"));
    let (apply, applied) =
        timed(|| apply(&plan, &mut Journal::create(&path)?, &mut kernel).map_err(Failure::from));
    applied?;
    let (look, so) =
        timed(|| plan.steps.iter().all(|step| matches!(look(step, &mut kernel), Ok(StepState::So))));
    let (all, unchanged) = timed(|| {
        let (made, changes) = Made::of(&plan, &mut kernel)?;
        Ok::<_, Failure>(changes.is_empty() && made.changed(&mut kernel)?.is_none())
    });
    let (read, journal) = timed(|| Journal::open(&path));
    let mut journal = journal?;
    let (undo, outcomes) = timed(|| undo(&mut journal, &mut kernel));
    if !so || !unchanged? || !outcomes.iter().all(|(_, outcome)| *outcome == Undone::Restored) {
        return Err("the plan was not done, or not undone".into());
    }
    take_apart(&ground, &mut kernel)?;
    Ok(Figures { steps: u32::try_from(plan.steps.len())?, apply, look, all, read, undo })
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let done = work();
    (start.elapsed(), done)
}

fn take_apart(journal: &Path, kernel: &mut Kernel) -> Result<(), Failure> {
    undo(&mut Journal::open(journal)?, kernel);
    Ok(())
}

/// A wire and the tunnel device on it.
fn node(place: &Place, _: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    let wire = IfName::new("wire")?;
    let peer = VethPeer { name: IfName::new("far")?, netns: None, mtu: None, mac: None };
    let far = peer.name.clone();
    let kind = LinkKind::Veth { peer };
    plan.push(place, Step::AddLink(Link { name: wire.clone(), kind, mtu: None, mac: None }));
    for link in [wire.clone(), far] {
        plan.push(place, SetLinkUp { link });
    }
    plan.push(place, Step::AddAddress { link: wire.clone(), address: "192.0.2.1/24".parse()? });
    let local = "192.0.2.1".parse()?;
    let vxlan = LinkKind::Vxlan(Vxlan { vni: 1, parent: wire, local, port: 8472, learning: false });
    plan.push(place, Step::AddLink(Link { name: tunnel()?, kind: vxlan, mtu: None, mac: None }));
    plan.push(place, SetLinkUp { link: tunnel()? });
    Ok(plan)
}

fn tunnel() -> Result<IfName, Failure> {
    Ok(IfName::new("vxlan1")?)
}

fn peers_of(place: &Place, family: Family, peers: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for peer in 0..peers {
        let (dst, via): (IpNet, IpAddr) = match family {
            Family::Ipv4 => {
                let net = Ipv4Addr::from((10 << 24) + (peer << 8));
                (IpNet::new(net.into(), 24)?, net.into())
            }
            Family::Ipv6 => {
                let net = Ipv6Addr::from((0xfd00 << 112) + (u128::from(peer) << 64));
                (IpNet::new(net.into(), 64)?, net.into())
            }
        };
        let mac = Mac::from_id(9, peer);
        let remote = Ipv4Addr::from((198 << 24) + (18 << 16) + peer).into();
        plan.push(place, Step::AddRoute(Route { onlink: true, ..Route::via(dst, via, tunnel()?) }));
        plan.push(place, Step::AddNeighbour(Neighbour { dev: tunnel()?, ip: via, mac: Some(mac) }));
        plan.push(place, Step::AddFdb(FdbEntry { dev: tunnel()?, mac, dst: remote }));
    }
    Ok(plan)
}

fn link(number: u32) -> Result<IfName, Failure> {
    Ok(IfName::new(format!("link{number}"))?)
}

fn links(place: &Place, count: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..count {
        let (name, mac) = (link(number)?, Some(Mac::from_id(8, number)));
        plan.push(place, Step::AddLink(Link { name, kind: LinkKind::Bridge, mtu: None, mac }));
    }
    Ok(plan)
}

fn mtus(place: &Place, count: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..count {
        plan.push(place, SetLinkMtu { link: link(number)?, mtu: 1400 });
    }
    Ok(plan)
}

fn shared(place: &Place, count: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..count {
        let net = Ipv4Addr::from((10 << 24) + (number << 8));
        let route = Route::via(IpNet::new(net.into(), 24)?, net.into(), tunnel()?);
        let step = Step::AddRoute(Route { onlink: true, ..route });
        plan.push(place, Step::Share(Box::new(step)));
    }
    Ok(plan)
}

const TABLE: &str = "bench";
const MAP: &str = "ports";

/// A table with the map of published ports, as on a node of `docker`.
fn map(place: &Place, _: u32) -> Result<Plan, Failure> {
    let map = Map {
        name: MAP.to_owned(),
        key: vec![PacketField::Protocol, PacketField::Dport],
        value: vec![PacketField::Daddr, PacketField::Dport],
    };
    let table =
        Table { family: nft::Family::Ip, name: TABLE.to_owned(), maps: vec![map], chains: Vec::new() };
    let mut plan = Plan::new();
    plan.push(place, Step::AddNftTable(table));
    Ok(plan)
}

fn elements(place: &Place, count: u32) -> Result<Plan, Failure> {
    let mut plan = Plan::new();
    for number in 0..count {
        let element = Element {
            family: nft::Family::Ip,
            table: TABLE.to_owned(),
            map: MAP.to_owned(),
            key: vec![Datum::Tcp, Datum::Port(u16::try_from(number + 1)?)],
            value: vec![Datum::Address(Ipv4Addr::new(10, 0, 0, 2).into()), Datum::Port(80)],
        };
        plan.push(place, Step::AddNftElement(element));
    }
    Ok(plan)
}
