//! The plugin's own part of a network configuration.

use cni::{ErrorCode, Failure, Request};
use datapath::{ATTACHES, DataPath, Prefixes};
use ipam::{Range, RangeSets};
use ipnet::IpNet;
use linux::IfName;
use serde::Deserialize;

/// What a network's configuration says.
#[derive(Debug, Clone)]
pub(crate) struct Conf {
    /// How pods reach the node.
    pub(crate) path: &'static DataPath,
    /// The link to other nodes; `None`: that of the default route.
    pub(crate) wire: Option<IfName>,
    /// The node's number in the network; `None`: the end of its address.
    pub(crate) node: Option<u16>,
    /// The pods' MTU in bytes; `None`: what the wire leaves.
    pub(crate) mtu: Option<u32>,
    /// Whether what pods send out of the network gets the node's address.
    pub(crate) masquerade: bool,
    /// Whether the pods' default routes go by this network.
    pub(crate) default_route: bool,
    /// The prefixes of all nodes' pods.
    pub(crate) prefixes: Prefixes,
    /// The prefixes of this node's pods.
    pub(crate) pods: Prefixes,
    /// The ranges within them from which pods get their addresses, one of each set.
    pub(crate) ranges: RangeSets,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    attach: String,
    wire: Option<IfName>,
    node: Option<u16>,
    mtu: Option<u32>,
    #[serde(default)]
    masquerade: bool,
    #[serde(default = "yes")]
    default_route: bool,
    #[serde(default)]
    prefixes: Vec<IpNet>,
    ipam: WrittenIpam,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenIpam {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    ranges: Vec<Vec<Range>>,
}

fn yes() -> bool {
    true
}

/// The `type` of the addresses that the plugin itself keeps.
const OWN_IPAM: &str = "hostgap";

impl Conf {
    /// Reads a plugin's input. Ranges that the runtime gives (`ipRanges`) take the place of those of the file.
    ///
    /// # Errors
    /// Code 7, with the key and what is wrong with it.
    pub(crate) fn read(request: &Request) -> Result<Conf, Failure> {
        let written: Written =
            serde_json::from_value(request.own().into()).map_err(|error| invalid(error.to_string()))?;
        let path = ATTACHES.iter().find(|path| path.name == written.attach).ok_or_else(|| {
            let names: Vec<&str> = ATTACHES.iter().map(|path| path.name).collect();
            invalid(format!("`attach` is {:?}; one of {} is expected", written.attach, names.join(", ")))
        })?;
        if written.masquerade && !path.attach.masquerades() {
            return Err(Failure::new(
                ErrorCode::UNSUPPORTED_FIELD,
                format!("`masquerade` is true, and pods of {} leave by the wire as they are", path.name),
            ));
        }
        if written.ipam.kind != OWN_IPAM {
            return Err(Failure::new(
                ErrorCode::UNSUPPORTED_FIELD,
                format!("`ipam.type` is {:?}; {OWN_IPAM:?} is expected", written.ipam.kind),
            ));
        }
        let written_ranges: Vec<Vec<Range>> = match request.runtime("ipRanges") {
            Some(given) => serde_json::from_value(given.clone())
                .map_err(|error| invalid(format!("`runtimeConfig.ipRanges`: {error}")))?,
            None => written.ipam.ranges,
        };
        let ranges = RangeSets::new(&written_ranges)
            .map_err(|error| invalid(format!("`ipam.ranges`: could not {error}")))?;
        let pods: Prefixes = written_ranges.iter().flatten().map(|range| range.subnet).collect();
        let prefixes =
            if written.prefixes.is_empty() { pods.clone() } else { written.prefixes.into_iter().collect() };
        Ok(Conf {
            path,
            wire: written.wire,
            node: written.node,
            mtu: written.mtu,
            masquerade: written.masquerade,
            default_route: written.default_route,
            prefixes,
            pods,
            ranges,
        })
    }
}

fn invalid(why: String) -> Failure {
    Failure::new(ErrorCode::INVALID_NETWORK_CONFIG, why)
}
