//! What such a network is made from, and the arguments and commands that follow.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::UserNetDir;
use crate::cpu::Scheduling;
use crate::{CpuSet, IfName, Mac, NetnsRef};

/// The file with the number of the process.
pub(super) const PID: &str = "pid";
/// The file with what the program says.
pub(super) const LOG: &str = "log";
/// The socket of slirp4netns. A path of a socket has at most 107 bytes.
pub(super) const SOCKET: &str = "api";

/// A pod's network in user mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserNet {
    /// The name of its directory.
    pub name: String,
    /// The pod's namespace, in which the link is made.
    pub pod: NetnsRef,
    /// The name of the link.
    pub link: IfName,
    /// The MTU of the link in bytes.
    pub mtu: u32,
    /// What carries the pod's connections.
    pub program: UserNetProgram,
    /// Ports of the node that lead to the pod's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ForwardedPort>,
    /// The CPUs on which it may run; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuSet>,
    /// How it is scheduled.
    #[serde(default = "normal", skip_serializing_if = "is_normal")]
    pub scheduling: Scheduling,
}

/// A program that makes a network in user mode, with what it alone is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserNetProgram {
    /// pasta, of passt: it translates between the pod's packets and sockets, and leaves TCP to both ends' kernels.
    Pasta {
        /// The pod's addresses.
        addresses: Vec<IpAddr>,
        /// The addresses that it has on the link itself.
        gateways: Vec<IpAddr>,
        /// The Ethernet address of the link.
        mac: Mac,
        /// The Ethernet address from which it sends.
        gateway_mac: Mac,
        /// The link of the node by which connections leave.
        wire: IfName,
    },
    /// slirp4netns: it has a TCP of its own (libslirp).
    Slirp4netns {
        /// The pod's address to which ports lead.
        address: Option<Ipv4Addr>,
        /// Whether the pod has IPv6.
        ipv6: bool,
    },
}

/// A port of the node that leads to one of the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardedPort {
    /// What comes in on it.
    pub protocol: PortProtocol,
    /// The address of the node on which it is; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Its number on the node.
    pub port: u16,
    /// The number of the port in the pod.
    pub to: u16,
}

/// What a port is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum PortProtocol {
    Tcp,
    Udp,
}

impl PortProtocol {
    pub(super) fn name(self) -> &'static str {
        match self {
            PortProtocol::Tcp => "tcp",
            PortProtocol::Udp => "udp",
        }
    }
}

impl UserNetProgram {
    /// Its name, as one types it.
    pub fn name(&self) -> &'static str {
        match self {
            UserNetProgram::Pasta { .. } => "pasta",
            UserNetProgram::Slirp4netns { .. } => "slirp4netns",
        }
    }

    /// The package of Debian that has it.
    pub(super) fn package(&self) -> &'static str {
        match self {
            UserNetProgram::Pasta { .. } => "passt",
            UserNetProgram::Slirp4netns { .. } => "slirp4netns",
        }
    }
}

impl UserNet {
    /// The argument that its process has, and no other.
    pub(super) fn mark(&self) -> String {
        match self.program {
            UserNetProgram::Pasta { .. } => format!("--pid={}", self.file(PID)),
            UserNetProgram::Slirp4netns { .. } => format!("--api-socket={}", self.file(SOCKET)),
        }
    }

    pub(super) fn args(&self) -> Vec<String> {
        match &self.program {
            UserNetProgram::Pasta { addresses, gateways, mac, gateway_mac, wire } => {
                let mut args = vec![self.mark(), format!("--log-file={}", self.file(LOG))];
                // As root it would become `nobody`, who may not enter the pod.
                args.extend(["--runas=0".to_owned(), "--quiet".to_owned()]);
                if let [one] = addresses.as_slice() {
                    args.push(if one.is_ipv4() { "--ipv4-only" } else { "--ipv6-only" }.to_owned());
                }
                args.push(format!("--interface={wire}"));
                args.extend(addresses.iter().map(|address| format!("--address={address}")));
                args.extend(gateways.iter().map(|gateway| format!("--gateway={gateway}")));
                args.push(format!("--mac-addr={gateway_mac}"));
                args.extend(self.pasta_ports());
                // The pod reaches no port of the node's loopback, and asks for no address.
                args.extend(["tcp-ns=none", "udp-ns=none"].map(|ports| format!("--{ports}")));
                args.extend(["--no-map-gw", "--no-dhcp", "--no-dhcpv6", "--no-ra"].map(str::to_owned));
                args.push(format!("--mtu={}", self.mtu));
                args.extend([format!("--ns-mac-addr={mac}"), format!("--ns-ifname={}", self.link)]);
                args.push(format!("--netns={}", self.pod_path()));
                args
            }
            UserNetProgram::Slirp4netns { ipv6, .. } => {
                let mut args =
                    vec![self.mark(), "--netns-type=path".to_owned(), format!("--mtu={}", self.mtu)];
                args.extend(ipv6.then(|| "--enable-ipv6".to_owned()));
                // Not `--enable-sandbox`: where mounts are shared, as systemd has them, it takes those below /run/netns
                // away from the whole machine.
                let shut = ["--disable-host-loopback", "--disable-dns", "--enable-seccomp"];
                args.extend(shut.map(str::to_owned));
                args.extend([self.pod_path(), self.link.to_string()]);
                args
            }
        }
    }

    /// What slirp4netns is asked at its socket so that a port leads to the pod; pasta has it in its arguments.
    pub(super) fn hostfwd(&self, port: ForwardedPort) -> Option<Value> {
        let UserNetProgram::Slirp4netns { address, .. } = self.program else { return None };
        let mut arguments = json!({
            "proto": port.protocol.name(),
            "host_addr": port.address.map_or_else(|| "0.0.0.0".to_owned(), |at| at.to_string()),
            "host_port": port.port,
            "guest_port": port.to,
        });
        if let (Some(address), Some(arguments)) = (address, arguments.as_object_mut()) {
            arguments.insert("guest_addr".to_owned(), json!(address.to_string()));
        }
        Some(json!({ "execute": "add_hostfwd", "arguments": arguments }))
    }

    /// Without any it would look for ports at which the pod listens, and lead to those.
    fn pasta_ports(&self) -> Vec<String> {
        let mut args = Vec::new();
        for (protocol, option) in [(PortProtocol::Tcp, "--tcp-ports"), (PortProtocol::Udp, "--udp-ports")] {
            let of_it = self.ports.iter().filter(|port| port.protocol == protocol);
            let specified = of_it.map(|ForwardedPort { address, port, to, .. }| {
                let at = address.map_or(String::new(), |address| format!("{address}/"));
                format!("{option}={at}{port}:{to}")
            });
            let before = args.len();
            args.extend(specified);
            if args.len() == before {
                args.push(format!("{option}=none"));
            }
        }
        args
    }

    /// What a person would type to start it; `inside` makes a command one of the node's namespace.
    pub fn commands(&self, inside: impl Fn(&str) -> String) -> Vec<String> {
        let UserNetDir { dir } = self.dir();
        let mut typed = vec![self.program.name().to_owned()];
        typed.extend(self.args());
        let mut typed = typed.join(" ");
        if let Some(cpus) = &self.cpus {
            typed = format!("taskset --cpu-list {cpus} {typed}");
        }
        if let Scheduling::Fifo(priority) = self.scheduling {
            typed = format!("chrt --fifo {priority} {typed}");
        }
        let made = format!("mkdir -p -m 700 {}", dir.display());
        match self.program {
            UserNetProgram::Pasta { .. } => vec![made, inside(&typed)],
            UserNetProgram::Slirp4netns { .. } => {
                let (log, pid, socket) = (self.file(LOG), self.file(PID), self.file(SOCKET));
                let started = format!("sh -c '{typed} </dev/null >{log} 2>&1 & echo $! >{pid}'");
                let awaited = format!("until test -S {socket}; do sleep 0.1; done");
                let requests = self.ports.iter().filter_map(|port| self.hostfwd(*port));
                let asked = requests.map(|request| format!("echo '{request}' | nc -U {socket}"));
                [made, inside(&started), awaited].into_iter().chain(asked).collect()
            }
        }
    }

    /// What a person would type to end what those commands started.
    pub fn removal(&self) -> String {
        format!("kill $(cat {}); rm -r {}", self.file(PID), self.dir().dir.display())
    }

    fn pod_path(&self) -> String {
        match &self.pod {
            NetnsRef::Name(name) => Path::new("/run/netns").join(name.as_str()).display().to_string(),
            NetnsRef::Path(path) => path.to_string(),
        }
    }

    fn file(&self, name: &str) -> String {
        self.dir().dir.join(name).display().to_string()
    }
}

fn normal() -> Scheduling {
    Scheduling::Normal
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_normal(scheduling: &Scheduling) -> bool {
    *scheduling == Scheduling::Normal
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(program: UserNetProgram) -> UserNet {
        let port = |protocol| ForwardedPort { protocol, address: None, port: 8080, to: 80 };
        UserNet {
            name: "hg-x-n1-1-p1".to_owned(),
            pod: NetnsRef::Name("hg-x-server".parse().unwrap()),
            link: "eth0".parse().unwrap(),
            mtu: 65520,
            program,
            ports: vec![port(PortProtocol::Tcp), port(PortProtocol::Udp)],
            cpus: Some("1".parse().unwrap()),
            scheduling: Scheduling::Normal,
        }
    }

    #[test]
    fn commands_keep_to_the_directory_and_the_node() {
        let slirp = UserNetProgram::Slirp4netns { address: Some([10, 244, 1, 2].into()), ipv6: false };
        let commands = net(slirp).commands(|command| format!("ip netns exec n1 {command}"));
        let dir = "/run/hostgap-user-net/hg-x-n1-1-p1";
        let expected = [
            format!("mkdir -p -m 700 {dir}"),
            format!(
                "ip netns exec n1 sh -c 'taskset --cpu-list 1 slirp4netns --api-socket={dir}/api --netns-type=path --mtu=65520 \
                 --disable-host-loopback --disable-dns --enable-seccomp /run/netns/hg-x-server eth0 </dev/null \
                 >{dir}/log 2>&1 & echo $! >{dir}/pid'"
            ),
            format!("until test -S {dir}/api; do sleep 0.1; done"),
        ];
        assert_eq!(commands[..3], expected);
        assert!(commands[3].starts_with("echo '{") && commands[3].ends_with(&format!("| nc -U {dir}/api")));
        assert_eq!(commands.len(), 5);
    }

    #[test]
    fn pasta_is_told_its_family_and_all_its_ports() {
        let [mac, gateway_mac] = [1, 2].map(|id| Mac::from_id(4, id));
        let [one, gateway] = [[10, 244, 1, 2], [10, 244, 1, 1]].map(IpAddr::from);
        let wire: IfName = "eth0".parse().unwrap();
        let (addresses, gateways) = (vec![one], vec![gateway]);
        let mut net = net(UserNetProgram::Pasta { addresses, gateways, mac, gateway_mac, wire });
        net.ports[1].address = Some([192, 168, 100, 1].into());
        let args = net.args();
        for argument in ["--ipv4-only", "--tcp-ports=8080:80", "--udp-ports=192.168.100.1/8080:80"] {
            assert!(args.iter().any(|found| found == argument), "{args:?}");
        }
        net.ports.clear();
        let args = net.args();
        assert!(
            ["--tcp-ports=none", "--udp-ports=none"].iter().all(|none| args.iter().any(|arg| arg == none))
        );
    }
}
