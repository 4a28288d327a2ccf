//! Segments of no connection: a host answers them whatever is left to the link, and nothing follows them.

use std::net::UdpSocket;
use std::time::Duration;

use linux::tcp_probe::{LeftToLink, TcpProbe};
use testkit::PacketSocket;

use crate::world::{PATIENCE, TestNetns, ifname};

const ANSWERED_IN: Duration = Duration::from_millis(800);
const ALL: [LeftToLink; 3] = [LeftToLink::Nothing, LeftToLink::Checksum, LeftToLink::Segmentation];
/// Both ends of the wire, and of another one beside it.
const WIRES: [(&str, &str, &str); 2] =
    [("hgw0", "192.0.2.1/24", "192.0.2.2/24"), ("hgw1", "2001:db8::1/64", "2001:db8::2/64")];
/// Where an Ethernet frame of IPv4 without options has its protocol, and the flags of its TCP segment.
const PROTOCOL_AT: usize = 23;
const FLAGS_AT: usize = 47;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// How a connection ends.
const FIN_OR_RST: u8 = 1 | 4;

fn joined() -> [TestNetns; 2] {
    let places = [TestNetns::new("probe-a"), TestNetns::new("probe-b")];
    for (link, one, two) in WIRES {
        places[0].wire(&places[1], link, one, two);
    }
    places
}

fn probe(link: &str, from: &str, to: &str) -> TcpProbe {
    let address = |net: &str| net.parse::<ipnet::IpNet>().expect("a valid address").addr();
    TcpProbe { link: ifname(link), from: address(from), to: address(to) }
}

fn drops(place: &TestNetns, hook: &str, what: &str) {
    let chain = format!("add chain ip t c {{ type filter hook {hook} priority 0; }}");
    place.judge("nft", &[&format!("add table ip t; {chain}; add rule ip t c {what} drop")]);
}

#[test]
fn a_host_answers_what_arrives_whole() {
    let [here, _there] = joined();
    for (link, from, to) in WIRES {
        crate::world::eventually("its IPv6 address is no longer tentative", || {
            let shown = here.judge("ip", &["address", "show", "dev", link]);
            !shown.contains("tentative")
        });
        let probe = probe(link, from, to);
        for left in ALL {
            let answered = || probe.is_answered(left, ANSWERED_IN);
            // It may be late on a busy machine.
            crate::world::eventually(to, || here.netns.run(answered).unwrap().unwrap());
        }
    }
}

/// Nothing follows where nothing listens, nor where a rule of this host drops the segment: the connection that the
/// kernel then holds is closed, and an ordinary one would retransmit its FIN for minutes.
#[test]
fn nothing_follows_a_segment() {
    let [here, there] = joined();
    let (link, from, to) = WIRES[0];
    let probe = probe(link, from, to);
    let heard = PacketSocket::receiver(&there.netns, &ifname(link));
    drops(&there, "input", "tcp dport 9");
    for left in ALL {
        let answered = here.netns.run(|| probe.is_answered(left, Duration::from_millis(1))).unwrap();
        assert!(!answered.unwrap(), "{left:?}");
    }
    drops(&here, "output", "tcp flags & psh == psh");
    let refused = here.netns.run(|| probe.is_answered(LeftToLink::Nothing, ANSWERED_IN)).unwrap();
    assert_eq!(refused.unwrap_err().errno(), Some(libc::EPERM));

    let send =
        || UdpSocket::bind("192.0.2.1:0").and_then(|socket| socket.send_to(b"the last", "192.0.2.2:9"));
    here.netns.run(send).unwrap().unwrap();
    let mut flags = Vec::new();
    loop {
        let frame = heard.receive(PATIENCE).expect("the datagram arrives").bytes;
        match frame.get(PROTOCOL_AT) {
            Some(&TCP) => flags.push(frame[FLAGS_AT]),
            Some(&UDP) => break,
            _ => {}
        }
    }
    assert!(flags.len() >= ALL.len() && flags.iter().all(|flags| flags & FIN_OR_RST == 0), "{flags:?}");
}
