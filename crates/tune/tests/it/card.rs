//! The knobs of network cards, on the cards of our virtual machine.

use linux::ethtool::{Ethtool, FlowType, HashKey, NicParameter};
use linux::interrupts::Interrupts;
use linux::sysfs::{NetSysfs, Queue};
use linux::{CpuSet, Netns};
use plan::{Fault, Journal, Kernel, Place, Plan, apply, undo};
use record::RequestedValue;
use testkit::{card, dump, set_card_up};
use tune::{Nic, Setting, Site};

use crate::back::there_and_back;

/// The card of a driver, set up, with its interrupts and as many queues as CPUs. `None`, with the skip
/// recorded, if there is no such card.
fn site(driver: &str) -> Option<Site> {
    let wire = card(driver)?;
    set_card_up(&wire);
    let numbers = NetSysfs::open(&Netns::current().unwrap()).unwrap().interrupts(&wire).unwrap();
    let mut interrupts = Interrupts::kernel().list().unwrap();
    interrupts.retain(|one| numbers.contains(&one.number));
    let nic = Nic { rx: 2, tx: 2, interrupts };
    let cpus = linux::cpu::online().unwrap();
    Some(Site { process: Place::Host, routes: Vec::new(), node: Place::Host, wire, cpus, nic })
}

fn plan(site: &Site, knobs: &[(&str, &str)]) -> Plan {
    let read = |(knob, value): &(&str, &str)| {
        Setting::named(knob, &RequestedValue::Text((*value).to_owned())).unwrap()
    };
    let mut settings: Vec<Setting> = knobs.iter().map(read).collect();
    settings.sort_by_key(Setting::rank);
    let mut plan = Plan::new();
    settings.iter().for_each(|setting| plan.extend(setting.plan(site)));
    plan
}

/// Two queues become one. When the second comes back, it must have its settings again.
#[test]
fn a_new_number_of_queues_gives_back_what_it_took() {
    let Some(site) = site("virtio_net") else { return };
    let netns = Netns::current().unwrap();
    let ethtool = Ethtool::open_in(&netns).unwrap();
    let sysfs = NetSysfs::open(&netns).unwrap();
    let queues = || ethtool.read(&site.wire, NicParameter::Channels).unwrap().unwrap().now;
    assert_eq!(queues(), 2, "as many as CPUs");
    // Set by hand, so undo must restore it.
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
    let Some(site) = site("virtio_net") else { return };
    let netns = Netns::current().unwrap();
    let before = dump(&netns);
    let all = [
        ("irq_affinity", "1"),
        ("rss_indirection", "1"),
        ("rss_hash_fields", "udp4 sd udp6 sd"),
        ("rss_hash_key", "symmetric"),
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
    // A table that counts as user-defined would prevent a reduction of the queues.
    there_and_back(&plan(&site, &[("channels", "1"), ("rss_indirection", "1")]), Fault::None, || {});
    before.assert_same(&dump(&netns), "after queues and their table");
    there_and_back(&plan(&site, &[("channels", "1")]), Fault::None, || {});
    before.assert_same(&dump(&netns), "after queues");
}

/// Features that virtio lacks: rings of variable size, interrupt delays, and queues that are set up again for
/// each of these.
#[test]
fn every_knob_of_a_card_with_rings_is_set_and_taken_back() {
    let Some(site) = site("igb") else { return };
    let netns = Netns::current().unwrap();
    let ethtool = Ethtool::open_in(&netns).unwrap();
    let before = dump(&netns);
    let all = [
        ("ring_rx", "512", NicParameter::RingRx),
        ("ring_tx", "512", NicParameter::RingTx),
        ("coalesce_rx_usecs", "50", NicParameter::CoalesceRxUsecs),
        ("channels", "1", NicParameter::Channels),
    ];
    for (knob, value, parameter) in all {
        let read = || ethtool.read(&site.wire, parameter).unwrap().unwrap().now.to_string();
        let old = read();
        there_and_back(&plan(&site, &[(knob, value)]), Fault::None, || assert_eq!(read(), value));
        assert_eq!(read(), old, "{knob}");
        before.assert_same(&dump(&netns), &format!("after {knob}"));
    }
    let together = all.map(|(knob, value, _)| (knob, value));
    let rest = [
        ("rss_indirection", "1"),
        ("rss_hash_fields", "udp4 sdfn udp6 sdfn"),
        ("irq_affinity", "1"),
        ("rps_cpus", "node"),
        ("tso", "0"),
        ("qdisc", "fq"),
    ];
    let together = plan(&site, &[together.as_slice(), &rest].concat());
    for step in 0..together.steps.len() {
        there_and_back(&together, Fault::AfterStep(step), || {});
        before.assert_same(&dump(&netns), &format!("after a fault behind step {step}"));
    }
}

/// This driver spreads flows in another way than the kernel proposes, so a table that is put back counts as set by a
/// user, and it makes a new one for more queues all the same.
#[test]
fn queues_come_and_go_where_a_table_was_put_back() {
    let Some(site) = site("igb") else { return };
    let netns = Netns::current().unwrap();
    let ethtool = Ethtool::open_in(&netns).unwrap();
    let queues = || ethtool.read(&site.wire, NicParameter::Channels).unwrap().unwrap().now;
    let before = dump(&netns);
    there_and_back(&plan(&site, &[("rss_indirection", "1")]), Fault::None, || {});
    before.assert_same(&dump(&netns), "after the table");
    for (knobs, there) in [
        (&[("channels", "4")][..], 4),
        (&[("channels", "1")], 1),
        (&[("channels", "4"), ("rss_indirection", "2")], 4),
    ] {
        let plan = plan(&site, knobs);
        for fault in [Fault::None, Fault::BeforeStep(0), Fault::DeadAfterLine(2)] {
            let there = if fault == Fault::None { there } else { 2 };
            there_and_back(&plan, fault, || assert_eq!(queues(), there, "{knobs:?}, {fault:?}"));
            before.assert_same(&dump(&netns), &format!("after {knobs:?}, {fault:?}"));
        }
    }
    // What a user has made is not given away for fewer queues than it needs.
    let mut table = ethtool.read_indirection(&site.wire).unwrap().unwrap();
    let made = table.clone();
    table[0] = 1;
    ethtool.write_indirection(&site.wire, &table).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let mut kernel = Kernel::new().unwrap();
    let error = apply(&plan(&site, &[("channels", "1")]), &mut journal, &mut kernel).unwrap_err().to_string();
    assert!(error.contains("too low for existing indirection table"), "{error}");
    undo(&mut journal, &mut kernel);
    assert_eq!((ethtool.read_indirection(&site.wire).unwrap(), queues()), (Some(table), 2));
    ethtool.write_indirection(&site.wire, &made).unwrap();
    before.assert_same(&dump(&netns), "after a table of a user");
}

/// A card with functions has other queues. They come back with the number of functions.
#[test]
fn virtual_functions_go_wherever_apply_died() {
    let Some(site) = site("igb") else { return };
    let netns = Netns::current().unwrap();
    let sysfs = NetSysfs::open(&netns).unwrap();
    let functions = || sysfs.functions(&site.wire).unwrap().len();
    let (before, wanted) = (dump(&netns), plan(&site, &[("virtual_functions", "2")]));
    // The third line of the journal says that the step is done.
    let faults = [Fault::None, Fault::AfterStep(0), Fault::DeadAfterLine(3)].map(|fault| (fault, 2));
    for (fault, made) in faults.into_iter().chain([(Fault::DeadAfterLine(2), 0)]) {
        there_and_back(&wanted, fault, || assert_eq!(functions(), made, "{fault:?}"));
        assert_eq!(functions(), 0, "{fault:?}");
        before.assert_same(&dump(&netns), &format!("after {fault:?}"));
    }
}

/// Sets a card's hash, checks the card, and undoes it: after the whole plan, and after apply died behind any
/// line of the journal.
fn there_and_back_of_hash(site: &Site, knobs: &[(&str, &str)]) {
    let netns = Netns::current().unwrap();
    let ethtool = Ethtool::open_in(&netns).unwrap();
    let key = || ethtool.read_hash_key(&site.wire).unwrap();
    let table = || ethtool.read_indirection(&site.wire).unwrap();
    let fields = |flow| ethtool.read_hash_fields(&site.wire, flow).unwrap().unwrap();
    let (before, old_table) = (dump(&netns), table());
    let symmetric = key().and_then(|key| HashKey::symmetric(key.len()));
    let plan = plan(site, knobs);
    there_and_back(&plan, Fault::None, || {
        let taken = [FlowType::Udp4, FlowType::Udp6].map(|flow| format!("{flow} {}", fields(flow)));
        assert_eq!(taken.join(" "), knobs[0].1);
        assert_eq!(key(), symmetric);
        assert_eq!(table(), old_table, "the key or the fields changed the indirection table");
    });
    before.assert_same(&dump(&netns), &format!("after {knobs:?}"));
    // The first line is the journal's header, and each step has two.
    for line in 1..=2 * plan.steps.len() {
        there_and_back(&plan, Fault::DeadAfterLine(line), || {});
        before.assert_same(&dump(&netns), &format!("after {knobs:?} that died behind line {line}"));
    }
}

#[test]
fn the_key_and_the_fields_of_the_hash_come_back_wherever_apply_died() {
    let Some(site) = site("virtio_net") else { return };
    there_and_back_of_hash(&site, &[("rss_hash_fields", "udp4 sd udp6 sd"), ("rss_hash_key", "symmetric")]);
}

/// This card has no key, and its fields are in separate registers.
#[test]
fn the_fields_of_a_card_without_a_key_come_back_wherever_apply_died() {
    let Some(site) = site("igb") else { return };
    let ethtool = Ethtool::open_in(&Netns::current().unwrap()).unwrap();
    assert_eq!(ethtool.read_hash_key(&site.wire).unwrap(), None);
    there_and_back_of_hash(&site, &[("rss_hash_fields", "udp4 sdfn udp6 sdfn")]);
}

/// Settings that a card does not support are refused before any change.
#[test]
fn what_a_card_cannot_do_is_refused() {
    let Some(site) = site("virtio_net") else { return };
    let refused = |knob| refused(&site, knob);
    let error = refused(("rss_hash_key", "6d:5a:6d"));
    assert!(error.contains("the hash key of eth0 has 40 bytes, the requested key has 3"), "{error}");
    assert!(refused(("channels", "5")).contains("the number of queues of eth0 can be 4 at most"));
    assert!(
        refused(("ring_rx", "65536")).contains("can be 256 at most"),
        "{}",
        refused(("ring_rx", "65536"))
    );
    let error = refused(("rx_checksum", "0"));
    assert!(error.contains("offload rx-checksum of eth0 cannot be switched off"), "{error}");
}

/// Why a card does not take a setting, which changes nothing.
fn refused(site: &Site, knob: (&str, &str)) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut journal = Journal::create(&directory.path().join("journal")).unwrap();
    let error = apply(&plan(site, &[knob]), &mut journal, &mut Kernel::new().unwrap()).unwrap_err();
    assert!(journal.is_undone(), "{knob:?} was begun");
    error.to_string()
}
