//! What a node forgets that begins to forward IPv6: the routes that routers have announced to it. The next announcement
//! does not bring them back, since a node that forwards takes none, and once it no longer forwards, minutes go by until
//! there is one. With 2 in its `accept_ra` a link keeps its routes and goes on taking announcements
//! (`addrconf_fixup_forwarding` in net/ipv6/addrconf.c, `__rt6_purge_dflt_routers` in net/ipv6/route.c).

use linux::netlink::RouteInfo;
use linux::sysctl::{self, Key};

use super::{SetSysctl, known, same};
use crate::Place;
use crate::error::StepError;
use crate::set::{At, Register};

/// `RTPROT_KERNEL` and `RTPROT_RA`.
const KERNEL: u8 = 2;
const ANNOUNCED: u8 = 9;

/// Whether it lets a node forward IPv6: at all links or at one, all routes are forgotten.
pub(super) fn lets_forward(key: &Key) -> bool {
    let parts: Vec<&str> = key.as_str().split('/').collect();
    matches!(parts[..], ["net", "ipv6", "conf", scope, "forwarding"] if scope != "default")
}

/// Which route would be lost, and what keeps it. Programs that take announcements themselves, as NetworkManager and
/// systemd-networkd do, have 0 in a link's `accept_ra`, and the kernel leaves their routes alone.
pub(super) fn lost_by(step: &SetSysctl, at: &At<'_>) -> Result<Option<String>, StepError> {
    let netlink = &at.opened.netlink;
    let links = netlink.links()?;
    for route in netlink.routes()?.iter().filter(|route| is_announced(route)) {
        let index = route.next_hops.first().and_then(|hop| hop.index);
        let Some(link) = links.iter().find(|link| Some(link.index) == index) else { continue };
        let accepts = known(&format!("net/ipv6/conf/{}/accept_ra", link.name));
        let value = at.opened.netns.run(|| sysctl::read(&accepts))??;
        if value.is_some_and(|value| same(&value, "1")) {
            let keep = SetSysctl { key: accepts, value: "2".to_owned() }.command(&Place::Host);
            let SetSysctl { key, value } = step;
            return Ok(Some(format!(
                "{key} cannot be set to {value}: the kernel would forget the route to {} that a router has announced \
                 on {}; run `{keep}` first",
                route.dst, link.name
            )));
        }
    }
    Ok(None)
}

/// The kernel's own route to the prefix of an announced address expires with that.
fn is_announced(route: &RouteInfo) -> bool {
    let is_of_router = route.protocol == ANNOUNCED || (route.protocol == KERNEL && route.expires);
    route.dst.addr().is_ipv6() && is_of_router
}
