//! Which contenders can race between machines, and why others cannot.

use std::net::IpAddr;

use datapath::{Between, DataPath, Family, Reach, SocketRole};
use linux::features::{Facts, Feature};
use record::{Side, Workload};
use tune::Settings;

use crate::remote::Machines;
use crate::remote::order::{Order, prove_side};
use crate::remote::refusal;
use crate::shape::MachineNodes;
use crate::side_settings::is_of_route;
use crate::{Contender, LabError, Shape};

/// Says of contenders that cannot race between the machines why; an error where one is required. Sends settings by the
/// way that is open on this machine, which has `facts`.
pub(crate) fn leave_out(
    contenders: &mut [Contender],
    machines: &Machines,
    workload: &Workload,
    facts: &Facts,
) -> Result<(), LabError> {
    if contenders.len() > usize::from(MachineNodes::NUMBER_MAX) {
        let why = "each has a network of its own in 198.18.0.0/15";
        return Err(refusal("more than 511 candidates", "between two machines", why));
    }
    for (number, contender) in (0..).zip(contenders) {
        let mut unmet = unmet(contender, machines);
        if unmet.is_empty() && !contender.settings.is_empty() {
            let shape = Shape::between_machines(contender.path, machines.nodes(number), workload);
            let mut shape = Shape { settings: contender.settings.clone(), ..shape };
            unmet = prove_side(&mut shape, SocketRole::Client, facts)?;
            unmet.extend(machines.unmet(&Order::of(&contender.name, &shape, workload, None))?);
            contender.settings = shape.settings;
        }
        contender.cannot(unmet)?;
    }
    Ok(())
}

/// Why a candidate cannot race between machines, beside what this machine's kernel lacks.
fn unmet(contender: &Contender, machines: &Machines) -> Vec<String> {
    let lacks = |(whose, there, _): (String, &Facts, Option<IpAddr>)| -> Vec<String> {
        contender.path.unmet(there).iter().map(|unmet| format!("{whose}: {unmet}")).collect()
    };
    let mut unmet: Vec<String> = machines.facts().flat_map(lacks).collect();
    let asks = [
        (contender.cni.is_some(), "CNI plugins are not called on another machine"),
        (!contender.ways.is_empty(), "the wire is a real one"),
        (
            contender.in_container != Side::Both,
            "a side without a container is not distinguished from the host here",
        ),
        (!contender.proxy.is_empty(), "proxies are not started on another machine"),
        (!contender.stack.is_usual(), "a server on another machine has the kernel's stack and sleeps"),
        (contender.filter.is_some(), "frames are judged on the machine that makes them"),
    ];
    unmet.extend(asks.into_iter().filter(|(is, _)| *is).map(|(_, why)| why.to_owned()));
    let router = machines.facts().find_map(|(_, _, router)| router);
    unmet.extend(of_path(contender.path, router));
    unmet.extend(router.filter(|_| contender.path.reach == Reach::Node && has_route_settings(contender)).map(|router| {
        format!("the machines are not neighbours: the route by {router} is others' too, and its settings would be theirs")
    }));
    unmet
}

fn has_route_settings(contender: &Contender) -> bool {
    let Settings { client, server } = &contender.settings;
    client.iter().chain(server).any(is_of_route)
}

/// What a data path would do to a machine's card or needs of the way between the two.
fn of_path(path: &DataPath, router: Option<IpAddr>) -> Option<String> {
    if path.attach.takes_host_link() || !path.attach.leads_out() {
        let why = "its pods have addresses of their own on the machine's card, and switches and clouds drop what they \
                   have not given out";
        return Some(why.to_owned());
    }
    if path.needs().iter().any(|feature| matches!(feature, Feature::WireGuard | Feature::IpSec)) {
        return Some("the keys of its tunnel are not sent to another machine".to_owned());
    }
    let is_switch = |feature: &Feature| matches!(feature, Feature::OpenVSwitch | Feature::OpenVSwitchAfXdp);
    if path.needs().iter().any(is_switch) {
        return Some("a machine has one Open vSwitch, which is its own".to_owned());
    }
    if path.attach.relay_mtu().is_some() {
        return Some("the processes of its pods would have the CPUs of a whole machine".to_owned());
    }
    if path.between == Between::Router {
        return Some("it needs the route table of a cloud".to_owned());
    }
    let has_tunnel = path.transport.overhead_bytes(Family::V4, ETHERNET_MTU) > 0;
    let router = router.filter(|_| path.reach == Reach::Pod && !has_tunnel)?;
    Some(format!("the machines are not neighbours: {router} lies between them and has no route to the pods"))
}

/// The MTU of an Ethernet without jumbo frames, in bytes.
const ETHERNET_MTU: u32 = 1500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_take_the_machine_s_card_or_a_secret_does_not_race() {
        let router = Some(IpAddr::from([10, 0, 0, 1]));
        let raced = |router| -> Vec<&str> {
            datapath::ALL
                .iter()
                .filter(|path| of_path(path, router).is_none())
                .map(|path| path.name)
                .collect()
        };
        assert_eq!(
            raced(None),
            [
                "host",
                "docker",
                "bridge+direct",
                "bridge+vxlan",
                "ptp+direct",
                "ptp+vxlan",
                "ebpf+direct",
                "ebpf+vxlan",
                "ebpf+sockmap",
                "netkit+direct"
            ]
        );
        assert_eq!(raced(router), ["host", "docker", "bridge+vxlan", "ptp+vxlan", "ebpf+vxlan"]);
    }
}
