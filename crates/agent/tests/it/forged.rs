//! What a pod writes to a tunnel's port itself: it has no part in the tunnel.

use std::net::UdpSocket;
use std::time::Duration;

use linux::{IfName, Netns};
use testkit::{PacketSocket, require_root};

use crate::keep::{A, B, VXLAN, is_reached, with_pods};
use crate::nodes::{Nodes, PATIENCE};

/// Bytes before a tunnel datagram's payload on the wire: Ethernet, IPv4 and UDP.
const OUTER: usize = 42;
/// The checksum of the UDP header within such a payload, after VXLAN, Ethernet, IPv4 and six bytes.
const INNER_CHECKSUM: std::ops::Range<usize> = 48..50;

/// The nodes, with a pod on `a` that has no privileges there.
struct Ground {
    nodes: Nodes,
    pod: Netns,
}

impl Ground {
    fn new() -> Ground {
        let nodes = Nodes::new();
        with_pods(&nodes);
        nodes.world.add("pod");
        let (a, b, pod) = (nodes.name("a"), nodes.name("b"), nodes.name("pod"));
        nodes.at(&format!(
            "ip -n {a} link add pod0 type veth peer name eth0 netns {pod}
             ip -n {a} link set pod0 up; ip -n {a} route add 10.244.1.5 dev pod0
             ip -n {pod} link set eth0 up; ip -n {pod} address add 10.244.1.5/24 dev eth0
             ip -n {pod} route add default via 10.244.1.9
             for node in {a} {b}; do
                 ip netns exec $node sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
                     net.ipv4.conf.default.rp_filter=0 net.ipv4.conf.wire.rp_filter=0
             done
             ip netns exec {a} sysctl -qw net.ipv4.conf.pod0.proxy_arp=1"
        ));
        let pod = nodes.world.open("pod");
        Ground { nodes, pod }
    }

    fn socket(&self, node: &str, address: &str) -> UdpSocket {
        let socket = self.nodes.world.open(node).run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }

    /// The payload by which the tunnel brings `honest` to a node's pods, with another text in it.
    fn forged(&self, at: &str, honest: &dyn Fn()) -> Vec<u8> {
        let wire = PacketSocket::receiver(&self.nodes.world.open(at), &IfName::new("wire").unwrap());
        honest();
        loop {
            let frame = wire.receive(PATIENCE).expect("the tunnel's datagram comes by the wire").bytes;
            let Some(text) = frame.windows(6).position(|bytes| bytes == b"honest") else { continue };
            let mut payload = frame[OUTER..].to_vec();
            payload[text - OUTER..][..6].copy_from_slice(b"forged");
            // In IPv4 a datagram may have none.
            payload[INNER_CHECKSUM].fill(0);
            return payload;
        }
    }
}

fn next(socket: &UdpSocket) -> String {
    let mut bytes = [0; 64];
    let length = socket.recv(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

/// To its own node's end of the tunnel, and to another's. The rules stand while no agent runs.
#[test]
fn what_a_pod_writes_to_a_tunnels_port_reaches_no_pod() {
    if !require_root() {
        return;
    }
    let ground = Ground::new();
    let nodes = &ground.nodes;
    nodes.write_leases(VXLAN, &[A, B]);
    let (mut a, mut b) = (nodes.start("a"), nodes.start("b"));
    a.until("b is reached", is_reached("b", "vxlan"));
    b.until("a is reached", is_reached("a", "vxlan"));
    a.stop().unwrap();
    b.stop().unwrap();
    let attacker = ground.pod.run(|| UdpSocket::bind("10.244.1.5:0")).unwrap().unwrap();
    let mut attacks = Vec::new();
    for (victim, address, other, from, end) in [
        ("a", "10.244.1.9", "b", "10.244.2.9", "192.0.2.1"),
        ("b", "10.244.2.9", "a", "10.244.1.9", "192.0.2.2"),
    ] {
        let hears = ground.socket(victim, &format!("{address}:7000"));
        let says = ground.socket(other, &format!("{from}:0"));
        let honest = || {
            says.send_to(b"honest", (address, 7000)).unwrap();
        };
        let forged = ground.forged(victim, &honest);
        assert_eq!(next(&hears), "honest");
        for _ in 0..5 {
            attacker.send_to(&forged, (end, 8472)).unwrap();
        }
        // What the pod sent before has come, or will not.
        let after = ground.socket(victim, &format!("{end}:7001"));
        attacker.send_to(b"after", (end, 7001)).unwrap();
        assert_eq!(next(&after), "after");
        honest();
        assert_eq!(next(&hears), "honest", "to {victim}");
        attacks.push((hears, forged, end));
    }
    // Without the rules each of them arrives.
    nodes.at("for node in A B ; do
                  for table in $(ip netns exec $node nft list tables | sed -n 's/table //; /hg-tunnel/s/ /:/p'); do
                      ip netns exec $node nft delete table ${table%:*} ${table#*:}
                  done
              done");
    for (hears, forged, end) in &attacks {
        attacker.send_to(forged, (*end, 8472)).unwrap();
        hears.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        assert_eq!(next(hears), "forged", "to {end}");
    }
}
