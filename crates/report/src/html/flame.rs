//! A flame graph: stacks with a common beginning lie on one another, and a box is as wide as the samples that went
//! through its function. Its colours show the part of the kernel, or the function's difference from the reference.
//!
//! Widths are shares of the window, so that letters keep their size. Each box is a separate drawing, which clips its
//! name. All boxes are there without the script, which adds zooming and searching.

use std::collections::BTreeMap;

use super::markup::Markup;
use super::svg::number;
use super::text;
use crate::PathPart;

/// A box below this share of the width, in per cent, is left out: two pixels of a wide window.
const LEAST_PERCENT: f64 = 0.18;
/// The height of a box, in pixels.
const ROW: usize = 17;
/// Names are not written into boxes below this width, in per cent: no letter would fit.
const NAMED_PERCENT: f64 = 1.4;
/// Colours of differences: shares of the candidate's whole time from which each begins.
const STEPS: [f64; 3] = [0.002, 0.01, 0.03];
/// A difference of fewer standard deviations is chance (95 %).
const DEVIATES: f64 = 1.96;

/// Stacks, and the value of a sample in microseconds per request.
#[derive(Clone, Copy)]
pub(super) struct Stacks<'a> {
    pub(super) stacks: &'a [(String, u64)],
    pub(super) us_per_sample: f64,
}

/// Functions by what called them.
#[derive(Default)]
struct Node<'a> {
    samples: u64,
    part: Option<PathPart>,
    callees: BTreeMap<&'a str, Node<'a>>,
}

/// What stays the same for all boxes of a graph.
struct Graph<'a> {
    own: Stacks<'a>,
    reference: Option<Stacks<'a>>,
    whole: u64,
    depth: usize,
}

/// Where a box stands.
#[derive(Clone, Copy)]
struct Spot {
    percent: f64,
    level: usize,
}

/// Writes the graph of a candidate; with a reference its boxes also show the difference.
pub(super) fn graph(m: &mut Markup, title: &str, own: Stacks, reference: Option<Stacks>) {
    let tree = Node::of(own.stacks);
    if tree.samples == 0 {
        return m.leaf("p", &[("class", "aside")], "No sample found a busy CPU.");
    }
    let of_reference = reference.map(|reference| Node::of(reference.stacks));
    let graph = Graph { own, reference, whole: tree.samples, depth: tree.depth(tree.samples) };
    let class = if reference.is_some() { "flame by-difference" } else { "flame by-part" };
    m.within("div", &[("class", class)], |m| {
        let height = (graph.depth * ROW).to_string();
        m.within("svg", &[("width", "100%"), ("height", &height), ("role", "img")], |m| {
            m.leaf("title", &[], title);
            graph.write(m, ("all", &tree), of_reference.as_ref(), Spot { percent: 0.0, level: 0 });
        });
    });
}

impl<'a> Node<'a> {
    fn of(stacks: &'a [(String, u64)]) -> Node<'a> {
        let mut root = Node::default();
        for (stack, samples) in stacks {
            let mut node = &mut root;
            node.samples += samples;
            let mut end = 0;
            for frame in stack.split(';') {
                end += frame.len();
                node = node.callees.entry(frame).or_default();
                node.samples += samples;
                node.part.get_or_insert_with(|| PathPart::of(&stack[..end]));
                end += 1;
            }
        }
        root
    }

    /// Levels of boxes that are wide enough.
    fn depth(&self, whole: u64) -> usize {
        let wide = self.callees.values().filter(|callee| percent(callee.samples, whole) >= LEAST_PERCENT);
        1 + wide.map(|callee| callee.depth(whole)).max().unwrap_or(0)
    }
}

impl Graph<'_> {
    /// Writes a box, with the boxes of the functions that it called above it.
    fn write(&self, m: &mut Markup, (name, node): (&str, &Node), other: Option<&Node>, spot: Spot) {
        self.write_box(m, (name, node), other, spot);
        let mut at = spot.percent;
        for (name, callee) in &node.callees {
            let width = percent(callee.samples, self.whole);
            if width >= LEAST_PERCENT {
                let other = other.and_then(|other| other.callees.get(name));
                self.write(m, (name, callee), other, Spot { percent: at, level: spot.level + 1 });
            }
            at += width;
        }
    }

    fn write_box(&self, m: &mut Markup, (name, node): (&str, &Node), other: Option<&Node>, spot: Spot) {
        let width = percent(node.samples, self.whole);
        let y = number(((self.depth - 1 - spot.level) * ROW) as f64);
        let (x, share) = (format!("{:.3}%", spot.percent), format!("{width:.3}%"));
        let height = (ROW - 1).to_string();
        let difference = self.reference.map(|reference| self.difference(reference, node, other));
        let class = format!(
            "f {}{}",
            node.part.map_or("x-all", class_of),
            difference.map_or("", |difference| self.step(difference, node))
        );
        let us = text::significant(node.samples as f64 * self.own.us_per_sample);
        let mut title = format!("{name}: {us} µs, {}", text::percent(width / 100.0));
        if let Some(difference) = difference {
            title.push_str(&format!(", {} µs", text::signed(difference.us, 2)));
        }
        let attrs = [("class", &*class), ("x", &x), ("y", &y), ("width", &share), ("height", &height)];
        m.within("svg", &attrs, |m| {
            m.leaf("title", &[], &title);
            m.empty("rect", &[("width", "100%"), ("height", "100%")]);
            if width >= NAMED_PERCENT {
                m.leaf("text", &[("x", "3"), ("y", "12")], name);
            }
        });
    }

    fn difference(&self, reference: Stacks, node: &Node, other: Option<&Node>) -> Difference {
        let others = other.map_or(0, |other| other.samples);
        let (own, theirs) = (self.own.us_per_sample, reference.us_per_sample);
        let variance = node.samples as f64 * own * own + others.max(1) as f64 * theirs * theirs;
        Difference { us: node.samples as f64 * own - others as f64 * theirs, deviation: variance.sqrt() }
    }

    /// The class of a difference's colour.
    fn step(&self, difference: Difference, node: &Node) -> &'static str {
        let share = difference.us.abs() / (self.whole as f64 * self.own.us_per_sample);
        let steps = STEPS.iter().filter(|step| share >= **step).count();
        if node.part.is_none() || difference.us.abs() < DEVIATES * difference.deviation {
            return "";
        }
        match (difference.us > 0.0, steps) {
            (_, 0) => "",
            (true, 1) => " more1",
            (true, 2) => " more2",
            (true, _) => " more3",
            (false, 1) => " less1",
            (false, 2) => " less2",
            (false, _) => " less3",
        }
    }
}

/// What a function takes more than with the reference, in microseconds a request.
#[derive(Clone, Copy)]
struct Difference {
    us: f64,
    deviation: f64,
}

fn percent(samples: u64, whole: u64) -> f64 {
    100.0 * samples as f64 / whole as f64
}

/// The class of a part's colour. Parts that have to do with each other share one: their names distinguish them.
pub(super) fn class_of(part: PathPart) -> &'static str {
    match part {
        PathPart::User => "x-user",
        PathPart::Syscall | PathPart::Copy => "x-syscall",
        PathPart::Socket => "x-socket",
        PathPart::Ip | PathPart::Routing => "x-ip",
        PathPart::Netfilter => "x-netfilter",
        PathPart::Bridge | PathPart::Tunnel | PathPart::Bpf => "x-path",
        PathPart::Device => "x-device",
        PathPart::Softirq => "x-softirq",
        PathPart::Scheduler | PathPart::Interrupt => "x-scheduler",
        PathPart::Buffers | PathPart::Other | PathPart::Foreign => "x-other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks(stacks: &[(&str, u64)]) -> Vec<(String, u64)> {
        stacks.iter().map(|(stack, samples)| ((*stack).to_owned(), *samples)).collect()
    }

    fn drawn(own: &[(&str, u64)], reference: Option<&[(&str, u64)]>) -> Vec<(String, f64, f64, String)> {
        let (own, reference) = (stacks(own), reference.map(stacks));
        let of = |stacks| Stacks { stacks, us_per_sample: 0.01 };
        let mut m = Markup::new();
        graph(&mut m, "t", of(&own), reference.as_deref().map(of));
        let text = m.into_string();
        let part = |piece: &str, from: &str, to: &str| {
            piece.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
        };
        let boxes = text.split("<svg class=\"").skip(1).map(|piece| {
            let place = |name: &str| part(piece, name, "%\"").parse().unwrap();
            let name = part(piece, "<title>", ":");
            (name, place("x=\""), place("width=\""), piece.split_once('"').unwrap().0.to_owned())
        });
        boxes.collect()
    }

    #[test]
    fn a_box_is_as_wide_as_its_samples_and_stands_on_its_caller() {
        let drawn =
            drawn(&[("client;[user]", 50), ("server;ip_rcv;br_forward", 30), ("server;ip_rcv", 20)], None);
        let boxes: Vec<(&str, f64, f64)> =
            drawn.iter().map(|(name, x, w, _)| (name.as_str(), *x, *w)).collect();
        let expected = [
            ("all", 0.0, 100.0),
            ("client", 0.0, 50.0),
            ("[user]", 0.0, 50.0),
            ("server", 50.0, 50.0),
            ("ip_rcv", 50.0, 50.0),
            ("br_forward", 50.0, 30.0),
        ];
        assert_eq!(boxes, expected);
        assert_eq!(drawn[5].3, "f x-path");
        assert_eq!(drawn[4].3, "f x-ip");
    }

    #[test]
    fn boxes_show_what_is_more_and_what_is_less() {
        let reference = [("server;ip_rcv", 1_000), ("server;tcp_ack", 1_000), ("server;[user]", 1_000)];
        let own = [
            ("server;ip_rcv;br_forward", 900),
            ("server;ip_rcv", 990),
            ("server;tcp_ack", 700),
            ("server;[user]", 1_020),
        ];
        let drawn = drawn(&own, Some(&reference));
        let class = |name: &str| drawn.iter().find(|(other, ..)| other == name).unwrap().3.as_str();
        assert_eq!(class("br_forward"), "f x-path more3");
        assert_eq!(class("ip_rcv"), "f x-ip more3", "with what it called");
        assert_eq!(class("tcp_ack"), "f x-socket less3");
        assert_eq!(class("[user]"), "f x-user", "chance has no colour");
    }

    #[test]
    fn what_is_too_narrow_leaves_its_room() {
        let drawn = drawn(&[("a", 1), ("b", 9_999)], None);
        assert_eq!(drawn.len(), 2);
        assert_eq!((drawn[1].0.as_str(), drawn[1].1), ("b", 0.01));
    }
}
