//! The plugin for addresses alone, for when the program is called `host-local`: other plugins call it for theirs.

use cni::{Attachment, Failure, Request, Version};
use ipam::{Holder, RangeSets, Reserved, Store};
use serde_json::{Value, json};

use crate::addresses::Leases;
use crate::conf::{range_sets, sets};
use crate::failures::{changed, invalid_conf};
use crate::{container_args, dropin, resolv};

/// Reserves an address of each range set, and says so with the routes of the configuration and what its file says of
/// name servers.
pub(crate) fn add(leases: &Leases, request: &Request, attachment: &Attachment) -> Result<Value, Failure> {
    let Attachment { container_id, ifname, .. } = attachment;
    let file = request.ipam().and_then(|ipam| ipam.get("resolvConf")).and_then(Value::as_str);
    // Before an address is reserved, which a failure would not release.
    let dns = file
        .filter(|file| !file.is_empty())
        .map_or_else(|| Ok(json!({})), |file| resolv::read(file.as_ref()))?;
    let asked = container_args::asked_addresses(request, attachment)?;
    let reserved = leases.reserve((container_id, ifname), &ranges(request)?, &asked, Store::reserve)?;
    let version = request.version()?;
    let ips: Vec<Value> = reserved.iter().map(|ip| address(ip, version)).collect();
    let routes = request.ipam().and_then(|ipam| ipam.get("routes")).cloned().unwrap_or_else(|| json!([]));
    Ok(json!({ "cniVersion": version.as_str(), "ips": ips, "routes": routes, "dns": dns }))
}

/// Whether addresses are reserved for a container's interface.
pub(crate) fn check(leases: &Leases, attachment: &Attachment) -> Result<(), Failure> {
    let Attachment { container_id, ifname, .. } = attachment;
    if leases.reserved(container_id, ifname)?.is_empty() {
        return Err(changed(format!("no address is reserved for {ifname} of container {container_id}")));
    }
    Ok(())
}

/// Releases what is reserved for others than those that are valid.
pub(crate) fn keep_only(leases: &Leases, valid: &[(String, String)]) -> Result<(), Failure> {
    let is_kept = |Holder { container, ifname }: &Holder| {
        valid.iter().any(|(id, name)| id == container && ifname.as_ref().is_none_or(|ifname| ifname == name))
    };
    leases.keep_only(is_kept)
}

/// Whether each range set has an address left.
pub(crate) fn status(leases: &Leases, request: &Request) -> Result<(), Failure> {
    leases.require_left(&ranges(request)?)
}

fn ranges(request: &Request) -> Result<RangeSets, Failure> {
    let ipam = request.ipam().cloned().ok_or_else(|| invalid_conf("`ipam` is missing"))?;
    range_sets(&sets(request, dropin::addresses(ipam)?["ranges"].take())?)
}

/// Before 1.0.0 the family stands beside an address.
fn address(reserved: &Reserved, version: Version) -> Value {
    let mut object =
        json!({ "address": reserved.address.to_string(), "gateway": reserved.gateway.to_string() });
    if version < Version::V1_0_0 {
        object["version"] = if reserved.gateway.is_ipv4() { "4" } else { "6" }.into();
    }
    object
}
