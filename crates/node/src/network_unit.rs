//! Which unit is a network's on the node: one for all of its containers, or one for each of its bridges.

use std::fmt;

use linux::IfName;

use crate::conf::Conf;
use crate::encoded_ifname::{decode, encode};

/// How the ids of networks end.
const ENDING: &str = "net";

/// What the containers of a network share on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetworkUnit {
    network: String,
    /// The bridge, where a network may have several.
    bridge: Option<IfName>,
}

impl NetworkUnit {
    pub(crate) fn new(network: &str, bridge: Option<IfName>) -> NetworkUnit {
        NetworkUnit { network: network.to_owned(), bridge }
    }

    /// The unit that a configuration asks for.
    pub(crate) fn of(network: &str, conf: &Conf) -> NetworkUnit {
        NetworkUnit::new(network, conf.bridge.clone().filter(|_| conf.has_a_unit_per_bridge))
    }

    /// The name of the network.
    pub(crate) fn network(&self) -> &str {
        &self.network
    }

    /// The bridge, where a network may have several.
    pub(crate) fn bridge(&self) -> Option<&IfName> {
        self.bridge.as_ref()
    }

    /// Its id in the book: `pods.net`, or `pods.net-br0`. A bridge's name has no dot in it there, so that what follows
    /// the last one is never part of a network's name.
    pub(crate) fn id(&self) -> String {
        match &self.bridge {
            None => format!("{}.{ENDING}", self.network),
            Some(bridge) => format!("{}.{ENDING}-{}", self.network, encode(bridge.as_str())),
        }
    }

    /// The unit with this id; `None` if it is no network's.
    pub(crate) fn from_id(id: &str) -> Option<NetworkUnit> {
        let (network, ending) = id.rsplit_once('.')?;
        let bridge = match ending.strip_prefix(ENDING)? {
            "" => None,
            bridge => Some(IfName::new(&decode(bridge.strip_prefix('-')?)?).ok()?),
        };
        Some(NetworkUnit::new(network, bridge))
    }
}

impl fmt::Display for NetworkUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.bridge {
            None => f.write_str(&self.network),
            Some(bridge) => write!(f, "{} on {bridge}", self.network),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_says_which_network_and_which_bridge() {
        let unit = |network, bridge: Option<&str>| {
            NetworkUnit::new(network, bridge.map(|bridge| IfName::new(bridge).unwrap()))
        };
        let units = [
            unit("pods", None),
            unit("pods", Some("br0")),
            unit("pods.net-br0", None),
            unit("pods", Some("br.net-0")),
            unit("pods.net-br", Some("net-0")),
        ];
        for one in &units {
            assert_eq!(NetworkUnit::from_id(&one.id()).as_ref(), Some(one), "{}", one.id());
            assert_eq!(units.iter().filter(|other| other.id() == one.id()).count(), 1, "{}", one.id());
        }
        assert_eq!((units[0].id(), units[1].id()), ("pods.net".into(), "pods.net-br0".into()));
        assert_eq!(units[1].to_string(), "pods on br0");
        for other in ["pods", "pods.network", "pods.net-", "pods.net-br-zz", "pods.net-br-2"] {
            assert_eq!(NetworkUnit::from_id(other), None, "{other}");
        }
    }
}
