//! An agent with many peers: how long until all ways are made, until the next agent has taken them over and until a
//! deleted route is back, and what it costs to keep them.
//!
//! `cargo bench -p agent`; some minutes, as root. The node is a namespace with leases in a file and a VXLAN tunnel;
//! another one answers for the peers' addresses, as nodes that are well do. All files lie in memory. The agent is a
//! process of its own, this program in another role; the times begin with its start. Nothing is asserted: the
//! figures are for readers.
//!
//! The least that the ways can cost is what the kernel takes for the same number of routes, neighbours and forwarding
//! entries: `floor`, measured right before. It has no journal, reads no leases and looks at nothing. Where two times
//! are shown, the second one is that on a CPU, which says more on a busy machine; `of floor` compares those.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use agent::Settings;
use agent::cloud::{CloudSettings, Login};
use agent::source::file::FileSource;
use agent::status::Status;
use ipnet::{IpNet, Ipv4Net};
use linux::netlink::Netlink;
use linux::{FdbEntry, IfName, Link, LinkKind, Mac, Neighbour, Netns, Route, Vxlan};
use node::Home;
use testkit::{World, shell};

type Failure = Box<dyn Error>;

const SIZES: [u32; 3] = [100, 1_000, 10_000];
/// So long nothing happens: as long as the agent waits before it asks again what the ways carry.
const IDLE: Duration = Duration::from_secs(60);
const REPAIRS: usize = 9;
/// The argument that makes this program the agent, with the directory of the node's files.
const ROLE: &str = "--agent";
const NETWORK: &str = "pods";

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, directory] = &arguments[..]
        && role == ROLE
    {
        return be_agent(Path::new(directory));
    }
    // Cargo runs this program with the tests too, and then without this argument.
    if !arguments.iter().any(|argument| argument == "--bench") {
        return Ok(());
    }
    println!(
        "   peers        floor, CPU         made, CPU  of floor   taken over, CPU  repaired    memory     idle"
    );
    for size in SIZES {
        let Figures { floor, made, taken_over, repaired, resident_mb, busy } = measure(size)?;
        let ratio = made.cpu.as_secs_f64() / floor.cpu.as_secs_f64();
        println!(
            "{size:>8} {} {} {ratio:>8.1} {} {:>6.1} ms {resident_mb:>6.1} MB {:>7.3}%",
            floor.shown(),
            made.shown(),
            taken_over.shown(),
            repaired.as_secs_f64() * 1e3,
            busy * 100.0
        );
    }
    Ok(())
}

struct Figures {
    floor: Took,
    made: Took,
    taken_over: Took,
    /// The median.
    repaired: Duration,
    /// Of the second agent, before it is idle.
    resident_mb: f64,
    /// The share of a CPU that it takes while nothing happens.
    busy: f64,
}

/// How long something took, and for how long a CPU worked for it.
struct Took {
    wall: Duration,
    cpu: Duration,
}

impl Took {
    fn shown(&self) -> String {
        format!("{:>7.0}, {:>5.0} ms", self.wall.as_secs_f64() * 1e3, self.cpu.as_secs_f64() * 1e3)
    }
}

fn measure(size: u32) -> Result<Figures, Failure> {
    let world = World::new();
    let (node, plain) = (world.add("node"), world.add("plain"));
    world.add("far");
    let name = |short: &str| world.name(short);
    for near in ["node", "plain"] {
        shell(&format!(
            "ip -n {0} link add wire type veth peer name wire-{near} netns {1}
             ip -n {0} address add 192.0.2.1/24 dev wire; ip -n {0} link set wire up; ip -n {0} link set lo up",
            name(near),
            name("far")
        ));
    }
    shell(&format!(
        "ip -n {1} address add 192.0.2.2/24 dev wire-node; ip -n {1} link set wire-node up
         ip -n {1} link set lo up; ip -n {1} route add local 198.18.0.0/15 dev lo
         ip -n {0} route add 198.18.0.0/15 via 192.0.2.2",
        name("node"),
        name("far")
    ));
    let floor = make_plainly(&Netlink::open_in(&plain)?, size)?;

    let directory = tempfile::tempdir_in("/dev/shm")?;
    std::fs::write(directory.path().join("nodes.toml"), leases(size)?)?;
    let (first, made) = Agent::start(&node, directory.path())?;
    drop(first);
    let (second, taken_over) = Agent::start(&node, directory.path())?;
    second.await_all_known(directory.path(), size)?;
    let netlink = Netlink::open_in(&node)?;
    let mut repairs = Vec::new();
    for turn in 0..REPAIRS {
        repairs.push(repair(&netlink, u32::try_from(turn)? * (size / 10))?);
        // What comes with a change is gathered, and after many in a row the agent waits.
        sleep(Duration::from_secs(1));
    }
    repairs.sort();
    let resident_mb = second.resident_mb()?;
    let (begun, before) = (Instant::now(), second.cpu_time()?);
    sleep(IDLE);
    let busy = (second.cpu_time()? - before).as_secs_f64() / begun.elapsed().as_secs_f64();
    Ok(Figures { floor, made, taken_over, repaired: repairs[REPAIRS / 2], resident_mb, busy })
}

/// The prefix of a peer's pods.
fn pods(number: u32) -> Result<Ipv4Net, Failure> {
    Ok(Ipv4Net::new(Ipv4Addr::from((10 << 24) + ((number + 1) << 8)), 24)?)
}

/// Its address at the wire.
fn public(number: u32) -> Ipv4Addr {
    Ipv4Addr::from((198 << 24) + (18 << 16) + number + 1)
}

fn leases(size: u32) -> Result<String, Failure> {
    let mut text = "[network]\nNetwork = \"10.0.0.0/8\"\nBackend = { Type = \"vxlan\" }\n\
                    [[node]]\nname = \"own\"\npublic = [\"192.0.2.1\"]\npods = [\"10.255.0.0/24\"]\n"
        .to_owned();
    for number in 0..size {
        let (public, pods) = (public(number), pods(number)?);
        writeln!(text, "[[node]]\nname = \"n{number}\"\npublic = [\"{public}\"]\npods = [\"{pods}\"]")?;
    }
    Ok(text)
}

/// What a VXLAN tunnel to so many peers takes, one request for each thing.
fn make_plainly(netlink: &Netlink, size: u32) -> Result<Took, Failure> {
    let (wire, dev) = (IfName::new("wire")?, IfName::new("tunnel")?);
    let local = Ipv4Addr::new(192, 0, 2, 1).into();
    let kind = LinkKind::Vxlan(Vxlan { vni: 1, parent: wire, local, port: 8472, learning: false });
    netlink.link_add(&Link { name: dev.clone(), kind, mtu: None, mac: None })?;
    let index = netlink.link(&dev)?.ok_or("the tunnel is not there")?.index;
    netlink.link_set_up(index, true)?;
    let (begun, before) = (Instant::now(), cpu_time_of("self")?);
    for number in 0..size {
        let (pods, mac, dst) = (pods(number)?, Mac::from_id(9, number), public(number).into());
        let via: IpAddr = pods.network().into();
        netlink.neighbour_add(&Neighbour { dev: dev.clone(), ip: via, mac: Some(mac) })?;
        netlink.fdb_add(&FdbEntry { dev: dev.clone(), mac, dst })?;
        netlink.route_add(&Route { onlink: true, ..Route::via(pods.into(), via, dev.clone()) })?;
    }
    Ok(Took { wall: begun.elapsed(), cpu: cpu_time_of("self")? - before })
}

/// Deletes the route to a peer's pods, and waits until it is back.
fn repair(netlink: &Netlink, number: u32) -> Result<Duration, Failure> {
    let pods: IpNet = pods(number)?.into();
    let found = netlink.routes()?.into_iter().find(|route| route.dst == pods).ok_or("a route is missing")?;
    let index = found.next_hops.first().and_then(|hop| hop.index).ok_or("a route has no link")?;
    let dev = netlink.link_at(index)?.ok_or("a route has no link")?.name;
    netlink.route_del(&Route { onlink: true, ..Route::via(pods, pods.network(), dev) })?;
    let begun = Instant::now();
    while netlink.route_to(pods.addr())?.is_none_or(|route| route.dst != pods) {
        sleep(Duration::from_micros(200));
    }
    Ok(begun.elapsed())
}

/// An agent in a process of its own, which is killed when this is dropped.
struct Agent(Child);

impl Agent {
    /// Starts one, and waits until the node is in the network; how long that took.
    fn start(node: &Netns, directory: &Path) -> Result<(Agent, Took), Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(ROLE).arg(directory).stdout(Stdio::piped());
        let begun = Instant::now();
        let mut agent = Agent(node.run(|| command.spawn())??);
        let mut line = String::new();
        BufReader::new(agent.0.stdout.take().ok_or("it has no output")?).read_line(&mut line)?;
        if line.is_empty() {
            return Err("the agent has ended".into());
        }
        let took = Took { wall: begun.elapsed(), cpu: agent.cpu_time()? };
        Ok((agent, took))
    }

    /// Waits until it has found out what each way carries, and checks that each is there.
    fn await_all_known(&self, directory: &Path, size: u32) -> Result<(), Failure> {
        let path = Status::path(&directory.join("status"), NETWORK);
        loop {
            let status = Status::read(&path)?;
            let known = status.peers.values().filter(|peer| peer.path_mtu.is_some()).count();
            if status.pid != self.0.id() || known < usize::try_from(size)? {
                sleep(Duration::from_millis(100));
                continue;
            }
            let unreached = status.peers.values().find_map(|peer| peer.why_not.as_ref());
            return match (unreached, status.repairs_total) {
                (None, 0) => Ok(()),
                (Some(why), _) => Err(format!("a peer is not reached: {why}").into()),
                (None, _) => Err("what the first agent made was not as the second expects it".into()),
            };
        }
    }

    fn resident_mb(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("it has no memory")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
    }

    fn cpu_time(&self) -> Result<Duration, Failure> {
        cpu_time_of(&self.0.id().to_string())
    }
}

/// The time that a process was on a CPU, with all its threads.
fn cpu_time_of(process: &str) -> Result<Duration, Failure> {
    let mut total = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        total += Duration::from_nanos(text.split(' ').next().ok_or("schedstat is empty")?.parse()?);
    }
    Ok(total)
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Keeps the node as its leases say until it is killed, and prints a line when the node is in the network.
fn be_agent(directory: &Path) -> Result<(), Failure> {
    let settings = Settings {
        network: NETWORK.to_owned(),
        wire: Some(IfName::new("wire")?),
        attach: "ptp".to_owned(),
        masquerade: false,
        runtime: None,
        installs_cli: false,
        subnet_env: directory.join("subnet.env"),
        status: directory.join("status"),
        listen: Vec::new(),
        path_mtu_period: Duration::from_secs(60),
        tests_offload: true,
        services: None,
        keys: directory.join("keys"),
        cloud: CloudSettings {
            record: directory.join("cloud"),
            period: Duration::from_secs(60),
            routes_max: 500,
            login: Login::default(),
        },
        waits: false,
        version: String::new(),
    };
    let source = FileSource { path: directory.join("nodes.toml"), node: "own".to_owned() };
    let home = Home::at(directory.join("run"), directory.join("leases"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let run = agent::run(settings, home, source, || println!("ready"), std::future::pending());
    Ok(runtime.block_on(run)?)
}
