//! Namespaces that end with the test, packets between them, and outside programs as judges.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use linux::features::{Feature, probe};
use linux::{IfName, Link, LinkKind, Netlink, Netns, NetnsName, VethPeer, netns};

/// Longer than any step takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Whether this kernel lacks a feature. If so, the skip is recorded.
pub(crate) fn is_missing(feature: Feature) -> bool {
    let missing = probe().expect("root can probe").missing.remove(&feature);
    if let Some(why) = &missing {
        testkit::skip(&format!("{feature} not available: {why}"));
    }
    missing.is_some()
}

/// A namespace and a netlink socket in it. The name is removed after the test, whatever its result.
pub(crate) struct TestNetns {
    pub(crate) name: NetnsName,
    pub(crate) netns: Netns,
    pub(crate) netlink: Netlink,
}

impl TestNetns {
    pub(crate) fn new(label: &str) -> TestNetns {
        let name = unused_name(label);
        let netns = Netns::create(&name).expect("a new namespace can be made");
        let netlink = Netlink::open_in(&netns).expect("a socket can be opened there");
        TestNetns { name, netns, netlink }
    }

    /// Makes a veth pair from here to another namespace. Both ends are up and have an address.
    pub(crate) fn wire(&self, there: &TestNetns, name: &str, here_address: &str, there_address: &str) {
        let peer =
            VethPeer { name: ifname(name), netns: Some(there.name.clone().into()), mtu: None, mac: None };
        self.add(name, LinkKind::Veth { peer });
        self.up(name, &[here_address]);
        there.up(name, &[there_address]);
    }

    pub(crate) fn add(&self, name: &str, kind: LinkKind) -> u32 {
        self.netlink.link_add(&link(name, kind)).expect("the link can be made");
        self.index(name)
    }

    pub(crate) fn up(&self, name: &str, addresses: &[&str]) {
        let index = self.index(name);
        for address in addresses {
            let address = address.parse().expect("a valid address");
            self.netlink.address_add(index, &address).expect("the address can be added");
        }
        self.netlink.link_set_up(index, true).expect("the link comes up");
    }

    pub(crate) fn index(&self, name: &str) -> u32 {
        self.netlink.index_of(&ifname(name)).expect("the link is there")
    }

    /// The output of an outside program in this namespace.
    pub(crate) fn judge(&self, program: &str, args: &[&str]) -> String {
        testkit::run(&self.netns, program, args)
    }
}

impl Drop for TestNetns {
    fn drop(&mut self) {
        if netns::exists(&self.name) {
            let deleted = netns::delete(&self.name);
            // A second panic would end the process, and with it the verdicts of its other tests.
            assert!(deleted.is_ok() || std::thread::panicking(), "{deleted:?}");
        }
    }
}

pub(crate) fn unused_name(label: &str) -> NetnsName {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    NetnsName::new(format!("hgt-{}-{next}-{label}", std::process::id())).expect("a valid name")
}

pub(crate) fn ifname(name: &str) -> IfName {
    IfName::new(name).expect("a valid name")
}

pub(crate) fn link(name: &str, kind: LinkKind) -> Link {
    Link { name: ifname(name), kind, mtu: None, mac: None }
}

/// Sends a megabyte by TCP to the address in the other place, which echoes it. Returns whether it came back
/// unchanged. Several segments go out at a time, so offloads are used.
pub(crate) fn talk(client: &TestNetns, server: &TestNetns, address: &str) -> bool {
    let ip: IpAddr = address.parse().expect("a valid address");
    let listener = server.netns.run(|| TcpListener::bind(SocketAddr::new(ip, 0)));
    let listener = listener.expect("the namespace is there").expect("the server has the address");
    let server_address = listener.local_addr().expect("a bound socket has an address");
    let echo = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        stream.write_all(&bytes)
    });
    let sent: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[(n % 4) as usize]).collect();
    let connect = || TcpStream::connect_timeout(&server_address, PATIENCE);
    let Ok(mut stream) = client.netns.run(connect).expect("the namespace is there") else { return false };
    let came_back = (|| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(&sent)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        std::io::Result::Ok(bytes)
    })();
    echo.join().expect("the echo does not panic").is_ok() && came_back.is_ok_and(|bytes| bytes == sent)
}

/// A UDP socket on the place's loopback.
pub(crate) fn udp(place: &TestNetns) -> UdpSocket {
    let bind = || UdpSocket::bind("127.0.0.1:0");
    place.netns.run(bind).expect("the namespace is there").expect("loopback has its address")
}

/// Waits until the condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes whose parent is `pid`.
pub(crate) fn children_of(pid: u32) -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc can be listed");
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let wanted = format!("PPid:\t{pid}");
    let is_child = |child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/status"))
            .is_ok_and(|status| status.lines().any(|line| line == wanted))
    };
    pids.filter(is_child).collect()
}

pub(crate) fn is_alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
