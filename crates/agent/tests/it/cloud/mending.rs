//! What an agent records, mends and says while the cloud refuses.

use testkit::require_root;

use super::{Cloud, PODS_A, cloud_says};
use crate::full::Disk;
use crate::nodes::PATIENCE;

#[test]
fn what_was_refused_was_not_made() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().denied.insert("ModifyNetworkInterfaceAttribute");
    let (mut a, _ready) = cloud.begin("a", Cloud::login());
    a.until("it is refused", cloud_says(&["UnauthorizedOperation", "ec2:ModifyNetworkInterfaceAttribute"]));
    a.stop().unwrap();
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (1, 0), "{taken:?}");
    // Nor is it a repair when it succeeds at last.
    let (a, ready) = cloud.begin("a", Cloud::login());
    a.until("it is refused", cloud_says(&["UnauthorizedOperation"]));
    cloud.server.state().denied.clear();
    ready.recv_timeout(PATIENCE).unwrap();
    let status = a.until("all is well", |status| status.undecided.is_none());
    assert_eq!((status.repairs_total, &status.repairs), (0, &Vec::new()));
}

#[test]
fn what_may_have_been_made_is_taken_back() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    // The check of the interface, and the route.
    cloud.server.state().garbled = 2;
    let (mut a, ready) = cloud.begin("a", Cloud::login());
    ready.recv_timeout(PATIENCE).unwrap();
    a.stop().unwrap();
    assert_eq!(cloud.server.state().garbled, 0);
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    let state = cloud.server.state();
    assert!(state.routes.is_empty(), "{:?}", state.routes);
    assert!(state.instances[0].checks_source);
}

#[test]
fn all_refusals_are_reported_in_the_same_words() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().denied.extend(["CreateRoute", "ModifyNetworkInterfaceAttribute"]);
    let (a, _ready) = cloud.begin("a", Cloud::login());
    let words = &["ec2:CreateRoute", "ec2:ModifyNetworkInterfaceAttribute", PODS_A];
    let first = a.until("it is refused", cloud_says(words));
    assert!(!format!("{first:?}").contains("Encoded"), "{first:?}");
    let denials = cloud.server.state().denials;
    let again = a.until("it is refused again", |_| cloud.server.state().denials >= denials + 4);
    assert_eq!(again.cloud, first.cloud);
}

#[test]
fn lists_without_an_end_are_left() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    cloud.server.state().is_endless = true;
    let (a, ready) = cloud.begin("a", Cloud::login());
    a.until("the list has no end", cloud_says(&["list the routes", "pages"]));
    cloud.server.state().is_endless = false;
    ready.recv_timeout(PATIENCE).unwrap();
}

/// Nothing is made that could not be taken back after a restart.
#[test]
fn on_a_full_disk_no_call_is_made() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    let disk = Disk::at(cloud.nodes.settings("a").cloud.record);
    disk.fill();
    let (a, ready) = cloud.begin("a", Cloud::login());
    a.until_said(&["record what is made in", "a/cloud/pods.cloud.json", "No space left on device"]);
    assert!(cloud.server.state().changes.is_empty());
    a.check_said_once("No space left on device");
    disk.make_room();
    ready.recv_timeout(PATIENCE).unwrap();
    assert_eq!(disk.half_written(), "");
    drop(a);
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
}
