//! Calls that cannot do what is asked: the error says why, nothing stays half-made, and the next ADD works once
//! the cause is gone.

use std::time::Duration;

use super::ground::{Ground, JOURNALS, Left, STATE, failure};
use super::{NODE, call, plugin_conf};
use crate::sandbox::stdout;

/// The pages of a file system of [`Ground`].
const PAGES: u32 = 32;

impl Ground {
    /// Leaves a file system this many pages.
    fn fill(&self, at: &str, pages: u32) {
        self.run(&format!("head -c $((4096 * ($(stat -f -c %a {at}) - {pages}))) /dev/zero >{at}/fill"));
    }

    fn make_room(&self, at: &str) {
        self.run(&format!("rm {at}/fill"));
    }

    /// The next ADD works, and DEL leaves nothing.
    #[track_caller]
    fn assert_works(&self, conf: &str, before: &Left, when: &str) {
        for verb in ["ADD", "CHECK", "DEL"] {
            self.succeed(verb, conf);
        }
        self.clean();
        before.assert_same(&self.left(), when);
    }
}

/// A disk that is full from the first byte, from the second page, and so on, until ADD finds room. Each time DEL and
/// `hostgap clean` take back what there is, though there is no room for a word about it.
#[track_caller]
fn check_full(at: &str, file: &str) {
    let ground = Ground::new();
    let conf = plugin_conf("bridge", r#","masquerade":true"#);
    let before = ground.left();
    let mut refused = 0;
    for pages in 0..PAGES {
        ground.fill(at, pages);
        let added = ground.call("ADD", &conf);
        if added.status.success() {
            break;
        }
        refused += 1;
        let (code, says) = failure(&added);
        assert_eq!(code, 5, "{pages}: {says}");
        for part in ["No space left on device", "make room on that file system", file] {
            assert!(says.contains(part), "{pages}: {says}");
        }
        assert!(!says.contains("could not be taken back"), "{pages}: {says}");
        // What the network's containers share may stand.
        ground.clean();
        before.assert_same(&ground.left(), &format!("after an ADD with {pages} pages"));
        ground.succeed("DEL", &conf);
        ground.make_room(at);
        ground.assert_works(&conf, &before, &format!("after the ADD behind that with {pages} pages"));
    }
    assert!((1..PAGES).contains(&refused), "{refused}");
    // The disk becomes full while the container stands.
    ground.make_room(at);
    ground.succeed("DEL", &conf);
    ground.succeed("ADD", &conf);
    ground.fill(at, 0);
    ground.succeed("CHECK", &conf);
    ground.succeed("DEL", &conf);
    ground.clean();
    before.assert_same(&ground.left(), "after a DEL on a full disk");
}

#[test]
fn a_full_disk_of_the_address_store_fails_an_add_and_no_more() {
    check_full(STATE, "/var/lib/cni/networks/own/");
}

#[test]
fn a_full_disk_of_the_journals_fails_an_add_and_no_more() {
    check_full(JOURNALS, "/run/hostgap/");
}

#[test]
fn a_read_only_address_store_fails_an_add_and_no_more() {
    let ground = Ground::new();
    let conf = plugin_conf("bridge", r#","masquerade":true"#);
    let before = ground.left();
    let fails = |verb: &str| {
        let (code, says) = failure(&ground.call(verb, &conf));
        assert_eq!(code, 5, "{says}");
        for part in ["/var/lib/cni/networks/own", "Read-only file system", "another data directory"] {
            assert!(says.contains(part), "{verb}: {says}");
        }
        assert!(!says.contains("could not be taken back"), "{verb}: {says}");
    };
    // At first there is no directory of the network, then there is one.
    for _ in 0..2 {
        ground.run(&format!("mount -o remount,ro {STATE}"));
        fails("ADD");
        // The runtime takes back what failed. There is no address to release.
        ground.succeed("DEL", &conf);
        ground.clean();
        before.assert_same(&ground.left(), "after an ADD");
        ground.run(&format!("mount -o remount,rw {STATE}"));
        ground.assert_works(&conf, &before, "after the ADD behind that");
    }
    // Of a container that stands the address stays, and with it what says whose it is, until it can be released.
    ground.succeed("ADD", &conf);
    ground.run(&format!("mount -o remount,ro {STATE}"));
    ground.succeed("CHECK", &conf);
    fails("DEL");
    ground.run(&format!("mount -o remount,rw {STATE}"));
    ground.succeed("DEL", &conf);
    ground.clean();
    before.assert_same(&ground.left(), "after the DEL behind that");
}

#[test]
fn of_two_adds_at_once_for_one_interface_one_works() {
    let ground = Ground::new();
    let conf = plugin_conf("bridge", r#","masquerade":true"#);
    let before = ground.left();
    // Network and store of addresses are there in each round but the first.
    for round in 0..60 {
        let first = call(&ground.sandbox, "ADD", &conf);
        std::thread::sleep(Duration::from_micros(round % 12 * 300));
        let second = call(&ground.sandbox, "ADD", &conf);
        let mut outputs = [first, second].map(|child| child.wait_with_output().unwrap());
        outputs.sort_by_key(|output| output.status.success());
        let [refused, works] = outputs;
        assert!(works.status.success(), "{round}: {}", stdout(&works));
        let (code, says) = failure(&refused);
        let why = match code {
            4 => "interface eth0 of container c1 is attached to own already",
            11 => "works on interface eth0 of container c1",
            _ => panic!("{round}: {says}"),
        };
        assert!(says.contains(why), "{round}: {says}");
        ground.succeed("CHECK", &conf);
        ground.succeed("DEL", &conf);
    }
    ground.clean();
    before.assert_same(&ground.left(), "after pairs of ADDs");
}

/// On a kernel that has such links, the ADD works.
#[test]
fn a_link_that_the_kernel_does_not_have_is_named() {
    let ground = Ground::new();
    let before = ground.left();
    for (attach, kind) in
        [("ipvlan-l2", "ipvlan"), ("ipvlan-l3", "ipvlan"), ("ipvlan-l3s", "ipvlan"), ("netkit", "netkit")]
    {
        let conf = plugin_conf(attach, "");
        let probe = format!(
            "ip -n {NODE} link add hgt0 $(test {kind} = netkit || echo link wire0) type {kind} 2>/dev/null &&
             ip -n {NODE} link del hgt0 && echo yes || true"
        );
        if ground.run(&probe) == "yes\n" {
            ground.assert_works(&conf, &before, attach);
            continue;
        }
        let (code, says) = failure(&ground.call("ADD", &conf));
        assert_eq!(code, 100, "{attach}: {says}");
        let why = format!("this kernel has no links of type {kind}: module {kind} is missing");
        assert!(says.contains("operation not supported") && says.contains(&why), "{attach}: {says}");
        ground.succeed("DEL", &conf);
        ground.clean();
        before.assert_same(&ground.left(), &format!("after an ADD of {attach}"));
    }
    ground.assert_works(&plugin_conf("bridge", ""), &before, "after the ADD of a bridge");
}
