//! The knobs of a network card, on one: a virtio card of four queues, which a virtual machine of ours has.

use linux::ethtool::{Ethtool, NicParameter};
use linux::interrupts::Interrupts;
use linux::sysfs::{NetSysfs, Queue};
use linux::{CpuSet, IfName, Netns};
use plan::{Fault, Journal, Kernel, Place, Plan, apply};
use record::Asked;
use testkit::{dump, require_root, skip};
use tune::{Nic, Setting, Site};

use crate::back::there_and_back;

/// The card and what is behind it; `None`, with the skip noted, where there is none of ours.
fn card() -> Option<Site> {
    if !require_root() {
        return None;
    }
    let wire = IfName::new("eth0").unwrap();
    let netns = Netns::current().unwrap();
    let sysfs = NetSysfs::open(&netns).unwrap();
    // The machine's own card is nobody's to play with.
    if std::env::var_os("HOSTGAP_VM").is_none() || sysfs.driver(&wire).as_deref() != Some("virtio_net") {
        skip("it needs the network card of a virtual machine of ours");
        return None;
    }
    let numbers = sysfs.interrupts(&wire).unwrap();
    let mut interrupts = Interrupts::kernel().list().unwrap();
    interrupts.retain(|one| numbers.contains(&one.number));
    let nic = Nic { rx: 2, tx: 2, interrupts };
    let cpus = linux::cpu::online().unwrap();
    Some(Site { process: Place::Host, routes: Vec::new(), node: Place::Host, wire, cpus, nic })
}

fn plan(site: &Site, asked: &[(&str, &str)]) -> Plan {
    let read =
        |(knob, value): &(&str, &str)| Setting::asked(knob, &Asked::Text((*value).to_owned())).unwrap();
    let mut settings: Vec<Setting> = asked.iter().map(read).collect();
    settings.sort_by_key(Setting::rank);
    let mut plan = Plan::new();
    settings.iter().for_each(|setting| plan.extend(setting.plan(site)));
    plan
}

/// Two queues become one, and all that is set for both of them comes back with the second.
#[test]
fn a_new_number_of_queues_gives_back_what_it_took() {
    let Some(site) = card() else { return };
    let netns = Netns::current().unwrap();
    let ethtool = Ethtool::open_in(&netns).unwrap();
    let sysfs = NetSysfs::open(&netns).unwrap();
    let queues = || ethtool.read(&site.wire, NicParameter::Channels).unwrap().unwrap().now;
    assert_eq!(queues(), 2, "as many as CPUs");
    // Set by hand, and not ours to lose.
    let one: CpuSet = "1".parse().unwrap();
    sysfs.write_queue_cpus(&site.wire, Queue::Rx(1), &one).unwrap();
    sysfs.write_queue_flows(&site.wire, 1, 256).unwrap();
    sysfs.write_queue_cpus(&site.wire, Queue::Tx(1), &one).unwrap();
    let before = dump(&netns);
    let fewer = plan(&site, &[("channels", "1")]);
    for fault in [Fault::None, Fault::BeforeStep(0), Fault::AfterStep(0)] {
        there_and_back(&fewer, fault, || {
            assert_eq!(queues(), if fault == Fault::BeforeStep(0) { 2 } else { 1 });
        });
        before.assert_same(&dump(&netns), &format!("after {fault:?}"));
    }
}

#[test]
fn every_knob_of_a_card_is_set_and_taken_back() {
    let Some(site) = card() else { return };
    let netns = Netns::current().unwrap();
    let before = dump(&netns);
    let all = [
        ("irq_affinity", "1"),
        ("rss_indirection", "1"),
        ("rps_flow_cnt", "1024"),
        ("rps_cpus", "node"),
        ("xps_cpus", "0"),
        ("gro_flush_timeout", "20000"),
        ("napi_defer_hard_irqs", "2"),
        ("threaded_napi", "1"),
        ("txqueuelen", "2000"),
        ("gro", "0"),
        ("tso", "0"),
        ("gso", "0"),
        ("qdisc", "fq"),
        ("mtu", "1400"),
    ];
    for knob in all {
        let plan = plan(&site, &[knob]);
        assert!(!plan.is_empty(), "{knob:?}");
        there_and_back(&plan, Fault::None, || {
            assert!(!before.diff(&dump(&netns)).is_empty(), "{knob:?} changed nothing");
        });
        before.assert_same(&dump(&netns), &format!("after {knob:?}"));
    }
    let together = plan(&site, &all);
    for step in (0..together.steps.len()).step_by(3) {
        there_and_back(&together, Fault::AfterStep(step), || {});
    }
    there_and_back(&together, Fault::None, || {});
    before.assert_same(&dump(&netns), "after all of them");
    // A table that counted as somebody's would keep the queues from becoming fewer.
    there_and_back(&plan(&site, &[("channels", "1"), ("rss_indirection", "1")]), Fault::None, || {});
    before.assert_same(&dump(&netns), "after queues and their table");
    there_and_back(&plan(&site, &[("channels", "1")]), Fault::None, || {});
    before.assert_same(&dump(&netns), "after queues");
}

/// What a card cannot do is said before anything is changed.
#[test]
fn what_a_card_cannot_do_is_refused() {
    let Some(site) = card() else { return };
    let refused = |knob: (&str, &str)| {
        let directory = tempfile::tempdir().unwrap();
        let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
        let error = apply(&plan(&site, &[knob]), &mut journal, &mut Kernel::new().unwrap()).unwrap_err();
        assert!(journal.is_undone(), "{knob:?} was begun");
        error.to_string()
    };
    assert!(refused(("channels", "5")).contains("the number of queues of eth0 can be 4 at most"));
    assert!(
        refused(("ring_rx", "65536")).contains("can be 256 at most"),
        "{}",
        refused(("ring_rx", "65536"))
    );
}
