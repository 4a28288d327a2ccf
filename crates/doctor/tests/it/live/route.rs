//! Routes, filters, packet sizes, capturing programs, settings and quotas.

use std::io::Write;
use std::net::UdpSocket;
use std::process::{Child, Command};

use linux::Netlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, eth, socket_with};
use testkit::{CpuQuota, require_root, skip};

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
    let Some(quota) = CpuQuota::new(5) else {
        return skip("no hierarchy of control groups has the cpu controller");
    };
    let busy = Busy::start();
    quota.take(busy.0.id());
    let line = Line::new();
    line.finds_first("HG130", "client", || sleep(1500));
    drop(busy);
}

/// A process that would use a whole CPU.
struct Busy(Child);

impl Busy {
    fn start() -> Busy {
        Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
