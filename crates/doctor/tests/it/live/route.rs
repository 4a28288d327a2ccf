//! Routes, filters, packet sizes, capturing programs, settings and quotas.

use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use linux::Netlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use testkit::{require_root, skip};

use super::{
    Line, SERVER, check_first, check_known, connect, counter, ifname, listen, set, sleep, wait_until,
};

#[test]
fn packets_without_a_route_are_found() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let diagnosis = line.watch("client", || {
        let socket = line.client.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        (0..100).for_each(|_| assert!(socket.send_to(b"x", "203.0.113.9:9").is_err()));
    });
    check_first(&diagnosis, "HG055");
}

#[test]
fn packets_that_come_by_the_wrong_link_are_dropped() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    set(&line.server, "net/ipv4/conf/all/rp_filter", "1");
    let netlink = Netlink::open_in(&line.client).unwrap();
    let lo = netlink.index_of(&ifname("lo")).unwrap();
    netlink.address_add(lo, &"10.99.0.1/32".parse().unwrap()).unwrap();
    let server = line.server.run(|| UdpSocket::bind((SERVER, 0))).unwrap().unwrap();
    let address = server.local_addr().unwrap();
    // The ends must know each other's Ethernet address first: the server would not answer a neighbour request
    // from that address.
    let (_listener, tcp) = listen(&line);
    drop(connect(&line, tcp));
    let dropped = || counter(&line.server, "TcpExtIPReversePathFilter");
    let before = dropped();
    let diagnosis = line.watch("server", || {
        let client = line.client.run(|| UdpSocket::bind("10.99.0.1:0")).unwrap().unwrap();
        wait_until(|| {
            (0..100).for_each(|_| drop(client.send_to(b"x", address)));
            dropped() >= before + 100
        });
    });
    check_first(&diagnosis, "HG054");
}

#[test]
fn a_black_hole_for_large_packets_is_named() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    line.narrow("s", 1400);
    let (listener, address) = listen(&line);
    let mut stream = connect(&line, address);
    let accepted = listener.accept().unwrap();
    let timeouts = || counter(&line.client, "TcpExtTCPTimeouts");
    let before = timeouts();
    let diagnosis = line.watch("client", || {
        stream.write_all(&[7; 20_000]).unwrap();
        // After 200, 400 and 800 ms if the machine is not busy; after many times that if a first answer was late, since
        // TCP waits by the times that answers take.
        wait_until(|| timeouts() >= before + 3);
    });
    check_first(&diagnosis, "HG101");
    drop(accepted);
}

#[test]
fn a_packet_socket_is_known() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    let tap = line.client.run(|| {
        socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, Some(eth::ALL)).unwrap()
    });
    check_known(&line.watch("client", || ()), "HG047");
    drop(tap);
}

#[test]
fn settings_without_effect_are_known() {
    if !require_root() {
        return;
    }
    let line = Line::new();
    set(&line.client, "net/ipv4/tcp_fack", "1");
    check_known(&line.watch("client", || ()), "HG120");
    check_known(&line.watch("server", || ()), "HG143");
}

#[test]
fn a_throttled_group_is_named() {
    if !require_root() {
        return;
    }
    let Some(group) = Group::with_quota() else {
        return skip("no hierarchy of control groups has the cpu controller");
    };
    let line = Line::new();
    line.finds_first("HG130", "client", || sleep(1500));
    drop(group);
}

/// A control group with a quota of a twentieth of a CPU, and a process in it that would use a whole CPU.
struct Group {
    path: PathBuf,
    process: Child,
}

impl Group {
    fn with_quota() -> Option<Group> {
        let name = format!("hgt-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
            || Path::new("/sys/fs/cgroup/cpu/release_agent").exists();
        let (root, files) = if first {
            ("/sys/fs/cgroup/cpu", vec![("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "5000")])
        } else {
            ("/sys/fs/cgroup", vec![("cpu.max", "5000 100000")])
        };
        if !first {
            let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+cpu");
        }
        let path = Path::new(root).join(name);
        fs::create_dir(&path).ok()?;
        let process = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let group = Group { path, process };
        for (file, value) in files {
            fs::write(group.path.join(file), value).ok()?;
        }
        fs::write(group.path.join("cgroup.procs"), group.process.id().to_string()).unwrap();
        Some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // A group can be removed only a moment after its last process has ended.
        for _ in 0..100 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            sleep(20);
        }
    }
}
