//! Sizes of packets: paths that take less, and packets that vanish for their size.

use linux::Device;

use super::{IP_SYSCTL, SNMP, SNMP_COUNTER, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::Connection;
use crate::{Check, Family, Seen, Window};

pub(super) const FAMILY: Family = Family {
    title: "MTU",
    checks: &[
        Check {
            code: "HG100",
            title: "a path takes smaller packets than the link",
            why: "The kernel learnt that larger packets do not pass. It costs a loss for each destination and each ten minutes \
                that it is learnt anew; tunnels are the usual cause.",
            remedy: "set the MTU of the link or of the route to what passes",
            knobs: &["mtu"],
            verify: "pmtu in ss -ti is the link's MTU",
            source: IP_SYSCTL,
            run: smaller,
            ..USUAL
        },
        Check {
            code: "HG101",
            title: "large packets vanish: a black hole",
            why: "The connection was made and small packets pass, but no full one was ever acknowledged. Somewhere the MTU is \
                smaller, and the message that says so is filtered.",
            remedy: "let ICMP \"fragmentation needed\" pass, set the right MTU, or let TCP find it by itself",
            knobs: &["tcp_mtu_probing", "mtu"],
            verify: "the connection's bytes_acked grows",
            source: "RFC 4821, RFC 2923",
            run: black_hole,
            ..USUAL
        },
        Check {
            code: "HG102",
            title: "packets that must be fragmented are dropped, or fragments do not come together",
            why: "Either a packet was too large for the next link and must not be cut, or some of its fragments were lost, in \
                which case all are.",
            remedy: "send smaller packets: MTU of tunnels, size of datagrams; more memory for fragments only if that overflows",
            knobs: &["mtu"],
            verify: "FragFails and ReasmFails stay as they are",
            source: SNMP_COUNTER,
            follows: &["HG030", "HG002"],
            run: fragments,
        },
    ],
};

/// The link by which a destination is reached, and the route's MTU.
fn way<'a>(window: &Window<'a>, connection: &Connection<'_>) -> Option<(&'a Device, u32)> {
    let std::net::IpAddr::V4(peer) = connection.socket.peer.ip() else { return None };
    let routes = window.after.routes.iter().filter(|route| route.dst.contains(&peer));
    let best = routes.max_by_key(|route| (route.dst.prefix_len(), std::cmp::Reverse(route.metric)))?;
    let device = window.after.devices.iter().find(|device| device.name == best.link)?;
    Some((device, if best.mtu > 0 { best.mtu.min(device.mtu) } else { device.mtu }))
}

fn smaller(window: &Window<'_>) -> Vec<Seen> {
    let mut found: Vec<Seen> = Vec::new();
    let mut told: Vec<std::net::IpAddr> = Vec::new();
    for connection in window.connections() {
        let Some((device, mtu)) = way(window, &connection) else { continue };
        let peer = connection.socket.peer.ip();
        let passes = connection.now.pmtu;
        if passes == 0 || passes >= mtu || told.contains(&peer) || found.len() >= 5 {
            continue;
        }
        told.push(peer);
        let failed = window.grew("TcpExtTCPMTUPFail");
        let lost = connection.now.total_retrans > connection.then.total_retrans;
        let seen = Seen::with_effect(lost && connection.loss() > 0.01, 20.0)
            .on(format!("to {peer} by {}", device.name))
            .saw(format!("packets of {passes} bytes pass, the link takes {mtu}"), SOCK_DIAG)
            .saw(format!("{failed} probes of larger ones failed"), super::NETSTAT);
        // With less a link has no IPv6.
        found.push(if passes >= 1280 { seen.set("mtu", passes) } else { seen });
    }
    found
}

fn black_hole(window: &Window<'_>) -> Vec<Seen> {
    let mut found = Vec::new();
    for connection in window.connections() {
        let now = connection.now;
        // The handshake counts for one byte. Without any full segment, retries are all that was sent.
        let nothing_passed =
            now.bytes_acked < u64::from(now.snd_mss) && connection.acked() < u64::from(now.snd_mss);
        let full = u64::from(connection.socket.wqueue) >= u64::from(now.snd_mss);
        if !nothing_passed || !full || now.retransmits < 3 || now.segs_in == 0 || now.snd_mss < 600 {
            continue;
        }
        let probing = window.number("net/ipv4/tcp_mtu_probing").unwrap_or_default();
        let seen = Seen::warning(70.0)
            .on(connection.name())
            .saw(
                format!(
                    "segments of {} bytes, sent again {} times, none acknowledged; {} small packets came back",
                    now.snd_mss, now.retransmits, now.segs_in
                ),
                SOCK_DIAG,
            )
            .saw(format!("tcp_mtu_probing is {probing}"), "/proc/sys/net/ipv4/tcp_mtu_probing");
        found.push(if probing == 0 { seen.set("tcp_mtu_probing", 1) } else { seen });
    }
    found.truncate(5);
    found
}

fn fragments(window: &Window<'_>) -> Vec<Seen> {
    let (uncut, apart) = (window.grew("IpFragFails"), window.grew("IpReasmFails"));
    if uncut + apart == 0 {
        return Vec::new();
    }
    let wanted = window.grew("IpReasmReqds").max(window.grew("IpFragOKs"));
    let lost = share(uncut + apart, wanted + uncut + apart);
    let saw = format!("FragFails +{uncut}, ReasmFails +{apart}; {} of those concerned", percent(lost));
    let per_s = (uncut + apart) as f64 / window.seconds();
    vec![Seen::with_effect(per_s >= 1.0, 10.0 + lost * 30.0).saw(saw, SNMP)]
}
