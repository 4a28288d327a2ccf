//! RDMA devices of software: made, listed, seen from other namespaces, and taken away.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, also in what is not marked as one")]

use linux::netlink::{RdmaDevices, RdmaNetnsMode};
use linux::{Netns, RdmaLink, RdmaName};
use testkit::has_software_roce;

use crate::world::{Place, ifname};

fn device(name: &str, link: &str) -> RdmaLink {
    RdmaLink { name: RdmaName::new(name).unwrap(), link: ifname(link) }
}

#[test]
fn a_device_is_made_and_listed_and_goes_with_its_link() {
    if !has_software_roce() {
        return;
    }
    let (here, there) = (Place::new("rdma-a"), Place::new("rdma-b"));
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
