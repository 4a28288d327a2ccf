//! Whether a test can hold back what arrives at a link.

use linux::{IfName, Link, LinkKind, Netlink, Netns};

use crate::{require_root, skip};

/// True if this kernel has ifb links, and redirects to them. If not, the skip is recorded.
///
/// # Panics
/// If no namespace can be made.
pub fn has_redirects() -> bool {
    if !require_root() {
        return false;
    }
    let netns = Netns::anonymous().expect("root can make namespaces");
    let netlink = Netlink::open_in(&netns).expect("a socket can be opened there");
    let [lo, name] = ["lo", "hgifb"].map(|text| IfName::new(text).expect("a valid name"));
    let tried = || {
        netlink.link_add(&Link { name: name.clone(), kind: LinkKind::Ifb, mtu: None, mac: None })?;
        netlink.ingress_redirect(netlink.index_of(&lo)?, netlink.index_of(&name)?)
    };
    let missing = tried().err();
    if let Some(why) = &missing {
        skip(&format!("no redirects to ifb links: {why}"));
    }
    missing.is_none()
}
