//! What is refused, what fails, and that nothing of it stays.

use std::fs;
use std::os::unix::fs::symlink;

use ipam::{IpamError, Key, Store};

use crate::{DUAL, address, all, key, names, sets, store, texts};

#[test]
fn a_pod_gets_an_address_of_each_set_with_length_and_gateway() {
    let (_root, store) = store();
    let reserved = store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    assert_eq!(texts(&reserved), ["10.0.0.2/29", "fd00::2/64"]);
    assert_eq!(
        reserved.iter().map(|one| one.gateway).collect::<Vec<_>>(),
        [address("10.0.0.1"), address("fd00::1")]
    );
    assert_eq!(reserved.iter().map(|one| one.set).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(store.reserved(&key("c1")).unwrap(), [address("10.0.0.2"), address("fd00::2")]);
    assert_eq!(store.left(&sets(DUAL)).unwrap(), [4, 4]);
}

#[test]
fn a_key_gets_addresses_once() {
    let (_root, store) = store();
    store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    let error = store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap_err();
    assert_eq!(error.to_string(), "reserve an address for c1/eth0: it has 10.0.0.2, fd00::2 already");
    assert!(error.remedy().is_some());
    let other = Key::new("c1", "eth1").unwrap();
    assert_eq!(texts(&store.reserve(&other, &sets(DUAL), &[]).unwrap()), ["10.0.0.3/29", "fd00::3/64"]);
    assert_eq!(store.release(&key("c1")).unwrap(), [address("10.0.0.2"), address("fd00::2")]);
    assert_eq!(all(&store), ["10.0.0.3 c1/eth1", "fd00::3 c1/eth1"]);
}

#[test]
fn one_empty_set_is_none_reserved_at_all() {
    let (_root, store) = store();
    let uneven = sets(r#"[[{"subnet":"10.0.0.0/24"}],[{"subnet":"fd00::/126"}]]"#);
    store.reserve(&key("c1"), &uneven, &[]).unwrap();
    store.reserve(&key("c2"), &uneven, &[]).unwrap();
    let before = all(&store);
    let error = store.reserve(&key("c3"), &uneven, &[]).unwrap_err();
    let expected = "reserve an address for c3/eth0: none is left in range set 1 (fd00::1-fd00::3)";
    assert_eq!(error.to_string(), expected);
    assert!(matches!(error, IpamError::NoneLeft { set: 1, .. }) && error.remedy().is_some(), "{error:?}");
    assert_eq!(all(&store), before);
    assert_eq!(store.left(&uneven).unwrap(), [251, 0]);
}

#[test]
fn an_asked_for_address_is_given_or_named() {
    let (_root, store) = store();
    let wanted = [address("fd00::5"), address("10.0.0.4")];
    let reserved = store.reserve(&key("c1"), &sets(DUAL), &wanted).unwrap();
    assert_eq!(texts(&reserved), ["10.0.0.4/29", "fd00::5/64"]);
    let refused: [(&[&str], &str); 4] = [
        (&["10.0.0.3", "fd00::5"], "reserve fd00::5 for c2/eth0: c1/eth0 has it"),
        (
            &["10.0.0.9"],
            "reserve 10.0.0.9 for c2/eth0: it is in no range of 10.0.0.1-10.0.0.6, fd00::1-fd00::6",
        ),
        (&["10.0.0.1"], "reserve 10.0.0.1 for c2/eth0: it is a gateway"),
        (
            &["10.0.0.3", "10.0.0.5"],
            "reserve 10.0.0.5 for c2/eth0: 10.0.0.3 is asked for as well, and a pod gets one address of range set 0",
        ),
    ];
    for (wanted, expected) in refused {
        let wanted: Vec<_> = wanted.iter().map(|text| address(text)).collect();
        assert_eq!(store.reserve(&key("c2"), &sets(DUAL), &wanted).unwrap_err().to_string(), expected);
    }
    assert_eq!(all(&store), ["10.0.0.4 c1/eth0", "fd00::5 c1/eth0"]);
    // The search goes on after what was asked for, as in host-local.
    assert_eq!(texts(&store.reserve(&key("c2"), &sets(DUAL), &[]).unwrap()), ["10.0.0.5/29", "fd00::6/64"]);
}

#[test]
fn where_nothing_was_reserved_nothing_is_released_or_made() {
    let (root, store) = store();
    assert!(store.release(&key("c1")).unwrap().is_empty() && store.all().unwrap().is_empty());
    assert!(
        store.keep_only(|_| false).unwrap().is_empty()
            && store.release_of_earlier_boots().unwrap().is_empty()
    );
    assert_eq!(store.left(&sets(DUAL)).unwrap(), [5, 5]);
    assert_eq!(names(root.path()), [""; 0]);
    for network in ["", "..", "a/b", ".a", "a b"] {
        let error = Store::open(root.path(), network).unwrap_err().to_string();
        assert!(error.contains(&format!("{network:?}")), "{error}");
    }
}

#[test]
fn a_name_that_is_no_reservation_is_stepped_over() {
    let (_root, store) = store();
    fs::create_dir_all(store.path().join("10.0.0.2")).unwrap();
    assert_eq!(texts(&store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap()), ["10.0.0.3/29", "fd00::2/64"]);
    let error = store.reserve(&key("c2"), &sets(DUAL), &[address("10.0.0.2")]).unwrap_err();
    assert_eq!(error.to_string(), "reserve 10.0.0.2 for c2/eth0: an unknown container has it");
}

#[test]
fn an_unreadable_file_is_named_and_all_else_is_released() {
    let (_root, store) = store();
    store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    // Root reads every file, but not one that is a link to itself.
    symlink("10.0.0.5", store.path().join("10.0.0.5")).unwrap();
    let path = store.path().join("10.0.0.5");
    for error in [
        store.reserve(&key("c2"), &sets(DUAL), &[]).unwrap_err(),
        store.reserved(&key("c1")).unwrap_err(),
        store.all().unwrap_err(),
    ] {
        assert!(error.to_string().starts_with(&format!("read {}: ", path.display())), "{error}");
    }
    // The file may be that of a key of which no other is found, and is nothing to one that has its addresses.
    assert_eq!(store.release(&key("c1")).unwrap().len(), 2);
    let error = store.release(&key("c1")).unwrap_err();
    assert!(error.to_string().starts_with("release 1 of 1 addresses: read "), "{error}");
    assert!(matches!(error, IpamError::Unreleased { ref released, .. } if released.is_empty()), "{error:?}");
    fs::remove_file(path).unwrap();
    assert_eq!(all(&store), [""; 0]);
}

#[test]
fn for_a_new_key_no_file_of_others_is_read() {
    let (_root, store) = store();
    store.reserve_for_new(&key("c1"), &sets(DUAL), &[]).unwrap();
    symlink("10.0.0.3", store.path().join("10.0.0.3")).unwrap();
    let reserved = store.reserve_for_new(&key("c2"), &sets(DUAL), &[]).unwrap();
    assert_eq!(texts(&reserved), ["10.0.0.4/29", "fd00::3/64"]);
    let error = store.reserve_for_new(&key("c3"), &sets(DUAL), &[address("10.0.0.4")]).unwrap_err();
    assert_eq!(error.to_string(), "reserve 10.0.0.4 for c3/eth0: c2/eth0 has it");
}

#[test]
fn a_disk_without_room_is_named_and_nothing_stays_reserved() {
    let (_root, store) = store();
    store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap();
    // The hint of the second set cannot be written, after both addresses were reserved.
    fs::remove_file(store.path().join("last_reserved_ip.1")).unwrap();
    symlink("/dev/full", store.path().join("last_reserved_ip.1")).unwrap();
    let error = store.reserve(&key("c2"), &sets(DUAL), &[]).unwrap_err();
    assert!(error.to_string().contains("last_reserved_ip.1: No space left"), "{error}");
    assert_eq!(error.remedy(), Some("make room on that file system"));
    assert_eq!(all(&store), ["10.0.0.2 c1/eth0", "fd00::2 c1/eth0"]);
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let store = Store::open("/proc/self".as_ref(), "n").unwrap();
    let error = store.reserve(&key("c1"), &sets(DUAL), &[]).unwrap_err();
    assert!(error.to_string().starts_with("create /proc/self/n: "), "{error}");
}

#[test]
fn gc_keeps_the_given_containers_and_their_old_files() {
    let (_root, store) = store();
    for container in ["c1", "c2"] {
        store.reserve(&key(container), &sets(DUAL), &[]).unwrap();
    }
    fs::write(store.path().join("10.0.0.5"), "c1").unwrap();
    fs::write(store.path().join("10.0.0.6"), "").unwrap();
    let released = store.keep_only(|holder| holder.is(&key("c1"))).unwrap();
    let released: Vec<String> =
        released.iter().map(|(address, holder)| format!("{address} {holder}")).collect();
    assert_eq!(released, ["10.0.0.3 c2/eth0", "10.0.0.6 an unknown container", "fd00::3 c2/eth0"]);
    assert_eq!(all(&store), ["10.0.0.2 c1/eth0", "10.0.0.5 c1", "fd00::2 c1/eth0"]);
    // As host-local has it, the old file is the key's only when no file names the interface.
    assert_eq!(store.release(&key("c1")).unwrap().len(), 2);
    assert_eq!(store.release(&Key::new("c1", "net1").unwrap()).unwrap(), [address("10.0.0.5")]);
}
