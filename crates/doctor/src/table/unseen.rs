//! What cannot be seen from here.

use linux::Device;

use crate::finding::USUAL;
use crate::{Check, CheckGroup, Observation, Window};

/// Drivers whose hypervisor drops packets without a counter in the guest. That of vmxnet3 reports them ("pkts rx OOB").
/// The one of Xen (xen-netfront) has the name of its device: `netfront_driver` names itself in its list of ids alone.
const PARAVIRTUAL: [&str; 3] = ["virtio_net", "vif", "hv_netvsc"];
/// Drivers of virtual functions, whose card drops packets without a counter for the function.
const FUNCTIONS: [&str; 5] = ["ixgbevf", "iavf", "igbvf", "hinic_vf", "mana"];

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "Blind spots",
    checks: &[
        Check {
            code: "HG140",
            title: "drops of this card's packets by the hypervisor cannot be seen",
            why: "A paravirtual card has no counter for packets that the host dropped on the way. Zero drops here prove nothing.",
            remedy: "check the counters of the host's end (tap, vhost), or count packets at the peer",
            verify: "the counts sent there and received here are equal",
            source: "virtio 1.2, network device: no such counter",
            run: paravirtual,
            ..USUAL
        },
        Check {
            code: "HG141",
            title: "drops in the card before this virtual function cannot be seen",
            why: "The physical function and the switch in the card drop excess packets, and only their owner sees the counters.",
            remedy: "ask the owner of the physical function for its counters",
            verify: "the counts sent there and received here are equal",
            source: "Documentation/networking/sriov.rst",
            run: functions,
            ..USUAL
        },
        Check {
            code: "HG142",
            title: "part of this machine could not be read",
            why: "Faults in parts that could not be read are not found.",
            remedy: "if the kernel refuses access: run it as root, on the host",
            verify: "this finding is gone",
            source: "proc(5), sysfs(5)",
            run: refused,
            ..USUAL
        },
        Check {
            code: "HG143",
            title: "this is a container's network: the host's cards cannot be seen from it",
            why: "Interrupts, rings and drops of the card belong to the host. CPU time and backlogs are those of \
                  the whole machine, even as seen from here.",
            remedy: "run doctor on the host as well",
            verify: "the host's findings",
            source: "network_namespaces(7)",
            run: container,
            ..USUAL
        },
    ],
};

fn driven(window: &Window<'_>, drivers: &[&str]) -> Vec<Observation> {
    let is_one = |device: &&Device| device.driver.as_deref().is_some_and(|driver| drivers.contains(&driver));
    let cards = window.after.devices.iter().filter(|device| device.up).filter(is_one);
    let seen = |card: &Device| {
        let driver = card.driver.as_deref().unwrap_or_default();
        let from = format!("/sys/class/net/{}/device/uevent", card.name);
        Observation::information().on(&card.name).saw(format!("its driver is {driver}"), from)
    };
    cards.map(seen).collect()
}

fn paravirtual(window: &Window<'_>) -> Vec<Observation> {
    driven(window, &PARAVIRTUAL)
}

fn functions(window: &Window<'_>) -> Vec<Observation> {
    driven(window, &FUNCTIONS)
}

fn refused(window: &Window<'_>) -> Vec<Observation> {
    let all = window.after.unseen.len();
    if all == 0 {
        return Vec::new();
    }
    let things = if all == 1 { "1 file or answer".to_owned() } else { format!("{all} files or answers") };
    vec![
        Observation::information()
            .saw(format!("{things}, which are listed as not seen"), "the kernel's refusals"),
    ]
}

fn container(window: &Window<'_>) -> Vec<Observation> {
    let hardware = window.after.devices.iter().any(|device| device.hardware);
    if hardware || window.after.devices.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = window.after.devices.iter().map(|device| device.name.as_str()).take(8).collect();
    vec![
        Observation::information()
            .saw(format!("no link with hardware; there are {}", names.join(", ")), "/sys/class/net"),
    ]
}
