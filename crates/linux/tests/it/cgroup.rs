//! Control groups: which tasks are in them, and that this process is not.

use std::net::TcpListener;
use std::panic::AssertUnwindSafe;

use linux::cgroup::{self, Cgroup};
use linux::process::Spawn;

use crate::world::TestNetns;

/// A group of its own for a test. Dropping it removes the group.
struct Group(Cgroup);

impl Group {
    /// `None`, with the skip recorded, if no hierarchy of version 2 is mounted.
    fn new(name: &str) -> Option<Group> {
        if let Err(error) = cgroup::hierarchy() {
            testkit::skip(&error.to_string());
            return None;
        }
        let group = Cgroup::named(&format!("hgt-{}-{name}", std::process::id())).expect("root can do it");
        group.create().expect("root can do it");
        Some(Group(group))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = self.0.remove();
    }
}

/// The calling task's group in the hierarchy of version 2.
fn own() -> String {
    let text = std::fs::read_to_string("/proc/thread-self/cgroup").expect("root can do it");
    text.lines().find_map(|line| line.strip_prefix("0::")).expect("root can do it").to_owned()
}

#[test]
fn a_closure_runs_in_the_group_and_the_process_stays() {
    let Some(Group(group)) = &Group::new("run") else { return };
    let (place, home, threads) = (TestNetns::new("cgroup"), own(), std::thread::current().id());
    let inside = || {
        let there = (own(), std::process::id(), std::thread::current().id());
        // Open files and allocated memory outlive the call, and the closure may change its namespace.
        let listener = place.netns.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
        (there, listener, vec![7_u8; 1 << 20])
    };
    let ((path, pid, thread), listener, bytes) = group.run(inside).unwrap();
    assert!(group.path().to_str().unwrap().ends_with(&path), "{path}");
    assert_ne!(pid, std::process::id());
    assert_eq!(thread, threads);
    assert!(bytes.iter().all(|byte| *byte == 7));
    let address = listener.local_addr().unwrap();
    assert!(place.netns.run(|| std::net::TcpStream::connect(address)).unwrap().is_ok());
    assert!(std::net::TcpStream::connect(address).is_err(), "it listens only in the other namespace");
    assert_eq!(own(), home);
    assert_eq!(std::fs::read_to_string(group.path().join("cgroup.procs")).unwrap(), "");
}

#[test]
fn many_run_at_the_same_time() {
    let Some(Group(group)) = &Group::new("many") else { return };
    std::thread::scope(|scope| {
        for number in 0..8_usize {
            scope.spawn(move || {
                for _ in 0..50 {
                    let made = group.run(|| vec![number; 10_000]).unwrap();
                    assert!(made.iter().all(|found| *found == number));
                }
            });
        }
    });
}

#[test]
fn a_panic_comes_back() {
    let Some(Group(group)) = &Group::new("panic") else { return };
    let panicked = std::panic::catch_unwind(AssertUnwindSafe(|| group.run(|| panic!("on purpose"))));
    assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(std::fs::read_to_string(group.path().join("cgroup.procs")).unwrap(), "");
}

#[test]
fn a_group_with_a_program_in_it_stays_and_says_which() {
    let Some(Group(group)) = &Group::new("spawn") else { return };
    let mut spawn = Spawn::new("sleep");
    spawn.args = vec!["300".to_owned()];
    spawn.cgroup = Some(group.clone());
    spawn.new_pid_namespace = true;
    let mut child = spawn.start().unwrap();
    let error = group.remove().unwrap_err();
    assert!(error.is(libc::EBUSY), "{error}");
    assert!(error.to_string().contains(&format!("which holds processes {}", child.pid())), "{error}");
    child.kill().unwrap();
    group.remove().unwrap();
    assert!(!group.exists());
    assert!(group.remove().unwrap_err().is(libc::ENOENT));
    assert!(group.run(|| ()).unwrap_err().is(libc::ENOENT));
}
