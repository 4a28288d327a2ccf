//! The two nodes of a race drawn, and what each data path puts between pod and wire, as far as the record shows it.

use super::departure;
use super::marks::{self, Venue};
use super::markup::Markup;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::table::{Cell, Row, Table};
use super::text;
use crate::{Summary, carried};
use record::{Placement, Side};

/// A node of the drawing.
struct Node<'a> {
    name: &'static str,
    cpus: &'a str,
    /// What its process is in.
    pod: &'static str,
    /// Some candidate has a pod here, and so a data path.
    has_pods: bool,
    process: &'a str,
    /// The CPUs that work on received packets, in words.
    receives: &'static str,
}

/// Writes the section on the topology.
pub(super) fn section(m: &mut Markup, summary: &Summary) {
    m.within("section", &[("id", "topology")], |m| {
        m.leaf("h2", &[], "Topology");
        m.leaf(
            "p",
            &[("class", "lead")],
            match summary.experiment.placement {
                Placement::TwoNodes => match marks::venue(summary) {
                    Venue::TwoMachines => {
                        "Two machines, each with its own kernel, CPUs and card. The data path is everything between a pod \
                         and the card, on both machines. The reference has no pods: client and server run on the machines \
                         themselves."
                    }
                    Venue::Cluster => {
                        "Two nodes of a Kubernetes cluster, with pairs of pods. The data path is everything between a \
                         client's socket and its server's, as the cluster has it. The reference's pods are in the network \
                         of their nodes."
                    }
                    Venue::OneMachine => {
                        "Two nodes on one machine, each with network namespaces and CPUs of its own, joined by a wire. The \
                         data path is everything between a pod and the wire, on both nodes. The reference has no pods: \
                         client and server run on the nodes themselves."
                    }
                },
                Placement::SameNode if marks::venue(summary) == Venue::Cluster => {
                    "Pairs of pods on one node of a Kubernetes cluster, as the cluster joins them. The reference's pods are in \
                     the network of their node, and talk over one of its own addresses."
                }
                Placement::SameNode => {
                    "Both pods are on one node; client and server have CPUs of their own. The data path is everything \
                    between the two pods. The reference has no pods: client and server run on the node itself and talk \
                    over its loopback."
                }
            },
        );
        for sentence in sentences(summary) {
            m.leaf("p", &[], &sentence);
        }
        m.within("figure", &[], |m| {
            let (wide, narrow) = match summary.experiment.placement {
                Placement::TwoNodes => (draw_wide(summary), draw_narrow(summary)),
                Placement::SameNode => (draw_one_wide(summary), draw_one_narrow(summary)),
            };
            m.append(&wide);
            m.append(&narrow);
        });
        departure::figures(m, summary);
        let rows = summary.candidates.iter().enumerate().map(|(index, candidate)| Row {
            name: candidate.name.clone(),
            candidate: candidate.runnable.then_some(index),
            cells: vec![
                Cell::words(marks::stands_for(candidate)),
                Cell::figure(candidate.mtu.map_or_else(|| text::NONE.to_owned(), |mtu| text::grouped(u64::from(mtu)))),
                Cell::words(match candidate.runnable {
                    true => "raced".to_owned(),
                    false => format!("could not run: {}", candidate.reasons.join("; ")),
                }),
            ],
        });
        let head = ["data path", "stands for", "pod MTU, bytes", "in this race"].map(str::to_owned).to_vec();
        Table { caption: "Data paths of this race", rows: rows.collect(), head }.write(m);
    });
}

/// Which candidates have a pod on one side alone, in words.
fn sentences(summary: &Summary) -> Vec<String> {
    let ends = [
        (Side::Client, "Only the client is in a pod, and the server runs on its node itself, of"),
        (Side::Server, "Only the server is in a pod, and the client runs on its node itself, of"),
    ];
    let sentence = |(side, words): (Side, &str)| {
        let alone = summary.experiment.candidates.iter().filter(|candidate| candidate.in_container == side);
        // The points of a line are one thing.
        let name = |candidate: &record::Candidate| match &candidate.swept {
            Some(swept) => swept.line.clone(),
            None => candidate.title(),
        };
        let mut names: Vec<String> = alone.map(name).collect();
        names.dedup();
        (!names.is_empty()).then(|| format!("{words}: {}.", names.join("; ")))
    };
    ends.into_iter().filter_map(sentence).collect()
}

/// Whether all candidates, some or none have a pod on a side, the client's or the server's. The host has none and does
/// not count; if no paths are named, all data paths race, and have pods on both sides.
fn pods(summary: &Summary, has: impl Fn(Side) -> bool) -> Pods {
    let contenders = summary.experiment.candidates.iter().filter(|candidate| candidate.path != "host");
    let have: Vec<bool> = contenders.map(|candidate| has(candidate.in_container)).collect();
    match (have.contains(&true), have.contains(&false)) {
        (_, false) => Pods::All,
        (true, true) => Pods::Some,
        (false, true) => Pods::None,
    }
}

/// How many candidates have a pod on a side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pods {
    All,
    Some,
    None,
}

fn nodes<'a>(summary: &'a Summary, client: &'a str) -> [Node<'a>; 2] {
    let (machine, machines) = (&summary.machine, marks::venue(summary) == Venue::TwoMachines);
    let receives = match machine.facts.get("receive steering") {
        Some(steering) if steering.starts_with("RPS") => "RPS: these CPUs process received packets",
        Some(_) => "the sender's CPUs process received packets",
        None => "",
    };
    let (of_client, of_server) = (pods(summary, Side::has_client), pods(summary, Side::has_server));
    [
        Node {
            name: if machines { "client's machine" } else { "client's node" },
            cpus: &machine.client_cpus,
            pod: match of_client {
                Pods::All => "client pod",
                Pods::Some => "client, in a pod or not",
                Pods::None => "client, in no pod",
            },
            has_pods: of_client != Pods::None,
            process: client,
            receives,
        },
        Node {
            name: if machines { "server's machine" } else { "server's node" },
            cpus: &machine.server_cpus,
            pod: match of_server {
                Pods::All => "server pod",
                Pods::Some => "server, in a pod or not",
                Pods::None => "server, in no pod",
            },
            has_pods: of_server != Pods::None,
            process: &summary.server,
            receives,
        },
    ]
}

fn client_text(summary: &Summary) -> String {
    format!("generator, {} connections", text::between(carried::connections(&summary.experiment)))
}

fn wire_name(summary: &Summary) -> String {
    if marks::venue(summary) != Venue::OneMachine {
        return "network".to_owned();
    }
    let ends = summary.experiment.underlay.card.map_or("veth", record::Card::name);
    format!("wire ({ends})")
}

fn wire_text(summary: &Summary) -> String {
    let mtu = match marks::venue(summary) {
        Venue::OneMachine => Some(summary.experiment.underlay.mtu),
        // What the reference has there; in a cluster each node knows its own.
        Venue::TwoMachines | Venue::Cluster => summary.candidates.first().and_then(|reference| reference.mtu),
    };
    mtu.map_or(String::new(), |mtu| format!("MTU {}", text::grouped(u64::from(mtu))))
}

const ONE_NODE: Caption = Caption {
    title: "Topology of the race",
    desc: "From left to right, all on one node: the client pod, the data path, the server pod.",
};

/// The boxes of a race on one node: class, name, detail.
fn boxes(summary: &Summary, client: &str, most: usize) -> [(&'static str, String, String); 3] {
    let machine = &summary.machine;
    let pod = |name: &str, cpus: &str, process: &str| {
        ("pod", marks::fitting(&format!("{name} · CPU {cpus}"), most), marks::fitting(process, most))
    };
    [
        pod("client pod", &machine.client_cpus, client),
        ("under-test", "data path".to_owned(), "what is raced".to_owned()),
        pod("server pod", &machine.server_cpus, &summary.server),
    ]
}

fn draw_one_wide(summary: &Summary) -> Markup {
    let mut svg = Svg::new();
    svg.rect("node", Rect { x: 4.0, y: 8.0, width: 1112.0, height: 152.0 });
    svg.text("strong", at(20.0, 32.0), Anchor::Start, "the node");
    for (index, (class, name, detail)) in boxes(summary, &client_text(summary), 36).iter().enumerate() {
        let x = 24.0 + 386.0 * index as f64;
        draw_box(&mut svg, class, Rect { x, y: 54.0, width: 300.0, height: 80.0 }, (name, detail));
        if index > 0 {
            svg.line("wire", at(x - 86.0, 94.0), at(x, 94.0));
        }
    }
    svg.finish(Frame::Wide, 168.0, ONE_NODE)
}

fn draw_one_narrow(summary: &Summary) -> Markup {
    let mut svg = Svg::new();
    svg.rect("node", Rect { x: 4.0, y: 4.0, width: 372.0, height: 270.0 });
    svg.text("strong", at(18.0, 26.0), Anchor::Start, "the node");
    for (index, (class, name, detail)) in boxes(summary, &client_text(summary), 32).iter().enumerate() {
        let y = 40.0 + 78.0 * index as f64;
        draw_box(&mut svg, class, Rect { x: 60.0, y, width: 260.0, height: 54.0 }, (name, detail));
        if index > 0 {
            svg.line("wire", at(190.0, y - 24.0), at(190.0, y));
        }
    }
    svg.finish(Frame::Narrow, 282.0, ONE_NODE)
}

/// What the drawing shows, where the nodes have pods or not.
fn caption(nodes: &[Node; 2]) -> Caption<'static> {
    let desc = match nodes.each_ref().map(|node| node.has_pods) {
        [true, true] => {
            "From left to right: the client pod, the data path on the client's node, the wire, the data path on the \
             server's node, the server pod."
        }
        [true, false] => {
            "From left to right: the client pod, the data path on the client's node, the wire, the server on its node."
        }
        [false, true] => {
            "From left to right: the client on its node, the wire, the data path on the server's node, the server pod."
        }
        [false, false] => "From left to right: the client on its node, the wire, the server on its node.",
    };
    Caption { title: "Topology of the race", desc }
}

fn draw_wide(summary: &Summary) -> Markup {
    let mut svg = Svg::new();
    let (client, wire) = (client_text(summary), wire_text(summary));
    let nodes = nodes(summary, &client);
    let [left, right] = &nodes;
    draw_node(&mut svg, left, Rect { x: 4.0, y: 8.0, width: 476.0, height: 172.0 }, false);
    draw_node(&mut svg, right, Rect { x: 640.0, y: 8.0, width: 476.0, height: 172.0 }, true);
    svg.line("wire", at(480.0, 102.0), at(640.0, 102.0));
    svg.text("name", at(560.0, 90.0), Anchor::Middle, &wire_name(summary));
    svg.text("tick", at(560.0, 124.0), Anchor::Middle, &wire);
    svg.finish(Frame::Wide, 188.0, caption(&nodes))
}

fn draw_node(svg: &mut Svg, node: &Node, area: Rect, mirrored: bool) {
    let x = |offset: f64, width: f64| match mirrored {
        false => area.x + offset,
        true => area.x + area.width - offset - width,
    };
    svg.rect("node", area);
    svg.text("strong", at(x(16.0, 0.0), area.y + 24.0), side(mirrored), &node_text(node, 44));
    let pod = Rect { x: x(16.0, 222.0), y: 62.0, width: 222.0, height: 80.0 };
    draw_box(svg, "pod", pod, (node.pod, &marks::fitting(node.process, 30)));
    if node.has_pods {
        let path = Rect { x: x(286.0, 128.0), y: 62.0, width: 128.0, height: 80.0 };
        draw_box(svg, "under-test", path, ("data path", "what is raced"));
        svg.line("wire", at(x(238.0, 0.0), 102.0), at(x(286.0, 0.0), 102.0));
        svg.line("wire", at(x(414.0, 0.0), 102.0), at(x(476.0, 0.0), 102.0));
    } else {
        svg.line("wire", at(x(238.0, 0.0), 102.0), at(x(476.0, 0.0), 102.0));
    }
    svg.text("tick", at(x(445.0, 0.0), 92.0), Anchor::Middle, "wire end");
    svg.text("tick", at(x(16.0, 0.0), 166.0), side(mirrored), node.receives);
}

fn side(mirrored: bool) -> Anchor {
    if mirrored { Anchor::End } else { Anchor::Start }
}

fn node_text(node: &Node, most: usize) -> String {
    marks::fitting(&format!("{} · CPU {}", node.name, node.cpus), most)
}

fn draw_box(svg: &mut Svg, class: &str, area: Rect, (name, detail): (&str, &str)) {
    svg.rect(class, area);
    let middle = area.x + area.width / 2.0;
    svg.text("strong", at(middle, area.y + area.height / 2.0 - 4.0), Anchor::Middle, name);
    svg.text("tick", at(middle, area.y + area.height / 2.0 + 16.0), Anchor::Middle, detail);
}

fn draw_narrow(summary: &Summary) -> Markup {
    let mut svg = Svg::new();
    let (client, wire) = (client_text(summary), wire_text(summary));
    let nodes = nodes(summary, &client);
    for (index, node) in nodes.iter().enumerate() {
        // The pods are the outermost, so that the wire lies between the data paths.
        let (top, pod_y, path_y) = if index == 0 { (4.0, 40.0, 122.0) } else { (260.0, 376.0, 296.0) };
        svg.rect("node", Rect { x: 4.0, y: top, width: 372.0, height: 184.0 });
        svg.text("strong", at(18.0, top + 24.0), Anchor::Start, &node_text(node, 40));
        let pod = Rect { x: 60.0, y: pod_y, width: 260.0, height: 54.0 };
        draw_box(&mut svg, "pod", pod, (node.pod, &marks::fitting(node.process, 34)));
        if node.has_pods {
            let path = Rect { x: 60.0, y: path_y, width: 260.0, height: 54.0 };
            draw_box(&mut svg, "under-test", path, ("data path", "what is raced"));
        }
    }
    // From pod to path, over the wire, from path to pod; past where no path is.
    let lines: &[(f64, f64)] = match nodes.each_ref().map(|node| node.has_pods) {
        [true, true] => &[(94.0, 122.0), (176.0, 296.0), (350.0, 376.0)],
        [true, false] => &[(94.0, 122.0), (176.0, 376.0)],
        [false, true] => &[(94.0, 296.0), (350.0, 376.0)],
        [false, false] => &[(94.0, 376.0)],
    };
    for (from, to) in lines {
        svg.line("wire", at(190.0, *from), at(190.0, *to));
    }
    svg.text("name", at(202.0, 220.0), Anchor::Start, &wire_name(summary));
    svg.text("tick", at(202.0, 238.0), Anchor::Start, &wire);
    svg.finish(Frame::Narrow, 450.0, caption(&nodes))
}

#[cfg(test)]
mod tests {
    use super::super::{fixture, page};
    use super::*;

    /// The page of a race of docker with these sides in containers, one candidate each.
    fn of(sides: &[Side]) -> String {
        let mut summary = fixture::race();
        let docker = |side: &Side| record::Candidate {
            path: "docker".to_owned(),
            in_container: *side,
            ..record::Candidate::default()
        };
        summary.experiment.candidates = sides.iter().map(docker).collect();
        page(&summary)
    }

    /// Checks the page's text for both sides, and the number of data paths in its two drawings.
    #[track_caller]
    fn check(sides: &[Side], says: &[&str], paths: usize) {
        let page = of(sides);
        for text in says {
            assert!(page.contains(text), "{sides:?}: no {text:?}");
        }
        assert_eq!(page.matches(">what is raced<").count(), paths, "{sides:?}");
    }

    #[test]
    fn two_machines_are_not_drawn_as_nodes_of_one() {
        let mut summary = fixture::race();
        let facts = "ssh://b: Linux 6.12, 8 CPUs".to_owned();
        summary.machine.facts.insert("server's machine".to_owned(), facts);
        summary.machine.facts.remove("receive steering");
        summary.candidates[0].mtu = Some(9000);
        let page = page(&summary);
        for text in [
            "Two machines, each with its own kernel",
            ">network<",
            ">server&#39;s machine",
            "for each of its visits",
        ] {
            assert!(page.contains(text), "no {text:?}");
        }
        assert!(page.contains(&format!("MTU {}", text::grouped(9000))));
        assert!(!page.contains("wire (veth)") && !page.contains("exist at the same time"));
    }

    #[test]
    fn a_wire_between_cards_is_named_after_them() {
        let mut summary = fixture::race();
        summary.experiment.underlay.card = Some(record::Card::Igb);
        let page = page(&summary);
        assert!(page.contains("wire (igb)") && !page.contains("wire (veth)"));
    }

    #[test]
    fn a_side_without_pods_is_drawn_without_a_data_path() {
        let client =
            "Only the client is in a pod, and the server runs on its node itself, of: docker, client only.";
        let server =
            "Only the server is in a pod, and the client runs on its node itself, of: docker, server only.";
        check(&[Side::Both], &[">client pod<", ">server pod<"], 4);
        check(
            &[Side::Client],
            &[client, ">client pod<", ">server, in no pod<", "the server on its node."],
            2,
        );
        check(&[Side::Server], &[server, ">client, in no pod<", ">server pod<"], 2);
        check(&[Side::Both, Side::Client], &[client, ">client pod<", ">server, in a pod or not<"], 4);
        check(&[Side::Client, Side::Server], &[client, server, ">client, in a pod or not<"], 4);
        assert!(!of(&[Side::Both]).contains("In a pod is"));
    }
}
