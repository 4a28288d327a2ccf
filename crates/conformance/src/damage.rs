//! What is broken on purpose in a container of a case, to see whether the plugin notices, or copes.

use ipnet::IpNet;
use linux::netlink::RouteInfo;
use linux::{IfName, Link, LinkKind, Netlink, Route};
use plan::{Plan, SetLinkUp, Step};

use crate::outcome::{Judged, Stop};
use crate::scene::{Container, IFNAME, Scene};

impl Scene<'_> {
    /// Deletes the container's namespace by its name, as a runtime does whose container has died.
    pub(crate) fn delete_namespace(&self, container: &Container) -> Judged {
        linux::netns::delete(&container.name)?;
        self.transcript().command(format!("ip netns del {}", container.name));
        Ok(())
    }

    pub(crate) fn delete_interface(&self, container: &Container) -> Judged {
        let netlink = Netlink::open_in(&container.netns()?)?;
        netlink.link_del(netlink.index_of(&IfName::new(IFNAME)?)?)?;
        self.note(container, &format!("link del {IFNAME}"));
        Ok(())
    }

    pub(crate) fn delete_address(&self, container: &Container, address: &IpNet) -> Judged {
        let netlink = Netlink::open_in(&container.netns()?)?;
        netlink.address_del(netlink.index_of(&IfName::new(IFNAME)?)?, address)?;
        self.note(container, &format!("address del {address} dev {IFNAME}"));
        Ok(())
    }

    pub(crate) fn delete_route(&self, container: &Container, found: &RouteInfo) -> Judged {
        let via = found.next_hops.first().and_then(|hop| hop.via);
        let route = Route { via, ..Route::on_link(found.dst, IfName::new(IFNAME)?) };
        Netlink::open_in(&container.netns()?)?.route_del(&route)?;
        let family = if found.dst.addr().is_ipv4() { "-4" } else { "-6" };
        self.transcript().command(format!("ip {family} -n {} route del {}", container.name, found.dst));
        Ok(())
    }

    /// Makes an interface of another program, which has the name already.
    pub(crate) fn occupy(&self, container: &Container) -> Judged {
        let mut plan = Plan::new();
        let link = Link { name: IfName::new(IFNAME)?, kind: LinkKind::Bridge, mtu: None, mac: None };
        plan.push(&container.place(), Step::AddLink(link));
        self.make(&plan)
    }

    /// Adds a route beside those of the plugin, as a plugin behind it in the list may do.
    pub(crate) fn add_route(&self, container: &Container, dst: &str) -> Judged {
        let dst = dst.parse().map_err(|_| Stop::undecided(&format!("{dst} is no prefix")))?;
        let mut plan = Plan::new();
        plan.push(&container.place(), SetLinkUp { link: IfName::new(IFNAME)? });
        plan.push(&container.place(), Step::AddRoute(Route::on_link(dst, IfName::new(IFNAME)?)));
        self.make(&plan)
    }

    fn note(&self, container: &Container, arguments: &str) {
        self.transcript().command(format!("ip -n {} {arguments}", container.name));
    }
}
