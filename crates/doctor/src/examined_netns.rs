//! The network namespace that doctor examines: the current one or another.

use std::collections::{BTreeMap, BTreeSet};

use linux::netlink::LinkInfo;
use linux::sysfs::NetSysfs;
use linux::{Files, Netlink, Netns, NetnsName};

use crate::{DoctorError, Snapshot, Taken};

/// A network namespace to examine. CPUs, interrupts and groups belong to the machine and appear in each.
#[derive(Debug)]
pub struct ExaminedNetns {
    netns: Option<Netns>,
    /// Where the mounted one shows another namespace's links.
    sysfs: Option<NetSysfs>,
}

impl ExaminedNetns {
    /// The namespace of the calling thread.
    pub fn here() -> ExaminedNetns {
        // A shell that entered only the network namespace (nsenter --net) still has the sysfs of the old one.
        let elsewhere = shows_other_links(&Files::kernel());
        let own = elsewhere.then(|| Netns::current().and_then(|netns| NetSysfs::open(&netns)));
        ExaminedNetns { netns: None, sysfs: own.and_then(Result::ok) }
    }

    /// A named namespace, with a sysfs that shows its links.
    ///
    /// # Errors
    /// The name does not exist, or this process may not enter the namespace.
    pub fn netns(name: &NetnsName) -> Result<ExaminedNetns, DoctorError> {
        let netns = Netns::open(name)?;
        let sysfs = NetSysfs::open(&netns)?;
        Ok(ExaminedNetns { netns: Some(netns), sysfs: Some(sysfs) })
    }

    /// Takes one snapshot, and keeps the texts from which it was made.
    ///
    /// # Errors
    /// The namespace can no longer be entered.
    pub fn look(&self) -> Result<Taken, DoctorError> {
        let mut files = Files::kernel();
        if let Some(sysfs) = &self.sysfs {
            files = files.mounted("sys/class/net", sysfs.path().join("class/net"));
        }
        let look = move || {
            let strange = shows_other_links(&files);
            // Files of another namespace are not read.
            let files = if strange { files.mounted("sys/class/net", "/nonexistent") } else { files };
            let files = files.taking_down();
            let mut snapshot = Snapshot::take(&files);
            if strange {
                snapshot.unseen.push("links: /sys shows those of another network namespace".to_owned());
            }
            (snapshot, files.taken())
        };
        match &self.netns {
            None => Ok(look()),
            Some(netns) => {
                let (mut snapshot, texts) = netns.run(look)?;
                snapshot.netns = netns.name().cloned();
                Ok((snapshot, texts))
            }
        }
    }
}

/// Links of a namespace by name, each with its number and its Ethernet address.
type Known = BTreeMap<String, (u32, Option<String>)>;

/// Whether sysfs has other links than the calling thread's namespace. Two namespaces may have the same names and
/// numbers, so that Ethernet addresses are compared.
fn shows_other_links(files: &Files) -> bool {
    let compared = || -> linux::Result<bool> {
        let (names, links) = (shown(files)?, known()?);
        let mut addresses = BTreeMap::new();
        for name in links.keys() {
            let address = files.read(&format!("sys/class/net/{name}/address"))?;
            addresses.extend(address.map(|address| (name.clone(), address.trim().to_owned())));
        }
        // Where all is equal nothing came or went.
        if !are_others([&names, &names], [&links, &links], &addresses) {
            return Ok(false);
        }
        let links_after = known()?;
        Ok(are_others([&names, &shown(files)?], [&links, &links_after], &addresses))
    };
    compared().unwrap_or(false)
}

/// The links that sysfs shows.
fn shown(files: &Files) -> linux::Result<BTreeSet<String>> {
    let names = files.list("sys/class/net")?.into_iter();
    // A file of the bonding driver lies among the links.
    Ok(names.filter(|name| name != "bonding_masters").collect())
}

/// The links of the calling thread's namespace.
fn known() -> linux::Result<Known> {
    let links = Netlink::open()?.links()?.into_iter();
    let known = |link: LinkInfo| (link.name.to_string(), (link.index, link.mac.map(|mac| mac.to_string())));
    Ok(links.map(known).collect())
}

/// Whether the links that sysfs showed are not those that were known meanwhile. On a busy host links come and go
/// between any two looks, so that only those count that were there in both.
fn are_others(
    shown: [&BTreeSet<String>; 2],
    known: [&Known; 2],
    addresses: &BTreeMap<String, String>,
) -> bool {
    let unknown = |name: &&String| known.iter().all(|links| !links.contains_key(*name));
    let mut stayed = known[0].iter().filter_map(|(name, (index, mac))| {
        let (later, later_mac) = known[1].get(name)?;
        (later == index).then_some((name, [mac, later_mac]))
    });
    let is_hidden = |(name, macs): (&String, [&Option<String>; 2])| {
        let address = addresses.get(name);
        address.is_none() || macs.iter().all(|mac| mac.is_some() && mac.as_ref() != address)
    };
    shown[0].intersection(shown[1]).any(|name| unknown(&name)) || stayed.any(is_hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(links: &[(&str, u32, &str)]) -> Known {
        links
            .iter()
            .map(|(name, index, mac)| ((*name).to_owned(), (*index, Some((*mac).to_owned()))))
            .collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn addresses(links: &[(&str, &str)]) -> BTreeMap<String, String> {
        links.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned())).collect()
    }

    #[test]
    fn links_that_come_and_go_are_not_those_of_another_namespace() {
        let read = addresses(&[("lo", "0"), ("eth0", "a")]);
        let here = known(&[("lo", 1, "0"), ("eth0", 2, "a")]);
        let busy = known(&[("lo", 1, "0"), ("eth0", 2, "a"), ("veth7", 9, "b")]);
        let (few, more) = (names(&["eth0", "lo"]), names(&["eth0", "lo", "veth7"]));
        assert!(!are_others([&few, &few], [&here, &here], &read));
        // It came after the first look at sysfs, or before it and went.
        assert!(!are_others([&few, &more], [&here, &busy], &read));
        assert!(!are_others([&more, &few], [&here, &here], &read));
        // It went after the first question, before its address was read; or came again with another number.
        assert!(!are_others([&more, &few], [&busy, &here], &read));
        let again = known(&[("lo", 1, "0"), ("eth0", 2, "a"), ("veth7", 11, "c")]);
        assert!(!are_others([&more, &more], [&busy, &again], &read));
    }

    #[test]
    fn links_of_another_namespace_are_noticed() {
        let here = known(&[("lo", 1, "0"), ("eth0", 2, "a")]);
        let both = names(&["eth0", "lo"]);
        let others = |shown: &BTreeSet<String>, read: &[(&str, &str)]| {
            are_others([shown, shown], [&here, &here], &addresses(read))
        };
        assert!(others(&both, &[("lo", "0"), ("eth0", "b")]));
        assert!(others(&names(&["lo"]), &[("lo", "0")]));
        assert!(others(&names(&["eth0", "eth1", "lo"]), &[("lo", "0"), ("eth0", "a")]));
        assert!(!others(&both, &[("lo", "0"), ("eth0", "a")]));
    }
}
