//! Tables and programs that change, by whoever is supposed to and by whoever is not.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bpf::AddressCall;
use bpf::services::{self, Service, ServiceCounter};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::{PATIENCE, Scene, V4, V6, accept, all, at};

/// Two sets of backends take turns while connections are made. Each connection reaches one of those that were set.
#[test]
fn no_connection_fails_while_backends_are_replaced() {
    let Some(scene) = Scene::new() else { return };
    let (called, backends) = (at(V4.0), all(V4.1));
    let listeners = scene.listeners(&backends);
    let sets = [vec![backends[0]], backends.clone(), vec![backends[2], backends[1]]];
    let service = scene.set("10.96.0.1:80/tcp", 0, &sets[0]);
    let (stop, is_over, made) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let replaced = std::thread::scope(|scope| {
        for listener in &listeners {
            let is_over = &is_over;
            scope.spawn(move || {
                listener.set_nonblocking(true).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    match listener.accept() {
                        Ok((mut stream, _)) => drop(stream.write_all(b"here")),
                        Err(_) => std::thread::yield_now(),
                    }
                }
            });
        }
        let caller = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let mut stream = scene.connect(called).unwrap_or_else(|error| panic!("{error}"));
                let mut word = [0; 4];
                stream.read_exact(&mut word).unwrap();
                made.fetch_add(1, Ordering::Relaxed);
            }
        });
        let (begun, mut replaced) = (Instant::now(), 0_usize);
        while (replaced < 3000 || made.load(Ordering::Relaxed) < 300)
            && !caller.is_finished()
            && begun.elapsed() < PATIENCE
        {
            let backends = sets[replaced % sets.len()].iter().copied().collect();
            services::set(&scene.folder, &Service { at: service, affinity_s: 0, backends }).unwrap();
            replaced += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let called = caller.join();
        // Not before: a connection that has just been made has its word to come.
        is_over.store(true, Ordering::Relaxed);
        called.unwrap();
        replaced
    });
    assert!(
        replaced >= 3000 && made.load(Ordering::Relaxed) >= 300,
        "{replaced} times, {made:?} connections"
    );
    assert_eq!((scene.count(ServiceCounter::Refused), scene.count(ServiceCounter::Lost)), (0, 0));
    let slots = scene.entries("service_slots");
    assert_eq!(slots, scene.find(&service).unwrap().service.backends.len(), "old slots are gone");
}

#[test]
fn what_a_killed_process_left_goes_with_the_next_change() {
    let Some(scene) = Scene::new() else { return };
    let backends = all(V4.1);
    let service = scene.set("10.96.0.1:80/tcp", 0, &backends);
    scene.set("10.96.0.1:80/tcp", 0, &backends);
    let map = MapHandle::from_pinned_path(scene.folder.join("service_slots")).unwrap();
    let keys: Vec<Vec<u8>> = map.keys().collect();
    // Slots of the generation before and of the one that was about to be.
    for generation in [1_u32, 3] {
        for key in &keys {
            let key = [&key[..20], &generation.to_ne_bytes(), &key[24..]].concat();
            map.update(&key, &[0; 20], MapFlags::NO_EXIST).unwrap();
        }
    }
    let other = scene.set("10.96.0.2:80/tcp", 0, &backends[..1]);
    assert_eq!(scene.entries("service_slots"), 10);
    scene.set("10.96.0.1:80/tcp", 0, &backends[..2]);
    assert_eq!(scene.entries("service_slots"), 3);
    let listed = services::list(&scene.folder).unwrap();
    let expected = [&service, &other].map(|at| (*at, scene.find(at).unwrap()));
    assert_eq!(listed, BTreeMap::from(expected));
    // A stranger takes a slot, and an entry.
    let slot = map.keys().find(|key| key[15] == 1).unwrap();
    map.delete(&slot).unwrap();
    let found = scene.find(&service).unwrap();
    assert!(!found.is_whole && found.to_string().contains("and without others"), "{found}");
    assert_eq!(services::list(&scene.folder).unwrap()[&service], found);
    for at in [&service, &other] {
        services::remove(&scene.folder, at).unwrap();
        services::remove(&scene.folder, at).unwrap();
    }
    assert_eq!((scene.entries("services"), scene.entries("service_slots")), (0, 0));
}

#[test]
fn a_full_map_and_another_family_are_refused_and_nothing_changes() {
    let Some(scene) = Scene::new() else { return };
    let backends = all(V4.1);
    let service = scene.set("10.96.0.1:80/tcp", 0, &backends);
    let before = scene.find(&service);
    let mut wrong = before.clone().unwrap().service;
    wrong.backends = BTreeSet::from([at(V6.1[0])]);
    let error = services::set(&scene.folder, &wrong).unwrap_err().to_string();
    assert!(error.contains("of the other family"), "{error}");
    // More backends than all slots.
    let many = |number: u32| SocketAddr::new(Ipv4Addr::from_bits(number).into(), 1);
    wrong.backends = (1..=270_000).map(many).collect();
    let error = services::set(&scene.folder, &wrong).unwrap_err().to_string();
    assert!(
        error.contains("set service 10.96.0.1:80/tcp in") && error.contains("the map is full with 262144"),
        "{error}"
    );
    assert_eq!(scene.find(&service), before);
    assert_eq!(scene.entries("service_slots"), 3);
}

#[test]
fn programs_are_replaced_while_sockets_call() {
    let Some(scene) = Scene::new() else { return };
    let (called, backends) = (at(V4.0), all(V4.1));
    let listeners = scene.listeners(&backends);
    scene.set("10.96.0.1:80/tcp", 10_800, &backends);
    let stream = scene.connect(called).unwrap();
    let first = accept(&listeners, &stream);
    for _ in 0..3 {
        let replaced = services::replace(&scene.folder).unwrap();
        assert_eq!(replaced, services::Replaced { from: services::FORMAT, links: 8, made: vec![] });
        assert_eq!(services::met(&scene.folder, scene.cgroup.path()).unwrap(), AddressCall::ALL);
        assert_eq!(stream.peer_addr().unwrap(), called);
        assert_eq!(accept(&listeners, &scene.connect(called).unwrap()), first, "the affinity stays");
    }
    // Maps of a later version are left alone.
    assert!(services::is_of_this_format(&scene.folder).unwrap());
    let format = MapHandle::from_pinned_path(scene.folder.join("service_format")).unwrap();
    format.update(&[0; 4], &9_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    let error = services::replace(&scene.folder).unwrap_err().to_string();
    assert!(error.contains("are of format 9"), "{error}");
    let service =
        Service { at: "10.96.0.9:1/tcp".parse().unwrap(), affinity_s: 0, backends: BTreeSet::new() };
    assert!(services::set(&scene.folder, &service).unwrap_err().to_string().contains("are of format 9"));
    assert!(!services::is_of_this_format(&scene.folder).unwrap());
    assert_eq!(accept(&listeners, &scene.connect(called).unwrap()), first);
}

/// The kernel gives entries in batches, and ends one early where the next bucket of the map has no room in it. With so
/// many entries it does so several times.
#[test]
fn a_list_is_whole_however_the_kernel_divides_it() {
    let Some(scene) = Scene::new() else { return };
    let backends = |octet: u8| {
        (0..60_000).map(move |n: u16| SocketAddr::new([10, octet, (n >> 8) as u8, n as u8].into(), 80))
    };
    let all = [("10.96.0.1:80/tcp", 1), ("10.96.0.2:80/tcp", 2), ("10.96.0.3:80/udp", 3)];
    let all = all.map(|(text, octet)| Service {
        at: text.parse().unwrap(),
        affinity_s: 0,
        backends: backends(octet).collect(),
    });
    for service in &all {
        services::set(&scene.folder, service).unwrap();
    }
    let found = services::list(&scene.folder).unwrap();
    assert_eq!(found.len(), all.len());
    for service in all {
        let of_it = &found[&service.at];
        assert!(of_it.is_whole && of_it.service == service, "{} of 60000", of_it.service.backends.len());
    }
}
