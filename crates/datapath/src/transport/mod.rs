//! Transports: how nodes reach each other's pods, one file each.

mod direct;
mod ipsec;
mod metadata;
mod onlink;
mod ovs;
mod vpc;
pub(crate) mod vxlan;
mod wireguard;

pub(crate) use direct::DIRECT;
pub(crate) use ipsec::IPSEC;
pub(crate) use metadata::VXLAN_METADATA;
pub(crate) use onlink::ONLINK;
pub(crate) use ovs::{OVS_GENEVE, OVS_VXLAN};
pub(crate) use vpc::VPC;
pub(crate) use wireguard::WIREGUARD;
