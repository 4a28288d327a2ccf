//! The datagrams of a workload, and the packets into which they have to go.

use linux::netlink::RouteMetric;
use record::{Workload, WorkloadKind};
use tune::{Lives, Settings, Value};

/// The sizes of a workload's datagrams in bytes; of other workloads none.
fn sizes(workload: &Workload) -> &[u32] {
    match workload.kind {
        WorkloadKind::UdpRr | WorkloadKind::UdpStream => &workload.body_bytes,
        WorkloadKind::Http
        | WorkloadKind::Connect
        | WorkloadKind::Grpc
        | WorkloadKind::Download
        | WorkloadKind::TcpRr
        | WorkloadKind::TcpStream
        | WorkloadKind::Packets
        | WorkloadKind::Verbs => &[],
    }
}

/// Those that do not fit into a packet of so many bytes, behind the headers of IP and UDP.
pub(crate) fn too_large(workload: &Workload, packet_bytes: u32) -> Vec<u32> {
    let most = most(workload.ipv6, packet_bytes);
    sizes(workload).iter().copied().filter(|bytes| *bytes > most).collect()
}

/// The largest datagram in a packet of so many bytes.
pub(crate) fn most(ipv6: bool, packet_bytes: u32) -> u32 {
    let ip = if ipv6 { 40 } else { 20 };
    packet_bytes.saturating_sub(ip + 8)
}

/// The MTU of the wire, where settings may say another.
pub(crate) fn wire_mtu(settings: &Settings, usual: u32) -> u32 {
    of(settings, Lives::Mtu).next().unwrap_or(usual)
}

/// The bytes of a packet where a link has so many: settings may leave the routes of either side less.
pub(crate) fn packet_bytes(settings: &Settings, link_mtu: u32) -> u32 {
    of(settings, Lives::Route(RouteMetric::Mtu)).fold(link_mtu, u32::min)
}

/// What either side has of a number.
fn of(settings: &Settings, lives: Lives) -> impl Iterator<Item = u32> {
    let both = settings.client.iter().chain(&settings.server).filter(move |setting| setting.lives == lives);
    both.filter_map(|setting| match &setting.value {
        Value::Number(bytes) => u32::try_from(*bytes).ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use record::{RequestedValue, Tuning};

    use super::*;

    #[test]
    fn a_datagram_fits_into_a_packet_with_its_headers() {
        let of = |kind, ipv6| Workload { ipv6, body_bytes: vec![100, 1452, 1472], ..Workload::of(kind) };
        assert!(too_large(&of(WorkloadKind::UdpRr, false), 1500).is_empty());
        assert_eq!(too_large(&of(WorkloadKind::UdpStream, false), 1499), [1472]);
        assert_eq!(too_large(&of(WorkloadKind::UdpStream, true), 1500), [1472]);
        assert_eq!(too_large(&of(WorkloadKind::UdpRr, true), 1280), [1452, 1472]);
        assert!(too_large(&of(WorkloadKind::TcpRr, false), 576).is_empty(), "TCP makes segments that fit");
    }

    #[test]
    fn settings_of_the_wire_and_of_either_side_s_routes_count() {
        let number = |knob: &str, value| [(knob.to_owned(), RequestedValue::Number(value))].into();
        let read = |tuning| {
            let settings = Settings::read(&tuning).unwrap();
            packet_bytes(&settings, wire_mtu(&settings, 1500))
        };
        assert_eq!(read(Tuning::default()), 1500);
        assert_eq!(read(Tuning { both: number("mtu", 9001), ..Tuning::default() }), 9001);
        assert_eq!(read(Tuning { server: number("route_mtu", 1400), ..Tuning::default() }), 1400);
        let both = number("mtu", 9001);
        assert_eq!(read(Tuning { both, client: number("route_mtu", 1400), ..Tuning::default() }), 1400);
        assert_eq!(read(Tuning { both: number("route_mtu", 9000), ..Tuning::default() }), 1500);
    }
}
