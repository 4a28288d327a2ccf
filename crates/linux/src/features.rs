//! What this kernel can do, probed and never guessed from its version.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Something that a data path or a knob may need of the kernel or of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feature {
    /// Links of kind veth.
    Veth,
    /// Links of kind bridge.
    Bridge,
    /// Links of kind vxlan.
    Vxlan,
    /// Links of kind macvlan.
    Macvlan,
    /// Links of kind ipvlan.
    Ipvlan,
    /// IPv6 in a new namespace.
    Ipv6,
    /// nftables with address translation, and the `nft` program.
    Nftables,
    /// Bridged packets pass netfilter (`br_netfilter`).
    BridgeNetfilter,
}

impl Feature {
    /// Every feature, in display order.
    pub const ALL: &[Feature] = &[
        Feature::Veth,
        Feature::Bridge,
        Feature::Vxlan,
        Feature::Macvlan,
        Feature::Ipvlan,
        Feature::Ipv6,
        Feature::Nftables,
        Feature::BridgeNetfilter,
    ];
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Feature::Veth => "veth links",
            Feature::Bridge => "bridge links",
            Feature::Vxlan => "vxlan links",
            Feature::Macvlan => "macvlan links",
            Feature::Ipvlan => "ipvlan links",
            Feature::Ipv6 => "IPv6",
            Feature::Nftables => "nftables",
            Feature::BridgeNetfilter => "br_netfilter",
        })
    }
}

/// What was found on this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// `uname -r`.
    pub kernel: String,
    /// The features that are missing, each with the kernel's own words. What is not listed is there.
    pub missing: BTreeMap<Feature, String>,
}

/// A need that is not met, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unmet {
    /// What is missing.
    pub feature: Feature,
    /// How that showed itself.
    pub why: String,
}

impl Facts {
    /// Those of the needs that this machine does not meet.
    pub fn unmet(&self, needs: &[Feature]) -> Vec<Unmet> {
        needs
            .iter()
            .filter_map(|feature| {
                self.missing.get(feature).map(|why| Unmet { feature: *feature, why: why.clone() })
            })
            .collect()
    }
}

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} not available: {}", self.feature, self.why)
    }
}
