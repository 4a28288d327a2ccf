//! Faults of network cards, on the cards of our virtual machine.

use doctor::Diagnosis;
use linux::ethtool::{Ethtool, NicParameter};
use linux::interrupts::{Interrupts, queue_of};
use linux::sysfs::{NetSysfs, Queue};
use linux::{CpuSet, IfName, Netlink, Netns};
use testkit::{Cards, card};

use super::machine::watch_here;
use super::{check_known, check_quiet, is_foremost, repeat, sleep};

/// The interrupts of a card's queues. Dropping it restores their CPUs.
struct Placed {
    interrupts: Interrupts,
    old: Vec<(u32, CpuSet)>,
}

impl Placed {
    fn of(card: &IfName) -> Placed {
        let own = NetSysfs::open(&Netns::current().unwrap()).unwrap().interrupts(card).unwrap();
        let interrupts = Interrupts::kernel();
        let all = interrupts.list().unwrap();
        let queues = all.iter().filter(|one| own.contains(&one.number) && queue_of(&one.name).is_some());
        let old =
            queues.map(|one| (one.number, interrupts.read_cpus(one.number).unwrap().unwrap())).collect();
        Placed { interrupts, old }
    }

    fn all_on(&self, cpu: &str) {
        let cpus = cpu.parse().unwrap();
        self.old.iter().for_each(|(number, _)| self.interrupts.write_cpus(*number, &cpus).unwrap());
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        self.old.iter().for_each(|(number, cpus)| drop(self.interrupts.write_cpus(*number, cpus)));
    }
}

/// Undoes a test's change when dropped, even after a failure: later tests use the same cards.
struct PutBack<F: FnMut() -> linux::Result<()>>(F);

impl<F: FnMut() -> linux::Result<()>> Drop for PutBack<F> {
    fn drop(&mut self) {
        let _ = (self.0)();
    }
}

/// Checks that this finding is the first of all, whatever their subject.
#[track_caller]
fn check_foremost(diagnosis: &Diagnosis, code: &str) {
    is_foremost(diagnosis, code).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn interrupts_on_one_cpu_are_named() {
    let Some(cards) = Cards::new("virtio_net", "vmxnet3") else { return };
    let placed = Placed::of(&cards.home);
    placed.all_on("0");
    let flood = cards.flood();
    // An interrupt moves when it next fires: the first window may still see them on both CPUs.
    repeat(|diagnosis| is_foremost(diagnosis, "HG010"), || watch_here(|| sleep(3000)));
    drop(flood);
}

/// Bursts larger than the ring, each from a single send that is cut into segments.
#[test]
fn a_tiny_ring_is_named() {
    let Some(cards) = Cards::new("vmxnet3", "virtio_net") else { return };
    let ethtool = Ethtool::open_in(&Netns::current().unwrap()).unwrap();
    let old = ethtool.read(&cards.home, NicParameter::RingRx).unwrap().unwrap();
    let small = PutBack(|| ethtool.write(&cards.home, NicParameter::RingRx, old.now));
    ethtool.write(&cards.home, NicParameter::RingRx, 32).unwrap();
    cards.await_way();
    let diagnosis = watch_here(|| {
        for _ in 0..30 {
            cards.burst(50);
            // Each burst meets an empty ring.
            sleep(50);
        }
    });
    drop(small);
    check_foremost(&diagnosis, "HG030");
    let proposal = &diagnosis.findings[0].seen.proposals[0];
    assert_eq!((proposal.knob, proposal.value.as_str()), ("ring_rx", "64"));
}

#[test]
fn a_card_whose_queues_are_steered_badly_is_known() {
    let Some(card) = card("virtio_net") else { return };
    let netlink = Netlink::open().unwrap();
    netlink.link_set_up(netlink.index_of(&card).unwrap(), true).unwrap();
    let sysfs = NetSysfs::open(&Netns::current().unwrap()).unwrap();
    let all: CpuSet = linux::cpu::online().unwrap();
    let clean = watch_here(|| ());
    check_quiet(&clean);
    for code in ["HG006", "HG022", "HG024"] {
        assert!(clean.findings.iter().all(|finding| finding.check.code != code), "{code}");
    }
    let spread = PutBack(|| sysfs.write_queue_cpus(&card, Queue::Rx(0), &CpuSet::default()));
    sysfs.write_queue_cpus(&card, Queue::Rx(0), &all).unwrap();
    check_known(&watch_here(|| ()), "HG006");
    drop(spread);

    let queues = [Queue::Tx(0), Queue::Tx(1)];
    let before = queues.map(|queue| (queue, sysfs.read_queue_cpus(&card, queue).unwrap()));
    let without =
        PutBack(|| before.iter().try_for_each(|(queue, cpus)| sysfs.write_queue_cpus(&card, *queue, cpus)));
    queues.iter().for_each(|queue| sysfs.write_queue_cpus(&card, *queue, &CpuSet::default()).unwrap());
    check_known(&watch_here(|| ()), "HG024");
    drop(without);

    let _table = PutBack(|| sysfs.write_queue_flows(&card, 0, 0));
    sysfs.write_queue_flows(&card, 0, 4096).unwrap();
    check_known(&watch_here(|| ()), "HG022");
}
