//! Namespaces: names, threads and the processes in them.

use std::slice;

use linux::process::Spawn;
use linux::{Netns, netns, sysctl};

use crate::world::{TestNetns, ifname, unused_name};

#[test]
fn a_name_is_made_seen_and_gone() {
    let name = unused_name("name");
    assert!(!netns::exists(&name));
    drop(Netns::create(&name).unwrap());
    assert!(netns::exists(&name));
    assert!(netns::list().unwrap().contains(&name));
    let listed = std::process::Command::new("ip").args(["netns", "list"]).output().unwrap();
    assert!(String::from_utf8(listed.stdout).unwrap().lines().any(|line| line.starts_with(name.as_str())));
    let error = Netns::create(&name).unwrap_err();
    assert!(error.is(libc::EEXIST));
    assert_eq!(error.to_string(), format!("create namespace {name}: file exists"));
    netns::delete(&name).unwrap();
    assert!(!netns::exists(&name) && !netns::list().unwrap().contains(&name));
    let error = Netns::open(&name).unwrap_err();
    assert_eq!(error.to_string(), format!("open namespace {name}: no such file or directory"));
    assert!(netns::delete(&name).unwrap_err().is(libc::ENOENT));
}

#[test]
fn its_loopback_is_up() {
    let place = TestNetns::new("lo");
    let lo = place.netlink.link(&ifname("lo")).unwrap().unwrap();
    assert!(lo.up && lo.carrier);
    assert_eq!((lo.index, lo.kind, lo.parent), (1, None, None));
    assert!(Netns::anonymous().unwrap().inode().unwrap() != place.netns.inode().unwrap());
}

#[test]
fn the_thread_comes_back_also_from_a_panic() {
    let place = TestNetns::new("panic");
    let here = || Netns::current().unwrap().inode().unwrap();
    let home = here();
    let there = place.netns.run(here).unwrap();
    assert_eq!(there, place.netns.inode().unwrap());
    assert_ne!(there, home);
    let nested = place.netns.run(|| (Netns::anonymous().unwrap().run(here).unwrap(), here())).unwrap();
    assert!(nested.0 != there && nested.1 == there);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let panic = || std::panic::resume_unwind(Box::new("expected"));
        place.netns.run(panic).unwrap_or(());
    }));
    assert!(panicked.is_err());
    assert_eq!(here(), home);
}

#[test]
fn inhabitants_are_found() {
    let place = TestNetns::new("pids");
    let pids_in = || netns::pids_in(slice::from_ref(&place.netns)).unwrap();
    assert!(pids_in().is_empty());
    let mut spawn = Spawn::new("sleep");
    spawn.args = vec!["300".to_owned()];
    spawn.netns = Some(place.netns.try_clone().unwrap());
    let mut child = spawn.start().unwrap();
    assert_eq!(pids_in(), [child.pid()]);
    child.kill().unwrap();
    assert!(pids_in().is_empty());
}

#[test]
fn kernel_parameters_are_those_of_the_place() {
    let place = TestNetns::new("sysctl");
    let key = sysctl::Key::new("net/ipv4/tcp_fin_timeout").unwrap();
    let before = sysctl::read(&key).unwrap().unwrap();
    place.netns.run(|| sysctl::write(&key, "17")).unwrap().unwrap();
    assert_eq!(place.netns.run(|| sysctl::read(&key)).unwrap().unwrap().unwrap(), "17");
    assert_eq!(place.judge("cat", &["/proc/sys/net/ipv4/tcp_fin_timeout"]), "17\n");
    assert_eq!(sysctl::read(&key).unwrap().unwrap(), before);
    let all = place.netns.run(|| sysctl::list("net/ipv4")).unwrap().unwrap();
    assert_eq!(all[&key], "17");
    let error = place.netns.run(|| sysctl::write(&key, "often")).unwrap().unwrap_err();
    assert!(error.is(libc::EINVAL), "{error}");
}

#[test]
fn a_namespace_is_visible_by_its_name_and_by_its_threads() {
    let place = TestNetns::new("seen");
    let named = place.netns.cookie().unwrap();
    assert!(linux::visible_cookies().unwrap().contains(&named));
    let anonymous = Netns::anonymous().unwrap();
    let held = anonymous.cookie().unwrap();
    assert!(!linux::visible_cookies().unwrap().contains(&held), "only a descriptor holds it");
    assert!(
        anonymous.run(|| linux::visible_cookies().unwrap().contains(&held)).unwrap(),
        "this thread is in it"
    );
    drop(place);
    assert!(!linux::visible_cookies().unwrap().contains(&named));
}
