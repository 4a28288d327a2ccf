//! What a step of a plan costs, by the number of steps: apply, look and undo must not cost more for each in a long plan.
//!
//! `cargo bench -p plan`; about a minute, as root. A node in a namespace of its own gets peers, each with a route, a
//! permanent neighbour and a forwarding entry of a vxlan device. The journal lies in memory, since the time of a disk is
//! none of ours. Nothing is asserted: figures are for people; what counts is that a column stays as it is.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use linux::{FdbEntry, IfName, Link, LinkKind, Mac, Neighbour, Route, VethPeer, Vxlan};
use plan::{Journal, Kernel, Look, Made, Place, Plan, SetLinkUp, Step, Undone, apply, look, undo};
use testkit::World;

const PEERS: [u32; 3] = [100, 1_000, 10_000];
const STEPS_OF_PEER: u32 = 3;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    // Cargo runs this program among the tests as well, and then without the word.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!("microseconds for each step");
    println!(
        "{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "peers", "family", "apply", "look", "all", "read", "undo"
    );
    for family in [Family::Ipv4, Family::Ipv6] {
        for peers in PEERS {
            let Figures { apply, look, all, read, undo } = measure(family, peers)?;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / f64::from(peers * STEPS_OF_PEER);
            let [apply, look, all, read, undo] = [apply, look, all, read, undo].map(each);
            println!(
                "{peers:>8} {:>8} {apply:>8.1} {look:>8.1} {all:>8.1} {read:>8.1} {undo:>8.1}",
                format!("{family:?}")
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

/// How long a plan took.
struct Figures {
    apply: Duration,
    /// Each step by itself.
    look: Duration,
    /// All of them at once, twice, with what stands beside them.
    all: Duration,
    /// The journal from its file.
    read: Duration,
    undo: Duration,
}

fn measure(family: Family, peers: u32) -> Result<Figures, Failure> {
    let world = World::new();
    world.add("node");
    let place = world.place("node");
    let directory = tempfile::tempdir_in("/dev/shm")?;
    let mut kernel = Kernel::new()?;
    let ground = directory.path().join("ground");
    apply(&node(&place)?, &mut Journal::create(&ground)?, &mut kernel)?;

    let (plan, path) = (plan(&place, family, peers)?, directory.path().join("journal"));
    let (apply, applied) =
        timed(|| apply(&plan, &mut Journal::create(&path)?, &mut kernel).map_err(Failure::from));
    applied?;
    let (look, so) = timed(|| plan.steps.iter().all(|step| matches!(look(step, &mut kernel), Ok(Look::So))));
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
    Ok(Figures { apply, look, all, read, undo })
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
fn node(place: &Place) -> Result<Plan, Failure> {
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

fn plan(place: &Place, family: Family, peers: u32) -> Result<Plan, Failure> {
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
