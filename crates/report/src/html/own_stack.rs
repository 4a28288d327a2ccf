//! Where packets leave the kernel's path, in a race with a server on a stack of our own.

use record::StackWait;

use super::markup::Markup;
use super::svg::{Anchor, Caption, Frame, Rect, Svg, at};
use super::topology::draw_box;
use crate::Summary;

const CAPTION: Caption = Caption {
    title: "Where packets leave the kernel's path",
    desc: "The driver of the server's link gives each packet to a program of XDP. What is for the server goes by a ring of \
           AF_XDP to a stack in the server's process; all else becomes an sk_buff and takes the kernel's way: tc, netfilter, \
           IP, TCP or UDP, a socket.",
};

/// The ways from the driver: class, name, detail.
const KERNEL: [(&str, &str, &str); 3] =
    [("pod", "sk_buff", "tc, backlog"), ("pod", "IP", "netfilter, routes"), ("pod", "TCP, UDP", "a socket")];
const OWN: [(&str, &str, &str); 2] =
    [("under-test", "ring of AF_XDP", "frames are copied"), ("under-test", "stack in the server", "smoltcp")];

/// Writes the picture and who takes which way, if some server has a stack of its own.
pub(super) fn figure(m: &mut Markup, summary: &Summary) {
    let candidates = &summary.experiment.candidates;
    let own: Vec<String> = candidates
        .iter()
        .filter(|candidate| candidate.stack.is_own())
        .map(record::Candidate::title)
        .collect();
    if own.is_empty() {
        return;
    }
    let spins: Vec<String> = candidates
        .iter()
        .filter(|candidate| candidate.stack.wait == StackWait::Spin)
        .map(record::Candidate::title)
        .collect();
    let mut text = format!(
        "Packets for the server leave the kernel's path in the driver, before there is an sk_buff, of: {}. What the server \
         sends enters the driver the same way.",
        own.join("; ")
    );
    if !spins.is_empty() {
        text += &format!(
            " Servers that spin look for packets without sleeping, and their CPU is busy whatever they are asked: {}.",
            spins.join("; ")
        );
    }
    m.leaf("p", &[], &text);
    m.within("figure", &[], |m| {
        m.append(&draw_wide());
        m.append(&draw_narrow());
    });
}

fn draw_wide() -> Markup {
    let mut svg = Svg::new();
    let (upper, lower) = (12.0, 120.0);
    let driver = Rect { x: 4.0, y: 66.0, width: 190.0, height: 70.0 };
    draw_box(&mut svg, "pod", driver, ("link of the node", "driver, XDP"));
    for (row, y) in [(OWN.as_slice(), upper), (KERNEL.as_slice(), lower)] {
        let mut from = at(194.0, 101.0);
        for (index, (class, name, detail)) in row.iter().enumerate() {
            let x = 290.0 + 290.0 * index as f64;
            svg.line("wire", from, at(x, y + 35.0));
            draw_box(&mut svg, class, Rect { x, y, width: 220.0, height: 70.0 }, (name, detail));
            from = at(x + 220.0, y + 35.0);
        }
    }
    svg.text("name", at(242.0, 56.0), Anchor::End, "for the server");
    svg.text("name", at(242.0, 160.0), Anchor::End, "all else");
    svg.finish(Frame::Wide, 202.0, CAPTION)
}

fn draw_narrow() -> Markup {
    let mut svg = Svg::new();
    draw_box(
        &mut svg,
        "pod",
        Rect { x: 90.0, y: 4.0, width: 200.0, height: 54.0 },
        ("link of the node", "driver, XDP"),
    );
    for (row, x, what) in [(OWN.as_slice(), 4.0, "for the server"), (KERNEL.as_slice(), 200.0, "all else")] {
        let mut from = at(190.0, 58.0);
        svg.text("name", at(x + 86.0, 92.0), Anchor::Middle, what);
        for (index, (class, name, detail)) in row.iter().enumerate() {
            let y = 100.0 + 78.0 * index as f64;
            svg.line("wire", from, at(x + 86.0, y));
            draw_box(&mut svg, class, Rect { x, y, width: 172.0, height: 54.0 }, (name, detail));
            from = at(x + 86.0, y + 54.0);
        }
    }
    svg.finish(Frame::Narrow, 320.0, CAPTION)
}

#[cfg(test)]
mod tests {
    use record::{Candidate, Stack, StackKind};

    use super::super::{fixture, page};
    use super::*;

    #[test]
    fn the_way_past_the_kernel_is_drawn_where_some_server_takes_it() {
        let mut summary = fixture::race();
        assert!(!page(&summary).contains("ring of AF_XDP"));
        let own = |wait| Candidate {
            path: "host".to_owned(),
            stack: Stack { kind: StackKind::Afxdp, wait },
            ..Candidate::default()
        };
        summary.experiment.candidates = vec![own(StackWait::Sleep), own(StackWait::Spin)];
        let page = page(&summary);
        assert_eq!(page.matches(">ring of AF_XDP<").count(), 2);
        assert!(page.contains("of: host, afxdp; host, afxdp, spinning. What"), "who takes it");
        assert!(page.contains("whatever they are asked: host, afxdp, spinning."), "who spins");
    }
}
