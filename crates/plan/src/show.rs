//! A plan as the commands a person would type. They are for reading and copying; nothing here runs them, and what
//! `apply` does is the same change by netlink and files. A test runs them and compares.

use std::net::IpAddr;

use bpf::forward::TunnelEnd;
use ipnet::IpNet;
use linux::{CpuSet, sysctl};
use linux::{
    Encap, FdbEntry, IfName, IpvlanMode, Link, LinkKind, MacvlanMode, Neighbour, Qdisc, Route, VethPeer,
    Vxlan, nft,
};

use crate::forwarding::{Attachment, Endpoint, Member, Programs, Splice, Tunnel};
use crate::{Place, Placed, Plan, Queue, RssHash, Step};

impl Plan {
    /// The plan as shell commands, in order. An nftables table is one entry of several lines (a here-document).
    ///
    /// They are to be run by a POSIX shell as root in the host's namespace, with iproute2, procps and nftables
    /// installed.
    pub fn commands(&self) -> Vec<String> {
        self.steps.iter().flat_map(Placed::commands).collect()
    }
}

impl Placed {
    /// The step as shell commands: one, or two for a namespace and its loopback.
    pub fn commands(&self) -> Vec<String> {
        if let Step::AddNetns = self.step {
            let ip = Tool("ip", &self.place);
            return vec![
                format!("ip netns add {}", netns_operand(&self.place)),
                ip.run("link set dev lo up"),
            ];
        }
        vec![command(&self.place, &self.step)]
    }
}

/// `ip`, `bridge` or `tc`, which can enter a namespace themselves.
struct Tool<'a>(&'static str, &'a Place);

impl Tool<'_> {
    fn run(&self, arguments: &str) -> String {
        match self.1 {
            Place::Host => format!("{} {arguments}", self.0),
            Place::Netns(name) => format!("{} -n {name} {arguments}", self.0),
        }
    }
}

/// The command of every step but [`Step::AddNetns`], which has two. A tbf and what stands inside it are one line.
fn command(place: &Place, step: &Step) -> String {
    let ip = Tool("ip", place);
    let bridge = Tool("bridge", place);
    match step {
        Step::AddNetns => format!("ip netns add {}", netns_operand(place)),
        Step::AddLink(link) => ip.run(&format!("link add {}", add_link(link))),
        Step::MoveLink { link, to, name } => {
            ip.run(&format!("link set dev {} netns {} name {}", word(link), netns_operand(to), word(name)))
        }
        Step::SetLinkUp { link } => ip.run(&format!("link set dev {} up", word(link))),
        Step::SetLinkMtu { link, mtu } => ip.run(&format!("link set dev {} mtu {mtu}", word(link))),
        Step::SetLinkMaster { link, master } => {
            ip.run(&format!("link set dev {} master {}", word(link), word(master)))
        }
        Step::SetHairpin { link } => bridge.run(&format!("link set dev {} hairpin on", word(link))),
        Step::AddAddress { link, address } => ip.run(&add_address(link, address)),
        Step::AddRoute(route) => ip.run(&add_route(route)),
        Step::AddNeighbour(neighbour) => ip.run(&add_neighbour(neighbour)),
        Step::AddFdb(entry) => bridge.run(&append_fdb(entry)),
        Step::SetSysctl { key, value } => inside(place, &write_sysctl(key, value)),
        Step::AddNftTable(table) => inside(place, &feed_nft(table)),
        Step::SetQueueCpus { link, queue, cpus } => write_queue(place, link, *queue, cpus),
        Step::SetQueueFlows { link, rx, flows } => {
            echo(place, &flows.to_string(), link, &format!("{}/rps_flow_cnt", Queue::Rx(*rx)))
        }
        Step::SetRouteMetric { dst, link, metric, value } => {
            change_route(place, dst, link, &format!("{} {value}", metric.word()))
        }
        Step::SetGsoMaxSegs { link, segments } => {
            ip.run(&format!("link set dev {} gso_max_segs {segments}", word(link)))
        }
        Step::SetRootQdisc { link, qdisc } => root_qdisc(&Tool("tc", place), link, qdisc),
        Step::SetNic { link, parameter, value } => {
            inside(place, &format!("ethtool {}", parameter.command(&word(link), *value)))
        }
        Step::SetIndirection { link, queues } => {
            inside(place, &format!("ethtool -X {} equal {queues}", word(link)))
        }
        Step::SetRssHash { link, hash } => set_rss_hash(place, link, hash),
        Step::SetLinkAttribute { link, attribute, value } => {
            echo_at(place, &value.to_string(), &format!("/sys/class/net/{link}/{attribute}"))
        }
        Step::SetDebug { file, value } => format!("echo {value} > /sys/kernel/debug/{file}"),
        Step::SetModule { parameter, value } => format!("echo {value} > /sys/module/{parameter}"),
        Step::SetIrqCpus { irq, cpus, .. } => format!("echo {cpus} > /proc/irq/{irq}/smp_affinity_list"),
        Step::LoadPrograms(programs) => ours(place, "load", &programs.node, &load_programs(programs)),
        Step::AttachProgram(Attachment { node, program, link }) => {
            ours(place, "attach", node, &format!("{} {}", program.name(), word(link)))
        }
        Step::AddEndpoint(endpoint) => ours(place, "endpoint", &endpoint.node, &add_endpoint(endpoint)),
        Step::AddTunnel(Tunnel { node, prefix, device, remote }) => {
            ours(place, "tunnel", node, &format!("{prefix} {} {remote}", word(device)))
        }
        Step::AddCgroup(splice) => format!("mkdir -p {}", splice.shell_path()),
        Step::LoadSplice(Splice { node }) => format!("hostgap bpf splice {}", quoted(node)),
        Step::AttachSplice(splice) => {
            format!("hostgap bpf splice {} --attach {}", quoted(&splice.node), splice.shell_path())
        }
        Step::AddMember(Member { node, addresses }) => ours(place, "member", node, &joined(addresses)),
    }
}

impl Splice {
    /// The directory of its control group as a word of the shell, which finds out where the hierarchy is mounted.
    pub fn shell_path(&self) -> String {
        format!("$(findmnt -fnt cgroup2 -o TARGET)/hostgap/{}", quoted(&self.node))
    }
}

/// A command that cannot enter a namespace by itself.
fn inside(place: &Place, command: &str) -> String {
    match place {
        Place::Host => command.to_owned(),
        Place::Netns(name) => format!("ip netns exec {name} {command}"),
    }
}

/// A place where `ip` wants a namespace: its name, or the shell's own process for the host's namespace, which need
/// not be that of process 1.
fn netns_operand(place: &Place) -> &str {
    match place {
        Place::Host => "$$",
        Place::Netns(name) => name.as_str(),
    }
}

fn root_qdisc(tc: &Tool<'_>, link: &IfName, qdisc: &Qdisc) -> String {
    let link = word(link);
    let Qdisc::Tbf(tbf) = qdisc else { return tc.run(&format!("qdisc replace dev {link} root {qdisc}")) };
    let outer = tc.run(&format!("qdisc replace dev {link} root handle 1: tbf{tbf}"));
    let inner = tc.run(&format!("qdisc replace dev {link} parent 1:1 {}", tbf.inner));
    format!("{outer} && {inner}")
}

fn add_link(link: &Link) -> String {
    let mut text = format!("name {}", word(&link.name));
    match &link.kind {
        LinkKind::Macvlan { parent, .. } | LinkKind::Ipvlan { parent, .. } => {
            text += &format!(" link {}", word(parent));
        }
        LinkKind::Veth { .. }
        | LinkKind::Netkit { .. }
        | LinkKind::Bridge
        | LinkKind::Vxlan(_)
        | LinkKind::VxlanExternal { .. } => {}
    }
    text += &mtu_and_mac(link.mtu, link.mac);
    text += &format!(" type {}", link.kind.name());
    match &link.kind {
        LinkKind::Veth { peer } => text += &other_end(peer),
        // Both policies are `forward`, ip's default, which is "pass" to the kernel.
        LinkKind::Netkit { peer } => text += &format!(" mode l2{}", other_end(peer)),
        LinkKind::Bridge => {}
        LinkKind::Vxlan(vxlan) => text += &vxlan_options(vxlan),
        // That it does not learn is what ip makes of `external`.
        LinkKind::VxlanExternal { port } => text += &format!(" external dstport {port} udp6zerocsumrx"),
        LinkKind::Macvlan { mode, .. } => text += &format!(" mode {}", macvlan_mode(*mode)),
        LinkKind::Ipvlan { mode, .. } => text += &format!(" mode {}", ipvlan_mode(*mode)),
    }
    text
}

fn mtu_and_mac(mtu: Option<u32>, mac: Option<linux::Mac>) -> String {
    let mtu = mtu.map(|mtu| format!(" mtu {mtu}")).unwrap_or_default();
    let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
    mtu + &mac
}

fn other_end(peer: &VethPeer) -> String {
    let netns = peer.netns.as_ref().map(|netns| format!(" netns {netns}")).unwrap_or_default();
    format!(" peer name {}{}{netns}", word(&peer.name), mtu_and_mac(peer.mtu, peer.mac))
}

fn vxlan_options(vxlan: &Vxlan) -> String {
    let Vxlan { vni, parent, local, port, learning } = vxlan;
    let learning = if *learning { "learning" } else { "nolearning" };
    // Over IPv4 ours go without a checksum of the outer UDP packet, over IPv6 with one, which is the kernel's default.
    let checksums = if local.is_ipv4() { " noudpcsum" } else { "" };
    format!(" id {vni} dev {} local {local} dstport {port} {learning}{checksums}", word(parent))
}

fn macvlan_mode(mode: MacvlanMode) -> &'static str {
    match mode {
        MacvlanMode::Bridge => "bridge",
        MacvlanMode::Private => "private",
    }
}

fn ipvlan_mode(mode: IpvlanMode) -> &'static str {
    match mode {
        IpvlanMode::L2 => "l2",
        IpvlanMode::L3 => "l3",
        IpvlanMode::L3s => "l3s",
    }
}

fn add_address(link: &IfName, address: &IpNet) -> String {
    let nodad = match address {
        IpNet::V4(_) => "",
        IpNet::V6(_) => " nodad",
    };
    format!("address add {address} dev {}{nodad}", word(link))
}

fn add_route(route: &Route) -> String {
    let Route { dst, via, dev, onlink, src, mtu, encap } = route;
    let mut text = format!("route add {dst}");
    text += &encap.as_ref().map(into_tunnel).unwrap_or_default();
    if let Some(via) = via {
        let other_family = via.is_ipv6() && dst.addr().is_ipv4();
        text += &format!(" via {}{via}", if other_family { "inet6 " } else { "" });
    }
    text += &format!(" dev {}", word(dev));
    if *onlink {
        text += " onlink";
    }
    if let Some(src) = src {
        text += &format!(" src {src}");
    }
    if let Some(mtu) = mtu {
        text += &format!(" mtu {mtu}");
    }
    text
}

fn into_tunnel(encap: &Encap) -> String {
    let Encap { id, remote } = encap;
    match remote {
        IpAddr::V4(remote) => format!(" encap ip id {id} dst {remote}"),
        IpAddr::V6(remote) => format!(" encap ip6 id {id} dst {remote} csum"),
    }
}

fn add_neighbour(neighbour: &Neighbour) -> String {
    let Neighbour { dev, ip, mac } = neighbour;
    match mac {
        Some(mac) => format!("neighbour add {ip} lladdr {mac} dev {} nud permanent", word(dev)),
        None => format!("neighbour add proxy {ip} dev {}", word(dev)),
    }
}

/// `append` and not `add`: the all-zero address may have one entry for each remote.
fn append_fdb(entry: &FdbEntry) -> String {
    let FdbEntry { dev, mac, dst } = entry;
    format!("fdb append {mac} dev {} dst {dst} self permanent", word(dev))
}

fn write_sysctl(key: &sysctl::Key, value: &str) -> String {
    // With dots in a link's name only the form with slashes is unambiguous; sysctl(8) takes both.
    let key = if key.as_str().contains('.') { key.to_string() } else { key.as_str().replace('/', ".") };
    format!("sysctl -w {}", quoted(&format!("{key}={value}")))
}

fn feed_nft(table: &nft::Table) -> String {
    format!("nft -f - <<'EOF'\n{}\nEOF", table.to_text().trim_end())
}

fn write_queue(place: &Place, link: &IfName, queue: Queue, cpus: &CpuSet) -> String {
    let file = match queue {
        Queue::Rx(n) => format!("rx-{n}/rps_cpus"),
        Queue::Tx(n) => format!("tx-{n}/xps_cpus"),
    };
    echo(place, &cpus.to_mask(), link, &file)
}

/// Writes a file of a link's queue.
fn echo(place: &Place, value: &str, link: &IfName, file: &str) -> String {
    echo_at(place, value, &format!("/sys/class/net/{link}/queues/{file}"))
}

/// Writes a file of the namespace's /sys.
fn echo_at(place: &Place, value: &str, path: &str) -> String {
    let script = format!("echo {value} > {}", quoted(path));
    match place {
        Place::Host => script,
        // The redirection must happen inside, where `ip netns exec` has mounted the namespace's own /sys.
        Place::Netns(_) => inside(place, &format!("sh -c {}", quoted(&script))),
    }
}

/// `change` puts a route in the place of another, so what it is has to be said again. `ip` does not read all that it
/// prints: that a timeout is locked goes without saying, and that the link is down is no property of the route.
fn change_route(place: &Place, dst: &IpNet, link: &IfName, what: &str) -> String {
    let family = if dst.addr().is_ipv6() { "-6 " } else { "" };
    let ip = |arguments: &str| Tool("ip", place).run(arguments).replacen("ip ", &format!("ip {family}"), 1);
    let now = ip(&format!("route show exact {dst}"));
    let readable = "sed 's/rto_min lock/rto_min/; s/ linkdown//; s/ dead//'";
    ip(&format!("route change $({now} | {readable}) dev {} {what}", word(link)))
}

/// A symmetric key has the length of the card's own, so that one is written over pair by pair.
fn set_rss_hash(place: &Place, link: &IfName, hash: &RssHash) -> String {
    let link = word(link);
    let ethtool = |arguments: &str| inside(place, &format!("ethtool {arguments}"));
    match hash {
        RssHash::Fields { .. } => ethtool(&format!("-N {link} rx-flow-hash {hash}")),
        RssHash::Key(key) => ethtool(&format!("-X {link} hkey {key}")),
        RssHash::SymmetricKey => {
            let own = ethtool(&format!("-x {link}"));
            let over = "sed -n '/^RSS hash key/{n;s/..:../6d:5a/g;p;}'";
            ethtool(&format!("-X {link} hkey $({own} | {over})"))
        }
    }
}

/// A command of hostgap's own: nothing else knows its programs. It enters the namespace by itself, since a mount that is
/// made under `ip netns exec` is seen by nobody else.
fn ours(place: &Place, verb: &str, node: &str, arguments: &str) -> String {
    let netns = match place {
        Place::Host => String::new(),
        Place::Netns(name) => format!(" --netns {name}"),
    };
    format!("hostgap bpf {verb}{netns} {} {arguments}", quoted(node))
}

fn load_programs(programs: &Programs) -> String {
    let Programs { node: _, wire, mtu, gateway, gateway_mac, pods, cluster, tunnel } = programs;
    let mut text = format!("--wire {} --mtu {mtu} --pods {},{}", word(wire), pods.0, pods.1);
    text +=
        &format!(" --cluster {},{} --gateway {gateway} --gateway-mac {gateway_mac}", cluster.0, cluster.1);
    if let Some(TunnelEnd { local, vni, port }) = tunnel {
        text += &format!(" --tunnel {local} --vni {vni} --port {port}");
    }
    text
}

fn add_endpoint(endpoint: &Endpoint) -> String {
    format!("{} {} {}", word(&endpoint.link), endpoint.mac, joined(&endpoint.addresses))
}

fn joined(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// A link's name as one word of the shell: the kernel allows `$`, quotes and the like in it.
fn word(name: &IfName) -> String {
    quoted(name.as_str())
}

/// The text as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_word(text: &str, expected: &str) {
        assert_eq!(quoted(text), expected);
    }

    #[test]
    fn words_are_quoted_only_where_the_shell_needs_it() {
        check_word("flannel.1", "flannel.1");
        check_word("net.ipv4.ip_forward=1", "net.ipv4.ip_forward=1");
        check_word("4096 87380", "'4096 87380'");
        check_word("$(id)", "'$(id)'");
        check_word("it's", r"'it'\''s'");
        check_word("", "''");
    }
}
