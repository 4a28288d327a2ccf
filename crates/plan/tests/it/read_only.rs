//! Where `/proc/sys` is read-only, as in most containers, a plan succeeds if its values are already set.

use std::process::Command;

use plan::{ApplyError, Journal, Kernel, Place, Plan, Undone, apply, undo};
use testkit::{World, require_root};

use crate::sample::sysctl_step;

/// The variable that names the namespace for the child.
const NAMESPACE: &str = "HOSTGAP_TEST_READ_ONLY";
/// Runs a program with a read-only `/proc/sys`.
const READ_ONLY: &str =
    "mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys && exec \"$0\" \"$@\"";

#[test]
fn a_value_that_is_so_is_not_written() {
    if !require_root() {
        return;
    }
    let world = World::new();
    world.add("home");
    let child = Command::new("unshare")
        .args(["--mount", "sh", "-c", READ_ONLY])
        .arg(std::env::current_exe().expect("a test knows its program"))
        .args(["--exact", "read_only::child", "--ignored"])
        .env(NAMESPACE, world.name("home").as_str())
        .output()
        .expect("the test's program can be started");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

#[test]
#[ignore = "this is the child process of a_value_that_is_so_is_not_written"]
fn child() {
    let Ok(name) = std::env::var(NAMESPACE) else { return };
    let place = Place::Netns(linux::NetnsName::new(name).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let mut kernel = Kernel::new().unwrap();
    let mut set = |values: [&str; 2]| {
        let mut plan = Plan::new();
        plan.push(&place, sysctl_step("net/ipv4/tcp_ecn", values[0]));
        plan.push(&place, sysctl_step("net/ipv4/tcp_syn_retries", values[1]));
        apply(&plan, &mut journal, &mut kernel)
    };
    set(["2", " 6"]).expect("these are the kernel's defaults");
    let error = set(["2", "7"]).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Step { command, .. } if command.contains("tcp_syn_retries=7")),
        "{error}"
    );
    let undone = undo(&mut journal, &mut kernel);
    assert_eq!(undone.len(), 4);
    assert!(undone.iter().all(|(_, undone)| *undone == Undone::AlreadySo), "{undone:?}");
}
