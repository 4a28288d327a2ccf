//! Where the packets of a data path leave the kernel's usual way, drawn for the candidates that do.

use record::{Candidate, PacketFilter, StackKind, StackWait};

use super::markup::Markup;
use super::svg::{Anchor, Caption, Frame, Point, Rect, Svg, at};
use crate::Summary;

/// A way that leaves the usual one.
struct Departure {
    /// The candidates that go it.
    goes: fn(&Candidate) -> bool,
    /// What a packet passes in the kernel between pod and wire, in order.
    stations: [&'static str; 5],
    /// The station where it leaves the usual way.
    leaves: usize,
    /// Where the program is that it meets there.
    space: Space,
    /// The program, or what takes its place, and what that does or when.
    program: [&'static str; 2],
    /// The same in a sentence.
    sentence: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Kernel,
}

/// What a frame passes on its way to a server's socket.
const INWARD: [&str; 5] = ["wire", "driver, XDP", "sk_buff, tc", "IP, netfilter", "TCP or UDP, socket"];

const DEPARTURES: &[Departure] = &[
    Departure {
        goes: |candidate| candidate.stack.kind == StackKind::Afxdp,
        stations: INWARD,
        leaves: 1,
        space: Space::User,
        program: ["stack in the server", "by a ring of AF_XDP"],
        sentence: "A program of XDP hands what is for the server to the server's process, before there is an sk_buff; what the \
                   server sends enters the driver the same way. All else takes the kernel's way.",
    },
    Departure {
        goes: |candidate| candidate.path == "ovs+direct",
        stations: ["pod's eth0", "port hgp1", "table of flows", "hgbr1, routing", "wire"],
        leaves: 2,
        space: Space::User,
        program: ["ovs-vswitchd", "first packet of a flow"],
        sentence: "Open vSwitch takes a packet at the port, before bridge and netfilter, and its table of flows in the kernel \
                   says where it goes: here to the node's routing. Only a packet that is in no flow goes up to the daemon.",
    },
    Departure {
        goes: |candidate| ["ovs+vxlan", "ovs+geneve"].contains(&candidate.path.as_str()),
        stations: ["pod's eth0", "port hgp1", "table of flows", "tunnel, IP, UDP", "wire"],
        leaves: 2,
        space: Space::User,
        program: ["ovs-vswitchd", "first packet of a flow"],
        sentence: "Open vSwitch takes a packet at the port, before bridge, routing and netfilter, and its table of flows in \
                   the kernel says by which tunnel it goes. Only a packet that is in no flow goes up to the daemon.",
    },
    Departure {
        goes: |candidate| candidate.path == "ovs-afxdp+direct",
        stations: ["pod's eth0", "driver, XDP", "sk_buff of hgp1", "hgbr1, routing", "wire"],
        leaves: 1,
        space: Space::User,
        program: ["ovs-vswitchd", "every packet, by a ring"],
        sentence: "A program of XDP hands each packet of a port to the daemon of Open vSwitch, before there is an sk_buff. The \
                   daemon looks it up in a table of flows of its own, and writes it to the ring of another port, or to the link \
                   hgbr1, from where the node's kernel routes it.",
    },
    Departure {
        goes: |candidate| candidate.path == "ovs-dpdk+direct" && !candidate.stack.is_own(),
        stations: ["pod's eth0", "driver, XDP", "sk_buff of hgp1", "hgbr1, routing", "wire"],
        leaves: 1,
        space: Space::User,
        program: ["ovs-vswitchd", "a thread that polls"],
        sentence: "A program of XDP hands each packet of a port to a thread of Open vSwitch that looks for packets without \
                   sleeping, before there is an sk_buff. The thread looks it up in a table of flows of its own, and writes it \
                   to the ring of another port, or to the link hgbr1, from where the node's kernel routes it.",
    },
    Departure {
        goes: |candidate| candidate.stack.kind == StackKind::VhostUser,
        stations: ["wire", "routing, hgbr1", "IP, netfilter", "TCP or UDP", "socket"],
        leaves: 1,
        space: Space::User,
        program: ["stack in the server", "by shared memory"],
        sentence: "The server's pod has no link: Open vSwitch copies what is for it into memory that the switch shares with the \
                   server's process, and takes from there what the server sends. A client's pod has a link whose packets a \
                   program of XDP hands to a thread of the switch that polls; only between nodes the kernel routes them.",
    },
    Departure {
        goes: |candidate| candidate.stack.kind == StackKind::Verbs,
        stations: ["wire of its own", "driver, sk_buff", "IP", "UDP, port 4791", "socket"],
        leaves: 3,
        space: Space::User,
        program: ["the server's memory", "rdma_rxe writes to it"],
        sentence: "Software RoCE, by which the kernel stands for a card, takes what comes to UDP port 4791 and copies it to where \
                   the server has posted a request to receive; what the server posts goes back the same way. No TCP and no \
                   socket has a part in it, and no route or rule of a node or a pod: the wire is beside theirs. A card would \
                   do all of it by itself.",
    },
    Departure {
        goes: |candidate| candidate.filter == Some(PacketFilter::XdpDrop),
        stations: INWARD,
        leaves: 1,
        space: Space::Kernel,
        program: ["program of XDP", "drops it"],
        sentence: "A program of XDP in the driver drops a frame of the workload or of the flood, before there is an sk_buff. \
                   What comes after it never sees the frame.",
    },
    Departure {
        goes: |candidate| candidate.filter == Some(PacketFilter::XdpTx),
        stations: INWARD,
        leaves: 1,
        space: Space::Kernel,
        program: ["program of XDP", "sends it back"],
        sentence: "A program of XDP in the driver sends the frame back by the link that it came from, in the memory in which it \
                   came, before there is an sk_buff.",
    },
    Departure {
        goes: |candidate| candidate.filter == Some(PacketFilter::XdpRedirect),
        stations: INWARD,
        leaves: 1,
        space: Space::Kernel,
        program: ["program of XDP", "sends it to another link"],
        sentence: "A program of XDP in the driver hands the frame to another link's driver, before there is an sk_buff. Nothing \
                   of the node routes it.",
    },
    Departure {
        goes: |candidate| candidate.filter == Some(PacketFilter::XdpGeneric),
        stations: ["wire", "driver", "sk_buff, XDP", "IP, netfilter", "UDP, socket"],
        leaves: 2,
        space: Space::Kernel,
        program: ["program of XDP", "drops it"],
        sentence: "The kernel has made an sk_buff of a frame of the workload or of the flood before the program of XDP drops it, \
                   as it does for links whose driver has no XDP of its own.",
    },
];

/// Writes a drawing for each way that a candidate goes.
pub(super) fn figures(m: &mut Markup, summary: &Summary) {
    for departure in DEPARTURES {
        let names = titles(summary, departure.goes);
        if names.is_empty() {
            continue;
        }
        let names = names.join("; ");
        let title = format!("Where packets of {names} leave the kernel's usual way");
        m.leaf("h3", &[], &title);
        m.leaf("p", &[], departure.sentence);
        m.within("figure", &[], |m| {
            for frame in Frame::BOTH {
                m.append(&departure.draw(frame, &title));
            }
        });
    }
    let spinning = titles(summary, |candidate| candidate.stack.wait == StackWait::Spin);
    if !spinning.is_empty() {
        let text = format!(
            "Servers that spin look for packets without sleeping, and their CPU is busy whatever they are asked: {}.",
            spinning.join("; ")
        );
        m.leaf("p", &[], &text);
    }
}

fn titles(summary: &Summary, is_meant: fn(&Candidate) -> bool) -> Vec<String> {
    let meant = summary.experiment.candidates.iter().filter(|candidate| is_meant(candidate));
    meant.map(Candidate::title).collect()
}

impl Departure {
    /// Wide: from left to right, with the program above. Narrow: from top to bottom, with the program beside.
    fn draw(&self, frame: Frame, title: &str) -> Markup {
        let mut svg = Svg::new();
        let area = |index: usize| match frame {
            Frame::Wide => Rect { x: 8.0 + 224.0 * index as f64, y: 112.0, width: 200.0, height: 48.0 },
            Frame::Narrow => Rect { x: 8.0, y: 8.0 + 68.0 * index as f64, width: 168.0, height: 44.0 },
        };
        let (program, height) = match frame {
            Frame::Wide => (Rect { y: 12.0, height: 56.0, ..area(self.leaves) }, 172.0),
            Frame::Narrow => (Rect { x: 212.0, width: 164.0, ..area(self.leaves) }, 340.0),
        };
        for (index, station) in self.stations.iter().enumerate() {
            let class = match index {
                0 => "pod",
                _ if index == self.leaves => "under-test",
                _ => "node",
            };
            svg.rect(class, area(index));
            svg.text("strong", middle(area(index), 5.0), Anchor::Middle, station);
            if index > 0 {
                let (from, to) = between(frame, area(index - 1), area(index));
                svg.line("wire", from, to);
            }
        }
        svg.rect("pod", program);
        svg.text("strong", middle(program, -5.0), Anchor::Middle, self.program[0]);
        svg.text("tick", middle(program, 14.0), Anchor::Middle, self.program[1]);
        if self.space == Space::User {
            draw_border(&mut svg, frame);
        }
        let leaving = area(self.leaves);
        let (from, to) = match frame {
            Frame::Wide => (
                at(middle(leaving, 0.0).x, leaving.y),
                at(middle(program, 0.0).x, program.y + program.height),
            ),
            Frame::Narrow => {
                (at(leaving.x + leaving.width, middle(leaving, 0.0).y), at(program.x, middle(program, 0.0).y))
            }
        };
        svg.line("mark-line", from, to);
        let place = match self.space {
            Space::User => "In user space",
            Space::Kernel => self.stations[self.leaves],
        };
        let desc =
            format!("In the kernel: {}. {place}: {}.", self.stations.join(", "), self.program.join(", "));
        svg.finish(frame, height, Caption { title, desc: &desc })
    }
}

/// Between the stations and a program in user space.
fn draw_border(svg: &mut Svg, frame: Frame) {
    let (border, names) = match frame {
        Frame::Wide => ([at(8.0, 90.0), at(1112.0, 90.0)], [at(8.0, 82.0), at(8.0, 105.0)]),
        Frame::Narrow => ([at(194.0, 8.0), at(194.0, 332.0)], [at(204.0, 20.0), at(204.0, 38.0)]),
    };
    svg.line("build", border[0], border[1]);
    let [above, below] = match frame {
        Frame::Wide => ["user space", "kernel"],
        Frame::Narrow => ["right: user space", "left: kernel"],
    };
    svg.text("tick", names[0], Anchor::Start, above);
    svg.text("tick", names[1], Anchor::Start, below);
}

/// The middle of a box, so many units lower.
fn middle(area: Rect, lower: f64) -> Point {
    at(area.x + area.width / 2.0, area.y + area.height / 2.0 + lower)
}

/// The ends of the line from a box to the next.
fn between(frame: Frame, one: Rect, next: Rect) -> (Point, Point) {
    match frame {
        Frame::Wide => (at(one.x + one.width, middle(one, 0.0).y), at(next.x, middle(next, 0.0).y)),
        Frame::Narrow => (at(middle(one, 0.0).x, one.y + one.height), at(middle(next, 0.0).x, next.y)),
    }
}

#[cfg(test)]
mod tests {
    use record::Stack;

    use super::super::{fixture, page};
    use super::*;

    /// The page of a race of these paths.
    fn of(paths: &[&str]) -> String {
        let mut summary = fixture::race();
        let named = |path: &&str| Candidate { path: (*path).to_owned(), ..Candidate::default() };
        summary.experiment.candidates = paths.iter().map(named).collect();
        page(&summary)
    }

    #[test]
    fn a_way_is_drawn_where_a_candidate_goes_it() {
        let drawn = |paths: &[&str]| of(paths).matches(">ovs-vswitchd<").count();
        assert_eq!(drawn(&["docker", "bridge+direct"]), 0);
        // For wide windows and for narrow ones.
        assert_eq!(drawn(&["ovs+direct"]), 2);
        assert_eq!(drawn(&["ovs+vxlan", "ovs+geneve"]), 2);
        let page = of(&["ovs+direct", "ovs+vxlan", "ovs+geneve"]);
        assert!(page.contains("Where packets of ovs+vxlan; ovs+geneve leave the kernel"), "both are named");
        assert_eq!(page.matches(">ovs-vswitchd<").count(), 4);
        assert_eq!(drawn(&["ovs-afxdp+direct"]), 2);
        assert_eq!(drawn(&["ovs-dpdk+direct"]), 2);
    }

    #[test]
    fn a_server_past_the_kernel_is_drawn_and_one_that_spins_is_named() {
        let own = |wait| Candidate {
            path: "host".to_owned(),
            stack: Stack { kind: StackKind::Afxdp, wait },
            ..Candidate::default()
        };
        let mut summary = fixture::race();
        summary.experiment.candidates = vec![own(StackWait::Sleep), own(StackWait::Spin)];
        let page = page(&summary);
        assert_eq!(page.matches(">stack in the server<").count(), 2);
        assert!(page.contains("Where packets of host, afxdp; host, afxdp, spinning leave"), "who goes it");
        assert!(page.contains("whatever they are asked: host, afxdp, spinning."), "who spins");
        let stack = Stack { kind: StackKind::VhostUser, wait: StackWait::Sleep };
        let shared = Candidate { path: "ovs-dpdk+direct".to_owned(), stack, ..Candidate::default() };
        summary.experiment.candidates = vec![shared];
        let page = self::page(&summary);
        assert_eq!(
            (page.matches(">by shared memory<").count(), page.matches(">ovs-vswitchd<").count()),
            (2, 0)
        );
    }

    #[test]
    fn messages_past_tcp_are_drawn_with_their_border_and_xdp_without_one() {
        let verbs = Stack { kind: StackKind::Verbs, wait: StackWait::Sleep };
        let mut summary = fixture::race();
        summary.experiment.candidates = vec![Candidate { stack: verbs, ..Candidate::default() }];
        let drawn = page(&summary);
        assert_eq!(drawn.matches(">rdma_rxe writes to it<").count(), 2);
        let borders = drawn.matches(">right: user space<").count();
        assert_eq!(borders, 1);
        let filtered = |filter| Candidate { filter: Some(filter), ..Candidate::default() };
        summary.experiment.candidates = PacketFilter::ALL.map(filtered).to_vec();
        let drawn = page(&summary);
        assert_eq!(
            drawn.matches(">program of XDP<").count(),
            8,
            "four of them, and xdp-pass goes the usual way"
        );
        assert_eq!(drawn.matches(">sends it to another link<").count(), 2);
        assert!(!drawn.contains(">right: user space<"), "it is in the kernel");
        assert!(drawn.contains("Where packets of xdp-generic leave the kernel"), "who goes it");
    }
}
