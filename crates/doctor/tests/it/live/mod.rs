//! Faults planted in namespaces of a running kernel, with real packets. Faults in resources that the whole
//! machine shares are planted only in a virtual machine.

mod card;
mod machine;
mod narrow;
mod opening;
mod reading;
mod rhythm;
mod route;
mod wan;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doctor::{Diagnosis, ExaminedNetns, Finding, Severity, Window, diagnose};
use linux::procfs::Procfs;
use linux::sock_diag::{TcpInfo, TcpSocket, states, tcp_sockets};
use linux::sysctl::{self, Key};
use linux::{IfName, Link, LinkKind, Netlink, Netns, Qdisc, VethPeer};
use testkit::World;

/// Client and server with a bridge between them, each in its own namespace.
pub(crate) struct Line {
    pub(crate) world: World,
    pub(crate) client: Netns,
    pub(crate) server: Netns,
    middle: Netlink,
}

pub(crate) const CLIENT: &str = "10.77.0.1";
pub(crate) const SERVER: &str = "10.77.0.2";

impl Line {
    pub(crate) fn new() -> Line {
        let world = World::new();
        let [client, server, middle] = ["client", "server", "middle"].map(|name| world.add(name));
        let between = Netlink::open_in(&middle).unwrap();
        between.link_add(&link("br0", LinkKind::Bridge)).unwrap();
        let bridge = between.index_of(&ifname("br0")).unwrap();
        for (netns, port, address) in [(&client, "c", CLIENT), (&server, "s", SERVER)] {
            let netlink = Netlink::open_in(netns).unwrap();
            let peer = VethPeer {
                name: ifname(port),
                netns: Some(world.name("middle").into()),
                mtu: None,
                mac: None,
            };
            netlink.link_add(&link("eth0", LinkKind::Veth { peer })).unwrap();
            let index = netlink.index_of(&ifname("eth0")).unwrap();
            netlink.address_add(index, &format!("{address}/24").parse().unwrap()).unwrap();
            // Packet sizes as on a physical network: a bridge forwards larger packets whatever its MTU.
            netlink.link_set_gso_max_segs(index, 1).unwrap();
            netlink.link_set_up(index, true).unwrap();
            let port = between.index_of(&ifname(port)).unwrap();
            between.link_set_master(port, Some(bridge)).unwrap();
            between.link_set_up(port, true).unwrap();
        }
        between.link_set_up(bridge, true).unwrap();
        let line = Line { world, client, server, middle: between };
        // A bridge starts to forward some time after its ports are up. A connection that loses its first
        // packet meanwhile has timeouts of seconds.
        let (listener, address) = listen(&line);
        drop((connect(&line, address), listener.accept().unwrap()));
        line
    }

    /// Sets the qdisc of the bridge's port towards `s` (the server) or `c` (the client). It applies to
    /// packets that leave by that port.
    pub(crate) fn shape(&self, port: &str, qdisc: &Qdisc) {
        let index = self.middle.index_of(&ifname(port)).unwrap();
        self.middle.set_root_qdisc(index, qdisc).unwrap();
    }

    /// Sets the MTU of the bridge's port.
    pub(crate) fn narrow(&self, port: &str, mtu: u32) {
        let index = self.middle.index_of(&ifname(port)).unwrap();
        self.middle.link_set_mtu(index, mtu).unwrap();
    }

    /// Takes a snapshot of a namespace before and after `during`.
    pub(crate) fn watch<T>(&self, name: &str, during: impl FnOnce() -> T) -> Diagnosis {
        let examined = ExaminedNetns::netns(&self.world.name(name)).unwrap();
        let (before, _) = examined.look().unwrap();
        let kept = during();
        let (after, _) = examined.look().unwrap();
        drop(kept);
        diagnose(&Window { before: &before, after: &after })
    }

    /// Checks that the planted cause is the first warning about the namespace, in one of several windows.
    #[track_caller]
    pub(crate) fn finds_first<T>(&self, code: &str, name: &str, mut during: impl FnMut() -> T) -> Diagnosis {
        repeat(|diagnosis| is_first(diagnosis, code), || self.watch(name, &mut during))
    }

    /// Checks that there is no warning about the namespace in one of several windows.
    #[track_caller]
    pub(crate) fn falls_quiet<T>(&self, name: &str, mut during: impl FnMut() -> T) -> Diagnosis {
        repeat(is_quiet, || self.watch(name, &mut during))
    }
}

/// Repeats a window for up to two minutes until its diagnosis is as expected.
///
/// Tests use this when the machine's own stalls can hide the planted cause, or cause what the diagnosis truly
/// reports as another: a stalled machine's round trips are long, and its timers expire early.
#[track_caller]
fn repeat(judge: impl Fn(&Diagnosis) -> Verdict, mut window: impl FnMut() -> Diagnosis) -> Diagnosis {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let diagnosis = window();
        match judge(&diagnosis) {
            Ok(()) => return diagnosis,
            Err(error) if Instant::now() > deadline => panic!("{error}"),
            Err(_) => {}
        }
    }
}

/// What a diagnosis has that it should not have, or lacks.
type Verdict = Result<(), String>;

/// Findings about the whole machine, which other programs use too, by the beginning of their codes.
const SHARED: [&str; 5] = ["HG00", "HG01", "HG020", "HG056", "HG13"];

/// Checks that the planted cause is the first warning about this namespace.
#[track_caller]
pub(crate) fn check_first(diagnosis: &Diagnosis, code: &str) {
    is_first(diagnosis, code).unwrap_or_else(|error| panic!("{error}"));
}

fn is_first(diagnosis: &Diagnosis, code: &str) -> Verdict {
    let mut warnings = diagnosis.findings.iter().filter(|finding| finding.is_warning());
    match warnings.find(|finding| finding.check.code == code || !is_shared(finding)) {
        Some(first) if first.check.code == code => Ok(()),
        Some(first) => Err(format!("{} is before {code}: {}", first.check.code, all_findings(diagnosis))),
        None => Err(format!("{code} is not found: {}", all_findings(diagnosis))),
    }
}

/// As [`is_first`], and before the findings about the whole machine too.
fn is_foremost(diagnosis: &Diagnosis, code: &str) -> Verdict {
    is_first(diagnosis, code)?;
    let foremost = &diagnosis.findings[0];
    if foremost.check.code == code { Ok(()) } else { Err(format!("{foremost:#?} is before {code}")) }
}

/// Checks that the finding is information, and that there is no warning.
#[track_caller]
pub(crate) fn check_known(diagnosis: &Diagnosis, code: &str) {
    let finding = diagnosis.findings.iter().find(|finding| finding.check.code == code);
    let finding = finding.unwrap_or_else(|| panic!("{code} is not found: {}", all_findings(diagnosis)));
    assert_eq!(finding.seen.severity, Severity::Information, "{:#?}", finding.seen);
    check_quiet(diagnosis);
}

/// Checks that there is no warning about this namespace.
#[track_caller]
pub(crate) fn check_quiet(diagnosis: &Diagnosis) {
    is_quiet(diagnosis).unwrap_or_else(|error| panic!("{error}"));
}

fn is_quiet(diagnosis: &Diagnosis) -> Verdict {
    let warning = diagnosis.findings.iter().find(|finding| finding.is_warning() && !is_shared(finding));
    match warning {
        Some(warning) => Err(format!("{} is a false alarm: {}", warning.check.code, all_findings(diagnosis))),
        None => Ok(()),
    }
}

/// True for a finding about the whole machine.
fn is_shared(finding: &Finding) -> bool {
    SHARED.iter().any(|start| finding.check.code.starts_with(start))
}

fn all_findings(diagnosis: &Diagnosis) -> String {
    let findings = diagnosis.findings.iter();
    let lines = findings.map(|finding| format!("\n{} {:?}", finding.check.code, finding.seen));
    lines.collect::<String>() + &format!("\nunseen: {:?}", diagnosis.unseen)
}

pub(crate) fn set(netns: &Netns, key: &str, value: &str) {
    netns.run(|| sysctl::write(&Key::new(key).unwrap(), value)).unwrap().unwrap();
}

pub(crate) fn ifname(name: &str) -> IfName {
    IfName::new(name).unwrap()
}

fn link(name: &str, kind: LinkKind) -> Link {
    Link { name: ifname(name), kind, mtu: None, mac: None }
}

/// A counter of a namespace by its name in nstat.
pub(crate) fn counter(netns: &Netns, name: &str) -> u64 {
    netns.run(|| Procfs::kernel().counters().unwrap().get(name)).unwrap()
}

pub(crate) fn connections(netns: &Netns) -> Vec<TcpSocket> {
    netns.run(|| tcp_sockets(states::ESTABLISHED)).unwrap().unwrap()
}

/// Waits until the condition holds, for longer than any machine takes.
#[track_caller]
pub(crate) fn wait_until(mut is_so: impl FnMut() -> bool) {
    let patience = Duration::from_secs(120);
    let deadline = Instant::now() + patience;
    while !is_so() {
        assert!(Instant::now() < deadline, "the condition does not hold after {patience:?}");
        sleep(20);
    }
}

/// Waits until one of a namespace's connections is so.
#[track_caller]
pub(crate) fn await_one(netns: &Netns, is_so: impl Fn(&TcpInfo) -> bool) {
    wait_until(|| connections(netns).iter().filter_map(|socket| socket.tcp.as_ref()).any(&is_so));
}

/// A listener on the server.
pub(crate) fn listen(line: &Line) -> (TcpListener, SocketAddr) {
    let listener = line.server.run(|| TcpListener::bind((SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A connection from the client.
pub(crate) fn connect(line: &Line, address: SocketAddr) -> TcpStream {
    line.client.run(|| TcpStream::connect(address)).unwrap().unwrap()
}

/// Work in a thread until this is dropped.
pub(crate) struct Busy {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    /// Repeats `step` until it returns false.
    pub(crate) fn with(mut step: impl FnMut() -> bool + Send + 'static) -> Busy {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = move || while !stopped.load(Ordering::Relaxed) && step() {};
        Busy { stop, thread: Some(std::thread::spawn(work)) }
    }

    /// Reads a block at a time, with a pause before each. Does not wait for what is still in flight at the
    /// end: over a path with high loss, that may take minutes to arrive.
    pub(crate) fn reading(mut stream: TcpStream, bytes: usize, every_ms: u64) -> Busy {
        stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut block = vec![0; bytes];
        Busy::with(move || {
            sleep(every_ms);
            match stream.read(&mut block) {
                Ok(bytes) => bytes > 0,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        })
    }

    /// Sends as fast as the connection allows.
    pub(crate) fn sending(mut stream: TcpStream) -> Busy {
        // The timeout lets the thread notice the request to stop.
        stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let block = vec![7; 65_536];
        Busy::with(move || {
            let sent = stream.write(&block);
            sent.is_ok_and(|bytes| bytes > 0) || !is_over(&stream)
        })
    }
}

fn is_over(stream: &TcpStream) -> bool {
    stream.take_error().is_ok_and(|error| error.is_some())
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is joined once");
        // If the thread panicked, the test's own assertions fail.
        let _ = thread.join();
    }
}

/// Lets time pass where time itself is the subject: the length of a window, the pace of a sender, an idle connection.
/// What is to happen first is waited for ([`wait_until`], [`await_one`]).
pub(crate) fn sleep(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
