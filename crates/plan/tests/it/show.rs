//! Plans as commands: their text, and that the commands work.

use linux::netlink::PortFlag;
use linux::qdisc::{Netem, Tbf};
use linux::{NetnsName, Qdisc};
use plan::forwarding::Endpoint;
use plan::{Journal, Kernel, Place, Plan, Queue, SetPortFlag, SetQueueCpus, SetRootQdisc, Step, apply};
use testkit::{World, dump, require_root, shell};

use crate::sample::{Sample, address, ifname, sysctl_step, table};

#[test]
fn every_step_has_its_command() {
    let sample = Sample::named(|short| NetnsName::new(short).unwrap());
    insta::assert_snapshot!(sample.plan().commands().join("\n"));
}

#[test]
fn on_the_host_nothing_enters_a_namespace() {
    let mut plan = Plan::new();
    let host = Place::Host;
    plan.push(&host, address("eth0", "10.0.0.1/24"));
    plan.push(&host, Step::MoveLink { link: ifname("a$b"), to: Place::Host, name: ifname("eth1") });
    plan.push(&host, SetPortFlag { link: ifname("p0"), flag: PortFlag::Hairpin });
    plan.push(&host, sysctl_step("net/ipv4/ip_forward", "1"));
    plan.push(&host, Step::AddNftTable(table("hostgap")));
    let cpus = "0-3,32".parse().unwrap();
    plan.push(&host, SetQueueCpus { link: ifname("eth0"), queue: Queue::Tx(3), cpus });
    let netem = Netem { delay_ns: 40_000_000, limit: 2000, ..Netem::default() };
    plan.push(&host, SetRootQdisc { link: ifname("eth0"), qdisc: Qdisc::Netem(netem) });
    let inner = Qdisc::Pfifo { limit: 50 };
    let line = Tbf { rate_bytes_per_s: 5_000_000, burst_bytes: 3028, inner };
    plan.push(&host, SetRootQdisc { link: ifname("eth0"), qdisc: Qdisc::Tbf(Box::new(line)) });
    let node = "n1".to_owned();
    let (mac, addresses) = ("02:00:00:00:00:01".parse().unwrap(), vec!["10.0.0.2".parse().unwrap()]);
    let pod = Endpoint { node, link: ifname("p0"), mac, addresses, queued: true };
    plan.push(&host, Step::AddEndpoint(pod));
    insta::assert_snapshot!(plan.commands().join("\n"));
}

/// Without the steps of programs. Their commands belong to the binary, and its tests run them.
#[test]
fn typed_commands_and_apply_do_the_same() {
    if !require_root() {
        return;
    }
    let (typed, applied) = (World::new(), World::new());
    let by_hand = Sample::of(&typed);
    by_hand.furnish();
    shell(&by_hand.plan_without_programs().commands().join("\n"));

    let by_us = Sample::of(&applied);
    by_us.furnish();
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    apply(&by_us.plan_without_programs(), &mut journal, &mut Kernel::new().unwrap()).unwrap();

    for short in ["home", "away", "made"] {
        let (typed, applied) = (dump(&typed.open(short)), dump(&applied.open(short)));
        typed.assert_same(&applied, &format!("typed and applied in {short}"));
    }
}
