//! RDMA devices of software: made, listed, seen from other namespaces, and taken away.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use std::sync::Arc;
use std::time::Instant;

use linux::netlink::{RdmaDevices, RdmaNetnsMode};
use linux::rdma::{VerbsConnection, VerbsDevice, VerbsWait};
use linux::{Netns, RdmaLink, RdmaName};
use rustix::event::{PollFd, PollFlags, poll};
use testkit::has_software_roce;

use crate::world::{PATIENCE, TestNetns, ifname};

fn device(name: &str, link: &str) -> RdmaLink {
    RdmaLink { name: RdmaName::new(name).unwrap(), link: ifname(link) }
}

#[test]
fn a_device_is_made_and_listed_and_goes_with_its_link() {
    if !has_software_roce() {
        return;
    }
    let (here, there) = (TestNetns::new("rdma-a"), TestNetns::new("rdma-b"));
    here.wire(&there, "hgr0", "192.0.2.1/24", "192.0.2.2/24");
    let devices = RdmaDevices::open_in(&here.netns).unwrap();
    let wanted = device("hgrxe0", "hgr0");
    assert_eq!(devices.find(&wanted.name).unwrap(), None);
    devices.add(&wanted).unwrap();
    let found = devices.find(&wanted.name).unwrap().unwrap();
    assert_eq!(devices.link_of(&found).unwrap(), Some(here.index("hgr0")));
    let shown = here.judge("rdma", &["link", "show", "hgrxe0/1"]);
    assert!(shown.contains("state ACTIVE") && shown.contains("netdev hgr0"), "{shown}");

    // All namespaces see it in shared mode, and its link from its own alone.
    assert_eq!(devices.mode().unwrap(), RdmaNetnsMode::Shared);
    let from_there = RdmaDevices::open_in(&there.netns).unwrap();
    assert_eq!(from_there.find(&wanted.name).unwrap(), Some(found.clone()));
    assert_eq!(from_there.link_of(&found).unwrap(), None);
    assert_eq!(devices.add(&wanted).unwrap_err().errno(), Some(libc::EEXIST));
    let refused = devices.move_to(&found, &there.netns).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::EOPNOTSUPP), "{refused}");
    let busy = devices.set_mode(RdmaNetnsMode::Exclusive).unwrap_err();
    assert_eq!(busy.errno(), Some(libc::EBUSY), "{busy}");

    devices.remove(&found).unwrap();
    assert_eq!(devices.list().unwrap(), []);
    devices.add(&wanted).unwrap();
    here.netlink.link_del(here.index("hgr0")).unwrap();
    while !devices.list().unwrap().is_empty() {
        std::thread::yield_now();
    }
    // Its name may be taken a little longer.
    here.wire(&there, "hgr0", "192.0.2.1/24", "192.0.2.2/24");
    devices.add(&wanted).unwrap();
    // Names are the machine's.
    here.wire(&there, "hgr2", "192.0.2.5/24", "192.0.2.6/24");
    let taken = devices.add(&device("hgrxe0", "hgr2")).unwrap_err();
    assert_eq!(taken.errno(), Some(libc::EEXIST), "{taken}");
    let no_link = devices.add(&device("hgrxe1", "hgr9")).unwrap_err();
    assert!(no_link.to_string().starts_with("make RDMA device hgrxe1 in "), "{no_link}");
}

#[test]
fn a_kernel_without_rdma_says_so() {
    if !testkit::require_root() {
        return;
    }
    match RdmaDevices::open_in(&Netns::current().unwrap()) {
        Ok(_) => testkit::skip("this kernel has RDMA"),
        Err(error) => assert_eq!(error.errno(), Some(libc::EPROTONOSUPPORT), "{error}"),
    }
}

/// A wire in the machine's own namespace, with a device of software RoCE at each end: Linux 6.12 receives
/// their packets there alone.
struct RdmaWire;

impl RdmaWire {
    fn new() -> RdmaWire {
        testkit::shell(
            "ip link add hgr0 address 02:00:00:00:00:01 type veth peer name hgr1 address 02:00:00:00:00:02
for end in 0 1; do
    echo 1 >/proc/sys/net/ipv4/conf/hgr$end/accept_local
    echo 0 >/proc/sys/net/ipv4/conf/hgr$end/rp_filter
    ip address add 198.18.0.$((end + 1))/32 dev hgr$end
    ip link set hgr$end up
    ip route add 198.18.0.$((2 - end))/32 dev hgr$end src 198.18.0.$((end + 1))
    ip neighbour add 198.18.0.$((2 - end)) lladdr 02:00:00:00:00:0$((2 - end)) dev hgr$end
    rdma link add hgrxe$end type rxe netdev hgr$end
done",
        );
        RdmaWire
    }

    fn device(&self, end: u8) -> Arc<VerbsDevice> {
        VerbsDevice::open(&RdmaName::new(format!("hgrxe{end}")).unwrap()).unwrap()
    }

    /// Two ends that are connected.
    fn connections(&self, message_bytes: u32, wait: VerbsWait) -> [VerbsConnection; 2] {
        let mut ends =
            [0, 1].map(|end| VerbsConnection::new(&self.device(end), message_bytes, wait).unwrap());
        let addresses = ends.each_ref().map(VerbsConnection::address);
        ends[0].connect(&addresses[1]).unwrap();
        ends[1].connect(&addresses[0]).unwrap();
        ends
    }
}

impl Drop for RdmaWire {
    fn drop(&mut self) {
        testkit::shell("ip link delete hgr0; while [ -n \"$(rdma link show)\" ]; do sleep 0.01; done");
    }
}

/// The next message, as a thread waits for it.
fn next(end: &mut VerbsConnection, buffer: &mut [u8]) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(bytes) = end.receive(buffer).unwrap() {
            return bytes;
        }
        assert!(Instant::now() < deadline, "no message comes");
        if !end.polls() {
            let timeout = rustix::time::Timespec { tv_sec: 20, tv_nsec: 0 };
            poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&timeout)).unwrap();
        }
    }
}

#[test]
fn messages_go_there_and_back_over_the_wire() {
    if !has_software_roce() {
        return;
    }
    let wire = RdmaWire::new();
    let counted = || {
        let text = std::fs::read_to_string("/sys/class/net/hgr0/statistics/rx_packets").unwrap();
        text.trim().parse::<u64>().unwrap()
    };
    for wait in [VerbsWait::Events, VerbsWait::Polling] {
        let before = counted();
        let [mut client, mut server] = wire.connections(65_536, wait);
        let mut buffer = vec![0; 65_536];
        for (round, size) in [64, 1, 4096, 65_536, 64, 64, 64, 64, 64, 64].into_iter().enumerate() {
            let message = testkit::noise(round as u64, size);
            assert_eq!(client.send(&message).unwrap(), size);
            let bytes = next(&mut server, &mut buffer);
            assert_eq!(buffer[..bytes], message);
            assert_eq!(server.send(&buffer[..bytes]).unwrap(), size);
            buffer.fill(0);
            let bytes = next(&mut client, &mut buffer);
            assert_eq!(buffer[..bytes], message);
        }
        assert!(counted() >= before + 20, "answers and acknowledgements come over the wire");
        // A sender whose peer is gone learns of it when it sends, since nothing acknowledges.
        drop(server);
        client.send(&[1]).unwrap();
        let deadline = Instant::now() + PATIENCE;
        let why = loop {
            match client.send(&[1]) {
                Ok(_) => assert!(Instant::now() < deadline),
                Err(why) => break why,
            }
        };
        assert!([Some(libc::ETIMEDOUT), Some(libc::ECONNRESET)].contains(&why.raw_os_error()), "{why}");
    }
}

#[test]
fn a_device_that_is_not_there_is_an_error_with_a_reason() {
    if !has_software_roce() {
        return;
    }
    let error = VerbsDevice::open(&RdmaName::new("hgrxe9").unwrap()).unwrap_err().to_string();
    assert!(error.starts_with("open RDMA device hgrxe9: ") && error.contains("ibverbs-providers"), "{error}");
}

/// The namespaces of processes and of names, and what the kernel waits for to end one.
fn namespaces() -> String {
    testkit::shell("lsns -t net -o NS,PID,COMMAND; ip netns list; dmesg | tail -n 20")
}

/// A device of software is not moved into a namespace, in either mode.
#[test]
fn exclusive_mode_moves_no_device_of_software() {
    if !has_software_roce() {
        return;
    }
    let wire = RdmaWire::new();
    let devices = RdmaDevices::open_in(&Netns::current().unwrap()).unwrap();
    let deadline = Instant::now() + PATIENCE;
    // Namespaces of tests before end some time after their last user.
    let until_set = |mode| {
        while let Err(error) = devices.set_mode(mode) {
            let goes_on = error.errno() == Some(libc::EBUSY) && Instant::now() < deadline;
            assert!(goes_on, "{error}\n{}", namespaces());
        }
    };
    until_set(RdmaNetnsMode::Exclusive);
    assert_eq!(devices.mode().unwrap(), RdmaNetnsMode::Exclusive);
    let pod = Netns::anonymous().unwrap();
    let device = devices.find(&RdmaName::new("hgrxe0").unwrap()).unwrap().unwrap();
    let moved = devices.move_to(&device, &pod).unwrap_err();
    assert_eq!(moved.errno(), Some(libc::EOPNOTSUPP), "{moved}");
    // A pod sees none of them now, where in shared mode it sees all.
    assert_eq!(RdmaDevices::open_in(&pod).unwrap().list().unwrap(), []);
    let opened = pod.run(|| VerbsDevice::open(&RdmaName::new("hgrxe0").unwrap())).unwrap();
    assert!(opened.unwrap_err().to_string().contains("no such device here"));
    drop((pod, wire));
    until_set(RdmaNetnsMode::Shared);
    assert_eq!(devices.mode().unwrap(), RdmaNetnsMode::Shared);
}
