//! What the agent leaves for other programs to read, each file replaced in one stroke.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use datapath::{Family, Prefixes};
use ipnet::IpNet;

use crate::network::NetworkConfig;

/// The key of the network's name, which flannel does not have.
const OWNER: &str = "HOSTGAP_NETWORK";
/// All users may read the files, as they may flannel's.
const MODE: u32 = 0o644;

/// Replaces a file in one stroke, unless it is so already. True if it was written.
///
/// # Errors
/// A directory cannot be made, or the file cannot be written; it is then as before.
pub fn replace(path: &Path, text: &str) -> io::Result<bool> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    node::install::replace(path, text.as_bytes(), MODE)?;
    Ok(true)
}

/// flannel's environment file: the network, this node's prefixes, and what plugins are to know of them. flannel's CNI
/// plugin reads it, and so does an agent that begins, to ask for the same prefixes again. One line more than flannel's
/// says whose it is, by the network's name in the agent's settings.
pub fn subnet_env(
    name: &str,
    network: &NetworkConfig,
    own: &Prefixes,
    mtu: u32,
    masquerades: bool,
) -> String {
    let mut text = String::new();
    for (family, prefix) in [(Family::V4, ""), (Family::V6, "IPV6_")] {
        let net = network.networks.iter().find(|one| Family::of(one.prefix.addr()) == family);
        let (Some(net), Some(subnet)) = (net, own.of(family).next()) else { continue };
        let gateway = match subnet {
            IpNet::V4(v4) => Ipv4Addr::from_bits(v4.network().to_bits() + 1).into(),
            IpNet::V6(v6) => IpAddr::from(Ipv6Addr::from_bits(v6.network().to_bits() + 1)),
        };
        text += &format!("FLANNEL_{prefix}NETWORK={}\n", net.prefix);
        text += &format!("FLANNEL_{prefix}SUBNET={gateway}/{}\n", subnet.prefix_len());
    }
    text + &format!("FLANNEL_MTU={mtu}\nFLANNEL_IPMASQ={masquerades}\n{OWNER}={name}\n")
}

/// What an environment file says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// The prefixes of all nodes' pods, IPv4 first.
    pub networks: Vec<IpNet>,
    /// The node's own address in each of its prefixes, with the prefix's length: the gateway of its pods.
    pub gateways: Vec<IpNet>,
    /// The pods' MTU in bytes.
    pub mtu: Option<u32>,
    /// Whether flannel gives what pods send out of the network the node's address.
    pub masquerades: bool,
    /// The network of the agent that wrote it, by its name in the settings; `None`: flannel did, or an agent
    /// of an earlier version.
    pub owner: Option<String>,
}

impl Environment {
    /// Reads a file.
    ///
    /// # Errors
    /// The system's: there is no such file, or it cannot be read. A line that makes no sense is none.
    pub fn read(path: &Path) -> io::Result<Environment> {
        let mut environment = Environment::default();
        for line in fs::read_to_string(path)?.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let (value, net) = (value.trim(), value.trim().parse::<IpNet>());
            match key.trim() {
                "FLANNEL_NETWORK" | "FLANNEL_IPV6_NETWORK" => environment.networks.extend(net),
                "FLANNEL_SUBNET" | "FLANNEL_IPV6_SUBNET" => environment.gateways.extend(net),
                "FLANNEL_MTU" => environment.mtu = value.parse().ok(),
                "FLANNEL_IPMASQ" => environment.masquerades = value == "true",
                OWNER => environment.owner = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(environment)
    }

    /// The other network whose agent wrote it; `None`: none did.
    pub(crate) fn owner_but(&self, network: &str) -> Option<&String> {
        self.owner.as_ref().filter(|owner| *owner != network)
    }

    /// Whether the agent of this network wrote it.
    pub(crate) fn is_of(&self, network: &str) -> bool {
        self.owner.as_deref() == Some(network)
    }

    /// The prefixes of this node's pods. The file has the gateways' addresses in their place.
    pub fn subnets(&self) -> Prefixes {
        self.gateways.iter().map(IpNet::trunc).collect()
    }
}

/// The prefixes of an environment file of an earlier run; none where there is no such file, it says none, or
/// it is another network's.
pub fn previous_prefixes(path: &Path, network: &str) -> Prefixes {
    let written = Environment::read(path).unwrap_or_default();
    if written.owner_but(network).is_some() { Prefixes::default() } else { written.subnets() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_environment_file_is_flannel_s_and_read_again() {
        let network = json!({
            "Network": "10.244.0.0/16", "EnableIPv6": true, "IPv6Network": "fd00:244::/56",
            "Backend": { "Type": "vxlan" },
        });
        let network = NetworkConfig::parse(&network).unwrap();
        let own: Prefixes = ["10.244.3.0/24", "fd00:244:0:3::/64"]
            .map(|net| net.parse::<IpNet>().unwrap())
            .into_iter()
            .collect();
        let text = subnet_env("pods", &network, &own, 1430, true);
        let expected = "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\n\
                        FLANNEL_IPV6_NETWORK=fd00:244::/56\nFLANNEL_IPV6_SUBNET=fd00:244:0:3::1/64\n\
                        FLANNEL_MTU=1430\nFLANNEL_IPMASQ=true\nHOSTGAP_NETWORK=pods\n";
        assert_eq!(text, expected);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/subnet.env");
        assert_eq!(previous_prefixes(&path, "pods"), Prefixes::default());
        assert_eq!([replace(&path, &text).unwrap(), replace(&path, &text).unwrap()], [true, false]);
        assert_eq!(previous_prefixes(&path, "pods"), own);
        assert_eq!(previous_prefixes(&path, "storage"), Prefixes::default());
        assert_eq!(Environment::read(&path).unwrap().owner.as_deref(), Some("pods"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
