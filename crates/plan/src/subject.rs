//! What a step is about, as a phrase, and what to say when it is no longer so.

use linux::{FdbEntry, Neighbour};

use crate::Step;
use crate::forwarding::{Attachment, Endpoint, Member, Programs, Splice, Tunnel};

/// Nothing is left of what the step made.
pub(crate) fn gone(step: &Step) -> String {
    match step {
        Step::AttachProgram(Attachment { program, link, .. }) => {
            format!("program {} is no longer at link {link}", program.name())
        }
        Step::AttachSplice(Splice { node }) => {
            format!("the splice of {node} is no longer at its control group")
        }
        step => format!("{} is gone", subject(step)),
    }
}

/// Something else is there now.
pub(crate) fn now(step: &Step, found: &str) -> String {
    match step {
        Step::SetLinkMaster { link, master } => {
            format!("link {link} is no longer a port of {master} but {found}")
        }
        Step::SetLinkUp { link } => format!("link {link} is {found}"),
        step => format!("{} is now {found}", subject(step)),
    }
}

fn subject(step: &Step) -> String {
    match step {
        Step::AddNetns => "the namespace".to_owned(),
        Step::AddLink(link) => format!("link {}", link.name),
        Step::MoveLink { name, .. } => format!("link {name}"),
        Step::SetLinkUp { link } | Step::SetLinkMaster { link, .. } => format!("link {link}"),
        Step::SetLinkMtu { link, .. } => format!("the MTU of link {link}"),
        Step::SetHairpin { link } => format!("hairpin mode of link {link}"),
        Step::AddAddress { link, address } => format!("address {address} of link {link}"),
        Step::AddRoute(route) => format!("the route to {}", route.dst),
        Step::AddNeighbour(Neighbour { dev, ip, .. }) => format!("neighbour {ip} of link {dev}"),
        Step::AddFdb(FdbEntry { dev, mac, .. }) => format!("the forwarding entry for {mac} of link {dev}"),
        Step::SetSysctl { key, .. } => key.to_string(),
        Step::AddNftTable(table) => format!("nftables table {} {}", table.family.name(), table.name),
        Step::SetQueueCpus { link, queue, .. } => format!("the set of CPUs of {queue} of link {link}"),
        Step::SetQueueFlows { link, rx, .. } => format!("the number of flows of rx-{rx} of link {link}"),
        Step::SetRouteMetric { dst, metric, .. } => format!("{} of the route to {dst}", metric.word()),
        Step::SetGsoMaxSegs { link, .. } => format!("the segments of a packet of link {link}"),
        Step::SetRootQdisc { link, .. } => format!("the queueing discipline of link {link}"),
        Step::SetNic { link, parameter, .. } => format!("{parameter} of link {link}"),
        Step::SetIndirection { link, .. } => format!("the indirection table of link {link}"),
        Step::SetRssHash { link, hash } => format!("{} of link {link}", hash.subject()),
        Step::SetLinkAttribute { link, attribute, .. } => format!("{attribute} of link {link}"),
        Step::SetDebug { file, .. } => file.to_string(),
        Step::SetModule { parameter, .. } => parameter.to_string(),
        Step::SetIrqCpus { irq, name, .. } => format!("the set of CPUs of interrupt {irq} ({name})"),
        Step::LoadPrograms(Programs { node, .. }) => format!("the bpffs with the programs of {node}"),
        Step::AttachProgram(Attachment { program, link, .. }) => {
            format!("program {} at link {link}", program.name())
        }
        Step::AddEndpoint(Endpoint { node, link, .. }) => {
            format!("the entry for the pod at link {link} in the maps of {node}")
        }
        Step::AddTunnel(Tunnel { node, prefix, .. }) => {
            format!("the entry for the tunnel to {prefix} in the maps of {node}")
        }
        Step::AddCgroup(Splice { node }) => format!("the control group of {node}"),
        Step::LoadSplice(Splice { node }) => format!("the splice of {node}"),
        Step::AttachSplice(Splice { node }) => format!("the splice of {node} at its control group"),
        Step::AddMember(Member { node, .. }) => format!("the entry for the pod in the splice of {node}"),
    }
}
