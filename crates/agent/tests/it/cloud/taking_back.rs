//! What was made in the cloud is taken back, or stays in the record.

use testkit::{require_root, shell};

use super::{Cloud, PODS_A};
use crate::keep::is_reached;
use crate::nodes::PATIENCE;

/// A cloud in which the agent of a has made its route, and has ended.
fn left_by_an_agent() -> Cloud {
    let cloud = Cloud::new();
    let (mut a, ready) = cloud.begin("a", Cloud::login());
    ready.recv_timeout(PATIENCE).unwrap();
    a.stop().unwrap();
    assert_eq!(cloud.server.state().routes[PODS_A], "a");
    cloud
}

#[test]
fn what_was_made_is_taken_back_where_it_was_made() {
    if !require_root() {
        return;
    }
    let cloud = left_by_an_agent();
    let mut login = Cloud::login();
    // What a shell of the administrator has.
    login.region = Some("us-elsewhere-1".to_owned());
    login.endpoint = Some("http://192.0.2.1:81".to_owned());
    let taken = cloud.take_back_as("a", login);
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    assert!(cloud.server.state().routes.is_empty());
}

#[test]
fn a_table_that_another_account_does_not_see_is_not_gone() {
    if !require_root() {
        return;
    }
    let cloud = left_by_an_agent();
    cloud.server.state().is_foreign = true;
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (0, 2), "{taken:?}");
    for (error, what) in taken.failed.iter().zip(["route table rtb-0a", "interface eni-a"]) {
        let why = error.to_string();
        let words = [what, "eu-test-1", "vpc-1", "111122223333"];
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
    }
    cloud.server.state().is_foreign = false;
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    assert!(cloud.server.state().routes.is_empty());
}

#[test]
fn the_routes_of_a_table_that_was_deleted_are_gone() {
    if !require_root() {
        return;
    }
    let cloud = left_by_an_agent();
    cloud.server.state().lacks_table = true;
    let taken = cloud.take_back("a");
    // The check of the interface is on again.
    assert_eq!((taken.done.len(), taken.failed.len()), (1, 0), "{taken:?}");
    cloud.server.state().lacks_table = false;
    assert_eq!(cloud.take_back("a").done.len(), 0, "nothing is recorded any more");
}

#[test]
fn a_route_that_is_not_listed_yet_is_deleted() {
    if !require_root() {
        return;
    }
    let cloud = left_by_an_agent();
    cloud.server.state().is_stale = true;
    let taken = cloud.take_back("a");
    assert_eq!((taken.done.len(), taken.failed.len()), (2, 0), "{taken:?}");
    assert!(cloud.server.state().routes.is_empty());
}

/// A machine that was made from an image of another one has a copy of all that the agent there kept.
#[test]
fn what_another_machine_has_made_is_left_alone() {
    if !require_root() {
        return;
    }
    let cloud = left_by_an_agent();
    let record = |node| cloud.nodes.settings(node).cloud.record;
    let copy_to_b = || {
        shell(&format!(
            "mkdir -p {to}; cp {from}/* {to}",
            from = record("a").display(),
            to = record("b").display()
        ));
    };
    copy_to_b();
    let taken = cloud.take_back("b");
    assert_eq!((taken.done.len(), taken.failed.len()), (0, 0), "{taken:?}");
    assert!(taken.copied.unwrap().to_string().contains("pods.cloud.of-i-a.json"));

    copy_to_b();
    let (mut b, ready) = cloud.begin("b", Cloud::login());
    ready.recv_timeout(PATIENCE).unwrap();
    b.stop().unwrap();
    assert_eq!(cloud.server.state().routes.len(), 2);
    let taken = cloud.take_back("b");
    assert_eq!((taken.done.len(), taken.copied), (2, None), "{:?}", taken.failed);
    let state = cloud.server.state();
    assert_eq!(state.routes.keys().collect::<Vec<_>>(), [PODS_A]);
    assert!(!state.instances[0].checks_source);
}

#[test]
fn a_network_goes_over_to_tunnels_and_back() {
    if !require_root() {
        return;
    }
    let cloud = Cloud::new();
    let (a, a_ready) = cloud.begin("a", Cloud::login());
    let (b, b_ready) = cloud.begin("b", Cloud::login());
    a_ready.recv_timeout(PATIENCE).unwrap();
    b_ready.recv_timeout(PATIENCE).unwrap();
    let go_over = |backend: &'static str| {
        cloud.write_leases(&format!("{{ Type = {backend:?} }}"));
        a.until("b is reached", is_reached("b", backend));
        b.until("a is reached", is_reached("a", backend));
        cloud.exchange();
    };
    go_over("aws-vpc");
    go_over("vxlan");
    a.until("the cloud is left", |_| {
        let state = cloud.server.state();
        state.routes.is_empty() && state.instances.iter().all(|one| one.checks_source == one.is_alive)
    });
    cloud.exchange();
    go_over("aws-vpc");
    let has_tunnel = |node| shell(&format!("ip -n {} link", cloud.nodes.name(node))).contains("hgvx");
    a.until("the tunnels are gone", |_| !has_tunnel("a") && !has_tunnel("b"));
    cloud.exchange();
}
