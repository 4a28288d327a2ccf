//! Transports: how nodes reach each other's pods, one file each.

mod direct;
mod onlink;
mod vpc;
mod vxlan;

pub(crate) use direct::DIRECT;
pub(crate) use onlink::ONLINK;
pub(crate) use vpc::VPC;
pub(crate) use vxlan::VXLAN;
