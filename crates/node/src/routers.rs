//! Whether the node is to take no router advertisement from its containers.

use std::path::Path;

use datapath::AntiSpoofing;
use linux::sysctl;

use crate::conf::Conf;

/// Whether the links that the node has for containers are to take none: the kernel has IPv6, and the attach does
/// not drop them anyway.
///
/// A bridge of the machine's own, by which it may have its own default route, keeps what it has: one that is there
/// and takes router advertisements was not made for containers. Nor does one take any that has no IPv6, since its
/// MTU is too small.
///
/// # Errors
/// A parameter cannot be read.
pub(crate) fn are_refused(conf: &Conf) -> linux::Result<bool> {
    let has_links = conf.path.attach.anti_spoofing() == AntiSpoofing::Optional || conf.host_link;
    if !has_links || accepts("all")?.is_none() {
        return Ok(false);
    }
    let Some(bridge) = &conf.bridge else { return Ok(true) };
    Ok(match accepts(bridge.as_str())? {
        Some(accepts) => !accepts,
        // It is to be made, or it is one without IPv6.
        None => !Path::new("/sys/class/net").join(bridge.as_str()).exists(),
    })
}

/// Whether a link takes them; `None`: there is no such link, or no IPv6.
fn accepts(link: &str) -> linux::Result<Option<bool>> {
    let key = sysctl::Key::new(format!("net/ipv6/conf/{link}/accept_ra"))
        .expect("a constant path with a link's name in it is a key");
    Ok(sysctl::read(&key)?.map(|value| value != "0"))
}
