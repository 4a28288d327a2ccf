//! The table of data paths and the pages behind it.

use datapath::{
    ALL, Between, DataPath, Enters, Family, PacketCounter, PacketDirection, Protocol, Reach, SocketRole,
};

use crate::accepted;
use crate::traces::Case;

#[test]
fn the_table_is_what_the_list_says() {
    accepted::check("../../docs/datapaths/README.md", &table());
}

/// The headings of every page, in order.
const HEADINGS: &[&str] =
    &["## What it stands for", "## A packet's way", "## What it needs", "## MTU", "## Limits", "## Sources"];

#[test]
fn every_path_has_a_page_with_the_same_headings() {
    for path in ALL {
        let file = format!("{}/../../docs/datapaths/{}.md", env!("CARGO_MANIFEST_DIR"), path.name);
        let page = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(page.starts_with(&format!("# {}\n", path.name)), "{file} has another title");
        let found: Vec<_> = page.lines().filter(|line| line.starts_with("## ")).collect();
        assert_eq!(found, HEADINGS, "{file}");
    }
}

fn table() -> String {
    let mut text = String::from(
        "# Data paths\n\n\
         A data path is how a pod reaches its node (*attach*) times how nodes reach each other's pods (*transport*).\n\
         This table is made from the list in the code by a test of the crate `datapath`; to make it again:\n\
         `cargo xtask golden datapath`.\n\n\
         | data path | stands for | attach | transport | clients call | between the nodes | pod MTU on 1500 | needs |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for path in ALL {
        text.push_str(&row(path));
    }
    text.push_str(
        "\nServers may also answer on a stack of their own: [`afxdp`](afxdp.md), \
         [`vhost-user`](ovs-dpdk+direct.md), [`verbs`](verbs.md). What does not race, why, and \
         what there is in its place: [not raced](not-raced.md). `hostgap paths` lists all of them with what this machine lacks.\n",
    );
    text.push_str(
        "\n## Families\n\n\
         Each data path carries IPv4, IPv6 or both, and asks of the kernel only what the pods have: on a machine that was \
         started with `ipv6.disable=1` all of them work for IPv4, and a network of IPv6 alone needs no address of IPv4. \
         The underlay must have the pods' families, except under a tunnel, which needs the one of its outer packets.\n\n\
         A topology of `race`, `tune search` and `lab up` has both families, or IPv4 alone where the kernel has no IPv6; \
         none has IPv6 alone. Clients call by IPv4, or by IPv6 with `--ipv6`.\n",
    );
    text.push_str(
        "\n## What shows that packets took a path\n\n\
         After each trial of a race these counters must have grown by at least what its answers took, in both directions, \
         and those of the last column by next to nothing ([method](../method.md)). Each end has the same counters; here \
         are the client's. *routes*: packets that the namespace forwarded (`IpForwDatagrams`, `Ip6OutForwDatagrams`).\n\n\
         | data path | between two nodes | on one node | must not count |\n\
         |---|---|---|---|\n",
    );
    for path in ALL {
        let [remote, neighbour] = [false, true].map(|same_node| Case::new(path, same_node));
        let mut hidden = counters(&remote, false);
        let alone = counters(&neighbour, false);
        let more =
            alone.iter().filter(|name| !hidden.contains(name)).map(|name| format!("{name} on one node"));
        let more: Vec<String> = more.collect();
        hidden.extend(more);
        let [remote, neighbour] = [remote, neighbour].map(|case| counters(&case, true).join(", "));
        let hidden = hidden.join(", ");
        text.push_str(&format!("| [`{0}`]({0}.md) | {remote} | {neighbour} | {hidden} |\n", path.name));
    }
    text.push_str(
        "\n## One side in a container\n\n\
         A race may have a pod on one side alone (`in_container`, [experiment](../experiment.md#one-side-in-a-container)); the \
         other side is then the other node itself. The counters above must then grow on the node that has the pod, and the \
         other node's routes must not count.\n\n\
         | data path | the client alone | the server alone |\n\
         |---|---|---|\n",
    );
    for path in ALL {
        let [client, server] = [SocketRole::Client, SocketRole::Server].map(|part| match path.alone(part) {
            Ok(()) => "yes".to_owned(),
            Err(error) => format!("no: {}", error.why),
        });
        text.push_str(&format!("| [`{0}`]({0}.md) | {client} | {server} |\n", path.name));
    }
    text
}

/// The client's counters that must, or must not, show the path's packets.
fn counters(case: &Case, shown: bool) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for trace in case.traces(Protocol::Tcp) {
        let place = case.called(&trace.place);
        if place.is_empty() || (trace.packets != PacketDirection::None) != shown {
            continue;
        }
        let name = match &trace.counter {
            PacketCounter::Sent(link) if !shown => format!("sent by {place} `{link}`"),
            PacketCounter::Received(link) | PacketCounter::Sent(link) => format!("{place} `{link}`"),
            PacketCounter::Forwarded => format!("{place} routes"),
            PacketCounter::Delivered => format!("{place} sockets"),
            PacketCounter::Spliced(_) => "messages past TCP".to_owned(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn row(path: &DataPath) -> String {
    let reach = match path.reach {
        Reach::Node => "the node's address",
        Reach::PublishedPort => "a published port of the node",
        Reach::Pod => "the pod's address",
    };
    let between = match path.between {
        Between::Wire => "one Ethernet",
        Between::Router => "a router",
    };
    let entry = match path.enters {
        Enters::Always => "",
        Enters::Named => " (races only if named)",
    };
    let needs: Vec<_> = path.needs().iter().map(ToString::to_string).collect();
    format!(
        "| [`{0}`]({0}.md) | {1}{entry} | {2} | {3} | {reach} | {between} | {4} | {5} |\n",
        path.name,
        path.stands_for,
        path.attach.name(),
        path.transport.name(),
        mtu(path),
        needs.join(", ")
    )
}

/// Both MTUs where the outer family makes a difference.
fn mtu(path: &DataPath) -> String {
    if let Some(mtu) = path.attach.relay_mtu() {
        return mtu.to_string();
    }
    let [v4, v6] = Family::BOTH.map(|outer| 1500 - path.transport.overhead_bytes(outer, 1500));
    if v4 == v6 { v4.to_string() } else { format!("{v4}, over IPv6 {v6}") }
}
