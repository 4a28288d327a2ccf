//! Sizes of packets: paths that take less, and packets that vanish for their size.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::Device;

use super::{IP_SYSCTL, SNMP, SNMP_COUNTER, SOCK_DIAG};
use crate::finding::USUAL;
use crate::rate::{percent, share};
use crate::window::Connection;
use crate::{Check, CheckGroup, Observation, Window};

pub(super) const GROUP: CheckGroup = CheckGroup {
    title: "MTU",
    checks: &[
        Check {
            code: "HG100",
            title: "a path carries only smaller packets than the link",
            why: "The kernel learnt that larger packets do not pass: a router sent ICMP \"fragmentation needed\", \
                  or ICMPv6 \"packet too big\". That costs a lost packet for each destination every ten minutes, \
                  when it is learnt again; tunnels are the usual cause.",
            remedy: "give the destination a route with the MTU that passes; the link's own MTU is for all destinations",
            knobs: &["route_mtu", "mtu"],
            verify: "pmtu in ss -ti is the link's MTU, and the destination is not in ip route show cache, nor with -6",
            source: IP_SYSCTL,
            run: smaller,
            ..USUAL
        },
        Check {
            code: "HG101",
            title: "large packets vanish: a black hole",
            why: "The connection was made and small packets pass, but no full one was ever acknowledged. Somewhere the MTU is \
                smaller, and the message that says so is filtered.",
            remedy: "let ICMP \"fragmentation needed\" and ICMPv6 \"packet too big\" pass, set the right MTU, or let TCP \
                find it by itself",
            knobs: &["tcp_mtu_probing", "mtu"],
            verify: "the connection's bytes_acked grows",
            source: "RFC 4821, RFC 2923",
            run: black_hole,
            ..USUAL
        },
        Check {
            code: "HG102",
            title: "packets that must be fragmented are dropped, or fragments are not reassembled",
            why: "Either a packet was too large for the next link and must not be fragmented, or some of its \
                  fragments were lost, in which case the whole packet is.",
            remedy: "send smaller packets: MTU of tunnels, size of datagrams; more memory for fragments only if that overflows",
            knobs: &["mtu"],
            verify: "FragFails and ReasmFails no longer grow",
            source: SNMP_COUNTER,
            follows: &["HG030", "HG002"],
            run: fragments,
        },
    ],
};

/// The most destinations in a finding.
const PATHS_MAX: usize = 5;
/// The least MTU that the knob of a route takes.
const ROUTE_LEAST: u32 = 576;

/// A destination whose path MTU is smaller than the MTU of its link.
struct Narrow<'a> {
    peer: IpAddr,
    device: &'a Device,
    passes: u32,
    read_from: &'static str,
}

/// Path MTUs that routers reported and the kernel still remembers, of both families.
fn learnt<'a>(window: &Window<'a>) -> Vec<Narrow<'a>> {
    let paths = window.after.answers.path_mtus.iter().flatten();
    let narrow = paths.filter_map(|path| {
        let device = window.after.devices.iter().find(|device| device.index == path.index)?;
        let (peer, passes, read_from) = (path.dst, path.mtu, "RTM_GETROUTE, ip route show cache");
        let is_news = passes < device.mtu && !is_set(window, peer, device, passes);
        is_news.then_some(Narrow { peer, device, passes, read_from })
    });
    narrow.collect()
}

/// Whether a route has its own MTU that is no larger than the path's: then the kernel learns none, since it sends no
/// larger packets. Rules decide which table applies, so a route of any table counts.
fn is_set(window: &Window<'_>, peer: IpAddr, device: &Device, passes: u32) -> bool {
    let mut routes = window.after.answers.route_mtus.iter().flatten();
    routes.any(|route| route.index == device.index && route.dst.contains(&peer) && route.mtu <= passes)
}

/// A connection keeps what it learnt for longer than the kernel does. Where the MTUs of routes are not known, what it
/// keeps may be one of these.
fn kept<'a>(window: &Window<'a>, connection: &Connection<'_>) -> Option<Narrow<'a>> {
    let peer = connection.socket.peer.ip().to_canonical();
    window.after.answers.route_mtus.as_ref()?;
    // Of IPv6 routers announce an MTU, which is the link's own for that family.
    if peer.is_ipv6() {
        return None;
    }
    let device = window.link_of(connection)?;
    let passes = connection.now.pmtu;
    // Where a rule leads to another table (the tunnels of wg-quick), the main one names the wrong link.
    if window.after.devices.iter().any(|other| other.up && other.mtu == passes) {
        return None;
    }
    let is_news = 0 < passes && passes < device.mtu && !is_set(window, peer, device, passes);
    is_news.then_some(Narrow { peer, device, passes, read_from: SOCK_DIAG })
}

fn smaller(window: &Window<'_>) -> Vec<Observation> {
    let connections = window.connections();
    let mut paths: BTreeMap<IpAddr, Narrow<'_>> = BTreeMap::new();
    for path in learnt(window) {
        paths.entry(path.peer).or_insert(path);
    }
    for path in connections.iter().filter_map(|connection| kept(window, connection)) {
        paths.entry(path.peer).or_insert(path);
    }
    let mut found: Vec<Observation> =
        paths.values().map(|path| observation(window, path, &connections)).take(PATHS_MAX).collect();
    if let (Some(last), more @ 1..) = (found.last_mut(), paths.len().saturating_sub(PATHS_MAX)) {
        last.subject += &format!(" and {more} more");
    }
    found
}

fn observation(window: &Window<'_>, path: &Narrow<'_>, connections: &[Connection<'_>]) -> Observation {
    let loses = |connection: &Connection<'_>| {
        let again = connection.now.total_retrans > connection.then.total_retrans;
        connection.socket.peer.ip().to_canonical() == path.peer && again && connection.loss() > 0.01
    };
    let (device, passes) = (path.device, path.passes);
    let seen = Observation::with_effect(connections.iter().any(loses), 20.0)
        .on(format!("to {} by {}", path.peer, device.name))
        .saw(format!("packets of {passes} bytes pass, the link takes {}", device.mtu), path.read_from);
    let seen = match path.peer {
        IpAddr::V4(_) => {
            let failed = window.grew("TcpExtTCPMTUPFail");
            seen.saw(format!("{failed} probes with larger packets failed"), super::NETSTAT)
        }
        IpAddr::V6(_) => {
            let came = window.grew("Icmp6InPktTooBigs");
            seen.saw(format!("{came} messages \"packet too big\" arrived"), super::SNMP6)
        }
    };
    match window.route_to(path.peer) {
        Some(route) if passes >= ROUTE_LEAST => seen.set_route("route_mtu", passes, route),
        _ => seen,
    }
}

fn black_hole(window: &Window<'_>) -> Vec<Observation> {
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
        let seen = Observation::warning(70.0)
            .on(connection.name())
            .saw(
                format!(
                    "segments of {} bytes, retransmitted {} times, none acknowledged; {} small packets came back",
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

fn fragments(window: &Window<'_>) -> Vec<Observation> {
    let both = |name: &str| window.grew(&format!("Ip{name}")) + window.grew(&format!("Ip6{name}"));
    let (uncut, apart) = (both("FragFails"), both("ReasmFails"));
    if uncut + apart == 0 {
        return Vec::new();
    }
    let wanted = both("ReasmReqds").max(both("FragOKs"));
    let lost = share(uncut + apart, wanted + uncut + apart);
    let of_ipv6 = window.grew("Ip6FragFails") + window.grew("Ip6ReasmFails");
    let of_ipv6 = if of_ipv6 > 0 { format!(", {of_ipv6} of it IPv6") } else { String::new() };
    let saw =
        format!("FragFails +{uncut}, ReasmFails +{apart}{of_ipv6}; {} of those concerned", percent(lost));
    let per_s = (uncut + apart) as f64 / window.seconds();
    let read_from = if of_ipv6.is_empty() { SNMP } else { "/proc/net/snmp, /proc/net/snmp6" };
    vec![Observation::with_effect(per_s >= 1.0, 10.0 + lost * 30.0).saw(saw, read_from)]
}
